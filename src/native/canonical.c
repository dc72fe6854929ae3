/* From a recording to its canonical graph.
 *
 * What _Builder does in compiler/canonicalise.py, to the last bit: read that first. Arrays are made
 * as large as they can get before anything is done, so that nothing fails half way; what was not
 * needed was never touched, and is given back.
 */
#include "native.h"

/* The kinds of nodes after INPUT and CONSTANT, and a product in a sum, which is none. */
enum { NODE_RULE = 2, NODE_SUM, NODE_EXTREME, NODE_GATHER, PAIR };
enum { ROLE_PLAIN, ROLE_ADD, ROLE_MUL, ROLE_MAX, ROLE_MIN };

/* A term of an addition, a product or a maximum that waits for its user: two nodes, or one and -1. */
typedef struct {
    int32_t a, b, next;
} Term;

/* What is read: the recording, and the arrays of _Surroundings. */
enum {
    G_CODES, G_OPERANDS, G_CONSTANTS, G_NUMBER, G_ROLES, G_IDENTITIES, G_CLASSES, G_WANTED, G_PLACES,
    G_ORDER, G_CANDIDATE_AT, G_CANDIDATES, G_BEGINS, G_ITERATIONS, G_TOKENS,
    GIVEN
};
static const char *const given_formats[GIVEN] = {"i", "i", "d", "B", "i", "B", "b",
                                                 "i", "i", "i", "i", "i", "i", "i", "B"};

/* What is made: the arrays of Graph. */
enum {
    M_KINDS, M_CODES, M_NUMBER, M_CONSTANTS, M_PRODUCT_AT, M_PRODUCTS, M_PLAIN_AT, M_PLAINS, M_ORIGIN,
    M_AT, M_PLACES, M_SIGNATURE, M_LEVEL,
    MADE
};

typedef struct {
    Py_buffer views[GIVEN];
    int view_count;
    Py_ssize_t inputs, count, rule_count, wanted_count, place_count, candidate_count;
    const int32_t *codes, *operands, *roles, *wanted, *places, *order, *candidate_at, *candidates;
    const int32_t *begins, *iterations; /* NULL without loops */
    const double *constants;
    const char *number, *identities, *tokens;
    const signed char *classes;

    Py_ssize_t term_limit, product_limit, plain_limit, known_limit;
    unsigned char *live, *uses;  /* of each instruction; uses stops at 2 */
    unsigned char *moving;       /* of each node: computed from what an earlier iteration of its loop made */
    int32_t *first, *last;       /* terms of each instruction that waits, else -1 */
    Term *terms;
    int32_t *known;              /* nodes by their operation and operands */
    uint64_t *set, known_mask;
    Py_ssize_t place;            /* the first that is not before the present instruction */

    PyObject *objects[MADE];
    Py_ssize_t node_count, product_count, plain_count, term_count;
    signed char *kinds;
    char *node_number;
    int32_t *node_codes, *products, *plains, *origin, *at, *node_places, *level;
    int64_t *product_at, *plain_at;
    double *node_constants;
    uint64_t *signature;
} Lift;

/* ------------------------------------------------------------------------------ signatures ----- */

