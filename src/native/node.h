/* The node: its layout, the memory it comes from, how one is made, and the rules of the op table that
 * are written in C.
 *
 * This is the header with code: what operators, sums, the walk and the tape run for every node, and
 * therefore need inlined. What runs seldom is only declared here.
 */
#ifndef CHAINRULE_NODE_H
#define CHAINRULE_NODE_H

#include "native.h"

/* ---------------------------------------------------------------------------------- the node --- */

/* One cache line. The low four bits of each child pointer are free (nodes are 16-byte aligned) and
 * hold the kind and three flags. slope[] are the local gradients. Where the second operand is a plain
 * number (ADD_NUMBER ...) or a static exponent (POW), slope[1] is that number; MUL_NUMBER has it in
 * slope[0], where it is the local gradient as well. */
typedef struct Node {
    PyObject_HEAD
    double data, grad;
    double slope[2];
    uintptr_t child[2];
} Node;

typedef enum {
    UNBUILT,
    RECORDED, /* its instruction is in Instructions (instructions.c), and so are its operands: no children */
    LEAF,
    ADD, ADD_NUMBER, MUL, MUL_NUMBER, POW,
    EXP, LOG, RELU, ABS, TANH, SIGMOID, SOFTPLUS, SQRT, SIN, COS,
    MAXIMUM, MAXIMUM_NUMBER,
    POWER, /* both operands variable */
    EXTENDED, /* any number of children, any rule: child[0] points to an Extension */
    KINDS
} Kind;

/* Flags in child[1]. */
#define KIND_HIGH ((uintptr_t)1) /* fifth bit of the kind */
#define MARK ((uintptr_t)2)      /* visited by the walk under way */
#define SWEPT ((uintptr_t)4)     /* grad comes from a backward pass: a number operand's is implied */
#define NOTED ((uintptr_t)8)     /* has an entry in the side table: a label or a source line */
#define TAGS ((uintptr_t)15)

typedef struct {
    Py_ssize_t count;
    PyObject *rule;       /* a row of the op table, or a str */
    PyObject *parameters; /* a tuple of floats */
    double *slopes;       /* count of them, behind the children */
    Node *children[];
} Extension;

static inline Kind kind_of(const Node *n) {
    return (Kind)((n->child[0] & TAGS) | ((n->child[1] & KIND_HIGH) << 4));
}
static inline Node *child_of(const Node *n, int i) { return (Node *)(n->child[i] & ~TAGS); }
static inline Extension *extension_of(const Node *n) { return (Extension *)(n->child[0] & ~TAGS); }

static inline void set_kind(Node *n, Kind kind, void *first, void *second) {
    n->child[0] = (uintptr_t)first | ((uintptr_t)kind & TAGS);
    n->child[1] = (uintptr_t)second | ((uintptr_t)kind >> 4);
}
static inline int has_number(Kind kind) {
    return kind == ADD_NUMBER || kind == MUL_NUMBER || kind == MAXIMUM_NUMBER;
}
static inline int is_leaf(Kind kind) { return kind <= LEAF; }

/* The number that is the second operand, and the local gradient that belongs to it. */
static inline double number_of(const Node *n, Kind kind) {
    return kind == MUL_NUMBER ? n->slope[0] : n->slope[1];
}
static inline double number_slope(const Node *n, Kind kind) {
    return kind == ADD_NUMBER ? 1.0 : kind == MUL_NUMBER ? n->slope[1] : 1.0 - n->slope[0];
}

static inline Node *walk_child(const Node *n, Py_ssize_t i) {
    if (UNLIKELY(kind_of(n) == EXTENDED)) {
        const Extension *x = extension_of(n);
        return i < x->count ? x->children[i] : NULL;
    }
    return i < 2 ? child_of(n, (int)i) : NULL;
}

/* A node and its gradient before a pass. */
typedef struct {
    Node *node;
    double old;
} Saved;

