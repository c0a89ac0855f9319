/* Times every CPU kernel at the shapes of a ViT trunk, and what a training step of that trunk is
 * made of.
 *
 *   bench_kernels [batch [threads [repetitions [name]]]]      (64, 1 and 30; all kernels)
 *
 * The trunk: 12 blocks, C 128, 4 heads, 17 tokens a sample, hidden 512. For each kernel: minimum
 * and median of the repetitions, its rate (GFLOP/s for products and attention, GB/s of the arrays
 * it reads and writes for the rest), how often a step calls it, and what that costs. */
#include "device/device.h"
#include "device/random/random.h"
#include "device/system/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 12, C = 128, HEADS = 4, TOKENS = 17, HIDDEN = 4 * C, QKV = 3 * C };
enum { MAX_REPS = 1000, INNER_US = 2000 };

/* Everything a step touches; weights of one block are used BLOCKS times. */
typedef struct trunk {
    fl_device *d;
    int64_t batch, m, n_params;
    int32_t *offsets;
    int64_t *ids;
    float *x, *ln, *qkv, *y, *hidden, *pre, *grad, *grad_hidden, *grad_qkv, *lse, *mean, *rstd;
    float *params, *grads, *moment1, *moment2;
    fl_weight qkv_w, proj_w, up_w, down_w;
} trunk;

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "bench_kernels: %s: %s\n", fl_status_text(status), fl_errmsg());
        exit(1);
    }
}

