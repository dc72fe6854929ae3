/* Graphs as arrays, part of module.c (one translation unit, so that Node stays private).
 *
 * flatten: nodes as flat arrays of instructions. tape.h: such arrays run forward
 * and backward without a Python object per node. What compiled functions need beside it. The
 * optimisers: SGD and Adam in place, over Values and over float64 or float32 buffers.
 */

/* ----------------------------------------------------------------------------------- buffers --- */

/* Arrays handed to Python are bytearrays: mutable, no numpy headers needed, and making one never
 * starts the garbage collector. */
static void *new_array(PyObject **out, Py_ssize_t count, size_t item) {
    *out = PyByteArray_FromStringAndSize(NULL, count * (Py_ssize_t)item);
    return *out ? PyByteArray_AsString(*out) : NULL;
}

/* A contiguous buffer of `format` items, at least `count` of them; released by the caller. */
static int get_buffer(PyObject *o, Py_buffer *view, const char *format, Py_ssize_t count, int writable) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(o, view, flags) < 0) {
        return -1;
    }
    const char *given = view->format ? view->format : "B";
    Py_ssize_t items = view->itemsize > 0 ? view->len / view->itemsize : 0;
    int fits = strcmp(given, format) == 0 || (*format == 'i' && strcmp(given, "l") == 0 && view->itemsize == 4) ||
               (*format == 'q' && strcmp(given, "l") == 0 && view->itemsize == 8) ||
               (*format == 'B' && strcmp(given, "?") == 0);
    if (!fits || items < count) {
        PyErr_Format(PyExc_TypeError,
                     "needs a contiguous buffer of at least %zd items of format '%s', got %zd of '%s'",
                     count, format, items, given);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

/* -------------------------------------------------------------------- from nodes to arrays ----- */

/* The instruction codes of arrays; a rule's is FIRST_RULE + its position in the list of rules. */
enum { INPUT = 0, CONSTANT = 1, FIRST_RULE = 2 };

static inline int32_t position_of(const Node *n) {
    int64_t position;
    memcpy(&position, &n->grad, sizeof position);
    return (int32_t)position;
}

/* The position of a rule in the list `rules`, adding it if it is new; -1 on error. */
static int rule_position(PyObject *rule, PyObject *rules) {
    Py_ssize_t count = PyList_Size(rules);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyList_GetItem(rules, i) == rule) {
            return (int)i;
        }
    }
    return PyList_Append(rules, rule) < 0 ? -1 : (int)count;
}

typedef struct {
    PyObject *objects[4], *rules;
    int position[KINDS]; /* of each kind's rule in rules, plus one; 0: not there yet */
    int32_t *codes, *operands; /* three operands per instruction, -1 for none */
    double *constants;         /* two per instruction */
    char *number;              /* whether constants[0] stands in the place of the second operand */
} Arrays;

static void drop_arrays(Arrays *x) {
    for (int i = 0; i < 4; i++) {
        Py_CLEAR(x->objects[i]);
    }
    Py_CLEAR(x->rules);
}

static int make_arrays(Arrays *x, Py_ssize_t count) {
    memset(x, 0, sizeof *x);
    if (count > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a recording holds at most 2**31 instructions");
        return -1;
    }
    if ((x->codes = new_array(&x->objects[0], count, sizeof(int32_t))) == NULL ||
        (x->operands = new_array(&x->objects[1], count, 3 * sizeof(int32_t))) == NULL ||
        (x->constants = new_array(&x->objects[2], count, 2 * sizeof(double))) == NULL ||
        (x->number = new_array(&x->objects[3], count, 1)) == NULL) {
        drop_arrays(x);
        return -1;
    }
    return 0;
}

/* One node as instruction i; 1: done, 0: it uses a node nobody told of, or is a custom operation. */
static int flatten_node(const Node *n, Arrays *x, Py_ssize_t i, const Node **unknown) {
    Kind kind = kind_of(n);
    int32_t *operands = &x->operands[3 * i];
    double *constants = &x->constants[2 * i];
    operands[0] = operands[1] = operands[2] = -1;
    constants[0] = constants[1] = 0.0;
    x->number[i] = (char)has_number(kind);
    if (is_leaf(kind)) {
        x->codes[i] = CONSTANT;
        constants[0] = n->data;
        return 1;
    }
    PyObject *rule = kind == EXTENDED ? extension_of(n)->rule : rows[kind];
    Py_ssize_t count = kind == EXTENDED ? extension_of(n)->count : 2;
    PyObject *parameters = kind == EXTENDED ? extension_of(n)->parameters : empty_tuple;
    if (kind == EXTENDED && (count > 3 || PyTuple_Size(parameters) > 2 || PyUnicode_Check(rule))) {
        *unknown = n;
        return 0;
    }
    int position = kind == EXTENDED ? 0 : x->position[kind];
    if (position == 0) {
        position = 1 + rule_position(rule, x->rules);
        if (position == 0) {
            return -1;
        }
        x->position[kind] = kind == EXTENDED ? 0 : position;
    }
    x->codes[i] = FIRST_RULE + position - 1;
    if (has_number(kind)) {
        constants[0] = number_of(n, kind);
    } else if (kind == POW) {
        constants[0] = n->slope[1];
    }
    for (Py_ssize_t j = 0; kind == EXTENDED && j < PyTuple_Size(parameters); j++) {
        constants[j] = PyFloat_AsDouble(PyTuple_GetItem(parameters, j)); /* floats: see value_build */
    }
    for (Py_ssize_t j = 0; j < count; j++) {
        const Node *child = walk_child(n, j);
        if (child != NULL && !(child->child[1] & MARK)) {
            *unknown = child;
            return 0;
        }
        operands[j] = child ? position_of(child) : -1;
    }
    return 1;
}

