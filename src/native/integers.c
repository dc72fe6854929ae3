/* The integer program of a recording, evaluated; see compiler/capture/integer_code.py.
 *
 * In: the integers of a call, or of many. Out: what its gathers select and the numbers computed from
 * integers. Everything is exact: what does not fit into 64 bits is left to Python, nothing wraps around.
 */
#include "integers.h"

/* The steps, in the order of integer_code.py. READ to FIND: one of some integers, floats, or of the
 * integers behind sorted keys, where FIND gives the number of keys if there is no such key. CHOOSE, MAX and
 * MIN: of some nodes. COUNT: how many of some nodes are equal to one. SEEDED: `b` of what draws random numbers
 * is asked for those of a seed; DRAWN: one of them, `b` of all. HASHED: some nodes in the order in which a set has
 * them; from `a` on they are among what was drawn. */
enum {
    ADD, SUB, MUL, FLOORDIV, MOD, AND, OR, XOR, LSHIFT, RSHIFT, NEG, INVERT, ABS,
    LT, LE, EQ, NE, GT, GE, POW, WRAP, INT, BOOL, READ, READ_FLOAT, LOOKUP, FIND,
    CHOOSE, MAX, MIN, COUNT, SEEDED, DRAWN, HASHED, GUARD_TRUTH, GUARD_EQUAL, GUARD_RANGE, STEP_KINDS
};

/* Operands are nodes, but for `b` and `c` from READ on: where in the pool it begins, and how many. Of a
 * guard, `a` is what `target` must be, or of how many items it must be the index. */
typedef struct {
    int64_t kind, target, a, b, c;
} Step;

typedef struct {
    int64_t node, is_float;
} ComputedNumber;

#define EXACT ((int64_t)1 << 53) /* integers up to here are floats without rounding */

PyTypeObject *DeciderType;

static int add(int64_t a, int64_t b, int64_t *to) {
    if (b >= 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
        return BEYOND_BITS;
    }
    *to = a + b;
    return KNOWN;
}

static int subtract(int64_t a, int64_t b, int64_t *to) {
    if (b >= 0 ? a < INT64_MIN + b : a > INT64_MAX + b) {
        return BEYOND_BITS;
    }
    *to = a - b;
    return KNOWN;
}

static int is_narrow(int64_t a) {
    return a >= INT32_MIN && a <= INT32_MAX;
}

static int multiply(int64_t a, int64_t b, int64_t *to) {
    if (UNLIKELY(!is_narrow(a) || !is_narrow(b))) {
        if (a == INT64_MIN || b == INT64_MIN) {
            return BEYOND_BITS;
        }
        int64_t size = a < 0 ? -a : a, other = b < 0 ? -b : b;
        if (other != 0 && size > INT64_MAX / other) {
            return BEYOND_BITS;
        }
    }
    *to = a * b;
    return KNOWN;
}

/* Python's // and %, which round down. */
static int divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest) {
    if (b == 0) {
        return ANOTHER_PATH;
    }
    if (b == -1) {
        *rest = 0;
        return subtract(0, a, quotient);
    }
    *quotient = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        *quotient -= 1;
        *rest += b;
    }
    return KNOWN;
}

static int shift_left(int64_t a, int64_t by, int64_t *to) {
    if (by < 0) {
        return ANOTHER_PATH;
    }
    if (a == 0) {
        *to = 0;
        return KNOWN;
    }
    return by > 62 ? BEYOND_BITS : multiply(a, (int64_t)1 << by, to);
}

/* Rounding down, for which C has no operator that is the same everywhere. */
static int shift_right(int64_t a, int64_t by, int64_t *to) {
    if (by < 0) {
        return ANOTHER_PATH;
    }
    int64_t rest;
    if (by > 62) {
        *to = a < 0 ? -1 : 0;
        return KNOWN;
    }
    return divide(a, (int64_t)1 << by, to, &rest);
}

static int power(int64_t base, int64_t exponent, int64_t *to) {
    int64_t product = 1;
    if (exponent > 64 && base >= -1 && base <= 1) {
        *to = base == -1 && exponent % 2 == 0 ? 1 : base;
        return KNOWN;
    }
    int found = exponent < 0 || exponent > 64 ? BEYOND_BITS : KNOWN;
    for (int64_t k = 0; k < exponent && found == KNOWN; k++) {
        found = multiply(product, base, &product);
    }
    *to = product;
    return found;
}

