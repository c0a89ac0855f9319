/* Whole runs on samples of different length take the memory that was predicted, and hardly more
 * than their tokens need: a buffer that is sized by samples or by tokens alone would be too small
 * here, or far too large. */
#include "pipe/plan/batch/capacity.h"
#include "pipe/plan/planner.h"

#include "support/runs/ragged_runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS = 4 };

/* Of each rank, at the end of its run. */
typedef struct taken {
    fl_stage_memory promised;
    int64_t slot_bytes, scratch_bytes; /* the most that was in use */
    int64_t device_bytes;
    int n_slots;
} taken;

static taken *taken_by; /* [WORKERS] shared with the runs */

static void note_memory(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "end") == 0 && w->now->pipeline != NULL) {
        taken *t = &taken_by[w->rank];
        size_t slot = 0, scratch = 0;
        fl_stage_peaks(fl_pipeline_stage(w->now->pipeline), &t->n_slots, &slot, &scratch);
        t->promised = w->now->memory;
        t->slot_bytes = (int64_t)slot;
        t->scratch_bytes = (int64_t)scratch;
        t->device_bytes = (int64_t)w->device->peak_bytes;
    }
}

/* What the planner says of each stage of this plan. */
static void predict(const scenario *s, const fl_plan *plan, fl_stage_memory *stages)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_sample_sizes *sizes = NULL;
    fl_memory_model *ragged = NULL;
    int64_t n_test = RAGGED_SAMPLES / 4;
    fl_job_defaults(&job);
    for (int i = 0; ragged_common[i] != NULL; i += 2) {
        must(fl_job_set(&job, ragged_common[i], ragged_common[i + 1]));
    }
    must(ragged_dataset(RAGGED_SAMPLES, s->length, s->per_token, &data));
    must(ragged_model(RAGGED_BLOCKS, s->dropout, s->per_token, &model));
    must(fl_sample_sizes_create(model, &data, RAGGED_SAMPLES, n_test, &sizes));
    must(fl_memory_model_create(model, sizes, &ragged));
    fl_run_batches batches = {.job = &job,
                              .sizes = sizes,
                              .n_samples = RAGGED_SAMPLES,
                              .n_steps = RAGGED_STEPS,
                              .stores = {.n_stores = 1, .n_workers = WORKERS}};
    fl_plan_input input = {.model = model, .job = &job, .ragged = ragged, .batches = &batches};
    for (int stage = 0; stage < plan->K; stage++) {
        must(fl_plan_memory(&input, plan, stage, &stages[stage]));
    }
    fl_memory_model_destroy(&ragged);
    fl_sample_sizes_destroy(&sizes);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

/* The context of these runs is where the plan goes. */
static void note_plan_and_memory(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "begin") == 0 && w->rank == 0) {
        *(fl_plan *)(uintptr_t)scenario_here()->context = w->now->plan;
    }
    note_memory(point, w);
}

/* The planner allows for what arenas round up, whatever the sizes: of a stage that has little more
 * than a classifier, that is a good part. */
enum { ROUNDING_BYTES = 4 * FL_MEMORY_PIECES * 64 };

static void check_within(const char *what, int64_t promised, int64_t used, double most)
{
    print_message("    %s: %lld of %lld bytes\n", what, (long long)used, (long long)promised);
    assert_true(used <= promised);
    assert_true((double)promised <= most * (double)used + (most > 1.0 ? ROUNDING_BYTES : 0));
}

/* A device with memory of its own also holds messages and what kernels know of a micro-batch. */
static void check_device(const fl_stage_memory *m, int64_t used)
{
    if (getenv("FL_TEST_DEVICE") == NULL) {
        check_within("device", m->params_bytes + m->n_slots * m->slot_bytes + m->scratch_bytes,
                     used, 1.0);
    }
}

