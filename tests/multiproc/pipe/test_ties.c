/* A matrix that three layers share trains as one parameter under every plan: the losses are those
 * of one worker, its copies stay equal to the last bit in every step, on every stage and through
 * transitions, and none of them changes while a block that uses it is frozen. The hash of a layer
 * with one parameter is that parameter's; weights.jsonl has it for each step. */
#include "support/data/tied.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 103, EPOCHS = 3, STEPS = 33, COMPARED = 20, HASH = 17 };

static const double TOLERANCE = 1e-5;

/* Without augmentation, so that the cache may keep what frozen blocks compute. */
static fl_dataset toy;

static fl_status read_plain(const void *self, fl_split split, const fl_sample_key *key, void *out)
{
    fl_sample_key plain = *key;
    plain.augment = false;
    return toy.ops->read(self, split, &plain, out);
}

static void make_plain(fl_dataset *dataset)
{
    static fl_dataset_ops plain;
    toy = *dataset;
    plain = *dataset->ops;
    plain.read = read_plain;
    dataset->ops = &plain;
}

static fl_status make_tied(fl_job *job, fl_model **model, fl_dataset *dataset)
{
    (void)job;
    make_plain(dataset);
    fl_model_destroy(model);
    FL_TRY(tied_model(true, 0.1f, model));
    /* Other owners: buckets that two workers start in different orders would wait for ever. */
    return fl_model_tie(*model, "blocks.1.attn.ln.bias", "blocks.3.attn.ln.bias");
}

static fl_status make_untied(fl_job *job, fl_model **model, fl_dataset *dataset)
{
    (void)job;
    make_plain(dataset);
    fl_model_destroy(model);
    return tied_model(false, 0.1f, model);
}

/* [step][use] of the tied layers' weights. */
typedef char hashes[STEPS][TIED_USES][HASH];

static void read_hashes(const scenario *s, hashes out)
{
    json_t *lines = lines_with(s->dir, "weights.jsonl", "");
    const json_t *line;
    assert_int_equal(length(lines), STEPS * TIED_LAYERS);
    memset(out, 0, sizeof(hashes));
    FOR_EACH(line, lines)
    {
        for (int i = 0; i < TIED_USES; i++) {
            if (number(line, "layer") == tied_layer[i]) {
                snprintf(out[number(line, "step") - 1][i], HASH, "%s",
                         json_string_value(json_object_get(line, "hash")));
            }
        }
    }
    json_decref(lines);
}

/* After every step; from .. to - 1: those in which the matrix is frozen. */
static void check_copies(const scenario *s, int from, int to)
{
    static hashes h;
    read_hashes(s, h);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < TIED_USES; i++) {
            assert_int_equal(strlen(h[step][i]), HASH - 1);
            assert_string_equal(h[step][i], h[step][0]);
        }
        bool same = step > 0 && strcmp(h[step][0], h[step - 1][0]) == 0;
        assert_true(step == 0 || same == (step >= from && step < to));
    }
}

static scenario run_of(const char *name, const char *const *plan, const fl_script_entry *script,
                       int n_script)
{
    scenario s = {.name = name,
                  .sets = JOB_SETS("devices.count", "4", "autodp.bucket", "4KiB", "train.warmup",
                                   "4", "train.batch", "10", "train.epochs", "3", "train.evaluate",
                                   "false", "train.hash_weights", "1", "train.weight_decay", "0.1",
                                   "train.clip", "1"),
                  .more = plan,
                  .script = script,
                  .n_script = n_script,
                  .n_samples = N_SAMPLES,
                  .adjust = make_tied};
    scenario_run(&s);
    check_exactly_once(s.dir, EPOCHS, N_SAMPLES);
    return s;
}

/* ---- plans ---- */

#define PLAN(K, R, M, schedule)                                                                    \
    JOB_SETS("pipe.k", K, "autodp.r", R, "pipe.m", M, "pipe.schedule", schedule)

static void test_ties__every_plan_computes_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *const sets[9];
    } plans[] = {
        {"k2", {"pipe.k", "2", "autodp.r", "1", "pipe.m", "4", "pipe.schedule", "1f1b"}},
        {"r2", {"pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "pipe.schedule", "1f1b"}},
        {"k2r2", {"pipe.k", "2", "autodp.r", "2", "pipe.m", "4", "pipe.schedule", "gpipe"}},
        {"k3", {"pipe.k", "3", "autodp.r", "1", "pipe.m", "4", "pipe.schedule", "gpipe"}},
        {"k4", {"pipe.k", "4", "autodp.r", "1", "pipe.m", "8", "pipe.schedule", "1f1b"}},
    };
    scenario alone = run_of("alone", PLAN("1", "1", "1", "1f1b"), NULL, 0);
    double *one = losses_of(&alone, STEPS);
    check_copies(&alone, 0, 0);
    assert_true(one[STEPS - 1] < one[0]);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        scenario s = run_of(plans[i].name, plans[i].sets, NULL, 0);
        double *other = losses_of(&s, STEPS);
        double worst = worst_difference(other, one, 0, COMPARED);
        print_message("%s: losses differ by at most %.2e\n", plans[i].name, worst);
        assert_true(worst <= TOLERANCE);
        check_copies(&s, 0, 0);
        free(other);
    }
    free(one);
}

