/* Looking at the samples of training, many at a time; see compiler/training/packing.py and samples.py.
 *
 * sample_integers reads samples that consist of lists of integers, sample_shapes finds those that differ
 * in the lengths of these lists, longest_sample the longest, and holds_memory whether anything inside may
 * have the memory of given arrays. No Python code runs here.
 */
#include "samples.h"

/* Whether an item of a sample is a list, not empty, and not the same object as an earlier item. */
static int is_another_list(PyObject *sample, Py_ssize_t place) {
    PyObject *list = PyTuple_GetItem(sample, place);
    Py_ssize_t before = 0;
    for (; before < place && PyTuple_GetItem(sample, before) != list; before++) {
    }
    return before == place && PyList_CheckExact(list) && PyList_Size(list) > 0;
}

/* Python has small integers ready, one object beside the other: which of them an object is, its address says. Of the
 * first SMALL of them: where they begin, and how many bytes they take; 0 where Python has them otherwise. */
#define SMALL 256
#define SMALL_SHIFT 5 /* each takes 32 bytes: nothing else can begin between two of them */
static uintptr_t first_small, small_bytes;

int find_small_integers(void) {
    int beside = 1;
    for (uintptr_t k = 0; k < SMALL; k++) {
        uintptr_t place = (uintptr_t)PyLong_FromLong((long)k); /* never given back, so that it stays there */
        if (place == 0) {
            return -1;
        }
        first_small = k == 0 ? place : first_small;
        beside = beside && place == first_small + (k << SMALL_SHIFT);
    }
    small_bytes = beside ? SMALL << SMALL_SHIFT : 0;
    return 0;
}

/* The integers of a list, also into `to` unless that is NULL; 0 where there is something else. */
static int read_list(PyObject *list, Py_ssize_t count, int64_t *to) {
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *x = PyList_GetItem(list, k);
        uintptr_t beyond = (uintptr_t)x - first_small;
        int64_t integer = (int64_t)(beyond >> SMALL_SHIFT);
        if (UNLIKELY(beyond >= small_bytes)) {
            int overflow = 0;
            if (!PyLong_CheckExact(x)) {
                return 0;
            }
            integer = PyLong_AsLongLongAndOverflow(x, &overflow);
            if (overflow != 0) {
                return 0;
            }
        }
        if (to != NULL) {
            to[k] = integer;
        }
    }
    return 1;
}

static int looks_like_lists(PyObject *sample, Py_ssize_t lists) {
    return PyTuple_Check(sample) && PyTuple_Size(sample) == lists;
}

int measure_sample(PyObject *sample, Py_ssize_t lists, int64_t *lengths) {
    int fits = looks_like_lists(sample, lists);
    for (Py_ssize_t i = 0; i < lists && fits; i++) {
        PyObject *list = PyTuple_GetItem(sample, i);
        fits = is_another_list(sample, i) && read_list(list, lengths[i] = PyList_Size(list), NULL);
    }
    return fits;
}

