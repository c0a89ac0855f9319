/* A run that compares several M: it trains as one that does not, reports what it tried and what
 * that cost, and the next run begins with what was found. */
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/shell.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 1500 }; /* the race ends long before the run */

static output said;
static char *folder;

static void run(const char *name, const char *more)
{
    char command[2048];
    snprintf(command, sizeof command,
             "'%s/frostline' run '%s/configs/quickstart.yaml' --run-dir %s --set model.blocks=3 "
             "--set data.path='" FL_TEST_FASHION "' "
             "--set model.dim=16 --set train.batch=16 --set train.max_steps=%d --set pipe.k=2 "
             "--set train.evaluate=false --set autodp.r=1 --set freeze.policy=none "
             "--set pipe.profile=profile.yaml %s",
             FL_BINARY_DIR, FL_SOURCE_DIR, name, STEPS, more);
    run_command(folder, command, &said);
    if (said.exit_code != 0) {
        fail_msg("%s\n%s", said.out, said.err);
    }
}

/* Of the run by that name. */
static const char *dir_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int n_events(const char *name, const char *event)
{
    return count_events(dir_of(name), event, "");
}

static int m_of_step(const char *name, int step)
{
    json_t *lines = lines_with(dir_of(name), "steps.jsonl", "");
    assert_int_equal(length(lines), STEPS);
    int m = number(json_array_get(lines, (size_t)step), "m");
    json_decref(lines);
    return m;
}

static double ms_of(const json_t *event, const char *field)
{
    return json_number_value(json_object_get(event, field));
}

/* Rounds 1 .. n in which the M that the run began with was tried: what these cost does not change
 * any more. The first visit is one with that M. */
static int rounds_with_first_m(const json_t *tried)
{
    int n = 0;
    const json_t *t;
    FOR_EACH(t, tried)
    {
        n = number(t, "m") == number(json_array_get(tried, 0), "m") ? number(t, "round") : n;
    }
    return n;
}

/* The most that the visits from this round on cost: their steps, and the changes of the plan before
 * them, however long these took. */
static double most_cost_ms(const char *name, int round)
{
    json_t *events = lines_with(dir_of(name), "events.jsonl", "");
    double most_ms = 0.0, stall_ms = 0.0;
    const json_t *e;
    FOR_EACH(e, events)
    {
        const char *event = json_string_value(json_object_get(e, "event"));
        if (strcmp(event, "transition.done") == 0) {
            stall_ms = ms_of(e, "stall_ms");
        } else if (strcmp(event, "tune.tried") == 0) {
            most_ms += number(e, "round") >= round ? stall_ms + ms_of(e, "elapsed_ms") : 0.0;
            stall_ms = 0.0;
        }
    }
    json_decref(events);
    return most_ms;
}

/* A round is begun only if those before it cost no more than allowed. */
static void check_cost(const char *name, const json_t *tried, const json_t *done)
{
    int last = 0;
    const json_t *t;
    FOR_EACH(t, tried)
    {
        last = number(t, "round");
        assert_in_range(last, 1, number(done, "rounds") + 1);
    }
    int settled = rounds_with_first_m(tried);
    double budget_ms = ms_of(done, "budget_ms"), cost_ms = ms_of(done, "cost_ms");
    double most_ms = most_cost_ms(name, settled < last ? settled + 1 : last);
    assert_true(budget_ms > 0.0 && cost_ms >= 0.0);
    assert_true(cost_ms <= budget_ms + most_ms + 1.0); /* of values that are rounded */
}

/* Each trial names an M that ran, and the run goes on with the M that won. */
static int check_trials(const char *name)
{
    json_t *tried = lines_with(dir_of(name), "events.jsonl", "\"tune.tried\"");
    json_t *done = lines_with(dir_of(name), "events.jsonl", "\"tune.done\"");
    const json_t *t;
    assert_int_equal(length(done), 1);
    assert_true(length(tried) >= 2);
    assert_int_equal(length(tried), number(json_array_get(done, 0), "trials"));
    FOR_EACH(t, tried)
    {
        assert_int_equal(m_of_step(name, number(t, "step") - 1), number(t, "m"));
        assert_true(json_number_value(json_object_get(t, "step_ms")) > 0);
    }
    check_cost(name, tried, json_array_get(done, 0));
    int m = number(json_array_get(done, 0), "m");
    json_decref(tried);
    json_decref(done);
    return m;
}

