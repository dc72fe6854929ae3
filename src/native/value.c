/* The type Value: attributes, construction, and the table of its methods.
 *
 * What is seldom used (printing, copying, the constructor's other forms, rows of the op table without a
 * case in C) stays in Python; core/native.py puts it on the class.
 */
#include "standins.h"
#include "value.h"

/* ------------------------------------------------------------------------------- attributes ---- */

static PyObject *get_data(PyObject *self, void *Py_UNUSED(closure)) {
    if (UNLIKELY(recorder != NULL)) {
        Watched *owner = watched_recorder();
        return owner ? new_stand_in(owner, self) : ask_recorder(DATA_OF, self);
    }
    return PyFloat_FromDouble(((Node *)self)->data);
}
static PyObject *get_number(PyObject *self, void *Py_UNUSED(closure)) {
    return PyFloat_FromDouble(((Node *)self)->data);
}
static PyObject *get_grad(PyObject *self, void *Py_UNUSED(closure)) {
    if (forbidden("reading .grad") || (UNLIKELY(grad_off) && asks_graph((Node *)self) < 0)) {
        return NULL;
    }
    return PyFloat_FromDouble(((Node *)self)->grad);
}

static int no_deleting(PyObject *value, const char *name) {
    if (value == NULL) {
        PyErr_Format(PyExc_AttributeError, "property '%s' of 'Value' object has no deleter", name);
    }
    return value == NULL;
}

static int set_data(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    double number;
    if (forbidden("setting .data") || no_deleting(value, "data") ||
        real_number(value, "a Value's data", &number) < 0) {
        return -1;
    }
    ((Node *)self)->data = number;
    return 0;
}

static int set_grad(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    Node *n = (Node *)self;
    double number;
    if (forbidden("setting .grad") || (UNLIKELY(grad_off) && asks_graph(n) < 0) || no_deleting(value, "grad") ||
        real_number(value, "a Value's grad", &number) < 0) {
        return -1;
    }
    /* The gradient of a number operand is implied by this one: settle it first. */
    Kind kind = kind_of(n);
    if (has_number(kind) && (n->child[1] & SWEPT) && n->grad != 0.0 && materialise(n, kind) < 0) {
        return -1;
    }
    n->child[1] &= ~SWEPT;
    n->grad = number;
    return 0;
}

static PyObject *get_label(PyObject *self, void *Py_UNUSED(closure)) {
    Node *n = (Node *)self;
    PyObject *label = n->child[1] & NOTED ? find_note(n)->label : NULL;
    return Py_NewRef(label ? label : empty_string);
}

static int set_label(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (no_deleting(value, "label")) {
        return -1;
    }
    if (!PyUnicode_Check(value)) {
        PyObject *error = PyObject_CallMethod(errors_module, "bad_label", "(O)", value);
        if (error != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
        return -1;
    }
    return set_note((Node *)self, value, 0);
}

static PyObject *get_location(PyObject *self, void *Py_UNUSED(closure)) {
    Node *n = (Node *)self;
    PyObject *location = n->child[1] & NOTED ? find_note(n)->location : NULL;
    return Py_NewRef(location ? location : Py_None);
}

static PyObject *value_locate(PyObject *self, PyObject *line) {
    if (!PyUnicode_Check(line)) {
        PyErr_SetString(PyExc_TypeError, "a location is a str");
        return NULL;
    }
    return set_note((Node *)self, line, 1) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *get_rule(PyObject *self, void *Py_UNUSED(closure)) {
    Node *n = (Node *)self;
    Kind kind = kind_of(n);
    if (asks_graph(n) < 0) {
        return NULL;
    }
    return Py_NewRef(kind == UNBUILT ? Py_None
                     : is_leaf(kind) ? empty_string
                     : kind == EXTENDED ? extension_of(n)->rule
                                        : rows[kind]);
}

static PyObject *get_parameters(PyObject *self, void *Py_UNUSED(closure)) {
    Node *n = (Node *)self;
    if (asks_graph(n) < 0) {
        return NULL;
    }
    switch (kind_of(n)) {
    case POW: return Py_BuildValue("(d)", n->slope[1]);
    case EXTENDED: return Py_NewRef(extension_of(n)->parameters);
    default: return Py_NewRef(empty_tuple);
    }
}

static PyObject *get_op(PyObject *self, void *closure) {
    Node *n = (Node *)self;
    PyObject *rule = kind_of(n) == UNBUILT ? Py_NewRef(empty_string) : get_rule(self, closure);
    if (rule == NULL || PyUnicode_CheckExact(rule)) {
        return rule;
    }
    PyObject *parameters = get_parameters(self, closure), *symbol = NULL;
    if (parameters != NULL && PyUnicode_Check(rule)) { /* a name, and more: see core/condensed.py */
        symbol = PyObject_Str(rule);
    } else if (parameters != NULL) {
        symbol = PyObject_CallMethod(rule, "display", "(O)", parameters);
    }
    Py_DECREF(rule);
    Py_XDECREF(parameters);
    return symbol;
}

static Py_ssize_t child_count(const Node *n) {
    Kind kind = kind_of(n);
    if (is_leaf(kind)) {
        return 0;
    }
    if (kind == EXTENDED) {
        return extension_of(n)->count;
    }
    return child_of(n, 1) != NULL || has_number(kind) ? 2 : 1;
}

static PyObject *get_children(PyObject *self, void *Py_UNUSED(closure)) {
    Node *n = (Node *)self;
    Kind kind = kind_of(n);
    if (asks_graph(n) < 0 || (has_number(kind) && materialise(n, kind) < 0)) {
        return NULL;
    }
    Py_ssize_t count = child_count(n);
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyTuple_SetItem(tuple, i, Py_NewRef((PyObject *)walk_child(n, i)));
    }
    return tuple;
}

static PyObject *get_local_grads(PyObject *self, void *Py_UNUSED(closure)) {
    if (forbidden("reading local_grads") || asks_graph((Node *)self) < 0) {
        return NULL;
    }
    Node *n = (Node *)self;
    Kind kind = kind_of(n);
    Py_ssize_t count = child_count(n);
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        double slope = kind == EXTENDED                ? extension_of(n)->slopes[i]
                       : i == 1 && has_number(kind) ? number_slope(n, kind)
                                                       : n->slope[i];
        PyObject *number = PyFloat_FromDouble(slope);
        if (number == NULL) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, i, number);
    }
    return tuple;
}