static int look_up(const int64_t *keys, int64_t count, int64_t key, int64_t *to) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (keys[middle] < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == count || keys[low] != key) {
        return ANOTHER_PATH;
    }
    *to = keys[count + low];
    return KNOWN;
}

static int64_t count_equal(const Step *s, const int64_t *nodes, const int64_t *v) {
    int64_t count = 0;
    for (int64_t k = 0; k < s->c; k++) {
        count += v[nodes[k]] == v[s->a];
    }
    return count;
}

static void extreme(const Step *s, const int64_t *nodes, int64_t *v) {
    int64_t best = v[nodes[0]];
    for (int64_t k = 1; k < s->c; k++) {
        int64_t x = v[nodes[k]];
        best = (s->kind == MAX ? x > best : x < best) ? x : best;
    }
    v[s->target] = best;
}

static int read_table(const Decider *d, const Step *s) {
    int64_t *v = d->values, index = v[s->a];
    const int64_t *pool = d->views[D_POOL].buf;
    const double *floats = d->views[D_FLOATS].buf;
    if (s->kind == LOOKUP || s->kind == FIND) {
        int found = look_up(pool + s->b, s->c, index, &v[s->target]);
        if (found != KNOWN && s->kind == FIND) {
            v[s->target] = s->c;
            found = KNOWN;
        }
        return found;
    }
    if (!wrap(&index, s->c)) {
        return ANOTHER_PATH;
    }
    if (s->kind == READ_FLOAT) {
        memcpy(&v[s->target], &floats[s->b + index], sizeof *floats);
    } else {
        v[s->target] = s->kind == READ ? pool[s->b + index] : v[pool[s->b + index]];
    }
    return KNOWN;
}

/* Whether the error that was raised would make another path of the integers; if so, it is cleared. */
static int is_another_path(void) {
    PyObject *const kinds[] = {PyExc_ArithmeticError, PyExc_LookupError, PyExc_ValueError, PyExc_TypeError};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (PyErr_ExceptionMatches(kinds[k])) {
            PyErr_Clear();
            return 1;
        }
    }
    return 0;
}

/* Draw the numbers of a seed. Python does, and may do other things meanwhile; what those ask this Decider is
 * left to Python. */
static int draw(Decider *d, const Step *s) {
    PyObject *pair = PyTuple_GetItem(d->draws, (Py_ssize_t)s->b);
    Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GetItem(pair, 1)), end = at, count = 0;
    PyObject *seed = PyLong_FromLongLong(d->values[s->a]);
    PyObject *found = NULL;
    if (seed != NULL) {
        d->busy = 1;
        found = PyObject_CallFunctionObjArgs(PyTuple_GetItem(pair, 0), seed, NULL);
        d->busy = 0;
        Py_DECREF(seed);
    }
    if (found == NULL) {
        return is_another_path() ? ANOTHER_PATH : UNDECIDED;
    }
    end = s->b + 1 < PyTuple_Size(d->draws)
              ? PyLong_AsSsize_t(PyTuple_GetItem(PyTuple_GetItem(d->draws, (Py_ssize_t)s->b + 1), 1))
              : d->drawn_count;
    count = PyList_Check(found) ? PyList_Size(found) : -1;
    int known = count == end - at ? KNOWN : ANOTHER_PATH;
    for (Py_ssize_t k = 0; k < count && known == KNOWN; k++) {
        PyObject *x = PyList_GetItem(found, k);
        int overflow = 0;
        if (PyFloat_CheckExact(x)) {
            double number = PyFloat_AsDouble(x);
            memcpy(&d->drawn[at + k], &number, sizeof number);
        } else if (PyLong_CheckExact(x)) {
            d->drawn[at + k] = PyLong_AsLongLongAndOverflow(x, &overflow);
            known = overflow ? BEYOND_BITS : KNOWN;
        } else {
            known = ANOTHER_PATH;
        }
    }
    Py_DECREF(found);
    return known;
}

/* Put some nodes into a set of Python's, whose order is that of their hashes and of how they came. Making one
 * may collect garbage, which may ask this Decider again. */
