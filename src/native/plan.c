/* The fast path of a compiled call, for arguments whose structure is known; see
 * compiler/runtime/fast_path.py.
 *
 * A Plan copies the numbers of a call into the arenas, runs machine code forward and backward, or a tape,
 * and returns the gradient in the structure of the first argument. No Python code (of arrays or of the
 * garbage collector) runs between reading the first number and having the gradient in memory of its own,
 * but for the rows of the op table that a tape leaves to Python.
 */
#include "call.h"
#include "integers.h"
#include "targets.h"
#include "tape.h"
#include <float.h>

/* What a Plan is given: the arenas of the machine code, all float64 or all float32; what gathers select;
 * trip counts; which gathers a call sets; and where in the arena of its own numbers its integers go, and
 * the numbers computed from them (all of them, or the array is empty). */
enum {
    P_SHARED,
    P_OWN,
    P_SHARED_ADJOINTS,
    P_ADJOINTS,
    P_SEEDS,
    P_GATHERS,
    P_COUNTS,
    P_PLACES,
    P_INTEGERS,
    P_ARENAS
};

typedef struct {
    PyObject_HEAD
    PyObject *template; /* the first argument's tree, with the name of a field of `record` in the place of
                           each array, and its position among the numbers in the place of each float; None:
                           only the value is wanted */
    PyObject *record;   /* a numpy dtype: the gradient, one field for each array; None: there is no array */
    PyObject *make;     /* numpy.ndarray */
    PyObject *owner;    /* of the machine code; or the tape, whose inputs, all of them, are what is shared */
    PyObject *decider;  /* a Decider: from the integers of a call to the addresses that gathers select */
    Py_buffer views[P_ARENAS];
    int view_count;
    int is_float;              /* float32 in the arenas */
    int in_place;              /* the machine code writes into what becomes the gradient */
    Py_ssize_t size;           /* how many numbers the first argument holds */
    Py_ssize_t own_size;       /* and the others */
    Py_ssize_t first;          /* how many floats and arrays the first argument holds */
    Py_ssize_t entries;        /* and all of them */
    Buffer extents;            /* of each array: how many dimensions, and each of these; of a float: -1 */
    uintptr_t forward, backward; /* 0: a tape */
    const void *root;
    Py_ssize_t instruction; /* of a tape: the value */
    Buffer outputs;         /* int64_t: where the numbers are that are returned, in the template's tree; or empty */
    Buffer targets;         /* int64_t: where each of them goes in `fixed`; or empty: in their order */
    Buffer fixed;           /* double: what is returned of arrays, with something in the places of outputs */
    Buffer near;            /* int32_t: where the outputs are among the own numbers, or -1 - k: at k in what is
                               shared; or empty */
    int only_finite;        /* a tape that is for finite inputs only */
    int is_undecided;       /* the last forward pass of machine code gave something that is not finite, perhaps as a
                               comparison was near a tie */
    PyObject *captured;     /* a tuple: Values whose numbers come after those of the call's arguments */
    PyObject *extras;       /* a tree of positions that is returned beside the value, with a gradient; or None */
    Buffer extra_at;        /* int64_t: where the numbers are that go into it */
    Buffer extra_numbers;   /* double: and these, as the last forward pass left them */
    Buffer begins;          /* int64_t: where the numbers of each float and array after the first argument begin
                               among the own numbers; or empty: one after the other */
} Plan;

#define LINE 64
#define MOST_NUMBERS ((Py_ssize_t)1 << 40)

PyTypeObject *PlanType;

typedef double (*Forward)(void *, void *, void *, void *);
typedef float (*FloatForward)(void *, void *, void *, void *);
typedef double (*Backward)(void *, void *, void *, void *, void *, void *, void *);
typedef float (*FloatBackward)(void *, void *, void *, void *, void *, void *, void *);

/* The number at an address, or of an instruction. */
static double number_at(const Plan *p, int64_t at) {
    if (p->forward == 0) {
        return *tape_place((Tape *)p->owner, (Py_ssize_t)at);
    }
    int64_t shared = (int64_t)(p->views[P_SHARED].len / p->views[P_SHARED].itemsize);
    const void *arena = at < shared ? p->views[P_SHARED].buf : p->views[P_OWN].buf;
    at -= at < shared ? 0 : shared;
    return p->is_float ? ((const float *)arena)[at] : ((const double *)arena)[at];
}

/* Keep the numbers that are returned beside the value. */
static void read_extras(const Plan *p) {
    double *to = (double *)(void *)p->extra_numbers.bytes;
    for (Py_ssize_t k = 0; k < COUNT(p->extra_at, int64_t); k++) {
        to[k] = number_at(p, ITEM(p->extra_at, int64_t, k));
    }
}

/* Forward and backward, with the gradient by what is shared going into `to_shared`, if it is wanted;
 * whether all is finite. */
