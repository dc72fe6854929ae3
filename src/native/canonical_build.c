/* Building the canonical graph of a recording.
 *
 * The same as _Builder in compiler/lift/canonical.py, to the last bit: read that first.
 */
#include "canonical.h"

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

/* Whether using this node makes the result of instruction i differ between iterations. */
static inline int moves(const Lift *x, Py_ssize_t i, int32_t node) {
    return x->iterations != NULL && x->iterations[i] != 0 && (leaf_of(x, i, node) != 0 || x->moving[node]);
}

/* Long sums mostly have one or two kinds of terms, so comparing with the last few keeps the set short. */
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
            h = mix(h, bits_of(x->constants[x->width * i + k]));
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

/* What an operand means for its user: a lower bound of its level, and whether it is moving. */
static inline void look_below(Lift *x, Py_ssize_t node, Py_ssize_t i, int32_t operand) {
    int32_t level = 1 + (leaf_of(x, i, operand) ? 0 : x->level[operand]);
    x->level[node] = level > x->level[node] ? level : x->level[node];
    if (x->moving != NULL) {
        x->moving[node] |= (unsigned char)moves(x, i, operand);
    }
}

static void set_level(Lift *x, Py_ssize_t node, Py_ssize_t i) {
    x->level[node] = 0;
    if (x->moving != NULL) {
        x->moving[node] = 0;
    }
    for (int64_t k = x->plain_at[node]; k < x->plain_count; k++) {
        look_below(x, node, i, x->plains[k]);
    }
    for (int64_t k = 2 * (int64_t)x->product_at[node]; k < 2 * x->product_count; k++) {
        look_below(x, node, i, x->products[k]);
    }
}

/* ----------------------------------------------------------------------------------- nodes ----- */

/* Everything but its products and plains, which were appended before. */
static int32_t add_node(Lift *x, Py_ssize_t i, int kind, int32_t place) {
    Py_ssize_t node = x->node_count++;
    x->kinds[node] = (signed char)kind;
    x->origin[node] = (int32_t)i;
    if (kind == NODE_GATHER) {
        x->gathers[x->gather_count++] = place;
    }
    x->signature[node] = signature_of(x, node, i);
    set_level(x, node, i);
    x->product_at[node + 1] = (int32_t)x->product_count;
    x->plain_at[node + 1] = (int32_t)x->plain_count;
    return (int32_t)node;
}

/* A gather, of candidates that were appended before. `alike`: the last one whose candidates begin with the
 * same; where it has as many, it has all that depends on these. Loops make a difference between the two. */
static int32_t add_gather(Lift *x, Py_ssize_t i, int32_t place, int32_t *alike) {
    int32_t known = *alike;
    int64_t count = x->plain_count - (int64_t)x->plain_at[x->node_count];
    if (x->iterations != NULL || known < 0 || x->plain_at[known + 1] - x->plain_at[known] != count) {
        return *alike = add_node(x, i, NODE_GATHER, place);
    }
    Py_ssize_t node = x->node_count++;
    x->kinds[node] = NODE_GATHER;
    x->origin[node] = (int32_t)i;
    x->gathers[x->gather_count++] = place;
    x->signature[node] = x->signature[known];
    x->level[node] = x->level[known];
    x->product_at[node + 1] = (int32_t)x->product_count;
    x->plain_at[node + 1] = (int32_t)x->plain_count;
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
    if (first >= 0) {
        x->terms[x->terms[first].last].next = x->spare;
        x->spare = first;
    }
    return add_node(x, i, role == ROLE_MUL ? NODE_RULE : role == ROLE_ADD ? NODE_SUM : NODE_EXTREME, -1);
}

static int32_t node_of(Lift *x, Py_ssize_t i) {
    if (x->at[i] < 0) {
        x->at[i] = settle_terms(x, i, waiting(x, i));
    }
    return x->at[i];
}

/* If operand j of instruction i depends on an integer: which of the sorted places it is, else -1. */
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
    int32_t *gathered = &x->gathered[x->first[place]];
    if (*gathered < 0) {
        int32_t begin = x->candidate_at[2 * place], end = x->candidate_at[2 * place + 1];
        for (int32_t k = begin; k < end; k++) {
            x->plains[x->plain_count++] = x->at[x->candidates[k]]; /* used twice at least: none waits */
        }
        *gathered = add_gather(x, i, x->order[place], &x->alike[begin]);
    }
    return *gathered;
}

#define NEAR 16 /* slots */

/* Slot `step` of those where a node may be: first near those of nodes with operands like its own, which are
 * in the cache, then anywhere. */
static inline int32_t *known_slot(const Lift *x, uint64_t near, uint64_t hash, uint64_t step) {
    return &x->known[(step < NEAR ? near + step : hash + step) & x->known_mask];
}

