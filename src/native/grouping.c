/* The nodes of a large graph by their shapes, in linear time; see compiler/lift/grouping.py.
 *
 * In: the kind and the signature of every node. Out: the signatures that there are, if they are few, how many nodes
 * have each, the first of these, and all of them.
 */
#include "native.h"

typedef struct {
    uint64_t signature;
    int64_t count, first;
    int32_t *next; /* where the next node of it goes */
} Shape;

typedef struct {
    Shape *shapes;
    Py_ssize_t count, most;
    int32_t *slots; /* a hash table of places in `shapes`, -1: none */
    size_t mask;
} Found;

static Shape *shape_of(Found *f, uint64_t signature, int add) {
    size_t at = (size_t)signature & f->mask;
    for (; f->slots[at] >= 0; at = (at + 1) & f->mask) {
        if (f->shapes[f->slots[at]].signature == signature) {
            return &f->shapes[f->slots[at]];
        }
    }
    if (!add || f->count == f->most) {
        return NULL;
    }
    f->slots[at] = (int32_t)f->count;
    f->shapes[f->count] = (Shape){.signature = signature, .first = -1};
    return &f->shapes[f->count++];
}

static int by_signature(const void *a, const void *b) {
    uint64_t one = ((const Shape *)a)->signature, other = ((const Shape *)b)->signature;
    return (one > other) - (one < other);
}

/* Count the nodes of each shape; 0 where there are too many shapes. */
static int count_shapes(Found *f, const uint8_t *kinds, const int64_t *signatures, Py_ssize_t nodes, int leaf) {
    for (Py_ssize_t k = 0; k < nodes; k++) {
        if (kinds[k] > leaf) {
            Shape *shape = shape_of(f, (uint64_t)signatures[k], 1);
            if (shape == NULL) {
                return 0;
            }
            shape->first = shape->count++ == 0 ? k : shape->first;
        }
    }
    qsort(f->shapes, (size_t)f->count, sizeof *f->shapes, by_signature);
    memset(f->slots, -1, (f->mask + 1) * sizeof *f->slots);
    for (Py_ssize_t k = 0; k < f->count; k++) {
        size_t at = (size_t)f->shapes[k].signature & f->mask;
        for (; f->slots[at] >= 0; at = (at + 1) & f->mask) {
        }
        f->slots[at] = (int32_t)k;
    }
    return 1;
}

static PyObject *members_of(Found *f, const uint8_t *kinds, const int64_t *signatures, Py_ssize_t nodes, int leaf) {
    Py_ssize_t total = 0;
    PyObject *result;
    for (Py_ssize_t k = 0; k < f->count; k++) {
        total += (Py_ssize_t)f->shapes[k].count;
    }
    int32_t *to = new_array(&result, total, sizeof *to);
    for (Py_ssize_t k = 0; k < f->count && to != NULL; k++) {
        f->shapes[k].next = to;
        to += f->shapes[k].count;
    }
    for (Py_ssize_t k = 0; k < nodes && to != NULL; k++) {
        if (kinds[k] > leaf) {
            *shape_of(f, (uint64_t)signatures[k], 0)->next++ = (int32_t)k;
        }
    }
    return result;
}

/* A column of the shapes. */
static PyObject *column(const Found *f, int which) {
    PyObject *result;
    int64_t *to = new_array(&result, f->count, sizeof *to);
    for (Py_ssize_t k = 0; k < f->count && to != NULL; k++) {
        const Shape *shape = &f->shapes[k];
        to[k] = which == 0 ? (int64_t)shape->signature : which == 1 ? shape->count : shape->first;
    }
    return result;
}

static PyObject *answer(Found *f, const Py_buffer *kinds, const Py_buffer *signatures, int leaf, int all) {
    Py_ssize_t nodes = kinds->len;
    if (!count_shapes(f, kinds->buf, signatures->buf, nodes, leaf)) {
        return Py_NewRef(Py_None);
    }
    PyObject *result = NULL, *parts[4] = {NULL};
    int failed = 0;
    for (int k = 0; k < 4 && !failed; k++) {
        parts[k] = k < 3 ? column(f, k) : all ? members_of(f, kinds->buf, signatures->buf, nodes, leaf)
                                              : Py_NewRef(Py_None);
        failed = parts[k] == NULL;
    }
    if (!failed) {
        result = PyTuple_Pack(4, parts[0], parts[1], parts[2], parts[3]);
    }
    for (int k = 0; k < 4; k++) {
        Py_XDECREF(parts[k]);
    }
    return result;
}

/* group_shapes(kinds, signatures, leaf, most, all): the shapes of nodes whose kind is beyond `leaf`, by signature:
 * these, how many nodes there are of each, the first of them; and if `all` is true, all of them, one shape after the
 * other, each in order. None where there are more than `most` shapes. */
static PyObject *group_shapes(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *kinds, *signatures, *result = NULL;
    Py_buffer kinds_view, signatures_view;
    int leaf, most, all;
    if (!PyArg_ParseTuple(args, "OOiip:group_shapes", &kinds, &signatures, &leaf, &most, &all) ||
        get_buffer(kinds, &kinds_view, "B", 0, 0) < 0) {
        return NULL;
    }
    if (most < 0 || most > 1 << 20 || kinds_view.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "there are too many nodes, or shapes");
    } else if (get_buffer(signatures, &signatures_view, "q", kinds_view.len, 0) == 0) {
        Found f = {.most = most, .mask = 63};
        while (f.mask < 4 * (size_t)most) {
            f.mask = 2 * f.mask + 1;
        }
        f.shapes = PyMem_Calloc((size_t)most + 1, sizeof *f.shapes);
        f.slots = PyMem_Malloc((f.mask + 1) * sizeof *f.slots);
        if (f.shapes == NULL || f.slots == NULL) {
            PyErr_NoMemory();
        } else {
            memset(f.slots, -1, (f.mask + 1) * sizeof *f.slots);
            result = answer(&f, &kinds_view, &signatures_view, leaf, all);
        }
        PyMem_Free(f.shapes);
        PyMem_Free(f.slots);
        PyBuffer_Release(&signatures_view);
    }
    PyBuffer_Release(&kinds_view);
    return result;
}

PyMethodDef grouping_functions[] = {
    {"group_shapes", group_shapes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