static int run_code(Plan *p, void *to_shared) {
    void *shared = p->views[P_SHARED].buf, *own = p->views[P_OWN].buf, *seeds = p->views[P_SEEDS].buf;
    void *to_own = p->views[P_ADJOINTS].buf, *gathers = p->views[P_GATHERS].buf;
    void *counts = p->views[P_COUNTS].buf;
    int finite = p->is_float ? isfinite(((FloatForward)p->forward)(shared, own, gathers, counts))
                             : isfinite(((Forward)p->forward)(shared, own, gathers, counts));
    p->is_undecided = !finite;
    if (!finite || to_shared == NULL) {
        return finite;
    }
    read_extras(p);
    return p->is_float
               ? isfinite(((FloatBackward)p->backward)(shared, own, to_shared, to_own, seeds, gathers, counts))
               : isfinite(((Backward)p->backward)(shared, own, to_shared, to_own, seeds, gathers, counts));
}

/* The same on a tape; whether it answers the call, or -1: an error. */
static int run_on_tape(const Plan *p, double *to_shared) {
    Tape *t = (Tape *)p->owner;
    Py_ssize_t position;
    for (Py_ssize_t k = 0; p->only_finite && k < t->inputs; k++) {
        if (!isfinite(((const double *)p->views[P_SHARED].buf)[k])) {
            return 0;
        }
    }
    int status = run_tape(t, p->views[P_SHARED].buf, &position);
    if (status != 0 || to_shared == NULL) {
        return status < 0 ? -1 : status == 0;
    }
    read_extras(p);
    return sweep_tape(t, p->instruction, 1.0, to_shared) < 0 ? -1 : 1;
}

/* Whether a number is finite, or infinite, in both types: an operation may hide it later where it is not. */
static int fits_float(double number) {
    return fabs(number) <= FLT_MAX || !isfinite(number);
}

/* Whether all numbers fit. */
static int narrow(float *restrict to, const double *restrict from, Py_ssize_t count) {
    int fits = 1;
    for (Py_ssize_t k = 0; k < count; k++) {
        to[k] = (float)from[k];
        fits &= fits_float(from[k]);
    }
    return fits;
}

static void widen(double *restrict to, const float *restrict from, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++) {
        to[k] = from[k];
    }
}

/* Copy the numbers of an array, float64 or float32, into an arena from `at` on; whether they fit. */
static int copy_numbers(const Plan *p, void *arena, Py_ssize_t at, const Py_buffer *view) {
    Py_ssize_t count = view->len / view->itemsize;
    int from_float = view->itemsize == sizeof(float);
    if (from_float == p->is_float) {
        memcpy((char *)arena + at * view->itemsize, view->buf, (size_t)view->len);
    } else if (from_float) {
        widen((double *)arena + at, view->buf, count);
    } else {
        return narrow((float *)arena + at, view->buf, count);
    }
    return 1;
}

static void copy_number(const Plan *p, void *arena, Py_ssize_t at, double number) {
    if (p->is_float) {
        ((float *)arena)[at] = (float)number;
    } else {
        ((double *)arena)[at] = number;
    }
}

/* Copy what an array of a certain shape holds. 0 where it is no such array; -1: an error. */
static int read_array(const Plan *p, void *arena, Py_ssize_t at, PyObject *array, const Py_ssize_t *extent) {
    Py_buffer view;
    int fits = open_array(array, &view);
    if (fits <= 0) {
        return fits;
    }
    fits = holds_floats(&view) && view.ndim == *extent;
    for (Py_ssize_t j = 0; j < *extent && fits; j++) {
        fits = view.shape[j] == extent[1 + j];
    }
    if (fits) {
        fits = copy_numbers(p, arena, at, &view);
    }
    PyBuffer_Release(&view);
    return fits;
}

/* Copy the numbers of a call into the arenas. 0 where a type or shape differs from the Plan's, or a number is
 * beyond float32; -1: an error. */
static int read_numbers(const Plan *p, const Passed *call) {
    const Py_ssize_t *extent = (const Py_ssize_t *)p->extents.bytes;
    void *arena = p->views[P_SHARED].buf;
    Py_ssize_t at = 0;
    int fits = COUNT(call->entries, Entry) == p->entries;
    for (Py_ssize_t k = 0; k < p->entries && fits > 0; k++) {
        const Entry *entry = &ITEM(call->entries, Entry, k);
        if (k == p->first) {
            arena = p->views[P_OWN].buf;
            at = 0;
        }
        if (k >= p->first && p->begins.size > 0) {
            at = (Py_ssize_t)ITEM(p->begins, int64_t, k - p->first);
        }
        Py_ssize_t dimensions = *extent, items = 1;
        if (dimensions < 0 || entry->array == NULL) {
            fits = dimensions < 0 && entry->array == NULL && (!p->is_float || fits_float(entry->number));
            if (fits) {
                copy_number(p, arena, at, entry->number);
            }
        } else {
            fits = read_array(p, arena, at, entry->array, extent);
            for (Py_ssize_t j = 0; j < dimensions; j++) {
                items *= extent[1 + j];
            }
        }
        extent += 1 + (dimensions > 0 ? dimensions : 0);
        at += items;
    }
    return fits;
}

/* Copy the numbers of the Values that the function reaches by itself. */
static void read_captured(const Plan *p) {
    for (Py_ssize_t k = 0; k < PyTuple_Size(p->captured); k++) {
        const Node *v = (const Node *)PyTuple_GetItem(p->captured, k);
        copy_number(p, p->views[P_OWN].buf, p->own_size + k, v->data);
    }
}

#define EXACT ((int64_t)1 << 53) /* integers up to here are floats without rounding */

