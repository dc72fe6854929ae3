/* The arguments of a compiled call, flattened for the fast path; see compiler/runtime/fast_path.py.
 *
 * In: the tuple of arguments. Out: their structure as a signature (bytes, equal for calls that one
 * recording may serve), and their contents: integers, floats, arrays. Arguments that are not plain are
 * left to compiler/capture/arguments.py, which flattens everything, but more slowly.
 */
#include "call.h"

/* The words of a signature: the number of arguments, negative where none is differentiated by, and each of
 * them. After LIST and TUPLE, how many items; after DICT too, each with its key in front; after FLOATS and
 * INTS, how many dimensions and each of these; after FLOAT, INT and NUMPY (a float64 of numpy's that is data),
 * how many there are in a row; after STATIC a text as for a key, or 0, 1 or 2 for False, True and None, or the
 * address of what never changes; after RECORD the address of its type, and how many fields; after NAMESPACE
 * what comes after DICT; after DEQUE its greatest length, or -1, and how many items; after INSTANCE the address of
 * its type, and DICT; after TEXT, whose characters are integers, how many of them; TRUTH is a bool that is an
 * integer; after NARROW, an array of others than 64-bit integers, numpy's letter for their kind, how many bytes
 * one has, and what comes after INTS. */
enum {
    FLOAT_WORD = 1, INT_WORD, ARRAY_WORD, FLOATS_WORD, INTS_WORD, LIST_WORD, TUPLE_WORD, DICT_WORD,
    NUMPY_WORD, STATIC_WORD, RECORD_WORD, NAMESPACE_WORD, DEQUE_WORD, INSTANCE_WORD, TEXT_WORD,
    TRUTH_WORD, NARROW_WORD
};

#define DEEPEST 40
#define LONGEST_TEXT 4096 /* as in trees/flattening.py; a longer one is static */
#define MOST_TEXTS 64     /* arguments that may have such texts */
#define FEW_BYTES 512 /* which Python has ready */

PyTypeObject *PassedType;

/* Like everything named look_at: 1; 0 where something is not plain; -1: an error. */
static int look_at(Look *w, PyObject *x);
static int is_another(Look *w, PyObject *container);

/* Remember a list, array or the like of a call, or the attributes of an object in it. */
static int note_container(Look *w, PyObject *x) {
    if (w->notes && APPEND(w->to->containers, PyObject *, x) < 0) {
        return -1;
    }
    if (w->notes) {
        Py_INCREF(x); /* another thread may let go of it while the call is answered */
    }
    return 1;
}

static int put_word(Look *w, int64_t word) {
    w->run = 0;
    return APPEND(w->words, int64_t, word) < 0 ? -1 : 1;
}

static int put_words(Look *w, int64_t first, int64_t second) {
    return put_word(w, first) < 0 ? -1 : put_word(w, second);
}

static int put_leaf(Look *w, int64_t kind) {
    if (w->run == kind) {
        ITEM(w->words, int64_t, COUNT(w->words, int64_t) - 1)++;
        return 1;
    }
    int answer = put_words(w, kind, 1);
    w->run = kind;
    return answer;
}

static int put_number(Look *w, double number, int64_t kind) {
    Entry entry = {NULL, number};
    w->held++;
    return APPEND(w->to->entries, Entry, entry) < 0 ? -1 : put_leaf(w, kind);
}

static int put_array(Look *w, PyObject *array) {
    Entry entry = {Py_NewRef(array), 0.0};
    if (APPEND(w->to->entries, Entry, entry) < 0) {
        Py_DECREF(array);
        return -1;
    }
    return 1;
}

static int put_integer(Look *w, PyObject *x) {
    int overflow = 0;
    int64_t integer = PyLong_AsLongLongAndOverflow(x, &overflow);
    if (overflow) {
        Large large = {COUNT(w->to->integers, int64_t), Py_NewRef(x)};
        integer = 0;
        if (APPEND(w->to->large, Large, large) < 0) {
            Py_DECREF(x);
            return -1;
        }
    }
    return APPEND(w->to->integers, int64_t, integer) < 0 ? -1 : 1;
}

