/* What the cache saves: a training step of a ViT on one worker of one core, for each number of
 * frozen blocks
 *
 *   without  frozen layers run forward on every sample
 *   with     their output comes from the cache
 *   ideal    nothing but the active layers: their input lies there
 *   reading  what a sample took from the step that was read, and what it took to compute
 *   auto     what cache.policy auto decides after two epochs, by its own measurements
 *
 *     bench_cache_step [blocks [dim [batch [folder [slow]]]]]   12 128 64
 * /usr/share/datasets/fashion-mnist 0
 *
 * With `slow`, all values lie on a disk that returns one in `slow` microseconds, one after the
 * other: a stand-in (bench/CMakeLists.txt has the linker put it before cache/file.c), so that there
 * is a frost line from which the cache does not pay. Each figure is the median of some steps; the
 * last lines say for which F the cache was measured to pay, and for which `auto` used it. */
#include "cache/file.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/plan/migrate_schedule.h"
#include "pipe/step/input/cached_input.h"

#include <frostline.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 7, BATCHES = 4 /* different ones: an epoch */, MAX_BLOCKS = 256 };

typedef enum way { WITHOUT, WITH, IDEAL, AUTO, WAYS } way;

typedef struct bench {
    fl_job job;
    fl_model *model;
    fl_dataset data;
    fl_device *device;
    fl_layer_memory *layers;
    fl_sample_sizes *sizes;
    fl_capacity capacity;
    fl_affinity affinity; /* one store */
    int64_t n_samples;
    int64_t ids[2][4096]; /* this step's, the next one's */
} bench;

/* ---- the slow disk ---- */

static int64_t slow_us;

bool __real_fl_cache_file_read(int fd, void *to, size_t size_bytes, int64_t at);
bool __real_fl_cache_file_read_cached(int fd, void *to, size_t size_bytes, int64_t at);
bool __wrap_fl_cache_file_read(int fd, void *to, size_t size_bytes, int64_t at);
bool __wrap_fl_cache_file_read_cached(int fd, void *to, size_t size_bytes, int64_t at);

bool __wrap_fl_cache_file_read(int fd, void *to, size_t size_bytes, int64_t at)
{
    const struct timespec pause = {.tv_sec = slow_us / 1000000,
                                   .tv_nsec = slow_us % 1000000 * 1000};
    if (slow_us > 0) {
        nanosleep(&pause, NULL);
    }
    return __real_fl_cache_file_read(fd, to, size_bytes, at);
}

bool __wrap_fl_cache_file_read_cached(int fd, void *to, size_t size_bytes, int64_t at)
{
    return slow_us == 0 && __real_fl_cache_file_read_cached(fd, to, size_bytes, at);
}

/* ---- a step ---- */

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "bench_cache_step: %s\n", fl_errmsg());
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static fl_stage *open_stage(bench *b, int n_frozen, bool fed)
{
    fl_stage *stage = NULL;
    fl_stage_memory memory;
    int n = fl_model_n_layers(b->model);
    fl_memory_stage(b->model, &b->job, b->layers, n_frozen,
                    &(fl_stage_place){FL_1F1B, 1, 1, 0, 0, n}, &memory);
    fl_drawn_state drawn = {.model = b->model, .seed = b->job.train.seed};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_stage_options options = {.model = b->model,
                                .dataset = &b->data,
                                .job = &b->job,
                                .device = b->device,
                                .last = n,
                                .n_frozen = n_frozen,
                                .enter = fed ? n_frozen : 0,
                                .source = &source,
                                .n_slots = 1,
                                .capacity = b->capacity,
                                .memory = memory};
    must(fl_stage_create(&options, &stage));
    return stage;
}

/* Everything behind the input. */
static void learn(bench *b, fl_stage *stage, int64_t step)
{
    fl_tensor output, grad;
    fl_loss_sums sums = {0};
    must(fl_stage_forward(stage, 0, NULL, &output));
    must(fl_stage_loss(stage, 0, true, 1.0f / (float)b->job.train.batch, &sums));
    must(fl_stage_backward(stage, 0, false, NULL, NULL, NULL, &grad));
    must(fl_params_step(fl_stage_params(stage), &b->job, step, 1e-4, 1.0));
}

static fl_micro_batch batch_of(bench *b, int64_t step)
{
    int64_t n = b->job.train.batch;
    int64_t *ids = b->ids[step % 2];
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (step * n + i) % b->n_samples;
    }
    return (fl_micro_batch){.ids = ids, .n = n, .n_global = n, .training = true};
}