/* Copy the integers of a call into the arena of its own numbers, if they go there, and the numbers that
 * were computed from them. 0 where one is too large for a float. */
static int read_ids(const Plan *p, const Passed *call) {
    const int64_t *to = p->views[P_INTEGERS].buf;
    const Decider *d = (Decider *)p->decider;
    Py_ssize_t integers = COUNT(call->integers, int64_t), computed = d->numbers;
    Py_ssize_t count = p->views[P_INTEGERS].len / (Py_ssize_t)sizeof *to;
    if (count == 0) {
        return 1;
    }
    if (count != integers + computed || COUNT(call->large, Large) > 0) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < integers; k++) {
        int64_t integer = ITEM(call->integers, int64_t, k);
        if (integer < -EXACT || integer > EXACT) {
            return 0;
        }
        copy_number(p, p->views[P_OWN].buf, to[k], (double)integer);
    }
    for (Py_ssize_t k = 0; k < computed; k++) {
        if (p->is_float && !fits_float(d->computed[k])) {
            return 0;
        }
        copy_number(p, p->views[P_OWN].buf, to[integers + k], d->computed[k]);
    }
    return 1;
}

/* Memory for the gradient by the parameters: of its own, or what is there for few numbers of which no array is
 * made. */
typedef struct {
    PyObject *bytes; /* a bytearray, or NULL */
    Py_ssize_t offset;
    char *numbers;
    char few[1024];
} Memory;

/* Find it; where machine code writes the gradient right there, with what else is shared, it begins on a cache line
 * and another comes after it. -1: an error. */
static int find_memory(const Plan *p, Memory *m) {
    Py_ssize_t size = p->in_place ? p->views[P_SHARED].len + 2 * LINE : p->size * (Py_ssize_t)sizeof(double);
    char *at = p->record == Py_None && size <= (Py_ssize_t)sizeof m->few ? m->few : new_array(&m->bytes, size, 1);
    m->offset = p->in_place ? (Py_ssize_t)(-(uintptr_t)at % LINE) : 0;
    m->numbers = at != NULL ? at + m->offset : NULL;
    return at != NULL ? 0 : -1;
}

static void copy_gradient(const Plan *p, double *to) {
    const void *from = p->views[P_SHARED_ADJOINTS].buf;
    if (p->is_float) {
        widen(to, from, p->size);
    } else {
        memcpy(to, from, (size_t)p->size * sizeof *to);
    }
}

/* The gradient: where it begins, how many numbers, and its arrays. */
typedef struct {
    const double *numbers;
    Py_ssize_t size;
    PyObject *record;
} Gradient;

static PyObject *fill_template(PyObject *template, const Gradient *gradient);

static PyObject *fill_dict(PyObject *template, const Gradient *gradient) {
    PyObject *result = PyDict_New(), *key, *item;
    Py_ssize_t at = 0;
    while (result != NULL && PyDict_Next(template, &at, &key, &item)) {
        Py_INCREF(key); /* keys may run Python code */
        Py_INCREF(item);
        PyObject *filled = fill_template(item, gradient);
        if (filled == NULL || PyDict_SetItem(result, key, filled) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(filled);
        Py_DECREF(key);
        Py_DECREF(item);
    }
    return result;
}

static PyObject *fill_float(PyObject *position, const Gradient *gradient) {
    Py_ssize_t at = PyLong_AsSsize_t(position);
    if (at < 0 || at >= gradient->size) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "the gradient has no number %zd", at);
    }
    return PyFloat_FromDouble(gradient->numbers[at]);
}

/* A tree like the template, with fields of the record in the place of their names, and numbers in the
 * place of their positions. */
