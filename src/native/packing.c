/* Packing the samples of training, many at a time; see compiler/training/packing.py.
 *
 * In: samples that are lists of integers, and the kinds of samples that are known. Out: for each sample of
 * such a kind a row of numbers and a row of addresses, for machine code. The others are left to Python. No
 * Python code runs here.
 */
#include "integers.h"
#include "samples.h"

#define EXACT ((int64_t)1 << 53) /* integers up to here are floats without rounding */
#define UNKNOWN (-1)             /* the fit of a sample that was not looked at; see packing.py */

enum { K_PRIVATE, K_GATHERS, K_NUMERIC, K_BUFFERS };

/* Addresses side by side in a row that samples of a kind do not select. */
typedef struct {
    int64_t first, count;
} Gap;

/* A gather whose choice goes to a place of the row: one of some candidates, by the integer of a node. */
typedef struct {
    int64_t index, count, start, place;
} Pick;

/* What samples of one shape and path run on; opened when it is needed. */
typedef struct {
    PyObject *given; /* a tuple: its Decider, where its numbers and gathers go, integers that are numbers, its fit */
    int is_open;
    const Decider *decider;
    Py_buffer views[K_BUFFERS];
    int view_count;
    int64_t fit;
    Buffer gaps;
    int is_thinned; /* only some gathers go to the row: these are the picks */
    Buffer picks;
} Kind;

enum { P_WHICH, P_SHAPES, P_OPEN, P_CHOICE, P_KEPT, P_STARTS, P_NUMBERS, P_OWN, P_GATHERED, P_FITS, P_ROWS, P_BUFFERS };

typedef struct {
    PyObject *samples;
    Py_buffer views[P_BUFFERS];
    int view_count;
    int is_single; /* the rows of numbers are float32 */
    Py_ssize_t width, choices, used, rows; /* the lengths of rows, and how many there are */
    Py_ssize_t row_bytes;                  /* of numbers */
    char *open;                            /* a row of numbers with nothing of a sample's */
    Shapes shapes;
    Kind *kinds;
    Py_ssize_t kind_count;
    Py_ssize_t *starts; /* the first kind of each shape, and the end */
    int64_t *sizes;     /* how many integers the samples of each shape have */
    int64_t *lengths;   /* of one sample */
    Buffer integers;    /* likewise */
} Packing;

#define WORDS(view) ((view).len / (Py_ssize_t)sizeof(int64_t))

static int wrong(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

static int are_below(const Py_buffer *view, Py_ssize_t end) {
    const int64_t *numbers = view->buf;
    Py_ssize_t k = 0, count = WORDS(*view);
    for (; k < count && numbers[k] >= 0 && numbers[k] < end; k++) {
    }
    return k == count;
}

/* What is left of the row of addresses between those selected, whose places must increase; and the picks, if not
 * every gather has a place. */
static int find_places(Kind *kind, Py_ssize_t choices) {
    const int64_t *places = kind->views[K_GATHERS].buf;
    const GatherTable *gathers = kind->decider->views[D_GATHERS].buf;
    Py_ssize_t count = WORDS(kind->views[K_GATHERS]);
    int64_t next = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        kind->is_thinned = kind->is_thinned || places[k] < 0;
    }
    for (Py_ssize_t k = 0; k <= count; k++) {
        int64_t place = k < count ? places[k] : choices;
        if (place < 0) {
            continue;
        }
        if (place < next || place > choices - (k < count)) {
            return wrong("a kind does not fit the rows");
        }
        if (kind->is_thinned && k < count) {
            Pick pick = {gathers[k].index, gathers[k].count, gathers[k].start, place};
            if (APPEND(kind->picks, Pick, pick) < 0) {
                return -1;
            }
        }
        Gap gap = {next, place - next};
        if (gap.count > 0 && APPEND(kind->gaps, Gap, gap) < 0) {
            return -1;
        }
        next = place + 1;
    }
    return 0;
}

static int open_kind(const Packing *p, Kind *kind) {
    PyObject *given = kind->given;
    kind->is_open = 1;
    if (!PyTuple_CheckExact(given) || PyTuple_Size(given) != 2 + K_BUFFERS ||
        Py_TYPE(PyTuple_GetItem(given, 0)) != DeciderType) {
        return wrong("a kind is a Decider, three arrays and an integer");
    }
    kind->decider = (Decider *)PyTuple_GetItem(given, 0);
    for (; kind->view_count < K_BUFFERS; kind->view_count++) {
        if (get_buffer(PyTuple_GetItem(given, 1 + kind->view_count), &kind->views[kind->view_count], "q", 0, 0) < 0) {
            return -1;
        }
    }
    kind->fit = PyLong_AsLongLong(PyTuple_GetItem(given, 1 + K_BUFFERS));
    if (kind->fit == -1 && PyErr_Occurred()) {
        return -1;
    }
    const Decider *d = kind->decider;
    if (WORDS(kind->views[K_PRIVATE]) != d->arguments + d->numbers || WORDS(kind->views[K_GATHERS]) != d->gathers ||
        !are_below(&kind->views[K_PRIVATE], p->width) || !are_below(&kind->views[K_NUMERIC], d->arguments)) {
        return wrong("a kind does not fit the rows");
    }
    return find_places(kind, p->choices);
}

