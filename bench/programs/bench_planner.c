/* How long a plan takes to choose: 1,024 devices and a ViT of 47 blocks (96 layers), with a memory
 * budget that never binds, one that asks for pipelines, and one that nothing fits; and the same
 * devices as 128 hosts, all alike, and half of them slower.
 *
 *   build/release/bench/bench_planner [repeats]
 *
 * And the same for samples of different length, as many as SST-2 has, over three epochs: what their
 * sizes and the largest micro-batches of a plan take to find.
 *
 * Times are of this thread's processor, so that a busy machine does not change them much. */
#include "pipe/cost/memory/memory.h"
#include "pipe/plan/batch/capacity.h"
#include "pipe/plan/planner.h"
#include "support/data/ragged.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEVICES = 1024, BLOCKS = 47, CANDIDATES = 256, SMALL_CLUSTER = 16 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Costs like those of a ViT-Large on a small GPU; uneven, so that cuts are not obvious. */
static void fill_profile(const fl_model *model, const fl_layer_memory *memory, fl_profile *p)
{
    *p = (fl_profile){.n_layers = fl_model_n_layers(model),
                      .loss_us = 0.5,
                      .optimizer_us_per_param = 1e-5,
                      .link_us = 10.0,
                      .link_bytes_per_us = 5e3,
                      .reduce_bytes_per_us = 5e3};
    for (int i = 0; i < p->n_layers; i++) {
        double uneven = 1.0 + 0.1 * (i * 7 % 10);
        p->layer[i] = (fl_layer_cost){.fwd_call_us = 8.0,
                                      .fwd_us = 40.0 * uneven,
                                      .bwd_call_us = 12.0,
                                      .bwd_us = 80.0 * uneven,
                                      .out_bytes = memory[i].out_bytes,
                                      .n_params = fl_model_n_params(model) / p->n_layers};
    }
}

static void bench(fl_plan_input *input, const char *what, int n_workers, int64_t memory_bytes,
                  int repeats)
{
    static fl_candidate candidates[CANDIDATES];
    fl_job job = *input->job;
    fl_plan plan;
    char text[4096] = "refused";
    double best = 1e9;
    int n = 0;
    job.devices.memory_bytes = memory_bytes;
    fl_plan_input mine = *input;
    mine.job = &job;
    mine.n_workers = n_workers;
    for (int i = 0; i < repeats; i++) {
        double begun = now_ms();
        fl_status status = fl_plan_choose(&mine, &plan, candidates, CANDIDATES, &n);
        double took = now_ms() - begun;
        best = took < best ? took : best;
        if (status == FL_OK) {
            snprintf(text, sizeof text, "K=%d x R=%d x M=%d, %.1f ms a step, %d candidates", plan.K,
                     plan.R, plan.M, plan.predicted_step_us * 1e-3, n);
        }
    }
    printf("%-34s %5d devices  %8.2f ms  %s\n", what, n_workers, best, text);
}

/* Hosts of 8 devices at 25 GbE; half of the hosts may be slower. */
static void bench_hosts(const fl_plan_input *input, int n_workers, int64_t memory_bytes,
                        int repeats)
{
    static fl_cluster cluster;
    fl_plan_input mine = *input;
    fl_cluster_init(&cluster, n_workers / 8, 8);
    cluster.link[FL_LINK_HOSTS] = (fl_link_cost){30.0, 3000.0, 3000.0};
    mine.cluster = &cluster;
    bench(&mine, "hosts of 8", n_workers, memory_bytes, repeats);
    for (int d = n_workers / 2; d < n_workers; d++) {
        cluster.speed[d] = 0.6;
    }
    bench(&mine, "hosts of 8, half of them slower", n_workers, memory_bytes, repeats);
}

static fl_status run(int repeats)
{
    fl_vit_config config = {.channels = 3,
                            .height = 224,
                            .width = 224,
                            .patch = 16,
                            .dim = 256,
                            .heads = 8,
                            .blocks = BLOCKS,
                            .n_classes = 1000};
    fl_shape image = {.tokens = 1, .width = 3 * 224 * 224, .dtype = FL_F32};
    fl_model *model = NULL;
    static fl_layer_memory memory[FL_MAX_LAYERS];
    static fl_profile profile;
    fl_job job = {.train = {.batch = 8192, .accumulate = 1}, .devices = {.cores = 1}};
    job.pipe.schedule = FL_1F1B;
    job.autodp.bucket_bytes = 4 << 20;
    FL_TRY(fl_model_vit(&config, &model));
    fl_status status = fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 1, memory);
    if (status == FL_OK) {
        fill_profile(model, memory, &profile);
        fl_plan_input input = {
            .model = model, .job = &job, .profile = &profile, .memory_one = memory};
        printf("%d layers, batch %lld; the best of %d\n", fl_model_n_layers(model),
               (long long)job.train.batch, repeats);
        bench(&input, "everything fits", SMALL_CLUSTER, (int64_t)1 << 40, repeats);
        bench(&input, "everything fits", DEVICES, (int64_t)1 << 40, repeats);
        bench(&input, "memory asks for pipelines", DEVICES, (int64_t)160 << 20, repeats);
        bench(&input, "memory asks for long pipelines", DEVICES, (int64_t)60 << 20, repeats);
        bench(&input, "nothing fits", DEVICES, (int64_t)1 << 20, repeats);
        bench_hosts(&input, SMALL_CLUSTER, (int64_t)1 << 40, repeats);
        bench_hosts(&input, DEVICES, (int64_t)1 << 40, repeats);
        bench_hosts(&input, DEVICES, (int64_t)160 << 20, repeats);
    }
    fl_model_destroy(&model);
    return status;
}

