/* The tape, part of _native.c: arrays of instructions, checked once, run many times.
 *
 * A Tape owns its instructions, so nothing that Python code does while it runs can put them out of
 * bounds. run() computes every number from the inputs and looks at the guards; sweep() takes the
 * derivative of one instruction with respect to the inputs, in the order of eager backward(), so that
 * both give eager's bits.
 */

/* Instructions that no node kind stands for. */
typedef enum {
    T_INPUT = KINDS, T_CONSTANT, T_DETACH, T_DIVIDE, T_LESS, T_LESS_EQUAL, T_EQUAL, T_SELECT,
    T_FIRST_MAX, T_FIRST_MIN,
    T_ROW, /* any other row of the op table, evaluated in Python */
} TapeCode;

typedef struct {
    uint16_t code;
    uint8_t arity;     /* operands that are instructions */
    uint8_t first;     /* the first of them that may carry a gradient */
    uint8_t flagged;   /* a non-finite result of finite operands is undefined */
    uint8_t parameters;
    int32_t rule;      /* T_ROW: its position in rules */
    int32_t operand[3];
    double constant[2];
} Instruction;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count, inputs, guards, ordered;
    Py_ssize_t ordered_root; /* what `order` was made for; -1: to be made again */
    Instruction *instructions;
    double *data, *grads;
    int32_t *order, *stack;
    uint8_t *visited;
    int32_t *guard;
    double *expected;
    PyObject *rules; /* a tuple */
} Tape;

static PyTypeObject *TapeType;
static PyObject *block_names[T_ROW]; /* the building blocks of ops, by code */