/* What the gathers of a kind select, in a row; KNOWN or ANOTHER_PATH. */
static int select_row(const Kind *kind, int64_t *row) {
    const Decider *d = kind->decider;
    if (!kind->is_thinned) {
        return select_into(d, row, kind->views[K_GATHERS].buf);
    }
    const int64_t *candidates = d->views[D_CANDIDATES].buf;
    for (Py_ssize_t k = 0; k < COUNT(kind->picks, Pick); k++) {
        const Pick *pick = &ITEM(kind->picks, Pick, k);
        int64_t index = d->values[pick->index];
        if (!wrap(&index, pick->count) || candidates[pick->start + index] < 0) {
            return ANOTHER_PATH;
        }
        row[pick->place] = candidates[pick->start + index];
    }
    return KNOWN;
}

/* Whether integers are floats without rounding, where they are used as numbers. */
static int are_exact(const Kind *kind, const int64_t *integers) {
    const int64_t *numeric = kind->views[K_NUMERIC].buf;
    for (Py_ssize_t k = 0; k < WORDS(kind->views[K_NUMERIC]); k++) {
        if (integers[numeric[k]] < -EXACT || integers[numeric[k]] > EXACT) {
            return 0;
        }
    }
    return 1;
}

static void put(const Packing *p, char *row, int64_t place, double x) {
    if (p->is_single) {
        ((float *)(void *)row)[place] = (float)x;
    } else {
        ((double *)(void *)row)[place] = x;
    }
}

static void write_row(const Packing *p, const Kind *kind, const int64_t *integers, Py_ssize_t row) {
    const Decider *d = kind->decider;
    const int64_t *places = kind->views[K_PRIVATE].buf, *choice = p->views[P_CHOICE].buf;
    int64_t *gathered = (int64_t *)p->views[P_GATHERED].buf + row * p->choices;
    char *own = (char *)p->views[P_OWN].buf + row * p->row_bytes;
    memcpy(own, p->open, (size_t)p->row_bytes);
    for (Py_ssize_t k = 0; k < d->arguments; k++) {
        put(p, own, places[k], (double)integers[k]);
    }
    for (Py_ssize_t k = 0; k < d->numbers; k++) {
        put(p, own, places[d->arguments + k], d->computed[k]);
    }
    for (Py_ssize_t k = 0; k < COUNT(kind->gaps, Gap); k++) {
        const Gap *gap = &ITEM(kind->gaps, Gap, k);
        memcpy(gathered + gap->first, choice + gap->first, (size_t)gap->count * sizeof *choice);
    }
}

/* The integers of a sample that was read before; 0 where they were not kept, -1: an error. */
static int recall_sample(Packing *p, int64_t place, Py_ssize_t *shape) {
    Py_ssize_t count = p->views[P_KEPT].len / (Py_ssize_t)sizeof(int32_t);
    int64_t start = place < WORDS(p->views[P_STARTS]) ? ((const int64_t *)p->views[P_STARTS].buf)[place] : -1;
    if (start < 0) {
        return 0;
    }
    const int32_t *from = (const int32_t *)p->views[P_KEPT].buf + (start < count ? start : 0);
    if (start >= count || from[0] < 0 || from[0] >= WORDS(p->views[P_NUMBERS])) {
        return wrong("what was kept of a sample is not there");
    }
    *shape = (Py_ssize_t)((const int64_t *)p->views[P_NUMBERS].buf)[from[0]];
    if (*shape < 0) {
        return 1;
    }
    if (*shape >= p->shapes.count || p->sizes[*shape] > count - start - 1) {
        return wrong("what was kept of a sample is not there");
    }
    size_t bytes = (size_t)p->sizes[*shape] * sizeof(int64_t);
    p->integers.size = 0;
    if (bytes > p->integers.capacity && grow(&p->integers, bytes) < 0) {
        return -1;
    }
    for (int64_t k = 0; k < p->sizes[*shape]; k++) {
        ITEM(p->integers, int64_t, k) = from[1 + k];
    }
    p->integers.size = bytes;
    return 1;
}

