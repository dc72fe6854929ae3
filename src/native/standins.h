/* What recorded code sees in place of a float (standins.c), and the recorder as C sees it (hooks.c). */
#ifndef CHAINRULE_STANDINS_H
#define CHAINRULE_STANDINS_H

#include "node.h"

/* The base of compiler.capture.recorder.Recorder: what hooks and stand-ins ask it at every turn. */
typedef struct {
    PyObject_HEAD
    char told, texts;                       /* see the recorder */
    PyObject *either, *watched, *simple;    /* dict, set, set */
    PyObject *known, *detached, *true_sites; /* set, dict, frozenset or None */
} Watched;

extern PyTypeObject *WatchedType, *NumberType;

/* The recorder of this thread, if it is one of these and all of it is there; or NULL. */
Watched *watched_recorder(void);

/* A stand-in for a number that is no data: what `.data` gives. */
PyObject *new_stand_in(Watched *owner, PyObject *value);
/* An operand of a Value that stands for a number which depends on Values: it passes no gradient on. None: the
 * recorder has to be asked; NULL: an error. */
PyObject *detached_behind(PyObject *o);
/* The same, negated. */
PyObject *negative_behind(PyObject *o);

/* The node of a row of the op table; None where there is more to it (recording.c). */
PyObject *recorded_block(PyObject *op, PyObject *const *operands, Py_ssize_t count);

#endif
