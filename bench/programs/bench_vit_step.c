/* One process, one thread, one training step of a ViT: how long it takes, and how much of that is
 * spent in each kernel. What is left over is nn/'s own doing.
 *
 *     bench_vit_step [steps [batch [blocks [dim [heads [dropout [fp32 | bf16]]]]]]]
 *
 * A kernel's row: calls a step; the mean of all steps; and the sum, over the calls of a step, of
 * the least that each took in any step, which a busy machine hardly changes. Its share is of those.
 */
#include "nn/optimizer.h"
#include "tests/support/device/nn_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ARENA_BYTES = 512 << 20, N_WARMUP = 3 };

static const fl_device_ops *real;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Each kernel with one struct of arguments, and the name of that struct. */
#define KERNELS(X)                                                                                 \
    X(linear, linear)                                                                              \
    X(linear_backward_input, linear_backward_input)                                                \
    X(linear_backward_weights, linear_backward_weights)                                            \
    X(activate_backward, activate_backward)                                                        \
    X(layernorm, norm)                                                                             \
    X(layernorm_backward, norm_backward)                                                           \
    X(attention, attention)                                                                        \
    X(attention_backward, attention_backward)                                                      \
    X(dropout, dropout)                                                                            \
    X(add, add)                                                                                    \
    X(cross_entropy, cross_entropy)                                                                \
    X(patchify, patchify)                                                                          \
    X(vit_assemble, vit_assemble)                                                                  \
    X(vit_assemble_backward, vit_assemble_backward)                                                \
    X(convert, convert)                                                                            \
    X(gather_rows, gather_rows)                                                                    \
    X(scatter_rows, scatter_rows)

/* The others: the name, the parameters, and the same again without types. */
#define OTHERS(X)                                                                                  \
    X(fill_zero, (fl_device * d, fl_stream * s, void *to, size_t n), (d, s, to, n))                \
    X(sum_squares_many, (fl_device * d, fl_stream * s, const fl_square_sum *list, int n),          \
      (d, s, list, n))                                                                             \
    X(adamw_many,                                                                                  \
      (fl_device * d, fl_stream * s, const fl_update *list, int n, const fl_adamw_step *step),     \
      (d, s, list, n, step))

enum {
#define NUMBER(name, ...) K_##name,
    KERNELS(NUMBER) OTHERS(NUMBER)
#undef NUMBER
        N_KERNELS
};

static const char *const names[N_KERNELS] = {
#define NAME(name, ...) #name,
    KERNELS(NAME) OTHERS(NAME)
#undef NAME
};

enum { MAX_CALLS = 1024 };

static double spent_ms[N_KERNELS];
static double least_ms[N_KERNELS][MAX_CALLS]; /* of the i-th call in a step; 0: none yet */
static int calls[N_KERNELS];                  /* in this step */

static void spent(int kernel, double ms)
{
    double *least = &least_ms[kernel][calls[kernel]++ % MAX_CALLS];
    *least = *least == 0.0 || ms < *least ? ms : *least;
    spent_ms[kernel] += ms;
}

