/* SGD and Adam in place, over Values and over float64 or float32 buffers. */
#include "node.h"

typedef struct {
    double lr, beta1, beta2, epsilon, bias1, bias2, decay;
} AdamSettings;

/* The Values of a list or tuple as a new tuple; every one of them checked. */
static PyObject *values_tuple(PyObject *values) {
    PyObject *tuple = PySequence_Tuple(values);
    for (Py_ssize_t i = 0; tuple != NULL && i < PyTuple_Size(tuple); i++) {
        if (!is_value(PyTuple_GetItem(tuple, i))) {
            PyErr_Format(PyExc_TypeError, "parameter %zd is not a Value", i);
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* adam(values, m, v, lr, beta1, beta2, epsilon, bias1, bias2, decay): microgpt's update to the last
 * bit, which means pow for its ** 2 and ** 0.5. Nothing is changed unless everything fits. */
static PyObject *adam(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *first, *second;
    AdamSettings o;
    if (!PyArg_ParseTuple(args, "OOOddddddd:adam", &values, &first, &second, &o.lr, &o.beta1, &o.beta2,
                          &o.epsilon, &o.bias1, &o.bias2, &o.decay)) {
        return NULL;
    }
    PyObject *nodes = values_tuple(values);
    if (nodes == NULL) {
        return NULL;
    }
    Py_buffer m_view, v_view;
    Py_ssize_t count = PyTuple_Size(nodes);
    if (get_buffer(first, &m_view, "d", count, 1) < 0) {
        Py_DECREF(nodes);
        return NULL;
    }
    if (get_buffer(second, &v_view, "d", count, 1) < 0) {
        PyBuffer_Release(&m_view);
        Py_DECREF(nodes);
        return NULL;
    }
    double *m = m_view.buf, *v = v_view.buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        Node *p = (Node *)PyTuple_GetItem(nodes, i);
        double g = p->grad;
        if (o.decay != 0.0) {
            p->data -= o.lr * o.decay * p->data;
        }
        m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g;
        v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * pow(g, 2.0);
        p->data -= o.lr * (m[i] / o.bias1) / (pow(v[i] / o.bias2, 0.5) + o.epsilon);
    }
    PyBuffer_Release(&m_view);
    PyBuffer_Release(&v_view);
    Py_DECREF(nodes);
    return Py_NewRef(Py_None);
}

/* sgd(values, velocity, lr, momentum, decay); velocity may be None without momentum. */
static PyObject *sgd(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *velocity;
    double lr, momentum, decay;
    if (!PyArg_ParseTuple(args, "OOddd:sgd", &values, &velocity, &lr, &momentum, &decay)) {
        return NULL;
    }
    PyObject *nodes = values_tuple(values);
    Py_buffer view;
    if (nodes == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(nodes);
    double *speed = NULL;
    if (velocity != Py_None) {
        if (get_buffer(velocity, &view, "d", count, 1) < 0) {
            Py_DECREF(nodes);
            return NULL;
        }
        speed = view.buf;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Node *p = (Node *)PyTuple_GetItem(nodes, i);
        double step = p->grad;
        if (decay != 0.0) {
            p->data -= lr * decay * p->data;
        }
        if (speed != NULL) {
            step = speed[i] = momentum * speed[i] + step;
        }
        p->data -= lr * step;
    }
    if (speed != NULL) {
        PyBuffer_Release(&view);
    }
    Py_DECREF(nodes);
    return Py_NewRef(Py_None);
}

/* The same over buffers, with * and sqrt, which vectorise. */
#define ARRAY_KERNELS(real, root)                                                                 \
    static void adam_##real(real *p, const real *g, real *m, real *v, Py_ssize_t count,           \
                            const AdamSettings *o) {                                              \
        const real lr = (real)o->lr, b1 = (real)o->beta1, b2 = (real)o->beta2;                    \
        const real c1 = (real)(1.0 - o->beta1), c2 = (real)(1.0 - o->beta2);                      \
        const real n1 = (real)o->bias1, n2 = (real)o->bias2, eps = (real)o->epsilon;              \
        const real shrink = (real)(o->lr * o->decay);                                             \
        for (Py_ssize_t i = 0; i < count; i++) {                                                  \
            real q = p[i] - shrink * p[i];                                                        \
            m[i] = b1 * m[i] + c1 * g[i];                                                         \
            v[i] = b2 * v[i] + c2 * (g[i] * g[i]);                                                \
            p[i] = q - lr * (m[i] / n1) / (root(v[i] / n2) + eps);                                \
        }                                                                                         \
    }                                                                                             \
    static void sgd_##real(real *p, const real *g, real *speed, Py_ssize_t count, double lr,      \
                           double momentum, double decay) {                                       \
        const real rate = (real)lr, keep = (real)momentum, shrink = (real)(lr * decay);           \
        for (Py_ssize_t i = 0; i < count; i++) {                                                  \
            real q = p[i] - shrink * p[i], step = g[i];                                           \
            if (speed != NULL) {                                                                  \
                step = speed[i] = keep * speed[i] + step;                                         \
            }                                                                                     \
            p[i] = q - rate * step;                                                               \
        }                                                                                         \
    }
ARRAY_KERNELS(double, sqrt)
ARRAY_KERNELS(float, sqrtf)

/* Buffers of one floating type and length; the first decides both. Writable but for the second. */
static int get_buffers(PyObject **objects, Py_buffer *views, int count, int *is_float) {
    for (int i = 0; i < count; i++) {
        if (i == 0) {
            if (PyObject_GetBuffer(objects[0], &views[0], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
                return -1;
            }
            *is_float = views[0].format != NULL && strcmp(views[0].format, "f") == 0;
            PyBuffer_Release(&views[0]);
        }
        Py_ssize_t items = i == 0 ? 0 : views[0].len / views[0].itemsize;
        if (get_buffer(objects[i], &views[i], *is_float ? "f" : "d", items, i != 1) < 0 ||
            (i > 0 && views[i].len != views[0].len &&
             (PyBuffer_Release(&views[i]),
              PyErr_SetString(PyExc_ValueError, "the arrays differ in length"), 1))) {
            while (i-- > 0) {
                PyBuffer_Release(&views[i]);
            }
            return -1;
        }
    }
    return 0;
}

/* adam_array(p, grad, m, v, lr, beta1, beta2, epsilon, bias1, bias2, decay) */
static PyObject *adam_array(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[4];
    Py_buffer views[4];
    AdamSettings o;
    int is_float;
    if (!PyArg_ParseTuple(args, "OOOOddddddd:adam_array", &objects[0], &objects[1], &objects[2],
                          &objects[3], &o.lr, &o.beta1, &o.beta2, &o.epsilon, &o.bias1, &o.bias2,
                          &o.decay) ||
        get_buffers(objects, views, 4, &is_float) < 0) {
        return NULL;
    }
    Py_ssize_t count = views[0].len / views[0].itemsize;
    if (is_float) {
        adam_float(views[0].buf, views[1].buf, views[2].buf, views[3].buf, count, &o);
    } else {
        adam_double(views[0].buf, views[1].buf, views[2].buf, views[3].buf, count, &o);
    }
    for (int i = 0; i < 4; i++) {
        PyBuffer_Release(&views[i]);
    }
    return Py_NewRef(Py_None);
}

/* sgd_array(p, grad, velocity, lr, momentum, decay); velocity may be None. */
static PyObject *sgd_array(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[3];
    Py_buffer views[3];
    double lr, momentum, decay;
    int is_float;
    if (!PyArg_ParseTuple(args, "OOOddd:sgd_array", &objects[0], &objects[1], &objects[2], &lr,
                          &momentum, &decay)) {
        return NULL;
    }
    int used = objects[2] == Py_None ? 2 : 3;
    if (get_buffers(objects, views, used, &is_float) < 0) {
        return NULL;
    }
    Py_ssize_t count = views[0].len / views[0].itemsize;
    void *speed = used == 3 ? views[2].buf : NULL;
    if (is_float) {
        sgd_float(views[0].buf, views[1].buf, speed, count, lr, momentum, decay);
    } else {
        sgd_double(views[0].buf, views[1].buf, speed, count, lr, momentum, decay);
    }
    for (int i = 0; i < used; i++) {
        PyBuffer_Release(&views[i]);
    }
    return Py_NewRef(Py_None);
}

PyMethodDef optimiser_functions[] = {
    {"adam", adam, METH_VARARGS, NULL},
    {"sgd", sgd, METH_VARARGS, NULL},
    {"adam_array", adam_array, METH_VARARGS, NULL},
    {"sgd_array", sgd_array, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
