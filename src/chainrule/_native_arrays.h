/* Graphs as arrays, part of _native.c (one translation unit, so that Node stays private).
 *
 * linearize: a graph as flat arrays in topological order. The tape: such arrays run forward and
 * backward without a Python object per node. The optimisers: SGD and Adam in place, over Values and
 * over float64 or float32 buffers.
 */

/* --------------------------------------------------------------------------------- linearize --- */

/* Arrays handed to Python are bytearrays: mutable, no numpy headers needed. */
static void *new_array(PyObject **out, Py_ssize_t count, size_t item) {
    *out = PyByteArray_FromStringAndSize(NULL, count * (Py_ssize_t)item);
    return *out ? PyByteArray_AsString(*out) : NULL;
}

/* The tape's code of an extended node: KINDS + the position of its rule in `rules`; -1 on error. */
static int extended_code(const Extension *x, PyObject *rules) {
    if (PyUnicode_Check(x->rule)) {
        PyErr_Format(PyExc_TypeError,
                     "the custom operation %R cannot be put on a tape: it has a value and local "
                     "gradients, but no rule to compute them again", x->rule);
        return -1;
    }
    if (x->count > 2 || PyTuple_Size(x->parameters) > 2) {
        PyErr_Format(PyExc_TypeError, "%R has too many operands for a tape", x->rule);
        return -1;
    }
    Py_ssize_t count = PyList_Size(rules);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyList_GetItem(rules, i) == x->rule) {
            return KINDS + (int)i;
        }
    }
    return PyList_Append(rules, x->rule) < 0 ? -1 : KINDS + (int)count;
}

static inline int32_t position_of(const Node *n) {
    int64_t position;
    memcpy(&position, &n->grad, sizeof position);
    return (int32_t)position;
}

static PyObject *linearize(PyObject *Py_UNUSED(module), PyObject *root) {
    if (!is_value(root)) {
        return PyErr_Format(PyExc_TypeError, "linearize takes a Value");
    }
    Scratch s = take_scratch();
    PyObject *arrays[4] = {NULL}, *rules = NULL, *leaves = NULL, *result = NULL;
    if (walk((Node *)root, &s, LIST_LEAVES) < 0) {
        give_scratch(&s);
        return NULL;
    }
    end_walk(&s, 0);
    Py_ssize_t count = COUNT(s.order, Node *);
    Node **order = (Node **)s.order.bytes;
    int32_t *codes = new_array(&arrays[0], count, sizeof(int32_t));
    int32_t *operands = codes ? new_array(&arrays[1], count, 2 * sizeof(int32_t)) : NULL;
    double *constants = operands ? new_array(&arrays[2], count, 2 * sizeof(double)) : NULL;
    double *data = constants ? new_array(&arrays[3], count, sizeof(double)) : NULL;
    rules = data ? PyList_New(0) : NULL;
    leaves = rules ? PyList_New(COUNT(s.leaves, Saved)) : NULL;
    if (leaves == NULL || count > INT32_MAX) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < COUNT(s.leaves, Saved); i++) {
        PyList_SetItem(leaves, i, Py_NewRef((PyObject *)ITEM(s.leaves, Saved, i).node));
    }
    int failed = 0;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        Node *n = order[i];
        Kind kind = kind_of(n);
        codes[i] = is_leaf(kind) ? LEAF : (int32_t)kind;
        data[i] = n->data;
        constants[2 * i] = constants[2 * i + 1] = 0.0;
        if (kind == EXTENDED) {
            Extension *x = extension_of(n);
            codes[i] = extended_code(x, rules);
            failed = codes[i] < 0;
            for (Py_ssize_t j = 0; !failed && j < PyTuple_Size(x->parameters); j++) {
                constants[2 * i + j] = PyFloat_AsDouble(PyTuple_GetItem(x->parameters, j));
            }
        } else if (has_number(kind)) {
            constants[2 * i] = number_of(n, kind);
        } else if (kind == POW) {
            constants[2 * i] = n->slope[1];
        }
    }
    if (!failed) {
        /* Each node's position goes into its grad while no other code can look, then grads return. */
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t position = i;
            memcpy(&order[i]->grad, &position, sizeof position);
        }
        for (Py_ssize_t i = 0; i < count; i++) {
            for (int j = 0; j < 2; j++) {
                Node *child = walk_child(order[i], j);
                operands[2 * i + j] = child ? position_of(child) : -1;
            }
        }
        end_walk(&s, 1);
        result = Py_BuildValue("(OOOOOO)", arrays[0], arrays[1], arrays[2], arrays[3], rules, leaves);
    }
