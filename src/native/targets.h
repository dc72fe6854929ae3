#ifndef CHAINRULE_TARGETS_H
#define CHAINRULE_TARGETS_H

#include "native.h"

#define FEW_TARGETS 8

/* The arrays of a tree, in the order of a gradient's numbers. */
typedef struct {
    Py_buffer few[FEW_TARGETS], *views;
    Py_ssize_t taken, count;
    const Py_ssize_t *extents; /* of those to come: how many dimensions, and each of these; of a float: -1 */
    PyObject *array;           /* numpy.ndarray */
} Targets;

/* Take the memory of the arrays of `out`, one for each name in the template, which has `count` of them, or positions
 * of floats; whether all fit. */
int take_targets(Targets *t, PyObject *template, PyObject *out, const Py_ssize_t *extents, Py_ssize_t count,
                 PyObject *array);
/* Copy a gradient there: doubles, or float32. */
void write_targets(const Targets *t, const void *gradient, int is_float);
void release_targets(Targets *t);

#endif
