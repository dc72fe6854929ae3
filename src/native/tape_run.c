/* Running a tape: rows in Python, run(), point() and number().
 *
 * A row is a rule of the op table without a case in C. Its Python code may do anything to the tape, even
 * run it, but the arrays stay where they are, and every index in them stays in bounds.
 */
#include "tape.h"

/* --------------------------------------------------------------------------- rows in Python ---- */

static PyObject *floats(const double *numbers, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyFloat_FromDouble(numbers[i]);
        if (number == NULL) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, i, number);
    }
    return tuple;
}

/* forward(*xs, *parameters), or local_grads(y, xs, parameters). */
PyObject *call_row(const Tape *t, Py_ssize_t k, int backward) {
    const Instruction x = t->instructions[k];
    const Row row = ITEM(t->rows, Row, t->row[k]);
    PyObject *rule = PyTuple_GetItem(t->rules, row.rule), *result = NULL;
    double xs[3];
    for (int j = 0; j < x.arity; j++) {
        xs[j] = t->data[x.operand[j]];
    }
    PyObject *left = floats(xs, x.arity), *right = left ? floats(row.constant, row.parameters) : NULL;
    if (right != NULL && backward) {
        result = PyObject_CallMethod(rule, "local_grads", "dOO", t->data[t->first + k], left, right);
    } else if (right != NULL) {
        PyObject *all = PySequence_Concat(left, right);
        PyObject *forward = all ? PyObject_GetAttrString(rule, "forward") : NULL;
        result = forward ? PyObject_Call(forward, all, NULL) : NULL;
        Py_XDECREF(all);
        Py_XDECREF(forward);
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static int row_forward(const Tape *t, Py_ssize_t k, double *y) {
    PyObject *number = call_row(t, k, 0);
    *y = number ? PyFloat_AsDouble(number) : 0.0;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---------------------------------------------------------------------------------- running ---- */

/* Compute every result in order of its place. */
static int compute(Tape *t) {
    double *data = t->data, *y = data + t->first, number, slope;
    const Instruction *x = t->instructions;
#define EACH(CODE, result)                                                                        \
    case CODE:                                                                                    \
        do {                                                                                      \
            double a = data[x->operand[0]], b = data[x->operand[1]];                              \
            (void)b;                                                                              \
            *y++ = (result);                                                                      \
        } while ((++x)->code == CODE);                                                            \
        break;
#define EACH_ELEMENTARY(CODE) EACH(CODE, (elementary(CODE, a, &number, &slope), number))
    for (;;) {
        switch (x->code) {
        EACH(ADD, a + b)
        EACH(MUL, a * b)
        EACH(POW, pow(a, b))
        EACH(POWER, positive_power(a, b))
        EACH(MAXIMUM, larger(a, b))
        EACH_ELEMENTARY(EXP)
        EACH_ELEMENTARY(LOG)
        EACH_ELEMENTARY(RELU)
        EACH(ABS, fabs(a))
        EACH_ELEMENTARY(TANH)
        EACH_ELEMENTARY(SIGMOID)
        EACH(SOFTPLUS, soft_plus(a))
        EACH_ELEMENTARY(SQRT)
        EACH(SIN, sin(a))
        EACH(COS, cos(a))
        EACH(T_DETACH, a)
        EACH(T_DIVIDE, a / b)
        EACH(T_LESS, a < b ? 1.0 : 0.0)
        EACH(T_LESS_EQUAL, a <= b ? 1.0 : 0.0)
        EACH(T_EQUAL, a <= b ? a >= b ? 1.0 : 0.0 : 0.0)
        EACH(T_SELECT, a > 0.0 ? b : data[x->operand[2]])
        EACH(T_FIRST_MAX, b > a ? b : a)
        EACH(T_FIRST_MIN, b < a ? b : a)
        EACH(T_INTEGER_POWER, pow(b, a))
        EACH(T_CLIP, clipped(a, b, data[x->operand[2]]))
        EACH(T_MINIMUM, smaller(a, b))
        case T_ROW:
            if (row_forward(t, x - t->instructions, &number) < 0) {
                return -1;
            }
            *y++ = number;
            x++;
            break;
        default: return 0; /* T_END */
        }
    }
#undef EACH
#undef EACH_ELEMENTARY
}

static int all_finite(const Tape *t) {
    const double *y = t->data + t->first;
    int finite = 1;
    for (Py_ssize_t n = 0; n < t->watching; n++) {
        finite &= isfinite(y[t->watched[n]]) != 0;
    }
    return finite;
}

static int finite_operands(const Tape *t, const Instruction *x) {
    int has_two = x->code == ADD || x->code == MUL || x->code == MAXIMUM; /* one may be a number */
    int finite = 1;
    for (int j = 0; j < (has_two ? 2 : x->arity); j++) {
        finite = finite && isfinite(t->data[x->operand[j]]);
    }
    return finite;
}

static Py_ssize_t first_undefined(const Tape *t) {
    for (Py_ssize_t i = t->inputs; i < t->count; i++) {
        Py_ssize_t k = t->place[i] - t->first;
        if (k >= 0 && !isfinite(t->data[t->place[i]]) && (t->instructions[k].flags & FLAGGED) &&
            finite_operands(t, &t->instructions[k])) {
            return i;
        }
    }
    return -1;
}

int run_tape(Tape *t, const double *inputs, Py_ssize_t *position) {
    if (t->misplaced && arrange(t) < 0) {
        return -1;
    }
    memcpy(t->data, inputs, (size_t)t->inputs * sizeof(double));
    if (compute(t) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < t->guards; i++) {
        if (t->data[t->place[t->guard[i]]] != t->expected[i]) {
            *position = i;
            return 1;
        }
    }
    *position = all_finite(t) ? -1 : first_undefined(t);
    return *position < 0 ? 0 : 2;
}

/* run(inputs): compute everything. Returns (status, position); see run_tape. */
PyObject *tape_run(PyObject *self, PyObject *inputs) {
    Tape *t = (Tape *)self;
    Py_buffer view;
    Py_ssize_t position;
    if (get_buffer(inputs, &view, "d", t->inputs, 0) < 0) {
        return NULL;
    }
    int status = run_tape(t, view.buf, &position);
    PyBuffer_Release(&view);
    return status < 0 ? NULL : Py_BuildValue("(in)", status, position);
}

int point_tape(Tape *t, int64_t place, int64_t position) {
    int64_t i = place / 3, slot = place % 3;
    Py_ssize_t k = place < 0 || i >= t->count ? -1 : t->place[i] - t->first;
    if (k < 0 || slot >= t->instructions[k].arity || position < 0 || position >= i) {
        return bad_instruction((Py_ssize_t)i);
    }
    move_operand(t, k, (int)slot, t->place[position]);
    return 0;
}

/* point(places, positions): let operand `place` (3 * instruction + slot) read another instruction. */
PyObject *tape_point(PyObject *self, PyObject *args) {
    Tape *t = (Tape *)self;
    PyObject *where, *what;
    Py_buffer places, positions;
    if (!PyArg_ParseTuple(args, "OO:point", &where, &what)) {
        return NULL;
    }
    Py_ssize_t count = PyObject_Size(where);
    if (count < 0 || get_buffer(where, &places, "i", count, 0) < 0) {
        return NULL;
    }
    if (get_buffer(what, &positions, "i", count, 0) < 0) {
        PyBuffer_Release(&places);
        return NULL;
    }
    int failed = 0;
    for (Py_ssize_t n = 0; n < count && !failed; n++) {
        failed = point_tape(t, ((const int32_t *)places.buf)[n], ((const int32_t *)positions.buf)[n]);
    }
    PyBuffer_Release(&places);
    PyBuffer_Release(&positions);
    return failed ? NULL : Py_NewRef(Py_None);
}

PyObject *tape_number(PyObject *self, PyObject *position) {
    Tape *t = (Tape *)self;
    Py_ssize_t i = PyLong_AsSsize_t(position);
    if (i < 0 || i >= t->count) {
        return PyErr_Occurred() ? NULL : (bad_instruction(i), NULL);
    }
    return PyFloat_FromDouble(t->data[t->place[i]]);
}

/* numbers(positions, out): what some instructions gave. */
PyObject *tape_numbers(PyObject *self, PyObject *args) {
    Tape *t = (Tape *)self;
    PyObject *which, *out;
    Py_buffer positions, numbers;
    if (!PyArg_ParseTuple(args, "OO:numbers", &which, &out)) {
        return NULL;
    }
    Py_ssize_t count = PyObject_Size(which);
    if (count < 0 || get_buffer(which, &positions, "i", count, 0) < 0) {
        return NULL;
    }
    if (get_buffer(out, &numbers, "d", count, 1) < 0) {
        PyBuffer_Release(&positions);
        return NULL;
    }
    int failed = 0;
    for (Py_ssize_t n = 0; n < count && !failed; n++) {
        int32_t i = ((const int32_t *)positions.buf)[n];
        if (i < 0 || i >= t->count) {
            failed = bad_instruction(i);
        } else {
            ((double *)numbers.buf)[n] = t->data[t->place[i]];
        }
    }
    PyBuffer_Release(&positions);
    PyBuffer_Release(&numbers);
    return failed ? NULL : Py_NewRef(Py_None);
}