/* ---- samples of different length ---- */

enum { SENTENCES = 67349, EPOCHS = 3, SENTENCE_BATCH = 32, SENTENCE_BLOCKS = 12 };

typedef struct ragged_run {
    fl_dataset data;
    fl_model *model;
    fl_sample_sizes *sizes;
    fl_memory_model *memory;
    fl_run_batches batches;
    fl_job job;
} ragged_run;

static fl_status ragged_init(ragged_run *r)
{
    r->job = (fl_job){.train = {.batch = SENTENCE_BATCH, .accumulate = 1, .evaluate = true},
                      .devices = {.cores = 1}};
    r->job.pipe.schedule = FL_1F1B;
    r->job.autodp.bucket_bytes = 4 << 20;
    FL_TRY(ragged_dataset(SENTENCES, ragged_like_sst2, false, &r->data));
    FL_TRY(ragged_model(SENTENCE_BLOCKS, 0.0f, false, &r->model));
    double begun = now_ms();
    FL_TRY(fl_sample_sizes_create(r->model, &r->data, SENTENCES, SENTENCES / 4, &r->sizes));
    printf("%d sentences: their sizes in %.2f ms", SENTENCES, now_ms() - begun);
    begun = now_ms();
    FL_TRY(fl_memory_model_create(r->model, r->sizes, &r->memory));
    printf(", memory of %d layers in %.2f ms\n", fl_model_n_layers(r->model), now_ms() - begun);
    r->batches =
        (fl_run_batches){.job = &r->job,
                         .sizes = r->sizes,
                         .n_samples = SENTENCES,
                         .n_steps = EPOCHS * ((SENTENCES + SENTENCE_BATCH - 1) / SENTENCE_BATCH),
                         .stores = {.n_stores = 1, .n_workers = SMALL_CLUSTER}};
    return FL_OK;
}

static fl_status bench_capacity(ragged_run *r)
{
    fl_capacity exact, bound;
    for (int M = 1; M <= 8; M *= 2) {
        fl_plan plan = {.K = 1, .R = 2, .M = M, .rank_of = {0, 1}};
        double begun = now_ms();
        FL_TRY(fl_capacity_of_plan(&r->batches, &plan, &exact));
        double took = now_ms() - begun;
        FL_TRY(fl_capacity_bounds(&r->batches, 2, M, NULL, &bound));
        printf("R=2 x M=%d: %lld samples, %lld tokens in %.1f ms; the bound: %lld, %lld\n", M,
               (long long)fl_capacity_samples(&exact), (long long)fl_capacity_tokens(&exact), took,
               (long long)fl_capacity_samples(&bound), (long long)fl_capacity_tokens(&bound));
    }
    return FL_OK;
}

static fl_status run_ragged(int repeats)
{
    static ragged_run r;
    static fl_layer_memory memory[FL_MAX_LAYERS];
    static fl_profile profile;
    FL_TRY(ragged_init(&r));
    FL_TRY(bench_capacity(&r));
    const fl_sample_shape longest = fl_sample_longest(r.sizes);
    FL_TRY(fl_memory_measure(r.model, &longest, 1, memory));
    fill_profile(r.model, memory, &profile);
    fl_plan_input input = {.model = r.model,
                           .job = &r.job,
                           .profile = &profile,
                           .memory_one = memory,
                           .ragged = r.memory,
                           .batches = &r.batches};
    bench(&input, "sentences, everything fits", SMALL_CLUSTER, (int64_t)1 << 40, 1);
    bench(&input, "sentences, once more", SMALL_CLUSTER, (int64_t)1 << 40, repeats);
    bench(&input, "sentences, little memory", SMALL_CLUSTER, (int64_t)600 << 10, 1);
    bench(&input, "sentences, nothing fits", SMALL_CLUSTER, (int64_t)10 << 10, 1);
    fl_memory_model_destroy(&r.memory);
    fl_sample_sizes_destroy(&r.sizes);
    fl_model_destroy(&r.model);
    fl_dataset_destroy(&r.data);
    return FL_OK;
}

int main(int argc, char **argv)
{
    int repeats = argc > 1 ? atoi(argv[1]) : 5;
    if (run(repeats) != FL_OK || run_ragged(repeats) != FL_OK) {
        fprintf(stderr, "%s\n", fl_errmsg());
        return 1;
    }
    return 0;
}