/* The same operation on the same operands is one node. */
static int32_t known_node(Lift *x, Py_ssize_t i, const int32_t *plains, Py_ssize_t count) {
    int32_t code = x->codes[i];
    int number = x->number[i] != 0, used = x->roles[2 * code + 1];
    used = used > number ? used : number;
    uint64_t h = mix((uint64_t)code, (uint64_t)number);
    for (int k = 0; k < used; k++) {
        h = mix(h, bits_of(x->constants[x->width * i + k]));
    }
    int moving = 0;
    int32_t last = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        h = mix(h, (uint64_t)plains[k]);
        moving |= moves(x, i, plains[k]);
        last = plains[k] > last ? plains[k] : last;
    }
    uint64_t near = (uint64_t)last * x->known_scale >> 32;
    int32_t *slot;
    for (uint64_t step = 0;; step++) {
        slot = known_slot(x, near, h, step);
        int32_t node = *slot;
        if (node < 0) {
            break;
        }
        Py_ssize_t origin = x->origin[node]; /* of a rule, as all that are known are */
        if (x->codes[origin] == code && (x->number[origin] != 0) == number &&
            (x->moving == NULL || x->moving[node] == moving) &&
            (!moving || x->iterations[origin] == x->iterations[i]) &&
            x->plain_at[node + 1] - x->plain_at[node] == count &&
            memcmp(&x->plains[x->plain_at[node]], plains, (size_t)count * sizeof *plains) == 0 &&
            memcmp(&x->constants[x->width * origin], &x->constants[x->width * i], (size_t)used * sizeof(double)) == 0) {
            return node;
        }
    }
    memcpy(&x->plains[x->plain_count], plains, (size_t)count * sizeof *plains);
    x->plain_count += count;
    return *slot = add_node(x, i, NODE_RULE, -1);
}

/* ---------------------------------------------------------------------------- instructions ----- */

/* A new term of instruction i. */
static void add_term(Lift *x, Py_ssize_t i, int32_t a, int32_t b) {
    int32_t t = x->spare, first = waiting(x, i);
    if (t >= 0) {
        x->spare = x->terms[t].next;
    } else {
        t = (int32_t)x->term_count++;
    }
    x->terms[t] = (Term){a, b, -1, t};
    if (first < 0) {
        x->at[i] = -2 - t;
    } else {
        x->terms[x->terms[first].last].next = t;
        x->terms[first].last = t;
    }
}

/* Move the terms of `source`, which waited, to instruction i. */
static void take_terms(Lift *x, Py_ssize_t i, Py_ssize_t source) {
    int32_t first = waiting(x, i), more = waiting(x, source);
    if (first < 0) {
        x->at[i] = -2 - more;
    } else {
        x->terms[x->terms[first].last].next = more;
        x->terms[first].last = x->terms[more].last;
    }
    x->at[source] = -1;
}

/* An instruction that is used once waits for its user, all others become nodes now. */
static void wait_for_user(Lift *x, Py_ssize_t i) {
    if (x->uses[i] != 1) {
        node_of(x, i);
    }
}

/* The code of operand j of instruction i if that waits, else INPUT, which never does. */
static int32_t waits(const Lift *x, Py_ssize_t i, int j) {
    int32_t source = x->operands[3 * i + j];
    return waiting(x, source) >= 0 && place_of(x, i, j) < 0 ? x->codes[source] : INPUT;
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
    if (x->codes[right] == CONSTANT && x->constants[x->width * right] == start && place_of(x, i, 1) < 0) {
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

static void lift_instruction(Lift *x, Py_ssize_t i) {
    int role = x->roles[2 * x->codes[i]];
    int number = x->number[i] != 0;
    if (role == ROLE_ADD && !(number && x->constants[x->width * i] != 0.0)) {
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
    /* Products are never shared, nor is what one iteration propagates to the next. */
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
    x->spare = -1;
    for (Py_ssize_t i = 0; i < x->count; i++) {
        while (x->place < x->place_count && x->places[x->place] < 3 * i) {
            x->place++;
        }
        if (x->live != NULL && !x->live[i]) {
            continue;
        }
        if (x->codes[i] < FIRST_RULE) {
            x->at[i] = add_node(x, i, x->codes[i], -1);
        } else {
            lift_instruction(x, i);
        }
    }
    for (Py_ssize_t i = 0; i < x->count; i++) {
        x->at[i] = x->at[i] < 0 ? -1 : x->at[i]; /* whatever waits now waits in vain */
    }
}

/* -------------------------------------------------------------------------- live and used ------ */

/* What no output, guard or gather depends on is not live. */
static void mark_live(Lift *x) {
    memset(x->until, 0, (size_t)x->candidate_count * sizeof *x->until);
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
        for (int32_t k = x->candidate_at[2 * place]; is_new_range(x, place) && k < x->candidate_at[2 * place + 1]; k++) {
            x->live[x->candidates[k]] = 1;
        }
        note_range(x, place);
    }
    memset(x->live, 1, (size_t)x->inputs);
}

/* How often each is an operand; outputs, guards and candidates count as used twice. */
static void count_uses(Lift *x) {
    memset(x->until, 0, (size_t)x->candidate_count * sizeof *x->until);
    memset(x->uses, 0, (size_t)x->count);
    Py_ssize_t place = 0;
    for (Py_ssize_t i = 0; i < x->count; i++) {
        for (Py_ssize_t at = 3 * i; at < 3 * i + 3; at++) {
            int is_place = place < x->place_count && x->places[place] == at;
            int32_t operand = x->operands[at];
            int live = x->live == NULL || x->live[i];
            if (live && is_place) {
                int32_t begin = x->candidate_at[2 * place], end = x->candidate_at[2 * place + 1];
                for (int32_t k = begin; is_new_range(x, place) && k < end; k++) {
                    x->uses[x->candidates[k]] = 2;
                }
                note_range(x, place);
            } else if (live && operand >= 0) {
                x->uses[operand] += x->uses[operand] < 2;
            }
            place += is_place;
        }
    }
    for (Py_ssize_t k = 0; k < x->wanted_count; k++) {
        x->uses[x->wanted[k]] = 2;
    }
}

void build_graph(Lift *x) {
    if (x->live != NULL) {
        mark_live(x);
    }
    count_uses(x);
    lift_recording(x);
}