static PyObject *fill_template(PyObject *template, const Gradient *gradient) {
    int is_list = PyList_CheckExact(template);
    if (PyUnicode_Check(template)) {
        return PyObject_GetItem(gradient->record, template);
    }
    if (PyLong_CheckExact(template)) {
        return fill_float(template, gradient);
    }
    if (PyFloat_CheckExact(template)) { /* a number that is always the same */
        return Py_NewRef(template);
    }
    if (!is_list && !PyDict_CheckExact(template) && !PyTuple_CheckExact(template)) {
        return PyErr_Format(PyExc_TypeError, "a template is a tree of dicts, lists, tuples, names and positions");
    }
    if (Py_EnterRecursiveCall(" in a tree of gradients") != 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (PyDict_CheckExact(template)) {
        result = fill_dict(template, gradient);
    } else {
        Py_ssize_t count = is_list ? PyList_Size(template) : PyTuple_Size(template);
        result = is_list ? PyList_New(count) : PyTuple_New(count);
        for (Py_ssize_t k = 0; result != NULL && k < count; k++) {
            PyObject *item = PySequence_GetItem(template, k);
            PyObject *filled = item ? fill_template(item, gradient) : NULL;
            Py_XDECREF(item);
            if (filled == NULL) {
                Py_CLEAR(result);
            } else if (is_list) {
                PyList_SetItem(result, k, filled);
            } else {
                PyTuple_SetItem(result, k, filled);
            }
        }
    }
    Py_LeaveRecursiveCall();
    return result;
}

/* The value, in a pair with what is returned beside it, if anything is. */
static PyObject *value_of(const Plan *p, double number) {
    PyObject *value = PyFloat_FromDouble(number);
    if (value == NULL || p->extras == Py_None) {
        return value;
    }
    Gradient found = {(const double *)(const void *)p->extra_numbers.bytes, COUNT(p->extra_numbers, double), Py_None};
    PyObject *extras = fill_template(p->extras, &found);
    PyObject *pair = extras != NULL ? PyTuple_Pack(2, value, extras) : NULL;
    Py_DECREF(value);
    Py_XDECREF(extras);
    return pair;
}

/* The gradient as a numpy record; None where there is no array. */
static PyObject *record_of(const Plan *p, PyObject *bytes, Py_ssize_t offset) {
    if (p->record == Py_None) {
        return Py_NewRef(Py_None);
    }
    PyObject *at = PyLong_FromSsize_t(offset);
    PyObject *record = at != NULL ? PyObject_CallFunctionObjArgs(p->make, empty_tuple, p->record, bytes, at, NULL)
                                  : NULL;
    Py_XDECREF(at);
    return record;
}

/* A value and its gradient, in the structure of the first argument; the value is taken. `bytes` has the numbers
 * from the offset on, where there are arrays. */
static PyObject *answer_of(const Plan *p, PyObject *value, const void *numbers, PyObject *bytes, Py_ssize_t offset) {
    PyObject *record = value != NULL ? record_of(p, bytes, offset) : NULL, *filled = NULL, *result = NULL;
    if (record != NULL) {
        Gradient gradient = {numbers, p->size, record};
        filled = fill_template(p->template, &gradient);
    }
    if (filled != NULL) {
        result = PyTuple_Pack(2, value, filled);
    }
    Py_XDECREF(value);
    Py_XDECREF(record);
    Py_XDECREF(filled);
    return result;
}

PyObject *answer_of_mean(const Mean *mean) {
    const char *numbers = PyByteArray_AsString(mean->gradient);
    return answer_of((Plan *)mean->plan, PyFloat_FromDouble(mean->value), numbers, mean->gradient, 0);
}

/* The last gradient, divided by something, into a new row, or added to one. */
#define ADD_QUOTIENTS(from, operation)                                                                                 \
    for (Py_ssize_t k = 0; k < p->size; k++) {                                                                         \
        to[k] = is_new ? (from)[k] operation : to[k] + (from)[k] operation;                                            \
    }

static void add_gradient(const Plan *p, double *restrict to, double count, int is_new) {
    const double *restrict from = p->views[P_SHARED_ADJOINTS].buf;
    const float *restrict narrow_from = p->views[P_SHARED_ADJOINTS].buf;
    int exponent;
    double share = 1.0 / count;
    int exact = frexp(count, &exponent) == 0.5; /* a power of two: the same bits, without the division */
    if (p->is_float && exact) {
        ADD_QUOTIENTS(narrow_from, * share)
    } else if (p->is_float) {
        ADD_QUOTIENTS(narrow_from, / count)
    } else if (exact) {
        ADD_QUOTIENTS(from, * share)
    } else {
        ADD_QUOTIENTS(from, / count)
    }
}

/* Add a value and its gradient to a mean, or put them into the row of this call; -1: an error. */
static int add_to_mean(const Plan *p, Mean *mean, double number) {
    int is_new = mean->gradient == NULL;
    Py_ssize_t rows = mean->rows > 0 ? mean->rows : 1;
    if (is_new && new_array(&mean->gradient, p->size * rows, sizeof(double)) == NULL) {
        return -1;
    }
    double *gradient = (double *)(void *)PyByteArray_AsString(mean->gradient);
    if (mean->rows > 0) {
        ((double *)(void *)PyByteArray_AsString(mean->values))[mean->done] = number;
        copy_gradient(p, gradient + mean->done * p->size);
        return 0;
    }
    add_gradient(p, gradient, mean->count, is_new);
    mean->value += number / mean->count;
    return 0;
}

/* Whether what a Plan gives can be added to a mean; a row has no place for what is returned beside the value. */
static int fits_mean(const Plan *p, const Mean *mean) {
    int has_gradient = p->template != Py_None && p->outputs.size == 0;
    int has_room = mean->rows == 0 || (p->extras == Py_None && mean->done < mean->rows);
    Py_ssize_t size = p->size * (mean->rows > 0 ? mean->rows : 1) * (Py_ssize_t)sizeof(double);
    return has_gradient && has_room && (mean->gradient == NULL || PyByteArray_Size(mean->gradient) == size);
}

/* Let the gathers of machine code, or the operands of a tape, be what a Decider selected; -1: an error. */
static int set_selected(const Plan *p, const Decider *d) {
    const int64_t *places = p->views[P_PLACES].buf;
    int64_t *gathers = p->views[P_GATHERS].buf;
    int failed = 0;
    for (Py_ssize_t k = 0; k < d->gathers && !failed; k++) {
        if (p->forward == 0) {
            failed = point_tape((Tape *)p->owner, places[k], d->selected[k]);
        } else {
            gathers[places[k]] = d->selected[k];
        }
    }
    return failed ? -1 : 1;
}

/* Let the gathers of a call select what its integers say. 0 where that is not known; -1: an error. */
static int choose_gathers(const Plan *p, const Passed *call) {
    Decider *d = (Decider *)p->decider;
    if (COUNT(call->large, Large) != 0 || COUNT(call->integers, int64_t) != d->arguments) {
        return 0;
    }
    int found = decide(d, (const int64_t *)(const void *)call->integers.bytes);
    return found == KNOWN ? set_selected(p, d) : found == UNDECIDED ? -1 : 0;
}

static void copy_near(double *restrict to, const double *restrict shared, const double *restrict own,
                      const int32_t *restrict from, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++) {
        to[k] = from[k] < 0 ? shared[-1 - from[k]] : own[from[k]];
    }
}

