/* The walk over a graph, and what it is for: backward(), zero_grad(), topological_order(). */
#include "arguments.h"
#include "value.h"

/* -------------------------------------------------------------------------------- the walk ----- */

typedef struct {
    Node *node;
    Py_ssize_t next; /* the child to look at next */
} Frame;

typedef struct {
    Buffer order, leaves, interior, stack;
} Scratch;

static Scratch kept_scratch; /* between calls; holds no references */

#define KEEP_BYTES ((size_t)1 << 24)

static void keep_buffer(Buffer *kept, Buffer *used) {
    if (kept->bytes == NULL && used->capacity <= KEEP_BYTES) {
        *kept = *used;
        kept->size = 0;
    } else {
        PyMem_Free(used->bytes);
    }
}

static Scratch take_scratch(void) {
    Scratch s = kept_scratch;
    memset(&kept_scratch, 0, sizeof kept_scratch);
    return s;
}

static void give_scratch(Scratch *s) {
    keep_buffer(&kept_scratch.order, &s->order);
    keep_buffer(&kept_scratch.leaves, &s->leaves);
    keep_buffer(&kept_scratch.interior, &s->interior);
    keep_buffer(&kept_scratch.stack, &s->stack);
}

typedef enum {
    ZERO_GRADS = 1,   /* save every gradient, then set it to zero */
    LIST_LEAVES = 2,  /* leaves appear in the order too */
    SHOW_NUMBERS = 4, /* number operands become leaves */
} WalkMode;

/* Take the marks off, and put back the gradients where they were zeroed. */
static void end_walk(Scratch *s, int restore_grads) {
    for (Py_ssize_t i = 0; i < COUNT(s->order, Node *); i++) {
        ITEM(s->order, Node *, i)->child[1] &= ~MARK;
    }
    for (Py_ssize_t i = 0; i < COUNT(s->leaves, Saved); i++) {
        ITEM(s->leaves, Saved, i).node->child[1] &= ~MARK;
    }
    if (restore_grads) {
        for (Py_ssize_t i = 0; i < COUNT(s->leaves, Saved); i++) {
            ITEM(s->leaves, Saved, i).node->grad = ITEM(s->leaves, Saved, i).old;
        }
        for (Py_ssize_t i = 0; i < COUNT(s->interior, Saved); i++) {
            ITEM(s->interior, Saved, i).node->grad = ITEM(s->interior, Saved, i).old;
        }
    }
}

/* The walk is the hottest loop of backward(), so it keeps the ends of its buffers in registers. */
#define OPEN(type, cursor, buffer)                                                                \
    type *cursor = (type *)((buffer).bytes + (buffer).size),                                      \
         *cursor##_end = (type *)((buffer).bytes + (buffer).capacity)
#define CLOSE(cursor, buffer) ((buffer).size = (size_t)((char *)cursor - (buffer).bytes))
#define PUSH(type, cursor, buffer, item)                                                          \
    do {                                                                                          \
        if (UNLIKELY(cursor + 1 > cursor##_end)) {                                                \
            CLOSE(cursor, buffer);                                                                \
            if (grow(&(buffer), sizeof(type)) < 0) {                                              \
                goto failed;                                                                      \
            }                                                                                     \
            cursor = (type *)((buffer).bytes + (buffer).size);                                    \
            cursor##_end = (type *)((buffer).bytes + (buffer).capacity);                          \
        }                                                                                         \
        *cursor++ = (item);                                                                       \
    } while (0)

typedef Node *NodePointer;

static inline int is_zero_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits == 0;
}

/* Depth first, children in order, each node after its children: the seeds' recursive build_topo with
 * a stack of its own. Runs no Python code. Leaves every node it met marked; a failure leaves none. */
