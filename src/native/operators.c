/* The operators and functions of a Value: operands in, one or two nodes out. */
#include "standins.h"
#include "value.h"

static PyObject *make_power(Node *a, double p) {
    double y = pow(a->data, p);
    if (UNLIKELY(!isfinite(y)) && check_power(y, a->data, (PyObject *)a, p) < 0) {
        return NULL;
    }
    return new_node(POW, y, a, NULL, power_slope(a->data, p), p);
}

static PyObject *make_variable_power(Node *a, Node *b) {
    double x = a->data, p = b->data, y = positive_power(x, p);
    if (UNLIKELY(!isfinite(y)) && check_binary(POWER, y, a, b, 0) < 0) {
        return NULL;
    }
    return new_node(POWER, y, a, b, p * positive_power(x, p - 1.0), y * log(x));
}

static inline PyObject *make_elementary(Kind kind, Node *a) {
    double y, slope;
    elementary(kind, a->data, &y, &slope);
    if (UNLIKELY(!isfinite(y)) && check_unary(kind, y, a) < 0) {
        return NULL;
    }
    return new_node(kind, y, a, NULL, slope, 0.0);
}

/* -------------------------------------------------------------------------------- operands ----- */

typedef struct {
    Node *node; /* NULL for a number */
    double number;
    int integral; /* an int: its -0 is 0 */
} Operand;

/* numpy's float64, which an array of data gives; NULL until one may have come. */
static PyTypeObject *float64;

/* Whether this is exactly such a number: a float in all but its type. -1: an error. */
static int is_float64(PyObject *o) {
    if (UNLIKELY(float64 == NULL)) {
        PyObject *numpy = PyObject_GetAttrString(errors_module, "np");
        float64 = numpy ? (PyTypeObject *)PyObject_GetAttrString(numpy, "float64") : NULL;
        Py_XDECREF(numpy);
        if (float64 == NULL) {
            return -1;
        }
    }
    return Py_TYPE(o) == float64 && PyFloat_Check(o);
}