/* All that the function returned, its arrays as fields of the record. */
static PyObject *outputs_of(const Plan *p) {
    Py_ssize_t count = COUNT(p->outputs, int64_t), size = p->fixed.size ? COUNT(p->fixed, double) : count;
    PyObject *bytes, *record = NULL, *result = NULL;
    double *numbers = new_array(&bytes, size, sizeof(double));
    if (numbers != NULL) {
        if (p->fixed.size != 0) {
            memcpy(numbers, p->fixed.bytes, p->fixed.size);
        }
        if (p->near.size != 0) {
            copy_near(numbers, p->views[P_SHARED].buf, p->views[P_OWN].buf,
                      (const int32_t *)(const void *)p->near.bytes, count);
        }
        for (Py_ssize_t k = 0; k < count && p->near.size == 0; k++) {
            int64_t to = p->targets.size ? ITEM(p->targets, int64_t, k) : k;
            numbers[to] = number_at(p, ITEM(p->outputs, int64_t, k));
        }
        record = p->record == Py_None ? Py_NewRef(Py_None)
                                      : PyObject_CallFunctionObjArgs(p->make, empty_tuple, p->record, bytes, NULL);
    }
    if (record != NULL) {
        Gradient found = {numbers, size, record};
        result = fill_template(p->template, &found);
    }
    Py_XDECREF(record);
    Py_XDECREF(bytes);
    return result;
}

/* Take the memory of `out`, if the gradient is arrays, and `out` those of the same shapes in the same tree; whether
 * it is. */
static int takes_gradient(const Plan *p, PyObject *out, Targets *targets) {
    int returns = p->template != Py_None && p->outputs.size == 0 && p->extras == Py_None;
    return returns && take_targets(targets, p->template, out, (const Py_ssize_t *)p->extents.bytes, p->first, p->make);
}

int plan_is_undecided(PyObject *plan) { return ((Plan *)plan)->is_undecided; }

int plan_runs_on(PyObject *plan, PyObject *tape) { return Py_TYPE(plan) == PlanType && ((Plan *)plan)->owner == tape; }

Py_ssize_t plan_first(PyObject *plan) { return ((Plan *)plan)->first; }

PyObject *run_plan(PyObject *plan, const Passed *call, PyObject *out, Mean *mean) {
    Plan *p = (Plan *)plan;
    Targets targets;
    if (mean != NULL && !fits_mean(p, mean)) {
        return Py_NewRef(Py_None);
    }
    int to_out = out != NULL && takes_gradient(p, out, &targets);
    int is_tape = p->forward == 0, has_outputs = p->outputs.size != 0;
    int only_value = p->template == Py_None || has_outputs, returns = !only_value && !to_out && mean == NULL;
    int in_place = p->in_place && returns;
    PyObject *result = NULL;
    p->is_undecided = 0;
    Memory gradient;
    gradient.bytes = NULL;
    int fine = choose_gathers(p, call);
    if (fine > 0) {
        fine = returns && find_memory(p, &gradient) < 0 ? -1 : read_ids(p, call);
    }
    if (fine > 0) {
        fine = read_numbers(p, call);
        read_captured(p);
    }
    if (fine > 0) {
        void *to_shared = only_value ? NULL
                          : in_place ? gradient.numbers : p->views[P_SHARED_ADJOINTS].buf;
        if (is_tape) {
            fine = run_on_tape(p, to_shared);
        } else {
            PyThreadState *state = PyEval_SaveThread();
            fine = run_code(p, to_shared);
            PyEval_RestoreThread(state);
        }
    }
    if (fine > 0) {
        double number = is_tape       ? *tape_place((Tape *)p->owner, p->instruction)
                        : p->is_float ? *(const float *)p->root
                                      : *(const double *)p->root;
        if (to_out) {
            write_targets(&targets, p->views[P_SHARED_ADJOINTS].buf, p->is_float);
        } else if (returns && !in_place) {
            copy_gradient(p, (void *)gradient.numbers);
        }
        fine = mean != NULL ? add_to_mean(p, mean, number) : 0;
        result = fine < 0      ? NULL
                 : has_outputs ? outputs_of(p)
                 : returns     ? answer_of(p, value_of(p, number), gradient.numbers, gradient.bytes, gradient.offset)
                               : PyFloat_FromDouble(number);
    } else if (fine == 0) {
        result = Py_NewRef(Py_None);
    }
    if (to_out) {
        release_targets(&targets);
    }
    Py_XDECREF(gradient.bytes);
    return result;
}

/* run(call, out=None): the value and its gradient, or the value alone, or None where something is not
 * finite, an array has another shape or type than those the Plan is for, or it is not known what these
 * integers select. Where the gradient is arrays and fits `out`, it goes there, and the value is all
 * that is returned. One at a time for all Plans with the same arenas: the machine code runs without the
 * GIL. */
