/* Whole runs with the cache: they compute what runs without it compute, whatever plans change and
 * whatever is evicted; and they do less for it. */
#include "autodp/affinity.h"
#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    N_SAMPLES = 203,
    N_TEST = N_SAMPLES / 4,
    BATCH = 10,
    STEPS_PER_EPOCH = 21,
    EPOCHS = 12,
    STEPS = STEPS_PER_EPOCH * EPOCHS,
    BLOCKS = 4,
    WORKERS = 4,
};

/* ---- a run ---- */

typedef struct kind {
    const char *const *settings; /* pairs, up to NULL */
    const fl_script_entry *script;
    int n_script;
    bool augments;
} kind;

/* Data that is not augmented, however the job asks for it. */
static fl_status make_plain(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job;
    (void)model;
    fl_toy_make_plain(data);
    return FL_OK;
}

static scenario scenario_of(const kind *k, const char *name)
{
    static const char *const common[] = {
        "train.batch",   "10",    "train.epochs", "12", "train.lr", "1e-3", "pipe.k", "1",
        "autodp.bucket", "16KiB", "autodp.r",     "1",  "pipe.m",   "2",    NULL};
    return (scenario){.name = name,
                      .sets = common,
                      .more = k->settings,
                      .script = k->script,
                      .n_script = k->n_script,
                      .n_samples = N_SAMPLES,
                      .blocks = BLOCKS,
                      .dropout = 0.1f,
                      .adjust = k->augments ? NULL : make_plain};
}

static void train(const kind *k, const char *name, double *losses)
{
    scenario s = scenario_of(k, name);
    scenario_run(&s);
    assert_int_equal(fl_toy_losses(s.dir, losses, STEPS + 1), STEPS);
}

/* Sums over the events of the cache; from and to are steps. */
typedef struct use {
    int64_t hits, upgrades, misses, evicted, damaged;
    int n_events, n_decided;
    char why_not[512];
} use;

static void add_event(const json_t *event, int64_t from, int64_t to, use *u)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    const json_t *why = json_object_get(event, "why_not");
    if (strcmp(name, "cache.opened") == 0 && why != NULL) {
        snprintf(u->why_not, sizeof u->why_not, "%s", json_string_value(why));
    }
    bool decided = strcmp(name, "cache.decided") == 0;
    if (!decided && strcmp(name, "cache.used") != 0) {
        return;
    }
    int64_t step = number(event, "step");
    if (step >= from && step < to) {
        u->hits += number(event, "hits");
        u->upgrades += number(event, "upgrades");
        u->misses += number(event, "misses");
        u->evicted = number(event, "evicted");
        u->damaged += number(event, "damaged");
        u->n_events++;
        u->n_decided += decided;
    }
}

static use use_of(const char *name, int64_t from, int64_t to)
{
    use u = {0};
    char dir[FOLDER_SIZE + 32];
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    json_t *events = lines_with(dir, "events.jsonl", "");
    const json_t *event;
    FOR_EACH(event, events)
    {
        add_event(event, from, to, &u);
    }
    json_decref(events);
    return u;
}

static double worst_of(const double *a, const double *b)
{
    return worst_difference(a, b, 0, STEPS);
}

/* ---- the tests ---- */

/* All blocks thaw, train, and freeze again with other weights: what was kept of them is of no use.
 */
static const fl_script_entry freezing[] = {
    {.step = 12, .f = 1, .k = 1, .r = 2, .m = 2},  {.step = 70, .f = 2, .k = 2, .r = 1, .m = 3},
    {.step = 100, .f = 2, .k = 1, .r = 4, .m = 1}, {.step = 150, .f = 3, .k = 1, .r = 1, .m = 2},
    {.step = 190, .f = 1, .k = 2, .r = 2, .m = 2}, {.step = 200, .f = 0, .k = 2, .r = 1, .m = 2},
    {.step = 215, .f = 3, .k = 1, .r = 2, .m = 2},
};
enum { N_FREEZING = sizeof freezing / sizeof *freezing };

static const char *const without[] = {"devices.count", "4", "cache.policy", "off", NULL};
static const char *const with[] = {"devices.count", "4", "cache.policy", "on", NULL};
static const char *const automatic[] = {"devices.count", "4", "cache.policy", "auto", NULL};
static const char *const small[] = {"devices.count", "4", "cache.policy", "on", "cache.memory",
                                    "64KiB",         NULL};
static const char *const on_disk[] = {
    "devices.count", "4",          "cache.policy", "on", "cache.memory", "64KiB", "cache.disk",
    "1MiB",          "cache.path", "/tmp",         NULL};
static const char *const rounded[] = {"devices.count", "4", "cache.policy", "on", "cache.dtype",
                                      "bf16",          NULL};

