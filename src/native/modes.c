/* The switches of each thread: whether graphs are made, checked, located, recorded; and what runs in it. */
#include "node.h"
#include <limits.h>

THREAD_LOCAL int grad_off, nonfinite_allowed, debug_on, graph_asked;
THREAD_LOCAL int nested_runs, again_runs, internal_runs;
static THREAD_LOCAL int tangents_on;
THREAD_LOCAL PyObject *recorder;
THREAD_LOCAL PyObject *recorded;
THREAD_LOCAL struct Instructions *instructions;

static const char *const questions[QUESTIONS] = {"data_of", "operand", "negated", "made", "exponent", "truth"};
static PyObject *question_names[QUESTIONS];

int import_questions(void) {
    int failed = 0;
    for (int k = 0; k < QUESTIONS && !failed; k++) {
        failed = (question_names[k] = PyUnicode_InternFromString(questions[k])) == NULL;
    }
    return -failed;
}

PyObject *ask_recorder(Question question, PyObject *x) {
    return PyObject_CallMethodObjArgs(recorder, question_names[question], x, NULL);
}

static PyObject *get_recorder(PyObject *Py_UNUSED(self), void *Py_UNUSED(name)) {
    return Py_NewRef(recorder ? recorder : Py_None);
}

static PyObject *get_outermost(PyObject *Py_UNUSED(self), void *Py_UNUSED(name)) {
    return Py_NewRef(outermost ? outermost : Py_None);
}

static int set_recorder(PyObject *Py_UNUSED(self), PyObject *value, void *Py_UNUSED(name)) {
    PyObject *old = recorder, *old_list = recorded, *nodes = NULL;
    if (value != NULL && value != Py_None) {
        nodes = PyObject_GetAttrString(value, "nodes");
        if (nodes == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        if (nodes == NULL || (!PyList_Check(nodes) && !is_instructions(nodes))) {
            Py_XDECREF(nodes);
            PyErr_SetString(PyExc_TypeError, "a recorder has a list of nodes, or Instructions");
            return -1;
        }
    }
    recorder = nodes ? Py_NewRef(value) : NULL;
    recorded = nodes;
    instructions = nodes && !PyList_Check(nodes) ? (struct Instructions *)nodes : NULL;
    Py_XDECREF(old);
    Py_XDECREF(old_list);
    return 0;
}

static PyObject *get_mode(PyObject *Py_UNUSED(self), void *name) {
    switch (*(const char *)name) {
    case 'g': return PyBool_FromLong(grad_off != NO_GRADIENT);
    case 'a': return PyBool_FromLong(nonfinite_allowed);
    case 't': return PyBool_FromLong(tangents_on);
    case 'n': return PyBool_FromLong(graph_asked);
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
    case 'g': grad_off = !on ? NO_GRADIENT : tangents_on ? TANGENTS : 0; break;
    case 'a': nonfinite_allowed = on; break;
    case 't':
        tangents_on = on;
        grad_off = grad_off == NO_GRADIENT ? NO_GRADIENT : on ? TANGENTS : 0;
        break;
    case 'n': graph_asked = on; break;
    default: debug_on = on; break;
    }
    return 0;
}

static int *counter(const char *name) {
    return *name == 'n' ? &nested_runs : *name == 'a' ? &again_runs : &internal_runs;
}

static PyObject *get_count(PyObject *Py_UNUSED(self), void *name) { return PyLong_FromLong(*counter(name)); }

static int set_count(PyObject *Py_UNUSED(self), PyObject *value, void *name) {
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a mode cannot be deleted");
        return -1;
    }
    long count = PyLong_AsLong(value);
    if (count == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (count < 0 || count > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%ld is no count of runs", count);
        return -1;
    }
    *counter(name) = (int)count;
    return 0;
}

static PyGetSetDef modes_attributes[] = {
    {"grad", get_mode, set_mode, "record the graph", "g"},
    {"allow_nonfinite", get_mode, set_mode, "let inf and nan through", "a"},
    {"debug", get_mode, set_mode, "remember the source line of every node", "d"},
    {"nested", get_count, set_count, "transforms whose functions are running", "n"},
    {"outermost", get_outermost, NULL, "the inputs of the first of these, if it runs in C", NULL},
    {"again", get_count, set_count, "those whose derivative is differentiated too", "a"},
    {"internal", get_count, set_count, "runs that are the compiler's own", "i"},
    {"tangents", get_mode, set_mode, "no graph: the grad of a new node is its tangent", "t"},
    {"graph_asked", get_mode, set_mode, "whether a graph was asked for that was not made", "n"},
    {"recorder", get_recorder, set_recorder, "receives every node while a function is recorded", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot modes_slots[] = {{Py_tp_getset, modes_attributes}, {0, NULL}};
PyType_Spec modes_spec = {"chainrule._native.Modes", sizeof(PyObject), 0,
                                 Py_TPFLAGS_DEFAULT, modes_slots};
