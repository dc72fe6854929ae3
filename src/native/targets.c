/* Memory of the caller's for a gradient: the arrays of a tree, each of which takes its part.
 *
 * In: the tree, and what a gradient is like. Out: the arrays' memory, if all of them fit; whatever else is left to
 * Python. No Python code runs here.
 */
#include "targets.h"

#define DEEPEST 64

/* The next array: whether it has the shape that is wanted, in one piece, of doubles that may be written. */
static int take_array(Targets *t, PyObject *array) {
    Py_buffer *view = &t->views[t->taken];
    const Py_ssize_t dimensions = t->taken < t->count ? *t->extents : -1;
    if (dimensions < 0 || (PyObject *)Py_TYPE(array) != t->array) {
        return 0;
    }
    if (get_buffer(array, view, "d", 0, 1) < 0) {
        PyErr_Clear();
        return 0;
    }
    t->taken++;
    int fits = view->ndim == dimensions;
    for (Py_ssize_t j = 0; j < dimensions && fits; j++) {
        fits = view->shape[j] == t->extents[1 + j];
    }
    t->extents += 1 + dimensions;
    return fits;
}

/* Whether no key of a dict has code of its own. */
static int has_plain_keys(PyObject *dict) {
    PyObject *key, *item;
    Py_ssize_t at = 0;
    int plain = 1;
    while (plain && PyDict_Next(dict, &at, &key, &item)) {
        plain = PyUnicode_CheckExact(key) || PyLong_CheckExact(key);
    }
    return plain;
}

static int take_tree(Targets *t, PyObject *template, PyObject *out, int depth) {
    if (PyUnicode_Check(template)) {
        return take_array(t, out);
    }
    int is_list = PyList_CheckExact(template), fits = Py_TYPE(template) == Py_TYPE(out) && depth < DEEPEST;
    if (fits && PyDict_CheckExact(template)) {
        PyObject *key, *item;
        Py_ssize_t at = 0;
        fits = PyDict_Size(template) == PyDict_Size(out) && has_plain_keys(template) && has_plain_keys(out);
        while (fits && PyDict_Next(template, &at, &key, &item)) {
            PyObject *target = PyDict_GetItemWithError(out, key);
            fits = target != NULL && take_tree(t, item, target, depth + 1);
        }
        return fits;
    }
    if (!fits || (!is_list && !PyTuple_CheckExact(template))) {
        return 0;
    }
    Py_ssize_t count = PySequence_Size(template);
    fits = count == PySequence_Size(out);
    for (Py_ssize_t k = 0; k < count && fits; k++) {
        fits = is_list ? take_tree(t, PyList_GetItem(template, k), PyList_GetItem(out, k), depth + 1)
                       : take_tree(t, PyTuple_GetItem(template, k), PyTuple_GetItem(out, k), depth + 1);
    }
    return fits;
}

int take_targets(Targets *t, PyObject *template, PyObject *out, const Py_ssize_t *extents, Py_ssize_t count,
                 PyObject *array) {
    t->taken = 0;
    t->count = count;
    t->extents = extents;
    t->array = array;
    t->views = count <= FEW_TARGETS ? t->few : PyMem_Malloc((size_t)count * sizeof *t->views);
    if (t->views != NULL && take_tree(t, template, out, 0) && t->taken == count) {
        return 1;
    }
    release_targets(t);
    return 0;
}

void write_targets(const Targets *t, const void *gradient, int is_float) {
    Py_ssize_t at = 0;
    for (Py_ssize_t k = 0; k < t->taken; k++) {
        double *restrict to = t->views[k].buf;
        Py_ssize_t count = t->views[k].len / (Py_ssize_t)sizeof *to;
        for (Py_ssize_t j = 0; j < count && is_float; j++) {
            to[j] = (double)((const float *)gradient)[at + j];
        }
        if (!is_float) {
            memcpy(to, (const double *)gradient + at, (size_t)count * sizeof *to);
        }
        at += count;
    }
}

void release_targets(Targets *t) {
    for (Py_ssize_t k = 0; k < t->taken; k++) {
        PyBuffer_Release(&t->views[k]);
    }
    if (t->views != t->few) {
        PyMem_Free(t->views);
    }
}
