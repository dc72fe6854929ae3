/* What every unit includes: Python's stable ABI, growing buffers, arrays shared with Python, and what
 * each unit offers to the module. Declarations only; the code that must be inlined is in node.h.
 *
 * Everything runs under the GIL, except the machine code that a Plan runs. State shared between calls
 * is never held across a call into Python code: scratch buffers are taken out of their global place
 * before use and put back after.
 */
#ifndef CHAINRULE_NATIVE_H
#define CHAINRULE_NATIVE_H

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
#ifdef __linux__
#include <sys/mman.h>
#endif

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

/* What is declared from here on stays inside the library, so that the units reach each other's symbols
 * as directly as their own. */
#if defined(__GNUC__) && !defined(_WIN32)
#pragma GCC visibility push(hidden)
#endif

/* ----------------------------------------------------------------- buffers (buffers.c) --------- */

/* A buffer that grows and is kept between calls. */
typedef struct {
    char *bytes;
    size_t size, capacity;
} Buffer;

/* Makes room for `extra` bytes more; -1: an error. */
int grow(Buffer *b, size_t extra);

#define ITEM(buffer, type, i) (((type *)(buffer).bytes)[i])
#define COUNT(buffer, type) ((Py_ssize_t)((buffer).size / sizeof(type)))
#define APPEND(buffer, type, item)                                                                \
    (UNLIKELY((buffer).size + sizeof(type) > (buffer).capacity) && grow(&(buffer), sizeof(type)) < 0 \
         ? -1                                                                                     \
         : (*(type *)((buffer).bytes + (buffer).size) = (item), (buffer).size += sizeof(type), 0))

/* Arrays for Python are bytearrays: mutable, no numpy headers needed, and making one never starts the
 * garbage collector. */
void *new_array(PyObject **out, Py_ssize_t count, size_t item);

/* A contiguous buffer of `format` items, at least `count` of them; released by the caller. */
int get_buffer(PyObject *o, Py_buffer *view, const char *format, Py_ssize_t count, int writable);

/* How many constants each of so many instructions has: two where some operation has two static parameters. */
static inline Py_ssize_t constants_each(const Py_buffer *view, Py_ssize_t count) {
    return view->len / (Py_ssize_t)sizeof(double) < 2 * count ? 1 : 2;
}

/* The instruction codes of arrays; a rule's is FIRST_RULE + its position in the list of rules. */
enum { INPUT = 0, CONSTANT = 1, FIRST_RULE = 2 };

/* ----------------------------------------------------------------- the module (module.c) ------- */

extern PyObject *errors_module; /* chainrule.core.errors */
extern PyObject *empty_tuple, *empty_string;

/* What module.c puts together. */
extern PyMethodDef value_functions[];     /* value.c */
extern PyMethodDef sum_functions[];       /* sums.c */
extern PyMethodDef flatten_functions[];   /* flatten.c */
extern PyMethodDef optimiser_functions[]; /* optimisers.c */
extern PyMethodDef canonical_functions[]; /* canonical.c */
extern PyMethodDef recording_functions[]; /* recording.c */
extern PyMethodDef passed_functions[];    /* passed.c */
extern PyMethodDef sample_functions[];    /* samples.c */
extern PyMethodDef packing_functions[];   /* packing.c */
extern PyMethodDef check_functions[];     /* checks.c */
extern PyMethodDef filling_functions[];   /* filling.c */
extern PyMethodDef grouping_functions[];  /* grouping.c */
extern PyMethodDef stand_in_functions[];  /* standins.c */
extern PyMethodDef hook_functions[];      /* hooks.c */
extern PyMethodDef item_functions[];      /* items.c */
extern PyMethodDef picking_functions[];   /* picking.c */
extern PyType_Spec value_spec, modes_spec, tape_spec, checks_spec, passed_spec, plan_spec, decider_spec;
extern PyType_Spec cached_call_spec, gate_spec, lock_spec, bound_spec, instructions_spec, arguments_spec, derivation_spec;
extern PyType_Spec number_spec, watched_spec, entrance_spec, derived_entrance_spec, items_spec;
extern PyTypeObject *ItemsType;

/* Fetch what a unit needs from the op table and other Python modules; -1: an error. */
int import_value_parts(PyObject *ops);     /* value.c */
int import_building_blocks(PyObject *ops); /* tape.c */
int import_gate_parts(void);               /* gate.c */
int import_entrance_parts(void);           /* entrance.c */
int import_argument_parts(void);           /* arguments.c */
int import_derivation_parts(void);         /* derivation.c */
int import_picking_parts(PyObject *ops);   /* picking.c */

#endif
