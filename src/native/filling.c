/* Copying a tree of arrays into another one: gradients into what a caller keeps for them.
 *
 * fill(to, from, array) knows dicts, lists and tuples of numpy's arrays of doubles, each in one piece. It looks at
 * everything before it writes, and leaves whatever is not like that to Python. No Python code runs here, but for
 * keys of dicts that have it.
 */
#include "native.h"

#define DEEPEST 64

typedef struct {
    PyTypeObject *array;
    int writes; /* else it only looks */
    int depth;
} Filling;

/* 1: done; 0: it is not plain; -1: an error. */
static int fill_array(const Filling *f, PyObject *to, PyObject *from) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
    Py_buffer target, source;
    if (PyObject_GetBuffer(to, &target, flags | PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (PyObject_GetBuffer(from, &source, flags) < 0) {
        PyErr_Clear();
        PyBuffer_Release(&target);
        return 0;
    }
    int fits = target.ndim == source.ndim && target.format && source.format && strcmp(target.format, "d") == 0 &&
               strcmp(source.format, "d") == 0;
    for (int i = 0; i < target.ndim && fits; i++) {
        fits = target.shape[i] == source.shape[i];
    }
    if (fits && f->writes) {
        memmove(target.buf, source.buf, (size_t)source.len);
    }
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    return fits;
}

static int fill_from(Filling *f, PyObject *to, PyObject *from);

static int fill_items(Filling *f, PyObject *to, PyObject *from) {
    int done = PySequence_Size(to) == PySequence_Size(from), is_list = PyList_CheckExact(to);
    for (Py_ssize_t k = 0; done > 0 && k < PySequence_Size(to); k++) {
        done = is_list ? fill_from(f, PyList_GetItem(to, k), PyList_GetItem(from, k))
                       : fill_from(f, PyTuple_GetItem(to, k), PyTuple_GetItem(from, k));
    }
    return done;
}

static int fill_values(Filling *f, PyObject *to, PyObject *from) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int done = PyDict_Size(to) == PyDict_Size(from);
    while (done > 0 && PyDict_Next(to, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) {
            return 0; /* whose own code may change the dict */
        }
        PyObject *source = PyDict_GetItemWithError(from, key);
        done = source != NULL ? fill_from(f, value, source) : PyErr_Occurred() ? -1 : 0;
    }
    return done;
}

static int fill_from(Filling *f, PyObject *to, PyObject *from) {
    if (Py_TYPE(to) != Py_TYPE(from) || f->depth >= DEEPEST) {
        return 0;
    }
    if (Py_TYPE(to) == f->array) {
        return fill_array(f, to, from);
    }
    f->depth++;
    int done = PyDict_CheckExact(to)                           ? fill_values(f, to, from)
               : PyList_CheckExact(to) || PyTuple_CheckExact(to) ? fill_items(f, to, from)
                                                                 : 0;
    f->depth--;
    return done;
}

/* fill(to, from, array): whether all numbers of one tree were copied into the other; else none was. `array` is
 * numpy's ndarray. */
static PyObject *fill(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *to, *from, *array;
    if (!PyArg_ParseTuple(args, "OOO!:fill", &to, &from, &PyType_Type, &array)) {
        return NULL;
    }
    Filling f = {.array = (PyTypeObject *)array};
    int done = fill_from(&f, to, from);
    f.writes = 1;
    done = done > 0 ? fill_from(&f, to, from) : done;
    return done < 0 ? NULL : PyBool_FromLong(done);
}

PyMethodDef filling_functions[] = {
    {"fill", fill, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
