/* The tape: arrays of instructions, checked once, run many times.
 *
 * A Tape owns its instructions, so nothing that Python code does while it runs can put them out of
 * bounds. Here one is built from a recording.
 *
 * A number's place on the tape is not its position in the recording: first come the inputs, then all
 * constants (also the 2 of x + 2), then the results, by level (the longest path from the inputs) and,
 * within a level, by code. So run() executes long runs of one code without a branch, and neighbouring
 * instructions do not wait for each other's results.
 */
#include "tape.h"

PyTypeObject *TapeType;
PyObject *block_names[T_ROW]; /* the building blocks of ops, by code */

int bad_instruction(Py_ssize_t i) {
    PyErr_Format(PyExc_ValueError, "instruction %zd of the tape is malformed", i);
    return -1;
}

/* ------------------------------------------------------------------------------ the places ----- */

/* Every result above its operands. Levels never fall: operands that point() switches back and forth
 * soon have an order that suits all of their targets. */
static void raise_levels(Tape *t) {
    for (Py_ssize_t i = t->inputs; i < t->count; i++) {
        Py_ssize_t k = result_of(t, i);
        for (int j = 0; k >= 0 && j < t->instructions[k].arity; j++) {
            Py_ssize_t operand = t->instructions[k].operand[j] - t->first;
            if (operand >= 0 && t->level[operand] >= t->level[k]) {
                t->level[k] = t->level[operand] + 1;
            }
        }
    }
}

/* Turn counts into offsets: how many there are of each kind into where each kind begins. */
static void add_up(int32_t *counts, Py_ssize_t kinds) {
    for (Py_ssize_t i = 0; i < kinds; i++) {
        counts[i + 1] += counts[i];
    }
}

/* moved[k]: where result k goes, by level, then code, then position in the recording. */
static void sort_results(const Tape *t, int32_t *start, int32_t *sorted, int32_t *moved) {
    Py_ssize_t count = t->size - t->first;
    for (Py_ssize_t k = 0; k < count; k++) {
        start[t->instructions[k].code + 1]++;
    }
    add_up(start, T_CODES);
    for (Py_ssize_t i = t->inputs; i < t->count; i++) {
        Py_ssize_t k = result_of(t, i);
        if (k >= 0) {
            sorted[start[t->instructions[k].code]++] = (int32_t)k;
        }
    }
    memset(start, 0, (T_CODES + 1) * sizeof(int32_t));
    for (Py_ssize_t k = 0; k < count; k++) {
        start[t->level[k] + 1]++;
    }
    add_up(start, count);
    for (Py_ssize_t n = 0; n < count; n++) {
        moved[sorted[n]] = start[t->level[sorted[n]]]++;
    }
}

static void move_numbers(int32_t *numbers, const int32_t *moved, int32_t *scratch, Py_ssize_t count) {
    for (Py_ssize_t k = 0; k < count; k++) {
        scratch[moved[k]] = numbers[k];
    }
    memcpy(numbers, scratch, (size_t)count * sizeof(int32_t));
}

static void move_results(Tape *t, const int32_t *moved, int32_t *scratch, Instruction *copies) {
    Py_ssize_t count = t->size - t->first;
    for (Py_ssize_t k = 0; k < count; k++) {
        Instruction x = t->instructions[k];
        for (int j = 0; j < x.arity; j++) {
            if (x.operand[j] >= t->first) {
                x.operand[j] = (int32_t)t->first + moved[x.operand[j] - t->first];
            }
        }
        copies[moved[k]] = x;
    }
    memcpy(t->instructions, copies, (size_t)count * sizeof(Instruction));
    move_numbers(t->level, moved, scratch, count);
    if (t->row != NULL) {
        move_numbers(t->row, moved, scratch, count);
    }
    for (Py_ssize_t i = t->inputs; i < t->count; i++) {
        if (result_of(t, i) >= 0) {
            t->place[i] = (int32_t)t->first + moved[result_of(t, i)];
        }
    }
}

/* A non-finite operand makes a sum or product non-finite, so only results that no sum or product uses
 * are watched. Use by an operand that point() has moved does not count. */