/* Pack a sample, if it is of a known kind; -1: an error. */
static int pack_one(Packing *p, int64_t place) {
    Py_ssize_t shape = -1;
    if (place >= WORDS(p->views[P_FITS])) {
        return PyList_GetItem(p->samples, (Py_ssize_t)place) == NULL ? -1 : wrong("there is a sample without a fit");
    }
    int fits = recall_sample(p, place, &shape);
    if (fits == 0) {
        PyObject *sample = PyList_GetItem(p->samples, (Py_ssize_t)place);
        fits = sample == NULL ? -1 : read_sample(sample, p->shapes.lists, p->lengths, &p->integers);
        shape = fits > 0 ? find_shape(&p->shapes, p->lengths) : -1;
    }
    if (fits < 0 || shape < 0) {
        return fits < 0 ? -1 : 0;
    }
    const int64_t *integers = (const int64_t *)p->integers.bytes;
    for (Py_ssize_t k = p->starts[shape]; k < p->starts[shape + 1]; k++) {
        Kind *kind = &p->kinds[k];
        if (!kind->is_open && open_kind(p, kind) < 0) {
            return -1;
        }
        if (kind->decider->arguments != COUNT(p->integers, int64_t)) {
            return wrong("a kind has another number of integers than its shape");
        }
        int found = decide_numbers(kind->decider, integers);
        if (found == BEYOND_BITS || found == UNDECIDED) {
            return found == UNDECIDED ? -1 : 0;
        }
        if (found == KNOWN && are_exact(kind, integers)) {
            if (p->used >= p->rows) {
                return wrong("there are not enough rows");
            }
            int64_t *gathered = (int64_t *)p->views[P_GATHERED].buf + p->used * p->choices;
            if (select_row(kind, gathered) != KNOWN) {
                continue;
            }
            write_row(p, kind, integers, p->used);
            ((int64_t *)p->views[P_FITS].buf)[place] = kind->fit;
            ((int64_t *)p->views[P_ROWS].buf)[place] = p->used++;
            return 0;
        }
    }
    return 0;
}

/* The kinds of each shape; -1: an error. */
static int list_kinds(Packing *p, PyObject *kinds) {
    Py_ssize_t shapes = PyList_Size(kinds), total = 0;
    const int64_t *rows = p->views[P_SHAPES].buf;
    if (shapes == 0 || WORDS(p->views[P_SHAPES]) % shapes || WORDS(p->views[P_SHAPES]) == 0) {
        return wrong("the shapes do not fit the kinds");
    }
    p->shapes.lists = WORDS(p->views[P_SHAPES]) / shapes;
    for (Py_ssize_t s = 0; s < shapes; s++) {
        if (!PyList_CheckExact(PyList_GetItem(kinds, s))) {
            return wrong("the kinds of a shape are a list");
        }
        total += PyList_Size(PyList_GetItem(kinds, s));
    }
    p->starts = PyMem_Calloc((size_t)shapes + 1, sizeof *p->starts);
    p->kinds = PyMem_Calloc((size_t)total + 1, sizeof *p->kinds);
    p->lengths = PyMem_Calloc((size_t)p->shapes.lists, sizeof *p->lengths);
    p->sizes = PyMem_Calloc((size_t)shapes, sizeof *p->sizes);
    if (p->starts == NULL || p->kinds == NULL || p->lengths == NULL || p->sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t s = 0; s < shapes; s++) {
        PyObject *mine = PyList_GetItem(kinds, s);
        for (Py_ssize_t k = 0; k < PyList_Size(mine) && p->kind_count < total; k++) {
            p->kinds[p->kind_count++].given = Py_NewRef(PyList_GetItem(mine, k));
        }
        p->starts[s + 1] = p->kind_count;
        for (Py_ssize_t k = 0; k < p->shapes.lists; k++) {
            int64_t length = rows[s * p->shapes.lists + k];
            if (length < 0 || length > INT32_MAX) {
                return wrong("the shapes do not fit the kinds");
            }
            p->sizes[s] += length;
        }
        if (add_shape(&p->shapes, rows + s * p->shapes.lists) < 0) {
            return -1;
        }
    }
    return 0;
}

static int measure_rows(Packing *p) {
    const double *open = p->views[P_OPEN].buf;
    p->width = p->views[P_OPEN].len / (Py_ssize_t)sizeof(double);
    p->row_bytes = p->width * (Py_ssize_t)(p->is_single ? sizeof(float) : sizeof(double));
    p->choices = WORDS(p->views[P_CHOICE]);
    if (p->choices == 0 || WORDS(p->views[P_FITS]) != WORDS(p->views[P_ROWS])) {
        return wrong("the rows do not fit each other");
    }
    p->rows = WORDS(p->views[P_GATHERED]) / p->choices;
    if (p->used < 0 || p->views[P_OWN].len != p->rows * p->row_bytes) {
        return wrong("the rows do not fit each other");
    }
    p->open = PyMem_Malloc((size_t)p->row_bytes + 1);
    if (p->open == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < p->width; k++) {
        put(p, p->open, k, open[k]);
    }
    return 0;
}

