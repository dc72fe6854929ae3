/* The argument that a function is differentiated by: Values in the place of its numbers, and its
 * gradient in the same containers; see derivatives/arguments.py, which does this for every argument.
 *
 * Here are the usual ones: floats, integers, lists, tuples, dicts and arrays, exactly of these types.
 */
#include "node.h"

typedef struct {
    PyTypeObject *array;  /* numpy.ndarray */
    PyObject *fill;       /* what makes an array; see below */
    PyObject *row;        /* the Values made so far, or the numbers that go into the containers */
    Py_ssize_t at;        /* of the next number; negative: Values are made */
} Rebuilding;

/* The tree with other leaves; NULL without an error: something else is in it. */
static PyObject *rebuild(Rebuilding *r, PyObject *x);

static PyObject *rebuild_number(Rebuilding *r, PyObject *x) {
    if (r->at >= 0) {
        PyObject *number = PyList_GetItem(r->row, r->at++);
        return Py_XNewRef(number);
    }
    double number = PyFloat_CheckExact(x) ? PyFloat_AsDouble(x) : PyLong_AsDouble(x);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear(); /* an integer beyond floats */
        return NULL;
    }
    PyObject *made = (PyObject *)new_leaf(number);
    if (made != NULL && PyList_Append(r->row, made) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

/* fill(array, row): an array of Values, which go into the row; fill(array, row, at): one of the numbers
 * from there on. None: it is for others. */
static PyObject *rebuild_array(Rebuilding *r, PyObject *x) {
    PyObject *size = r->at < 0 ? NULL : PyObject_GetAttrString(x, "size");
    PyObject *at = r->at < 0 ? NULL : PyLong_FromSsize_t(r->at), *made = NULL;
    if (r->at < 0 || (size != NULL && at != NULL)) {
        made = PyObject_CallFunctionObjArgs(r->fill, x, r->row, at, NULL);
    }
    if (size != NULL) {
        r->at += PyLong_AsSsize_t(size);
    }
    Py_XDECREF(size);
    Py_XDECREF(at);
    if (made == Py_None) {
        Py_CLEAR(made);
    }
    return made;
}

static PyObject *rebuild_dict(Rebuilding *r, PyObject *x) {
    PyObject *items = PyDict_Items(x), *made = items ? PyDict_New() : NULL;
    for (Py_ssize_t k = 0; made != NULL && k < PyList_Size(items); k++) {
        PyObject *pair = PyList_GetItem(items, k);
        PyObject *item = rebuild(r, PyTuple_GetItem(pair, 1));
        if (item == NULL || PyDict_SetItem(made, PyTuple_GetItem(pair, 0), item) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(item);
    }
    Py_XDECREF(items);
    return made;
}

static PyObject *rebuild(Rebuilding *r, PyObject *x) {
    if (PyFloat_CheckExact(x) || PyLong_CheckExact(x)) {
        return rebuild_number(r, x);
    }
    if (Py_TYPE(x) == r->array) {
        return rebuild_array(r, x);
    }
    int is_list = PyList_CheckExact(x);
    if ((!is_list && !PyTuple_CheckExact(x) && !PyDict_CheckExact(x)) ||
        Py_EnterRecursiveCall(" in an argument") != 0) {
        return NULL;
    }
    PyObject *made;
    if (PyDict_CheckExact(x)) {
        made = rebuild_dict(r, x);
    } else {
        Py_ssize_t count = is_list ? PyList_Size(x) : PyTuple_Size(x);
        made = is_list ? PyList_New(count) : PyTuple_New(count);
        for (Py_ssize_t k = 0; made != NULL && k < count; k++) {
            PyObject *item = PySequence_GetItem(x, k); /* which may have been taken out meanwhile */
            PyObject *built = item ? rebuild(r, item) : NULL;
            Py_XDECREF(item);
            if (built == NULL) {
                Py_CLEAR(made);
            } else if (is_list) {
                PyList_SetItem(made, k, built);
            } else {
                PyTuple_SetItem(made, k, built);
            }
        }
    }
    Py_LeaveRecursiveCall();
    return made;
}

static PyObject *rebuilt_or_none(Rebuilding *r, PyObject *x) {
    PyObject *made = rebuild(r, x);
    return made != NULL || PyErr_Occurred() ? made : Py_NewRef(Py_None);
}

/* with_values(x, array, fill): the argument with Values for its numbers, and a list of these; None
 * where it is not one of the usual. */
static PyObject *with_values(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x, *array, *fill, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO!O:with_values", &x, &PyType_Type, &array, &fill)) {
        return NULL;
    }
    PyObject *row = PyList_New(0);
    Rebuilding r = {(PyTypeObject *)array, fill, row, -1};
    PyObject *made = row == NULL ? NULL : rebuilt_or_none(&r, x);
    if (made != NULL) {
        result = made == Py_None ? Py_NewRef(Py_None) : PyTuple_Pack(2, made, row);
    }
    Py_XDECREF(made);
    Py_XDECREF(row);
    return result;
}

/* with_numbers(x, numbers, array, fill): the argument's containers with the numbers of a list; None
 * where it is not one of the usual. */
static PyObject *with_numbers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x, *numbers, *array, *fill;
    if (!PyArg_ParseTuple(args, "OO!O!O:with_numbers", &x, &PyList_Type, &numbers, &PyType_Type, &array, &fill)) {
        return NULL;
    }
    Rebuilding r = {(PyTypeObject *)array, fill, numbers, 0};
    return rebuilt_or_none(&r, x);
}

PyMethodDef argument_functions[] = {
    {"with_values", with_values, METH_VARARGS, NULL},
    {"with_numbers", with_numbers, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