static int in_hash_order(Decider *d, const Step *s) {
    const int64_t *nodes = (const int64_t *)d->views[D_POOL].buf + s->b;
    d->busy = 1;
    PyObject *all = PySet_New(NULL), *iterator = NULL, *x;
    int failed = all == NULL;
    for (int64_t k = 0; k < s->c && !failed; k++) {
        x = PyLong_FromLongLong(d->values[nodes[k]]);
        failed = x == NULL || PySet_Add(all, x) < 0;
        Py_XDECREF(x);
    }
    if (!failed) {
        iterator = PyObject_GetIter(all);
    }
    int64_t count = 0;
    while (iterator != NULL && (x = PyIter_Next(iterator)) != NULL) {
        d->drawn[s->a + count++] = PyLong_AsLongLong(x);
        Py_DECREF(x);
    }
    Py_XDECREF(iterator);
    Py_XDECREF(all);
    d->busy = 0;
    d->values[s->target] = count;
    return PyErr_Occurred() ? UNDECIDED : KNOWN;
}

static int take_step(Decider *d, const Step *s) {
    if (s->kind == HASHED) {
        return in_hash_order(d, s);
    }
    int64_t *v = d->values, *to = &v[s->target], a = v[s->a], rest;
    switch (s->kind) {
    case ADD: return add(a, v[s->b], to);
    case SUB: return subtract(a, v[s->b], to);
    case MUL: return multiply(a, v[s->b], to);
    case FLOORDIV: return divide(a, v[s->b], to, &rest);
    case MOD: return divide(a, v[s->b] == -1 ? 1 : v[s->b], &rest, to);
    case AND: *to = a & v[s->b]; return KNOWN;
    case OR: *to = a | v[s->b]; return KNOWN;
    case XOR: *to = a ^ v[s->b]; return KNOWN;
    case LSHIFT: return shift_left(a, v[s->b], to);
    case RSHIFT: return shift_right(a, v[s->b], to);
    case NEG: return subtract(0, a, to);
    case INVERT: *to = ~a; return KNOWN;
    case ABS: return a < 0 ? subtract(0, a, to) : (*to = a, KNOWN);
    case LT: *to = a < v[s->b]; return KNOWN;
    case LE: *to = a <= v[s->b]; return KNOWN;
    case EQ: *to = a == v[s->b]; return KNOWN;
    case NE: *to = a != v[s->b]; return KNOWN;
    case GT: *to = a > v[s->b]; return KNOWN;
    case GE: *to = a >= v[s->b]; return KNOWN;
    case POW: return power(a, v[s->b], to);
    case WRAP:
        *to = a;
        return wrap(to, v[s->b]) ? KNOWN : ANOTHER_PATH;
    case INT: *to = a; return KNOWN;
    case BOOL: *to = a != 0; return KNOWN;
    case MAX:
    case MIN: extreme(s, (const int64_t *)d->views[D_POOL].buf + s->b, v); return KNOWN;
    case COUNT: *to = count_equal(s, (const int64_t *)d->views[D_POOL].buf + s->b, v); return KNOWN;
    case SEEDED: return draw(d, s);
    case DRAWN: *to = d->drawn[s->b]; return KNOWN;
    default: return read_table(d, s);
    }
}

static int evaluate(Decider *d) {
    const Step *steps = d->views[D_STEPS].buf;
    int found = KNOWN;
    for (Py_ssize_t k = 0; k < d->steps && found == KNOWN; k++) {
        const Step *s = &steps[k];
        int64_t is = d->values[s->target];
        if (s->kind == GUARD_TRUTH) {
            found = (is != 0) == (s->a != 0) ? KNOWN : ANOTHER_PATH;
        } else if (s->kind == GUARD_EQUAL) {
            found = is == s->a ? KNOWN : ANOTHER_PATH;
        } else if (s->kind == GUARD_RANGE) {
            found = wrap(&is, s->a) ? KNOWN : ANOTHER_PATH;
        } else {
            found = take_step(d, s);
        }
    }
    return found;
}

static int compute_numbers(const Decider *d) {
    const ComputedNumber *numbers = d->views[D_NUMBERS].buf;
    for (Py_ssize_t k = 0; k < d->numbers; k++) {
        int64_t is = d->values[numbers[k].node];
        if (numbers[k].is_float) {
            memcpy(&d->computed[k], &is, sizeof is);
        } else if (is < -EXACT || is > EXACT) {
            return ANOTHER_PATH;
        } else {
            d->computed[k] = (double)is;
        }
    }
    return KNOWN;
}

int decide_numbers(Decider *d, const int64_t *integers) {
    if (d->busy) {
        return BEYOND_BITS;
    }
    if (d->arguments > 0) { /* else there may be no row to copy */
        memmove(d->values, integers, (size_t)d->arguments * sizeof *integers);
    }
    int found = evaluate(d);
    return found == KNOWN ? compute_numbers(d) : found;
}

