/* What the cache saves: a training step of a ViT on one worker of one core, for each number of
 * frozen blocks
 *
 *   without  frozen layers run forward on every sample
 *   with     their output comes from the cache
 *   ideal    nothing but the active layers: their input lies there
 *   reading  what a sample took from the cache, and what it took to compute
 *
 *     bench_cache_step [blocks [dim [batch [folder]]]]   12 128 64
 * /usr/share/datasets/fashion-mnist
 *
 * Each figure is the median of some steps, the three in turn. */
#include "device/alloc.h"
#include "device/clock.h"
#include "nn/model.h"
#include "pipe/feed.h"
#include "pipe/migrate_schedule.h"

#include <frostline.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 7, BATCHES = 4 /* different ones */ };

typedef enum way { WITHOUT, WITH, IDEAL, WAYS } way;

typedef struct bench {
    fl_job job;
    fl_model *model;
    fl_dataset data;
    fl_device *device;
    fl_layer_memory *layers;
    int64_t n_samples;
    int64_t ids[4096];
} bench;

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
    fl_memory_stage(b->model, &b->job, b->layers, n_frozen, FL_1F1B, 1, 1, 0, 0, n, &memory);
    fl_stage_options options = {.model = b->model,
                                .dataset = &b->data,
                                .job = &b->job,
                                .device = b->device,
                                .last = n,
                                .n_frozen = n_frozen,
                                .enter = fed ? n_frozen : 0,
                                .draw = true,
                                .n_slots = 1,
                                .max_samples = b->job.train.batch,
                                .memory = memory};
    must(fl_stage_create(&options, &stage));
    return stage;
}

/* Everything behind the input. */
static void learn(bench *b, fl_stage *stage, int64_t step)
{
    fl_tensor output, grad;
    fl_loss_sums sums = {0};
    must(fl_stage_forward(stage, 0, &output));
    must(fl_stage_loss(stage, 0, true, 1.0f / (float)b->job.train.batch, &sums));
    must(fl_stage_backward(stage, 0, false, NULL, NULL, &grad));
    must(fl_params_step(fl_stage_params(stage), NULL, &b->job, step, 1e-4, 1.0));
}

static fl_micro_batch batch_of(bench *b, int64_t step)
{
    int64_t n = b->job.train.batch;
    for (int64_t i = 0; i < n; i++) {
        b->ids[i] = (step * n + i) % b->n_samples;
    }
    return (fl_micro_batch){.ids = b->ids, .n = n, .n_global = n, .training = true};
}

/* One step, ms. `feed` NULL: raw samples from `loader`, or with neither, whatever lies there. */
static double step_ms(bench *b, fl_stage *stage, fl_feed *feed, fl_loader *loader, int64_t step)
{
    fl_tensor input, raw;
    fl_micro_batch what = batch_of(b, step);
    fl_load_request request = {.ids = what.ids, .n = what.n, .augment = true};
    if (feed != NULL) {
        must(fl_feed_request(feed, &request));
    } else if (loader != NULL) {
        must(fl_loader_request(loader, &request));
    }
    int64_t begun = fl_now_us();
    must(fl_stage_begin(stage, 0, &what, &input));
    if (feed != NULL) {
        must(fl_feed_take(feed, 0, &request, step, &input, 10000));
    } else if (loader != NULL) {
        must(fl_loader_take(loader, 10000, &raw));
        memcpy(input.data, raw.data, (size_t)(raw.n_tokens * raw.width) * sizeof(float));
        fl_loader_release(loader);
    }
    learn(b, stage, step);
    return (double)(fl_now_us() - begun) * 1e-3;
}

static double one_way(bench *b, way how, int n_frozen, const fl_activations *a,
                      fl_feed_report *report)
{
    fl_stage *stage = open_stage(b, n_frozen, how != WITHOUT);
    fl_feed *feed = NULL;
    fl_loader *loader = NULL;
    double ms[STEPS];
    int64_t n = b->job.train.batch;
    if (how == WITH) {
        fl_feed_options options = {.activations = a,
                                   .model = b->model,
                                   .dataset = &b->data,
                                   .job = &b->job,
                                   .device = b->device,
                                   .stage = stage,
                                   .n_frozen = n_frozen,
                                   .max_samples = n,
                                   .depth = 1};
        must(fl_feed_create(&options, &feed));
    } else if (how == WITHOUT) {
        must(fl_loader_create(&b->data, n, 1, &loader));
    }
    /* The first round of samples fills the cache. */
    int64_t warm = how == WITH ? BATCHES : 1;
    for (int64_t step = 0; step < warm + STEPS; step++) {
        double took = step_ms(b, stage, feed, loader, step);
        if (step >= warm) {
            ms[step - warm] = took;
        }
    }
    if (feed != NULL) {
        (void)fl_feed_report_take(feed, true, report);
    }
    fl_feed_destroy(&feed);
    fl_loader_destroy(&loader);
    fl_stage_destroy(&stage);
    qsort(ms, STEPS, sizeof *ms, compare);
    return ms[STEPS / 2];
}

static void row(bench *b, const fl_activations *a, int F, double unfrozen)
{
    double ms[WAYS] = {0};
    fl_feed_report report = {0};
    int n_frozen = fl_frozen_layers(b->model, F);
    if (F == 0) {
        ms[WITHOUT] = ms[WITH] = ms[IDEAL] = unfrozen;
    } else {
        for (way how = WITHOUT; how < WAYS; how++) {
            ms[how] = one_way(b, how, n_frozen, a, &report);
        }
    }
    printf("%3d %10.2f %10.2f %10.2f %9.2f %9.2f %10.2f %12.2f  %s\n", F, ms[WITHOUT], ms[WITH],
           ms[IDEAL], ms[WITH] / ms[IDEAL], unfrozen / ms[WITH], report.read_us, report.compute_us,
           F == 0      ? ""
           : report.on ? "on"
                       : "off");
}

int main(int argc, char **argv)
{
    static bench b;
    fl_activations *a = NULL;
    fl_feed_report none;
    char why[512], text[32];
    int blocks = argc > 1 ? atoi(argv[1]) : 12;
    fl_idx_info info;
    fl_job_defaults(&b.job);
    must(fl_job_set(&b.job, "train.evaluate", "false"));
    snprintf(text, sizeof text, "%d", argc > 3 ? atoi(argv[3]) : 64);
    must(fl_job_set(&b.job, "train.batch", text));
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
    must(
        fl_activations_create(b.model, &b.data, &b.job, b.n_samples, 1000000, &a, why, sizeof why));
    must(fl_device_cpu_create(1, NULL, (size_t)4 << 30, &b.device));
    fl_shape raw;
    int64_t n_targets;
    must(b.data.ops->max_shape(b.data.self, &raw, &n_targets));
    must(fl_alloc_array((size_t)fl_model_n_layers(b.model), sizeof *b.layers, (void **)&b.layers));
    must(fl_memory_measure(b.model, &raw, b.job.train.batch, b.layers));
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("  F    without       with      ideal with/ideal F=0/with  reading us computing us\n");
    double unfrozen = one_way(&b, WITHOUT, 0, a, &none);
    for (int F = 0; F < blocks; F++) {
        row(&b, a, F, unfrozen);
    }
    fl_activations_destroy(&a);
    return 0;
}
