/* Packing the samples of training, many at a time; see compiler/training/packing.py.
 *
 * sample_integers reads samples that consist of lists of integers.
 */
#include "native.h"

/* Whether an item of a sample is a list, not empty, and not the same object as an earlier item. */
static int is_another_list(PyObject *sample, Py_ssize_t place) {
    PyObject *list = PyTuple_GetItem(sample, place);
    Py_ssize_t before = 0;
    for (; before < place && PyTuple_GetItem(sample, before) != list; before++) {
    }
    return before == place && PyList_CheckExact(list) && PyList_Size(list) > 0;
}

/* How many integers each list of a sample holds, into `lengths`; 0 where the sample is anything but
 * distinct lists of integers. No Python code runs here. */
static int measure_sample(PyObject *sample, Py_ssize_t lists, int64_t *lengths) {
    if (!PyTuple_Check(sample) || PyTuple_Size(sample) != lists) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < lists; i++) {
        if (!is_another_list(sample, i)) {
            return 0;
        }
        PyObject *list = PyTuple_GetItem(sample, i);
        Py_ssize_t count = PyList_Size(list);
        for (Py_ssize_t k = 0; k < count; k++) {
            PyObject *x = PyList_GetItem(list, k);
            int overflow = 0;
            if (!PyLong_CheckExact(x) || (PyLong_AsLongLongAndOverflow(x, &overflow), overflow != 0)) {
                return 0;
            }
        }
        lengths[i] = count;
    }
    return 1;
}

static int64_t *copy_sample(PyObject *sample, Py_ssize_t lists, int64_t *to) {
    for (Py_ssize_t i = 0; i < lists; i++) {
        PyObject *list = PyTuple_GetItem(sample, i);
        Py_ssize_t count = PyList_Size(list);
        for (Py_ssize_t k = 0; k < count; k++) {
            *to++ = PyLong_AsLongLong(PyList_GetItem(list, k));
        }
    }
    return to;
}

/* sample_integers(samples, which, lengths): all integers of some samples, one after the other, as a
 * bytearray of int64. `lengths` receives how many each list has, as many numbers for each sample as it
 * should have lists; -1 for a sample that is something else, which is left out. */
static PyObject *sample_integers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *samples, *which, *lengths, *result = NULL;
    Py_buffer which_view, lengths_view;
    if (!PyArg_ParseTuple(args, "O!OO:sample_integers", &PyList_Type, &samples, &which, &lengths) ||
        get_buffer(which, &which_view, "q", 0, 0) < 0) {
        return NULL;
    }
    Py_ssize_t count = which_view.len / (Py_ssize_t)sizeof(int64_t), total = 0;
    if (get_buffer(lengths, &lengths_view, "q", count, 1) < 0) {
        PyBuffer_Release(&which_view);
        return NULL;
    }
    const int64_t *places = which_view.buf;
    int64_t *found = lengths_view.buf;
    Py_ssize_t lists = count ? lengths_view.len / (Py_ssize_t)sizeof(int64_t) / count : 0, k = 0;
    for (; k < count && places[k] >= 0 && places[k] < PyList_Size(samples); k++) {
        int64_t *here = found + k * lists;
        int fits = measure_sample(PyList_GetItem(samples, (Py_ssize_t)places[k]), lists, here);
        for (Py_ssize_t i = 0; i < lists; i++) {
            here[i] = fits ? here[i] : -1;
            total += fits ? (Py_ssize_t)here[i] : 0;
        }
    }
    if (k < count) {
        PyErr_SetString(PyExc_IndexError, "there is no such sample");
    } else {
        int64_t *to = new_array(&result, total, sizeof *to);
        for (k = 0; k < count && to != NULL && lists > 0; k++) {
            if (found[k * lists] >= 0) {
                to = copy_sample(PyList_GetItem(samples, (Py_ssize_t)places[k]), lists, to);
            }
        }
    }
    PyBuffer_Release(&which_view);
    PyBuffer_Release(&lengths_view);
    return result;
}

/* array_address(array): where its first number is. */
static PyObject *array_address(PyObject *Py_UNUSED(module), PyObject *array) {
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES) < 0) {
        return NULL;
    }
    PyObject *address = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return address;
}

PyMethodDef sample_functions[] = {
    {"array_address", array_address, METH_O, NULL},
    {"sample_integers", sample_integers, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