/* ----------------------------------------------------------------------------- construction ---- */

static PyObject *full_init; /* Protocols.__init__ */

static PyObject *value_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kw)) {
    if (type == ValueType) {
        Node *n = bare_node(0.0);
        if (n != NULL) {
            set_kind(n, UNBUILT, NULL, NULL);
        }
        return (PyObject *)n;
    }
    PyObject *self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    live_nodes += self != NULL; /* all zero: UNBUILT */
    return self;
}

static void already_built(void) {
    PyObject *error = PyObject_CallMethod(errors_module, "already_built", NULL);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
}

static int value_init(PyObject *self, PyObject *args, PyObject *keywords) {
    Node *n = (Node *)self;
    if (PyTuple_Size(args) == 1 && keywords == NULL && kind_of(n) == UNBUILT && recorder == NULL) {
        double number;
        if (real_number(PyTuple_GetItem(args, 0), "a Value's data", &number) < 0) {
            return -1;
        }
        if (kind_of(n) != UNBUILT) { /* __float__ may have built it meanwhile */
            already_built();
            return -1;
        }
        n->data = number;
        n->grad = 0.0;
        n->child[0] |= LEAF;
        if (n->child[1] & NOTED) {
            drop_note(n);
        }
        return 0;
    }
    Py_ssize_t count = PyTuple_Size(args);
    PyObject *all = PyTuple_New(count + 1);
    if (all == NULL) {
        return -1;
    }
    PyTuple_SetItem(all, 0, Py_NewRef(self));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(args, i)));
    }
    PyObject *done = PyObject_Call(full_init, all, keywords);
    Py_DECREF(all);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The compact kind of a row with this many children, or EXTENDED. */
static Kind compact_kind(PyObject *rule, PyObject *parameters, Py_ssize_t count) {
    for (Kind kind = ADD; kind < EXTENDED; kind++) {
        if (rows[kind] != rule || has_number(kind)) {
            continue;
        }
        int binary = kind == ADD || kind == MUL || kind == MAXIMUM || kind == POWER;
        if (count == 1 + binary && PyTuple_Size(parameters) == (kind == POW)) {
            return kind;
        }
    }
    return EXTENDED;
}