/* The M that the profile remembers; 0: none. */
static int tuned_m(void)
{
    run_command(folder, "sed -nE 's/.*f: 0, k: 2, r: 1, m: ([0-9]+).*/\\1/p' profile.yaml", &said);
    return atoi(said.out);
}

/* Make the profile hold the result of a comparison. */
static void hold_in_profile(int M, bool settled)
{
    char command[512];
    snprintf(
        command, sizeof command,
        "sed -i -e '/^  - {batch/d' -e 's/^tuned:.*/tuned:\\n  - {batch: 16, f: 0, k: 2, r: 1, "
        "m: %d, settled: %d, step_us: 365}/' profile.yaml",
        M, settled);
    run_command(folder, command, &said);
    assert_int_equal(tuned_m(), M);
}

static void test_tuning__changes_nothing_but_m(void **state)
{
    (void)state;
    static double tuned[STEPS], plain[STEPS];
    char path[512];
    run("tuned", "");
    int m = check_trials("tuned");
    assert_int_equal(m_of_step("tuned", STEPS - 1), m);
    run("plain", "--set pipe.tune=false");
    assert_int_equal(n_events("plain", "\"tune."), 0);
    assert_int_equal(n_events("plain", "\"transition."), 0);
    snprintf(path, sizeof path, "%s/tuned", folder);
    assert_int_equal(fl_toy_losses(path, tuned, STEPS), STEPS);
    snprintf(path, sizeof path, "%s/plain", folder);
    assert_int_equal(fl_toy_losses(path, plain, STEPS), STEPS);
    for (int i = 0; i < 40; i++) { /* rounding grows with the steps */
        assert_true(fabs(tuned[i] - plain[i]) <= 1e-4 * fabs(plain[i]));
    }
    run_command(folder, "grep -c '^  tuning  *M compared in [0-9]* steps' tuned/summary.txt",
                &said);
    assert_string_equal(said.out, "1\n");
}

/* Would catch: a run that compares again what the profile knows to be settled, or that begins with
 * another M than the one that the profile holds. */
static void test_tuning__begins_with_what_the_profile_holds(void **state)
{
    (void)state;
    run_command(folder, "rm -f profile.yaml", &said);
    run("first", "");
    json_t *done = lines_with(dir_of("first"), "events.jsonl", "\"tune.done\"");
    bool is_kept = number(json_array_get(done, 0), "rounds") > 0;
    assert_int_equal(tuned_m(), is_kept ? number(json_array_get(done, 0), "m") : 0);
    json_decref(done);
    hold_in_profile(4, false);
    run("again", "");
    assert_int_equal(m_of_step("again", 0), 4);
    assert_int_equal(n_events("again", "\"from\": \"file\""), 1);
    assert_true(n_events("again", "\"tune.") > 0);
    hold_in_profile(3, true);
    run("settled", "");
    assert_int_equal(m_of_step("settled", 0), 3);
    assert_int_equal(m_of_step("settled", STEPS - 1), 3);
    assert_int_equal(n_events("settled", "\"tune."), 0);
}

/* What the job asks for is not tried otherwise, nor is a run that is too short for it to pay. */
static void test_tuning__leaves_alone_what_is_asked_for(void **state)
{
    (void)state;
    run("given", "--set pipe.m=4 --set pipe.profile=none");
    assert_int_equal(n_events("given", "\"tune."), 0);
    run("short", "--set train.max_steps=300 --set pipe.profile=none");
    assert_int_equal(n_events("short", "\"tune."), 0);
}

/* A run that is over corrects what the layers cost, and the file counts the steps. */
static void test_learning__leaves_its_mark_in_the_profile(void **state)
{
    (void)state;
    run("taught", "--set pipe.profile=taught.yaml --set pipe.tune=false");
    assert_int_equal(n_events("taught", "\"costs.learned\""), 1);
    run_command(folder, "grep -c 'live_steps: 6[0-9]$' taught.yaml", &said);
    assert_string_equal(said.out, "1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tuning__changes_nothing_but_m),
        cmocka_unit_test(test_tuning__begins_with_what_the_profile_holds),
        cmocka_unit_test(test_tuning__leaves_alone_what_is_asked_for),
        cmocka_unit_test(test_learning__leaves_its_mark_in_the_profile),
    };
    folder = fresh_folder(FL_BINARY_DIR);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_command(
        folder,
        "rm -rf tuned plain first again settled given short taught ./*.yaml; rmdir \"$PWD\"",
        &said);
    free(folder);
    return failed;
}