static void test_caching__computes_the_same(void **state)
{
    (void)state;
    double *off = calloc(STEPS + 1, sizeof *off), *on = calloc(STEPS + 1, sizeof *on);
    const struct {
        const char *name;
        const char *const *settings;
        bool all_fit;
    } ways[] = {{"on", with, true},
                {"auto", automatic, true},
                {"small", small, false},
                {"disk", on_disk, true}};
    kind k = {.settings = without, .script = freezing, .n_script = N_FREEZING};
    train(&k, "off", off);
    assert_int_equal(use_of("off", 0, STEPS).n_events, 0);
    for (int i = 0; i < 4; i++) {
        k.settings = ways[i].settings;
        train(&k, ways[i].name, on);
        use u = use_of(ways[i].name, 0, STEPS);
        print_message("%s: %lld hits, %lld upgrades, %lld misses, %lld evicted; worst %.2e\n",
                      ways[i].name, (long long)u.hits, (long long)u.upgrades, (long long)u.misses,
                      (long long)u.evicted, worst_of(on, off));
        assert_true(worst_of(on, off) <= 1e-6);
        assert_true(u.hits > 0 && u.upgrades > 0 && u.misses > 0);
        assert_int_equal(u.damaged, 0);
        assert_true((u.evicted == 0) == ways[i].all_fit);
    }
    assert_true(use_of("auto", 0, STEPS).n_decided > 0);
    free(off);
    free(on);
}

/* Rounded values are close, and they are not the same: the setting does something. */
static void test_caching__rounds_when_asked_to(void **state)
{
    (void)state;
    double *off = calloc(STEPS + 1, sizeof *off), *on = calloc(STEPS + 1, sizeof *on);
    kind k = {.settings = without, .script = freezing, .n_script = N_FREEZING};
    train(&k, "exact", off);
    k.settings = rounded;
    train(&k, "rounded", on);
    print_message("bf16: worst %.2e\n", worst_of(on, off));
    assert_true(worst_of(on, off) < 0.1);
    assert_true(worst_of(on, off) > 1e-6);
    free(off);
    free(on);
}

/* F stays from the first epoch on; plans change twice in the middle of epochs. From the third epoch
 * on, everything that is read is a hit, and it stays so through every regroup. */
static void test_caching__lives_through_transitions(void **state)
{
    (void)state;
    const fl_script_entry regroups[] = {{.step = 5, .f = 2, .k = 1, .r = 1, .m = 2},
                                        {.step = 90, .f = 2, .k = 2, .r = 1, .m = 2},
                                        {.step = 130, .f = 2, .k = 1, .r = 4, .m = 2},
                                        {.step = 200, .f = 2, .k = 2, .r = 2, .m = 1}};
    double *losses = calloc(STEPS + 1, sizeof *losses);
    kind k = {.settings = with, .script = regroups, .n_script = 4};
    train(&k, "regroups", losses);
    use first = use_of("regroups", 0, 2 * STEPS_PER_EPOCH);
    use later = use_of("regroups", 2 * STEPS_PER_EPOCH, STEPS);
    print_message("%lld misses, then %lld hits and %lld misses\n", (long long)first.misses,
                  (long long)later.hits, (long long)later.misses);
    /* One epoch and an evaluation, less the five steps before the freeze. */
    assert_true(first.misses >= N_SAMPLES && first.misses <= N_SAMPLES + N_TEST);
    assert_int_equal(later.misses + later.upgrades, 0);
    assert_true(later.hits > 8 * N_SAMPLES);
    free(losses);
}

/* Hits of one batch that is dealt to affinity; kept is what lies there, by sample, and is added to.
 */
static int64_t hits_of(const fl_affinity *affinity, const int64_t *ids, int64_t n, bool *kept)
{
    int64_t room[WORKERS], first[WORKERS + 1], hits = 0;
    int replica[BATCH];
    fl_split_work(n, NULL, affinity->n_replicas, first);
    for (int r = 0; r < affinity->n_replicas; r++) {
        room[r] = first[r + 1] - first[r];
    }
    fl_affinity_assign(affinity, ids, NULL, n, room, replica);
    for (int64_t i = 0; i < n; i++) {
        bool at_home = affinity->store[replica[i]] == fl_affinity_store_of(affinity, ids[i]);
        hits += at_home && kept[ids[i]];
        kept[ids[i]] = kept[ids[i]] || at_home;
    }
    return hits;
}

/* What the cache serves where the replicas' stores are these, in the steps from .. to - 1 and the
 * evaluations behind them; kept [N_SAMPLES + N_TEST]. A value that is kept in one step may come too
 * late for the next one, which is read meanwhile. */
