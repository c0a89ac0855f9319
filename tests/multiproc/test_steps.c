/* What a running worker takes: read off its own arenas and its one door to memory. */
#include "device/alloc.h"
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "support/runs.h"
#include "support/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { K = 3, M = 6, WARM_STEP = 3 };

/* One worker as it was seen; shared with the test. */
typedef struct seen {
    int in_flight;
    size_t slot_bytes, scratch_bytes, slot_planned, scratch_planned;
    size_t device_bytes, budget_bytes;
    uint64_t allocations; /* after WARM_STEP, then those from there to the end */
} seen;

static seen *workers; /* [K] */

void fl__test_point(const char *point, fl_worker_state *w)
{
    seen *s = &workers[w->rank];
    if (strcmp(point, "step") == 0 && w->step == WARM_STEP) {
        s->allocations = fl_alloc_count();
    } else if (strcmp(point, "end") == 0) {
        s->allocations = fl_alloc_count() - s->allocations;
        fl_stage_peaks(fl_pipeline_stage(w->now->pipeline), &s->in_flight, &s->slot_bytes,
                       &s->scratch_bytes);
        s->slot_planned = (size_t)w->now->memory.slot_bytes;
        s->scratch_planned = (size_t)w->now->memory.scratch_bytes;
        s->device_bytes = w->device->peak_bytes;
        s->budget_bytes = w->device->budget_bytes;
    }
}

static void run(const char *dir, const char *schedule)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    must(fl_job_set(&job, "pipe.k", "3"));
    must(fl_job_set(&job, "pipe.m", "6"));
    must(fl_job_set(&job, "autodp.r", "1"));
    must(fl_job_set(&job, "pipe.schedule", schedule));
    must(fl_job_set(&job, "devices.count", "3"));
    must(fl_job_set(&job, "devices.memory", "8MiB"));
    must(fl_job_set(&job, "train.batch", "12"));
    must(fl_job_set(&job, "train.epochs", "1"));
    must(fl_job_set(&job, "train.evaluate", "false"));
    must(fl_toy_dataset(240, &data));
    must(fl_toy_model(4, 0.1f, &model));
    must(fl_run_in(model, &data, &job, dir, NULL));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static void run_apart(const char *schedule)
{
    char dir[64];
    assert_int_equal(make_root(NULL), 0);
    snprintf(dir, sizeof dir, "%s/run", root);
    memset(workers, 0, K * sizeof *workers);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hush();
        run(dir, schedule);
        _exit(0);
    }
    check_ended_well(child);
    assert_int_equal(remove_root(NULL), 0);
    for (int stage = 0; stage < K; stage++) {
        const seen *s = &workers[stage];
        assert_int_equal(s->allocations, 0);
        assert_true(s->slot_bytes > 0 && s->slot_bytes <= s->slot_planned);
        assert_true(s->scratch_bytes <= s->scratch_planned);
        assert_true(s->device_bytes <= s->budget_bytes);
    }
}

/* Would catch: a schedule that runs ahead, a slot that is not given back, a step that allocates. */
static void test_steps__hold_k_minus_stage_micro_batches_under_1f1b(void **state)
{
    (void)state;
    run_apart("1f1b");
    for (int stage = 0; stage < K; stage++) {
        assert_int_equal(workers[stage].in_flight, K - stage);
    }
}

static void test_steps__hold_all_micro_batches_under_gpipe(void **state)
{
    (void)state;
    run_apart("gpipe");
    for (int stage = 0; stage < K; stage++) {
        assert_int_equal(workers[stage].in_flight, M);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps__hold_k_minus_stage_micro_batches_under_1f1b),
        cmocka_unit_test(test_steps__hold_all_micro_batches_under_gpipe),
    };
    workers =
        mmap(NULL, K * sizeof *workers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return workers == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