static void free_packing(Packing *p) {
    for (Py_ssize_t k = 0; k < p->kind_count; k++) {
        for (int v = 0; v < p->kinds[k].view_count; v++) {
            PyBuffer_Release(&p->kinds[k].views[v]);
        }
        PyMem_Free(p->kinds[k].gaps.bytes);
        PyMem_Free(p->kinds[k].picks.bytes);
        Py_XDECREF(p->kinds[k].given);
    }
    for (int k = 0; k < p->view_count; k++) {
        PyBuffer_Release(&p->views[k]);
    }
    free_shapes(&p->shapes);
    PyMem_Free(p->kinds);
    PyMem_Free(p->starts);
    PyMem_Free(p->sizes);
    PyMem_Free(p->lengths);
    PyMem_Free(p->open);
    PyMem_Free(p->integers.bytes);
}

/* Fetch what a sample soon to come is read by: the first of its lists, whose tuple was fetched before. */
static void fetch_ahead(const Packing *p, int64_t soon, int64_t sooner) {
    Py_ssize_t count = PyList_Size(p->samples);
    if (soon >= 0 && soon < count) {
        PREFETCH(PyList_GetItem(p->samples, (Py_ssize_t)soon));
    }
    PyObject *sample = sooner >= 0 && sooner < count ? PyList_GetItem(p->samples, (Py_ssize_t)sooner) : NULL;
    if (sample != NULL && PyTuple_Check(sample) && PyTuple_Size(sample) > 0) {
        PREFETCH(PyTuple_GetItem(sample, 0));
    }
}

static int pack_all(Packing *p) {
    const int64_t *which = p->views[P_WHICH].buf, *fits = p->views[P_FITS].buf;
    Py_ssize_t count = WORDS(p->views[P_WHICH]);
    int read_before = p->views[P_KEPT].len > 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!read_before) {
            fetch_ahead(p, k + 16 < count ? which[k + 16] : -1, k + 8 < count ? which[k + 8] : -1);
        }
        if (which[k] < 0) {
            return wrong("there is no such sample");
        }
        if (which[k] < WORDS(p->views[P_FITS]) && fits[which[k]] != UNKNOWN) {
            continue;
        }
        if (pack_one(p, which[k]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* pack_samples(samples, kinds, used, which, shapes, open, choice, kept, starts, numbers, own, gathered, fits, rows):
 * how many rows are used now. Those of `which` that have no fit yet, and are of a known kind, get one, and a row.
 * `kinds`: a list for each of the `shapes`; see Kind. A gather whose place is -1 selects the neighbour of what the one
 * before it selects, and has none in the row. `kept` and `starts`: what sample_shapes read of them, and
 * `numbers` which of the `shapes` those that it found are, -1 for none. `own` and `gathered` are the rows, `open` and
 * `choice` what they have where a sample has nothing. */
static PyObject *pack_samples(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *kinds, *given[P_BUFFERS], *result = NULL;
    Packing p = {0};
    if (!PyArg_ParseTuple(args, "O!O!nOOOOOOOOOOO:pack_samples", &PyList_Type, &p.samples, &PyList_Type, &kinds,
                          &p.used, &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &given[6],
                          &given[7], &given[8], &given[9], &given[10])) {
        return NULL;
    }
    int failed = 0;
    while (p.view_count < P_BUFFERS && !failed) {
        int k = p.view_count;
        const char *format = k == P_OPEN ? "d" : k == P_KEPT ? "i" : "q";
        if (k == P_OWN) {
            Py_buffer view;
            failed = PyObject_GetBuffer(given[k], &view, PyBUF_FORMAT) < 0;
            p.is_single = !failed && view.format != NULL && strcmp(view.format, "f") == 0;
            if (!failed) {
                PyBuffer_Release(&view);
            }
            format = p.is_single ? "f" : "d";
        }
        failed = failed || get_buffer(given[k], &p.views[k], format, 0, k >= P_OWN) < 0;
        p.view_count += !failed;
    }
    if (!failed && measure_rows(&p) == 0 && list_kinds(&p, kinds) == 0 && pack_all(&p) == 0) {
        result = PyLong_FromSsize_t(p.used);
    }
    free_packing(&p);
    return result;
}

PyMethodDef packing_functions[] = {
    {"pack_samples", pack_samples, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