static int64_t expected_hits(const fl_affinity *affinity, int from, int to, bool *kept)
{
    fl_cursor cursor = {0};
    int64_t hits = 0;
    for (int step = 0; step < to; step++) {
        int64_t ids[BATCH], n, epoch = cursor.epoch;
        fl_sampler_next(0, N_SAMPLES, BATCH, &cursor, ids, &n);
        if (step < from) {
            continue;
        }
        hits += hits_of(affinity, ids, n, kept);
        for (int64_t at = 0; cursor.epoch > epoch && at < N_TEST; at += n) {
            n = N_TEST - at < BATCH ? N_TEST - at : BATCH;
            for (int64_t i = 0; i < n; i++) {
                ids[i] = at + i;
            }
            hits += hits_of(affinity, ids, n, kept + N_SAMPLES);
        }
    }
    return hits;
}

/* Two stores, each for two workers: samples go to where they are kept, as far as equal shares of a
 * batch allow, and what is computed is the same. */
static void test_caching__takes_samples_to_their_store(void **state)
{
    (void)state;
    const fl_script_entry regroups[] = {{.step = 5, .f = 2, .k = 1, .r = 4, .m = 1},
                                        {.step = 150, .f = 2, .k = 2, .r = 2, .m = 2}};
    const char *const two[] = {
        "devices.count", "4", "cache.policy", "on", "cache.stores", "2", NULL};
    const int stores[] = {0, 0, 1, 1}, fewer[] = {0, 1};
    double *one_store = calloc(STEPS + 1, sizeof *one_store);
    double *losses = calloc(STEPS + 1, sizeof *losses);
    bool *kept = calloc(N_SAMPLES + N_TEST, sizeof *kept);
    fl_affinity four, pair;
    kind k = {.settings = with, .script = regroups, .n_script = 2};
    train(&k, "one-store", one_store);
    k.settings = two;
    train(&k, "two-stores", losses);
    assert_int_equal(fl_affinity_init(&four, stores, 4), FL_OK);
    assert_int_equal(fl_affinity_init(&pair, fewer, 2), FL_OK);
    int64_t expected = expected_hits(&four, 5, 150, kept);
    expected += expected_hits(&pair, 150, STEPS, kept);
    use u = use_of("two-stores", 0, STEPS), last = use_of("two-stores", 168, STEPS);
    print_message("%lld hits, expected %lld; in the last epochs %lld of %lld; worst %.2e\n",
                  (long long)u.hits, (long long)expected, (long long)last.hits,
                  (long long)(last.hits + last.misses), worst_of(losses, one_store));
    assert_in_range(u.hits, expected - BATCH, expected);
    assert_true(last.hits > (last.hits + last.misses) * 8 / 10);
    assert_true(worst_of(losses, one_store) <= 1e-5);
    fl_affinity_fini(&four);
    fl_affinity_fini(&pair);
    free(kept);
    free(losses);
    free(one_store);
}

static void test_caching__refuses_data_that_changes(void **state)
{
    (void)state;
    double *losses = calloc(STEPS + 1, sizeof *losses), *fewer = calloc(STEPS + 1, sizeof *fewer);
    kind k = {.settings = with, .script = freezing, .n_script = N_FREEZING, .augments = true};
    scenario refused = scenario_of(&k, "refused");
    scenario_start(&refused);
    expect_end(&refused, FL_EINVAL);
    scenario_forget(&refused);
    k.settings = automatic;
    train(&k, "augmented", losses);
    use u = use_of("augmented", 0, STEPS);
    assert_int_equal(u.n_events, 0);
    assert_non_null(strstr(u.why_not, "cache.augment"));
    /* Fixed once something is frozen, it can be kept; and what is kept does not matter. */
    const char *const fixed[] = {"devices.count", "4", "cache.policy", "on", "cache.augment",
                                 "freeze",        NULL};
    const char *const fixed_small[] = {
        "devices.count", "4", "cache.policy", "on", "cache.augment", "freeze", "cache.memory",
        "64KiB",         NULL};
    k.settings = fixed;
    train(&k, "fixed", losses);
    assert_true(use_of("fixed", 0, STEPS).hits > 0);
    k.settings = fixed_small;
    train(&k, "fixed-small", fewer);
    assert_true(use_of("fixed-small", 0, STEPS).hits < use_of("fixed", 0, STEPS).hits);
    assert_true(worst_of(fewer, losses) <= 1e-6);
    /* No more augmented then: the same run up to there, another one after it. */
    const char *const stopped[] = {"devices.count", "4", "cache.policy", "on", "cache.augment",
                                   "stop",          NULL};
    k.settings = stopped;
    train(&k, "stopped", fewer);
    assert_true(use_of("stopped", 0, STEPS).hits > 0);
    int64_t first = freezing[0].step;
    assert_memory_equal(fewer, losses, (size_t)first * sizeof *losses);
    assert_true(fewer[first] != losses[first]);
    free(losses);
    free(fewer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caching__computes_the_same),
        cmocka_unit_test(test_caching__rounds_when_asked_to),
        cmocka_unit_test(test_caching__lives_through_transitions),
        cmocka_unit_test(test_caching__takes_samples_to_their_store),
        cmocka_unit_test(test_caching__refuses_data_that_changes),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
