/* Runs that lose a worker before they have anything to go back to begin again, as often as
 * fault.restarts allows; others fail. Would catch: a run that ends because it lost a worker in its
 * first seconds, one that restarts for ever, and a message that hides the first loss. */
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/restart.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void kill_first_time(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_this_worker(w);
    }
}

static void expect_new_start(scenario *s, const char *why)
{
    expect_end(s, FL_OK);
    restart_expect_losses(s, restart_one);
    assert_int_equal(count_events(s->dir, "\"run.started\"", ""), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "the start of the run"), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", why), 1);
    assert_int_equal(count_events(s->dir, "\"run.finished\"", ""), 1);
    check_exactly_once(s->dir, 3, RESTART_SAMPLES);
    scenario_forget(s);
}

/* Before there is any state to go back to, the run begins again: nothing of the first try stays in
 * its files. Would catch: a run that ends because it lost a worker in its first seconds. */
static void test_restart_again__begins_again_without_a_state(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "nowhere",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
                  kill_first_time);
    expect_new_start(&s, "worker 1 (stage 1 of replica 0) was killed");
}

/* ---- the clock of the run ---- */

static const char *first_wall_path(char path[256])
{
    snprintf(path, 256, "%s/../first.txt", scenario_here()->dir);
    return path;
}

/* Note when the run began, as its first event says, and how far its clock had come. */
static void note_clock_and_die(fl_worker_state *w)
{
    char path[256];
    if (atomic_load(&scenario_here()->outcome->n_deeds) > 1) {
        return;
    }
    while (count_events(scenario_here()->dir, "\"run.running\"", "") == 0) {
        nap(500);
    }
    json_t *started = lines_with(scenario_here()->dir, "events.jsonl", "\"run.started\"");
    json_t *running = lines_with(scenario_here()->dir, "events.jsonl", "\"run.running\"");
    FILE *file = fopen(first_wall_path(path), "w");
    fprintf(file, "%s %.6f", json_string_value(json_object_get(json_array_get(started, 0), "wall")),
            json_number_value(json_object_get(json_array_get(running, 0), "time")));
    fclose(file);
    kill_this_worker(w);
}

/* The run began when it did for the first time, and its clock has only gone on since. */
static void expect_clock(const scenario *s)
{
    char path[256], wall[64];
    double running_s, before_s = 0.0;
    snprintf(path, sizeof path, "%s/../first.txt", s->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%63s %lf", wall, &running_s), 2);
    fclose(file);
    json_t *events = lines_with(s->dir, "events.jsonl", ""), *event;
    assert_string_equal(json_string_value(json_object_get(json_array_get(events, 0), "wall")),
                        wall);
    FOR_EACH(event, events)
    {
        double time_s = json_number_value(json_object_get(event, "time"));
        assert_true(time_s >= before_s);
        before_s = time_s;
        if (strcmp(json_string_value(json_object_get(event, "event")), "run.resumed") == 0) {
            assert_true(time_s > running_s);
        }
    }
    assert_true(before_s > running_s);
    json_decref(events);
    unlink(path);
}

/* Would catch: a run that counts its time from its last return. */
static void test_restart_again__its_clock_goes_on(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "clock",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
                  note_clock_and_die);
    expect_end(&s, FL_OK);
    expect_clock(&s);
    scenario_forget(&s);
}

static double total_ms(const json_t *event)
{
    return json_number_value(json_object_get(event, "all_without_training_ms"));
}

static _Atomic int64_t *first_loss_ns; /* since 1970 */

/* Between the two deaths; and how late the first one may be noticed, or the end be noted. */
enum { SECOND_LIFE_MS = 4000, LATE_MS = 2000 };

/* Worker 1 dies in its first life after some steps, and in its second one before it can take any.
 */
static void die_twice(fl_worker_state *w)
{
    int n = atomic_load(&scenario_here()->outcome->n_deeds);
    if (n == 2) {
        atomic_store(first_loss_ns, fl_now_wall_ns());
    }
    if (n == 3) {
        nap(INT64_C(1000) * SECOND_LIFE_MS);
    }
    if (n == 2 || n == 3) {
        kill_this_worker(w);
    }
}

static double wall_ms(const json_t *event)
{
    struct tm utc = {.tm_isdst = 0};
    const char *rest =
        strptime(json_string_value(json_object_get(event, "wall")), "%Y-%m-%dT%H:%M:%S", &utc);
    assert_non_null(rest);
    return 1e3 * ((double)timegm(&utc) + strtod(rest, NULL));
}