static int look_at_integer(Look *w, PyObject *x) {
    if (!w->is_first) {
        return put_integer(w, x) < 0 ? -1 : put_leaf(w, INT_WORD);
    }
    double number = PyLong_AsDouble(x);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear(); /* beyond floats */
        return 0;
    }
    return put_number(w, number, FLOAT_WORD);
}

int open_array(PyObject *array, Py_buffer *view) {
    if (PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    if (view->format == NULL || view->format[0] == 0 || view->format[1] != 0 ||
        !PyBuffer_IsContiguous(view, 'C')) {
        PyBuffer_Release(view);
        return 0;
    }
    return 1;
}

int holds_floats(const Py_buffer *view) {
    return (view->format[0] == 'd' && view->itemsize == sizeof(double)) ||
           (view->format[0] == 'f' && view->itemsize == sizeof(float));
}

int holds_finite(const Passed *call, Py_ssize_t from) {
    int finite = 1;
    for (Py_ssize_t k = from; finite > 0 && k < COUNT(call->entries, Entry); k++) {
        const Entry *entry = &ITEM(call->entries, Entry, k);
        Py_buffer view;
        if (entry->array == NULL) {
            finite = isfinite(entry->number) != 0;
        } else if ((finite = open_array(entry->array, &view)) > 0) {
            finite = view.format[0] == 'd';
            for (Py_ssize_t j = 0; finite && j < view.len / (Py_ssize_t)sizeof(double); j++) {
                finite = isfinite(((const double *)view.buf)[j]) != 0;
            }
            PyBuffer_Release(&view);
        }
    }
    return finite;
}

static int put_integers(Look *w, const Py_buffer *view) {
    Buffer *to = &w->to->integers;
    size_t size = (size_t)view->len;
    if (to->size + size > to->capacity && grow(to, size) < 0) {
        return -1;
    }
    memcpy(to->bytes + to->size, view->buf, size);
    to->size += size;
    return 1;
}

static int64_t narrow_at(const Py_buffer *view, int is_signed, Py_ssize_t k) {
    switch (view->itemsize) {
    case 1: return is_signed ? ((const int8_t *)view->buf)[k] : ((const uint8_t *)view->buf)[k];
    case 2: return is_signed ? ((const int16_t *)view->buf)[k] : ((const uint16_t *)view->buf)[k];
    case 4: return is_signed ? (int64_t)((const int32_t *)view->buf)[k] : ((const uint32_t *)view->buf)[k];
    default: return ((const int64_t *)view->buf)[k]; /* negative where it is beyond */
    }
}

/* Truths, or integers that wrap around elsewhere than those of 64 bits with a sign, where they are traced. */
static int put_narrow(Look *w, const Py_buffer *view) {
    char format = view->format[0];
    int is_signed = strchr("bhil", format) != NULL;
    if (!w->traces_text || strchr("?bhilBHILQ", format) == NULL || view->itemsize > (Py_ssize_t)sizeof(int64_t)) {
        return 0;
    }
    Buffer *to = &w->to->integers;
    Py_ssize_t count = view->len / view->itemsize;
    size_t size = (size_t)count * sizeof(int64_t);
    if (count == 0) {
        return 0; /* it is static */
    }
    if (to->size + size > to->capacity && grow(to, size) < 0) {
        return -1;
    }
    int64_t *row = (int64_t *)(to->bytes + to->size);
    for (Py_ssize_t k = 0; k < count; k++) {
        row[k] = narrow_at(view, is_signed, k);
        if (row[k] < 0 && !is_signed) {
            return 0;
        }
    }
    to->size += size;
    int answer = put_words(w, NARROW_WORD, format == '?' ? 'b' : is_signed ? 'i' : 'u');
    answer = answer > 0 ? put_word(w, view->itemsize) : answer;
    return answer > 0 ? put_word(w, view->ndim) : answer;
}

/* An array that is not in the first argument: its shape is part of the signature. Where integers of few bits are
 * not traced, a recording holds for such an array only, and that is not seen here. */
static int look_at_data(Look *w, PyObject *array, const Py_buffer *view) {
    int answer = 0;
    if (view->format[0] == 'd' && view->itemsize == sizeof(double)) { /* others round in their own way */
        answer = put_array(w, array) < 0 ? -1 : put_words(w, FLOATS_WORD, view->ndim);
    } else if (strchr("lq", view->format[0]) != NULL && view->itemsize == sizeof(int64_t) && view->len > 0) {
        answer = put_integers(w, view) < 0 ? -1 : put_words(w, INTS_WORD, view->ndim);
    } else {
        answer = put_narrow(w, view);
    }
    for (int j = 0; j < view->ndim && answer > 0; j++) {
        answer = put_word(w, view->shape[j]);
    }
    return answer;
}

/* What kind of numbers an array holds, and its shape. */
static int put_shape(Look *w, PyObject *array) {
    Py_buffer view;
    int answer = open_array(array, &view);
    if (answer <= 0) {
        return answer;
    }
    answer = put_words(w, view.format[0], view.ndim);
    for (int j = 0; j < view.ndim && answer > 0; j++) {
        answer = put_word(w, view.shape[j]);
    }
    PyBuffer_Release(&view);
    return answer;
}

static int look_at_array(Look *w, PyObject *array) {
    w->held++;
    if (note_container(w, array) < 0) {
        return -1;
    }
    if (w->is_first) { /* a Plan checks its type and shape when it reads it */
        int answer = put_array(w, array) < 0 ? -1 : put_word(w, ARRAY_WORD);
        return answer > 0 && w->shapes ? put_shape(w, array) : answer;
    }
    Py_buffer view;
    int answer = open_array(array, &view);
    if (answer > 0) {
        answer = look_at_data(w, array, &view);
        PyBuffer_Release(&view);
    }
    return answer > 0 && w->tells ? is_another(w, array) : answer;
}

/* A string with its text, after its length as a negative number; anything else by its address. */
static int put_key(Look *w, PyObject *key) {
    if (!PyUnicode_CheckExact(key)) {
        return put_word(w, (int64_t)(uintptr_t)key);
    }
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(key, &length);
    if (text == NULL) {
        int is_error = PyErr_ExceptionMatches(PyExc_MemoryError);
        if (!is_error) {
            PyErr_Clear(); /* half a surrogate pair */
        }
        return is_error ? -1 : 0;
    }
    int answer = put_word(w, -1 - length);
    for (Py_ssize_t k = 0; k < length && answer > 0; k += (Py_ssize_t)sizeof(int64_t)) {
        int64_t word = 0;
        size_t left = (size_t)(length - k);
        memcpy(&word, text + k, left < sizeof word ? left : sizeof word);
        answer = put_word(w, word);
    }
    return answer;
}

/* A string whose characters are integers: only its length is part of the signature. */
static int look_at_text(Look *w, PyObject *x, Py_ssize_t length) {
    int answer = put_words(w, TEXT_WORD, length);
    for (Py_ssize_t k = 0; k < length && answer > 0; k++) {
        Py_UCS4 code = PyUnicode_ReadChar(x, k);
        if (code == (Py_UCS4)-1 && PyErr_Occurred()) {
            return -1;
        }
        answer = APPEND(w->to->integers, int64_t, (int64_t)code) < 0 ? -1 : 1;
    }
    return answer;
}

/* What a recording holds for only. */
static int look_at_static(Look *w, PyObject *x) {
    if (w->is_first) {
        return 0;
    }
    if (w->traces_text && PyUnicode_CheckExact(x)) {
        Py_ssize_t length = PyUnicode_GetLength(x);
        if (length != 0 && length <= LONGEST_TEXT) {
            return length < 0 ? -1 : look_at_text(w, x, length);
        }
    }
    if (w->traces_text && PyBool_Check(x)) {
        return APPEND(w->to->integers, int64_t, x == Py_True) < 0 ? -1 : put_word(w, TRUTH_WORD);
    }
    int answer = put_word(w, STATIC_WORD);
    if (answer > 0) {
        answer = PyUnicode_CheckExact(x) ? put_key(w, x) : put_word(w, x == Py_None ? 2 : x == Py_True);
    }
    return answer;
}

static int look_at_dict(Look *w, PyObject *dict) {
    PyObject *key, *item;
    Py_ssize_t at = 0;
    int answer = put_words(w, DICT_WORD, PyDict_Size(dict));
    while (answer > 0 && PyDict_Next(dict, &at, &key, &item)) {
        answer = put_key(w, key);
        answer = answer > 0 ? look_at(w, item) : answer;
    }
    return answer;
}

static int look_at_items(Look *w, PyObject *items, int is_list) {
    Py_ssize_t count = is_list ? PyList_Size(items) : PyTuple_Size(items);
    int answer = put_words(w, is_list ? LIST_WORD : TUPLE_WORD, count);
    for (Py_ssize_t k = 0; k < count && answer > 0; k++) {
        answer = look_at(w, is_list ? PyList_GetItem(items, k) : PyTuple_GetItem(items, k));
    }
    return answer;
}

/* A list or dict without floats twice is not two of them; nor is one with floats, where that may be asked for.
 * The first argument's are made anew for the function. */
static int is_another(Look *w, PyObject *container) {
    if (w->is_first) {
        return 1;
    }
    Py_ssize_t before = 0;
    for (; before < w->seen_count && w->seen[before] != container; before++) {
    }
    if (before < w->seen_count || w->seen_count == MOST_SEEN) {
        return 0;
    }
    w->seen[w->seen_count++] = container;
    return 1;
}

static int look_at_attribute(Look *w, PyObject *x, PyObject *name) {
    PyObject *item = PyObject_GetAttr(x, name);
    if (item == NULL) {
        int is_missing = PyErr_ExceptionMatches(PyExc_AttributeError);
        if (is_missing) {
            PyErr_Clear();
        }
        return is_missing ? 0 : -1;
    }
    int answer = look_at(w, item);
    Py_DECREF(item);
    return answer;
}

/* A field in the attributes of an object. */
static int look_at_field(Look *w, PyObject *attributes, PyObject *name) {
    PyObject *item = PyDict_GetItemWithError(attributes, name);
    return item != NULL ? look_at(w, item) : PyErr_Occurred() ? -1 : 0;
}

/* A named tuple or a dataclass: its fields. Where it may have attributes beside them, it must have none. */
static int look_at_record(Look *w, PyObject *x, PyObject *names) {
    Py_ssize_t count = PyTuple_Size(names);
    int is_tuple = PyTuple_Check(x);
    if (is_tuple && PyTuple_Size(x) != count) {
        return 0;
    }
    PyObject *attributes = is_tuple ? NULL : PyObject_GenericGetDict(x, NULL); /* not a property of that name */
    if (!is_tuple && attributes == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear(); /* it has slots */
    }
    int answer = attributes == NULL || (PyDict_CheckExact(attributes) && PyDict_Size(attributes) == count);
    if (answer > 0 && attributes != NULL) {
        answer = note_container(w, attributes);
    }
    answer = answer > 0 ? put_words(w, RECORD_WORD, (int64_t)(uintptr_t)Py_TYPE(x)) : answer;
    answer = answer > 0 ? put_word(w, count) : answer;
    for (Py_ssize_t k = 0; k < count && answer > 0; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        if (is_tuple) {
            answer = look_at(w, PyTuple_GetItem(x, k));
        } else {
            answer = attributes != NULL ? look_at_field(w, attributes, name) : look_at_attribute(w, x, name);
        }
    }
    Py_XDECREF(attributes);
    return answer;
}

static int look_at_namespace(Look *w, PyObject *x) {
    PyObject *attributes = PyObject_GetAttrString(x, "__dict__");
    if (attributes == NULL) {
        return -1;
    }
    int answer = PyDict_CheckExact(attributes) ? put_word(w, NAMESPACE_WORD) : 0;
    answer = answer > 0 ? note_container(w, attributes) : answer;
    answer = answer > 0 ? look_at_dict(w, attributes) : answer;
    Py_DECREF(attributes);
    return answer;
}

/* An instance of a class that is captured state: its attributes. */
static int look_at_instance(Look *w, PyObject *x) {
    PyObject *attributes = PyObject_GenericGetDict(x, NULL); /* not a property of that name */
    if (attributes == NULL) {
        return -1;
    }
    int answer = PyDict_CheckExact(attributes) ? put_words(w, INSTANCE_WORD, (int64_t)(uintptr_t)Py_TYPE(x)) : 0;
    answer = answer > 0 ? note_container(w, attributes) : answer;
    answer = answer > 0 ? look_at_dict(w, attributes) : answer;
    Py_DECREF(attributes);
    return answer;
}

/* An OrderedDict without attributes, in its own order; an instance as to its words, of a class that is nobody's. */
static int look_at_ordered(Look *w, PyObject *x) {
    PyObject *attributes = PyObject_GetAttrString(x, "__dict__");
    PyObject *pairs = attributes != NULL ? PyMapping_Items(x) : NULL;
    int answer = -1;
    if (pairs != NULL) {
        Py_ssize_t count = PyList_Size(pairs);
        int is_plain = PyDict_CheckExact(attributes) && PyDict_Size(attributes) == 0;
        answer = is_plain ? put_words(w, INSTANCE_WORD, (int64_t)(uintptr_t)Py_TYPE(x)) : 0;
        answer = answer > 0 ? put_words(w, DICT_WORD, count) : answer;
        for (Py_ssize_t k = 0; k < count && answer > 0; k++) {
            PyObject *pair = PyList_GetItem(pairs, k);
            answer = put_key(w, PyTuple_GetItem(pair, 0));
            answer = answer > 0 ? look_at(w, PyTuple_GetItem(pair, 1)) : answer;
        }
    }
    Py_XDECREF(attributes);
    Py_XDECREF(pairs);
    return answer;
}

static int look_at_deque(Look *w, PyObject *x) {
    PyObject *most = PyObject_GetAttrString(x, "maxlen");
    PyObject *items = most != NULL ? PySequence_List(x) : NULL;
    int answer = -1;
    if (items != NULL) {
        long long length = most == Py_None ? -1 : PyLong_AsLongLong(most);
        answer = length == -1 && PyErr_Occurred() ? -1 : put_words(w, DEQUE_WORD, length);
        answer = answer > 0 ? look_at_items(w, items, 1) : answer;
    }
    Py_XDECREF(most);
    Py_XDECREF(items);
    return answer;
}

/* By the object that stands for all that are equal to it. */
static int look_at_known(Look *w, PyObject *x, PyObject *known) {
    PyObject *same = PyDict_GetItemWithError(known, x);
    if (same == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    return put_words(w, STATIC_WORD, (int64_t)(uintptr_t)same);
}

/* What is none of the usual: as `opened` says for its type. A tuple has the names of fields; None is for
 * namespaces, Ellipsis for instances, False for deques and OrderedDicts, True for functions and items of an enum, of which there is
 * one each, and a dict finds the one that stands for its equals. Nothing of this runs Python code; see FastPath.
 * Whether two instances are one is always looked at, as `==` may ask it. */
static int look_at_opened(Look *w, PyObject *x) {
    if (w->opened == NULL) {
        return 0;
    }
    PyObject *how = PyDict_GetItemWithError(w->opened, (PyObject *)Py_TYPE(x));
    if (how == NULL || w->depth >= DEEPEST || (w->is_first && !PyTuple_CheckExact(how))) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (PyDict_CheckExact(how)) {
        return look_at_known(w, x, how);
    }
    if (how == Py_True) {
        return put_words(w, STATIC_WORD, (int64_t)(uintptr_t)x);
    }
    Py_ssize_t held = w->held;
    int answer;
    if (!PyTuple_Check(x) && note_container(w, x) < 0) {
        return -1;
    }
    w->depth++;
    if (how == Py_None) {
        answer = look_at_namespace(w, x);
    } else if (how == Py_Ellipsis) {
        answer = look_at_instance(w, x);
    } else {
        int is_ordered = how == Py_False && PyDict_Check(x);
        answer = is_ordered        ? look_at_ordered(w, x)
                 : how == Py_False ? look_at_deque(w, x)
                                   : look_at_record(w, x, how);
    }
    w->depth--;
    int matters = how == Py_Ellipsis || ((w->tells || w->held == held) && !PyTuple_Check(x));
    return answer > 0 && matters ? is_another(w, x) : answer;
}

static int look_at(Look *w, PyObject *x) {
    PyTypeObject *type = Py_TYPE(x);
    if (type == &PyFloat_Type) {
        return put_number(w, PyFloat_AsDouble(x), FLOAT_WORD);
    }
    if (type == w->number_type && PyFloat_Check(x)) {
        /* As data it is another thing to the function than a float. */
        return put_number(w, PyFloat_AsDouble(x), w->is_first ? FLOAT_WORD : NUMPY_WORD);
    }
    if (PyLong_CheckExact(x)) {
        return look_at_integer(w, x);
    }
    if (type == w->array_type) {
        return look_at_array(w, x);
    }
    if (x == Py_None || PyBool_Check(x) || PyUnicode_CheckExact(x)) {
        return look_at_static(w, x);
    }
    int is_list = PyList_CheckExact(x), is_tuple = PyTuple_CheckExact(x);
    if (!is_list && !is_tuple && !PyDict_CheckExact(x)) {
        return look_at_opened(w, x);
    }
    if (w->depth >= DEEPEST) {
        return 0;
    }
    Py_ssize_t held = w->held;
    if (!is_tuple && note_container(w, x) < 0) {
        return -1;
    }
    w->depth++;
    int answer = is_list || is_tuple ? look_at_items(w, x, is_list) : look_at_dict(w, x);
    w->depth--;
    return answer > 0 && !is_tuple && (w->tells || w->held == held) ? is_another(w, x) : answer;
}

/* Whether the memory of an array is apart from that of another one; -1: an error. */
static int is_apart(const Py_buffer *view, PyObject *other) {
    Py_buffer o;
    int known = open_array(other, &o);
    if (known <= 0) {
        return known;
    }
    const char *a = view->buf, *b = o.buf;
    int apart = a + view->len <= b || b + o.len <= a;
    PyBuffer_Release(&o);
    return apart;
}

/* Whether a container comes but once in a call, and the memory of an array in nothing else; -1: an error. */
static int comes_once(const Passed *call, PyObject *x) {
    Py_buffer view;
    int times = 0, apart = 1, is_array = PyObject_CheckBuffer(x);
    if (is_array && (apart = open_array(x, &view)) <= 0) {
        return apart;
    }
    for (Py_ssize_t k = 0; k < COUNT(call->containers, PyObject *) && apart > 0; k++) {
        PyObject *other = ITEM(call->containers, PyObject *, k);
        times += other == x;
        if (is_array && other != x && PyObject_CheckBuffer(other)) {
            apart = is_apart(&view, other);
        }
    }
    if (is_array) {
        PyBuffer_Release(&view);
    }
    return apart < 0 ? -1 : apart && times == 1;
}

/* come_once(containers): whether each of a list of what was passed is passed once, and no array lies in the memory of
 * another one. Only while the call is being answered. */
static PyObject *come_once(PyObject *self, PyObject *containers) {
    if (!PyList_CheckExact(containers)) {
        return PyErr_Format(PyExc_TypeError, "come_once takes a list");
    }
    int once = 1;
    for (Py_ssize_t k = 0; k < PyList_Size(containers) && once > 0; k++) {
        once = comes_once((Passed *)self, PyList_GetItem(containers, k));
    }
    return once < 0 ? NULL : PyBool_FromLong(once);
}

/* The integers of a call, a tuple. */
static PyObject *passed_ids(PyObject *self, void *Py_UNUSED(closure)) {
    const Passed *call = (Passed *)self;
    Py_ssize_t count = COUNT(call->integers, int64_t);
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t k = 0; made != NULL && k < count; k++) {
        PyObject *x = PyLong_FromLongLong(ITEM(call->integers, int64_t, k));
        if (x == NULL) {
            Py_CLEAR(made);
        } else {
            PyTuple_SetItem(made, k, x);
        }
    }
    for (Py_ssize_t k = 0; made != NULL && k < COUNT(call->large, Large); k++) {
        const Large *large = &ITEM(call->large, Large, k);
        PyTuple_SetItem(made, large->place, Py_NewRef(large->integer));
    }
    return made;
}

void begin_look(Look *w, PyObject *opened) {
    empty_passed(w->to);
    w->opened = opened;
    w->words.size = 0;
    w->run = 0;
    w->depth = 0;
    w->held = w->seen_count = 0;
}

int look_at_arguments(Look *w, Given given, int differentiate) {
    int answer = put_word(w, differentiate ? given.count : -1 - given.count);
    w->notes = !differentiate;
    for (Py_ssize_t k = 0; k < given.count && answer > 0; k++) {
        w->is_first = differentiate && k == 0;
        w->traces_text = k < MOST_TEXTS && (w->texts >> k & 1);
        answer = look_at(w, given_item(&given, k));
        w->run = 0; /* the first argument's floats are not the others' */
    }
    return answer;
}

/* Where there is no memory, `grow` says so. */
static void begin(Buffer *b) {
    b->bytes = PyMem_Malloc(FEW_BYTES);
    b->capacity = b->bytes != NULL ? FEW_BYTES : 0;
}

/* passed(arguments, array, number, differentiate, opened, shapes=False): a Passed, or None where the arguments are
 * not plain; `shapes`: those of the first argument's arrays are part of its signature.
 * `array` and `number` are numpy's ndarray and float64, `opened` says how other types are looked into. No Python
 * code runs while it looks at them. */
static PyObject *passed(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (count < 5 || count > 6 || !PyTuple_Check(given[0]) || !PyType_Check(given[1]) || !PyType_Check(given[2]) ||
        !PyBool_Check(given[3]) || !PyDict_CheckExact(given[4])) {
        return PyErr_Format(PyExc_TypeError, "passed takes a tuple of arguments, two types, a bool and a dict");
    }
    PyObject *made = ((allocfunc)PyType_GetSlot(PassedType, Py_tp_alloc))(PassedType, 0);
    if (made == NULL) {
        return NULL;
    }
    Look w = {.array_type = (PyTypeObject *)given[1], .number_type = (PyTypeObject *)given[2]};
    w.shapes = count == 6 && given[5] == Py_True;
    w.opened = given[4];
    w.to = (Passed *)made;
    begin(&w.words);
    begin(&w.to->integers);
    begin(&w.to->entries);
    int answer = look_at_arguments(&w, given_tuple(given[0]), given[3] == Py_True);
    if (answer > 0) {
        w.to->signature = PyBytes_FromStringAndSize(w.words.bytes, (Py_ssize_t)w.words.size);
        answer = w.to->signature != NULL ? 1 : -1;
    }
    PyMem_Free(w.words.bytes);
    if (answer > 0) {
        return made;
    }
    Py_DECREF(made);
    return answer < 0 ? NULL : Py_NewRef(Py_None);
}

void empty_passed(Passed *x) {
    for (Py_ssize_t k = 0; k < COUNT(x->entries, Entry); k++) {
        Py_XDECREF(ITEM(x->entries, Entry, k).array);
    }
    for (Py_ssize_t k = 0; k < COUNT(x->large, Large); k++) {
        Py_DECREF(ITEM(x->large, Large, k).integer);
    }
    for (Py_ssize_t k = 0; k < COUNT(x->containers, PyObject *); k++) {
        Py_DECREF(ITEM(x->containers, PyObject *, k));
    }
    x->entries.size = x->integers.size = x->large.size = x->containers.size = 0;
}

static void passed_dealloc(PyObject *self) {
    Passed *x = (Passed *)self;
    PyTypeObject *type = Py_TYPE(self);
    empty_passed(x);
    PyMem_Free(x->entries.bytes);
    PyMem_Free(x->integers.bytes);
    PyMem_Free(x->large.bytes);
    PyMem_Free(x->containers.bytes);
    Py_XDECREF(x->signature);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef passed_methods[] = {{"come_once", come_once, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyMemberDef passed_members[] = {{"signature", T_OBJECT_EX, offsetof(Passed, signature), READONLY, NULL},
                                       {NULL, 0, 0, 0, NULL}};
static PyGetSetDef passed_properties[] = {{"ids", passed_ids, NULL, NULL, NULL},
                                          {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot passed_slots[] = {
    {Py_tp_dealloc, passed_dealloc}, {Py_tp_members, passed_members},
    {Py_tp_getset, passed_properties}, {Py_tp_methods, passed_methods}, {0, NULL}};
PyType_Spec passed_spec = {"chainrule._native.Passed", sizeof(Passed), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, passed_slots};

/* ----------------------------------------------------------------- many calls ------------------ */

/* The numbers of one sample into rows of so many floats and integers: 1; 0 where it has others. */
static int write_sample(const Passed *x, double *floats, Py_ssize_t float_count, int64_t *integers,
                        Py_ssize_t integer_count) {
    if (x->large.size || COUNT(x->integers, int64_t) != integer_count) {
        return 0;
    }
    if (integer_count > 0) {
        memcpy(integers, x->integers.bytes, x->integers.size);
    }
    Py_ssize_t at = 0;
    for (Py_ssize_t k = 0; k < COUNT(x->entries, Entry); k++) {
        const Entry *entry = &ITEM(x->entries, Entry, k);
        Py_buffer view = {.len = sizeof(double)};
        int answer = entry->array == NULL ? 1 : open_array(entry->array, &view);
        Py_ssize_t count = view.len / (Py_ssize_t)sizeof(double);
        if (answer > 0 && at + count <= float_count) {
            memcpy(floats + at, entry->array == NULL ? (const void *)&entry->number : view.buf, (size_t)view.len);
        } else {
            answer = answer < 0 ? -1 : 0;
        }
        if (entry->array != NULL && view.obj != NULL) {
            PyBuffer_Release(&view);
        }
        if (answer <= 0) {
            return answer;
        }
        at += count;
    }
    return at == float_count;
}

/* The samples from the first on that look alike and have so many numbers; -1: an error. */
static Py_ssize_t write_samples(Look *w, PyObject *samples, double *floats, Py_ssize_t float_count,
                                int64_t *integers, Py_ssize_t integer_count) {
    Py_ssize_t count = PyList_Size(samples), k = 0;
    Buffer first = {0};
    int answer = 1;
    for (; k < count && answer > 0; k++) {
        PyObject *sample = PyList_GetItem(samples, k);
        begin_look(w, NULL);
        answer = PyTuple_Check(sample) ? look_at_arguments(w, given_tuple(sample), 0) : 0;
        if (answer > 0 && k == 0) {
            first = w->words;
            w->words = (Buffer){0};
        } else if (answer > 0) {
            answer = w->words.size == first.size && memcmp(w->words.bytes, first.bytes, first.size) == 0;
        }
        if (answer > 0) {
            answer = write_sample(w->to, floats + k * float_count, float_count, integers + k * integer_count,
                                  integer_count);
        }
    }
    PyMem_Free(first.bytes);
    return answer < 0 ? -1 : k - (answer == 0);
}

/* sample_numbers(samples, array, number, floats, integers): how many samples from the first on have one
 * structure. `floats` and `integers`, as many for each sample, receive their numbers. `array` and `number`
 * are numpy's ndarray and float64. No Python code runs here. */
static PyObject *sample_numbers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *samples, *array, *number, *floats, *integers;
    Py_buffer float_view, integer_view;
    if (!PyArg_ParseTuple(args, "O!O!O!OO:sample_numbers", &PyList_Type, &samples, &PyType_Type, &array,
                          &PyType_Type, &number, &floats, &integers) ||
        get_buffer(floats, &float_view, "d", 0, 1) < 0) {
        return NULL;
    }
    if (get_buffer(integers, &integer_view, "q", 0, 1) < 0) {
        PyBuffer_Release(&float_view);
        return NULL;
    }
    Py_ssize_t count = PyList_Size(samples), found = -1, each = (Py_ssize_t)sizeof(double);
    PyObject *made = ((allocfunc)PyType_GetSlot(PassedType, Py_tp_alloc))(PassedType, 0);
    if (made != NULL) {
        Look w = {.array_type = (PyTypeObject *)array, .number_type = (PyTypeObject *)number};
        w.to = (Passed *)made;
        found = count == 0 ? 0
                           : write_samples(&w, samples, float_view.buf, float_view.len / each / count,
                                           integer_view.buf, integer_view.len / each / count);
        PyMem_Free(w.words.bytes);
        Py_DECREF(made);
    }
    PyBuffer_Release(&float_view);
    PyBuffer_Release(&integer_view);
    return found < 0 ? NULL : PyLong_FromSsize_t(found);
}

PyMethodDef passed_functions[] = {
    {"passed", (PyCFunction)(void (*)(void))passed, METH_FASTCALL, NULL},
    {"sample_numbers", sample_numbers, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