static PyObject *value_build(PyObject *self, PyObject *args) {
    Node *n = (Node *)self;
    double data, grad;
    PyObject *label, *rule, *parameters, *children, *local_grads;
    if (!PyArg_ParseTuple(args, "ddUOO!O!O!:_build", &data, &grad, &label, &rule, &PyTuple_Type,
                          &parameters, &PyTuple_Type, &children, &PyTuple_Type, &local_grads)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(children);
    if (kind_of(n) != UNBUILT) {
        already_built();
        return NULL;
    }
    if (PyTuple_Size(local_grads) != count) {
        PyErr_SetString(PyExc_ValueError, "one local gradient per child");
        return NULL;
    }
    double few[2], *slopes = count <= 2 ? few : PyMem_Malloc((size_t)count * sizeof(double));
    if (slopes == NULL) {
        return PyErr_NoMemory();
    }
    int failed = 0;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        PyObject *child = PyTuple_GetItem(children, i);
        slopes[i] = PyFloat_AsDouble(PyTuple_GetItem(local_grads, i));
        if (slopes[i] == -1.0 && PyErr_Occurred()) {
            failed = -1;
        } else if (!is_value(child) || child == self) {
            PyErr_SetString(PyExc_TypeError, "children must be Values, and not the node itself");
            failed = -1;
        }
    }
    double exponent = 0.0;
    Kind kind = compact_kind(rule, parameters, count);
    if (!failed && kind == POW) {
        exponent = PyFloat_AsDouble(PyTuple_GetItem(parameters, 0));
        failed = exponent == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_Size(parameters); i++) {
        if (!PyFloat_CheckExact(PyTuple_GetItem(parameters, i))) {
            PyErr_SetString(PyExc_TypeError, "an operation's parameters are floats");
            failed = -1;
        }
    }
    if (!failed && kind_of(n) != UNBUILT) { /* a conversion above may have run Python code */
        already_built();
        failed = -1;
    }
    /* An old label may run code when it dies: not before the node is complete. */
    PyObject *old_label = n->child[1] & NOTED ? find_note(n)->label : NULL;
    Py_XINCREF(old_label);
    if (!failed && set_note(n, label, 0) < 0) {
        failed = -1;
    }
    if (!failed && grad_off == TANGENTS && recorder == NULL) {
        for (Py_ssize_t i = 0; i < count; i++) {
            grad += share(slopes[i], ((Node *)PyTuple_GetItem(children, i))->grad);
        }
        count = 0;
    }
    if (!failed && count > 0 && kind == EXTENDED) {
        failed = build_extended(n, rule, parameters, children, slopes);
    } else if (!failed && count > 0) {
        Node *first = (Node *)Py_NewRef(PyTuple_GetItem(children, 0));
        Node *second = count == 2 ? (Node *)Py_NewRef(PyTuple_GetItem(children, 1)) : NULL;
        settle(first);
        if (second != NULL) {
            settle(second);
        }
        uintptr_t noted = n->child[1] & NOTED;
        n->slope[0] = slopes[0];
        n->slope[1] = count == 2 ? slopes[1] : exponent;
        set_kind(n, kind, first, second);
        n->child[1] |= noted;
    }
    if (!failed) {
        if (count == 0) {
            n->child[0] |= LEAF;
        }
        n->data = data;
        n->grad = grad;
    }
    if (slopes != few) {
        PyMem_Free(slopes);
    }
    Py_XDECREF(old_label);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* --------------------------------------------------------------------------------- the type ---- */

static PyGetSetDef value_attributes[] = {
    {"data", get_data, set_data, "The number itself.", NULL},
    {"grad", get_grad, set_grad, "The derivative that ``backward()`` left here.", NULL},
    {"label", get_label, set_label, "A name for people.", NULL},
    {"op", get_op, NULL, "The operation that made this node, \"\" for an input.", NULL},
    {"children", get_children, NULL, "The operands, in order; ``a + a`` has two.", NULL},
    {"local_grads", get_local_grads, NULL, "The derivative with respect to each child.", NULL},
    {"_number", get_number, NULL, "The number, also while recording.", NULL},
    {"_rule", get_rule, NULL, NULL, NULL},
    {"_parameters", get_parameters, NULL, NULL, NULL},
    {"_location", get_location, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef value_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))value_backward, METH_VARARGS | METH_KEYWORDS,
     "backward($self, /, gradient=1.0)\n--\n\n"
     "Leave in every ``.grad`` of this graph the derivative of this Value."},
    {"zero_grad", value_zero_grad, METH_NOARGS,
     "zero_grad($self, /)\n--\n\nSet every gradient in this Value's graph to zero."},
    {"exp", value_exp, METH_NOARGS, "exp($self, /)\n--\n\ne to the x, as a Value."},
    {"log", value_log, METH_NOARGS, "log($self, /)\n--\n\nln x, as a Value."},
    {"relu", value_relu, METH_NOARGS, "relu($self, /)\n--\n\nmax(0, x), as a Value."},
    {"abs", value_abs, METH_NOARGS, "abs($self, /)\n--\n\n|x|, as a Value."},
    {"tanh", value_tanh, METH_NOARGS, "tanh($self, /)\n--\n\ntanh(x), as a Value."},
    {"sigmoid", value_sigmoid, METH_NOARGS, "sigmoid($self, /)\n--\n\n1 / (1 + exp(-x)), as a Value."},
    {"softplus", value_softplus, METH_NOARGS, "softplus($self, /)\n--\n\nln(1 + exp(x)), as a Value."},
    {"sqrt", value_sqrt, METH_NOARGS, "sqrt($self, /)\n--\n\nThe square root, as a Value."},
    {"sin", value_sin, METH_NOARGS, "sin($self, /)\n--\n\nsin x, as a Value."},
    {"cos", value_cos, METH_NOARGS, "cos($self, /)\n--\n\ncos x, as a Value."},
    {"maximum", value_maximum, METH_O,
     "maximum($self, other, /)\n--\n\nThe larger of two, as a Value."},
    {"_build", value_build, METH_VARARGS, NULL},
    {"_order", value_order, METH_NOARGS, NULL},
    {"_gradients", value_gradients, METH_VARARGS, NULL},
    {"_locate", value_locate, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot value_slots[] = {
    {Py_tp_new, value_new},
    {Py_tp_init, value_init},
    {Py_tp_dealloc, value_dealloc},
    {Py_tp_hash, value_hash},
    {Py_tp_richcompare, value_compare},
    {Py_tp_methods, value_methods},
    {Py_tp_getset, value_attributes},
    {Py_nb_add, value_add},
    {Py_nb_subtract, value_subtract},
    {Py_nb_multiply, value_multiply},
    {Py_nb_true_divide, value_divide},
    {Py_nb_power, value_power},
    {Py_nb_negative, value_negative},
    {Py_nb_positive, value_positive},
    {Py_nb_absolute, value_absolute},
    {Py_nb_bool, value_bool},
    {0, NULL},
};

/* A heap type that users may extend and patch; without the garbage collector's flag, since children
 * are set only at construction and so a graph has no cycles. */
PyType_Spec value_spec = {"chainrule.Value", sizeof(Node), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, value_slots};

/* ------------------------------------------------------------------------ for the module ------- */

static PyObject *allocation_counts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return Py_BuildValue("(nnn)", live_nodes, slab_count, (Py_ssize_t)note_count);
}