extern PyTypeObject *ValueType;
extern PyObject *rows[KINDS]; /* the op table's row of each kind */

static inline int is_value(PyObject *o) {
    return Py_TYPE(o) == ValueType || PyType_IsSubtype(Py_TYPE(o), ValueType);
}
static inline int is_exact(PyObject *o) { return Py_TYPE(o) == ValueType; }

/* The switches of this thread (modes.c). */
extern THREAD_LOCAL int grad_off; /* 0, or how nodes are made without children: */
#define NO_GRADIENT 1 /* inside no_grad() */
#define TANGENTS 2    /* forward mode: the grad of a node is its derivative along one direction */
extern THREAD_LOCAL int nonfinite_allowed, debug_on;
extern THREAD_LOCAL int nested_runs, again_runs, internal_runs;
extern THREAD_LOCAL PyObject *outermost; /* the Values of the function that derivation.c runs, a list; or NULL */
extern THREAD_LOCAL int graph_asked;    /* a graph was asked for that is not made */
extern THREAD_LOCAL PyObject *recorder; /* a Recorder while this thread records a function, else NULL */
extern THREAD_LOCAL PyObject *recorded; /* its list of nodes, or the Instructions that they become */
extern THREAD_LOCAL struct Instructions *instructions; /* the latter, or NULL */
#define PROGRESS 0xFFFF /* the recorder is told after so many nodes, plus one, that recording goes on */
int tell_progress(void);

/* What the recorder is asked often: a method of its, with one argument. */
typedef enum { DATA_OF, OPERAND_OF, NEGATED, MADE, EXPONENT, TRUTH, QUESTIONS } Question;
PyObject *ask_recorder(Question question, PyObject *x);
int import_questions(void); /* to be called once; -1: an error */

/* -------------------------------------------------------------------------- memory (memory.c) -- */

/* Nodes come from slabs, in address order: a graph lies in memory as it was built, which the
 * backward pass needs for its speed. A slab gives out fresh nodes, then its own freed ones; an empty
 * slab starts afresh. Slabs at most half full wait in a list for the next allocation, so that a few
 * long-lived nodes cannot pin much memory. */
#define SLAB_BYTES ((size_t)1 << 18)
#define SLAB_HEADER ((size_t)64)
#define SLAB_NODES ((Py_ssize_t)((SLAB_BYTES - SLAB_HEADER) / sizeof(Node)))

typedef struct Slab {
    struct Slab *previous, *next; /* neighbours in the waiting list */
    Node *freed;                  /* freed nodes, linked through their grad */
    Py_ssize_t live, fresh;       /* nodes in use; nodes given out since it was empty */
    int waiting;
} Slab;

extern Slab *current_slab;
extern Py_ssize_t live_nodes, slab_count;
extern size_t note_count;

Node *take_from_next_slab(void);

static inline Node *link_of(const Node *n) {
    Node *next;
    memcpy(&next, &n->grad, sizeof next);
    return next;
}
static inline void set_link(Node *n, Node *next) { memcpy(&n->grad, &next, sizeof next); }

#ifdef CHAINRULE_SANITIZE
#define take_memory take_from_next_slab /* one allocation per node, so that the sanitizer sees each */
#else

static inline Node *take_memory(void) {
    Slab *s = current_slab;
    if (LIKELY(s != NULL)) {
        if (LIKELY(s->fresh < SLAB_NODES)) {
            s->live++;
            return (Node *)((char *)s + SLAB_HEADER) + s->fresh++;
        }
        if (s->freed != NULL) {
            Node *n = s->freed;
            s->freed = link_of(n);
            s->live++;
            return n;
        }
    }
    return take_from_next_slab();
}

#endif

/* A node's label and source line; either may be NULL. */
typedef struct {
    Node *key;
    PyObject *label, *location;
} Note;

Note *find_note(const Node *n); /* of a NOTED node */
int set_note(Node *n, PyObject *text, int is_location);
void drop_note(Node *n);