static void choose_watched(Tape *t, int32_t *shown) {
    Py_ssize_t count = t->size - t->first;
    memset(shown, 0, (size_t)count * sizeof(int32_t));
    for (Py_ssize_t k = 0; k < count; k++) {
        const Instruction *x = &t->instructions[k];
        for (int j = 0; j < x->arity && (x->code == ADD || x->code == MUL); j++) {
            if (x->operand[j] >= t->first && !slot_moves(x, j)) {
                shown[x->operand[j] - t->first] = 1;
            }
        }
    }
    t->watching = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!shown[k]) {
            t->watched[t->watching++] = (int32_t)k;
        }
    }
}

/* Give every result its place. The numbers do not move with them, so a run must follow. */
int arrange(Tape *t) {
    size_t count = (size_t)(t->size - t->first) + 1;
    int32_t *start = PyMem_Calloc(count + T_CODES, sizeof(int32_t));
    int32_t *sorted = PyMem_Malloc(count * sizeof(int32_t));
    int32_t *moved = PyMem_Malloc(count * sizeof(int32_t));
    Instruction *copies = PyMem_Malloc(count * sizeof(Instruction));
    int failed = !start || !sorted || !moved || !copies;
    if (failed) {
        PyErr_NoMemory();
    } else {
        raise_levels(t);
        sort_results(t, start, sorted, moved);
        move_results(t, moved, sorted, copies);
        choose_watched(t, moved);
        fell_forest(t);
        t->misplaced = 0;
    }
    PyMem_Free(start);
    PyMem_Free(sorted);
    PyMem_Free(moved);
    PyMem_Free(copies);
    return -failed;
}

/* ----------------------------------------------------------------------------- the reading ----- */

/* What tape_new reads from a rule, once. */
typedef struct {
    int asked;
    long arity;
    Py_ssize_t parameters;
    int carries; /* whether a gradient flows through any operand */
    int code[2]; /* without a plain number and with one; -1: has none */
} Shape;

static int ask_rule(PyObject *rule, Shape *shape) {
    PyObject *number = PyObject_GetAttrString(rule, "arity");
    PyObject *names = number ? PyObject_GetAttrString(rule, "parameters") : NULL;
    PyObject *carrying = names ? PyObject_GetAttrString(rule, "differentiable") : NULL;
    shape->arity = number ? PyLong_AsLong(number) : -1;
    shape->parameters = names ? PyObject_Size(names) : -1;
    shape->carries = carrying == NULL || PyObject_Size(carrying) != 0;
    if (carrying == NULL && names && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear(); /* it does not say: any may */
    }
    Py_XDECREF(number);
    Py_XDECREF(names);
    Py_XDECREF(carrying);
    shape->code[0] = T_ROW;
    shape->code[1] = -1;
    for (int kind = ADD; kind < EXTENDED; kind++) {
        if (rows[kind] == rule) {
            shape->code[has_number((Kind)kind)] = kind - has_number((Kind)kind);
        }
    }
    for (int code = T_DETACH; code < T_ROW; code++) {
        if (block_names[code] == rule) {
            shape->code[0] = code;
        }
    }
    shape->asked = 1;
    return PyErr_Occurred() ? -1 : 0;
}

/* The recording as tape_new gets it. */
typedef struct {
    const int32_t *codes, *operands;
    const double *constants;
    const uint8_t *number, *unflagged;
    Py_ssize_t width; /* constants of each instruction */
    Shape *shapes;
    Buffer fixed; /* constants and plain numbers, in their places behind the inputs */
} Reading;

/* Instruction i becomes result k. Until all are known, results are the places ~0, ~1, ... and operands
 * that are instructions their positions. */