/* The source of the input: the cache, raw samples, or, with neither, uninitialized memory. */
typedef struct source {
    fl_cached_input *feed;
    fl_loader *loader;
} source;

static void ask(const source *from, const fl_load_request *request)
{
    if (from->feed != NULL) {
        must(fl_cached_input_request(from->feed, request));
    } else if (from->loader != NULL) {
        must(fl_loader_request(from->loader, request));
    }
}

static fl_load_request request_of(const fl_micro_batch *what, int64_t step)
{
    return (fl_load_request){
        .ids = what->ids, .n = what->n, .epoch = step / BATCHES, .augment = true};
}

static void take(const source *from, const fl_load_request *request, int64_t step,
                 const fl_tensor *input)
{
    fl_tensor raw;
    if (from->feed != NULL) {
        must(fl_cached_input_take(from->feed, 0, request, step, input, 60000));
    } else if (from->loader != NULL) {
        must(fl_loader_take(from->loader, 60000, &raw));
        memcpy(input->data, raw.data, (size_t)(raw.n_tokens * raw.width) * sizeof(float));
        fl_loader_release(from->loader);
    }
}

/* One step, ms. Its samples were asked for while the one before computed, as in a run. */
static double step_ms(bench *b, fl_stage *stage, const source *from, int64_t step)
{
    fl_tensor input;
    int64_t begun = fl_now_us();
    fl_micro_batch what = batch_of(b, step);
    fl_load_request request = request_of(&what, step);
    must(fl_stage_begin(stage, 0, &what, &input));
    take(from, &request, step, &input);
    what = batch_of(b, step + 1);
    request = request_of(&what, step + 1);
    ask(from, &request);
    learn(b, stage, step);
    return (double)(fl_now_us() - begun) * 1e-3;
}

static void open_source(bench *b, way how, int n_frozen, const fl_activations *a, fl_stage *stage,
                        source *from)
{
    int64_t n = b->job.train.batch;
    if (how == WITH || how == AUTO) {
        b->job.cache.policy = how == AUTO ? FL_CACHE_AUTO : FL_CACHE_ON;
        const fl_cache_prints none = {.n_levels = 0};
        fl_cache_keep(a->stores[0], &none); /* what was kept last time */
        fl_cached_input_options options = {.activations = a,
                                           .model = b->model,
                                           .dataset = &b->data,
                                           .job = &b->job,
                                           .device = b->device,
                                           .stage = stage,
                                           .affinity = &b->affinity,
                                           .n_readers = 1,
                                           .n_frozen = n_frozen,
                                           .sizes = b->sizes,
                                           .capacity = &b->capacity,
                                           .depth = 1};
        must(fl_cached_input_create(&options, &from->feed));
    } else if (how == WITHOUT) {
        fl_loader_room room;
        must(fl_loader_room_equal(&b->data, n, 1, &room));
        must(fl_loader_create(&b->data, &room, &from->loader));
    }
}

/* The first epoch fills the cache. */
static double one_way(bench *b, way how, int n_frozen, const fl_activations *a,
                      fl_cached_input_report *report)
{
    fl_stage *stage = open_stage(b, n_frozen, how != WITHOUT);
    source from = {0};
    double ms[STEPS];
    open_source(b, how, n_frozen, a, stage, &from);
    int64_t warm = how == WITH || how == AUTO ? BATCHES : 1;
    fl_micro_batch what = batch_of(b, 0);
    fl_load_request request = request_of(&what, 0);
    ask(&from, &request);
    for (int64_t step = 0; step < warm + STEPS; step++) {
        double took = step_ms(b, stage, &from, step);
        if (step >= warm) {
            ms[step - warm] = took;
        }
    }
    if (from.feed != NULL) {
        (void)fl_cached_input_report_take(from.feed, true, report);
    }
    fl_cached_input_destroy(&from.feed);
    fl_loader_destroy(&from.loader);
    fl_stage_destroy(&stage);
    qsort(ms, STEPS, sizeof *ms, compare);
    return ms[STEPS / 2];
}

/* ---- the table ---- */

