/* The state of canonicalise(): canonical.c reads and checks the arguments and makes the arrays,
 * canonical_build.c fills these.
 */
#ifndef CHAINRULE_CANONICAL_H
#define CHAINRULE_CANONICAL_H

#include "native.h"

/* The kinds of nodes after INPUT and CONSTANT; PAIR, a product in a sum, is not a node. */
enum { NODE_RULE = 2, NODE_SUM, NODE_EXTREME, NODE_GATHER, PAIR };
enum { ROLE_PLAIN, ROLE_ADD, ROLE_MUL, ROLE_MAX, ROLE_MIN };

/* A term of an addition, a product or a maximum that waits for its user: two nodes, or one and -1. */
typedef struct {
    int32_t a, b, next;
} Term;

/* What is read: the recording, and the arrays of lift.annotations. */
enum {
    G_CODES, G_OPERANDS, G_CONSTANTS, G_NUMBER, G_ROLES, G_IDENTITIES, G_CLASSES, G_WANTED, G_PLACES,
    G_ORDER, G_CANDIDATE_AT, G_CANDIDATES, G_BEGINS, G_ITERATIONS, G_TOKENS,
    GIVEN
};

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

static inline Py_ssize_t operand_count(const Lift *x, Py_ssize_t i) {
    const int32_t *p = &x->operands[3 * i];
    return (p[0] >= 0) + (p[1] >= 0) + (p[2] >= 0);
}

/* canonical_build.c: never fails, the arrays are large enough. `keep_dead`: also what no result needs. */
void build_graph(Lift *x, int keep_dead);

#endif