static PyObject *plan_run(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count < 1 || count > 2 || Py_TYPE(given[0]) != PassedType) {
        return PyErr_Format(PyExc_TypeError, "a Plan runs what passed() gave");
    }
    return run_plan(self, (Passed *)given[0], count == 2 && given[1] != Py_None ? given[1] : NULL, NULL);
}

/* Note the shape of an array, or that there is a float; how many numbers that are, or -1. */
static Py_ssize_t note_shape(Plan *p, PyObject *shape) {
    Py_ssize_t dimensions = shape == Py_None ? -1 : PyTuple_Check(shape) ? PyTuple_Size(shape) : -2, items = 1;
    if (dimensions == -2) {
        PyErr_Format(PyExc_TypeError, "a shape is a tuple, or None for a float");
        return -1;
    }
    if (APPEND(p->extents, Py_ssize_t, dimensions) < 0) {
        return -1;
    }
    for (Py_ssize_t j = 0; j < dimensions; j++) {
        Py_ssize_t extent = PyLong_AsSsize_t(PyTuple_GetItem(shape, j));
        if (extent < 0 || (items > 0 && extent > MOST_NUMBERS / items)) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "no array has %zd as the extent of a dimension here", extent);
            }
            return -1;
        }
        if (APPEND(p->extents, Py_ssize_t, extent) < 0) {
            return -1;
        }
        items *= extent;
    }
    return items;
}

/* Note what the floats and arrays of a call are like, and how many numbers they hold. */
static int note_shapes(Plan *p, PyObject *shapes) {
    p->entries = PyTuple_Size(shapes);
    if (p->first < 0 || p->first > p->entries) {
        PyErr_Format(PyExc_ValueError, "the first argument does not hold %zd of %zd", p->first, p->entries);
        return -1;
    }
    for (Py_ssize_t k = 0; k < p->entries; k++) {
        Py_ssize_t items = note_shape(p, PyTuple_GetItem(shapes, k));
        if (items < 0) {
            return -1;
        }
        Py_ssize_t *total = k < p->first ? &p->size : &p->own_size;
        if (*total > MOST_NUMBERS) {
            PyErr_SetString(PyExc_ValueError, "these are more numbers than there can be");
            return -1;
        }
        *total += items;
    }
    return 0;
}

/* Whether a Decider selects as many addresses as there are gathers to set, all of them in the arenas. */
static int decider_fits(const Plan *p, Py_ssize_t size) {
    const Decider *d = (Decider *)p->decider;
    Py_ssize_t integers = p->views[P_INTEGERS].len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t count = d->views[D_CANDIDATES].len / (Py_ssize_t)sizeof(int64_t);
    const int64_t *candidates = d->views[D_CANDIDATES].buf;
    int fits = d->gathers == p->views[P_PLACES].len / (Py_ssize_t)sizeof(int64_t) &&
               (integers == 0 || integers == d->arguments + d->numbers);
    for (Py_ssize_t k = 0; k < count && fits; k++) {
        fits = candidates[k] < size;
    }
    return fits;
}

/* Whether the numbers of each float and array go into the arena of the own numbers. */
static int begins_fit(const Plan *p, Py_ssize_t own) {
    const Py_ssize_t *extent = (const Py_ssize_t *)p->extents.bytes;
    int fits = p->begins.size == 0 || (p->forward != 0 && COUNT(p->begins, int64_t) == p->entries - p->first);
    for (Py_ssize_t k = 0; k < p->entries && fits && p->begins.size > 0; k++) {
        Py_ssize_t dimensions = *extent, items = 1;
        for (Py_ssize_t j = 0; j < dimensions; j++) {
            items *= extent[1 + j];
        }
        if (k >= p->first) {
            int64_t at = ITEM(p->begins, int64_t, k - p->first);
            fits = at >= 0 && items <= own && at <= own - items;
        }
        extent += 1 + (dimensions > 0 ? dimensions : 0);
    }
    return fits;
}

