/* The calls of a compiled function before any Python code: what its gate answers is returned at once.
 *
 * In: the arguments as they are passed. Out: what the gate gives, or what methods of the instance make of it,
 * or of its having no answer; see compiler/runtime/entrances.py.
 */
#include "call.h"

static PyObject *finish_name, *derived_name, *unanswered_name, *differentiate_name, *out_name, *code_name;

static void put(PyObject **field, PyObject *x) {
    PyObject *before = *field;
    *field = Py_XNewRef(x);
    Py_XDECREF(before);
}

/* ----------------------------------------------------------------- entrances ------------------- */

/* What a call gives: what the function returns, what a derivative other than a gradient does, or that; BESIDE: a
 * derivative of a function that has to return something beside its value. */
enum { VALUE, WHOLE, VALUE_AND_GRADIENT, GRADIENT, BESIDE };

/* Bases of Python's CompiledFunction and CompiledDerivative. */
typedef struct {
    PyObject_HEAD
    PyObject *gate; /* or NULL or None: all calls go on to Python */
    int wanted;     /* of the above */
    PyObject *named; /* a tuple: the function, its code and the names of its parameters; or NULL or None */
} Entrance;

#define MOST_PLACED 16 /* arguments of a call with keywords that is answered here */

/* The arguments of a call, in the order of the parameters. */
typedef struct {
    PyObject *items[MOST_PLACED]; /* borrowed */
    Py_ssize_t count, filled;
    PyObject *names; /* of the parameters, a tuple */
} Places;

/* The answer of the gate, or None. */
static PyObject *answer_at_once(PyObject *self, Given given, int differentiate, PyObject *out) {
    PyObject *gate = ((Entrance *)self)->gate;
    if (gate == NULL || Py_TYPE(gate) != GateType) {
        return Py_NewRef(Py_None);
    }
    Py_INCREF(gate);
    PyObject *answer = ask_gate(gate, given, differentiate, out);
    Py_DECREF(gate);
    return answer;
}

/* Begin with what is passed by position, if so many keywords may follow: the function's names are known, and it has the
 * code still that they are of. 0: it has not; -1: an error. */
static int begin_places(Places *x, PyObject *self, const Given *given, Py_ssize_t named) {
    PyObject *known = ((Entrance *)self)->named;
    x->count = given->count + named;
    if (known == NULL || !PyTuple_CheckExact(known) || PyTuple_Size(known) != 3 || given->count == 0 ||
        x->count > MOST_PLACED) {
        return 0;
    }
    PyObject *code = PyObject_GetAttr(PyTuple_GetItem(known, 0), code_name);
    if (code == NULL) {
        return -1;
    }
    Py_DECREF(code);
    x->names = PyTuple_GetItem(known, 2);
    if (code != PyTuple_GetItem(known, 1) || !PyTuple_CheckExact(x->names) || PyTuple_Size(x->names) < x->count) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < x->count; k++) {
        x->items[k] = k < given->count ? given_item(given, k) : NULL;
    }
    x->filled = given->count;
    return 1;
}

/* Put an argument into the place of its name among those that follow. 0: it is none of these; -1: an error. */
static int place_named(Places *x, PyObject *name, PyObject *item) {
    for (Py_ssize_t k = 0; k < x->count; k++) {
        int same = x->items[k] == NULL ? PyObject_RichCompareBool(PyTuple_GetItem(x->names, k), name, Py_EQ) : 0;
        if (same != 0) {
            x->items[k] = same > 0 ? item : NULL;
            x->filled += same > 0;
            return same;
        }
    }
    return 0;
}

/* The answer of the gate to a call whose arguments are all in their places, or None. */
static PyObject *placed_answer(PyObject *self, const Places *x, int placed, int differentiate, PyObject *out) {
    if (placed < 0) {
        return NULL;
    }
    int whole = placed > 0 && x->filled == x->count;
    return whole ? answer_at_once(self, (Given){NULL, x->items, x->count}, differentiate, out) : Py_NewRef(Py_None);
}

/* What a function returned, of the answer of the gate, which is taken: NotImplemented is for None. */
static PyObject *returned(PyObject *answer) {
    if (answer != Py_NotImplemented) {
        return answer;
    }
    Py_DECREF(answer);
    return Py_NewRef(Py_None);
}

/* Whether an answer is that to a call with a gradient: the value, not with anything beside it, and slopes. */
static int is_plain_pair(PyObject *answer) {
    return PyTuple_CheckExact(answer) && PyTuple_Size(answer) == 2 && PyFloat_CheckExact(PyTuple_GetItem(answer, 0));
}

/* entrance(*args, **keywords): a value, or the derivative. `_unanswered(args, keywords)` computes what the gate does
 * not, and `_derived(answer, args)` makes something of answers with more than a value and its gradient. */