/* ----------------------------------------------------------------------- making nodes (node.c) -- */

/* A node of exactly the type Value, kind and children still to be set. The type is immortal here: nodes
 * do not count references to it. */
static inline Node *bare_node(double data) {
    Node *n = take_memory();
    if (UNLIKELY(n == NULL)) {
        return NULL;
    }
    *(PyObject *)n = (PyObject){0}; /* newer headers split the count, with flags in its other half */
    ((PyObject *)n)->ob_refcnt = 1;
    ((PyObject *)n)->ob_type = ValueType;
    live_nodes++;
    n->data = data;
    n->grad = 0.0;
    return n;
}

Node *new_leaf(double data);
PyObject *record(PyObject *made);    /* tell the recorder; takes the reference, returns one */
/* A node that becomes an instruction at once, and has no children (instructions.c). */
PyObject *record_instruction(Kind kind, double y, Node *a, Node *b, double s0, double s1);
/* The same for a row of the op table without a kind, of up to three operands. */
PyObject *record_rule(PyObject *rule, double y, Node **operands, Py_ssize_t count);
int record_leaf(PyObject *leaf);     /* one more node for the recorder; -1: an error */
int is_instructions(PyObject *o);
/* The Value behind a stand-in for a number that was passed; None behind anything else, NULL: an error. */
PyObject *data_behind(PyObject *o);
extern PyTypeObject *InstructionsType;
/* Code asks for the children of a node: -1, and an error, if it has none because of how this thread runs. */
int asks_graph(const Node *n);
int note_location(Node *n);          /* for debug(): the source line that made it */
int materialise(Node *n, Kind kind); /* turn its number operand into a leaf */
int build_extended(Node *n, PyObject *rule, PyObject *parameters, PyObject *children,
                   const double *slopes);

/* The rule for undefined values: finite operands must give a finite value, or this raises (-1). */
int check_binary(Kind row, double y, Node *a, Node *b, double number);
int check_unary(Kind row, double y, Node *a);
int check_power(double y, double x, PyObject *operand, double exponent);

/* A number passed as an attribute or argument; -1: an error, worded by errors.real. */
int real_number(PyObject *o, const char *role, double *out);

/* 1, and an error: this thread records, and `what` would not happen again in a replay. */
int forbidden(const char *what);

/* A node that becomes a child before its __init__ ran is a leaf for good, so no graph contains itself. */
static inline void settle(Node *n) {
    if (UNLIKELY(kind_of(n) == UNBUILT)) {
        n->child[0] |= LEAF;
    }
}

/* What a node propagates to a child. A slope of zero propagates nothing, so that 0 * inf is not a nan. */
static inline double share(double slope, double g) { return slope == 0.0 ? 0.0 : slope * g; }

/* A node of one or two operands (the second may be NULL), whose references are borrowed. */
static inline PyObject *new_node(Kind kind, double y, Node *a, Node *b, double s0, double s1) {
    if (UNLIKELY(recorder != NULL) && instructions != NULL) {
        return record_instruction(kind, y, a, b, s0, s1);
    }
    Node *n = bare_node(y);
    if (UNLIKELY(n == NULL)) {
        return NULL;
    }
    if (UNLIKELY(grad_off) && recorder == NULL) {
        set_kind(n, LEAF, NULL, NULL);
        if (grad_off == TANGENTS) {
            n->grad = share(s0, a->grad) + (b ? share(s1, b->grad) : 0.0);
        }
    } else {
        settle(a);
        Py_INCREF((PyObject *)a);
        if (b != NULL) {
            settle(b);
            Py_INCREF((PyObject *)b);
        }
        n->slope[0] = s0;
        n->slope[1] = s1;
        set_kind(n, kind, a, b);
    }
    if (UNLIKELY(debug_on) && note_location(n) < 0) {
        Py_DECREF((PyObject *)n);
        return NULL;
    }
    return UNLIKELY(recorder != NULL) ? record((PyObject *)n) : (PyObject *)n;
}