/* The nodes as arrays, the first `inputs` of them as inputs. Their positions are kept in their grads,
 * and a mark on each, while no other code can look. */
static int flatten_nodes(Saved *nodes, Py_ssize_t inputs, Py_ssize_t count, Arrays *x,
                         const Node **unknown) {
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t position = i;
        nodes[i].old = nodes[i].node->grad;
        memcpy(&nodes[i].node->grad, &position, sizeof position);
        nodes[i].node->child[1] |= MARK;
    }
    int answer = 1;
    for (Py_ssize_t i = 0; i < count && answer == 1; i++) {
        if (i < inputs) {
            x->codes[i] = INPUT;
            x->operands[3 * i] = x->operands[3 * i + 1] = x->operands[3 * i + 2] = -1;
            x->constants[2 * i] = x->constants[2 * i + 1] = 0.0;
            x->number[i] = 0;
        } else {
            answer = flatten_node(nodes[i].node, x, i, unknown);
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        nodes[i].node->grad = nodes[i].old;
        nodes[i].node->child[1] &= ~MARK;
    }
    return answer;
}

/* flatten(inputs, nodes): (codes, operands, constants, number, rules, unknown), where unknown is a
 * Value that is used but in neither list, or a custom operation, or None. */
static PyObject *flatten(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *inputs, *made, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!O!:flatten", &PyList_Type, &inputs, &PyList_Type, &made)) {
        return NULL;
    }
    Py_ssize_t first = PyList_Size(inputs), count = first + PyList_Size(made);
    PyObject *rules = PyList_New(0); /* may start the garbage collector: before anything is marked */
    Saved *nodes = rules ? PyMem_Malloc((size_t)(count + 1) * sizeof(Saved)) : NULL;
    Arrays x;
    if (nodes == NULL || make_arrays(&x, count) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        PyMem_Free(nodes);
        Py_XDECREF(rules);
        return NULL;
    }
    x.rules = rules;
    const Node *unknown = NULL;
    int answer = -1;
    Py_ssize_t i = 0;
    for (; i < count; i++) {
        PyObject *o = i < first ? PyList_GetItem(inputs, i) : PyList_GetItem(made, i - first);
        if (o == NULL || !is_value(o) || (((Node *)o)->child[1] & MARK)) {
            break;
        }
        nodes[i].node = (Node *)o;
        ((Node *)o)->child[1] |= MARK;
    }
    if (i == count) {
        answer = flatten_nodes(nodes, first, count, &x, &unknown);
    }
    for (Py_ssize_t j = 0; j < i; j++) {
        nodes[j].node->child[1] &= ~MARK;
    }
    if (i < count) {
        PyErr_Format(PyExc_ValueError, "entry %zd is not a Value, or is there twice", i);
    } else if (answer >= 0) {
        result = Py_BuildValue("(OOOOON)", x.objects[0], x.objects[1], x.objects[2], x.objects[3],
                               rules, Py_NewRef(unknown ? (PyObject *)unknown : Py_None));
    }
    drop_arrays(&x);
    PyMem_Free(nodes);
    return result;
}

#include "tape.h"

/* --------------------------------------------------------------------- for compiled functions -- */

/* gather(values, out): the numbers of a tuple of Values. */
static PyObject *gather(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *out;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "O!O:gather", &PyTuple_Type, &values, &out)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(values);
    if (get_buffer(out, &view, "d", count, 1) < 0) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *v = PyTuple_GetItem(values, i);
        if (!is_value(v)) {
            PyBuffer_Release(&view);
            return PyErr_Format(PyExc_TypeError, "entry %zd is not a Value", i);
        }
        ((double *)view.buf)[i] = ((Node *)v)->data;
    }
    PyBuffer_Release(&view);
    return Py_NewRef(Py_None);
}

/* compiled_node(y, name, children, slopes): a custom operation, slopes from a float64 buffer. */
static PyObject *compiled_node(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *name, *children, *out;
    Py_buffer view;
    double y;
    if (!PyArg_ParseTuple(args, "dUO!O:compiled_node", &y, &name, &PyTuple_Type, &children, &out)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(children);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_value(PyTuple_GetItem(children, i))) {
            return PyErr_Format(PyExc_TypeError, "child %zd is not a Value", i);
        }
    }
    if (get_buffer(out, &view, "d", count, 0) < 0) {
        return NULL;
    }
    Node *n = new_leaf(y);
    if (n != NULL && count > 0 && build_extended(n, name, empty_tuple, children, view.buf) < 0) {
        Py_DECREF((PyObject *)n);
        n = NULL;
    }
    PyBuffer_Release(&view);
    return (PyObject *)n;
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
    {"flatten", flatten, METH_VARARGS, NULL},                                                     \
    {"gather", gather, METH_VARARGS, NULL},                                                       \
    {"compiled_node", compiled_node, METH_VARARGS, NULL},                                         \
    {"adam", adam, METH_VARARGS, NULL},                                                           \
    {"sgd", sgd, METH_VARARGS, NULL},                                                             \
    {"adam_array", adam_array, METH_VARARGS, NULL},                                               \
    {"sgd_array", sgd_array, METH_VARARGS, NULL},
