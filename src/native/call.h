/* What a compiled call was passed: passed.c reads it from the arguments, plan.c computes with it. */
#ifndef CHAINRULE_CALL_H
#define CHAINRULE_CALL_H

#include "native.h"

/* A number, or where `array` is not NULL the array that holds some. */
typedef struct {
    PyObject *array;
    double number;
} Entry;

/* An integer that does not fit into 64 bits, and its place among all. */
typedef struct {
    Py_ssize_t place;
    PyObject *integer;
} Large;

/* Without the garbage collector's flag, so that making one does not start that. */
typedef struct {
    PyObject_HEAD
    PyObject *signature; /* bytes */
    Buffer entries;
    Buffer integers; /* int64_t; 0 in the place of a large one */
    Buffer large;
} Passed;

extern PyTypeObject *PassedType;

/* The integers of a call, a tuple. */
PyObject *integers_of(const Passed *call);

/* The buffer of an array in one piece: 1; it has none: 0; an error: -1. */
int open_array(PyObject *array, Py_buffer *view);
int holds_floats(const Py_buffer *view);

#endif