static void tape_dealloc(PyObject *self) {
    Tape *t = (Tape *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(t->instructions);
    PyMem_Free(t->data);
    PyMem_Free(t->grads);
    PyMem_Free(t->order);
    PyMem_Free(t->stack);
    PyMem_Free(t->visited);
    PyMem_Free(t->guard);
    PyMem_Free(t->expected);
    Py_XDECREF(t->rules);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* The code of a rule, or -1 with an error. */
static int tape_code(PyObject *rule, int number) {
    for (int kind = ADD; kind < EXTENDED; kind++) {
        if (rows[kind] == rule && has_number((Kind)kind) == number) {
            return kind;
        }
    }
    for (int code = T_DETACH; code < T_ROW; code++) {
        if (block_names[code] == rule) {
            return code;
        }
    }
    return T_ROW;
}

static int bad_instruction(Py_ssize_t i) {
    PyErr_Format(PyExc_ValueError, "instruction %zd of the tape is malformed", i);
    return -1;
}

/* How many operands and parameters a rule takes. */
static int rule_shape(PyObject *rule, long *arity, Py_ssize_t *parameters) {
    PyObject *number = PyObject_GetAttrString(rule, "arity");
    PyObject *names = number ? PyObject_GetAttrString(rule, "parameters") : NULL;
    *arity = number ? PyLong_AsLong(number) : -1;
    *parameters = names ? PyObject_Size(names) : -1;
    Py_XDECREF(number);
    Py_XDECREF(names);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_instruction(Tape *t, Py_ssize_t i, int32_t code, const int32_t *operands,
                            const double *constants, int number, int unflagged) {
    Instruction *x = &t->instructions[i];
    memset(x, 0, sizeof *x);
    x->constant[0] = constants[0];
    x->constant[1] = constants[1];
    x->flagged = !unflagged;
    memcpy(x->operand, operands, sizeof x->operand);
    if (code == INPUT || code == CONSTANT) {
        x->code = code == INPUT ? T_INPUT : T_CONSTANT;
        return (code == INPUT) == (i < t->inputs) ? 0 : bad_instruction(i);
    }
    if (code < FIRST_RULE || code - FIRST_RULE >= PyTuple_Size(t->rules) || i < t->inputs) {
        return bad_instruction(i);
    }
    PyObject *rule = PyTuple_GetItem(t->rules, code - FIRST_RULE);
    long arity;
    Py_ssize_t parameters;
    if (rule_shape(rule, &arity, &parameters) < 0) {
        return -1;
    }
    while (x->arity < 3 && x->operand[x->arity] >= 0) { /* the copy: Python code may have run */
        if (x->operand[x->arity] >= i) {
            return bad_instruction(i);
        }
        x->arity++;
    }
    int known = tape_code(rule, number);
    int missing = number ? known < EXTENDED && has_number((Kind)known) : 0;
    if (x->arity + missing != arity || missing != number || parameters < 0 || parameters > 2) {
        return bad_instruction(i);
    }
    x->code = (uint16_t)known;
    x->rule = code - FIRST_RULE;
    x->parameters = (uint8_t)parameters;
    x->first = known == T_SELECT                                              ? 1
               : known == T_DETACH || (known >= T_DIVIDE && known <= T_EQUAL) ? x->arity
                                                                              : 0;
    return 0;
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
    Py_ssize_t count = PyObject_Size(parts[0]), guards = PyObject_Size(parts[5]);
    Tape *t = NULL;
    Py_buffer views[7];
    int open = 0, failed = count < 0 || guards < 0;
    if (!failed && (count > INT32_MAX || inputs < 0 || inputs > count)) {
        PyErr_SetString(PyExc_ValueError, "a tape has at most 2**31 instructions, inputs first");
        failed = 1;
    }
    for (; open < 7 && !failed; open++) {
        Py_ssize_t items = open == 1 ? 3 * count : open == 2 ? 2 * count : open < 5 ? count : guards;
        failed = get_buffer(parts[open], &views[open], formats[open], items, 0) < 0;
        open -= failed;
    }
    if (!failed) {
        t = (Tape *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
        failed = t == NULL;
    }
    if (!failed) {
        t->count = count;
        t->inputs = inputs;
        t->guards = guards;
        t->ordered_root = -1;
        t->rules = PySequence_Tuple(rules);
        t->instructions = PyMem_Calloc((size_t)count + 1, sizeof(Instruction));
        t->data = PyMem_Calloc((size_t)count + 1, sizeof(double));
        t->grads = PyMem_Calloc((size_t)count + 1, sizeof(double));
        t->order = PyMem_Calloc((size_t)count + 1, sizeof(int32_t));
        t->stack = PyMem_Calloc(2 * (size_t)count + 2, sizeof(int32_t));
        t->visited = PyMem_Calloc((size_t)count + 1, 1);
        t->guard = PyMem_Calloc((size_t)guards + 1, sizeof(int32_t));
        t->expected = PyMem_Calloc((size_t)guards + 1, sizeof(double));
        failed = !t->rules || !t->instructions || !t->data || !t->grads || !t->order || !t->stack ||
                 !t->visited || !t->guard || !t->expected;
        if (failed && !PyErr_Occurred()) {
            PyErr_NoMemory();
        }
    }
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        const int32_t *operands = (const int32_t *)views[1].buf + 3 * i;
        const double *constants = (const double *)views[2].buf + 2 * i;
        failed = read_instruction(t, i, ((const int32_t *)views[0].buf)[i], operands, constants,
                                  ((const char *)views[3].buf)[i], ((const char *)views[4].buf)[i]) < 0;
    }
    for (Py_ssize_t i = 0; i < guards && !failed; i++) {
        t->guard[i] = ((const int32_t *)views[5].buf)[i];
        t->expected[i] = ((const double *)views[6].buf)[i];
        failed = t->guard[i] < 0 || t->guard[i] >= count ? bad_instruction(t->guard[i]) : 0;
    }
    while (open-- > 0) {
        PyBuffer_Release(&views[open]);
    }
    if (failed) {
        Py_XDECREF((PyObject *)t);
        return NULL;
    }
    return (PyObject *)t;
}

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

/* A row in Python: forward(*xs, *parameters), or local_grads(y, xs, parameters). */
static PyObject *call_row(const Tape *t, Py_ssize_t i, int backward) {
    const Instruction *x = &t->instructions[i];
    PyObject *row = PyTuple_GetItem(t->rules, x->rule), *result = NULL;
    double xs[3];
    for (int j = 0; j < x->arity; j++) {
        xs[j] = t->data[x->operand[j]];
    }
    PyObject *left = floats(xs, x->arity), *right = left ? floats(x->constant, x->parameters) : NULL;
    if (right != NULL && backward) {
        result = PyObject_CallMethod(row, "local_grads", "dOO", t->data[i], left, right);
    } else if (right != NULL) {
        PyObject *all = PySequence_Concat(left, right);
        PyObject *forward = all ? PyObject_GetAttrString(row, "forward") : NULL;
        result = forward ? PyObject_Call(forward, all, NULL) : NULL;
        Py_XDECREF(all);
        Py_XDECREF(forward);
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static int row_forward(const Tape *t, Py_ssize_t i, double *y) {
    PyObject *number = call_row(t, i, 0);
    *y = number ? PyFloat_AsDouble(number) : 0.0;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static int finite_operands(const Tape *t, const Instruction *x) {
    int finite = !(x->code < EXTENDED && has_number((Kind)x->code)) || isfinite(x->constant[0]);
    for (int j = 0; j < x->arity; j++) {
        finite = finite && isfinite(t->data[x->operand[j]]);
    }
    return finite;
}

/* run(inputs): compute everything. Returns (status, position): 0 all is well; 1 guard `position` went
 * the other way; 2 instruction `position` is undefined. */
static PyObject *tape_run(PyObject *self, PyObject *inputs) {
    Tape *t = (Tape *)self;
    Py_buffer view;
    if (get_buffer(inputs, &view, "d", t->inputs, 0) < 0) {
        return NULL;
    }
    memcpy(t->data, view.buf, (size_t)t->inputs * sizeof(double));
    PyBuffer_Release(&view);
    Py_ssize_t undefined = -1;
    for (Py_ssize_t i = t->inputs; i < t->count; i++) {
        const Instruction *x = &t->instructions[i];
        double *data = t->data, y, slope;
        double a = x->arity > 0 ? data[x->operand[0]] : 0.0;
        double b = x->arity > 1 ? data[x->operand[1]] : x->constant[0];
        switch (x->code) {
        case T_CONSTANT: data[i] = x->constant[0]; continue;
        case ADD: case ADD_NUMBER: y = a + b; break;
        case MUL: case MUL_NUMBER: y = a * b; break;
        case POW: y = pow(a, b); break;
        case POWER: y = positive_power(a, b); break;
        case MAXIMUM: case MAXIMUM_NUMBER: y = larger(a, b); break;
        case T_DETACH: y = a; break;
        case T_DIVIDE: y = a / b; break;
        case T_LESS: y = a < b ? 1.0 : 0.0; break;
        case T_LESS_EQUAL: y = a <= b ? 1.0 : 0.0; break;
        case T_EQUAL: y = a <= b ? a >= b ? 1.0 : 0.0 : 0.0; break;
        case T_SELECT: y = a > 0.0 ? b : data[x->operand[2]]; break;
        case T_FIRST_MAX: y = b > a ? b : a; break;
        case T_FIRST_MIN: y = b < a ? b : a; break;
        case T_ROW:
            if (row_forward(t, i, &y) < 0) {
                return NULL;
            }
            break;
        default: elementary((Kind)x->code, a, &y, &slope);
        }
        data[i] = y;
        if (UNLIKELY(!isfinite(y)) && undefined < 0 && x->flagged && finite_operands(t, x)) {
            undefined = i;
        }
    }
    for (Py_ssize_t i = 0; i < t->guards; i++) {
        if (t->data[t->guard[i]] != t->expected[i]) {
            return Py_BuildValue("(in)", 1, i);
        }
    }
    return undefined >= 0 ? Py_BuildValue("(in)", 2, undefined) : Py_BuildValue("(in)", 0, (Py_ssize_t)-1);
}

/* The instructions that root reaches, each after its operands: eager's topological order. */
static void make_order(Tape *t, int32_t root) {
    Py_ssize_t top = 0, count = 0;
    memset(t->visited, 0, (size_t)t->count);
    t->visited[root] = 1;
    t->stack[top++] = root;
    t->stack[top++] = t->instructions[root].first;
    while (top > 0) {
        int32_t node = t->stack[top - 2], next = t->stack[top - 1]++;
        const Instruction *x = &t->instructions[node];
        if (next >= x->arity) {
            t->order[count++] = node;
            top -= 2;
            continue;
        }
        int32_t child = x->operand[next];
        if (!t->visited[child]) {
            t->visited[child] = 1;
            if (child >= t->inputs) { /* inputs pass nothing on, so they need no place */
                t->stack[top++] = child;
                t->stack[top++] = t->instructions[child].first;
            }
        }
    }
    t->ordered = count;
    t->ordered_root = root;
}

static int row_backward(const Tape *t, Py_ssize_t i) {
    const Instruction *x = &t->instructions[i];
    PyObject *slopes = call_row(t, i, 1);
    if (slopes != NULL && (!PyTuple_Check(slopes) || PyTuple_Size(slopes) != x->arity)) {
        bad_instruction(i);
    }
    for (Py_ssize_t j = 0; slopes != NULL && j < x->arity && !PyErr_Occurred(); j++) {
        double slope = PyFloat_AsDouble(PyTuple_GetItem(slopes, j));
        t->grads[x->operand[j]] += share(slope, t->grads[i]);
    }
    Py_XDECREF(slopes);
    return PyErr_Occurred() ? -1 : 0;
}

/* sweep(root, seed, out): the derivative of instruction `root` with respect to every input. */
static PyObject *tape_sweep(PyObject *self, PyObject *args) {
    Tape *t = (Tape *)self;
    Py_ssize_t root;
    double seed;
    PyObject *out;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "ndO:sweep", &root, &seed, &out)) {
        return NULL;
    }
    if (root < 0 || root >= t->count) {
        bad_instruction(root);
        return NULL;
    }
    if (get_buffer(out, &view, "d", t->inputs, 1) < 0) {
        return NULL;
    }
    if (t->ordered_root != root) {
        make_order(t, (int32_t)root);
    }
    double *grads = t->grads;
    const double *data = t->data;
    memset(grads, 0, (size_t)t->count * sizeof(double));
    grads[root] = seed;
    int failed = 0;
    for (Py_ssize_t k = t->ordered - 1; k >= 0 && !failed; k--) {
        Py_ssize_t i = t->order[k];
        const Instruction *x = &t->instructions[i];
        double g = grads[i], y, slope;
        if (g == 0.0 || x->first >= x->arity) {
            continue;
        }
        const int32_t *operand = x->operand;
        double a = data[operand[0]], b = x->arity > 1 ? data[operand[1]] : x->constant[0];
        switch (x->code) {
        case ADD: grads[operand[0]] += g; grads[operand[1]] += g; break;
        case ADD_NUMBER: grads[operand[0]] += g; break;
        case MUL: grads[operand[0]] += share(b, g); grads[operand[1]] += share(a, g); break;
        case MUL_NUMBER: grads[operand[0]] += share(b, g); break;
        case POW: grads[operand[0]] += share(power_slope(a, b), g); break;
        case EXP: grads[operand[0]] += share(data[i], g); break;
        case POWER:
            grads[operand[0]] += share(b * positive_power(a, b - 1.0), g);
            grads[operand[1]] += share(data[i] * log(a), g);
            break;
        case MAXIMUM:
            slope = larger_slope(a, b);
            grads[operand[0]] += share(slope, g);
            grads[operand[1]] += share(1.0 - slope, g);
            break;
        case MAXIMUM_NUMBER: grads[operand[0]] += share(larger_slope(a, b), g); break;
        case T_SELECT: grads[operand[a > 0.0 ? 1 : 2]] += g; break;
        case T_FIRST_MAX: grads[operand[b > a]] += g; break;
        case T_FIRST_MIN: grads[operand[b < a]] += g; break;
        case T_ROW: failed = row_backward(t, i); break;
        case LOG: grads[operand[0]] += share(1.0 / a, g); break;
        case RELU: grads[operand[0]] += a > 0.0 ? g : 0.0; break;
        case TANH: y = data[i]; grads[operand[0]] += share(1.0 - y * y, g); break;
        case SIGMOID: y = data[i]; grads[operand[0]] += share(y * (1.0 - y), g); break;
        case SQRT: grads[operand[0]] += share(0.5 / data[i], g); break;
        case SIN: grads[operand[0]] += share(cos(a), g); break;
        default: grads[operand[0]] += share(-sin(a), g); /* COS */
        }
    }
    memcpy(view.buf, grads, (size_t)t->inputs * sizeof(double));
    PyBuffer_Release(&view);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* point(places, positions): let operand `place` (3 * instruction + slot) read another instruction. */
static PyObject *tape_point(PyObject *self, PyObject *args) {
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
    for (Py_ssize_t k = 0; k < count && !failed; k++) {
        int32_t place = ((const int32_t *)places.buf)[k], position = ((const int32_t *)positions.buf)[k];
        Py_ssize_t i = place / 3;
        if (place < 0 || i >= t->count || place % 3 >= t->instructions[i].arity || position < 0 ||
            position >= i) {
            failed = bad_instruction(i);
            break;
        }
        int32_t *operand = &t->instructions[i].operand[place % 3];
        if (*operand != position && (*operand >= t->inputs || position >= t->inputs)) {
            t->ordered_root = -1; /* another part of the graph is reached now */
        }
        *operand = position;
    }
    PyBuffer_Release(&places);
    PyBuffer_Release(&positions);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *tape_number(PyObject *self, PyObject *position) {
    Tape *t = (Tape *)self;
    Py_ssize_t i = PyLong_AsSsize_t(position);
    if (i < 0 || i >= t->count) {
        return PyErr_Occurred() ? NULL : (bad_instruction(i), NULL);
    }
    return PyFloat_FromDouble(t->data[i]);
}

static PyObject *tape_numbers(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    Tape *t = (Tape *)self;
    return PyByteArray_FromStringAndSize((const char *)t->data, t->count * (Py_ssize_t)sizeof(double));
}

static PyMethodDef tape_methods[] = {
    {"run", tape_run, METH_O, NULL},
    {"sweep", tape_sweep, METH_VARARGS, NULL},
    {"point", tape_point, METH_VARARGS, NULL},
    {"number", tape_number, METH_O, NULL},
    {"numbers", tape_numbers, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot tape_slots[] = {
    {Py_tp_new, tape_new}, {Py_tp_dealloc, tape_dealloc}, {Py_tp_methods, tape_methods}, {0, NULL}};
static PyType_Spec tape_spec = {"chainrule._native.Tape", sizeof(Tape), 0, Py_TPFLAGS_DEFAULT, tape_slots};