/* Would catch: only the second standstill of a run that goes back twice without a step between, a
 * return of which nobody learns how long it took, and a record that contradicts itself. */
static void test_restart_again__counts_all_time_without_training(void **state)
{
    (void)state;
    first_loss_ns = shared_memory(sizeof *first_loss_ns);
    scenario s = {
        .name = "twice",
        .sets = restart_sets,
        .more = JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
        .n_samples = RESTART_SAMPLES,
        .dropout = 0.1f,
        .at = {{.point = "begin", .who = 1, .act = die_twice},
               {.point = "step", .who = 1, .step = RESTART_FATAL_STEP, .act = die_twice}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    json_t *returned = lines_with(s.dir, "events.jsonl", "\"run.returned\"");
    json_t *finished = lines_with(s.dir, "events.jsonl", "\"run.finished\"");
    assert_int_equal(length(returned), 1);
    const json_t *end = json_array_get(returned, 0);
    double ms = json_number_value(json_object_get(end, "without_training_ms"));
    double since_ms = wall_ms(end) - 1e-6 * (double)atomic_load(first_loss_ns);
    assert_true(ms > since_ms - LATE_MS); /* the first standstill is longer than that */
    assert_true(total_ms(end) == ms && total_ms(json_array_get(finished, 0)) == ms);
    assert_int_equal(munmap((void *)first_loss_ns, sizeof *first_loss_ns), 0);
    json_decref(returned);
    json_decref(finished);
    scenario_forget(&s);
}

/* The same for a worker that dies before all have started, in a plan whose workers could regroup
 * later. */
static void test_restart_again__begins_again_after_a_loss_at_the_start(void **state)
{
    (void)state;
    scenario s = {.name = "early",
                  .sets = restart_sets,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "begin", .who = 1, .act = kill_first_time}}};
    scenario_start(&s);
    expect_new_start(&s, "while it started");
}

/* A worker that always dies in the same step: the run begins again as often as it may. */
static void test_restart_again__begins_again_at_most_fault_restarts_times(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "always",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none",
                           "fault.restarts", "2"),
                  kill_this_worker);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(s.outcome->message, "no other worker has the weights of"));
    scenario_forget(&s);
}

static void test_restart_again__gives_up_after_fault_restarts(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "often",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "4 steps", "fault.restarts", "2"),
                  restart_kill_later);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 3);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(s.outcome->message, "it went back 2 times without reaching"));
    assert_non_null(strstr(s.outcome->message, "`frostline run --resume "));
    assert_int_equal(count_events(s.dir, "\"run.failed\"", ""), 1);
    scenario_forget(&s);
}

/* Would catch: a loss that is logged by the recovery that begins, and again by the one that fails,
 * when it turns out during a switch that nobody else has the lost layers. */
static void test_restart_again__a_loss_in_a_switch_is_logged_once(void **state)
{
    (void)state;
    scenario s = {.name = "switch",
                  .sets = restart_sets,
                  .more =
                      JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none",
                               "fault.restarts", "0", "elastic.script", "[{step: 5, f: 2}]"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "switch", .who = 1, .act = kill_this_worker}}};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    assert_int_equal(count_events(s.dir, "\"run.failed\"", "no other worker has the weights of"),
                     1);
    assert_non_null(strstr(s.outcome->message, "it does not go back: fault.restarts is 0"));
    assert_int_equal(count_events(s.dir, "\"worker.lost\"", ""), 1);
    scenario_forget(&s);
}

static void kill_once_spoiled(fl_worker_state *w)
{
    char path[256];
    snprintf(path, sizeof path, "%s/job.yaml", scenario_here()->dir);
    while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
        nap(500);
    }
    assert_int_equal(truncate(path, 0), 0);
    kill_this_worker(w);
}

/* The return is announced, and then fails because the job cannot be read. Would catch: a run that
 * its files and its subscribers take for one that still goes back. */
static void test_restart_again__a_return_that_fails_ends_the_run(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "spoiled",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps"),
                  kill_once_spoiled);
    expect_end(&s, FL_EFAILED);
    assert_non_null(strstr(s.outcome->message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_int_equal(atomic_load(&s.outcome->n_deeds), 1);
    assert_int_equal(count_events(s.dir, "\"run.failed\"", "worker 1 ("), 1);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 0);
    scenario_forget(&s);
}