static inline uint64_t mix(uint64_t h, uint64_t x) {
    uint64_t z = h * 0x9E3779B97F4A7C15u + x;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t hash_at(const char *hashes, size_t k) {
    uint64_t hash;
    memcpy(&hash, hashes + 8 * k, sizeof hash);
    return hash;
}

static uint64_t identity_of(const Lift *x, int32_t code) {
    return hash_at(x->identities, (size_t)code);
}

/* The signature of a node to instruction i if another iteration made it, else 0. */
static inline uint64_t leaf_of(const Lift *x, Py_ssize_t i, int32_t node) {
    if (x->iterations == NULL || x->iterations[i] == 0) {
        return 0;
    }
    int32_t origin = x->origin[node];
    return x->iterations[origin] != x->iterations[i] ? hash_at(x->tokens, (size_t)origin) : 0;
}

/* The signature of a node as instruction i sees it. */
static inline uint64_t seen(const Lift *x, Py_ssize_t i, int32_t node) {
    uint64_t leaf = leaf_of(x, i, node);
    if (leaf == 0 && x->iterations != NULL && x->begins[i] != 0 && x->kinds[node] > CONSTANT &&
        x->begins[x->origin[node]] != x->begins[i]) {
        leaf = mix(0, 9); /* it does not depend on another iteration */
    }
    return leaf ? leaf : x->signature[node];
}

/* Whether a node makes what instruction i makes of it differ between iterations. */
static inline int moves(const Lift *x, Py_ssize_t i, int32_t node) {
    return x->iterations != NULL && x->iterations[i] != 0 && (leaf_of(x, i, node) != 0 || x->moving[node]);
}

/* Long sums are mostly of one or two kinds of terms, so that this keeps the set short. */
static inline size_t add_to_set(uint64_t *set, size_t count, uint64_t h) {
    for (size_t k = count; k > 0 && k + 4 > count; k--) {
        if (set[k - 1] == h) {
            return count;
        }
    }
    set[count] = h;
    return count + 1;
}

static int compare_hashes(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t mix_set(uint64_t h, uint64_t *set, size_t count) {
    size_t distinct = count > 0;
    if (count > 1) {
        qsort(set, count, sizeof *set, compare_hashes);
    }
    for (size_t k = 1; k < count; k++) {
        if (set[k] != set[distinct - 1]) {
            set[distinct++] = set[k];
        }
    }
    h = mix(h, distinct);
    for (size_t k = 0; k < distinct; k++) {
        h = mix(h, set[k]);
    }
    return h;
}

static uint64_t mix_plains(const Lift *x, uint64_t h, Py_ssize_t node, Py_ssize_t i) {
    size_t count = 0;
    for (int64_t k = x->plain_at[node]; k < x->plain_count; k++) {
        count = add_to_set(x->set, count, seen(x, i, x->plains[k]));
    }
    return mix_set(h, x->set, count);
}

static uint64_t mix_products(const Lift *x, uint64_t h, Py_ssize_t node, Py_ssize_t i) {
    const uint64_t pair = mix(0, PAIR + 1);
    uint64_t a = 0, b = 0;
    size_t count = 0;
    for (int64_t k = x->product_at[node]; k < x->product_count; k++) {
        uint64_t left = seen(x, i, x->products[2 * k]), right = seen(x, i, x->products[2 * k + 1]);
        if (count == 0 || left != a || right != b) {
            count = add_to_set(x->set, count, mix(mix(pair, left), right));
        }
        a = left;
        b = right;
    }
    return mix_set(h, x->set, count);
}

static uint64_t signature_of(const Lift *x, Py_ssize_t node, Py_ssize_t i) {
    int kind = x->kinds[node];
    uint64_t h = mix(0, (uint64_t)kind + 1);
    int32_t code = x->codes[i];
    switch (kind) {
    case INPUT:
        return mix(h, (uint64_t)(int64_t)x->classes[i]);
    case CONSTANT:
        return h;
    case NODE_RULE:
        h = mix(mix(h, identity_of(x, code)), x->number[i] != 0);
        for (int k = 0; k < x->roles[2 * code + 1]; k++) {
            h = mix(h, bits_of(x->constants[2 * i + k]));
        }
        for (int64_t k = x->plain_at[node]; k < x->plain_count; k++) {
            h = mix(h, seen(x, i, x->plains[k]));
        }
        return h;
    case NODE_SUM: {
        Py_ssize_t plains = x->plain_count - (Py_ssize_t)x->plain_at[node];
        h = mix_plains(x, mix_products(x, h, node, i), node, i);
        return mix(h, x->product_count > x->product_at[node] ? (uint64_t)plains : UINT64_MAX);
    }
    case NODE_EXTREME:
        h = mix(h, identity_of(x, code));
    }
    return mix_plains(x, h, node, i);
}

/* One operand: the level that its user has at least; whether it makes it a moving one. */
static inline void look_below(Lift *x, Py_ssize_t node, Py_ssize_t i, int32_t operand) {
    int32_t level = 1 + (leaf_of(x, i, operand) ? 0 : x->level[operand]);
    x->level[node] = level > x->level[node] ? level : x->level[node];
    x->moving[node] |= (unsigned char)moves(x, i, operand);
}

static void set_level(Lift *x, Py_ssize_t node, Py_ssize_t i) {
    x->level[node] = 0;
    x->moving[node] = 0;
    for (int64_t k = x->plain_at[node]; k < x->plain_count; k++) {
        look_below(x, node, i, x->plains[k]);
    }
    for (int64_t k = 2 * x->product_at[node]; k < 2 * x->product_count; k++) {
        look_below(x, node, i, x->products[k]);
    }
}

/* ----------------------------------------------------------------------------------- nodes ----- */

/* Everything but its products and plains, which were appended before. */
static int32_t add_node(Lift *x, Py_ssize_t i, int kind, int32_t place) {
    Py_ssize_t node = x->node_count++;
    x->kinds[node] = (signed char)kind;
    x->node_codes[node] = kind == NODE_RULE || kind == NODE_EXTREME ? x->codes[i] : 0;
    x->node_number[node] = kind == NODE_RULE && x->number[i];
    int valued = kind == NODE_RULE || kind == CONSTANT;
    x->node_constants[2 * node] = valued ? x->constants[2 * i] : 0.0;
    x->node_constants[2 * node + 1] = valued ? x->constants[2 * i + 1] : 0.0;
    x->origin[node] = (int32_t)i;
    x->node_places[node] = place;
    x->signature[node] = signature_of(x, node, i);
    set_level(x, node, i);
    x->product_at[node + 1] = x->product_count;
    x->plain_at[node + 1] = x->plain_count;
    return (int32_t)node;
}

/* The node of an addition, a product or a maximum. */
static int32_t settle_terms(Lift *x, Py_ssize_t i, int32_t first) {
    int role = x->roles[2 * x->codes[i]];
    for (int32_t t = first; t >= 0; t = x->terms[t].next) {
        const Term *term = &x->terms[t];
        if (term->b < 0) {
            x->plains[x->plain_count++] = term->a;
        } else {
            int32_t *pair = role == ROLE_MUL ? &x->plains[x->plain_count] : &x->products[2 * x->product_count];
            pair[0] = term->a;
            pair[1] = term->b;
            x->plain_count += role == ROLE_MUL ? 2 : 0;
            x->product_count += role == ROLE_MUL ? 0 : 1;
        }
    }
    return add_node(x, i, role == ROLE_MUL ? NODE_RULE : role == ROLE_ADD ? NODE_SUM : NODE_EXTREME, -1);
}

static int32_t node_of(Lift *x, Py_ssize_t i) {
    if (x->at[i] < 0) {
        x->at[i] = settle_terms(x, i, x->first[i]);
        x->first[i] = -1;
    }
    return x->at[i];
}

/* Where operand j of instruction i follows an integer: which of the sorted places, else -1. */
static inline Py_ssize_t place_of(const Lift *x, Py_ssize_t i, int j) {
    for (Py_ssize_t k = x->place; k < x->place_count && x->places[k] <= 3 * i + j; k++) {
        if (x->places[k] == 3 * i + j) {
            return k;
        }
    }
    return -1;
}

static int32_t operand_node(Lift *x, Py_ssize_t i, int j) {
    Py_ssize_t place = place_of(x, i, j);
    if (place < 0) {
        return node_of(x, x->operands[3 * i + j]);
    }
    for (int32_t k = x->candidate_at[place]; k < x->candidate_at[place + 1]; k++) {
        x->plains[x->plain_count++] = x->at[x->candidates[k]]; /* used twice at least: none waits */
    }
    return add_node(x, i, NODE_GATHER, x->order[place]);
}

/* The same operation on the same operands is one node. */
static int32_t known_node(Lift *x, Py_ssize_t i, const int32_t *plains, Py_ssize_t count) {
    int32_t code = x->codes[i];
    int number = x->number[i] != 0, used = x->roles[2 * code + 1];
    used = used > number ? used : number;
    uint64_t h = mix((uint64_t)code, (uint64_t)number);
    for (int k = 0; k < used; k++) {
        h = mix(h, bits_of(x->constants[2 * i + k]));
    }
    int moving = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        h = mix(h, (uint64_t)plains[k]);
        moving |= moves(x, i, plains[k]);
    }
    for (;; h++) {
        int32_t node = x->known[h & x->known_mask];
        if (node < 0) {
            break;
        }
        if (x->node_codes[node] == code && x->node_number[node] == number && x->moving[node] == moving &&
            (!moving || x->iterations[x->origin[node]] == x->iterations[i]) &&
            x->plain_at[node + 1] - x->plain_at[node] == count &&
            memcmp(&x->plains[x->plain_at[node]], plains, (size_t)count * sizeof *plains) == 0 &&
            memcmp(&x->node_constants[2 * node], &x->constants[2 * i], (size_t)used * sizeof(double)) == 0) {
            return node;
        }
    }
    memcpy(&x->plains[x->plain_count], plains, (size_t)count * sizeof *plains);
    x->plain_count += count;
    return x->known[h & x->known_mask] = add_node(x, i, NODE_RULE, -1);
}

/* ---------------------------------------------------------------------------- instructions ----- */

/* A new term of instruction i. */
static void add_term(Lift *x, Py_ssize_t i, int32_t a, int32_t b) {
    int32_t t = (int32_t)x->term_count++;
    x->terms[t] = (Term){a, b, -1};
    if (x->first[i] < 0) {
        x->first[i] = t;
    } else {
        x->terms[x->last[i]].next = t;
    }
    x->last[i] = t;
}

/* The terms of `source`, which waited, go to instruction i. */
static void take_terms(Lift *x, Py_ssize_t i, Py_ssize_t source) {
    if (x->first[i] < 0) {
        x->first[i] = x->first[source];
    } else {
        x->terms[x->last[i]].next = x->first[source];
    }
    x->last[i] = x->last[source];
    x->first[source] = -1;
}

/* Whoever is used once waits for its user. */
static void wait_for_user(Lift *x, Py_ssize_t i) {
    if (x->uses[i] != 1) {
        node_of(x, i);
    }
}

/* The code of operand j of instruction i if that waits, else INPUT, which never does. */
static int32_t waits(const Lift *x, Py_ssize_t i, int j) {
    int32_t source = x->operands[3 * i + j];
    return x->first[source] >= 0 && place_of(x, i, j) < 0 ? x->codes[source] : INPUT;
}

static void lift_sum(Lift *x, Py_ssize_t i) {
    int j = 0, end = x->number[i] ? 1 : 2;
    if (end == 2 && waits(x, i, 0) == x->codes[i]) {
        take_terms(x, i, x->operands[3 * i]);
        j = 1;
    }
    for (; j < end; j++) {
        if (x->roles[2 * waits(x, i, j)] == ROLE_MUL) {
            take_terms(x, i, x->operands[3 * i + j]);
        } else {
            add_term(x, i, operand_node(x, i, j), -1);
        }
    }
    wait_for_user(x, i);
}

static int lift_extreme(Lift *x, Py_ssize_t i, double start) {
    int32_t right = x->operands[3 * i + 1];
    if (right < 0) {
        return 0;
    }
    if (x->codes[right] == CONSTANT && x->constants[2 * (Py_ssize_t)right] == start && place_of(x, i, 1) < 0) {
        add_term(x, i, operand_node(x, i, 0), -1);
    } else if (waits(x, i, 0) == x->codes[i]) {
        take_terms(x, i, x->operands[3 * i]);
        add_term(x, i, operand_node(x, i, 1), -1);
    } else {
        return 0;
    }
    wait_for_user(x, i);
    return 1;
}

static Py_ssize_t operand_count(const Lift *x, Py_ssize_t i) {
    const int32_t *p = &x->operands[3 * i];
    return (p[0] >= 0) + (p[1] >= 0) + (p[2] >= 0);
}

static void lift_instruction(Lift *x, Py_ssize_t i) {
    int role = x->roles[2 * x->codes[i]];
    int number = x->number[i] != 0;
    if (role == ROLE_ADD && !(number && x->constants[2 * i] != 0.0)) {
        lift_sum(x, i);
        return;
    }
    if (role == ROLE_MUL && !number) {
        int32_t left = operand_node(x, i, 0);
        add_term(x, i, left, operand_node(x, i, 1));
        wait_for_user(x, i);
        return;
    }
    if ((role == ROLE_MAX && lift_extreme(x, i, -INFINITY)) ||
        (role == ROLE_MIN && lift_extreme(x, i, INFINITY))) {
        return;
    }
    int32_t plains[3];
    Py_ssize_t count = operand_count(x, i);
    for (int j = 0; j < count; j++) {
        plains[j] = operand_node(x, i, j);
    }
    /* Each product is its own, with a number or without; and so is what iterations pass on. */
    if (role == ROLE_MUL || (x->iterations != NULL && hash_at(x->tokens, (size_t)i) != 0)) {
        memcpy(&x->plains[x->plain_count], plains, (size_t)count * sizeof *plains);
        x->plain_count += count;
        x->at[i] = add_node(x, i, NODE_RULE, -1);
    } else {
        x->at[i] = known_node(x, i, plains, count);
    }
}

static void lift_recording(Lift *x) {
    x->product_at[0] = x->plain_at[0] = 0;
    for (Py_ssize_t i = 0; i < x->count; i++) {
        while (x->place < x->place_count && x->places[x->place] < 3 * i) {
            x->place++;
        }
        if (!x->live[i]) {
            continue;
        }
        if (x->codes[i] < FIRST_RULE) {
            x->at[i] = add_node(x, i, x->codes[i], -1);
        } else {
            lift_instruction(x, i);
        }
    }
}

/* -------------------------------------------------------------------------- before that -------- */

/* What no output, guard or gather depends on is not live. */
static void mark_live(Lift *x) {
    memset(x->live, 0, (size_t)x->count);
    for (Py_ssize_t k = 0; k < x->wanted_count; k++) {
        x->live[x->wanted[k]] = 1;
    }
    Py_ssize_t place = x->place_count;
    for (Py_ssize_t at = 3 * x->count - 1; at >= 0; at--) {
        int is_place = place > 0 && x->places[place - 1] == at;
        place -= is_place;
        if (!x->live[at / 3] || x->operands[at] < 0) {
            continue;
        }
        if (!is_place) {
            x->live[x->operands[at]] = 1;
            continue;
        }
        for (int32_t k = x->candidate_at[place]; k < x->candidate_at[place + 1]; k++) {
            x->live[x->candidates[k]] = 1;
        }
    }
    memset(x->live, 1, (size_t)x->inputs);
}

/* How often each is an operand; twice for an output, a guard, a candidate. */
static void count_uses(Lift *x) {
    memset(x->uses, 0, (size_t)x->count);
    Py_ssize_t place = 0;
    for (Py_ssize_t i = 0; i < x->count; i++) {
        for (Py_ssize_t at = 3 * i; at < 3 * i + 3; at++) {
            int is_place = place < x->place_count && x->places[place] == at;
            int32_t operand = x->operands[at];
            if (x->live[i] && is_place) {
                for (int32_t k = x->candidate_at[place]; k < x->candidate_at[place + 1]; k++) {
                    x->uses[x->candidates[k]] = 2;
                }
            } else if (x->live[i] && operand >= 0) {
                x->uses[operand] += x->uses[operand] < 2;
            }
            place += is_place;
        }
    }
    for (Py_ssize_t k = 0; k < x->wanted_count; k++) {
        x->uses[x->wanted[k]] = 2;
    }
}

/* ValueError unless the instruction has the operands that its rule needs here; counts what it may
 * add to the arrays. */
static int check_instruction(Lift *x, Py_ssize_t i) {
    int32_t code = x->codes[i];
    const int32_t *p = &x->operands[3 * i];
    int fits = code >= 0 && code < x->rule_count && (code == INPUT) == (i < x->inputs);
    for (int j = 0; j < 3; j++) {
        fits = fits && p[j] >= -1 && p[j] < i && (j == 0 || p[j] < 0 || p[j - 1] >= 0);
    }
    if (fits && code >= FIRST_RULE) {
        int role = x->roles[2 * code], number = x->number[i] != 0;
        fits = p[0] >= 0 && (number || p[1] >= 0 || (role != ROLE_ADD && role != ROLE_MUL));
        x->term_limit += role == ROLE_ADD ? 2 : role != ROLE_PLAIN;
        x->product_limit += role == ROLE_MUL;
        x->known_limit += role == ROLE_ADD ? number && x->constants[2 * i] != 0.0 : role != ROLE_MUL;
        x->plain_limit += operand_count(x, i);
    }
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "instruction %zd is malformed", i);
        return -1;
    }
    return 0;
}