static PyObject *entrance_call(PyObject *self, PyObject *args, PyObject *keywords) {
    int wanted = ((Entrance *)self)->wanted;
    if (keywords != NULL && PyDict_Size(keywords) > 0 && wanted == VALUE) {
        Places places;
        Given given = given_tuple(args);
        PyObject *name, *item;
        Py_ssize_t at = 0;
        int placed = begin_places(&places, self, &given, PyDict_Size(keywords));
        while (placed > 0 && PyDict_Next(keywords, &at, &name, &item)) { /* comparing names runs no Python code */
            placed = place_named(&places, name, item);
        }
        PyObject *answer = placed_answer(self, &places, placed, 0, NULL);
        if (answer == NULL || answer != Py_None) {
            return returned(answer);
        }
        Py_DECREF(answer);
    }
    if (keywords == NULL || PyDict_Size(keywords) == 0) {
        PyObject *answer = answer_at_once(self, given_tuple(args), wanted != VALUE, NULL), *made;
        if (answer == NULL || (answer != Py_None && wanted <= WHOLE)) {
            return returned(answer);
        }
        if (answer != Py_None) {
            if (wanted == BESIDE || !is_plain_pair(answer)) {
                made = PyObject_CallMethodObjArgs(self, derived_name, answer, args, NULL);
            } else {
                made = Py_NewRef(wanted == GRADIENT ? PyTuple_GetItem(answer, 1) : answer);
            }
            Py_DECREF(answer);
            return made;
        }
        Py_DECREF(answer);
    }
    PyObject *given = keywords != NULL ? Py_NewRef(keywords) : PyDict_New();
    PyObject *made = given != NULL ? PyObject_CallMethodObjArgs(self, unanswered_name, args, given, NULL) : NULL;
    Py_XDECREF(given);
    return made;
}

/* _differentiate(args, keywords, out, answer): the value and the gradient, of which the gate had the answer, or None. */
static PyObject *differentiate_slowly(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names,
                                      PyObject *out, PyObject *answer) {
    PyObject *args = PyTuple_New(count), *keywords = PyDict_New(), *made = NULL;
    int failed = args == NULL || keywords == NULL;
    for (Py_ssize_t k = 0; !failed && k < count; k++) {
        PyTuple_SetItem(args, k, Py_NewRef(given[k]));
    }
    for (Py_ssize_t k = 0; !failed && names != NULL && k < PyTuple_Size(names); k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        int same = PyObject_RichCompareBool(name, out_name, Py_EQ);
        failed = same < 0 || (same == 0 && PyDict_SetItem(keywords, name, given[count + k]) < 0);
    }
    if (!failed) {
        made = PyObject_CallMethodObjArgs(self, differentiate_name, args, keywords, out != NULL ? out : Py_None, answer,
                                          NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    return made;
}

/* value_and_grad(*args, out=None, **keywords). */
static PyObject *entrance_differentiate(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names) {
    PyObject *out = NULL, *answer;
    Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0, others = named;
    for (Py_ssize_t k = 0; k < named; k++) {
        int same = PyObject_RichCompareBool(PyTuple_GetItem(names, k), out_name, Py_EQ);
        if (same < 0) {
            return NULL;
        }
        if (same) {
            out = given[count + k] == Py_None ? NULL : given[count + k];
            others--;
        }
    }
    Given passed = {NULL, given, count};
    if (others > 0) {
        Places places;
        int placed = begin_places(&places, self, &passed, others);
        for (Py_ssize_t k = 0; k < named && placed > 0; k++) {
            PyObject *name = PyTuple_GetItem(names, k);
            int is_out = PyObject_RichCompareBool(name, out_name, Py_EQ);
            placed = is_out < 0 ? -1 : is_out ? 1 : place_named(&places, name, given[count + k]);
        }
        answer = placed_answer(self, &places, placed, 1, out);
    } else {
        answer = answer_at_once(self, passed, 1, out);
    }
    if (answer == NULL || (answer != Py_None && out == NULL)) {
        return answer;
    }
    PyObject *made;
    if (PyFloat_CheckExact(answer)) { /* the gradient is there */
        made = PyTuple_Pack(2, answer, out);
    } else {
        made = differentiate_slowly(self, given, count, names, out, answer);
    }
    Py_DECREF(answer);
    return made;
}

static int entrance_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Entrance *)self)->gate);
    Py_VISIT(((Entrance *)self)->named);
    return 0;
}

static int entrance_clear(PyObject *self) {
    put(&((Entrance *)self)->gate, NULL);
    put(&((Entrance *)self)->named, NULL);
    return 0;
}

static void entrance_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    entrance_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyMemberDef entrance_members[] = {{"_gate", T_OBJECT, offsetof(Entrance, gate), 0, NULL},
                                         {"_wanted", T_INT, offsetof(Entrance, wanted), 0, NULL},
                                         {"_named", T_OBJECT, offsetof(Entrance, named), 0, NULL},
                                         {NULL, 0, 0, 0, NULL}};
