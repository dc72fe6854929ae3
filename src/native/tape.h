/* The tape: its layout, and what its three units offer each other.
 *
 * tape.c builds one from a recording, tape_run.c computes every number from the inputs, tape_sweep.c
 * takes the derivative of one instruction with respect to the inputs.
 */
#ifndef CHAINRULE_TAPE_H
#define CHAINRULE_TAPE_H

#include "node.h"

/* Instructions that no node kind stands for. */
typedef enum {
    T_DETACH = KINDS, T_DIVIDE, T_LESS, T_LESS_EQUAL, T_EQUAL, T_SELECT, T_FIRST_MAX, T_FIRST_MIN,
    T_INTEGER_POWER, T_CLIP, T_MINIMUM,
    T_ROW, /* any other row of the op table, evaluated in Python */
    T_END, /* behind the last instruction */
    T_CODES
} TapeCode;

extern PyObject *block_names[T_ROW]; /* the building blocks of ops, by code (tape.c) */

/* Flags of an instruction. */
#define FLAGGED 1 /* a non-finite result of finite operands is undefined */
#define APART 2   /* its uses change: an operand was pointed at it, or a sweep began there */
#define MOVES 4   /* operand 0 has been pointed elsewhere; 8: operand 1; 16: operand 2 */

/* How many slopes of a code are not already numbers of the tape. */
static inline int slopes_of(int code) {
    switch (code) {
    case POW: case LOG: case RELU: case ABS: case TANH: case SIGMOID: case SOFTPLUS: case SQRT:
    case SIN: case COS: case T_INTEGER_POWER: case T_CLIP: return 1;
    case MAXIMUM: case POWER: case T_SELECT: case T_FIRST_MAX: case T_FIRST_MIN: case T_MINIMUM: return 2;
    default: return 0;
    }
}

/* A plain number that is the second operand, or an exponent, has a place too: operand[arity]; the bounds of
 * T_CLIP have two. ADD, MUL and MAXIMUM stand for both their kinds. */
typedef struct {
    int32_t operand[3]; /* places; 0 where there is none */
    uint8_t code;
    uint8_t arity; /* operands that are instructions */
    uint8_t first; /* the first of them that may carry a gradient */
    uint8_t flags;
} Instruction;

typedef struct {
    int32_t rule, parameters;
    double constant[2];
} Row;

typedef struct Forest Forest;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count, inputs, guards;
    Py_ssize_t first, size;    /* places: where results begin, how many there are in all */
    int32_t one;               /* the place of 1.0 */
    int32_t *place;            /* of each instruction of the recording */
    Instruction *instructions; /* one for each result, and T_END; */
    int32_t *level;            /* one for each result, */
    int32_t *row;              /* for T_ROW its position in rows; NULL where there are none */
    int32_t *watched;          /* the results that tell whether all are finite; */
    Py_ssize_t watching;       /* how many these are */
    int misplaced;             /* arrange() is due */
    double *data, *grads;      /* one for each place; behind data the slopes of the last sweep */
    int32_t *guard;
    double *expected;
    Buffer rows;
    PyObject *rules; /* a tuple */
    Forest *forest;  /* the order of sweeps; NULL: not computed yet */
} Tape;

/* Twice as many places, and as many slopes, three times over: an int32_t. */
#define MOST_INSTRUCTIONS ((Py_ssize_t)1 << 28)

static inline int slot_moves(const Instruction *x, int slot) { return x->flags & (MOVES << slot); }
static inline int any_moves(const Instruction *x) { return x->flags & (7 * MOVES); }

/* The result that instruction i of the recording is, or negative: an input or a constant. */
static inline Py_ssize_t result_of(const Tape *t, Py_ssize_t i) { return t->place[i] - t->first; }

/* Where the number of instruction i of the recording is. */
static inline const double *tape_place(const Tape *t, Py_ssize_t i) { return &t->data[t->place[i]]; }

/* tape.c */
int bad_instruction(Py_ssize_t i); /* an error, always -1 */
int arrange(Tape *t);

extern PyTypeObject *TapeType;

/* tape_run.c */
/* Compute everything: 0: all is well; 1: guard `position` took the other branch; 2: instruction
 * `position` is undefined; -1: an error. */
int run_tape(Tape *t, const double *inputs, Py_ssize_t *position);
/* Let operand `place` (3 * instruction + slot) read another instruction; -1: an error. */
int point_tape(Tape *t, int64_t place, int64_t position);
PyObject *call_row(const Tape *t, Py_ssize_t k, int backward);
PyObject *tape_run(PyObject *self, PyObject *inputs);
PyObject *tape_point(PyObject *self, PyObject *args);
PyObject *tape_number(PyObject *self, PyObject *position);
PyObject *tape_numbers(PyObject *self, PyObject *args);

/* tape_sweep.c */
/* The derivative of instruction `position`, which there must be, by every input; -1: an error. */
int sweep_tape(Tape *t, Py_ssize_t position, double seed, double *out);
void fell_forest(Tape *t);
void move_operand(Tape *t, Py_ssize_t k, int slot, int32_t place);
PyObject *tape_sweep(PyObject *self, PyObject *args);

#endif