#define CALL(t, kernel, ...) CALL_AS(t, kernel, kernel, __VA_ARGS__)
#define CALL_AS(t, kernel, name, ...)                                                              \
    must((t)->d->ops->kernel((t)->d, NULL, &(fl_##name##_args){__VA_ARGS__}))

static float *filled(fl_device *d, int64_t n, float scale)
{
    void *memory = NULL;
    must(fl_device_alloc(d, (size_t)n * sizeof(float), "bench", &memory));
    float *p = memory;
    const uint32_t key[2] = {(uint32_t)n, 1};
    for (int64_t i = 0; i < n; i += 4) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
        uint32_t word[4];
        fl_philox(counter, key, word);
        for (int64_t j = i; j < n && j < i + 4; j++) {
            p[j] = (2.0f * fl_unit(word[j - i]) - 1.0f) * scale;
        }
    }
    return p;
}

static fl_weight weight(fl_device *d, int64_t rows, int64_t cols)
{
    return (fl_weight){filled(d, rows * cols, 0.1f), rows, cols, 1, NULL};
}

/* A parameter of one column. */
#define VECTOR(values, n) (&(fl_weight){.data = (values), .rows = (n), .cols = 1})

static fl_attention_args attention_args(const trunk *t)
{
    const int head_dim = C / HEADS;
    return (fl_attention_args){.qkv = t->qkv,
                               .offsets = {t->offsets, t->offsets, t->batch},
                               .heads = HEADS,
                               .width = C,
                               .scale = 1.0f / sqrtf((float)head_dim),
                               .y = t->y,
                               .lse = t->lse};
}

static void set_up(trunk *t, int batch, int n_threads)
{
    must(fl_device_cpu_create(n_threads, NULL, SIZE_MAX, &t->d));
    t->batch = batch;
    t->m = (int64_t)batch * TOKENS;
    t->n_params = (int64_t)BLOCKS * (QKV * C + C * C + 2 * HIDDEN * C + 9 * C + HIDDEN);
    t->offsets = calloc((size_t)batch + 1, sizeof *t->offsets);
    t->ids = calloc((size_t)batch + 1, sizeof *t->ids);
    for (int32_t i = 0; i <= batch; i++) {
        t->offsets[i] = i * TOKENS;
        t->ids[i] = i;
    }
    float **rows[] = {&t->x, &t->ln, &t->y, &t->grad};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *rows[i] = filled(t->d, t->m * C, 1.0f);
    }
    t->qkv = filled(t->d, t->m * QKV, 1.0f);
    t->grad_qkv = filled(t->d, t->m * QKV, 1.0f);
    t->hidden = filled(t->d, t->m * HIDDEN, 1.0f);
    t->pre = filled(t->d, t->m * HIDDEN, 2.0f);
    t->grad_hidden = filled(t->d, t->m * HIDDEN, 1.0f);
    t->lse = filled(t->d, t->m * HEADS, 1.0f);
    t->mean = filled(t->d, t->m, 0.1f);
    t->rstd = filled(t->d, t->m, 1.0f);
    t->params = filled(t->d, t->n_params, 0.1f);
    t->grads = filled(t->d, t->n_params, 0.1f);
    t->moment1 = filled(t->d, t->n_params, 0.0f);
    t->moment2 = filled(t->d, t->n_params, 0.0f);
    t->qkv_w = weight(t->d, QKV, C);
    t->proj_w = weight(t->d, C, C);
    t->up_w = weight(t->d, HIDDEN, C);
    t->down_w = weight(t->d, C, HIDDEN);
}

/* ---- one function a kernel ---- */

static void qkv_forward(trunk *t)
{
    CALL(t, linear, .in = t->ln, .w = &t->qkv_w, .bias = VECTOR(t->params, 0), .y = t->qkv,
         .m = t->m);
}
static void proj_forward(trunk *t)
{
    CALL(t, linear, .in = t->y, .w = &t->proj_w, .bias = VECTOR(t->params, 0), .residual = t->x,
         .y = t->ln, .m = t->m);
}
static void up_forward(trunk *t)
{
    CALL(t, linear, .in = t->ln, .w = &t->up_w, .bias = VECTOR(t->params, 0),
         .activation = FL_ACT_GELU_TANH, .pre = t->pre, .y = t->hidden, .m = t->m);
}
static void up_alone(trunk *t)
{
    CALL(t, linear, .in = t->ln, .w = &t->up_w, .bias = VECTOR(t->params, 0), .y = t->hidden,
         .m = t->m);
}
static void down_forward(trunk *t)
{
    CALL(t, linear, .in = t->hidden, .w = &t->down_w, .bias = VECTOR(t->params, 0),
         .residual = t->x, .y = t->ln, .m = t->m);
}
static void qkv_input(trunk *t)
{
    CALL(t, linear_backward_input, .grad_out = t->grad_qkv, .w = &t->qkv_w, .grad_in = t->grad,
         .m = t->m);
}
static void proj_input(trunk *t)
{
    CALL(t, linear_backward_input, .grad_out = t->x, .w = &t->proj_w, .grad_in = t->grad,
         .m = t->m);
}
static void up_input(trunk *t)
{
    CALL(t, linear_backward_input, .grad_out = t->hidden, .w = &t->up_w, .grad_in = t->grad,
         .m = t->m);
}
static void down_input(trunk *t)
{
    CALL(t, linear_backward_input, .grad_out = t->grad, .w = &t->down_w, .grad_in = t->grad_hidden,
         .m = t->m);
}
static void qkv_weights(trunk *t)
{
    CALL(t, linear_backward_weights, .grad_out = t->grad_qkv, .in = t->x, .grad_w = t->grads,
         .grad_bias = t->grads, .m = t->m, .n_out = QKV, .n_in = C);
}
static void proj_weights(trunk *t)
{
    CALL(t, linear_backward_weights, .grad_out = t->grad, .in = t->x, .grad_w = t->grads,
         .grad_bias = t->grads, .m = t->m, .n_out = C, .n_in = C);
}
static void up_weights(trunk *t)
{
    CALL(t, linear_backward_weights, .grad_out = t->hidden, .in = t->x, .grad_w = t->grads,
         .grad_bias = t->grads, .m = t->m, .n_out = HIDDEN, .n_in = C);
}
static void down_weights(trunk *t)
{
    CALL(t, linear_backward_weights, .grad_out = t->grad, .in = t->hidden, .grad_w = t->grads,
         .grad_bias = t->grads, .m = t->m, .n_out = C, .n_in = HIDDEN);
}
static void attention_forward(trunk *t)
{
    const fl_attention_args args = attention_args(t);
    must(t->d->ops->attention(t->d, NULL, &args));
}
static void attention_backward(trunk *t)
{
    CALL(t, attention_backward, .forward = attention_args(t), .grad_y = t->grad,
         .grad_qkv = t->grad_qkv);
}
static void gelu_backward(trunk *t)
{
    CALL(t, activate_backward, .activation = FL_ACT_GELU_TANH, .grad_y = t->grad_hidden,
         .pre = t->pre, .grad_pre = t->grad_hidden, .y = t->hidden, .n = t->m * HIDDEN);
}
static void layernorm(trunk *t)
{
    CALL_AS(t, layernorm, norm, .in = t->x, .gamma = VECTOR(t->params, C),
            .beta = VECTOR(t->params + C, C), .epsilon = 1e-5f, .y = t->ln, .mean = t->mean,
            .rstd = t->rstd, .m = t->m, .n = C);
}
static void layernorm_backward(trunk *t)
{
    CALL_AS(t, layernorm_backward, norm_backward, .grad_y = t->grad, .in = t->x,
            .gamma = VECTOR(t->params, C), .mean = t->mean, .rstd = t->rstd,
            .grad_residual = t->grad, .grad_in = t->ln, .grad_gamma = t->grads,
            .grad_beta = t->grads + C, .m = t->m, .n = C);
}
static fl_update updates_of(const trunk *t)
{
    return (fl_update){.w = t->params,
                       .g = t->grads,
                       .moment = {t->moment1, t->moment2},
                       .n = t->n_params,
                       .weight_decay = 0.01f,
                       .rate = 1.0f};
}
static void adamw(trunk *t)
{
    const fl_adamw_step step = {1e-5f, 0.9f, 0.999f, 1e-8f, 0.5f, 0.5f, 1.0f};
    const fl_update update = updates_of(t);
    must(t->d->ops->adamw_many(t->d, NULL, &update, 1, &step));
}
static void sgd(trunk *t)
{
    const fl_sgd_step step = {1e-5f, 0.9f, 1.0f};
    const fl_update update = updates_of(t);
    must(t->d->ops->sgd_many(t->d, NULL, &update, 1, &step));
}
static void sum_squares(trunk *t)
{
    double sum;
    const fl_square_sum square = {t->grads, t->n_params, &sum};
    must(t->d->ops->sum_squares_many(t->d, NULL, &square, 1));
}
static void clear_grads(trunk *t)
{
    must(t->d->ops->fill_zero(t->d, NULL, t->grads, (size_t)t->n_params * sizeof(float)));
}
static void dropout(trunk *t)
{
    CALL(t, dropout, .in = t->x, .offsets = {t->offsets, t->offsets, t->batch}, .width = C,
         .mask = {.p = 0.1f,
                  .stream = 4,
                  .layer = 3,
                  .epoch = 2,
                  .seed = 1,
                  .sample_ids = t->ids,
                  .sample_ids_device = t->ids},
         .y = t->ln);
}
static void add(trunk *t)
{
    CALL(t, add, .a = t->x, .b = t->y, .y = t->ln, .n = t->m * C);
}

typedef struct kernel {
    const char *name;
    void (*run)(trunk *t);
    int calls;    /* in a step of the trunk */
    double flop;  /* a row; 0: a pass over memory */
    double bytes; /* a row, or a parameter where per_param */
    bool per_param;
} kernel;

/* Products: 2 m n k. Attention: the 2 and 5 products of its two ways, for 17 keys. */
#define PRODUCT(n, k) (2.0 * (n) * (k))
#define FLOATS(n) (4.0 * (n))

static const kernel kernels[] = {
    {"qkv forward", qkv_forward, BLOCKS, PRODUCT(QKV, C), 0, false},
    {"proj + residual", proj_forward, BLOCKS, PRODUCT(C, C), 0, false},
    {"up + GELU", up_forward, BLOCKS, PRODUCT(HIDDEN, C), 0, false},
    {"down + residual", down_forward, BLOCKS, PRODUCT(HIDDEN, C), 0, false},
    {"(up without GELU)", up_alone, 0, PRODUCT(HIDDEN, C), 0, false},
    {"qkv grad input", qkv_input, BLOCKS, PRODUCT(QKV, C), 0, false},
    {"proj grad input", proj_input, BLOCKS, PRODUCT(C, C), 0, false},
    {"up grad input", up_input, BLOCKS, PRODUCT(HIDDEN, C), 0, false},
    {"down grad input", down_input, BLOCKS, PRODUCT(HIDDEN, C), 0, false},
    {"qkv grad weights", qkv_weights, BLOCKS, PRODUCT(QKV, C), 0, false},
    {"proj grad weights", proj_weights, BLOCKS, PRODUCT(C, C), 0, false},
    {"up grad weights", up_weights, BLOCKS, PRODUCT(HIDDEN, C), 0, false},
    {"down grad weights", down_weights, BLOCKS, PRODUCT(HIDDEN, C), 0, false},
    {"attention", attention_forward, BLOCKS, 2 * PRODUCT(TOKENS, C), 0, false},
    {"attention backward", attention_backward, BLOCKS, 5 * PRODUCT(TOKENS, C), 0, false},
    {"GELU backward", gelu_backward, BLOCKS, 0, FLOATS(4 * HIDDEN), false},
    {"LayerNorm", layernorm, 4 * BLOCKS, 0, FLOATS(2 * C), false},
    {"LayerNorm backward", layernorm_backward, 2 * BLOCKS, 0, FLOATS(4 * C), false},
    {"AdamW", adamw, 1, 0, FLOATS(7), true},
    {"sum of squares", sum_squares, 1, 0, FLOATS(1), true},
    {"clear gradients", clear_grads, 1, 0, FLOATS(1), true},
    {"(SGD)", sgd, 0, 0, FLOATS(5), true},
    {"(dropout)", dropout, 0, 0, FLOATS(2 * C), false},
    {"(add)", add, 0, 0, FLOATS(3 * C), false},
};
enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of all threads of this process: what a busy machine does not stretch as much as the clock. */
static int64_t cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Microseconds a call, `n` times, ascending; short kernels are repeated within one reading. */
static void measure(trunk *t, const kernel *k, int n, double *us)
{
    int64_t begin = fl_now_us();
    k->run(t);
    int64_t once = fl_now_us() - begin;
    int inner = once >= INNER_US ? 1 : (int)(INNER_US / (once + 1)) + 1;
    for (int i = 0; i < n; i++) {
        begin = fl_now_us();
        for (int j = 0; j < inner; j++) {
            k->run(t);
        }
        us[i] = (double)(fl_now_us() - begin) / inner;
    }
    qsort(us, (size_t)n, sizeof *us, by_size);
}

static void whole_step(trunk *t)
{
    for (int i = 0; i < N_KERNELS; i++) {
        for (int call = 0; call < kernels[i].calls; call++) {
            kernels[i].run(t);
        }
    }
}

/* The kernels in the order of a step, so that each finds the cache as it would there. */
static void block_order(trunk *t)
{
    for (int block = 0; block < BLOCKS; block++) {
        layernorm(t);
        qkv_forward(t);
        attention_forward(t);
        proj_forward(t);
        layernorm(t);
        up_forward(t);
        down_forward(t);
    }
    for (int block = 0; block < BLOCKS; block++) {
        down_weights(t);
        down_input(t);
        gelu_backward(t);
        layernorm(t);
        up_weights(t);
        up_input(t);
        layernorm_backward(t);
        proj_weights(t);
        proj_input(t);
        attention_backward(t);
        layernorm(t);
        qkv_weights(t);
        qkv_input(t);
        layernorm_backward(t);
    }
    sum_squares(t);
    adamw(t);
    clear_grads(t);
}

static void report(trunk *t, int n_reps, const char *only)
{
    double us[MAX_REPS], total = 0.0;
    printf("%-20s %10s %10s %9s %6s %9s\n", "kernel", "min us", "median us", "rate", "calls",
           "ms a step");
    for (int i = 0; i < N_KERNELS; i++) {
        const kernel *k = &kernels[i];
        if (strstr(k->name, only) == NULL) {
            continue;
        }
        measure(t, k, n_reps, us);
        double rows = (double)(k->per_param ? t->n_params : t->m);
        double rate = rows * (k->flop > 0 ? k->flop : k->bytes) / us[0] / 1e3;
        double step_ms = us[0] * k->calls / 1e3;
        total += step_ms;
        printf("%-20s %10.1f %10.1f %6.1f %s %5d %9.2f\n", k->name, us[0], us[n_reps / 2], rate,
               k->flop > 0 ? "GF" : "GB", k->calls, step_ms);
    }
    printf("sum of the minima: %.1f ms a step\n", total);
    const kernel steps[] = {{"by kernel", whole_step, 1, 0, 0, false},
                            {"by block", block_order, 1, 0, 0, false}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && only[0] == '\0'; i++) {
        int64_t cpu = cpu_us();
        measure(t, &steps[i], n_reps, us);
        double cpu_ms = (double)(cpu_us() - cpu) / (n_reps + 1) / 1e3;
        printf("a step, %-9s: min %.1f ms, median %.1f ms, mean of processor time %.1f ms, "
               "%.0f samples/s at the minimum\n",
               steps[i].name, us[0] / 1e3, us[n_reps / 2] / 1e3, cpu_ms,
               (double)t->batch / us[0] * 1e6);
    }
}

int main(int argc, char **argv)
{
    int batch = argc > 1 ? atoi(argv[1]) : 64;
    int n_threads = argc > 2 ? atoi(argv[2]) : 1;
    int n_reps = argc > 3 ? atoi(argv[3]) : 30;
    if (batch < 1 || n_threads < 1 || n_reps < 1 || n_reps > MAX_REPS) {
        fprintf(stderr, "usage: bench_kernels [batch [threads [repetitions [name]]]]\n");
        return 2;
    }
    trunk t = {0};
    set_up(&t, batch, n_threads);
    report(&t, n_reps, argc > 4 ? argv[4] : "");
    return 0;
}
