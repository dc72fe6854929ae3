/* Buffers that grow, and arrays that Python and C share. */
#include "native.h"

int grow(Buffer *b, size_t extra) {
    size_t capacity = b->capacity ? b->capacity * 2 : 4096;
    while (capacity < b->size + extra) {
        capacity *= 2;
    }
    char *bytes = PyMem_Realloc(b->bytes, capacity);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    b->bytes = bytes;
    b->capacity = capacity;
    return 0;
}

void *new_array(PyObject **out, Py_ssize_t count, size_t item) {
    *out = PyByteArray_FromStringAndSize(NULL, count * (Py_ssize_t)item);
    return *out ? PyByteArray_AsString(*out) : NULL;
}

int get_buffer(PyObject *o, Py_buffer *view, const char *format, Py_ssize_t count, int writable) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(o, view, flags) < 0) {
        return -1;
    }
    const char *given = view->format ? view->format : "B";
    Py_ssize_t items = view->itemsize > 0 ? view->len / view->itemsize : 0;
    int fits = strcmp(given, format) == 0 || (*format == 'i' && strcmp(given, "l") == 0 && view->itemsize == 4) ||
               (*format == 'q' && strcmp(given, "l") == 0 && view->itemsize == 8) ||
               (*format == 'B' && strcmp(given, "?") == 0);
    if (!fits || items < count) {
        PyErr_Format(PyExc_TypeError,
                     "needs a contiguous buffer of at least %zd items of format '%s', got %zd of '%s'",
                     count, format, items, given);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}