done:
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(arrays[i]);
    }
    Py_XDECREF(rules);
    Py_XDECREF(leaves);
    give_scratch(&s);
    return result;
}

/* ---------------------------------------------------------------------------------- the tape --- */

/* A contiguous buffer of `format` items, at least `count` of them; released by the caller. */
static int get_buffer(PyObject *o, Py_buffer *view, const char *format, Py_ssize_t count, int writable) {
    if (PyObject_GetBuffer(o, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        return -1;
    }
    const char *given = view->format ? view->format : "B";
    int fits = strcmp(given, format) == 0 ||
               (format[0] == 'i' && given[0] == 'l' && view->itemsize == 4 && given[1] == 0);
    if (!fits || view->len / view->itemsize < count) {
        PyErr_Format(PyExc_TypeError, "needs a contiguous buffer of at least %zd items of format '%s', "
                     "got %zd of '%s'", count, format, view->len / view->itemsize, given);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

/* The operands and parameters of one extended instruction, as a tuple of floats each. */
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

typedef struct {
    PyObject *rules;
    Py_ssize_t count;
    const int32_t *codes, *operands;
    const double *constants;
    double *data;
    Py_buffer views[4];
} Tape;

static void close_tape(Tape *t) {
    for (int i = 0; i < 4; i++) {
        PyBuffer_Release(&t->views[i]);
    }
}

static int open_tape(Tape *t, PyObject *const *parts, PyObject *rules) {
    memset(t, 0, sizeof *t);
    Py_ssize_t size = PyObject_Size(parts[0]);
    if (size < 0 || get_buffer(parts[0], &t->views[0], "i", size, 0) < 0) {
        return -1;
    }
    if (get_buffer(parts[1], &t->views[1], "i", 2 * size, 0) < 0 ||
        get_buffer(parts[2], &t->views[2], "d", 2 * size, 0) < 0 ||
        get_buffer(parts[3], &t->views[3], "d", size, 1) < 0) {
        close_tape(t);
        return -1;
    }
    t->rules = rules;
    t->count = size;
    t->codes = t->views[0].buf;
    t->operands = t->views[1].buf;
    t->constants = t->views[2].buf;
    t->data = t->views[3].buf;
    /* One look over the instructions, so that running them needs no bounds check. */
    Py_ssize_t rule_count = PyList_Size(rules);
    for (Py_ssize_t i = 0; i < size; i++) {
        int32_t code = t->codes[i], a = t->operands[2 * i], b = t->operands[2 * i + 1];
        int needs = code == LEAF ? 0 : code == ADD || code == MUL || code == MAXIMUM ? 2 : 1;
        if (code < LEAF || code == EXTENDED || code >= KINDS + rule_count || a >= i || b >= i ||
            a < (needs ? 0 : -1) || b < (needs == 2 ? 0 : -1)) {
            PyErr_Format(PyExc_ValueError, "instruction %zd of the tape is malformed", i);
            close_tape(t);
            return -1;
        }
    }
    return 0;
}

/* Call one method of a row for an extended instruction: forward(*xs, *parameters) or
 * local_grads(y, xs, parameters). */
static PyObject *call_row(const Tape *t, Py_ssize_t i, int backward) {
    PyObject *row = PyList_GetItem(t->rules, t->codes[i] - KINDS), *result = NULL;
    const int32_t *operand = &t->operands[2 * i];
    double xs[2];
    Py_ssize_t arity = 0;
    while (arity < 2 && operand[arity] >= 0) {
        xs[arity] = t->data[operand[arity]];
        arity++;
    }
    PyObject *names = PyObject_GetAttrString(row, "parameters");
    Py_ssize_t extra = names ? PyObject_Size(names) : -1;
    Py_XDECREF(names);
    PyObject *left = extra >= 0 && extra <= 2 ? floats(xs, arity) : NULL;
    PyObject *right = left ? floats(&t->constants[2 * i], extra) : NULL;
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

static int extended_forward(const Tape *t, Py_ssize_t i, double *y) {
    PyObject *number = call_row(t, i, 0);
    *y = number ? PyFloat_AsDouble(number) : 0.0;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* tape_forward(codes, operands, constants, data, rules): compute data from its leaves. Returns the
 * position of the first instruction that made a non-finite value of finite operands, or -1. */
static PyObject *tape_forward(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *parts[4], *rules;
    Tape t;
    if (!PyArg_ParseTuple(args, "OOOOO!:tape_forward", &parts[0], &parts[1], &parts[2], &parts[3],
                          &PyList_Type, &rules) ||
        open_tape(&t, parts, rules) < 0) {
        return NULL;
    }
    Py_ssize_t undefined = -1;
    int failed = 0;
    for (Py_ssize_t i = 0; i < t.count && !failed; i++) {
        int32_t code = t.codes[i], first = t.operands[2 * i], second = t.operands[2 * i + 1];
        if (code == LEAF) {
            continue;
        }
        double a = t.data[first], b = second >= 0 ? t.data[second] : t.constants[2 * i], y, slope;
        switch (code) {
        case ADD: case ADD_NUMBER: y = a + b; break;
        case MUL: case MUL_NUMBER: y = a * b; break;
        case POW: y = pow(a, b); break;
        case MAXIMUM: case MAXIMUM_NUMBER: y = larger(a, b); break;
        default:
            if (code < KINDS) {
                elementary((Kind)code, a, &y, &slope);
            } else {
                failed = extended_forward(&t, i, &y);
            }
        }
        t.data[i] = y;
        if (UNLIKELY(!isfinite(y)) && undefined < 0 && isfinite(a) && (second < 0 || isfinite(b))) {
            undefined = i;
        }
    }
    close_tape(&t);
    return failed ? NULL : PyLong_FromSsize_t(undefined);
}

static int extended_backward(const Tape *t, Py_ssize_t i, double *grads) {
    PyObject *slopes = call_row(t, i, 1);
    for (Py_ssize_t j = 0; slopes != NULL && j < PyTuple_Size(slopes); j++) {
        grads[t->operands[2 * i + j]] += PyFloat_AsDouble(PyTuple_GetItem(slopes, j)) * grads[i];
    }
    Py_XDECREF(slopes);
    return PyErr_Occurred() ? -1 : 0;
}

/* tape_backward(codes, operands, constants, data, rules, grads): sweep from the last instruction to
 * the first; grads holds the seeds and receives every gradient. */
static PyObject *tape_backward(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *parts[4], *rules, *out;
    Tape t;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OOOOO!O:tape_backward", &parts[0], &parts[1], &parts[2], &parts[3],
                          &PyList_Type, &rules, &out) ||
        open_tape(&t, parts, rules) < 0) {
        return NULL;
    }
    if (get_buffer(out, &view, "d", t.count, 1) < 0) {
        close_tape(&t);
        return NULL;
    }
    double *grads = view.buf;
    int failed = 0;
    for (Py_ssize_t i = t.count - 1; i >= 0 && !failed; i--) {
        int32_t code = t.codes[i], first = t.operands[2 * i], second = t.operands[2 * i + 1];
        double g = grads[i], y, slope;
        if (g == 0.0 || code == LEAF) {
            continue;
        }
        double a = t.data[first], b = second >= 0 ? t.data[second] : t.constants[2 * i];
        switch (code) {
        case ADD: grads[first] += 1.0 * g; grads[second] += 1.0 * g; break;
        case ADD_NUMBER: grads[first] += 1.0 * g; break;
        case MUL: grads[first] += b * g; grads[second] += a * g; break;
        case MUL_NUMBER: grads[first] += b * g; break;
        case POW: grads[first] += power_slope(a, b) * g; break;
        case MAXIMUM:
            slope = larger_slope(a, b);
            grads[first] += slope * g;
            grads[second] += (1.0 - slope) * g;
            break;
        case MAXIMUM_NUMBER: grads[first] += larger_slope(a, b) * g; break;
        case EXP: grads[first] += t.data[i] * g; break;
        default:
            if (code < KINDS) {
                elementary((Kind)code, a, &y, &slope);
                grads[first] += slope * g;
            } else {
                failed = extended_backward(&t, i, grads);
            }
        }
    }
    PyBuffer_Release(&view);
    close_tape(&t);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* -------------------------------------------------------------------------------- optimisers --- */

typedef struct {
    double lr, beta1, beta2, epsilon, bias1, bias2, decay;
} AdamSettings;

/* The Values of a list or tuple as a new tuple; every one of them checked. */
static PyObject *values_tuple(PyObject *values) {
    PyObject *tuple = PySequence_Tuple(values);
    for (Py_ssize_t i = 0; tuple != NULL && i < PyTuple_Size(tuple); i++) {
        if (!is_value(PyTuple_GetItem(tuple, i))) {
            PyErr_Format(PyExc_TypeError, "parameter %zd is not a Value", i);
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* adam(values, m, v, lr, beta1, beta2, epsilon, bias1, bias2, decay): microgpt's update to the last
 * bit, which means pow for its ** 2 and ** 0.5. Nothing is changed unless everything fits. */
static PyObject *adam(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *first, *second;
    AdamSettings o;
    if (!PyArg_ParseTuple(args, "OOOddddddd:adam", &values, &first, &second, &o.lr, &o.beta1, &o.beta2,
                          &o.epsilon, &o.bias1, &o.bias2, &o.decay)) {
        return NULL;
    }
    PyObject *nodes = values_tuple(values);
    if (nodes == NULL) {
        return NULL;
    }
    Py_buffer m_view, v_view;
    Py_ssize_t count = PyTuple_Size(nodes);
    if (get_buffer(first, &m_view, "d", count, 1) < 0) {
        Py_DECREF(nodes);
        return NULL;
    }
    if (get_buffer(second, &v_view, "d", count, 1) < 0) {
        PyBuffer_Release(&m_view);
        Py_DECREF(nodes);
        return NULL;
    }
    double *m = m_view.buf, *v = v_view.buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        Node *p = (Node *)PyTuple_GetItem(nodes, i);
        double g = p->grad;
        if (o.decay != 0.0) {
            p->data -= o.lr * o.decay * p->data;
        }
        m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g;
        v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * pow(g, 2.0);
        p->data -= o.lr * (m[i] / o.bias1) / (pow(v[i] / o.bias2, 0.5) + o.epsilon);
    }
    PyBuffer_Release(&m_view);
    PyBuffer_Release(&v_view);
    Py_DECREF(nodes);
    return Py_NewRef(Py_None);
}

/* sgd(values, velocity, lr, momentum, decay); velocity may be None without momentum. */
static PyObject *sgd(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *velocity;
    double lr, momentum, decay;
    if (!PyArg_ParseTuple(args, "OOddd:sgd", &values, &velocity, &lr, &momentum, &decay)) {
        return NULL;
    }
    PyObject *nodes = values_tuple(values);
    Py_buffer view;
    if (nodes == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(nodes);
    double *speed = NULL;
    if (velocity != Py_None) {
        if (get_buffer(velocity, &view, "d", count, 1) < 0) {
            Py_DECREF(nodes);
            return NULL;
        }
        speed = view.buf;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Node *p = (Node *)PyTuple_GetItem(nodes, i);
        double step = p->grad;
        if (decay != 0.0) {
            p->data -= lr * decay * p->data;
        }
        if (speed != NULL) {
            step = speed[i] = momentum * speed[i] + step;
        }
        p->data -= lr * step;
    }
    if (speed != NULL) {
        PyBuffer_Release(&view);
    }
    Py_DECREF(nodes);
    return Py_NewRef(Py_None);
}

/* The same over buffers, with * and sqrt, which vectorise. */
#define ARRAY_KERNELS(real, root)                                                                 \
    static void adam_##real(real *p, const real *g, real *m, real *v, Py_ssize_t count,           \
                            const AdamSettings *o) {                                              \
        const real lr = (real)o->lr, b1 = (real)o->beta1, b2 = (real)o->beta2;                    \
        const real c1 = (real)(1.0 - o->beta1), c2 = (real)(1.0 - o->beta2);                      \
        const real n1 = (real)o->bias1, n2 = (real)o->bias2, eps = (real)o->epsilon;              \
        const real shrink = (real)(o->lr * o->decay);                                             \
        for (Py_ssize_t i = 0; i < count; i++) {                                                  \
            real q = p[i] - shrink * p[i];                                                        \
            m[i] = b1 * m[i] + c1 * g[i];                                                         \
            v[i] = b2 * v[i] + c2 * (g[i] * g[i]);                                                \
            p[i] = q - lr * (m[i] / n1) / (root(v[i] / n2) + eps);                                \
        }                                                                                         \
    }                                                                                             \
    static void sgd_##real(real *p, const real *g, real *speed, Py_ssize_t count, double lr,      \
                           double momentum, double decay) {                                       \
        const real rate = (real)lr, keep = (real)momentum, shrink = (real)(lr * decay);           \
        for (Py_ssize_t i = 0; i < count; i++) {                                                  \
            real q = p[i] - shrink * p[i], step = g[i];                                           \
            if (speed != NULL) {                                                                  \
                step = speed[i] = keep * speed[i] + step;                                         \
            }                                                                                     \
            p[i] = q - rate * step;                                                               \
        }                                                                                         \
    }
ARRAY_KERNELS(double, sqrt)
ARRAY_KERNELS(float, sqrtf)

/* Buffers of one floating type and length; the first decides both. Writable but for the second. */
static int get_buffers(PyObject **objects, Py_buffer *views, int count, int *is_float) {
    for (int i = 0; i < count; i++) {
        if (i == 0) {
            if (PyObject_GetBuffer(objects[0], &views[0], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
                return -1;
            }
            *is_float = views[0].format != NULL && strcmp(views[0].format, "f") == 0;
            PyBuffer_Release(&views[0]);
        }
        Py_ssize_t items = i == 0 ? 0 : views[0].len / views[0].itemsize;
        if (get_buffer(objects[i], &views[i], *is_float ? "f" : "d", items, i != 1) < 0 ||
            (i > 0 && views[i].len != views[0].len &&
             (PyBuffer_Release(&views[i]),
              PyErr_SetString(PyExc_ValueError, "the arrays differ in length"), 1))) {
            while (i-- > 0) {
                PyBuffer_Release(&views[i]);
            }
            return -1;
        }
    }
    return 0;
}

/* adam_array(p, grad, m, v, lr, beta1, beta2, epsilon, bias1, bias2, decay) */
static PyObject *adam_array(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[4];
    Py_buffer views[4];
    AdamSettings o;
    int is_float;
    if (!PyArg_ParseTuple(args, "OOOOddddddd:adam_array", &objects[0], &objects[1], &objects[2],
                          &objects[3], &o.lr, &o.beta1, &o.beta2, &o.epsilon, &o.bias1, &o.bias2,
                          &o.decay) ||
        get_buffers(objects, views, 4, &is_float) < 0) {
        return NULL;
    }
    Py_ssize_t count = views[0].len / views[0].itemsize;
    if (is_float) {
        adam_float(views[0].buf, views[1].buf, views[2].buf, views[3].buf, count, &o);
    } else {
        adam_double(views[0].buf, views[1].buf, views[2].buf, views[3].buf, count, &o);
    }
    for (int i = 0; i < 4; i++) {
        PyBuffer_Release(&views[i]);
    }
    return Py_NewRef(Py_None);
}

/* sgd_array(p, grad, velocity, lr, momentum, decay); velocity may be None. */
static PyObject *sgd_array(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[3];
    Py_buffer views[3];
    double lr, momentum, decay;
    int is_float;
    if (!PyArg_ParseTuple(args, "OOOddd:sgd_array", &objects[0], &objects[1], &objects[2], &lr,
                          &momentum, &decay)) {
        return NULL;
    }
    int used = objects[2] == Py_None ? 2 : 3;
    if (get_buffers(objects, views, used, &is_float) < 0) {
        return NULL;
    }
    Py_ssize_t count = views[0].len / views[0].itemsize;
    void *speed = used == 3 ? views[2].buf : NULL;
    if (is_float) {
        sgd_float(views[0].buf, views[1].buf, speed, count, lr, momentum, decay);
    } else {
        sgd_double(views[0].buf, views[1].buf, speed, count, lr, momentum, decay);
    }
    for (int i = 0; i < used; i++) {
        PyBuffer_Release(&views[i]);
    }
    return Py_NewRef(Py_None);
}

#define ARRAY_FUNCTIONS                                                                           \
    {"linearize", linearize, METH_O, NULL},                                                       \
    {"tape_forward", tape_forward, METH_VARARGS, NULL},                                           \
    {"tape_backward", tape_backward, METH_VARARGS, NULL},                                         \
    {"adam", adam, METH_VARARGS, NULL},                                                           \
    {"sgd", sgd, METH_VARARGS, NULL},                                                             \
    {"adam_array", adam_array, METH_VARARGS, NULL},                                               \
    {"sgd_array", sgd_array, METH_VARARGS, NULL},