/* Whether the arenas hold what the machine code and the numbers of a call need of them. */
static int check_arenas(Plan *p, Py_ssize_t root) {
    Py_buffer *v = p->views;
    Py_ssize_t shared = v[P_SHARED].len / v[P_SHARED].itemsize, own = v[P_OWN].len / v[P_OWN].itemsize;
    Py_ssize_t gathers = v[P_GATHERS].len / v[P_GATHERS].itemsize;
    const int64_t *places = v[P_PLACES].buf, *integers = v[P_INTEGERS].buf;
    const Tape *tape = p->forward == 0 ? (Tape *)p->owner : NULL;
    Py_ssize_t numbers = tape != NULL ? tape->count : shared + own;
    Py_ssize_t captured = PyTuple_Size(p->captured);
    int fits = p->size <= shared && p->own_size + captured <= own && (captured == 0 || tape != NULL) && root >= 0 && root < numbers &&
               v[P_SHARED_ADJOINTS].len == v[P_SHARED].len && v[P_ADJOINTS].len == v[P_OWN].len &&
               (tape == NULL || (shared == tape->inputs && !p->is_float));
    for (Py_ssize_t k = 0; tape == NULL && k < v[P_PLACES].len / v[P_PLACES].itemsize && fits; k++) {
        fits = places[k] >= 0 && places[k] < gathers;
    }
    for (Py_ssize_t k = 0; k < COUNT(p->outputs, int64_t) && fits; k++) {
        fits = ITEM(p->outputs, int64_t, k) >= 0 && ITEM(p->outputs, int64_t, k) < numbers;
    }
    for (Py_ssize_t k = 0; k < COUNT(p->extra_at, int64_t) && fits; k++) {
        fits = ITEM(p->extra_at, int64_t, k) >= 0 && ITEM(p->extra_at, int64_t, k) < numbers;
    }
    fits = fits && p->targets.size == (p->fixed.size == 0 ? 0 : p->outputs.size);
    for (Py_ssize_t k = 0; k < COUNT(p->targets, int64_t) && fits; k++) {
        fits = ITEM(p->targets, int64_t, k) >= 0 && ITEM(p->targets, int64_t, k) < COUNT(p->fixed, double);
    }
    for (Py_ssize_t k = 0; k < v[P_INTEGERS].len / v[P_INTEGERS].itemsize && fits; k++) {
        fits = integers[k] >= 0 && integers[k] < own;
    }
    if (!fits || !decider_fits(p, numbers) || !begins_fit(p, own)) {
        PyErr_SetString(PyExc_ValueError, "the arenas do not fit the call, the root or each other");
        return -1;
    }
    Py_ssize_t item = v[P_SHARED].itemsize;
    p->in_place = !p->is_float && shared <= 2 * p->size; /* else too much would be kept with it */
    p->instruction = root;
    p->root = tape != NULL    ? NULL
              : root < shared ? (const char *)v[P_SHARED].buf + root * item
                            : (const char *)v[P_OWN].buf + (root - shared) * item;
    return 0;
}

/* Once the arenas are checked: forget where outputs go that go one after the other, and note where those
 * of machine code are in the arenas. -1: an error. */
static int settle_outputs(Plan *p) {
    Py_ssize_t count = COUNT(p->outputs, int64_t);
    int64_t shared = (int64_t)(p->views[P_SHARED].len / p->views[P_SHARED].itemsize);
    int in_order = count == COUNT(p->fixed, double), are_near = p->forward != 0 && !p->is_float;
    for (Py_ssize_t k = 0; k < COUNT(p->targets, int64_t) && in_order; k++) {
        in_order = ITEM(p->targets, int64_t, k) == k;
    }
    if (in_order) {
        p->targets.size = p->fixed.size = 0;
    }
    are_near = are_near && p->targets.size == 0;
    for (Py_ssize_t k = 0; k < count && are_near; k++) {
        are_near = ITEM(p->outputs, int64_t, k) < INT32_MAX;
    }
    for (Py_ssize_t k = 0; k < count && are_near; k++) {
        int64_t at = ITEM(p->outputs, int64_t, k);
        if (APPEND(p->near, int32_t, (int32_t)(at < shared ? -1 - at : at - shared)) < 0) {
            return -1;
        }
    }
    return 0;
}