PyDoc_STRVAR(differentiate_doc,
             "value_and_grad($self, /, *arguments, out=None, **keywords)\n--\n\n"
             "The value and its gradient by the first argument, in that argument's structure.\n\n"
             "``out``, an array for each array of the first argument in the same structure, receives the\n"
             "gradient in place; an argument of the function with that name is passed by position. If the\n"
             "function returns ``(value, extras)``, so does this.");
static PyMethodDef entrance_methods[] = {{"value_and_grad", (PyCFunction)(void (*)(void))entrance_differentiate,
                                          METH_FASTCALL | METH_KEYWORDS, differentiate_doc},
                                         {NULL, NULL, 0, NULL}};
static PyType_Slot entrance_slots[] = {{Py_tp_call, entrance_call},         {Py_tp_dealloc, entrance_dealloc},
                                       {Py_tp_traverse, entrance_traverse}, {Py_tp_clear, entrance_clear},
                                       {Py_tp_members, entrance_members},   {Py_tp_methods, entrance_methods},
                                       {0, NULL}};
PyType_Spec entrance_spec = {"chainrule._native.Entrance", sizeof(Entrance), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, entrance_slots};
static PyType_Slot derived_slots[] = {{Py_tp_call, entrance_call},         {Py_tp_dealloc, entrance_dealloc},
                                      {Py_tp_traverse, entrance_traverse}, {Py_tp_clear, entrance_clear},
                                      {Py_tp_members, entrance_members},   {0, NULL}};
PyType_Spec derived_entrance_spec = {"chainrule._native.DerivedEntrance", sizeof(Entrance), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, derived_slots};

/* ----------------------------------------------------------------- bound calls ----------------- */

/* A call with its arguments and memory for its gradient; a base of Python's BoundCall. */
typedef struct {
    PyObject_HEAD
    PyObject *gate, *arguments, *gradient;
} Bound;

/* bound(): the value; what the gate gives otherwise, None too, is for the method `finish`. */
static PyObject *bound_call(PyObject *self, PyObject *args, PyObject *keywords) {
    const Bound *b = (Bound *)self;
    if (PyTuple_Size(args) > 0 || (keywords != NULL && PyDict_Size(keywords) > 0)) {
        return PyErr_Format(PyExc_TypeError, "a bound call has its arguments: it takes none");
    }
    if (b->gate == NULL || Py_TYPE(b->gate) != GateType || b->arguments == NULL || !PyTuple_Check(b->arguments) ||
        b->gradient == NULL) {
        return PyErr_Format(PyExc_TypeError, "a bound call needs a gate, arguments and a gradient");
    }
    PyObject *arguments = Py_NewRef(b->arguments), *gradient = Py_NewRef(b->gradient);
    PyObject *gate = Py_NewRef(b->gate), *answer = ask_gate(gate, given_tuple(arguments), 1, gradient);
    Py_DECREF(gate);
    Py_DECREF(arguments);
    Py_DECREF(gradient);
    if (answer == NULL || PyFloat_CheckExact(answer)) {
        return answer;
    }
    PyObject *value = PyObject_CallMethodObjArgs(self, finish_name, answer, NULL);
    Py_DECREF(answer);
    return value;
}

static int bound_traverse(PyObject *self, visitproc visit, void *arg) {
    Bound *b = (Bound *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(b->gate);
    Py_VISIT(b->arguments);
    Py_VISIT(b->gradient);
    return 0;
}

static int bound_clear(PyObject *self) {
    Bound *b = (Bound *)self;
    put(&b->gate, NULL);
    put(&b->arguments, NULL);
    put(&b->gradient, NULL);
    return 0;
}

static void bound_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    bound_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyMemberDef bound_members[] = {{"gate", T_OBJECT_EX, offsetof(Bound, gate), 0, NULL},
                                      {"arguments", T_OBJECT_EX, offsetof(Bound, arguments), 0, NULL},
                                      {"gradient", T_OBJECT_EX, offsetof(Bound, gradient), 0, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static PyType_Slot bound_slots[] = {{Py_tp_call, bound_call},         {Py_tp_dealloc, bound_dealloc},
                                    {Py_tp_traverse, bound_traverse}, {Py_tp_clear, bound_clear},
                                    {Py_tp_members, bound_members},   {0, NULL}};
PyType_Spec bound_spec = {"chainrule._native.Bound", sizeof(Bound), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, bound_slots};

int import_entrance_parts(void) {
    finish_name = PyUnicode_InternFromString("finish");
    derived_name = PyUnicode_InternFromString("_derived");
    unanswered_name = PyUnicode_InternFromString("_unanswered");
    differentiate_name = PyUnicode_InternFromString("_differentiate");
    out_name = PyUnicode_InternFromString("out");
    code_name = PyUnicode_InternFromString("__code__");
    return code_name && finish_name && derived_name && unanswered_name && differentiate_name && out_name ? 0 : -1;
}
