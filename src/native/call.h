/* What a compiled call was passed: passed.c reads it from the arguments, plan.c computes with it, gate.c finds
 * the plan. */
#ifndef CHAINRULE_CALL_H
#define CHAINRULE_CALL_H

#include "native.h"

/* A number, or where `array` is not NULL the array that holds some. */
typedef struct {
    PyObject *array;
    double number;
} Entry;

/* An integer that does not fit into 64 bits, and its place among all. */
typedef struct {
    Py_ssize_t place;
    PyObject *integer;
} Large;

/* Without the garbage collector's flag, so that making one does not start that. */
typedef struct {
    PyObject_HEAD
    PyObject *signature; /* bytes */
    Buffer entries;
    Buffer integers; /* int64_t; 0 in the place of a large one */
    Buffer large;
    Buffer containers; /* PyObject *: all lists, arrays and the like in the call, if they are wanted */
} Passed;

#define MOST_SEEN 256 /* lists and dicts of integers, and objects */

/* What passed.c works with while it looks at arguments. */
typedef struct {
    PyTypeObject *array_type, *number_type; /* numpy's ndarray and float64 */
    PyObject *opened; /* dict: how other types are looked into; NULL: not at all */
    Passed *to;
    Buffer words;             /* the signature */
    int notes;                /* the containers of the call are wanted: nothing is differentiated */
    int tells;                /* it matters which containers are one, also of those that hold numbers */
    int is_first;             /* this is the argument to differentiate by: its integers are floats */
    int shapes;               /* the shapes of its arrays are part of the signature too: no Plan looks at them */
    uint64_t texts;           /* a bit for each argument whose strings are integers, one for each character */
    int traces_text;          /* this is such an argument */
    int depth;
    int64_t run;              /* FLOAT or INT, where the last word is how many of them came */
    Py_ssize_t held;          /* numbers and arrays so far */
    Py_ssize_t seen_count;
    const void *seen[MOST_SEEN]; /* the lists and dicts that hold none of these, and objects */
} Look;

/* The arguments of a call: a tuple, or where that is NULL so many objects in a row. */
typedef struct {
    PyObject *tuple;
    PyObject *const *items;
    Py_ssize_t count;
} Given;

static inline PyObject *given_item(const Given *x, Py_ssize_t k) {
    return x->tuple == NULL ? x->items[k] : PyTuple_GetItem(x->tuple, k);
}

static inline Given given_tuple(PyObject *tuple) { return (Given){tuple, NULL, PyTuple_Size(tuple)}; }

extern PyTypeObject *PassedType, *PlanType, *CachedCallType, *GateType, *ChecksType, *LockType;

/* passed.c */
/* Ready for the next arguments. */
void begin_look(Look *w, PyObject *opened);
/* Look at the arguments of a call: 1; 0 where something is not plain; -1: an error. */
int look_at_arguments(Look *w, Given given, int differentiate);
/* Let go of what a call was passed. */
void empty_passed(Passed *x);
/* Whether the floats from an entry on are finite; -1: an error. */
int holds_finite(const Passed *call, Py_ssize_t from);

/* The buffer of an array in one piece: 1; it has none: 0; an error: -1. */
int open_array(PyObject *array, Py_buffer *view);
int holds_floats(const Py_buffer *view);

/* The mean over so many calls, as far as these were computed, or what each of them gave. */
typedef struct {
    double count;
    double value;
    Py_ssize_t rows;         /* so many calls have a value and a gradient each; 0: they are added up */
    PyObject *values;        /* a bytearray of so many numbers, or NULL */
    PyObject *gradient;      /* a bytearray; NULL: of no call yet */
    PyObject *plan, *finish; /* of the last call */
    PyObject *samples;       /* a list of tuples: what calls have besides their first argument */
    Py_ssize_t done;         /* calls so far */
} Mean;

/* plan.c */
/* The answer of a Plan, or None; `out` is NULL, or arrays for the gradient. With a `mean` what it gives goes
 * there, and the answer is the value alone. */
PyObject *run_plan(PyObject *plan, const Passed *call, PyObject *out, Mean *mean);
/* A mean and its gradient in the structure of the first argument. */
PyObject *answer_of_mean(const Mean *mean);
/* Whether its machine code could not tell, when it ran last, what a forward pass gives: the tape can. */
int plan_is_undecided(PyObject *plan);
int plan_runs_on(PyObject *plan, PyObject *tape);
/* How many floats and arrays the first argument of its calls holds. */
Py_ssize_t plan_first(PyObject *plan);

/* lock.c */
/* Wait for a Lock if need be, or not: whether this thread has it now; -1: an error. */
int take_lock(PyObject *lock, int blocking);
/* Once for each time it was taken. */
void give_lock(PyObject *lock);

/* gate.c */
/* The value of a call, and its gradient, or all that a function returns; None for the slow path. With arrays
 * `out`, or NULL, for the gradient the value may be all. */
PyObject *ask_gate(PyObject *gate, Given given, int differentiate, PyObject *out);

/* checks.c */
/* The position of the first of some Checks that fails, or -1; -2: an error. */
Py_ssize_t first_failed(PyObject *checks);

#endif
