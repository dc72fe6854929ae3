/* Packing the samples of training, many at a time; see compiler/training/samples.py.
 *
 * sample_integers reads samples that consist of lists of integers. select_rows looks up in tables what
 * these integers select.
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

/* What an integer in one place selects: for each from `first` on a row of `width` addresses, which go to
 * these places of a sample's row. */
typedef struct {
    int64_t first, count, width, positions, addresses; /* the last two: where they begin */
} Table;

enum { S_OUT, S_DEFAULTS, S_IDS, S_TABLES, S_POSITIONS, S_ADDRESSES, S_BUFFERS };

static int tables_fit(const Py_buffer *views, const Py_ssize_t *sizes, Py_ssize_t columns) {
    const Table *tables = views[S_TABLES].buf;
    const int64_t *positions = views[S_POSITIONS].buf;
    for (Py_ssize_t k = 0; k < sizes[S_POSITIONS]; k++) {
        if (positions[k] < 0 || positions[k] >= sizes[S_DEFAULTS]) {
            return 0;
        }
    }
    for (Py_ssize_t k = 0; k < columns; k++) {
        const Table *t = &tables[k];
        if (t->count < 0 || t->width < 0 || t->positions < 0 || t->positions > sizes[S_POSITIONS] - t->width ||
            t->addresses < 0 || t->addresses > sizes[S_ADDRESSES] ||
            (t->width > 0 && t->count > (sizes[S_ADDRESSES] - t->addresses) / t->width)) {
            return 0;
        }
    }
    return 1;
}

/* select_rows(out, defaults, ids, tables, positions, addresses): a row of addresses for each sample. `ids` is
 * a row of integers for each, with one table for each of them. Where there is no such integer (the least
 * that there is), and where no table says anything, it is as in `defaults`. */
static PyObject *select_rows(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *given[S_BUFFERS], *result = NULL;
    Py_buffer views[S_BUFFERS];
    Py_ssize_t sizes[S_BUFFERS];
    int opened = 0;
    if (!PyArg_ParseTuple(args, "OOOOOO:select_rows", &given[0], &given[1], &given[2], &given[3], &given[4],
                          &given[5])) {
        return NULL;
    }
    while (opened < S_BUFFERS && get_buffer(given[opened], &views[opened], "q", 0, opened == S_OUT) == 0) {
        sizes[opened] = views[opened].len / (Py_ssize_t)sizeof(int64_t);
        opened++;
    }
    if (opened == S_BUFFERS) {
        Py_ssize_t row = sizes[S_DEFAULTS], columns = sizes[S_TABLES] / 5;
        Py_ssize_t count = columns ? sizes[S_IDS] / columns : 0;
        int64_t *out = views[S_OUT].buf;
        const int64_t *id = views[S_IDS].buf;
        int fits = sizes[S_OUT] == count * row && tables_fit(views, sizes, columns);
        for (Py_ssize_t k = 0; k < count && fits; k++, out += row) {
            memcpy(out, views[S_DEFAULTS].buf, (size_t)row * sizeof *out);
            const Table *t = views[S_TABLES].buf;
            for (Py_ssize_t c = 0; c < columns && fits; c++, t++, id++) {
                if (*id == INT64_MIN || t->width == 0) {
                    continue;
                }
                fits = *id >= t->first && (uint64_t)*id - (uint64_t)t->first < (uint64_t)t->count;
                const int64_t *to = (const int64_t *)views[S_POSITIONS].buf + t->positions;
                const int64_t *from = (const int64_t *)views[S_ADDRESSES].buf + t->addresses;
                for (int64_t j = 0; j < t->width && fits; j++) {
                    out[to[j]] = from[(*id - t->first) * t->width + j];
                }
            }
        }
        if (fits) {
            result = Py_NewRef(Py_None);
        } else {
            PyErr_SetString(PyExc_ValueError, "the tables do not fit the samples or each other");
        }
    }
    while (opened-- > 0) {
        PyBuffer_Release(&views[opened]);
    }
    return result;
}

PyMethodDef sample_functions[] = {
    {"sample_integers", sample_integers, METH_VARARGS, NULL},
    {"select_rows", select_rows, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
