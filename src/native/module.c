/* The native engine, chainrule._native: chainrule.Value in C, and what compiled functions need in C.
 *
 * In: Python numbers and Values. Out: the same graph, the same bits and the same errors as value.py,
 * about twenty times faster.
 *
 * Reading order: node.h, memory.c, node.c, operators.c, picking.c, backward.c, value.c, sums.c, modes.c, optimisers.c,
 * arguments.c and derivation.c (an eager derivative, from the argument to the gradient).
 * For compiled functions: recording.c, standins.c, hooks.c, items.c, instructions.c, marks.c (what a run computes), flatten.c,
 * canonical.c and grouping.c (from a recording to arrays), tape.c, tape_run.c and tape_sweep.c (running a recording),
 * integers.c and selecting.c (what integers decide), checks.c,
 * passed.c, plan.c and gate.c (the fast path of a call), samples.c and packing.c (the samples of training).
 */
#include "arguments.h"
#include "call.h"
#include "integers.h"
#include "samples.h"
#include "standins.h"
#include "tape.h"

PyObject *errors_module, *empty_tuple, *empty_string;

static PyMethodDef *const functions[] = {
    value_functions,     sum_functions,    flatten_functions, optimiser_functions,
    canonical_functions, passed_functions, sample_functions,  check_functions,
    packing_functions,   recording_functions, filling_functions, grouping_functions,
    stand_in_functions,  hook_functions,    item_functions,   picking_functions,
};

/* The types, and where the units look for those that they use. */
static const struct {
    const char *name;
    PyType_Spec *spec;
    PyTypeObject **type;
} types[] = {
    {"Value", &value_spec, &ValueType},
    {"Modes", &modes_spec, NULL},
    {"Tape", &tape_spec, &TapeType},
    {"Checks", &checks_spec, &ChecksType},
    {"Passed", &passed_spec, &PassedType},
    {"Plan", &plan_spec, &PlanType},
    {"CachedCall", &cached_call_spec, &CachedCallType},
    {"Gate", &gate_spec, &GateType},
    {"Lock", &lock_spec, &LockType},
    {"Entrance", &entrance_spec, NULL},
    {"DerivedEntrance", &derived_entrance_spec, NULL},
    {"Bound", &bound_spec, NULL},
    {"Decider", &decider_spec, &DeciderType},
    {"Instructions", &instructions_spec, &InstructionsType},
    {"Arguments", &arguments_spec, &ArgumentsType},
    {"Derivation", &derivation_spec, &DerivationType},
    {"Number", &number_spec, &NumberType},
    {"Watched", &watched_spec, &WatchedType},
    {"Items", &items_spec, &ItemsType},
};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "chainrule._native",
                                        .m_doc = "chainrule.Value in C.",
                                        .m_size = -1};

static int import_parts(void) {
    errors_module = PyImport_ImportModule("chainrule.core.errors");
    empty_tuple = PyTuple_New(0);
    empty_string = PyUnicode_FromString("");
    PyObject *ops = PyImport_ImportModule("chainrule.core.ops");
    int failed = !errors_module || !empty_tuple || !empty_string || !ops ||
                 import_value_parts(ops) < 0 || import_building_blocks(ops) < 0 ||
                 import_gate_parts() < 0 || import_entrance_parts() < 0 || import_argument_parts() < 0 || import_derivation_parts() < 0 ||
                 import_questions() < 0 || import_picking_parts(ops) < 0 || find_small_integers() < 0;
    Py_XDECREF(ops);
    return -failed;
}

static int add_parts(PyObject *module) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (PyModule_AddFunctions(module, functions[i]) < 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        PyObject *type = PyType_FromSpec(types[i].spec);
        if (type == NULL || PyModule_AddObjectRef(module, types[i].name, type) < 0) {
            Py_XDECREF(type);
            return -1;
        }
        if (types[i].type != NULL) {
            *types[i].type = (PyTypeObject *)Py_NewRef(type);
        }
        Py_DECREF(type);
    }
    PyObject *modes = PyObject_CallMethod(module, "Modes", NULL);
    int failed = modes == NULL || PyModule_AddObjectRef(module, "modes", modes) < 0;
    Py_XDECREF(modes);
    return -failed;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (import_parts() < 0 || add_parts(module) < 0)) {
        Py_CLEAR(module);
    }
    return module;
}