/* 1: an operand; 0: not one of ours, another type may answer; -1: an error. */
static int slow_operand(PyObject *o, Operand *out) {
    if (PyLong_CheckExact(o)) {
        out->number = PyLong_AsDouble(o);
        out->integral = 1;
        return out->number == -1.0 && PyErr_Occurred() ? -1 : 1;
    }
    if (recorder != NULL) {
        return 0; /* the recorder knows what this is */
    }
    int plain = is_float64(o);
    if (plain != 0) {
        out->number = plain > 0 ? PyFloat_AsDouble(o) : 0.0;
        return plain;
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
    if (is_value(o) || PyFloat_CheckExact(o) || PyLong_CheckExact(o)) {
        return Py_NewRef(o);
    }
    PyObject *data = data_behind(o);
    if (data == Py_None) {
        Py_DECREF(data);
        data = detached_behind(o);
    }
    if (data != Py_None) {
        return data;
    }
    Py_DECREF(data);
    return ask_recorder(OPERAND_OF, o);
}

/* The same, negated. */
static PyObject *recorded_negative(PyObject *o) {
    PyObject *data = data_behind(o), *negative = NULL;
    if (data == Py_None) {
        negative = negative_behind(o);
        if (negative == Py_None) {
            Py_DECREF(negative);
            negative = ask_recorder(NEGATED, o);
        }
    } else if (data != NULL) {
        negative = value_negative(data);
    }
    Py_XDECREF(data);
    return negative;
}

static PyObject *with_recorded_operands(PyObject *l, PyObject *r, binaryfunc operator) {
    PyObject *left = recorded_operand(l), *right = left ? recorded_operand(r) : NULL, *out = NULL;
    if (right != NULL && operator == value_subtract && right != r && is_value(right)) {
        PyObject *negative = recorded_negative(r);
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

PyObject *value_add(PyObject *l, PyObject *r) {
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

PyObject *value_multiply(PyObject *l, PyObject *r) {
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

/* Operators composed of others use those of a subclass; for exactly Value they are called directly. */
static PyObject *with_number(PyObject *v, double number, binaryfunc operator) {
    PyObject *other = PyFloat_FromDouble(number);
    PyObject *result = other ? operator(v, other) : NULL;
    Py_XDECREF(other);
    return result;
}

PyObject *value_negative(PyObject *self) {
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

PyObject *value_subtract(PyObject *l, PyObject *r) {
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

static PyObject *plain_power(PyObject *l, PyObject *r) { return value_power(l, r, Py_None); }

PyObject *value_power(PyObject *l, PyObject *r, PyObject *modulo) {
    Operand a, b;
    PyObject *out;
    if (modulo != Py_None) {
        return Py_NewRef(Py_NotImplemented);
    }
    if (UNLIKELY(recorder != NULL) && is_value(l) && !is_value(r)) {
        /* The recorder answers with the power, if the exponent is one of the recording; else it is static:
         * a number, or refused. */
        if (PyFloat_CheckExact(r) || PyLong_CheckExact(r)) {
            double number = PyFloat_AsDouble(r);
            return number == -1.0 && PyErr_Occurred() ? NULL : make_power((Node *)l, number);
        }
        PyObject *made = PyObject_CallMethod(recorder, "power", "(OO)", l, r);
        if (made != Py_None) {
            return made;
        }
        Py_DECREF(made);
        PyObject *exponent = ask_recorder(EXPONENT, r);
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

PyObject *value_divide(PyObject *l, PyObject *r) {
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

PyObject *value_positive(PyObject *self) { return Py_NewRef(self); }

PyObject *value_absolute(PyObject *self) { return make_elementary(ABS, (Node *)self); }
int value_bool(PyObject *self) {
    if (UNLIKELY(recorder != NULL)) {
        PyObject *answer = ask_recorder(TRUTH, self);
        int truth = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        return truth;
    }
    return ((Node *)self)->data != 0.0;
}
/* Tell the recorder that the code asks which Value this is. */
static int asks_identity(void) {
    PyObject *nothing = PyObject_CallMethod(recorder, "compared", NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

Py_hash_t value_hash(PyObject *self) {
    /* Its address is its hash: no other node may have it later on. */
    if ((UNLIKELY(recorder != NULL) && asks_identity() < 0) || asks_graph((Node *)self) < 0) {
        return -1;
    }
    return (Py_hash_t)((uintptr_t)self >> 4 | (uintptr_t)self << 60);
}

/* Whether a class has an __eq__ of its own; -1: an error. */
static int has_own_equality(PyTypeObject *type) {
    if (type == ValueType) {
        return 0;
    }
    PyObject *own = PyObject_GetAttrString((PyObject *)type, "__eq__");
    PyObject *ours = own ? PyObject_GetAttrString((PyObject *)ValueType, "__eq__") : NULL;
    int answer = ours == NULL ? -1 : own != ours;
    Py_XDECREF(own);
    Py_XDECREF(ours);
    return answer;
}

PyObject *value_compare(PyObject *l, PyObject *r, int comparison) {
    int is_equality = comparison == Py_EQ || comparison == Py_NE;
    int is_own = comparison == Py_NE ? has_own_equality(Py_TYPE(l)) : 0;
    if (is_own != 0) { /* a subclass's own, and so its opposite */
        richcmpfunc opposite = (richcmpfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_richcompare);
        return is_own < 0 ? NULL : opposite(l, r, Py_NE);
    }
    if (is_equality && is_value(r)) { /* between two Values identity, as every object has it */
        if (UNLIKELY(recorder != NULL) && asks_identity() < 0) {
            return NULL;
        }
        return PyBool_FromLong((l == r) == (comparison == Py_EQ));
    }
    if (UNLIKELY(recorder != NULL)) {
        return PyObject_CallMethod(recorder, "compare", "OOi", l, r, comparison);
    }
    Operand b;
    int known = operand(r, &b);
    if (known < 0 && is_equality && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear(); /* beyond floats */
        return PyBool_FromLong(comparison == Py_NE);
    }
    if (known != 1) {
        return known < 0 ? NULL : is_equality ? Py_NewRef(Py_NotImplemented) : refuse(r);
    }
    double x = ((Node *)l)->data, y = b.node ? b.node->data : b.number;
    switch (comparison) {
    case Py_LT: return PyBool_FromLong(x < y);
    case Py_LE: return PyBool_FromLong(x <= y);
    case Py_GT: return PyBool_FromLong(x > y);
    case Py_EQ: return PyBool_FromLong(x == y);
    case Py_NE: return PyBool_FromLong(x != y);
    default: return PyBool_FromLong(x >= y);
    }
}

#define ELEMENTARY(name, kind)                                                                    \
    PyObject *value_##name(PyObject *self, PyObject *Py_UNUSED(nothing)) {                 \
        return make_elementary(kind, (Node *)self);                                               \
    }
ELEMENTARY(exp, EXP)
ELEMENTARY(log, LOG)
ELEMENTARY(relu, RELU)
ELEMENTARY(abs, ABS)
ELEMENTARY(tanh, TANH)
ELEMENTARY(sigmoid, SIGMOID)
ELEMENTARY(softplus, SOFTPLUS)
ELEMENTARY(sqrt, SQRT)
ELEMENTARY(sin, SIN)
ELEMENTARY(cos, COS)

PyObject *value_maximum(PyObject *self, PyObject *other) {
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