static int walk(Node *root, Scratch *s, int mode) {
    OPEN(Frame, top, s->stack);
    OPEN(NodePointer, order, s->order);
    OPEN(Saved, leaf, s->leaves);
    OPEN(Saved, interior, s->interior);
    const int zero = mode & ZERO_GRADS;
    Node *n = NULL, *child = root;
    Py_ssize_t next = 0;
    for (;;) {
        /* `child` is met for the first time; n is its parent, of which `next` comes after. */
        Kind kind = kind_of(child);
        if (is_leaf(kind)) {
            PUSH(Saved, leaf, s->leaves, ((Saved){child, child->grad}));
            if (mode & LIST_LEAVES) {
                PUSH(NodePointer, order, s->order, child);
            }
            child->child[1] |= MARK;
            if (zero) {
                child->grad = 0.0;
            }
        } else {
            if (UNLIKELY(has_number(kind)) &&
                ((mode & SHOW_NUMBERS) || (zero && (child->child[1] & SWEPT) && child->grad != 0.0)) &&
                materialise(child, kind) < 0) {
                goto failed;
            }
            if (zero && UNLIKELY(!is_zero_bits(child->grad))) {
                PUSH(Saved, interior, s->interior, ((Saved){child, child->grad}));
            }
            if (n != NULL) {
                PUSH(Frame, top, s->stack, ((Frame){n, next}));
            }
            n = child;
            next = 0;
            n->child[1] |= MARK;
            if (zero) {
                n->grad = 0.0;
            }
        }
        /* Look for the next child to meet, here or further up. */
        for (child = NULL; n != NULL;) {
            while ((child = walk_child(n, next)) != NULL && (child->child[1] & MARK)) {
                next++;
            }
            if (child != NULL) {
                next++;
                break;
            }
            PUSH(NodePointer, order, s->order, n);
            if (top == (Frame *)s->stack.bytes) {
                n = NULL;
            } else {
                top--;
                n = top->node;
                next = top->next;
            }
        }
        if (child == NULL) {
            break;
        }
    }
    CLOSE(top, s->stack);
    CLOSE(order, s->order);
    CLOSE(leaf, s->leaves);
    CLOSE(interior, s->interior);
    return 0;
failed:
    if (n != NULL) {
        n->child[1] &= ~MARK;
    }
    while (top != (Frame *)s->stack.bytes) {
        top--;
        top->node->child[1] &= ~MARK;
    }
    CLOSE(top, s->stack);
    CLOSE(order, s->order);
    CLOSE(leaf, s->leaves);
    CLOSE(interior, s->interior);
    end_walk(s, zero);
    return -1;
}

/* ------------------------------------------------------------------------- the backward pass --- */

static void sweep(Scratch *s) {
    Node **order = (Node **)s->order.bytes;
    for (Py_ssize_t i = COUNT(s->order, Node *) - 1; i >= 0; i--) {
        if (i >= 8) {
            PREFETCH(order[i - 8]);
        }
        Node *n = order[i];
        Kind kind = kind_of(n);
        n->child[1] = (n->child[1] & ~MARK) | (has_number(kind) ? SWEPT : 0);
        double g = n->grad;
        if (g == 0.0) {
            continue;
        }
        if (UNLIKELY(kind == EXTENDED)) {
            Extension *x = extension_of(n);
            for (Py_ssize_t j = 0; j < x->count; j++) {
                x->children[j]->grad += share(x->slopes[j], g);
            }
            continue;
        }
        Node *second = child_of(n, 1);
        child_of(n, 0)->grad += share(n->slope[0], g);
        if (second != NULL) {
            second->grad += share(n->slope[1], g);
        }
    }
}

PyObject *value_backward(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"gradient", NULL};
    PyObject *given = NULL;
    double seed = 1.0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:backward", names, &given) ||
        (given != NULL && real_number(given, "the gradient", &seed) < 0) || forbidden("backward()") ||
        asks_graph((Node *)self) < 0) {
        return NULL;
    }
    Scratch s = take_scratch();
    int failed = walk((Node *)self, &s, ZERO_GRADS);
    if (!failed) {
        ((Node *)self)->grad = seed;
        sweep(&s);
        for (Py_ssize_t i = 0; i < COUNT(s.leaves, Saved); i++) {
            Saved *leaf = &ITEM(s.leaves, Saved, i);
            leaf->node->child[1] &= ~MARK;
            leaf->node->grad = leaf->old + leaf->node->grad;
        }
    }
    give_scratch(&s);
    return failed ? NULL : Py_NewRef(Py_None);
}