static int plan_traverse(PyObject *self, visitproc visit, void *arg) {
    Plan *p = (Plan *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(p->template);
    Py_VISIT(p->record);
    Py_VISIT(p->make);
    Py_VISIT(p->owner);
    Py_VISIT(p->decider);
    Py_VISIT(p->captured);
    Py_VISIT(p->extras);
    return 0;
}

/* There is no tp_clear: a cycle through a Plan passes through a dict, a list or an instance too. */
static void plan_dealloc(PyObject *self) {
    Plan *p = (Plan *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int k = 0; k < p->view_count; k++) {
        PyBuffer_Release(&p->views[k]);
    }
    PyMem_Free(p->extents.bytes);
    PyMem_Free(p->outputs.bytes);
    PyMem_Free(p->targets.bytes);
    PyMem_Free(p->fixed.bytes);
    PyMem_Free(p->near.bytes);
    PyMem_Free(p->extra_at.bytes);
    PyMem_Free(p->extra_numbers.bytes);
    PyMem_Free(p->begins.bytes);
    Py_XDECREF(p->template);
    Py_XDECREF(p->record);
    Py_XDECREF(p->make);
    Py_XDECREF(p->owner);
    Py_XDECREF(p->decider);
    Py_XDECREF(p->captured);
    Py_XDECREF(p->extras);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Keep a copy of an array's numbers. */
static int keep_array(Buffer *to, PyObject *array, const char *format) {
    Py_buffer view;
    if (get_buffer(array, &view, format, 1, 0) < 0) {
        return -1;
    }
    int failed = grow(to, (size_t)view.len) < 0;
    if (!failed) {
        memcpy(to->bytes, view.buf, (size_t)view.len);
        to->size = (size_t)view.len;
    }
    PyBuffer_Release(&view);
    return failed ? -1 : 0;
}

/* Note where the numbers are that are returned; the first of them, or the only one, or -1: an error. */
static Py_ssize_t note_outputs(Plan *p, PyObject *root, PyObject *targets, PyObject *fixed) {
    if (PyLong_Check(root)) {
        return PyLong_AsSsize_t(root);
    }
    int failed = keep_array(&p->outputs, root, "q") < 0 ||
                 (targets != Py_None && keep_array(&p->targets, targets, "q") < 0) ||
                 (fixed != Py_None && keep_array(&p->fixed, fixed, "d") < 0);
    return failed ? -1 : (Py_ssize_t)ITEM(p->outputs, int64_t, 0);
}

/* Note where the numbers are that are returned beside the value; -1: an error. */
static int note_extras(Plan *p, PyObject *at) {
    if (keep_array(&p->extra_at, at, "q") < 0 || grow(&p->extra_numbers, p->extra_at.size) < 0) {
        return -1;
    }
    p->extra_numbers.size = p->extra_at.size; /* of the same width */
    return 0;
}

/* Plan(shapes, first, template, record, make, decider, owner, forward, backward, arenas, root): see
 * the struct; `shapes` are those of the arrays of a call, None for a float, and the `first` of them are
 * the first argument's; `root` is the address of the value, `forward` and `backward` are where the
 * machine code is. With a Tape for an owner these are 0, `root` is an instruction, what is shared are all
 * its inputs, and places are those of its operands. With an array for a root, all these numbers are
 * returned, in the tree that is the template, without a gradient; `targets` and `fixed`, which may follow,
 * are for trees with arrays. `only_finite`: the tape does not run where an input is not finite. `captured`:
 * Values, of a tape only, whose numbers come after the others'. `extras`: what is returned beside the value
 * where there is a gradient, a tree like the template, and `extra_at` an array: where its numbers are.
 * `begins`: an array, where the numbers after the first argument's go in the arena of the own ones. */
static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *shapes, *template, *record, *make, *decider, *owner, *forward, *backward, *arenas;
    Py_ssize_t first;
    PyObject *root, *targets = Py_None, *fixed = Py_None;
    int only_finite = 0;
    PyObject *captured = empty_tuple, *extras = Py_None, *extra_at = Py_None, *begins = Py_None;
    if (!PyArg_ParseTuple(args, "O!nOOOO!OO!O!O!O|OOpO!OOO:Plan", &PyTuple_Type, &shapes, &first, &template, &record,
                          &make, DeciderType, &decider, &owner, &PyLong_Type, &forward, &PyLong_Type,
                          &backward, &PyTuple_Type, &arenas, &root, &targets, &fixed,
                          &only_finite, &PyTuple_Type, &captured, &extras, &extra_at, &begins)) {
        return NULL;
    }
    for (Py_ssize_t k = 0; k < PyTuple_Size(captured); k++) {
        if (!is_value(PyTuple_GetItem(captured, k))) {
            return PyErr_Format(PyExc_TypeError, "what a Plan captured are Values");
        }
    }
    if (PyTuple_Size(arenas) != P_ARENAS) {
        return PyErr_Format(PyExc_TypeError, "a Plan takes %d arenas, not %zd", P_ARENAS, PyTuple_Size(arenas));
    }
    Plan *p = (Plan *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (p == NULL) {
        return NULL;
    }
    p->first = first;
    p->only_finite = only_finite;
    p->template = Py_NewRef(template);
    p->record = Py_NewRef(record);
    p->make = Py_NewRef(make);
    p->owner = Py_NewRef(owner);
    p->decider = Py_NewRef(decider);
    p->captured = Py_NewRef(captured);
    p->extras = Py_NewRef(extras);
    p->forward = (uintptr_t)PyLong_AsVoidPtr(forward);
    p->backward = (uintptr_t)PyLong_AsVoidPtr(backward);
    int failed = PyErr_Occurred() != NULL;
    int is_tape = Py_TYPE(owner) == TapeType;
    if (!failed && ((p->forward == 0) != is_tape || (p->backward == 0) != is_tape)) {
        PyErr_SetString(PyExc_ValueError, "machine code is not at address 0, and a tape has none");
        failed = 1;
    }
    for (; p->view_count < P_ARENAS && !failed; p->view_count++) {
        int k = p->view_count, numbers = k < P_GATHERS;
        const char *format = !numbers ? "q" : p->is_float ? "f" : "d";
        PyObject *arena = PyTuple_GetItem(arenas, k);
        failed = get_buffer(arena, &p->views[k], format, k == P_SEEDS, k <= P_GATHERS) < 0;
        if (failed && k == P_SHARED && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            p->is_float = 1;
            failed = get_buffer(arena, &p->views[k], "f", 0, 1) < 0;
        }
        p->view_count -= failed;
    }
    failed = failed || (extra_at != Py_None && note_extras(p, extra_at) < 0) ||
             (begins != Py_None && keep_array(&p->begins, begins, "q") < 0);
    Py_ssize_t position = failed ? -1 : note_outputs(p, root, targets, fixed);
    failed = failed || (position == -1 && PyErr_Occurred() != NULL) || note_shapes(p, shapes) < 0 ||
             check_arenas(p, position) < 0 || settle_outputs(p) < 0;
    if (failed) {
        Py_DECREF((PyObject *)p);
        return NULL;
    }
    return (PyObject *)p;
}

static PyMethodDef plan_methods[] = {{"run", (PyCFunction)(void (*)(void))plan_run, METH_FASTCALL, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyType_Slot plan_slots[] = {{Py_tp_new, plan_new},           {Py_tp_dealloc, plan_dealloc},
                                   {Py_tp_traverse, plan_traverse}, {Py_tp_methods, plan_methods},
                                   {0, NULL}};
PyType_Spec plan_spec = {"chainrule._native.Plan", sizeof(Plan), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, plan_slots};