PyMethodDef value_functions[] = {
    {"topological_order", topological_order, METH_O,
     "topological_order(value, /)\n--\n\n"
     "Every node of the graph, inputs first: each after all of its children.\n\n"
     ">>> from chainrule import Value, topological_order\n"
     ">>> a, b = Value(2.0, label='a'), Value(3.0, label='b')\n"
     ">>> [v.op or v.label for v in topological_order(a * b + a)]\n"
     "['a', 'b', '*', '+']"},
    {"allocation_counts", allocation_counts, METH_NOARGS,
     "allocation_counts()\n--\n\nLive nodes, slabs held, entries in the side table."},
    {NULL, NULL, 0, NULL},
};

static const char *const row_names[KINDS] = {
    [ADD] = "add", [ADD_NUMBER] = "add", [MUL] = "mul", [MUL_NUMBER] = "mul", [POW] = "pow",
    [EXP] = "exp", [LOG] = "log", [RELU] = "relu", [ABS] = "abs", [TANH] = "tanh", [SIGMOID] = "sigmoid",
    [SOFTPLUS] = "softplus",
    [SQRT] = "sqrt", [SIN] = "sin", [COS] = "cos", [MAXIMUM] = "maximum",
    [MAXIMUM_NUMBER] = "maximum", [POWER] = "power",
};

/* What Value needs from the Python modules below it. */
int import_value_parts(PyObject *ops) {
    PyObject *protocols = PyImport_ImportModule("chainrule.core.protocols");
    PyObject *class = protocols ? PyObject_GetAttrString(protocols, "Protocols") : NULL;
    full_init = class ? PyObject_GetAttrString(class, "__init__") : NULL;
    Py_XDECREF(protocols);
    Py_XDECREF(class);
    for (Kind kind = ADD; full_init != NULL && kind < EXTENDED; kind++) {
        rows[kind] = PyObject_GetAttrString(ops, row_names[kind]);
        if (rows[kind] == NULL) {
            return -1;
        }
    }
    return full_init ? 0 : -1;
}
