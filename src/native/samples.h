/* Samples that are lists of integers; samples.c looks at them, packing.c packs them. */
#ifndef CHAINRULE_SAMPLES_H
#define CHAINRULE_SAMPLES_H

#include "native.h"

/* To be called once, before the others; -1: an error. */
int find_small_integers(void);

/* How many integers each list of a sample holds, into `lengths`; 0 where the sample is anything but so many
 * distinct lists of integers that fit into 64 bits. */
int measure_sample(PyObject *sample, Py_ssize_t lists, int64_t *lengths);

/* The same, and the integers, one after the other; -1: an error. */
int read_sample(PyObject *sample, Py_ssize_t lists, int64_t *lengths, Buffer *integers);

/* The lengths of lists, numbered in the order in which they were added; begin with the number of lists. */
typedef struct {
    Py_ssize_t lists, count;
    Buffer rows;    /* the lengths, as many for each shape as there are lists */
    int64_t *slots; /* a hash table of numbers, -1: none */
    size_t mask;
} Shapes;

Py_ssize_t find_shape(const Shapes *s, const int64_t *lengths); /* its number, or -1; one must have been added */
int add_shape(Shapes *s, const int64_t *lengths);               /* one that is not there yet; -1: an error */
void free_shapes(Shapes *s);

#endif