int decide(Decider *d, const int64_t *integers) {
    int found = decide_numbers(d, integers);
    return found == KNOWN ? select_into(d, d->selected, NULL) : found;
}

/* ----------------------------------------------------------------- for Python ------------------ */

/* Reads integers of Python's; whether all fit into 64 bits. -1: an error. */
static int read_integers(PyObject *sequence, int64_t *to, Py_ssize_t count) {
    int is_list = PyList_CheckExact(sequence);
    if ((!is_list && !PyTuple_CheckExact(sequence)) ||
        (is_list ? PyList_Size(sequence) : PyTuple_Size(sequence)) != count) {
        PyErr_Format(PyExc_TypeError, "decide takes a list or tuple of %zd integers", count);
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *x = is_list ? PyList_GetItem(sequence, k) : PyTuple_GetItem(sequence, k);
        int overflow = 0;
        if (!PyLong_Check(x)) {
            PyErr_SetString(PyExc_TypeError, "decide takes integers");
            return -1;
        }
        to[k] = PyLong_AsLongLongAndOverflow(x, &overflow);
        if (overflow) {
            return 0;
        }
    }
    return 1;
}

/* decide(integers, selected, numbers): KNOWN, ANOTHER_PATH or BEYOND_BITS; fills both arrays where it is
 * known. */
static PyObject *decider_decide(PyObject *self, PyObject *args) {
    Decider *d = (Decider *)self;
    PyObject *integers, *selected, *numbers;
    Py_buffer out, to;
    if (!PyArg_ParseTuple(args, "OOO:decide", &integers, &selected, &numbers) ||
        get_buffer(selected, &out, "q", d->gathers, 1) < 0) {
        return NULL;
    }
    if (get_buffer(numbers, &to, "d", d->numbers, 1) < 0) {
        PyBuffer_Release(&out);
        return NULL;
    }
    int fits = d->busy ? 0 : read_integers(integers, d->values, d->arguments);
    int found = fits > 0 ? decide(d, d->values) : BEYOND_BITS;
    memcpy(out.buf, d->selected, (size_t)d->gathers * sizeof *d->selected);
    memcpy(to.buf, d->computed, (size_t)d->numbers * sizeof *d->computed);
    PyBuffer_Release(&out);
    PyBuffer_Release(&to);
    return fits < 0 || found == UNDECIDED ? NULL : PyLong_FromLong(found);
}

enum { R_INTEGERS, R_SELECTED, R_NUMBERS, R_FOUND, R_BUFFERS };

/* decide_rows(integers, selected, numbers, found): the same for each row of integers, into the rows of
 * the others. */
static PyObject *decider_rows(PyObject *self, PyObject *args) {
    static const char *const formats[] = {"q", "q", "d", "q"};
    Decider *d = (Decider *)self;
    PyObject *given[R_BUFFERS], *result = NULL;
    Py_buffer views[R_BUFFERS];
    int opened = 0;
    if (!PyArg_ParseTuple(args, "OOOO:decide_rows", &given[0], &given[1], &given[2], &given[3])) {
        return NULL;
    }
    while (opened < R_BUFFERS &&
           get_buffer(given[opened], &views[opened], formats[opened], 0, opened != R_INTEGERS) == 0) {
        opened++;
    }
    if (opened == R_BUFFERS) {
        Py_ssize_t rows = views[R_FOUND].len / (Py_ssize_t)sizeof(int64_t);
        int fits = views[R_INTEGERS].len == rows * d->arguments * (Py_ssize_t)sizeof(int64_t) &&
                   views[R_SELECTED].len == rows * d->gathers * (Py_ssize_t)sizeof(int64_t) &&
                   views[R_NUMBERS].len == rows * d->numbers * (Py_ssize_t)sizeof(double);
        const int64_t *integers = views[R_INTEGERS].buf;
        int64_t *selected = views[R_SELECTED].buf, *found = views[R_FOUND].buf;
        double *numbers = views[R_NUMBERS].buf;
        int failed = 0;
        for (Py_ssize_t k = 0; k < rows && fits && !failed; k++) {
            found[k] = decide(d, integers + k * d->arguments);
            failed = found[k] == UNDECIDED;
            memcpy(selected + k * d->gathers, d->selected, (size_t)d->gathers * sizeof *selected);
            memcpy(numbers + k * d->numbers, d->computed, (size_t)d->numbers * sizeof *numbers);
        }
        if (fits) {
            result = failed ? NULL : Py_NewRef(Py_None);
        } else {
            PyErr_SetString(PyExc_ValueError, "the rows do not fit the program or each other");
        }
    }
    while (opened-- > 0) {
        PyBuffer_Release(&views[opened]);
    }
    return result;
}

