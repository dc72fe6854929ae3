/* The native engine: chainrule.Value in C.
 *
 * In: Python numbers and Values. Out: the same graph, the same bits and the same errors as value.py,
 * about twenty times faster. What is cold (printing, copying, the constructor's dialects, rows of the
 * op table without a case here) stays in Python; see native.py, which finishes the class.
 *
 * Reading order: the node, memory.h, making nodes, operators, the walk, the backward pass,
 * attributes, construction, sums; arrays.h (graphs as arrays, the tape, optimisers); what compiled
 * functions need (lift.h, checks.h, passed.h, plan.h, samples.h); the
 * module.
 *
 * Everything here runs under the GIL, but for the machine code that a Plan runs. State shared between
 * calls is never held across a call into Python code: scratch buffers are taken out of their global
 * place before use and put back after.
 */
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if UINTPTR_MAX != UINT64_MAX
#error "the native engine needs 64-bit pointers; the reference engine runs everywhere"
#endif

#ifdef _MSC_VER
#include <malloc.h>
#define THREAD_LOCAL __declspec(thread)
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#define PREFETCH(p) ((void)(p))
#else
#define THREAD_LOCAL _Thread_local
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PREFETCH(p) __builtin_prefetch(p)
#endif

/* ---------------------------------------------------------------------------------- the node --- */

/* One cache line. The low four bits of each child pointer are free (nodes are 16-byte aligned) and
 * hold the kind and three flags. slope[] are the local gradients, but where a kind has a plain number
 * for its second operand (ADD_NUMBER ...) or a static exponent (POW), slope[1] is that number. */
typedef struct Node {
    PyObject_HEAD
    double data, grad;
    double slope[2];
    uintptr_t child[2];
} Node;