/* The comparison above would hold if nothing were tied. */
static void test_ties__change_what_is_computed(void **state)
{
    (void)state;
    scenario tied = run_of("tied", PLAN("1", "1", "1", "1f1b"), NULL, 0), untied = tied;
    untied.name = "untied";
    untied.adjust = make_untied;
    untied.more = PLAN("1", "1", "1", "1f1b");
    untied.sets = JOB_SETS("devices.count", "1", "train.batch", "10", "train.epochs", "3",
                           "train.evaluate", "false");
    scenario_run(&untied);
    double *a = losses_of(&tied, STEPS), *b = losses_of(&untied, STEPS);
    assert_true(worst_difference(a, b, 0, STEPS) > 100 * TOLERANCE);
    free(a);
    free(b);
}

/* ---- transitions ---- */

enum { FREEZE = 8, THAW = 22 };

static const fl_script_entry many[] = {{.step = 4, .f = 0, .k = 2, .r = 2, .m = 2},
                                       {.step = FREEZE, .f = 1, .k = 2, .r = 1, .m = 4},
                                       {.step = 14, .f = 2, .k = 1, .r = 3, .m = 2},
                                       {.step = THAW, .f = 0, .k = 3, .r = 1, .m = 4},
                                       {.step = 27, .f = 0, .k = 1, .r = 2, .m = 2}};
static const fl_script_entry alone[] = {{.step = 4, .f = 0, .k = 1, .r = 1, .m = 1},
                                        {.step = FREEZE, .f = 1, .k = 1, .r = 1, .m = 1},
                                        {.step = 14, .f = 2, .k = 1, .r = 1, .m = 1},
                                        {.step = THAW, .f = 0, .k = 1, .r = 1, .m = 1},
                                        {.step = 27, .f = 0, .k = 1, .r = 1, .m = 1}};
enum { N_SCRIPT = sizeof many / sizeof *many };

static scenario run_script(const char *name, const fl_script_entry *script, const char *cache)
{
    return run_of(name,
                  JOB_SETS("pipe.k", "1", "autodp.r", "1", "pipe.m", "1", "cache.policy", cache),
                  script, N_SCRIPT);
}

static void test_ties__hold_through_transitions(void **state)
{
    (void)state;
    scenario s = run_script("many", many, "on"), one = run_script("one", alone, "off");
    double *a = losses_of(&s, STEPS), *b = losses_of(&one, STEPS);
    double worst = worst_difference(a, b, 0, STEPS);
    print_message("losses differ by at most %.2e\n", worst);
    assert_true(worst <= TOLERANCE);
    check_copies(&s, FREEZE, THAW);
    assert_int_equal(count_events(s.dir, "transition.done",
                                  "\"frozen_with_ties\": [\"middle.weight\", \"above.weight\", "
                                  "\"blocks.3.attn.ln.bias\"]"),
                     1);
    assert_int_equal(
        count_events(s.dir, "transition.done",
                     "\"frozen_with_ties\": [\"above.weight\", \"blocks.3.attn.ln.bias\"]"),
        1);
    assert_int_equal(count_events(s.dir, "transition.done", "frozen_with_ties"), 2);
    check_copies(&one, FREEZE, THAW);
    free(a);
    free(b);
}

static void kill_the_first(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_this_worker(w);
    }
}

/* The worker that kept the moments of the first block is lost: its layers thaw with moments of
 * zero, while a copy of the matrix above it still has those of the steps before the freeze. */
static void test_ties__hold_where_one_copy_has_lost_its_moments(void **state)
{
    (void)state;
    char script[80];
    snprintf(script, sizeof script, "[{step: %d, f: 1}, {step: %d, f: 0}]", FREEZE, THAW);
    scenario s = {.name = "lost",
                  .sets = JOB_SETS("devices.count", "2", "pipe.k", "1", "autodp.r", "2", "pipe.m",
                                   "1", "train.batch", "10", "train.epochs", "3", "train.evaluate",
                                   "false", "train.hash_weights", "1", "fault.restarts", "0",
                                   "fault.on_loss", "continue", "elastic.script", script),
                  .n_samples = N_SAMPLES,
                  .adjust = make_tied,
                  .at = {{.point = "step", .who = 0, .step = 14, .act = kill_the_first}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    check_copies(&s, FREEZE, THAW);
    assert_int_equal(count_events(s.dir, "transition.done", "\"fresh_moments\": [\""), 1);
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties__every_plan_computes_the_same),
        cmocka_unit_test(test_ties__change_what_is_computed),
        cmocka_unit_test(test_ties__hold_through_transitions),
        cmocka_unit_test(test_ties__hold_where_one_copy_has_lost_its_moments),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
