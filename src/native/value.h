/* The methods of Value, from the units that define them to value.c, which makes the type. */
#ifndef CHAINRULE_VALUE_H
#define CHAINRULE_VALUE_H

#include "node.h"

/* memory.c */
void value_dealloc(PyObject *self);

/* operators.c */
PyObject *value_add(PyObject *l, PyObject *r);
PyObject *value_subtract(PyObject *l, PyObject *r);
PyObject *value_multiply(PyObject *l, PyObject *r);
PyObject *value_divide(PyObject *l, PyObject *r);
PyObject *value_power(PyObject *l, PyObject *r, PyObject *modulo);
PyObject *value_negative(PyObject *self);
PyObject *value_positive(PyObject *self);
PyObject *value_absolute(PyObject *self);
int value_bool(PyObject *self);
Py_hash_t value_hash(PyObject *self);
PyObject *value_compare(PyObject *l, PyObject *r, int comparison);
PyObject *value_exp(PyObject *self, PyObject *nothing);
PyObject *value_log(PyObject *self, PyObject *nothing);
PyObject *value_relu(PyObject *self, PyObject *nothing);
PyObject *value_abs(PyObject *self, PyObject *nothing);
PyObject *value_tanh(PyObject *self, PyObject *nothing);
PyObject *value_sigmoid(PyObject *self, PyObject *nothing);
PyObject *value_softplus(PyObject *self, PyObject *nothing);
PyObject *value_sqrt(PyObject *self, PyObject *nothing);
PyObject *value_sin(PyObject *self, PyObject *nothing);
PyObject *value_cos(PyObject *self, PyObject *nothing);
PyObject *value_maximum(PyObject *self, PyObject *other);

/* backward.c */
PyObject *value_backward(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *value_zero_grad(PyObject *self, PyObject *nothing);
PyObject *value_gradients(PyObject *self, PyObject *args);
PyObject *value_order(PyObject *self, PyObject *nothing);
PyObject *topological_order(PyObject *module, PyObject *value);

#endif
