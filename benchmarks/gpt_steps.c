/* Training steps of the GPT of benchmarks/train.py, by hand: loss, gradient and Adam, one name after
   the other. REAL, WIDTH, VOCABULARY and BLOCK are given when it is compiled, so that all loops have
   known lengths; -O3 -march=native -ffast-math. Weights are kept transposed beside their own form:
   then no product needs a sum across a vector. */

#include <math.h>
#include <string.h>

#define HEADS 4
#define HEAD (WIDTH / HEADS)
#define INNER (4 * WIDTH)

typedef REAL real;
typedef struct {
    real token[VOCABULARY][WIDTH], position[BLOCK][WIDTH], head[VOCABULARY][WIDTH];
    real query[WIDTH][WIDTH], key[WIDTH][WIDTH], value[WIDTH][WIDTH], output[WIDTH][WIDTH];
    real widen[INNER][WIDTH], narrow[WIDTH][INNER];
} Weights;
typedef struct {
    real head[WIDTH][VOCABULARY], query[WIDTH][WIDTH], key[WIDTH][WIDTH], value[WIDTH][WIDTH];
    real output[WIDTH][WIDTH], widen[WIDTH][INNER], narrow[INNER][WIDTH];
} Transposed;

static Weights gradient;
static Transposed turned;

static inline __attribute__((always_inline)) void turn(int rows, int columns, const real *from, real *to) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
}

/* y = W x for each position; w is W transposed. */
static inline __attribute__((always_inline)) void linear(
    int count, int out, int in, const real *restrict w, const real *restrict x, real *restrict y) {
    for (int t = 0; t < count; t++) {
        real sum[out];
        for (int i = 0; i < out; i++) sum[i] = 0;
        for (int j = 0; j < in; j++)
            for (int i = 0; i < out; i++) sum[i] += x[t * in + j] * w[j * out + i];
        memcpy(y + t * out, sum, sizeof sum);
    }
}

/* dx += W' dy and dW += dy x'. */
static inline __attribute__((always_inline)) void linear_back(
    int count, int out, int in, const real *restrict w, const real *restrict x,
    const real *restrict dy, real *restrict dw, real *restrict dx) {
    for (int t = 0; t < count; t++) {
        real sum[in];
        memcpy(sum, dx + t * in, sizeof sum);
        for (int i = 0; i < out; i++)
            for (int j = 0; j < in; j++) sum[j] += dy[t * out + i] * w[i * in + j];
        memcpy(dx + t * in, sum, sizeof sum);
    }
    for (int i = 0; i < out; i++) {
        real sum[in];
        memcpy(sum, dw + i * in, sizeof sum);
        for (int t = 0; t < count; t++)
            for (int j = 0; j < in; j++) sum[j] += dy[t * out + i] * x[t * in + j];
        memcpy(dw + i * in, sum, sizeof sum);
    }
}

static inline real norm(const real *restrict x, real *restrict y) {
    real squares = 0;
    for (int j = 0; j < WIDTH; j++) squares += x[j] * x[j];
    real scale = 1 / (real)sqrt(squares / WIDTH + (real)1e-5);
    for (int j = 0; j < WIDTH; j++) y[j] = x[j] * scale;
    return scale;
}

/* dx += what dy gives, for y = norm(x) */
static inline void norm_back(real scale, const real *restrict x, const real *restrict dy, real *restrict dx) {
    real along = 0;
    for (int j = 0; j < WIDTH; j++) along += dy[j] * x[j];
    along *= scale * scale * scale / WIDTH;
    for (int j = 0; j < WIDTH; j++) dx[j] += scale * dy[j] - along * x[j];
}