int find_gradients(Node *root, PyObject *xs, int up_to, double *found) {
    if (forbidden("gradients()") || asks_graph(root) < 0) {
        return -1;
    }
    Py_ssize_t count = PyList_Size(xs);
    int failed = 1;
    Saved few[8], *saved = few;
    Scratch s = take_scratch();
    if (count > (Py_ssize_t)(sizeof few / sizeof *few)) {
        saved = PyMem_Malloc((size_t)count * sizeof(Saved));
    }
    if (saved == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *x = PyList_GetItem(xs, i);
        if (!is_value(x)) {
            PyErr_SetString(PyExc_TypeError, "_gradients takes a list of Values");
            goto done;
        }
        Node *n = saved[i].node = (Node *)x;
        if (has_number(kind_of(n)) && (n->child[1] & SWEPT) && n->grad != 0.0 &&
            materialise(n, kind_of(n)) < 0) {
            goto done;
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Node *n = saved[i].node;
        saved[i].old = n->grad;
        n->grad = 0.0;
        n->child[1] |= up_to ? MARK : 0;
    }
    int is_end = (root->child[1] & MARK) != 0;
    double old = root->grad;
    failed = !is_end && walk(root, &s, ZERO_GRADS) < 0;
    if (!failed) {
        root->grad = 1.0;
        sweep(&s);
        for (Py_ssize_t i = 0; i < count; i++) {
            found[i] = saved[i].node->grad;
        }
        for (Py_ssize_t i = 0; i < COUNT(s.order, Node *); i++) {
            Node *n = ITEM(s.order, Node *, i);
            n->grad = 0.0;
            n->child[1] &= ~SWEPT;
        }
        end_walk(&s, 1);
    }
    root->grad = old;
    for (Py_ssize_t i = count - 1; i >= 0; i--) { /* backwards, for an x that is there twice */
        saved[i].node->grad = saved[i].old;
        saved[i].node->child[1] &= ~(up_to ? MARK : 0);
    }
done:
    give_scratch(&s);
    if (saved != few) {
        PyMem_Free(saved);
    }
    return failed ? -1 : 0;
}

/* _gradients(xs, up_to): the derivative by each of xs. Every gradient is left as it was. With up_to no
 * x passes anything on: marked beforehand, it counts as visited, and the walk does not enter it. */
PyObject *value_gradients(PyObject *self, PyObject *args) {
    PyObject *xs, *result = NULL;
    int up_to;
    if (!PyArg_ParseTuple(args, "O!p:_gradients", &PyList_Type, &xs, &up_to)) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(xs);
    double *found = PyMem_Malloc(((size_t)count + 1) * sizeof(double));
    if (found == NULL) {
        return PyErr_NoMemory();
    }
    if (find_gradients((Node *)self, xs, up_to, found) == 0) {
        result = PyList_New(count);
    }
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        PyObject *number = PyFloat_FromDouble(found[i]);
        if (number == NULL) {
            Py_CLEAR(result);
        } else {
            PyList_SetItem(result, i, number);
        }
    }
    PyMem_Free(found);
    return result;
}

PyObject *value_zero_grad(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    if (forbidden("zero_grad()") || asks_graph((Node *)self) < 0) {
        return NULL;
    }
    Scratch s = take_scratch();
    int failed = walk((Node *)self, &s, ZERO_GRADS);
    if (!failed) {
        end_walk(&s, 0);
        for (Py_ssize_t i = 0; i < COUNT(s.order, Node *); i++) {
            ITEM(s.order, Node *, i)->child[1] &= ~SWEPT;
        }
    }
    give_scratch(&s);
    return failed ? NULL : Py_NewRef(Py_None);
}

PyObject *topological_order(PyObject *Py_UNUSED(module), PyObject *value) {
    if (!is_value(value)) {
        PyObject *name = PyType_GetName(Py_TYPE(value));
        if (name != NULL) {
            PyErr_Format(PyExc_TypeError, "topological_order takes a Value, not a %U", name);
            Py_DECREF(name);
        }
        return NULL;
    }
    if (asks_graph((Node *)value) < 0) {
        return NULL;
    }
    Scratch s = take_scratch();
    PyObject *list = NULL;
    if (walk((Node *)value, &s, LIST_LEAVES | SHOW_NUMBERS) == 0) {
        end_walk(&s, 0); /* before any call that may run Python code */
        Py_ssize_t count = COUNT(s.order, Node *);
        list = PyList_New(count);
        for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
            PyList_SetItem(list, i, Py_NewRef((PyObject *)ITEM(s.order, Node *, i)));
        }
    }
    give_scratch(&s);
    return list;
}

PyObject *value_order(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    return topological_order(NULL, self);
}