static int check_given(Lift *x) {
    if (x->inputs < 0 || x->inputs > x->count) {
        PyErr_Format(PyExc_ValueError, "%zd inputs among %zd instructions", x->inputs, x->count);
        return -1;
    }
    for (Py_ssize_t code = 0; code < x->rule_count; code++) {
        int32_t role = x->roles[2 * code], parameters = x->roles[2 * code + 1];
        if (role < ROLE_PLAIN || role > ROLE_MIN || parameters < 0 || parameters > 2) {
            PyErr_Format(PyExc_ValueError, "code %zd is malformed", code);
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < x->count; i++) {
        if (check_instruction(x, i) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t k = 0; k < x->wanted_count; k++) {
        if (x->wanted[k] < 0 || x->wanted[k] >= x->count) {
            PyErr_Format(PyExc_ValueError, "position %zd lies outside the recording", k);
            return -1;
        }
    }
    int fits = x->candidate_at[0] == 0 && x->candidate_at[x->place_count] == x->candidate_count;
    for (Py_ssize_t k = 0; fits && k < x->place_count; k++) {
        int32_t at = x->places[k], first = x->candidate_at[k], end = x->candidate_at[k + 1];
        fits = at > (k > 0 ? x->places[k - 1] : -1) && at < 3 * x->count && x->operands[at] >= 0 &&
               first < end && end <= x->candidate_count;
        for (int32_t c = first; fits && c < end; c++) {
            fits = x->candidates[c] >= 0 && x->candidates[c] < at / 3;
        }
    }
    x->plain_limit += x->candidate_count;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the operands that follow integers do not fit the recording");
        return -1;
    }
    return 0;
}

static Py_ssize_t given_items(const Lift *x, int which) {
    return x->views[which].len / x->views[which].itemsize;
}

static int get_given(Lift *x, PyObject **given) {
    Py_ssize_t least[GIVEN] = {0};
    for (int k = 0; k < GIVEN; k++) {
        if (get_buffer(given[k], &x->views[k], given_formats[k], least[k], 0) < 0) {
            return -1;
        }
        x->view_count = k + 1;
        if (k == G_CODES) {
            x->count = least[G_NUMBER] = given_items(x, k);
            least[G_OPERANDS] = 3 * x->count;
            least[G_CONSTANTS] = 2 * x->count;
            least[G_CLASSES] = x->inputs;
        } else if (k == G_ROLES) {
            x->rule_count = given_items(x, k) / 2;
            least[G_IDENTITIES] = 8 * x->rule_count;
        } else if (k == G_PLACES) {
            x->place_count = least[G_ORDER] = given_items(x, k);
            least[G_CANDIDATE_AT] = x->place_count + 1;
        }
    }
    x->wanted_count = given_items(x, G_WANTED);
    x->candidate_count = given_items(x, G_CANDIDATES);
    x->codes = x->views[G_CODES].buf;
    x->operands = x->views[G_OPERANDS].buf;
    x->constants = x->views[G_CONSTANTS].buf;
    x->number = x->views[G_NUMBER].buf;
    x->roles = x->views[G_ROLES].buf;
    x->identities = x->views[G_IDENTITIES].buf;
    x->classes = x->views[G_CLASSES].buf;
    x->wanted = x->views[G_WANTED].buf;
    x->places = x->views[G_PLACES].buf;
    x->order = x->views[G_ORDER].buf;
    x->candidate_at = x->views[G_CANDIDATE_AT].buf;
    x->candidates = x->views[G_CANDIDATES].buf;
    x->tokens = x->views[G_TOKENS].buf;
    x->iterations = given_items(x, G_ITERATIONS) ? x->views[G_ITERATIONS].buf : NULL;
    x->begins = x->views[G_BEGINS].buf;
    if (x->iterations != NULL && (given_items(x, G_ITERATIONS) < x->count || given_items(x, G_BEGINS) < x->count ||
                                  given_items(x, G_TOKENS) < 8 * x->count)) {
        PyErr_SetString(PyExc_ValueError, "the loops do not fit the recording");
        return -1;
    }
    /* Places are 3 * instruction + operand, and as int32 as instructions, nodes and terms. */
    if (x->count > INT32_MAX / 3 || x->place_count > INT32_MAX / 3) {
        PyErr_SetString(PyExc_OverflowError, "more than 2**31 operands");
        return -1;
    }
    return 0;
}

static int make_graph_arrays(Lift *x) {
    Py_ssize_t count = x->count, nodes = count + x->place_count;
    size_t sets = (size_t)(x->term_limit > x->candidate_count ? x->term_limit : x->candidate_count) + 1;
    size_t known = 16;
    while (known < 2 * (size_t)x->known_limit) {
        known *= 2;
    }
    x->known_mask = known - 1;
    if ((x->live = PyMem_Malloc((size_t)count + 1)) == NULL ||
        (x->uses = PyMem_Malloc((size_t)count + 1)) == NULL ||
        (x->moving = PyMem_Malloc((size_t)nodes + 1)) == NULL ||
        (x->first = PyMem_Malloc(((size_t)count + 1) * sizeof *x->first)) == NULL ||
        (x->last = PyMem_Malloc(((size_t)count + 1) * sizeof *x->last)) == NULL ||
        (x->terms = PyMem_Malloc(((size_t)x->term_limit + 1) * sizeof *x->terms)) == NULL ||
        (x->known = PyMem_Malloc(known * sizeof *x->known)) == NULL ||
        (x->set = PyMem_Malloc(sets * sizeof *x->set)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject **o = x->objects;
    if ((x->kinds = new_array(&o[M_KINDS], nodes, 1)) == NULL ||
        (x->node_codes = new_array(&o[M_CODES], nodes, sizeof *x->node_codes)) == NULL ||
        (x->node_number = new_array(&o[M_NUMBER], nodes, 1)) == NULL ||
        (x->node_constants = new_array(&o[M_CONSTANTS], nodes, 2 * sizeof *x->node_constants)) == NULL ||
        (x->product_at = new_array(&o[M_PRODUCT_AT], nodes + 1, sizeof *x->product_at)) == NULL ||
        (x->products = new_array(&o[M_PRODUCTS], x->product_limit, 2 * sizeof *x->products)) == NULL ||
        (x->plain_at = new_array(&o[M_PLAIN_AT], nodes + 1, sizeof *x->plain_at)) == NULL ||
        (x->plains = new_array(&o[M_PLAINS], x->plain_limit, sizeof *x->plains)) == NULL ||
        (x->origin = new_array(&o[M_ORIGIN], nodes, sizeof *x->origin)) == NULL ||
        (x->at = new_array(&o[M_AT], count, sizeof *x->at)) == NULL ||
        (x->node_places = new_array(&o[M_PLACES], nodes, sizeof *x->node_places)) == NULL ||
        (x->signature = new_array(&o[M_SIGNATURE], nodes, sizeof *x->signature)) == NULL ||
        (x->level = new_array(&o[M_LEVEL], nodes, sizeof *x->level)) == NULL) {
        return -1;
    }
    memset(x->first, 0xFF, (size_t)count * sizeof *x->first); /* -1 everywhere */
    memset(x->at, 0xFF, (size_t)count * sizeof *x->at);
    memset(x->known, 0xFF, known * sizeof *x->known);
    return 0;
}

/* Give back what was not needed, and hand over the rest. */
static PyObject *graph_arrays(Lift *x) {
    static const Py_ssize_t sizes[MADE] = {1, 4, 1, 16, 8, 8, 8, 4, 4, 4, 4, 8, 4};
    PyObject *result = PyTuple_New(MADE);
    for (int k = 0; result != NULL && k < MADE; k++) {
        Py_ssize_t items = k == M_PRODUCTS                             ? x->product_count
                           : k == M_PLAINS                             ? x->plain_count
                           : k == M_AT                                 ? x->count
                           : k == M_PRODUCT_AT || k == M_PLAIN_AT      ? x->node_count + 1
                                                                       : x->node_count;
        if (PyByteArray_Resize(x->objects[k], items * sizes[k]) < 0) {
            Py_CLEAR(result);
        } else {
            PyTuple_SetItem(result, k, Py_NewRef(x->objects[k]));
        }
    }
    return result;
}

/* canonicalise(inputs, codes, operands, constants, number, roles, identities, classes, wanted,
 * places, order, candidate_at, candidates, begins, iterations, tokens, keep_dead): the arrays of a
 * Graph, in its order. */
static PyObject *canonicalise(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given[GIVEN], *result = NULL;
    int keep_dead;
    Lift x;
    memset(&x, 0, sizeof x);
    if (!PyArg_ParseTuple(args, "nOOOOOOOOOOOOOOOp:canonicalise", &x.inputs, &given[0], &given[1], &given[2],
                          &given[3], &given[4], &given[5], &given[6], &given[7], &given[8], &given[9],
                          &given[10], &given[11], &given[12], &given[13], &given[14],
                          &keep_dead)) {
        return NULL;
    }
    if (get_given(&x, given) == 0 && check_given(&x) == 0 && make_graph_arrays(&x) == 0) {
        if (keep_dead) {
            memset(x.live, 1, (size_t)x.count);
        } else {
            mark_live(&x);
        }
        count_uses(&x);
        lift_recording(&x);
        result = graph_arrays(&x);
    }
    for (int k = 0; k < x.view_count; k++) {
        PyBuffer_Release(&x.views[k]);
    }
    for (int k = 0; k < MADE; k++) {
        Py_XDECREF(x.objects[k]);
    }
    PyMem_Free(x.live);
    PyMem_Free(x.uses);
    PyMem_Free(x.moving);
    PyMem_Free(x.first);
    PyMem_Free(x.last);
    PyMem_Free(x.terms);
    PyMem_Free(x.known);
    PyMem_Free(x.set);
    return result;
}

PyMethodDef canonical_functions[] = {
    {"canonicalise", canonicalise, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