static double sample(const Weights *w, const int *tokens, int count, real share) {
    static real embedded[BLOCK][WIDTH], x[BLOCK][WIDTH], normed[BLOCK][WIDTH], q[BLOCK][WIDTH];
    static real k[BLOCK][WIDTH], v[BLOCK][WIDTH], shares[HEADS][BLOCK][BLOCK], mixed[BLOCK][WIDTH];
    static real back[BLOCK][WIDTH], middle[BLOCK][WIDTH], normed2[BLOCK][WIDTH], wide[BLOCK][INNER];
    static real narrow[BLOCK][WIDTH], last[BLOCK][WIDTH], logits[BLOCK][VOCABULARY];
    static real dlast[BLOCK][WIDTH], dwide[BLOCK][INNER], dnormed[BLOCK][WIDTH], dmiddle[BLOCK][WIDTH];
    static real dmixed[BLOCK][WIDTH], dq[BLOCK][WIDTH], dk[BLOCK][WIDTH], dv[BLOCK][WIDTH];
    static real dx[BLOCK][WIDTH];
    real s0[BLOCK], s1[BLOCK], s2[BLOCK], scale = 1 / (real)sqrt(HEAD);
    double loss = 0;

    for (int t = 0; t < count; t++) {
        for (int j = 0; j < WIDTH; j++) embedded[t][j] = w->token[tokens[t]][j] + w->position[t][j];
        s0[t] = norm(embedded[t], x[t]);
        s1[t] = norm(x[t], normed[t]);
    }
    linear(count, WIDTH, WIDTH, turned.query[0], normed[0], q[0]);
    linear(count, WIDTH, WIDTH, turned.key[0], normed[0], k[0]);
    linear(count, WIDTH, WIDTH, turned.value[0], normed[0], v[0]);
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < count; t++) {
            real most = -INFINITY, total = 0, *row = shares[h][t], sum[HEAD] = {0};
            for (int u = 0; u <= t; u++) {
                row[u] = 0;
                for (int j = h * HEAD; j < (h + 1) * HEAD; j++) row[u] += q[t][j] * k[u][j];
                row[u] *= scale;
                most = row[u] > most ? row[u] : most;
            }
            for (int u = 0; u <= t; u++) total += row[u] = (real)exp(row[u] - most);
            for (int u = 0; u <= t; u++) {
                row[u] /= total;
                for (int j = 0; j < HEAD; j++) sum[j] += row[u] * v[u][h * HEAD + j];
            }
            memcpy(mixed[t] + h * HEAD, sum, sizeof sum);
        }
    linear(count, WIDTH, WIDTH, turned.output[0], mixed[0], back[0]);
    for (int t = 0; t < count; t++) {
        for (int j = 0; j < WIDTH; j++) middle[t][j] = x[t][j] + back[t][j];
        s2[t] = norm(middle[t], normed2[t]);
    }
    linear(count, INNER, WIDTH, turned.widen[0], normed2[0], wide[0]);
    for (int t = 0; t < count; t++)
        for (int i = 0; i < INNER; i++) wide[t][i] = wide[t][i] > 0 ? wide[t][i] : 0;
    linear(count, WIDTH, INNER, turned.narrow[0], wide[0], narrow[0]);
    for (int t = 0; t < count; t++)
        for (int j = 0; j < WIDTH; j++) last[t][j] = middle[t][j] + narrow[t][j];
    linear(count, VOCABULARY, WIDTH, turned.head[0], last[0], logits[0]);
    for (int t = 0; t < count; t++) {
        real most = logits[t][0], total = 0, aimed = logits[t][tokens[t + 1]];
        for (int i = 0; i < VOCABULARY; i++) most = logits[t][i] > most ? logits[t][i] : most;
        for (int i = 0; i < VOCABULARY; i++) total += logits[t][i] = (real)exp(logits[t][i] - most);
        loss += log(total) + most - aimed;
        for (int i = 0; i < VOCABULARY; i++) logits[t][i] *= share / (total * count);
        logits[t][tokens[t + 1]] -= share / count;
    }

    size_t rows = count * sizeof(real[WIDTH]);
    memset(dlast, 0, rows), memset(dmixed, 0, rows), memset(dnormed, 0, rows);
    memset(dq, 0, rows), memset(dk, 0, rows), memset(dv, 0, rows), memset(dx, 0, rows);
    memset(dwide, 0, count * sizeof(real[INNER]));
    linear_back(count, VOCABULARY, WIDTH, w->head[0], last[0], logits[0], gradient.head[0], dlast[0]);
    memcpy(dmiddle, dlast, rows);
    linear_back(count, WIDTH, INNER, w->narrow[0], wide[0], dlast[0], gradient.narrow[0], dwide[0]);
    for (int t = 0; t < count; t++)
        for (int i = 0; i < INNER; i++) dwide[t][i] = wide[t][i] > 0 ? dwide[t][i] : 0;
    linear_back(count, INNER, WIDTH, w->widen[0], normed2[0], dwide[0], gradient.widen[0], dnormed[0]);
    for (int t = 0; t < count; t++) norm_back(s2[t], middle[t], dnormed[t], dmiddle[t]);
    linear_back(count, WIDTH, WIDTH, w->output[0], mixed[0], dmiddle[0], gradient.output[0], dmixed[0]);
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < count; t++) {
            real d[BLOCK], mean = 0, *row = shares[h][t];
            for (int u = 0; u <= t; u++) {
                d[u] = 0;
                for (int j = h * HEAD; j < (h + 1) * HEAD; j++) {
                    d[u] += dmixed[t][j] * v[u][j];
                    dv[u][j] += row[u] * dmixed[t][j];
                }
                mean += d[u] * row[u];
            }
            for (int u = 0; u <= t; u++) {
                real slope = row[u] * (d[u] - mean) * scale;
                for (int j = h * HEAD; j < (h + 1) * HEAD; j++) {
                    dq[t][j] += slope * k[u][j];
                    dk[u][j] += slope * q[t][j];
                }
            }
        }
    memset(dnormed, 0, rows);
    linear_back(count, WIDTH, WIDTH, w->query[0], normed[0], dq[0], gradient.query[0], dnormed[0]);
    linear_back(count, WIDTH, WIDTH, w->key[0], normed[0], dk[0], gradient.key[0], dnormed[0]);
    linear_back(count, WIDTH, WIDTH, w->value[0], normed[0], dv[0], gradient.value[0], dnormed[0]);
    for (int t = 0; t < count; t++) {
        real de[WIDTH] = {0};
        norm_back(s1[t], x[t], dnormed[t], dmiddle[t]);
        norm_back(s0[t], embedded[t], dmiddle[t], de);
        for (int j = 0; j < WIDTH; j++) {
            gradient.token[tokens[t]][j] += de[j];
            gradient.position[t][j] += de[j];
        }
    }
    return loss / count * share;
}

