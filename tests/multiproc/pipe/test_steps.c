/* What a running worker takes: read off its own arenas and its one door to memory. */
#include "device/system/alloc.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

static void see(const char *point, fl_worker_state *w)
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

static void run_under(const char *schedule)
{
    scenario run = {.name = schedule,
                    .sets = JOB_SETS("pipe.schedule", schedule, "pipe.k", "3", "pipe.m", "6",
                                     "autodp.r", "1", "devices.count", "3", "devices.memory",
                                     "8MiB", "train.batch", "12", "train.epochs", "1",
                                     "train.evaluate", "false"),
                    .n_samples = 240,
                    .dropout = 0.1f,
                    .at_point = see};
    memset(workers, 0, K * sizeof *workers);
    scenario_run(&run);
    for (int stage = 0; stage < K; stage++) {
        const seen *s = &workers[stage];
        assert_int_equal(s->allocations, 0);
        assert_true(s->slot_bytes > 0 && s->slot_bytes <= s->slot_planned);
        assert_true(s->scratch_bytes <= s->scratch_planned);
        assert_true(s->device_bytes <= s->budget_bytes);
    }
}

/* Would catch: a schedule with too many micro-batches in flight, a slot that is not released, a
 * step that allocates. */
static void test_steps__hold_k_minus_stage_micro_batches_under_1f1b(void **state)
{
    (void)state;
    run_under("1f1b");
    for (int stage = 0; stage < K; stage++) {
        assert_int_equal(workers[stage].in_flight, K - stage);
    }
}

static void test_steps__hold_all_micro_batches_under_gpipe(void **state)
{
    (void)state;
    run_under("gpipe");
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
    workers = shared_memory(K * sizeof *workers);
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
