/* The rows of the op table that recording itself makes (of .data, comparisons, max and min), without going
 * through Python; and what stands for functions of Python's meanwhile, put in their places.
 */
#include "standins.h"
#include "tape.h"

static PyObject *apply_name;

/* The number of a building block, as ops has it; nan for any other. */
static double block_value(int code, const double *x) {
    switch (code) {
    case T_DETACH: return x[0];
    case T_LESS: return x[0] < x[1] ? 1.0 : 0.0;
    case T_LESS_EQUAL: return x[0] <= x[1] ? 1.0 : 0.0;
    case T_EQUAL: return x[0] <= x[1] && x[0] >= x[1] ? 1.0 : 0.0;
    case T_FIRST_MAX: return x[1] > x[0] ? x[1] : x[0];
    case T_FIRST_MIN: return x[1] < x[0] ? x[1] : x[0];
    default: return NAN;
    }
}

/* The node of an operation that becomes an instruction at once; None where there is more to it. Nothing was
 * recorded then. */
PyObject *recorded_block(PyObject *op, PyObject *const *operands, Py_ssize_t count) {
    int code = T_DETACH, fits = instructions != NULL && !grad_off && !nonfinite_allowed && !debug_on;
    while (code < T_ROW && block_names[code] != op) {
        code++;
    }
    double x[2] = {0.0, 0.0};
    fits = fits && code < T_ROW && count == (code == T_DETACH ? 1 : 2);
    for (Py_ssize_t k = 0; fits && k < count; k++) {
        PyObject *one = operands[k];
        fits = is_exact(one) || PyFloat_CheckExact(one);
        x[k] = !fits ? NAN : is_exact(one) ? ((Node *)one)->data : PyFloat_AsDouble(one);
    }
    double y = fits ? block_value(code, x) : NAN;
    if (!isfinite(y)) {
        return Py_NewRef(Py_None);
    }
    Node *nodes[2] = {NULL, NULL};
    PyObject *made = NULL;
    Py_ssize_t k = 0;
    for (; k < count; k++) { /* a number becomes a leaf, which is an instruction before its user */
        PyObject *one = operands[k];
        nodes[k] = is_exact(one) ? (Node *)Py_NewRef(one) : new_leaf(x[k]);
        if (nodes[k] == NULL || (!is_exact(one) && record_leaf((PyObject *)nodes[k]) < 0)) {
            break;
        }
    }
    if (k == count) {
        made = record_rule(op, y, nodes, count);
    }
    Py_XDECREF((PyObject *)nodes[0]);
    Py_XDECREF((PyObject *)nodes[1]);
    return made;
}

static PyObject *recorded_row(PyObject *op, PyObject *operands) {
    PyObject *given[2] = {NULL, NULL};
    Py_ssize_t count = PyTuple_Size(operands);
    if (count > 2) {
        return Py_NewRef(Py_None);
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        given[k] = PyTuple_GetItem(operands, k);
    }
    return recorded_block(op, given, count);
}

/* record_row(op, operands): see recorded_block. */
static PyObject *record_row(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *op, *operands;
    if (!PyArg_ParseTuple(args, "OO!:record_row", &op, &PyTuple_Type, &operands)) {
        return NULL;
    }
    return recorded_row(op, operands);
}

/* apply_row(op, *operands): the same, and what Value._apply_op gives where there is more to it. */
static PyObject *apply_row(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_ssize_t count = PyTuple_Size(args);
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "apply_row takes an operation and its operands");
        return NULL;
    }
    if (apply_name == NULL && (apply_name = PyUnicode_InternFromString("_apply_op")) == NULL) {
        return NULL;
    }
    PyObject *op = PyTuple_GetItem(args, 0), *operands = PyTuple_GetSlice(args, 1, count);
    PyObject *made = operands ? recorded_row(op, operands) : NULL;
    if (made == Py_None) {
        Py_DECREF(made);
        made = PyObject_CallMethodObjArgs((PyObject *)ValueType, apply_name, op, operands, empty_tuple, NULL);
    }
    Py_XDECREF(operands);
    return made;
}

/* exchange(names, places): for each (name, before, after) of a tuple, put ``after`` in the place of ``before``, but
 * where there is something else. */
static PyObject *exchange(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *names, *places;
    if (!PyArg_ParseTuple(args, "O!O!:exchange", &PyDict_Type, &names, &PyTuple_Type, &places)) {
        return NULL;
    }
    for (Py_ssize_t k = 0, count = PyTuple_Size(places); k < count; k++) {
        PyObject *place = PyTuple_GetItem(places, k);
        if (!PyTuple_CheckExact(place) || PyTuple_Size(place) != 3) {
            return PyErr_Format(PyExc_TypeError, "what is exchanged is a name, what is there and what shall be");
        }
        PyObject *name = PyTuple_GetItem(place, 0), *before = PyTuple_GetItem(place, 1), *after = PyTuple_GetItem(place, 2);
        PyObject *now = PyDict_GetItemWithError(names, name);
        if (now == NULL ? PyErr_Occurred() != NULL : now == before && PyDict_SetItem(names, name, after) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

PyMethodDef recording_functions[] = {
    {"apply_row", apply_row, METH_VARARGS, NULL},
    {"exchange", exchange, METH_VARARGS, NULL},
    {"record_row", record_row, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
