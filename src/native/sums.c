/* vsum, dot, linear: the nodes that Python's sum() makes, in one call. */
#include "node.h"

/* total + term as Python's sum() does it, from int 0 on; takes both references. */
static PyObject *sum_step(PyObject *total, PyObject *term) {
    PyObject *sum = NULL;
    if (term == NULL) {
        /* the error stands */
    } else if (total == NULL) {
        if (is_exact(term)) {
            sum = make_add_number((Node *)term, 0.0);
        } else {
            PyObject *zero = PyLong_FromLong(0);
            sum = zero ? PyNumber_Add(zero, term) : NULL;
            Py_XDECREF(zero);
        }
    } else if (is_exact(total) && is_exact(term)) {
        sum = make_add((Node *)total, (Node *)term);
    } else {
        sum = PyNumber_Add(total, term);
    }
    Py_XDECREF(total);
    Py_XDECREF(term);
    return sum;
}

/* A sum as a Value: the empty one is Value(0). */
static PyObject *as_value(PyObject *total) {
    if (total == NULL) {
        return recorder ? PyObject_CallFunction((PyObject *)ValueType, "d", 0.0)
                        : (PyObject *)new_leaf(0.0);
    }
    if (is_value(total)) {
        return total;
    }
    PyObject *value = PyObject_CallFunctionObjArgs((PyObject *)ValueType, total, NULL);
    Py_DECREF(total);
    return value;
}

static PyObject *vsum(PyObject *Py_UNUSED(module), PyObject *values) {
    PyObject *terms = PySequence_Tuple(values), *total = NULL;
    if (terms == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(terms);
    for (Py_ssize_t i = 0; i < count; i++) {
        total = sum_step(total, Py_NewRef(PyTuple_GetItem(terms, i)));
        if (total == NULL) {
            Py_DECREF(terms);
            return NULL;
        }
    }
    Py_DECREF(terms);
    return as_value(total);
}

/* A number of numpy's that is a float, which would make an array of a Value before it lets that answer. Classes of the
 * user's are no static types. */
static int is_numpys_float(PyObject *x) {
    return PyFloat_Check(x) && !PyFloat_CheckExact(x) && !(PyType_GetFlags(Py_TYPE(x)) & Py_TPFLAGS_HEAPTYPE);
}

static PyObject *product(PyObject *x, PyObject *y) {
    if (is_exact(x) && is_exact(y)) {
        return make_mul((Node *)x, (Node *)y);
    }
    if (!is_numpys_float(x) || !is_exact(y)) {
        return PyNumber_Multiply(x, y);
    }
    PyObject *number = PyFloat_FromDouble(PyFloat_AsDouble(x));
    PyObject *made = number != NULL ? PyNumber_Multiply(number, y) : NULL;
    Py_XDECREF(number);
    return made;
}

static PyObject *dot_tuples(PyObject *a, PyObject *b) {
    Py_ssize_t count = PyTuple_Size(a);
    if (count != PyTuple_Size(b)) {
        return PyErr_Format(PyExc_ValueError, "dot needs two vectors of one length, got %zd and %zd",
                            count, PyTuple_Size(b));
    }
    PyObject *total = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *x = PyTuple_GetItem(a, i), *y = PyTuple_GetItem(b, i);
        total = sum_step(total, product(x, y));
        if (total == NULL) {
            return NULL;
        }
    }
    return as_value(total);
}

static PyObject *dot(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "OO:dot", &a, &b)) {
        return NULL;
    }
    PyObject *left = PySequence_Tuple(a), *right = left ? PySequence_Tuple(b) : NULL;
    PyObject *result = right ? dot_tuples(left, right) : NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static PyObject *linear(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x, *w, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO:linear", &x, &w)) {
        return NULL;
    }
    PyObject *vector = PySequence_Tuple(x), *matrix = vector ? PySequence_Tuple(w) : NULL;
    if (matrix != NULL && (result = PyList_New(0)) != NULL) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(matrix); i++) {
            PyObject *row = PySequence_Tuple(PyTuple_GetItem(matrix, i));
            PyObject *y = row ? dot_tuples(row, vector) : NULL;
            int failed = y == NULL || PyList_Append(result, y) < 0;
            Py_XDECREF(row);
            Py_XDECREF(y);
            if (failed) {
                Py_CLEAR(result);
                break;
            }
        }
    }
    Py_XDECREF(vector);
    Py_XDECREF(matrix);
    return result;
}

PyMethodDef sum_functions[] = {
    {"vsum", vsum, METH_O,
     "vsum(values, /)\n--\n\n"
     "``sum(values)`` as a Value, also when there are none: ``vsum([])`` is ``Value(0)``.\n\n"
     ">>> from chainrule import Value, vsum\n"
     ">>> vsum([Value(1.0), Value(2.0), Value(3.0)]).data\n"
     "6.0"},
    {"dot", dot, METH_VARARGS,
     "dot(a, b, /)\n--\n\n``sum(x * y for x, y in zip(a, b))``: the same nodes, in one call.\n\n"
     ">>> from chainrule import Value, dot\n"
     ">>> dot([Value(1.0), Value(2.0)], [3.0, 4.0]).data\n"
     "11.0"},
    {"linear", linear, METH_VARARGS,
     "linear(x, w, /)\n--\n\n"
     "A matrix times a vector, microgpt's ``linear``: ``[dot(row, x) for row in w]``.\n\n"
     ">>> from chainrule import Value, linear\n"
     ">>> w = [[Value(3.0), Value(4.0)], [Value(5.0), Value(6.0)]]\n"
     ">>> [y.data for y in linear([1.0, 2.0], w)]\n"
     "[11.0, 17.0]"},
    {NULL, NULL, 0, NULL},
};