/* ----------------------------------------------------------------- making one ------------------ */

static int is_part(int64_t start, int64_t count, Py_ssize_t all) {
    return start >= 0 && count >= 0 && count <= all && start <= all - count;
}

/* Whether part of the pool are nodes that come before. */
static int nodes_fit(const Decider *d, const Step *s, Py_ssize_t known) {
    Py_ssize_t pool = d->views[D_POOL].len / (Py_ssize_t)sizeof(int64_t);
    const int64_t *nodes = d->views[D_POOL].buf;
    if (!is_part(s->b, s->c, pool)) {
        return 0;
    }
    for (int64_t k = s->b; k < s->b + s->c; k++) {
        if (nodes[k] < 0 || nodes[k] >= known) {
            return 0;
        }
    }
    return 1;
}

/* Whether a step reads only what is there: nodes that come before, and parts of the pools. `known`: how
 * many nodes have a value by then. */
static int step_fits(const Decider *d, const Step *s, Py_ssize_t known) {
    Py_ssize_t pool = d->views[D_POOL].len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t floats = d->views[D_FLOATS].len / (Py_ssize_t)sizeof(double);
    if (s->kind < 0 || s->kind >= STEP_KINDS || s->target < 0 || s->target >= d->nodes) {
        return 0;
    }
    if (s->kind >= GUARD_TRUTH) {
        return s->target < known;
    }
    if (s->kind == HASHED) {
        return s->target == known && nodes_fit(d, s, known) && is_part(s->a, s->c, d->drawn_count);
    }
    if (s->target != known || s->a < 0 || s->a >= known) {
        return 0;
    }
    switch (s->kind) {
    case READ: return is_part(s->b, s->c, pool);
    case READ_FLOAT: return is_part(s->b, s->c, floats);
    case LOOKUP:
    case FIND: return s->c <= pool / 2 && is_part(s->b, 2 * s->c, pool);
    case CHOOSE:
    case MAX:
    case MIN:
    case COUNT:
        return nodes_fit(d, s, known) && (s->kind == CHOOSE || s->kind == COUNT || s->c >= 1);
    case SEEDED: return s->b >= 0 && s->b < PyTuple_Size(d->draws);
    case DRAWN: return s->b >= 0 && s->b < d->drawn_count;
    default: return s->b >= 0 && s->b < known;
    }
}

/* Whether what draws random numbers are pairs of a function and where its numbers begin, in order. */
static int draws_fit(const Decider *d) {
    Py_ssize_t before = 0;
    for (Py_ssize_t k = 0; k < PyTuple_Size(d->draws); k++) {
        PyObject *pair = PyTuple_GetItem(d->draws, k);
        int is_pair = PyTuple_Check(pair) && PyTuple_Size(pair) == 2 && PyLong_Check(PyTuple_GetItem(pair, 1));
        Py_ssize_t at = is_pair ? PyLong_AsSsize_t(PyTuple_GetItem(pair, 1)) : -1;
        if (at < before || at > d->drawn_count) {
            PyErr_Clear();
            return 0;
        }
        before = at;
    }
    return 1;
}

/* Whether everything refers to what is there. */
static int program_fits(const Decider *d) {
    const Step *steps = d->views[D_STEPS].buf;
    const GatherTable *gathers = d->views[D_GATHERS].buf;
    const ComputedNumber *numbers = d->views[D_NUMBERS].buf;
    Py_ssize_t candidates = d->views[D_CANDIDATES].len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t known = d->arguments + d->views[D_CONSTANTS].len / (Py_ssize_t)sizeof(int64_t);
    int fits = 1;
    for (Py_ssize_t k = 0; k < d->steps && fits; k++) {
        fits = step_fits(d, &steps[k], known);
        known += steps[k].kind < GUARD_TRUTH;
    }
    for (Py_ssize_t k = 0; k < d->gathers && fits; k++) {
        fits = gathers[k].index >= 0 && gathers[k].index < known &&
               is_part(gathers[k].start, gathers[k].count, candidates);
    }
    for (Py_ssize_t k = 0; k < d->numbers && fits; k++) {
        fits = numbers[k].node >= 0 && numbers[k].node < known;
    }
    return fits && known == d->nodes;
}