static int read_instruction(Tape *t, Reading *r, Py_ssize_t i, Py_ssize_t k) {
    int32_t rule = r->codes[i] < FIRST_RULE ? -1 : r->codes[i] - FIRST_RULE;
    if (rule < 0 || rule >= PyTuple_Size(t->rules)) {
        return bad_instruction(i);
    }
    Shape *shape = &r->shapes[rule];
    if (!shape->asked && ask_rule(PyTuple_GetItem(t->rules, rule), shape) < 0) {
        return -1;
    }
    Instruction *x = &t->instructions[k];
    int32_t operands[3]; /* copied and then checked: asking runs Python code */
    memcpy(operands, &r->operands[3 * i], sizeof operands);
    while (x->arity < 3 && operands[x->arity] >= 0) {
        if (operands[x->arity] >= i) {
            return bad_instruction(i);
        }
        x->operand[x->arity] = operands[x->arity];
        x->arity++;
    }
    int number = r->number[i], code = number > 1 ? -1 : shape->code[number];
    int fits = code >= 0 && x->arity + number == shape->arity;
    if (!fits || shape->parameters < 0 || shape->parameters > r->width) {
        return bad_instruction(i);
    }
    x->code = (uint8_t)code;
    int constant = (code >= T_DETACH && code <= T_EQUAL) || (code == T_ROW && !shape->carries);
    x->first = code == T_SELECT || code == T_INTEGER_POWER ? 1 : constant ? x->arity : 0; /* the walk begins with this operand */
    x->flags = r->unflagged[i] ? 0 : FLAGGED;
    t->place[i] = (int32_t)~k;
    const double *constants = &r->constants[r->width * i];
    if (number || code == POW) {
        x->operand[x->arity] = (int32_t)(t->inputs + COUNT(r->fixed, double));
        return APPEND(r->fixed, double, constants[0]);
    }
    if (code == T_CLIP) {
        x->operand[1] = (int32_t)(t->inputs + COUNT(r->fixed, double));
        x->operand[2] = x->operand[1] + 1;
        return APPEND(r->fixed, double, constants[0]) < 0 ? -1 : APPEND(r->fixed, double, constants[1]);
    }
    if (code == T_ROW) {
        Row row = {rule, (int32_t)shape->parameters, {constants[0], constants[r->width - 1]}};
        if (t->row == NULL && (t->row = PyMem_Calloc((size_t)t->count + 1, sizeof(int32_t))) == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        t->row[k] = (int32_t)COUNT(t->rows, Row);
        return APPEND(t->rows, Row, row);
    }
    return 0;
}

static int read_instructions(Tape *t, Reading *r) {
    Py_ssize_t results = 0;
    for (Py_ssize_t i = 0; i < t->count; i++) {
        int32_t code = r->codes[i];
        if ((code == INPUT) != (i < t->inputs)) {
            return bad_instruction(i);
        }
        if (code == INPUT) {
            t->place[i] = (int32_t)i;
        } else if (code == CONSTANT) {
            t->place[i] = (int32_t)(t->inputs + COUNT(r->fixed, double));
            if (APPEND(r->fixed, double, r->constants[r->width * i]) < 0) {
                return -1;
            }
        } else if (read_instruction(t, r, i, results++) < 0) {
            return -1;
        }
    }
    t->one = (int32_t)(t->inputs + COUNT(r->fixed, double));
    if (APPEND(r->fixed, double, 1.0) < 0) {
        return -1;
    }
    t->first = t->one + 1;
    t->size = t->first + results;
    Py_ssize_t slopes = 0;
    for (Py_ssize_t k = 0; k < results; k++) {
        slopes += slopes_of(t->instructions[k].code);
    }
    t->data = PyMem_Calloc((size_t)(t->size + slopes) + 2, sizeof(double));
    t->grads = PyMem_Calloc((size_t)t->size + 1, sizeof(double));
    t->level = PyMem_Calloc((size_t)results + 1, sizeof(int32_t));
    t->watched = PyMem_Calloc((size_t)results + 1, sizeof(int32_t));
    if (!t->data || !t->grads || !t->level || !t->watched) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(t->data + t->inputs, r->fixed.bytes, r->fixed.size);
    for (Py_ssize_t i = t->inputs; i < t->count; i++) {
        t->place[i] = t->place[i] < 0 ? (int32_t)t->first + ~t->place[i] : t->place[i];
    }
    for (Py_ssize_t k = 0; k < results; k++) {
        Instruction *x = &t->instructions[k];
        for (int j = 0; j < x->arity; j++) {
            x->operand[j] = t->place[x->operand[j]];
        }
    }
    t->instructions[results].code = T_END;
    return arrange(t);
}

static void tape_dealloc(PyObject *self) {
    Tape *t = (Tape *)self;
    PyTypeObject *type = Py_TYPE(self);
    fell_forest(t);
    PyMem_Free(t->place);
    PyMem_Free(t->instructions);
    PyMem_Free(t->level);
    PyMem_Free(t->row);
    PyMem_Free(t->watched);
    PyMem_Free(t->rows.bytes);
    PyMem_Free(t->data);
    PyMem_Free(t->grads);
    PyMem_Free(t->guard);
    PyMem_Free(t->expected);
    Py_XDECREF(t->rules);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Tape(inputs, codes, operands, constants, number, unflagged, rules, guards, expected) */
static PyObject *tape_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    Py_ssize_t inputs;
    PyObject *parts[7], *rules;
    static const char *const formats[7] = {"i", "i", "d", "B", "B", "i", "d"};
    if (!PyArg_ParseTuple(args, "nOOOOOOOO:Tape", &inputs, &parts[0], &parts[1], &parts[2], &parts[3],
                          &parts[4], &rules, &parts[5], &parts[6])) {
        return NULL;
    }
    Py_ssize_t count = PyObject_Size(parts[0]), guards = count < 0 ? -1 : PyObject_Size(parts[5]);
    Tape *t = NULL;
    Py_buffer views[7];
    int open = 0, failed = count < 0 || guards < 0;
    if (!failed && (count > MOST_INSTRUCTIONS || inputs < 0 || inputs > count)) {
        PyErr_SetString(PyExc_ValueError, "a tape has at most 2**28 instructions, inputs first");
        failed = 1;
    }
    for (; open < 7 && !failed; open++) {
        Py_ssize_t items = open == 1 ? 3 * count : open < 5 ? count : guards;
        failed = get_buffer(parts[open], &views[open], formats[open], items, 0) < 0;
        open -= failed;
    }
    if (!failed) {
        t = (Tape *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
        failed = t == NULL;
    }
    Reading r = {0};
    if (!failed) {
        t->count = count;
        t->inputs = inputs;
        t->guards = guards;
        t->rules = PySequence_Tuple(rules);
        t->place = PyMem_Calloc((size_t)count + 1, sizeof(int32_t));
        t->instructions = PyMem_Calloc((size_t)(count - inputs) + 1, sizeof(Instruction));
        t->guard = PyMem_Calloc((size_t)guards + 1, sizeof(int32_t));
        t->expected = PyMem_Calloc((size_t)guards + 1, sizeof(double));
        r = (Reading){views[0].buf, views[1].buf, views[2].buf, views[3].buf, views[4].buf,
                      constants_each(&views[2], count), NULL, {0}};
        r.shapes = t->rules ? PyMem_Calloc((size_t)PyTuple_Size(t->rules) + 1, sizeof(Shape)) : NULL;
        failed = !t->rules || !t->place || !t->instructions || !t->guard || !t->expected || !r.shapes;
        if (failed && !PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        failed = failed || read_instructions(t, &r) < 0;
    }
    for (Py_ssize_t i = 0; i < guards && !failed; i++) {
        t->guard[i] = ((const int32_t *)views[5].buf)[i];
        t->expected[i] = ((const double *)views[6].buf)[i];
        failed = t->guard[i] < 0 || t->guard[i] >= count ? bad_instruction(t->guard[i]) : 0;
    }
    PyMem_Free(r.shapes);
    PyMem_Free(r.fixed.bytes);
    while (open-- > 0) {
        PyBuffer_Release(&views[open]);
    }
    if (failed) {
        Py_XDECREF((PyObject *)t);
        return NULL;
    }
    return (PyObject *)t;
}

static PyMethodDef tape_methods[] = {
    {"run", tape_run, METH_O, NULL},
    {"sweep", tape_sweep, METH_VARARGS, NULL},
    {"point", tape_point, METH_VARARGS, NULL},
    {"number", tape_number, METH_O, NULL},
    {"numbers", tape_numbers, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot tape_slots[] = {
    {Py_tp_new, tape_new}, {Py_tp_dealloc, tape_dealloc}, {Py_tp_methods, tape_methods}, {0, NULL}};
PyType_Spec tape_spec = {"chainrule._native.Tape", sizeof(Tape), 0, Py_TPFLAGS_DEFAULT, tape_slots};

static const char *const building_blocks[T_ROW] = {
    [T_DETACH] = "detach", [T_DIVIDE] = "divide", [T_LESS] = "less", [T_LESS_EQUAL] = "less_equal",
    [T_EQUAL] = "equal", [T_SELECT] = "select", [T_FIRST_MAX] = "first_max",
    [T_FIRST_MIN] = "first_min", [T_INTEGER_POWER] = "integer_power", [T_CLIP] = "clip",
    [T_MINIMUM] = "minimum",
};

int import_building_blocks(PyObject *ops) {
    for (int code = T_DETACH; code < T_ROW; code++) {
        block_names[code] = PyObject_GetAttrString(ops, building_blocks[code]);
        if (block_names[code] == NULL) {
            return -1;
        }
    }
    return 0;
}
