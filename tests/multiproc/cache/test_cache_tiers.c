/* Whole runs whose workers keep cached values in device memory (cache.device) and in pinned host
 * memory (cache.pinned): to the last bit the losses of the same runs without them, and of runs on
 * CPUs, through frozen and thawed blocks and changes of plan. Catches a value that is read before
 * it was copied, that is evicted while it is wanted, that is found under other weights; and memory
 * that cannot be had and ends a run. */
#include "device/async/async.h"
#include "support/data/toy.h"
#include "support/device/cuda_plugin.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 24, STEPS = 20 };

static const char *const common[] = {
    "train.batch",   "12", "train.epochs", "10", "train.lr", "1e-3",
    "devices.count", "2",  "cache.policy", "on", "pipe.k",   "1",
    "pipe.m",        "2",  "autodp.r",     "1",  NULL};

static const fl_script_entry script[] = {{.step = 1, .f = 1, .k = 1, .r = 1, .m = 2},
                                         {.step = 9, .f = 1, .k = 1, .r = 2, .m = 1},
                                         {.step = 13, .f = 2, .k = 1, .r = 1, .m = 2},
                                         {.step = 18, .f = 0, .k = 2, .r = 1, .m = 2}};

static fl_status make_plain(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job;
    (void)model;
    fl_toy_make_plain(data);
    return FL_OK;
}

static scenario run_of(const char *name, const char *device, const char *const *more)
{
    return (scenario){.name = name,
                      .sets = common,
                      .more = more,
                      .device = device,
                      .script = script,
                      .n_script = sizeof script / sizeof *script,
                      .n_samples = N_SAMPLES,
                      .blocks = 3,
                      .dropout = 0.1f,
                      .adjust = make_plain};
}

/* Sums over the events of the cache. */
typedef struct use {
    int64_t hits, device, pinned, misses, damaged;
    int64_t pinned_bytes, device_bytes; /* of worker 0's tiers, as they were opened last */
    int n_tiers;                        /* events about them ... */
    char why_not[256];                  /* ... and the last reason */
} use;

static use use_of(const scenario *s)
{
    use u = {0};
    json_t *events = lines_with(s->dir, "events.jsonl", "\"cache.");
    const json_t *event;
    FOR_EACH(event, events)
    {
        const char *name = json_string_value(json_object_get(event, "event"));
        if (strcmp(name, "cache.used") == 0 || strcmp(name, "cache.decided") == 0) {
            u.hits += number(event, "hits");
            u.device += number(event, "device_hits");
            u.pinned += number(event, "pinned_hits");
            u.misses += number(event, "misses");
            u.damaged += number(event, "damaged");
        } else if (strcmp(name, "cache.tiers") == 0) {
            const char *why = json_string_value(json_object_get(event, "why_not"));
            u.pinned_bytes = number(event, "pinned_bytes");
            u.device_bytes = number(event, "device_bytes");
            u.n_tiers++;
            snprintf(u.why_not, sizeof u.why_not, "%s", why == NULL ? "" : why);
        }
    }
    json_decref(events);
    print_message("%s: %lld hits, %lld on the device, %lld pinned, %lld misses\n", s->name,
                  (long long)u.hits, (long long)u.device, (long long)u.pinned, (long long)u.misses);
    return u;
}

static use train(scenario *s, const double *want)
{
    scenario_run(s);
    double *got = losses_of(s, STEPS);
    if (want != NULL && memcmp(got, want, STEPS * sizeof *got) != 0) {
        fail_msg("%s: a loss differs by %.3g", s->name, worst_difference(got, want, 0, STEPS));
    }
    free(got);
    return use_of(s);
}

/* Where the tests run on a GPU, these on the asynchronous test device have run before. */
static void leave_to_the_cpu(void)
{
    if (on_gpu()) {
        print_message("skipped: it needs no GPU\n");
        skip();
    }
}

/* ---- the same losses ---- */

