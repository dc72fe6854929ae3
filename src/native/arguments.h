/* The argument that a function is differentiated by, rebuilt: arguments.c does it, derivation.c runs the
 * function in between. */
#ifndef CHAINRULE_ARGUMENTS_H
#define CHAINRULE_ARGUMENTS_H

#include "node.h"

/* How arguments are looked into; see derivatives/arguments.py. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *array;                  /* numpy.ndarray */
    PyObject *empty;                      /* numpy.empty */
    PyObject *numbers;                    /* tuple: numpy's types that are numbers like floats */
    PyTypeObject *leaf;                   /* base of dataclasses that are not looked into */
    PyObject *field;                      /* what dataclasses mark their fields with */
    PyObject *fill_values, *fill_numbers; /* what makes arrays that are not made here */
} Arguments;

extern PyTypeObject *ArgumentsType, *DerivationType;

/* The argument with Values for its numbers, which go into the list `row` too; NULL without an error where it is
 * not one of the usual. */
PyObject *with_new_values(const Arguments *how, PyObject *x, PyObject *row);
/* The containers of such an argument with these numbers in them. */
PyObject *with_these_numbers(const Arguments *how, PyObject *x, const double *numbers, Py_ssize_t count);

/* derivation.c */
/* The value and the gradient of a call; `kwargs` may be NULL. */
PyObject *run_derivation(PyObject *derivation, PyObject *args, PyObject *kwargs);

/* backward.c */
/* The derivative of a node by each Value of a list, into `found`; -1: an error. See value_gradients. */
int find_gradients(Node *root, PyObject *xs, int up_to, double *found);

#endif