#define TIMED(name, params, args)                                                                  \
    static fl_status timed_##name params                                                           \
    {                                                                                              \
        double begun = now_ms();                                                                   \
        fl_status status = real->name args;                                                        \
        spent(K_##name, now_ms() - begun);                                                         \
        return status;                                                                             \
    }
#define TIMED_KERNEL(name, args)                                                                   \
    TIMED(name, (fl_device * d, fl_stream * s, const fl_##args##_args *a), (d, s, a))
KERNELS(TIMED_KERNEL)
OTHERS(TIMED)
#undef TIMED_KERNEL
#undef TIMED

/* `ops` with every kernel above timed. */
static void time_kernels(fl_device *device, fl_device_ops *ops)
{
    real = device->ops;
    *ops = *real;
#define SET(name, ...) ops->name = timed_##name;
    KERNELS(SET)
    OTHERS(SET)
#undef SET
    device->ops = ops;
}

typedef struct bench {
    rig r;
    fl_job job;
    fl_tensor targets;
    int32_t *target;
    float *moments[RIG_MAX_LAYERS][RIG_MAX_PARAMS];
} bench;

static fl_status setup(bench *b, fl_device *device, fl_model *model, int64_t batch)
{
    const fl_shape raw = {.tokens = 1, .width = 784, .dtype = FL_F32};
    void *memory = NULL;
    FL_TRY(fl_alloc_array((size_t)batch, sizeof(int64_t), &memory));
    int64_t *length = memory;
    for (int64_t s = 0; s < batch; s++) {
        length[s] = 1;
    }
    fl_status status = rig_init(&b->r, device, model, &raw, length, batch, ARENA_BYTES);
    fl_free(length);
    FL_TRY(status);
    const fl_param_spec noise = {.rows = batch, .cols = 784, .init = FL_INIT_NORMAL, .scale = 1.0f};
    fl_param_init(&noise, 1, 0, 0, fl_f32(&b->r.act[0]));
    FL_TRY(fl_alloc_array((size_t)batch, sizeof *b->target, &memory));
    b->target = memory;
    for (int64_t s = 0; s < batch; s++) {
        b->target[s] = (int32_t)(s % 10);
    }
    b->targets = (fl_tensor){
        b->target, b->r.offsets[b->r.n_layers], b->r.offsets[b->r.n_layers], batch, batch, 1,
        FL_I32};
    for (int i = 0; i < b->r.n_layers; i++) {
        for (int j = 0; j < b->r.params[i].n; j++) {
            const fl_weight *w = &b->r.weight[i][j];
            FL_TRY(rig_floats(&b->r, 2 * w->rows * w->cols, &b->moments[i][j]));
        }
    }
    return FL_OK;
}

static fl_status optimize(bench *b, int64_t step)
{
    double norm2 = 0;
    for (int i = 0; i < b->r.n_layers; i++) {
        for (int j = 0; j < b->r.params[i].n; j++) {
            double part = 0;
            const fl_weight *w = &b->r.weight[i][j];
            const fl_square_sum square = {b->r.wgrad[i][j], w->rows * w->cols, &part};
            FL_TRY(b->r.device->ops->sum_squares_many(b->r.device, NULL, &square, 1));
            norm2 += part;
        }
    }
    for (int i = 0; i < b->r.n_layers; i++) {
        for (int j = 0; j < b->r.params[i].n; j++) {
            fl_weight *w = &b->r.weight[i][j];
            int64_t n = w->rows * w->cols;
            const fl_update update = {.w = w->data,
                                      .g = b->r.wgrad[i][j],
                                      .moment = {b->moments[i][j], b->moments[i][j] + n},
                                      .n = n,
                                      .weight_decay = (float)b->job.train.weight_decay,
                                      .rate = 1.0f};
            FL_TRY(fl_optimizer_step(b->r.device, NULL, &b->job, step, 1e-3,
                                     norm2 > 1.0 ? 0.5 : 1.0, &update, 1));
            w->version++;
        }
    }
    return FL_OK;
}

static fl_status train_step(bench *b, int64_t step, fl_loss_sums *sums)
{
    int last = b->r.n_layers;
    FL_TRY(rig_clear_grads(&b->r));
    FL_TRY(rig_forward(&b->r));
    FL_TRY(fl_exec_loss(&b->r.x, b->r.model, &b->r.act[last], &b->targets,
                        1.0f / (float)b->r.batch.n_samples, &b->r.grad[last], sums));
    FL_TRY(rig_backward(&b->r, false));
    return optimize(b, step);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sum_of_least(int kernel)
{
    double sum = 0;
    for (int i = 0; i < MAX_CALLS; i++) {
        sum += least_ms[kernel][i];
    }
    return sum;
}

static void report(double *step_ms, int n_steps, int64_t batch, const bench *b)
{
    double total = 0, kernels = 0, least = 0;
    for (int i = 0; i < n_steps; i++) {
        total += step_ms[i];
    }
    for (int k = 0; k < N_KERNELS; k++) {
        kernels += spent_ms[k];
        least += sum_of_least(k);
    }
    for (int k = 0; k < N_KERNELS; k++) {
        printf("%-24s %4d calls %9.3f ms, least %9.3f ms %5.1f %%\n", names[k], calls[k],
               spent_ms[k] / n_steps, sum_of_least(k), 100.0 * sum_of_least(k) / least);
    }
    qsort(step_ms, (size_t)n_steps, sizeof *step_ms, by_value);
    printf("kernels %.3f ms, all %.3f ms a step, overhead %.2f %%\n", kernels / n_steps,
           total / n_steps, 100.0 * (total - kernels) / total);
    printf("kernels at their least %.3f ms: %.0f samples/s\n", least, 1e3 * (double)batch / least);
    printf("median step %.2f ms, %.1f samples/s; kept %.1f MiB, scratch %.1f MiB\n",
           step_ms[n_steps / 2], 1e3 * (double)batch / step_ms[n_steps / 2],
           (double)b->r.keep.peak_bytes / 0x1p20, (double)b->r.scratch.peak_bytes / 0x1p20);
}

static fl_status run(bench *b, const fl_vit_config *config, int n_steps, int64_t batch)
{
    fl_device *device = NULL;
    fl_model *model = NULL;
    fl_device_ops ops;
    FL_TRY(fl_device_cpu_create(1, (int[]){0}, (size_t)4 << 30, &device));
    FL_TRY(fl_model_vit(config, &model));
    time_kernels(device, &ops);
    FL_TRY(setup(b, device, model, batch));
    void *memory = NULL;
    FL_TRY(fl_alloc_array((size_t)n_steps, sizeof(double), &memory));
    double *step_ms = memory;
    fl_loss_sums sums = {0};
    for (int step = -N_WARMUP; step < n_steps; step++) {
        if (step == 0) {
            memset(spent_ms, 0, sizeof spent_ms);
            memset(least_ms, 0, sizeof least_ms);
        }
        memset(calls, 0, sizeof calls);
        double begun = now_ms();
        FL_TRY(train_step(b, step + N_WARMUP, &sums));
        if (step >= 0) {
            step_ms[step] = now_ms() - begun;
        }
    }
    report(step_ms, n_steps, batch, b);
    fl_free(step_ms); /* the rest goes with the process */
    return FL_OK;
}

int main(int argc, char **argv)
{
    static bench b;
    int n_steps = argc > 1 ? atoi(argv[1]) : 30;
    int64_t batch = argc > 2 ? atoi(argv[2]) : 64;
    const fl_vit_config config = {.channels = 1,
                                  .height = 28,
                                  .width = 28,
                                  .patch = 7,
                                  .dim = argc > 4 ? atoi(argv[4]) : 128,
                                  .heads = argc > 5 ? atoi(argv[5]) : 4,
                                  .blocks = argc > 3 ? atoi(argv[3]) : 12,
                                  .n_classes = 10,
                                  .dropout = argc > 6 ? (float)atof(argv[6]) : 0.0f,
                                  .dtype =
                                      argc > 7 && strcmp(argv[7], "bf16") == 0 ? FL_BF16 : FL_F32};
    b.job.train.beta1 = 0.9;
    b.job.train.beta2 = 0.999;
    b.job.train.epsilon = 1e-8;
    b.job.train.weight_decay = 0.01;
    if (n_steps < 1 || batch < 1 || run(&b, &config, n_steps, batch) != FL_OK) {
        fprintf(stderr, "bench_vit_step: %s\n", fl_errmsg());
        return 1;
    }
    return 0;
}
