/* Between Values and flat arrays: flatten (the nodes of a recording become instructions), gather (the
 * numbers of Values) and compiled_node (one node for a whole compiled call).
 */
#include "node.h"

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

/* One node as instruction i. 1: done; 0: it uses a node that is in neither list, or is a custom
 * operation; -1: an error. */
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
        if (operands[j] > i) { /* it was a plain number then: see materialise() */
            operands[j] = -1;
            constants[0] = child->data;
            x->number[i] = 1;
        }
    }
    return 1;
}

/* The nodes as arrays, the first `inputs` of them as inputs. No other code runs meanwhile, so each node
 * can hold its position in its grad, and a mark. */
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

PyMethodDef flatten_functions[] = {
    {"flatten", flatten, METH_VARARGS, NULL},
    {"gather", gather, METH_VARARGS, NULL},
    {"compiled_node", compiled_node, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