static void decider_dealloc(PyObject *self) {
    Decider *d = (Decider *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (int k = 0; k < d->view_count; k++) {
        PyBuffer_Release(&d->views[k]);
    }
    PyMem_Free(d->values);
    PyMem_Free(d->selected);
    PyMem_Free(d->computed);
    PyMem_Free(d->runs);
    PyMem_Free(d->rows);
    PyMem_Free(d->drawn);
    Py_XDECREF(d->draws);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Room for the values of every node, with the constants in it; -1: an error. */
static int make_room(Decider *d) {
    const Step *steps = d->views[D_STEPS].buf;
    Py_ssize_t constants = d->views[D_CONSTANTS].len / (Py_ssize_t)sizeof(int64_t);
    d->steps = d->views[D_STEPS].len / (Py_ssize_t)sizeof(Step);
    d->gathers = d->views[D_GATHERS].len / (Py_ssize_t)sizeof(GatherTable);
    d->numbers = d->views[D_NUMBERS].len / (Py_ssize_t)sizeof(ComputedNumber);
    d->nodes = d->arguments + constants;
    for (Py_ssize_t k = 0; k < d->steps; k++) {
        d->nodes += steps[k].kind < GUARD_TRUTH;
    }
    d->values = PyMem_Calloc((size_t)d->nodes + 1, sizeof *d->values);
    d->selected = PyMem_Calloc((size_t)d->gathers + 1, sizeof *d->selected);
    d->computed = PyMem_Calloc((size_t)d->numbers + 1, sizeof *d->computed);
    d->drawn = PyMem_Calloc((size_t)d->drawn_count + 1, sizeof *d->drawn);
    if (d->drawn == NULL || d->values == NULL || d->selected == NULL || d->computed == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (constants) {
        memcpy(d->values + d->arguments, d->views[D_CONSTANTS].buf, (size_t)d->views[D_CONSTANTS].len);
    }
    return 0;
}

/* Decider(arguments, constants, steps, pool, floats, gathers, candidates, numbers, draws=(), drawn=0): an
 * integer program as arrays of int64, but for `floats`; none of them may change. A candidate below zero is
 * none. `draws`: pairs of a function from a seed to a list of random numbers, and where these begin among all
 * `drawn`; the last pair says where they end, if something else follows. */
static PyObject *decider_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *given[D_BUFFERS], *draws = NULL;
    Py_ssize_t arguments, drawn = 0;
    if (!PyArg_ParseTuple(args, "nOOOOOOO|O!n:Decider", &arguments, &given[0], &given[1], &given[2], &given[3],
                          &given[4], &given[5], &given[6], &PyTuple_Type, &draws, &drawn)) {
        return NULL;
    }
    Decider *d = (Decider *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (d == NULL) {
        return NULL;
    }
    d->arguments = arguments;
    d->draws = draws != NULL ? Py_NewRef(draws) : PyTuple_New(0);
    d->drawn_count = drawn;
    int failed = d->draws == NULL;
    while (d->view_count < D_BUFFERS && !failed) {
        const char *format = d->view_count == D_FLOATS ? "d" : "q";
        failed = get_buffer(given[d->view_count], &d->views[d->view_count], format, 0, 0) < 0;
        d->view_count += !failed;
    }
    if (!failed && (arguments < 0 || arguments > PY_SSIZE_T_MAX / 64 || drawn < 0 || drawn > PY_SSIZE_T_MAX / 64)) {
        PyErr_SetString(PyExc_ValueError, "an integer program has no such number of arguments");
        failed = 1;
    }
    failed = failed || make_room(d) < 0;
    if (!failed && (!draws_fit(d) || !program_fits(d))) {
        PyErr_SetString(PyExc_ValueError, "the parts of the integer program do not fit each other");
        failed = 1;
    }
    failed = failed || make_runs(d) < 0;
    if (failed) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    return (PyObject *)d;
}

static PyMethodDef decider_methods[] = {{"decide", decider_decide, METH_VARARGS, NULL},
                                        {"decide_rows", decider_rows, METH_VARARGS, NULL},
                                        {NULL, NULL, 0, NULL}};
static PyType_Slot decider_slots[] = {{Py_tp_new, decider_new},
                                      {Py_tp_dealloc, decider_dealloc},
                                      {Py_tp_methods, decider_methods},
                                      {0, NULL}};
PyType_Spec decider_spec = {"chainrule._native.Decider", sizeof(Decider), 0, Py_TPFLAGS_DEFAULT, decider_slots};