int read_sample(PyObject *sample, Py_ssize_t lists, int64_t *lengths, Buffer *integers) {
    int fits = looks_like_lists(sample, lists);
    integers->size = 0;
    for (Py_ssize_t i = 0; i < lists && fits; i++) {
        if (!is_another_list(sample, i)) {
            return 0;
        }
        PyObject *list = PyTuple_GetItem(sample, i);
        size_t bytes = (size_t)(lengths[i] = PyList_Size(list)) * sizeof(int64_t);
        if (integers->size + bytes > integers->capacity && grow(integers, bytes) < 0) {
            return -1;
        }
        fits = read_list(list, lengths[i], (int64_t *)(integers->bytes + integers->size));
        integers->size += bytes;
    }
    return fits;
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

/* ----------------------------------------------------------------- shapes ---------------------- */

static size_t hash_of(const int64_t *lengths, Py_ssize_t lists) {
    uint64_t hash = 0;
    for (Py_ssize_t i = 0; i < lists; i++) {
        hash = (hash ^ (uint64_t)lengths[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return (size_t)hash;
}

Py_ssize_t find_shape(const Shapes *s, const int64_t *lengths) {
    for (size_t at = hash_of(lengths, s->lists) & s->mask; s->slots[at] >= 0; at = (at + 1) & s->mask) {
        const int64_t *row = &ITEM(s->rows, int64_t, s->slots[at] * s->lists);
        Py_ssize_t k = 0;
        for (; k < s->lists && row[k] == lengths[k]; k++) {
        }
        if (k == s->lists) {
            return (Py_ssize_t)s->slots[at];
        }
    }
    return -1;
}

static void put_shape(Shapes *s, int64_t number) {
    size_t at = hash_of(&ITEM(s->rows, int64_t, number * s->lists), s->lists) & s->mask;
    for (; s->slots[at] >= 0; at = (at + 1) & s->mask) {
    }
    s->slots[at] = number;
}

int add_shape(Shapes *s, const int64_t *lengths) {
    size_t bytes = (size_t)s->lists * sizeof *lengths;
    if (s->rows.size + bytes > s->rows.capacity && grow(&s->rows, bytes) < 0) {
        return -1;
    }
    memcpy(s->rows.bytes + s->rows.size, lengths, bytes);
    s->rows.size += bytes;
    s->count++;
    if (s->slots == NULL || (size_t)s->count * 2 > s->mask) {
        size_t size = s->slots == NULL ? 64 : 2 * (s->mask + 1);
        int64_t *slots = PyMem_Realloc(s->slots, size * sizeof *slots);
        if (slots == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        s->slots = slots;
        s->mask = size - 1;
        memset(slots, -1, size * sizeof *slots);
        for (Py_ssize_t k = 0; k + 1 < s->count; k++) {
            put_shape(s, k);
        }
    }
    put_shape(s, s->count - 1);
    return 0;
}

void free_shapes(Shapes *s) {
    PyMem_Free(s->rows.bytes);
    PyMem_Free(s->slots);
}

static int append_place(PyObject *list, int64_t place) {
    PyObject *number = PyLong_FromLongLong(place);
    int failed = number == NULL || PyList_Append(list, number) < 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* What was read of samples, for packing: of each the number of its shape, then its integers. */
typedef struct {
    Buffer numbers;  /* int32 */
    size_t most;     /* bytes */
    int64_t *starts; /* of each sample: where its numbers begin; left alone where they are not kept */
    Py_ssize_t count;
} Kept;

/* Keep the integers of a sample, unless one does not fit into 32 bits or there are too many; -1: an error. */
static int keep_sample(Kept *kept, int64_t place, Py_ssize_t shape, const Buffer *integers) {
    Py_ssize_t count = COUNT(*integers, int64_t), k = 0;
    size_t bytes = (size_t)(1 + count) * sizeof(int32_t);
    if (place >= kept->count || kept->numbers.size + bytes > kept->most || shape > INT32_MAX) {
        return 0;
    }
    if (kept->numbers.size + bytes > kept->numbers.capacity && grow(&kept->numbers, bytes) < 0) {
        return -1;
    }
    int32_t *to = (int32_t *)(void *)(kept->numbers.bytes + kept->numbers.size);
    to[0] = (int32_t)shape;
    for (; k < count; k++) {
        int64_t integer = ITEM(*integers, int64_t, k);
        to[1 + k] = (int32_t)integer;
        if (UNLIKELY(to[1 + k] != integer)) {
            return 0;
        }
    }
    kept->starts[place] = COUNT(kept->numbers, int32_t);
    kept->numbers.size += bytes;
    return 0;
}

/* Sort some samples into the first of each shape, and those that are anything but lists of integers; keep what was
 * read, unless `kept` is NULL. */
static int find_shapes(PyObject *samples, const int64_t *places, Py_ssize_t count, Py_ssize_t lists,
                       PyObject *first, PyObject *others, Kept *kept) {
    Shapes shapes = {.lists = lists};
    Buffer integers = {0};
    int64_t *lengths = PyMem_Calloc((size_t)lists + 1, sizeof *lengths);
    int failed = lengths == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t k = 0; k < count && !failed; k++) {
        PyObject *sample = PyList_GetItem(samples, (Py_ssize_t)places[k]);
        int fits = sample == NULL ? -1 : lists == 0 ? 0 : read_sample(sample, lists, lengths, &integers);
        if (fits < 1) {
            failed = fits < 0 || append_place(others, places[k]) < 0;
            continue;
        }
        Py_ssize_t shape = shapes.count == 0 ? -1 : find_shape(&shapes, lengths);
        if (shape < 0) {
            shape = shapes.count;
            failed = add_shape(&shapes, lengths) < 0 || append_place(first, places[k]) < 0;
        }
        failed = failed || (kept != NULL && keep_sample(kept, places[k], shape, &integers) < 0);
    }
    PyMem_Free(lengths);
    PyMem_Free(integers.bytes);
    free_shapes(&shapes);
    return failed ? -1 : 0;
}

/* sample_shapes(samples, which, lists): of some samples the first of each shape, and those that are
 * anything but so many lists of integers.
 *
 * sample_shapes(samples, which, lists, starts, most): the same, and what was read, at most so many bytes of int32:
 * the number of a sample's shape, then its integers. `starts` receives for each sample where these begin; it stays
 * as it is where they are not kept. */
static PyObject *sample_shapes(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *samples, *which, *starts = NULL, *result = NULL, *first = NULL, *others = NULL, *read = NULL;
    Py_ssize_t lists, most = 0;
    Py_buffer view, starts_view;
    if (!PyArg_ParseTuple(args, "O!On|On:sample_shapes", &PyList_Type, &samples, &which, &lists, &starts, &most)) {
        return NULL;
    }
    if (lists < 0 || lists > PY_SSIZE_T_MAX / 64 || most < 0) {
        PyErr_SetString(PyExc_ValueError, "samples do not have so many lists");
        return NULL;
    }
    if (get_buffer(which, &view, "q", 0, 0) < 0) {
        return NULL;
    }
    Py_ssize_t count = view.len / (Py_ssize_t)sizeof(int64_t);
    Kept kept = {.most = (size_t)most};
    if (starts == NULL || get_buffer(starts, &starts_view, "q", 0, 1) == 0) {
        if (starts != NULL) {
            kept.starts = starts_view.buf;
            kept.count = starts_view.len / (Py_ssize_t)sizeof(int64_t);
        }
        first = PyList_New(0);
        others = PyList_New(0);
        if (first != NULL && others != NULL &&
            find_shapes(samples, view.buf, count, lists, first, others, starts == NULL ? NULL : &kept) == 0) {
            if (starts == NULL) {
                result = PyTuple_Pack(2, first, others);
            } else if ((read = PyByteArray_FromStringAndSize(kept.numbers.bytes, (Py_ssize_t)kept.numbers.size))) {
                result = PyTuple_Pack(3, first, others, read);
            }
        }
        if (starts != NULL) {
            PyBuffer_Release(&starts_view);
        }
    }
    Py_XDECREF(first);
    Py_XDECREF(others);
    Py_XDECREF(read);
    PyMem_Free(kept.numbers.bytes);
    PyBuffer_Release(&view);
    return result;
}

/* ----------------------------------------------------------------- what is inside -------------- */

/* What cannot hold anything: int, float, bool, None and str. */
static int is_number(PyObject *x) {
    return PyLong_CheckExact(x) || Py_TYPE(x) == &PyFloat_Type || PyBool_Check(x) || x == Py_None;
}

/* The length of an item of a sample, 0 for a number; -1 where C cannot tell. */
static Py_ssize_t length_of(PyObject *x) {
    if (PyList_CheckExact(x)) {
        return PyList_Size(x);
    }
    if (PyTuple_CheckExact(x)) {
        return PyTuple_Size(x);
    }
    return is_number(x) ? 0 : -1;
}

/* longest_sample(samples): the place of the first sample with the longest lists and tuples; -1 where there
 * is something else in one. */
static PyObject *longest_sample(PyObject *Py_UNUSED(module), PyObject *samples) {
    if (!PyList_Check(samples)) {
        return PyErr_Format(PyExc_TypeError, "longest_sample takes a list of samples");
    }
    Py_ssize_t longest = -1, most = -1;
    for (Py_ssize_t k = 0; k < PyList_Size(samples); k++) {
        PyObject *sample = PyList_GetItem(samples, k);
        Py_ssize_t size = PyTuple_CheckExact(sample) ? 0 : -1;
        for (Py_ssize_t i = 0; size >= 0 && i < PyTuple_Size(sample); i++) {
            Py_ssize_t length = length_of(PyTuple_GetItem(sample, i));
            size = length < 0 ? -1 : size + length;
        }
        if (size < 0) {
            longest = -1;
            break;
        }
        if (size > most) {
            most = size;
            longest = k;
        }
    }
    return PyLong_FromSsize_t(longest);
}

typedef struct {
    const int64_t *bounds; /* of each memory: its first byte, and the first after it */
    Py_ssize_t count;
    PyTypeObject *array_type;
    int depth;
} Memory;

enum { NOTHING = 0, SOMETHING = 1, CANNOT_TELL = 2 };

static int look_into_array(const Memory *m, PyObject *array) {
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear(); /* a type that has no letter */
        return CANNOT_TELL;
    }
    int64_t low = (int64_t)(intptr_t)view.buf, high = low + (int64_t)view.itemsize;
    int found = view.format == NULL || strchr(view.format, 'O') != NULL ? CANNOT_TELL : NOTHING;
    for (int i = 0; i < view.ndim; i++) {
        int64_t extent = (int64_t)(view.shape[i] - 1) * (int64_t)view.strides[i];
        low += extent < 0 ? extent : 0;
        high += extent > 0 ? extent : 0;
    }
    for (Py_ssize_t k = 0; k < m->count && found == NOTHING && view.len > 0; k++) {
        found = low < m->bounds[2 * k + 1] && m->bounds[2 * k] < high ? SOMETHING : NOTHING;
    }
    PyBuffer_Release(&view);
    return found;
}

static int look_into(Memory *m, PyObject *x) {
    if (is_number(x) || PyUnicode_CheckExact(x)) {
        return NOTHING;
    }
    if (Py_TYPE(x) == m->array_type) {
        return look_into_array(m, x);
    }
    int is_list = PyList_CheckExact(x), found = NOTHING;
    if ((!is_list && !PyTuple_CheckExact(x)) || m->depth >= 100) {
        return CANNOT_TELL;
    }
    Py_ssize_t count = is_list ? PyList_Size(x) : PyTuple_Size(x);
    m->depth++;
    for (Py_ssize_t k = 0; k < count && found == NOTHING; k++) {
        found = look_into(m, is_list ? PyList_GetItem(x, k) : PyTuple_GetItem(x, k));
    }
    m->depth--;
    return found;
}

/* holds_memory(things, bounds, array): whether something in a list may have memory between two of the
 * bounds, a pair for each; None where it cannot be told here. `array` is numpy's ndarray. */
static PyObject *holds_memory(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *things, *bounds, *array;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "O!OO!:holds_memory", &PyList_Type, &things, &bounds, &PyType_Type, &array) ||
        get_buffer(bounds, &view, "q", 0, 0) < 0) {
        return NULL;
    }
    Memory m = {view.buf, view.len / (Py_ssize_t)(2 * sizeof(int64_t)), (PyTypeObject *)array, 0};
    int found = look_into(&m, things);
    PyBuffer_Release(&view);
    return Py_NewRef(found == CANNOT_TELL ? Py_None : found == SOMETHING ? Py_True : Py_False);
}

PyMethodDef sample_functions[] = {
    {"array_address", array_address, METH_O, NULL},
    {"holds_memory", holds_memory, METH_VARARGS, NULL},
    {"longest_sample", longest_sample, METH_O, NULL},
    {"sample_integers", sample_integers, METH_VARARGS, NULL},
    {"sample_shapes", sample_shapes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