static void test_cache_tiers__change_no_loss(void **state)
{
    (void)state;
    leave_to_the_cpu();
    static const struct {
        const char *name;
        const char *sets[7];
        bool device, pinned;
    } ways[] = {{"neither", {NULL}, false, false},
                {"pinned", {"cache.pinned", "1MiB", NULL}, false, true},
                {"device", {"cache.device", "1MiB", NULL}, true, false},
                {"both", {"cache.device", "8KiB", "cache.pinned", "1MiB", NULL}, true, true},
                {"small",
                 {"cache.device", "8KiB", "cache.pinned", "8KiB", "cache.memory", "64KiB", NULL},
                 true,
                 true}};
    scenario cpu = run_of("cpu", "cpu", NULL);
    scenario_run(&cpu);
    double *want = losses_of(&cpu, STEPS);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        scenario s = run_of(ways[i].name, "async-test", ways[i].sets);
        use u = train(&s, want);
        assert_true(u.hits > 0);
        assert_int_equal(u.device > 0, ways[i].device);
        assert_int_equal(u.pinned > 0, ways[i].pinned);
        assert_true(u.device + u.pinned <= u.hits);
        assert_int_equal(u.damaged, 0);
        assert_int_equal(u.n_tiers > 0, ways[i].device || ways[i].pinned);
        assert_string_equal(u.why_not, "");
    }
    free(want);
}

/* The store rounds, so the tiers give rounded values, too. Would catch: a tier that keeps what the
 * frozen layers have just computed. */
static void test_cache_tiers__give_what_a_store_that_rounds_would_give(void **state)
{
    (void)state;
    leave_to_the_cpu();
    scenario plain = run_of("rounded", "async-test", JOB_SETS("cache.dtype", "bf16"));
    scenario tiers =
        run_of("rounded-tiers", "async-test",
               JOB_SETS("cache.dtype", "bf16", "cache.device", "8KiB", "cache.pinned", "1MiB"));
    (void)train(&plain, NULL);
    double *want = losses_of(&plain, STEPS);
    use u = train(&tiers, want);
    assert_true(u.device > 0 && u.pinned > 0);
    free(want);
}

static void test_cache_tiers__serve_a_gpu(void **state)
{
    (void)state;
    use_cuda("devices=1");
    scenario plain = run_of("gpu", "cuda", NULL);
    scenario tiers =
        run_of("gpu-tiers", "cuda", JOB_SETS("cache.device", "8KiB", "cache.pinned", "1MiB"));
    (void)train(&plain, NULL);
    double *want = losses_of(&plain, STEPS);
    use u = train(&tiers, want);
    assert_true(u.device > 0 && u.pinned > 0);
    assert_true(u.device_bytes <= 8192 && u.pinned_bytes <= 1 << 20);
    free(want);
}

/* ---- memory that cannot be had ---- */

static void refuse_pinned_memory(fl_worker_state *w)
{
    const fl_async_fault fault = {.entry = "host_take", .n = 1};
    if (fl_device_async_fail(w->device, &fault) != FL_OK) {
        abort();
    }
}

/* The next pinned memory that is wanted is the tier's: the loader's was taken in prepare. */
static void test_cache_tiers__are_done_without(void **state)
{
    (void)state;
    leave_to_the_cpu();
    scenario plain = run_of("without", "async-test", NULL);
    scenario s =
        run_of("refused", "async-test", JOB_SETS("cache.pinned", "1MiB", "cache.device", "8KiB"));
    plain.n_script = s.n_script = 1;
    s.at[0] = (scenario_deed){.point = "switch", .who = 0, .act = refuse_pinned_memory};
    (void)train(&plain, NULL);
    double *want = losses_of(&plain, STEPS);
    use u = train(&s, want);
    assert_int_equal(u.n_tiers, 1);
    assert_int_equal(u.pinned, 0);
    assert_int_equal(u.pinned_bytes, 0);
    assert_true(u.device > 0 && u.device_bytes > 0);
    if (strstr(u.why_not, "cache.pinned: ") != u.why_not) {
        fail_msg("%s", u.why_not);
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_tiers__change_no_loss),
        cmocka_unit_test(test_cache_tiers__give_what_a_store_that_rounds_would_give),
        cmocka_unit_test(test_cache_tiers__serve_a_gpu),
        cmocka_unit_test(test_cache_tiers__are_done_without),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