typedef enum {
    UNBUILT, LEAF,
    ADD, ADD_NUMBER, MUL, MUL_NUMBER, POW,
    EXP, LOG, RELU, TANH, SIGMOID, SQRT, SIN, COS,
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

static PyTypeObject *ValueType;
static PyObject *rows[KINDS];  /* the op table's row of each kind */
static PyObject *empty_tuple, *empty_string;
static PyObject *errors_module; /* chainrule.errors */
static PyObject *full_init;     /* Protocols.__init__ */

static THREAD_LOCAL int grad_off, nonfinite_allowed, debug_on;
static THREAD_LOCAL PyObject *recorder; /* a compiler.record.Recorder while this thread records */
static THREAD_LOCAL PyObject *recorded;  /* its list of nodes */

static inline int is_value(PyObject *o) {
    return Py_TYPE(o) == ValueType || PyType_IsSubtype(Py_TYPE(o), ValueType);
}

#include "memory.h"

/* ------------------------------------------------------------------------------ making nodes --- */

/* A node of the exact type, without parts. Its type is immortal here and not counted per node. */
static inline Node *bare_node(double data) {
    Node *n = take_memory();
    if (UNLIKELY(n == NULL)) {
        return NULL;
    }
    ((PyObject *)n)->ob_refcnt = 1;
    ((PyObject *)n)->ob_type = ValueType;
    live_nodes++;
    n->data = data;
    n->grad = 0.0;
    return n;
}

static Node *new_leaf(double data) {
    Node *n = bare_node(data);
    if (n != NULL) {
        set_kind(n, LEAF, NULL, NULL);
    }
    return n;
}

/* Tell the recorder of a node made while recording; it may put another in its place (inside
 * no_grad, one that passes no gradient on). Takes the reference, returns one. */
static PyObject *record(PyObject *made) {
    if (LIKELY(!grad_off && !nonfinite_allowed)) {
        if (PyList_Append(recorded, made) < 0) {
            Py_CLEAR(made);
        }
        return made;
    }
    PyObject *kept = PyObject_CallMethod(recorder, "made", "(O)", made);
    Py_DECREF(made);
    return kept;
}

static int note_location(Node *n) {
    PyObject *line = PyObject_CallMethod(errors_module, "caller", NULL);
    int failed = line == NULL || (line != Py_None && set_note(n, line, 1) < 0);
    Py_XDECREF(line);
    return failed ? -1 : 0;
}

/* An unbuilt node that becomes somebody's child is a leaf for good, so no graph contains itself. */
static inline void settle(Node *n) {
    if (UNLIKELY(kind_of(n) == UNBUILT)) {
        n->child[0] |= LEAF;
    }
}

/* A node of one or two operands (the second may be NULL), borrowed. */
static inline PyObject *new_node(Kind kind, double y, Node *a, Node *b, double s0, double s1) {
    Node *n = bare_node(y);
    if (UNLIKELY(n == NULL)) {
        return NULL;
    }
    if (UNLIKELY(grad_off) && recorder == NULL) {
        set_kind(n, LEAF, NULL, NULL);
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

/* The rule for undefined values: finite operands must give a finite value. */
static int check_value(PyObject *row, double y, PyObject *a, PyObject *b, PyObject *parameters) {
    PyObject *operands = b ? PyTuple_Pack(2, a, b) : PyTuple_Pack(1, a);
    PyObject *number = PyFloat_FromDouble(y), *result = NULL;
    if (operands != NULL && number != NULL) {
        result = PyObject_CallMethod(errors_module, "check", "OOOO", row, number, operands,
                                     parameters ? parameters : empty_tuple);
    }
    Py_XDECREF(operands);
    Py_XDECREF(number);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int check_binary(Kind row, double y, Node *a, Node *b, double number) {
    if (nonfinite_allowed || !isfinite(a->data) || !isfinite(b ? b->data : number)) {
        return 0;
    }
    PyObject *second = b ? Py_NewRef((PyObject *)b) : PyFloat_FromDouble(number);
    if (second == NULL) {
        return -1;
    }
    int result = check_value(rows[row], y, (PyObject *)a, second, NULL);
    Py_DECREF(second);
    return result;
}

static int check_unary(Kind row, double y, Node *a) {
    if (nonfinite_allowed || !isfinite(a->data)) {
        return 0;
    }
    return check_value(rows[row], y, (PyObject *)a, NULL, NULL);
}

static int check_power(double y, double x, PyObject *operand, double exponent) {
    if (nonfinite_allowed || !isfinite(x)) {
        return 0;
    }
    PyObject *parameters = Py_BuildValue("(d)", exponent);
    int result = parameters ? check_value(rows[POW], y, operand, NULL, parameters) : -1;
    Py_XDECREF(parameters);
    return result;
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

static inline double power_slope(double x, double p) {
    return p == 0.0 ? 0.0 : p * pow(x, p - 1.0);
}

static PyObject *make_power(Node *a, double p) {
    double y = pow(a->data, p);
    if (UNLIKELY(!isfinite(y)) && check_power(y, a->data, (PyObject *)a, p) < 0) {
        return NULL;
    }
    return new_node(POW, y, a, NULL, power_slope(a->data, p), p);
}

/* The op table's power: a base that is not positive has no real logarithm. */
static inline double positive_power(double x, double p) { return x > 0.0 ? pow(x, p) : NAN; }

static PyObject *make_variable_power(Node *a, Node *b) {
    double x = a->data, p = b->data, y = positive_power(x, p);
    if (UNLIKELY(!isfinite(y)) && check_binary(POWER, y, a, b, 0) < 0) {
        return NULL;
    }
    return new_node(POWER, y, a, b, p * positive_power(x, p - 1.0), y * log(x));
}

static inline double larger(double a, double b) { return a >= b ? a : b > a ? b : a + b; }
static inline double larger_slope(double a, double b) { return a > b ? 1.0 : a < b ? 0.0 : 0.5; }

static PyObject *make_maximum(Node *a, Node *b, double number) {
    double x = b ? b->data : number, y = larger(a->data, x), slope = larger_slope(a->data, x);
    if (b == NULL) {
        return new_node(MAXIMUM_NUMBER, y, a, NULL, slope, number);
    }
    return new_node(MAXIMUM, y, a, b, slope, 1.0 - slope);
}

/* The elementary functions: value and slope of each, as the op table has them. */
static inline void elementary(Kind kind, double x, double *y, double *slope) {
    double e;
    switch (kind) {
    case EXP: *y = exp(x); *slope = *y; break;
    case LOG: *y = log(x); *slope = 1.0 / x; break;
    case RELU: *y = x <= 0.0 ? 0.0 : x; *slope = x > 0.0 ? 1.0 : 0.0; break;
    case TANH: *y = tanh(x); *slope = 1.0 - *y * *y; break;
    case SIGMOID:
        e = exp(-fabs(x));
        *y = (x >= 0.0 ? 1.0 : e) / (1.0 + e);
        *slope = *y * (1.0 - *y);
        break;
    case SQRT: *y = sqrt(x); *slope = 0.5 / *y; break;
    case SIN: *y = sin(x); *slope = cos(x); break;
    default: *y = cos(x); *slope = -sin(x); break;
    }
}

static PyObject *make_elementary(Kind kind, Node *a) {
    double y, slope;
    elementary(kind, a->data, &y, &slope);
    if (UNLIKELY(!isfinite(y)) && check_unary(kind, y, a) < 0) {
        return NULL;
    }
    return new_node(kind, y, a, NULL, slope, 0.0);
}

/* --------------------------------------------------------------------------------- operators --- */

typedef struct {
    Node *node; /* NULL for a number */
    double number;
    int integral; /* an int: its -0 is 0 */
} Operand;

/* 1: an operand; 0: something for another type to answer; -1: an error. */
static int slow_operand(PyObject *o, Operand *out) {
    if (PyLong_CheckExact(o)) {
        out->number = PyLong_AsDouble(o);
        out->integral = 1;
        return out->number == -1.0 && PyErr_Occurred() ? -1 : 1;
    }
    if (recorder != NULL) {
        return 0; /* the recorder knows what this is */
    }
    PyObject *real = PyObject_CallMethod(errors_module, "is_real", "(O)", o);
    int answer = real == NULL ? -1 : PyObject_IsTrue(real);
    Py_XDECREF(real);
    if (answer != 1) {
        return answer;
    }
    PyObject *negated = PyObject_CallMethod(errors_module, "negated", "(O)", o);
    PyObject *number = negated ? PyNumber_Float(o) : NULL;
    if (number != NULL) {
        out->number = PyFloat_AsDouble(number);
        out->integral = out->number == 0.0 && !signbit(PyFloat_AsDouble(negated));
    }
    Py_XDECREF(negated);
    Py_XDECREF(number);
    return number == NULL ? -1 : 1;
}

static inline int operand(PyObject *o, Operand *out) {
    out->node = NULL;
    out->number = 0.0;
    out->integral = 0;
    if (LIKELY(Py_TYPE(o) == ValueType)) {
        out->node = (Node *)o;
        return 1;
    }
    if (PyFloat_CheckExact(o)) {
        out->number = PyFloat_AsDouble(o);
        return 1;
    }
    if (PyType_IsSubtype(Py_TYPE(o), ValueType)) {
        out->node = (Node *)o;
        return 1;
    }
    return slow_operand(o, out);
}

static PyObject *refuse(PyObject *o) {
    return PyObject_CallMethod(errors_module, "reject_operand", "(O)", o);
}

static inline double negative(const Operand *o) {
    return o->integral ? 0.0 - o->number : -o->number;
}

/* While recording, a number may be a stand-in that remembers where it came from: as an operand it is
 * the Value that the recorder has for it. */
static PyObject *recorded_operand(PyObject *o) {
    if (is_value(o) || PyFloat_Check(o) || PyLong_Check(o)) {
        return Py_NewRef(o);
    }
    return PyObject_CallMethod(recorder, "operand", "(O)", o);
}

static PyObject *value_add(PyObject *l, PyObject *r);
static PyObject *value_subtract(PyObject *l, PyObject *r);

static PyObject *with_recorded_operands(PyObject *l, PyObject *r, binaryfunc operator) {
    PyObject *left = recorded_operand(l), *right = left ? recorded_operand(r) : NULL, *out = NULL;
    if (right != NULL && operator == value_subtract && right != r && is_value(right)) {
        PyObject *negative = PyObject_CallMethod(recorder, "negated", "(O)", r);
        out = negative ? value_add(left, negative) : NULL;
        Py_XDECREF(negative);
    } else if (right != NULL && (left != l || right != r)) {
        out = operator(left, right);
    } else if (right != NULL) {
        out = Py_NewRef(Py_NotImplemented);
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return out;
}

/* Both operands of an operator, or an answer for the caller to return in *out. */
static inline int operands(PyObject *l, PyObject *r, Operand *a, Operand *b, PyObject **out,
                           binaryfunc operator) {
    int left = operand(l, a), right = left == 1 ? operand(r, b) : 1;
    if (LIKELY(left == 1 && right == 1)) {
        return 1;
    }
    if (left < 0 || right < 0) {
        *out = NULL;
    } else if (recorder != NULL) {
        *out = with_recorded_operands(l, r, operator);
    } else {
        *out = refuse(left == 0 ? l : r);
    }
    return 0;
}

static PyObject *value_add(PyObject *l, PyObject *r) {
    Operand a, b;
    PyObject *out;
    if (!operands(l, r, &a, &b, &out, value_add)) {
        return out;
    }
    if (a.node == NULL) {
        return make_add_number(b.node, a.number);
    }
    return b.node ? make_add(a.node, b.node) : make_add_number(a.node, b.number);
}

static PyObject *value_multiply(PyObject *l, PyObject *r) {
    Operand a, b;
    PyObject *out;
    if (!operands(l, r, &a, &b, &out, value_multiply)) {
        return out;
    }
    if (a.node == NULL) {
        return make_mul_number(b.node, a.number);
    }
    return b.node ? make_mul(a.node, b.node) : make_mul_number(a.node, b.number);
}

/* Operators composed of others ask a subclass for its own; the exact type takes the direct way. */
static PyObject *with_number(PyObject *v, double number, binaryfunc operator) {
    PyObject *other = PyFloat_FromDouble(number);
    PyObject *result = other ? operator(v, other) : NULL;
    Py_XDECREF(other);
    return result;
}

static PyObject *value_negative(PyObject *self) {
    if (LIKELY(Py_TYPE(self) == ValueType)) {
        return make_mul_number((Node *)self, -1.0);
    }
    PyObject *minus_one = PyLong_FromLong(-1);
    PyObject *result = minus_one ? PyNumber_Multiply(self, minus_one) : NULL;
    Py_XDECREF(minus_one);
    return result;
}

/* An operator composed of two: the inner node is dropped when the outer one holds it. */
static inline PyObject *release(PyObject *result, PyObject *inner) {
    Py_DECREF(inner);
    return result;
}

static PyObject *value_subtract(PyObject *l, PyObject *r) {
    Operand a, b;
    PyObject *out;
    if (!operands(l, r, &a, &b, &out, value_subtract)) {
        return out;
    }
    if (b.node == NULL) {
        return Py_TYPE(l) == ValueType ? make_add_number(a.node, negative(&b))
                                       : with_number(l, negative(&b), PyNumber_Add);
    }
    PyObject *inner = Py_TYPE(r) == ValueType ? value_negative(r) : PyNumber_Negative(r);
    if (inner == NULL) {
        return NULL;
    }
    return release(PyNumber_Add(a.node ? l : inner, a.node ? inner : l), inner);
}

static PyObject *value_power(PyObject *l, PyObject *r, PyObject *modulo);

static PyObject *plain_power(PyObject *l, PyObject *r) { return value_power(l, r, Py_None); }

static PyObject *value_power(PyObject *l, PyObject *r, PyObject *modulo) {
    Operand a, b;
    PyObject *out;
    if (modulo != Py_None) {
        return Py_NewRef(Py_NotImplemented);
    }
    if (UNLIKELY(recorder != NULL) && is_value(l) && !is_value(r)) {
        /* An exponent is static: the recorder answers with a number, or refuses. */
        PyObject *exponent = PyObject_CallMethod(recorder, "exponent", "(O)", r);
        double number = exponent ? PyFloat_AsDouble(exponent) : -1.0;
        Py_XDECREF(exponent);
        return number == -1.0 && PyErr_Occurred() ? NULL : make_power((Node *)l, number);
    }
    if (!operands(l, r, &a, &b, &out, plain_power)) {
        return out;
    }
    if (a.node != NULL && b.node != NULL) {
        return make_variable_power(a.node, b.node);
    }
    if (a.node == NULL) {
        PyObject *base = recorder ? PyObject_CallFunction((PyObject *)ValueType, "d", a.number)
                                  : (PyObject *)new_leaf(a.number);
        return base ? release(make_variable_power((Node *)base, b.node), base) : NULL;
    }
    return make_power(a.node, b.number);
}

static PyObject *reciprocal(PyObject *v) {
    if (Py_TYPE(v) == ValueType) {
        return make_power((Node *)v, -1.0);
    }
    PyObject *minus_one = PyLong_FromLong(-1);
    PyObject *result = minus_one ? PyNumber_Power(v, minus_one, Py_None) : NULL;
    Py_XDECREF(minus_one);
    return result;
}

static PyObject *value_divide(PyObject *l, PyObject *r) {
    Operand a, b;
    PyObject *out;
    if (!operands(l, r, &a, &b, &out, value_divide)) {
        return out;
    }
    if (b.node == NULL) {
        double inverse = pow(b.number, -1.0);
        if (UNLIKELY(!isfinite(inverse))) {
            PyObject *number = PyFloat_FromDouble(b.number);
            int failed = number ? check_power(inverse, b.number, number, -1.0) : -1;
            Py_XDECREF(number);
            if (failed < 0) {
                return NULL;
            }
        }
        return Py_TYPE(l) == ValueType ? make_mul_number(a.node, inverse)
                                       : with_number(l, inverse, PyNumber_Multiply);
    }
    PyObject *inner = reciprocal(r);
    if (inner == NULL) {
        return NULL;
    }
    return release(PyNumber_Multiply(a.node ? l : inner, a.node ? inner : l), inner);
}

static PyObject *value_positive(PyObject *self) { return Py_NewRef(self); }
static int value_bool(PyObject *self) {
    if (UNLIKELY(recorder != NULL)) {
        PyObject *answer = PyObject_CallMethod(recorder, "truth", "(O)", self);
        int truth = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        return truth;
    }
    return ((Node *)self)->data != 0.0;
}
/* Tell the recorder that somebody asks which Value this is. */
static int asks_identity(void) {
    PyObject *nothing = PyObject_CallMethod(recorder, "compared", NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

static Py_hash_t value_hash(PyObject *self) {
    if (UNLIKELY(recorder != NULL) && asks_identity() < 0) {
        return -1;
    }
    return (Py_hash_t)((uintptr_t)self >> 4 | (uintptr_t)self << 60);
}

static richcmpfunc object_compare;

static PyObject *value_compare(PyObject *l, PyObject *r, int comparison) {
    if (comparison == Py_EQ || comparison == Py_NE) { /* identity, as every object has it */
        if (UNLIKELY(recorder != NULL) && is_value(r) && asks_identity() < 0) {
            return NULL;
        }
        return object_compare(l, r, comparison);
    }
    if (UNLIKELY(recorder != NULL)) {
        return PyObject_CallMethod(recorder, "compare", "OOi", l, r, comparison);
    }
    Operand b;
    int known = operand(r, &b);
    if (known != 1) {
        return known < 0 ? NULL : refuse(r);
    }
    double x = ((Node *)l)->data, y = b.node ? b.node->data : b.number;
    switch (comparison) {
    case Py_LT: return PyBool_FromLong(x < y);
    case Py_LE: return PyBool_FromLong(x <= y);
    case Py_GT: return PyBool_FromLong(x > y);
    default: return PyBool_FromLong(x >= y);
    }
}

#define ELEMENTARY(name, kind)                                                                    \
    static PyObject *value_##name(PyObject *self, PyObject *Py_UNUSED(nothing)) {                 \
        return make_elementary(kind, (Node *)self);                                               \
    }
ELEMENTARY(exp, EXP)
ELEMENTARY(log, LOG)
ELEMENTARY(relu, RELU)
ELEMENTARY(tanh, TANH)
ELEMENTARY(sigmoid, SIGMOID)
ELEMENTARY(sqrt, SQRT)
ELEMENTARY(sin, SIN)
ELEMENTARY(cos, COS)

static PyObject *value_maximum(PyObject *self, PyObject *other) {
    Operand b;
    if (UNLIKELY(recorder != NULL) && !is_value(other) && !PyFloat_Check(other) &&
        !PyLong_Check(other)) {
        return with_recorded_operands(self, other, value_maximum);
    }
    int known = operand(other, &b);
    if (known == 1) {
        return make_maximum((Node *)self, b.node, b.number);
    }
    return known < 0 ? NULL
                     : PyObject_CallMethod(errors_module, "real", "Os", other,
                                           "an operand of maximum");
}

/* -------------------------------------------------------------------------------- the walk ----- */

typedef struct {
    Node *node;
    double old; /* its gradient before the walk */
} Saved;

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

/* What a node passes on to a child. A slope of zero passes nothing, so that 0 * inf is not a nan. */
static inline double share(double slope, double g) { return slope == 0.0 ? 0.0 : slope * g; }

/* Turn a number operand into the leaf it stands for, with the gradient that leaf would have. */
static int materialise(Node *n, Kind kind) {
    Node *leaf = new_leaf(number_of(n, kind));
    if (leaf == NULL) {
        return -1;
    }
    if ((n->child[1] & SWEPT) && n->grad != 0.0) {
        leaf->grad = 0.0 + share(number_slope(n, kind), n->grad);
    }
    uintptr_t flags = n->child[1] & (MARK | NOTED);
    n->slope[1] = number_slope(n, kind);
    set_kind(n, (Kind)(kind - 1), child_of(n, 0), leaf);
    n->child[1] |= flags;
    return 0;
}

static inline Node *walk_child(const Node *n, Py_ssize_t i) {
    if (UNLIKELY(kind_of(n) == EXTENDED)) {
        const Extension *x = extension_of(n);
        return i < x->count ? x->children[i] : NULL;
    }
    return i < 2 ? child_of(n, (int)i) : NULL;
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

/* What would not happen again when a recording is replayed: the recorder raises. */
static int forbidden(const char *what) {
    if (LIKELY(recorder == NULL)) {
        return 0;
    }
    PyObject *answer = PyObject_CallMethod(recorder, "forbid", "s", what);
    Py_XDECREF(answer);
    return answer == NULL;
}

/* A number for an attribute or argument; errors.real words the refusal. */
static int real_number(PyObject *o, const char *role, double *out) {
    if (PyFloat_CheckExact(o)) {
        *out = PyFloat_AsDouble(o);
        return 0;
    }
    if (PyLong_CheckExact(o)) {
        *out = PyLong_AsDouble(o);
        return *out == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *number = PyObject_CallMethod(errors_module, "real", "Os", o, role);
    if (number == NULL) {
        return -1;
    }
    *out = PyFloat_AsDouble(number);
    Py_DECREF(number);
    return 0;
}

static PyObject *value_backward(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"gradient", NULL};
    PyObject *given = NULL;
    double seed = 1.0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:backward", names, &given) ||
        (given != NULL && real_number(given, "the gradient", &seed) < 0) || forbidden("backward()")) {
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

/* _gradients(xs, up_to): the derivative by each of xs. Every gradient is left as it was. With up_to no
 * x passes anything on: marked beforehand, it counts as visited, and the walk does not enter it. */
static PyObject *value_gradients(PyObject *self, PyObject *args) {
    PyObject *xs, *result = NULL;
    int up_to, failed = 0;
    if (!PyArg_ParseTuple(args, "O!p:_gradients", &PyList_Type, &xs, &up_to) || forbidden("gradients()")) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(xs);
    Saved *saved = PyMem_Malloc(((size_t)count + 1) * sizeof(Saved));
    double *found = PyMem_Malloc(((size_t)count + 1) * sizeof(double));
    Scratch s = take_scratch();
    if (saved == NULL || found == NULL) {
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
    Node *root = (Node *)self;
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
    result = failed ? NULL : PyList_New(count);
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        PyObject *number = PyFloat_FromDouble(found[i]);
        if (number == NULL) {
            Py_CLEAR(result);
        } else {
            PyList_SetItem(result, i, number);
        }
    }
done:
    give_scratch(&s);
    PyMem_Free(saved);
    PyMem_Free(found);
    return result;
}

static PyObject *value_zero_grad(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    if (forbidden("zero_grad()")) {
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

static PyObject *topological_order(PyObject *Py_UNUSED(module), PyObject *value) {
    if (!is_value(value)) {
        PyObject *name = PyType_GetName(Py_TYPE(value));
        if (name != NULL) {
            PyErr_Format(PyExc_TypeError, "topological_order takes a Value, not a %U", name);
            Py_DECREF(name);
        }
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

static PyObject *value_order(PyObject *self, PyObject *Py_UNUSED(nothing)) {
    return topological_order(NULL, self);
}

/* ------------------------------------------------------------------------------- attributes ---- */

static PyObject *get_data(PyObject *self, void *Py_UNUSED(closure)) {
    if (UNLIKELY(recorder != NULL)) {
        return PyObject_CallMethod(recorder, "data_of", "(O)", self);
    }
    return PyFloat_FromDouble(((Node *)self)->data);
}
static PyObject *get_number(PyObject *self, void *Py_UNUSED(closure)) {
    return PyFloat_FromDouble(((Node *)self)->data);
}
static PyObject *get_grad(PyObject *self, void *Py_UNUSED(closure)) {
    if (forbidden("reading .grad")) {
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
    if (forbidden("setting .grad") || no_deleting(value, "grad") ||
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
    return Py_NewRef(kind == UNBUILT ? Py_None
                     : kind == LEAF  ? empty_string
                     : kind == EXTENDED ? extension_of(n)->rule
                                        : rows[kind]);
}

static PyObject *get_parameters(PyObject *self, void *Py_UNUSED(closure)) {
    Node *n = (Node *)self;
    switch (kind_of(n)) {
    case POW: return Py_BuildValue("(d)", n->slope[1]);
    case EXTENDED: return Py_NewRef(extension_of(n)->parameters);
    default: return Py_NewRef(empty_tuple);
    }
}

static PyObject *get_op(PyObject *self, void *closure) {
    Node *n = (Node *)self;
    PyObject *rule = kind_of(n) == UNBUILT ? Py_NewRef(empty_string) : get_rule(self, closure);
    if (PyUnicode_Check(rule)) {
        return rule;
    }
    PyObject *parameters = get_parameters(self, closure), *symbol = NULL;
    if (parameters != NULL) {
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
    if (has_number(kind) && materialise(n, kind) < 0) {
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
    if (forbidden("reading local_grads")) {
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

/* ------------------------------------------------------------------------------- construction -- */

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

static int build_extended(Node *n, PyObject *rule, PyObject *parameters, PyObject *children,
                          const double *slopes) {
    Py_ssize_t count = PyTuple_Size(children);
    Extension *x = PyMem_Malloc(sizeof(Extension) + (size_t)count * (sizeof(Node *) + sizeof(double)));
    if (x == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    x->count = count;
    x->rule = Py_NewRef(rule);
    x->parameters = Py_NewRef(parameters);
    x->slopes = (double *)(x->children + count);
    memcpy(x->slopes, slopes, (size_t)count * sizeof(double));
    for (Py_ssize_t i = 0; i < count; i++) {
        x->children[i] = (Node *)Py_NewRef(PyTuple_GetItem(children, i));
        settle(x->children[i]);
    }
    uintptr_t noted = n->child[1] & NOTED;
    set_kind(n, EXTENDED, x, NULL);
    n->child[1] |= noted;
    return 0;
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

/* ------------------------------------------------------------------------------------- sums ---- */

static int is_exact(PyObject *o) { return Py_TYPE(o) == ValueType; }

/* total + term as Python's sum() does it, from int 0 on; takes both references. */
static PyObject *sum_step(PyObject *total, PyObject *term) {
    PyObject *sum = NULL;
    if (term == NULL) {
        /* the error stands */
    } else if (total == NULL) {
        if (is_exact(term)) {
            sum = make_add_number((Node *)term, 0.0);
        } else {
            PyObject *zero = PyLong_FromLong(0);
            sum = zero ? PyNumber_Add(zero, term) : NULL;
            Py_XDECREF(zero);
        }
    } else if (is_exact(total) && is_exact(term)) {
        sum = make_add((Node *)total, (Node *)term);
    } else {
        sum = PyNumber_Add(total, term);
    }
    Py_XDECREF(total);
    Py_XDECREF(term);
    return sum;
}

/* A sum as a Value: the empty one is Value(0). */
static PyObject *as_value(PyObject *total) {
    if (total == NULL) {
        return recorder ? PyObject_CallFunction((PyObject *)ValueType, "d", 0.0)
                        : (PyObject *)new_leaf(0.0);
    }
    if (is_value(total)) {
        return total;
    }
    PyObject *value = PyObject_CallFunctionObjArgs((PyObject *)ValueType, total, NULL);
    Py_DECREF(total);
    return value;
}

static PyObject *vsum(PyObject *Py_UNUSED(module), PyObject *values) {
    PyObject *terms = PySequence_Tuple(values), *total = NULL;
    if (terms == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(terms);
    for (Py_ssize_t i = 0; i < count; i++) {
        total = sum_step(total, Py_NewRef(PyTuple_GetItem(terms, i)));
        if (total == NULL) {
            Py_DECREF(terms);
            return NULL;
        }
    }
    Py_DECREF(terms);
    return as_value(total);
}

static PyObject *dot_tuples(PyObject *a, PyObject *b) {
    Py_ssize_t count = PyTuple_Size(a);
    if (count != PyTuple_Size(b)) {
        return PyErr_Format(PyExc_ValueError, "dot needs two vectors of one length, got %zd and %zd",
                            count, PyTuple_Size(b));
    }
    PyObject *total = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *x = PyTuple_GetItem(a, i), *y = PyTuple_GetItem(b, i);
        PyObject *term = is_exact(x) && is_exact(y) ? make_mul((Node *)x, (Node *)y)
                                                    : PyNumber_Multiply(x, y);
        total = sum_step(total, term);
        if (total == NULL) {
            return NULL;
        }
    }
    return as_value(total);
}

static PyObject *dot(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "OO:dot", &a, &b)) {
        return NULL;
    }
    PyObject *left = PySequence_Tuple(a), *right = left ? PySequence_Tuple(b) : NULL;
    PyObject *result = right ? dot_tuples(left, right) : NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static PyObject *linear(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x, *w, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO:linear", &x, &w)) {
        return NULL;
    }
    PyObject *vector = PySequence_Tuple(x), *matrix = vector ? PySequence_Tuple(w) : NULL;
    if (matrix != NULL && (result = PyList_New(0)) != NULL) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(matrix); i++) {
            PyObject *row = PySequence_Tuple(PyTuple_GetItem(matrix, i));
            PyObject *y = row ? dot_tuples(row, vector) : NULL;
            int failed = y == NULL || PyList_Append(result, y) < 0;
            Py_XDECREF(row);
            Py_XDECREF(y);
            if (failed) {
                Py_CLEAR(result);
                break;
            }
        }
    }
    Py_XDECREF(vector);
    Py_XDECREF(matrix);
    return result;
}

#include "arrays.h"
#include "lift.h"
#include "checks.h"
#include "passed.h"
#include "plan.h"
#include "samples.h"

/* ------------------------------------------------------------------------------- the module ---- */

static PyObject *allocation_counts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return Py_BuildValue("(nnn)", live_nodes, slab_count, (Py_ssize_t)note_count);
}

/* The switches of the calling thread, as attributes. */
static PyObject *get_recorder(PyObject *Py_UNUSED(self), void *Py_UNUSED(name)) {
    return Py_NewRef(recorder ? recorder : Py_None);
}

static int set_recorder(PyObject *Py_UNUSED(self), PyObject *value, void *Py_UNUSED(name)) {
    PyObject *old = recorder, *old_list = recorded, *nodes = NULL;
    if (value != NULL && value != Py_None) {
        nodes = PyObject_GetAttrString(value, "nodes");
        if (nodes == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        if (nodes == NULL || !PyList_Check(nodes)) {
            Py_XDECREF(nodes);
            PyErr_SetString(PyExc_TypeError, "a recorder has a list of nodes");
            return -1;
        }
    }
    recorder = nodes ? Py_NewRef(value) : NULL;
    recorded = nodes;
    Py_XDECREF(old);
    Py_XDECREF(old_list);
    return 0;
}

static PyObject *get_mode(PyObject *Py_UNUSED(self), void *name) {
    switch (*(const char *)name) {
    case 'g': return PyBool_FromLong(!grad_off);
    case 'a': return PyBool_FromLong(nonfinite_allowed);
    default: return PyBool_FromLong(debug_on);
    }
}

static int set_mode(PyObject *Py_UNUSED(self), PyObject *value, void *name) {
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a mode cannot be deleted");
        return -1;
    }
    int on = PyObject_IsTrue(value);
    if (on < 0) {
        return -1;
    }
    switch (*(const char *)name) {
    case 'g': grad_off = !on; break;
    case 'a': nonfinite_allowed = on; break;
    default: debug_on = on; break;
    }
    return 0;
}

static PyGetSetDef modes_attributes[] = {
    {"grad", get_mode, set_mode, "record the graph", "g"},
    {"allow_nonfinite", get_mode, set_mode, "let inf and nan through", "a"},
    {"debug", get_mode, set_mode, "remember the source line of every node", "d"},
    {"recorder", get_recorder, set_recorder, "told of every node while a function is recorded", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot modes_slots[] = {{Py_tp_getset, modes_attributes}, {0, NULL}};
static PyType_Spec modes_spec = {"chainrule._native.Modes", sizeof(PyObject), 0,
                                 Py_TPFLAGS_DEFAULT, modes_slots};

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
    {"tanh", value_tanh, METH_NOARGS, "tanh($self, /)\n--\n\ntanh(x), as a Value."},
    {"sigmoid", value_sigmoid, METH_NOARGS, "sigmoid($self, /)\n--\n\n1 / (1 + exp(-x)), as a Value."},
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
    {Py_nb_bool, value_bool},
    {0, NULL},
};

/* A heap type that users may extend and patch; without the garbage collector's flag, since children
 * are set only at construction and so a graph has no cycles. */
static PyType_Spec value_spec = {"chainrule.Value", sizeof(Node), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, value_slots};

static PyMethodDef functions[] = {
    {"topological_order", topological_order, METH_O,
     "topological_order(value, /)\n--\n\n"
     "Every node of the graph, inputs first: each after all of its children.\n\n"
     ">>> from chainrule import Value, topological_order\n"
     ">>> a, b = Value(2.0, label='a'), Value(3.0, label='b')\n"
     ">>> [v.op or v.label for v in topological_order(a * b + a)]\n"
     "['a', 'b', '*', '+']"},
    {"vsum", vsum, METH_O, 
     "vsum(values, /)\n--\n\n"
     "``sum(values)`` as a Value, also when there are none: ``vsum([])`` is ``Value(0)``.\n\n"
     ">>> from chainrule import Value, vsum\n"
     ">>> vsum([Value(1.0), Value(2.0), Value(3.0)]).data\n"
     "6.0"},
    {"dot", dot, METH_VARARGS, 
     "dot(a, b, /)\n--\n\n``sum(x * y for x, y in zip(a, b))``: the same nodes, in one call.\n\n"
     ">>> from chainrule import Value, dot\n"
     ">>> dot([Value(1.0), Value(2.0)], [3.0, 4.0]).data\n"
     "11.0"},
    {"linear", linear, METH_VARARGS, 
     "linear(x, w, /)\n--\n\n"
     "A matrix times a vector, microgpt's ``linear``: ``[dot(row, x) for row in w]``.\n\n"
     ">>> from chainrule import Value, linear\n"
     ">>> w = [[Value(3.0), Value(4.0)], [Value(5.0), Value(6.0)]]\n"
     ">>> [y.data for y in linear([1.0, 2.0], w)]\n"
     "[11.0, 17.0]"},
    {"allocation_counts", allocation_counts, METH_NOARGS,
     "allocation_counts()\n--\n\nLive nodes, slabs held, entries in the side table."},
    ARRAY_FUNCTIONS
    LIFT_FUNCTIONS
    PASSED_FUNCTIONS
    SAMPLE_FUNCTIONS
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "chainrule._native",
                                        "chainrule.Value in C.", -1, functions,
                                        NULL, NULL, NULL, NULL};

static const char *const row_names[KINDS] = {
    [ADD] = "add", [ADD_NUMBER] = "add", [MUL] = "mul", [MUL_NUMBER] = "mul", [POW] = "pow",
    [EXP] = "exp", [LOG] = "log", [RELU] = "relu", [TANH] = "tanh", [SIGMOID] = "sigmoid",
    [SQRT] = "sqrt", [SIN] = "sin", [COS] = "cos", [MAXIMUM] = "maximum",
    [MAXIMUM_NUMBER] = "maximum", [POWER] = "power",
};

static const char *const building_blocks[T_ROW] = {
    [T_DETACH] = "detach", [T_DIVIDE] = "divide", [T_LESS] = "less", [T_LESS_EQUAL] = "less_equal",
    [T_EQUAL] = "equal", [T_SELECT] = "select", [T_FIRST_MAX] = "first_max",
    [T_FIRST_MIN] = "first_min",
};

/* What this file needs from the Python modules below it. */
static int import_parts(void) {
    PyObject *ops = PyImport_ImportModule("chainrule.core.ops");
    PyObject *protocols = PyImport_ImportModule("chainrule.core.protocols"), *class = NULL;
    errors_module = PyImport_ImportModule("chainrule.core.errors");
    object_compare = (richcmpfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_richcompare);
    empty_tuple = PyTuple_New(0);
    empty_string = PyUnicode_FromString("");
    if (ops && protocols && errors_module && empty_tuple && empty_string &&
        (class = PyObject_GetAttrString(protocols, "Protocols")) != NULL) {
        full_init = PyObject_GetAttrString(class, "__init__");
        for (Kind kind = ADD; kind < EXTENDED; kind++) {
            rows[kind] = PyObject_GetAttrString(ops, row_names[kind]);
        }
        for (int code = T_DETACH; code < T_ROW; code++) {
            block_names[code] = PyObject_GetAttrString(ops, building_blocks[code]);
        }
    }
    Py_XDECREF(ops);
    Py_XDECREF(protocols);
    Py_XDECREF(class);
    return PyErr_Occurred() ? -1 : 0;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *modes_type = NULL, *modes = NULL;
    if (module == NULL || import_parts() < 0) {
        goto failed;
    }
    ValueType = (PyTypeObject *)PyType_FromSpec(&value_spec);
    modes_type = PyType_FromSpec(&modes_spec);
    modes = modes_type ? PyObject_CallFunctionObjArgs(modes_type, NULL) : NULL;
    TapeType = (PyTypeObject *)PyType_FromSpec(&tape_spec);
    PlanType = (PyTypeObject *)PyType_FromSpec(&plan_spec);
    ChecksType = (PyTypeObject *)PyType_FromSpec(&checks_spec);
    PassedType = (PyTypeObject *)PyType_FromSpec(&passed_spec);
    if (ValueType == NULL || modes == NULL || TapeType == NULL || PlanType == NULL || ChecksType == NULL ||
        PassedType == NULL || PyModule_AddObjectRef(module, "Passed", (PyObject *)PassedType) < 0 ||
        PyModule_AddObjectRef(module, "Checks", (PyObject *)ChecksType) < 0 ||
        PyModule_AddObjectRef(module, "Plan", (PyObject *)PlanType) < 0 ||
        PyModule_AddObjectRef(module, "Tape", (PyObject *)TapeType) < 0 ||
        PyModule_AddObjectRef(module, "Value", (PyObject *)ValueType) < 0 ||
        PyModule_AddObjectRef(module, "Modes", modes_type) < 0 ||
        PyModule_AddObjectRef(module, "modes", modes) < 0) {
        goto failed;
    }
    Py_DECREF(modes_type);
    Py_DECREF(modes);
    return module;
failed:
    Py_XDECREF(module);
    Py_XDECREF(modes_type);
    Py_XDECREF(modes);
    return NULL;
}