static inline PyObject *make_add(Node *a, Node *b) {
    double y = a->data + b->data;
    if (UNLIKELY(!isfinite(y)) && check_binary(ADD, y, a, b, 0) < 0) {
        return NULL;
    }
    return new_node(ADD, y, a, b, 1.0, 1.0);
}

static inline PyObject *make_add_number(Node *a, double number) {
    double y = a->data + number;
    if (UNLIKELY(!isfinite(y)) && check_binary(ADD, y, a, NULL, number) < 0) {
        return NULL;
    }
    return new_node(ADD_NUMBER, y, a, NULL, 1.0, number);
}

static inline PyObject *make_mul(Node *a, Node *b) {
    double y = a->data * b->data;
    if (UNLIKELY(!isfinite(y)) && check_binary(MUL, y, a, b, 0) < 0) {
        return NULL;
    }
    return new_node(MUL, y, a, b, b->data, a->data);
}

static inline PyObject *make_mul_number(Node *a, double number) {
    double y = a->data * number;
    if (UNLIKELY(!isfinite(y)) && check_binary(MUL, y, a, NULL, number) < 0) {
        return NULL;
    }
    return new_node(MUL_NUMBER, y, a, NULL, number, a->data);
}

/* ------------------------------------------------------------- rules, for nodes and for the tape -- */

static inline double power_slope(double x, double p) {
    return p == 0.0 ? 0.0 : p * pow(x, p - 1.0);
}

/* The op table's power: a base that is not positive has no real logarithm. */
static inline double positive_power(double x, double p) { return x > 0.0 ? pow(x, p) : NAN; }

static inline double larger(double a, double b) { return a >= b ? a : b > a ? b : a + b; }
static inline double larger_slope(double a, double b) { return a > b ? 1.0 : a < b ? 0.0 : 0.5; }

static inline double smaller(double a, double b) { return a <= b ? a : b < a ? b : a + b; }
static inline double smaller_slope(double a, double b) { return a < b ? 1.0 : a > b ? 0.0 : 0.5; }
static inline double clipped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
static inline double clipped_slope(double x, double low, double high) { return x < low ? 0.0 : x > high ? 0.0 : 1.0; }
/* The larger of two nodes, or of a node and a number. */
static inline PyObject *make_maximum(Node *a, Node *b, double number) {
    double x = b ? b->data : number, y = larger(a->data, x), slope = larger_slope(a->data, x);
    if (b == NULL) {
        return new_node(MAXIMUM_NUMBER, y, a, NULL, slope, number);
    }
    return new_node(MAXIMUM, y, a, b, slope, 1.0 - slope);
}

static inline double logistic(double x) {
    double e = exp(-fabs(x)); /* in (0, 1]: neither branch can overflow */
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}
static inline double soft_plus(double x) { return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))); }

/* The elementary functions: value and slope of each, as the op table has them. */
static inline void elementary(Kind kind, double x, double *y, double *slope) {
    switch (kind) {
    case EXP: *y = exp(x); *slope = *y; break;
    case LOG: *y = log(x); *slope = 1.0 / x; break;
    case RELU: *y = x <= 0.0 ? 0.0 : x; *slope = x > 0.0 ? 1.0 : 0.0; break;
    case ABS: *y = fabs(x); *slope = x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0; break;
    case TANH: *y = tanh(x); *slope = 1.0 - *y * *y; break;
    case SIGMOID: *y = logistic(x); *slope = *y * (1.0 - *y); break;
    case SOFTPLUS: *y = soft_plus(x); *slope = logistic(x); break;
    case SQRT: *y = sqrt(x); *slope = 0.5 / *y; break;
    case SIN: *y = sin(x); *slope = cos(x); break;
    default: *y = cos(x); *slope = -sin(x); break;
    }
}

#endif