static void check_memory(const scenario *s, const fl_plan *plan)
{
    fl_stage_memory stages[FL_MAX_STAGES];
    predict(s, plan, stages);
    for (int rank = 0; rank < plan->K * plan->R; rank++) {
        const taken *t = &taken_by[rank];
        const fl_stage_memory *m = &t->promised;
        fl_place place = fl_plan_place(plan, rank);
        const fl_stage_memory *predicted = &stages[place.stage];
        print_message("  stage %d of replica %d\n", place.stage, place.replica);
        assert_int_equal(t->n_slots, m->n_slots);
        check_device(m, t->device_bytes);
        check_within("predicted", predicted->total_bytes, m->total_bytes, 1.1);
    }
}

/* The replicas share a batch: of a stage, it is the most that any of them has used that counts. */
static void check_peaks(const fl_plan *plan)
{
    for (int stage = 0; stage < plan->K; stage++) {
        int64_t slot = 0, scratch = 0;
        const fl_stage_memory *m = &taken_by[fl_plan_rank(plan, 0, stage)].promised;
        for (int r = 0; r < plan->R; r++) {
            const taken *t = &taken_by[fl_plan_rank(plan, r, stage)];
            slot = t->slot_bytes > slot ? t->slot_bytes : slot;
            scratch = t->scratch_bytes > scratch ? t->scratch_bytes : scratch;
        }
        check_within("slot", m->slot_bytes, slot, 1.1);
        check_within("scratch", m->scratch_bytes, scratch, 1.1);
    }
}

/* In the last stage alone, an evaluation may take more temporaries than a training step; with four
 * stages, the longest sample must therefore be in both splits. */
static ragged_length *lengths_for(size_t grid)
{
    return grid == 4 ? ragged_two_lengths : ragged_like_sst2;
}

static void test_ragged__takes_the_memory_that_is_predicted(void **state)
{
    (void)state;
    fl_plan *plan = shared_memory(sizeof *plan);
    taken_by = shared_memory(WORKERS * sizeof *taken_by);
    for (size_t g = 0; g < RAGGED_GRIDS; g++) {
        char name[32];
        snprintf(name, sizeof name, "memory-%zu", g);
        scenario s = ragged_scenario(name, lengths_for(g),
                                     JOB_SETS("pipe.k", ragged_grids[g][0], "autodp.r",
                                              ragged_grids[g][1], "pipe.m", ragged_grids[g][2]));
        s.per_token = g % 2 == 1;
        s.at_point = note_plan_and_memory;
        s.context = plan;
        memset(taken_by, 0, WORKERS * sizeof *taken_by);
        scenario_run(&s);
        print_message("K=%d R=%d M=%d\n", plan->K, plan->R, plan->M);
        check_memory(&s, plan);
        check_peaks(plan);
    }
}

/* A device with just the memory that is predicted trains; with a tenth less, the job is refused. */
static void test_ragged__fits_where_it_is_predicted_to(void **state)
{
    (void)state;
    char memory[2][32];
    fl_stage_memory stage;
    scenario s = ragged_scenario("fits", ragged_like_sst2,
                                 JOB_SETS("pipe.m", "1", "devices.memory", memory[0]));
    scenario tight = ragged_scenario("tight", ragged_like_sst2,
                                     JOB_SETS("pipe.m", "1", "devices.memory", memory[1]));
    fl_plan plan = {
        .K = 1, .R = 1, .M = 1, .schedule = FL_1F1B, .first = {0, 2 * RAGGED_BLOCKS + 2}};
    predict(&s, &plan, &stage);
    snprintf(memory[0], sizeof memory[0], "%lld", (long long)stage.total_bytes);
    snprintf(memory[1], sizeof memory[1], "%lld", (long long)stage.total_bytes * 9 / 10);
    scenario_run(&s);
    scenario_start(&tight);
    expect_end(&tight, FL_EBUDGET);
    assert_non_null(strstr(tight.outcome->message, "devices.memory"));
    scenario_forget(&tight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged__takes_the_memory_that_is_predicted),
        cmocka_unit_test(test_ragged__fits_where_it_is_predicted_to),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