/* Steps first and on, each of ``batch`` samples; sample s is tokens[starts[s]] to tokens[starts[s + 1]]. */
void train(Weights *w, real *m, real *v, const int *tokens, const int *starts, int samples, int batch,
           long first, long steps, const double *rates, double beta1, double beta2, double *losses) {
    for (long s = 0; s < steps; s++) {
        memset(&gradient, 0, sizeof gradient);
        turn(VOCABULARY, WIDTH, w->head[0], turned.head[0]);
        turn(WIDTH, WIDTH, w->query[0], turned.query[0]);
        turn(WIDTH, WIDTH, w->key[0], turned.key[0]);
        turn(WIDTH, WIDTH, w->value[0], turned.value[0]);
        turn(WIDTH, WIDTH, w->output[0], turned.output[0]);
        turn(INNER, WIDTH, w->widen[0], turned.widen[0]);
        turn(WIDTH, INNER, w->narrow[0], turned.narrow[0]);
        losses[s] = 0;
        for (int b = 0; b < batch; b++) {
            int n = (int)(((first + s) * batch + b) % samples);
            losses[s] += sample(w, tokens + starts[n], starts[n + 1] - starts[n] - 1, (real)1 / batch);
        }
        real *p = (real *)w, *g = (real *)&gradient;
        real rate = (real)(rates[s] / (1 - pow(beta1, first + s + 1)));
        real bias = (real)(1 / (1 - pow(beta2, first + s + 1))), b1 = (real)beta1, b2 = (real)beta2;
        for (size_t i = 0; i < sizeof *w / sizeof *p; i++) {
            m[i] = b1 * m[i] + (1 - b1) * g[i];
            v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
            p[i] -= rate * m[i] / ((real)sqrt(v[i] * bias) + (real)1e-8);
        }
    }
}
