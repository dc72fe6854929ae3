/* The state of canonicalise(): canonical.c reads and checks the arguments and makes the arrays,
 * canonical_build.c fills these.
 */
#ifndef CHAINRULE_CANONICAL_H
#define CHAINRULE_CANONICAL_H

#include "native.h"

/* The kinds of nodes after INPUT and CONSTANT; PAIR, a product in a sum, is not a node. */
enum { NODE_RULE = 2, NODE_SUM, NODE_EXTREME, NODE_GATHER, PAIR };
enum { ROLE_PLAIN, ROLE_ADD, ROLE_MUL, ROLE_MAX, ROLE_MIN };

/* A term of an addition, a product or a maximum that waits for its user: two nodes, or one and -1. The first
 * of several knows the last. */
typedef struct {
    int32_t a, b, next, last;
} Term;

/* What is read: the recording, and the arrays of lift.annotations. */
enum {
    G_CODES, G_OPERANDS, G_CONSTANTS, G_NUMBER, G_ROLES, G_IDENTITIES, G_CLASSES, G_WANTED, G_PLACES,
    G_ORDER, G_FIRST, G_CANDIDATE_AT, G_CANDIDATES, G_BEGINS, G_ITERATIONS, G_TOKENS,
    GIVEN
};

/* What is made: the arrays of Graph. */
enum {
    M_KINDS, M_PRODUCT_AT, M_PRODUCTS, M_PLAIN_AT, M_PLAINS, M_ORIGIN, M_AT,
    M_GATHERS, M_SIGNATURE, M_LEVEL,
    MADE
};

typedef struct {
    Py_buffer views[GIVEN];
    int view_count;
    Py_ssize_t width; /* constants of each instruction */
    Py_ssize_t inputs, count, rule_count, wanted_count, place_count, candidate_count;
    const int32_t *codes, *operands, *roles, *wanted, *places, *order, *first, *candidate_at, *candidates;
    const int32_t *begins, *iterations; /* NULL without loops */
    const double *constants;
    const char *number, *identities, *tokens;
    const signed char *classes;

    Py_ssize_t term_limit, product_limit, plain_limit, known_limit;
    unsigned char *live, *uses;  /* of each instruction; uses stops at 2; live NULL: all of them */
    unsigned char *moving;       /* of each node: computed from what an earlier iteration of its loop made;
                                    NULL without loops */
    Term *terms;
    int32_t spare;               /* the first of those that are free again, or -1 */
    int32_t *known;              /* nodes by their operation and operands */
    uint64_t *set, known_mask;
    uint64_t known_scale;        /* slots of `known` for a node, times 2**32 */
    Py_ssize_t place;            /* the first that is not before the present instruction */
    int32_t *until;              /* of each candidate: up to where the range that begins there was gone through */
    int32_t *alike;              /* of each candidate: a node that selects from a range that begins there, or -1 */
    int32_t *gathered;           /* the node of what each place selects, at the first that selects the same; or -1 */

    PyObject *objects[MADE];
    Py_ssize_t node_count, product_count, plain_count, gather_count, term_count;
    signed char *kinds;
    int32_t *products, *plains, *origin, *gathers, *level, *product_at, *plain_at;
    int32_t *at; /* the node of each instruction; -1: none; less: it waits, see `waiting` */
    uint64_t *signature;
} Lift;

/* Many places select from one range of candidates, which is gone through for the first of them only. */
static inline int is_new_range(const Lift *x, Py_ssize_t place) {
    return x->until[x->candidate_at[2 * place]] < x->candidate_at[2 * place + 1];
}

static inline void note_range(Lift *x, Py_ssize_t place) {
    if (is_new_range(x, place)) {
        x->until[x->candidate_at[2 * place]] = x->candidate_at[2 * place + 1];
    }
}

static inline Py_ssize_t operand_count(const Lift *x, Py_ssize_t i) {
    const int32_t *p = &x->operands[3 * i];
    return (p[0] >= 0) + (p[1] >= 0) + (p[2] >= 0);
}

/* The first term of an instruction that waits for its user, else -1. */
static inline int32_t waiting(const Lift *x, Py_ssize_t i) { return x->at[i] < -1 ? -2 - x->at[i] : -1; }

/* canonical_build.c: never fails, the arrays are large enough. */
void build_graph(Lift *x);

#endif