/* A directory where the next controller wants its socket, once steps follow the snapshot. */
static void kill_once_shut(fl_worker_state *w)
{
    char path[256];
    while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
        nap(500);
    }
    snprintf(path, sizeof path, "%s/link", scenario_here()->dir);
    (void)mkdir(path, 0700);
    kill_this_worker(w);
}

/* The record has been cut when the start fails. Would catch: two ends of a run in its record, with
 * other steps than it has, and a message that has the loss alone. */
static void test_restart_again__a_start_that_fails_is_told_once(void **state)
{
    (void)state;
    scenario s;
    char path[256], message[4096];
    restart_start(&s, "shut",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps"),
                  kill_once_shut);
    expect_end(&s, FL_EFAILED);
    json_t *failed = lines_with(s.dir, "events.jsonl", "\"run.failed\"");
    json_t *steps = lines_with(s.dir, "steps.jsonl", "");
    assert_int_equal(length(failed), 1);
    const json_t *end = json_array_get(failed, 0);
    snprintf(message, sizeof message, "%s", json_string_value(json_object_get(end, "message")));
    assert_string_equal(s.outcome->message, message);
    assert_non_null(strstr(message, "worker 1 (stage 1 of replica 0) was killed"));
    assert_non_null(strstr(message, "; the run could not go back: "));
    assert_true(length(steps) > 0);
    assert_int_equal(json_integer_value(json_object_get(end, "steps")), length(steps));
    json_decref(failed);
    json_decref(steps);
    snprintf(path, sizeof path, "%s/link", s.dir);
    assert_int_equal(rmdir(path), 0);
    scenario_forget(&s);
}

static void die_during_recovery(fl_worker_state *w)
{
    while (count_events(scenario_here()->dir, "\"worker.lost\"", "\"rank\": 1") == 0) {
        nap(500);
    }
    kill_this_worker(w);
}

/* Would catch: a message that names only the worker that was lost last. */
static void test_restart_again__the_message_begins_with_the_first_loss(void **state)
{
    (void)state;
    scenario s = {.name = "first",
                  .sets = restart_sets,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue", "fault.restarts", "0"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 9, .act = kill_this_worker},
                         {.point = "step", .who = 0, .step = 9, .act = die_during_recovery}}};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    static const char begin[] = "worker 1 (stage 0 of replica 1) was killed by signal 9";
    if (strncmp(s.outcome->message, begin, strlen(begin)) != 0 ||
        strstr(s.outcome->message, "; then worker 0 (") == NULL) {
        fail_msg("the message is: %s", s.outcome->message);
    }
    assert_int_equal(count_events(s.dir, "\"run.failed\"", begin), 1);
    scenario_forget(&s);
}

static void kill_all_once(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill(atomic_load(&scenario_here()->outcome->pid[0]), SIGKILL);
        kill_this_worker(w);
    }
}

/* Would catch: a summary that names one lost worker where all were lost. */
static void test_restart_again__counts_all_that_are_lost_at_once(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "both",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "none"),
                  kill_all_once);
    expect_end(&s, FL_OK);
    restart_expect_summary(s.dir,
                           "  losses         workers lost 2 times; the run went back 1 time");
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart_again__begins_again_without_a_state),
        cmocka_unit_test(test_restart_again__begins_again_after_a_loss_at_the_start),
        cmocka_unit_test(test_restart_again__begins_again_at_most_fault_restarts_times),
        cmocka_unit_test(test_restart_again__a_loss_in_a_switch_is_logged_once),
        cmocka_unit_test(test_restart_again__the_message_begins_with_the_first_loss),
        cmocka_unit_test(test_restart_again__a_return_that_fails_ends_the_run),
        cmocka_unit_test(test_restart_again__a_start_that_fails_is_told_once),
        cmocka_unit_test(test_restart_again__gives_up_after_fault_restarts),
        cmocka_unit_test(test_restart_again__counts_all_that_are_lost_at_once),
        cmocka_unit_test(test_restart_again__its_clock_goes_on),
        cmocka_unit_test(test_restart_again__counts_all_time_without_training),
    };
    return cmocka_run_group_tests(tests, restart_set_up, restart_tear_down);
}
