/* Marks: what a number is computed by, as one number below 2**31 - 1.
 *
 * Sums and products are computed modulo that prime, from random numbers in place of the inputs; any other
 * operation gives a hash of what it is and of the marks of its operands. So two ways to compute something
 * have one mark if they are the same but for the order of sums, products and maxima, whatever the inputs
 * are; others have it with a probability of about one in 10**9. compiler/capture/marks.py is the same in
 * Python.
 */
#ifndef CHAINRULE_MARKS_H
#define CHAINRULE_MARKS_H

#include "node.h"

typedef struct {
    int on;
    uint64_t seed, offset; /* offset: where the numbers begin that are taken for the same constant */
} Marks;

/* Marks below 2**31, each once. */
typedef struct {
    uint32_t *slots; /* one more than the mark; 0: free */
    size_t capacity, count; /* capacity: a power of two, or 0 */
} MarkSet;

int add_mark(MarkSet *set, uint64_t mark); /* -1: an error */
PyObject *marks_in(const MarkSet *set);    /* a bytearray of uint32 */

uint64_t mark_of_input(const Marks *m, Py_ssize_t k);
uint64_t mark_of_constant(const Marks *m, double x);
uint64_t mark_of_rule(const Marks *m, PyObject *rule, const uint64_t *operands, Py_ssize_t count);
int is_extreme(PyObject *rule); /* Python's max or min of two numbers */
int is_hashed(PyObject *rule);  /* neither these nor a sum or product */
/* One of the items that integers select from: those of all are added up, and end with how many there are. */
uint64_t mark_of_candidate(const Marks *m, Py_ssize_t k, uint64_t item);
uint64_t mark_of_candidates(uint64_t sum, Py_ssize_t count);
/* What integers select: from which items, and by which integers. */
uint64_t mark_of_choice(const Marks *m, uint64_t candidates, uint64_t integers);

#endif