static void row(bench *b, const fl_activations *a, int F, double unfrozen, bool *pays, bool *used)
{
    double ms[WAYS] = {0};
    fl_cached_input_report report = {0}, decided = {0};
    int n_frozen = fl_frozen_layers(b->model, F);
    ms[WITHOUT] = one_way(b, WITHOUT, n_frozen, a, &report);
    ms[WITH] = one_way(b, WITH, n_frozen, a, &report);
    ms[IDEAL] = one_way(b, IDEAL, n_frozen, a, &report);
    (void)one_way(b, AUTO, n_frozen, a, &decided);
    *pays = ms[WITH] < ms[WITHOUT];
    *used = decided.on;
    printf("%3d %10.2f %10.2f %10.2f %9.2f %9.2f %10.2f %12.2f  %s\n", F, ms[WITHOUT], ms[WITH],
           ms[IDEAL], ms[WITH] / ms[IDEAL], unfrozen / ms[WITH], report.read_us, report.compute_us,
           decided.on ? "on" : "off");
}

static void tell(const char *what, const bool *is, int blocks)
{
    printf("%s", what);
    for (int F = 1; F < blocks; F++) {
        if (is[F]) {
            printf(" %d", F);
        }
    }
    printf("\n");
}

static void table(bench *b, const fl_activations *a, int blocks)
{
    bool pays[MAX_BLOCKS] = {false}, used[MAX_BLOCKS] = {false};
    fl_cached_input_report none;
    printf("  F    without       with      ideal with/ideal F=0/with  reading us computing us  "
           "auto\n");
    double unfrozen = one_way(b, WITHOUT, 0, a, &none);
    printf("  0 %10.2f\n", unfrozen);
    for (int F = 1; F < blocks; F++) {
        row(b, a, F, unfrozen, &pays[F], &used[F]);
    }
    tell("measured to pay at F =", pays, blocks);
    tell("used by auto at F =   ", used, blocks);
}

int main(int argc, char **argv)
{
    static bench b;
    fl_activations *a = NULL;
    char why[512], text[32];
    int blocks = argc > 1 ? atoi(argv[1]) : 12;
    fl_idx_info info;
    if (blocks < 2 || blocks > MAX_BLOCKS) {
        fprintf(stderr, "bench_cache_step: 2 to %d blocks\n", MAX_BLOCKS);
        return 2;
    }
    fl_job_defaults(&b.job);
    must(fl_job_set(&b.job, "train.evaluate", "false"));
    snprintf(text, sizeof text, "%d", argc > 3 ? atoi(argv[3]) : 64);
    must(fl_job_set(&b.job, "train.batch", text));
    slow_us = argc > 5 ? atoll(argv[5]) : 0;
    if (slow_us > 0) {
        must(fl_job_set(&b.job, "cache.memory", "64KiB"));
        must(fl_job_set(&b.job, "cache.disk", "1GiB"));
    }
    must(fl_dataset_idx(argc > 4 ? argv[4] : "/usr/share/datasets/fashion-mnist", FL_AUGMENT_NONE,
                        0, &b.data, &info));
    const fl_vit_config config = {.channels = info.channels,
                                  .height = info.height,
                                  .width = info.width,
                                  .patch = 7,
                                  .dim = argc > 2 ? atoi(argv[2]) : 128,
                                  .heads = 4,
                                  .blocks = blocks,
                                  .n_classes = info.n_classes};
    must(fl_model_vit(&config, &b.model));
    b.n_samples = BATCHES * b.job.train.batch;
    must(fl_activations_create(b.model, &b.data, &b.job, b.n_samples, 1000000,
                               &(fl_store_map){.n_workers = 1}, 0, 1, &a, why, sizeof why));
    must(fl_affinity_init(&b.affinity, &(int){0}, 1));
    must(fl_device_cpu_create(1, NULL, (size_t)4 << 30, &b.device));
    fl_shape raw;
    int64_t n_targets;
    must(b.data.ops->max_shape(b.data.self, &raw, &n_targets));
    must(fl_alloc_array((size_t)fl_model_n_layers(b.model), sizeof *b.layers, (void **)&b.layers));
    must(fl_memory_measure(b.model, &(fl_sample_shape){raw, 1, FL_I32}, b.job.train.batch,
                           b.layers));
    must(fl_sample_sizes_create(b.model, &b.data, b.n_samples, 0, &b.sizes));
    b.capacity = fl_capacity_equal(b.job.train.batch, raw.tokens, n_targets, 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    table(&b, a, blocks);
    fl_activations_destroy(&a);
    fl_affinity_fini(&b.affinity);
    fl_sample_sizes_destroy(&b.sizes);
    return 0;
}
