/* A run whose lost worker had layers that no other one has goes back to its newest snapshot or
 * checkpoint by itself. Would catch: a sample that is lost or used twice on the way back, a run
 * that ends although it has a checkpoint, one that restarts for ever, and a message that hides the
 * first loss. */
#include "control/link/link_thread.h"
#include "nn/model.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/restart.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <sys/resource.h>

static void kill_once(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        restart_kill_later(w);
    }
}

static void test_restart__goes_back_to_the_newest_checkpoint(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "back",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "4 steps", "fault.snapshot", "none"),
                  kill_once);
    expect_end(&s, FL_OK);
    restart_expect_losses(&s, restart_one);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"run.finished\"", ""), 1);
    scenario_forget(&s);
}

/* place: of worker 1 when it died, as far as the plan leaves no choice. */
static void expect_return(scenario *s, const double *expected, const char *place)
{
    char lost[64];
    snprintf(lost, sizeof lost, "worker 1 (%s", place);
    expect_end(s, FL_OK);
    restart_expect_losses(s, expected);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", "the snapshot in memory"), 1);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", lost), 1);
    assert_int_equal(count_events(s->dir, "\"run.finished\"", ""), 1);
    scenario_forget(s);
}

static void test_restart__goes_back_to_a_snapshot(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "snapshot",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps"),
                  restart_kill_once_snapped);
    expect_return(&s, restart_one, "stage 1");
}

/* The moments of frozen blocks, which no stage has, come from the snapshot; the blocks thaw after
 * the return. */
static void test_restart__brings_parked_moments_back(void **state)
{
    (void)state;
    const char *script = "[{step: 3, f: 2}, {step: 20, f: 0}]";
    const char *const *frozen =
        JOB_SETS("train.batch", "10", "train.epochs", "3", "train.lr", "1e-4", "train.evaluate",
                 "false", "elastic.script", script);
    double *expected = losses_of_one(frozen, RESTART_SAMPLES, RESTART_STEPS);
    scenario s;
    restart_start(&s, "parked",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps",
                           "elastic.script", script),
                  restart_kill_once_snapped);
    expect_return(&s, expected, "stage ");
    free(expected);
}

/* Until the leader has an order, which can be carried out after the next step. */
static void hold_until_asked(fl_worker_state *w)
{
    while (atomic_load(&w->link->n_commands) == 0 &&
           count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
        nap(500);
    }
}

/* The loss of a replica leaves one. Would catch: a run that waits for the usual 5 s of `auto`, or
 * for tens of steps because the new plan has done none that could be measured; meanwhile another
 * loss takes it back to its start. */
static void test_restart__takes_a_snapshot_when_one_replica_is_left(void **state)
{
    (void)state;
    scenario s = {.name = "alone",
                  .sets = restart_sets,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue", "fault.restarts", "0",
                                   "checkpoint.every", "none", "train.epochs", "200"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 9, .act = kill_this_worker},
                         {.point = "step", .who = 0, .step = 10, .act = hold_until_asked}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    json_t *taken = lines_with(s.dir, "events.jsonl", "\"snapshot.taken\"");
    assert_true(json_array_size(taken) > 0);
    int64_t at = json_integer_value(json_object_get(json_array_get(taken, 0), "step"));
    assert_in_range(at, 9, 13);
    json_decref(taken);
    scenario_forget(&s);
}

/* Both slots: at any time one may be about to be filled. */
static void kill_once_damaged(fl_worker_state *w)
{
    const fl_snapshot *s = w->c->snapshot;
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
            nap(500);
        }
        s->slots[1] += 1.0f;
        s->slots[s->layer_at[fl_model_n_layers(s->model)] + 1] += 1.0f;
        restart_kill_later(w);
    }
}

/* A damaged snapshot is no state of the run: it goes back to the checkpoint, although that is not
 * newer. */
static void test_restart__a_damaged_snapshot_is_not_used(void **state)
{
    (void)state;
    scenario s;
    restart_start(
        &s, "damaged",
        JOB_SETS(RESTART_STAGES, "checkpoint.every", "4 steps", "fault.snapshot", "1 steps"),
        kill_once_damaged);
    expect_end(&s, FL_OK);
    restart_expect_losses(&s, restart_one);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", "the snapshot in memory"), 0);
    scenario_forget(&s);
}

/* As on a disk that becomes full: from here on no file of the controller grows. */
static void fill_disk_once(fl_worker_state *w)
{
    const struct rlimit full = {.rlim_cur = 1, .rlim_max = RLIM_INFINITY};
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (atomic_load(w->c->store->kept_step) < 10) {
            nap(500);
        }
        assert_int_equal(prlimit(controller_here(), RLIMIT_FSIZE, &full, NULL), 0);
    }
}

static void free_disk_and_die(fl_worker_state *w)
{
    const struct rlimit wide = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 2) {
        assert_int_equal(prlimit(controller_here(), RLIMIT_FSIZE, &wide, NULL), 0);
        kill_this_worker(w);
    }
}

static double real_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* The loss came before the return, and the time without training began with it. */
static void expect_time_of_loss(const scenario *s, const json_t *resumed)
{
    json_t *returned = lines_with(s->dir, "events.jsonl", "\"run.returned\"");
    const json_t *event = json_array_get(returned, 0);
    double lost_at = real_of(resumed, "lost_at");
    assert_true(lost_at > 0.0 && lost_at < real_of(resumed, "time"));
    assert_true(lost_at + real_of(event, "without_training_ms") * 1e-3 <=
                real_of(event, "time") + 1e-3);
    json_decref(returned);
}

/* The files lack steps from 15 or so on (all are there where the controller lags), so the snapshots
 * after it are of no use. Would catch: a return that is counted from a snapshot or from the lines
 * that were cut, and then begins further back. */
static void test_restart__a_full_disk_counts_what_is_repeated(void **state)
{
    (void)state;
    char text[128];
    scenario s = {.name = "full",
                  .sets = restart_sets,
                  .more = JOB_SETS(RESTART_STAGES, "checkpoint.every", "10 steps", "fault.snapshot",
                                   "1 steps"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 1, .step = 15, .act = fill_disk_once},
                         {.point = "step", .who = 1, .step = 25, .act = free_disk_and_die}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    restart_expect_losses(&s, restart_one);
    json_t *all = lines_with(s.dir, "events.jsonl", "\"run.resumed\"");
    expect_time_of_loss(&s, json_array_get(all, 0));
    const json_t *resumed = json_array_get(all, 0);
    int64_t step = json_integer_value(json_object_get(resumed, "step"));
    int64_t repeated = json_integer_value(json_object_get(resumed, "repeated_steps"));
    assert_int_equal(json_array_size(all), 1);
    assert_true(step >= 10 && step <= 16);
    assert_true(repeated >= 23 - step && repeated <= 26 - step); /* the last report may be lost */
    assert_true(repeated >= json_integer_value(json_object_get(resumed, "cut_steps")));
    snprintf(text, sizeof text, "the run went back 1 time and repeated %d steps", (int)repeated);
    restart_expect_summary(s.dir, text);
    json_decref(all);
    scenario_forget(&s);
}

/* ---- what is no checkpoint ---- */

static void put_junk_and_die(fl_worker_state *w)
{
    char command[256];
    if (count_events(scenario_here()->dir, "\"run.resumed\"", "") == 0) {
        while (atomic_load(w->c->store->kept_step) < 10) {
            nap(500);
        }
        snprintf(command, sizeof command, "mkdir %s/checkpoints/step-000000888 && touch %s%s",
                 scenario_here()->dir, scenario_here()->dir, "/checkpoints/step-000000888/mine");
        assert_int_equal(system(command), 0);
        kill_this_worker(w);
    }
}

/* From a newer checkpoint: going back cuts the events behind it. */
static void die_again(fl_worker_state *w)
{
    if (count_events(scenario_here()->dir, "\"run.resumed\"", "") == 1) {
        while (atomic_load(w->c->store->kept_step) < 20) {
            nap(500);
        }
        kill_this_worker(w);
    }
}

static fl_status catch_messages(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job, (void)model, (void)data;
    char path[128];
    snprintf(path, sizeof path, "%s/messages", root);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    return FL_OK;
}

static void expect_one_line(const char *text)
{
    char command[256];
    snprintf(command, sizeof command, "test $(grep -c '%s' %s/messages) = 1", text, root);
    if (system(command) != 0) {
        fail_msg("not once: %s", text);
    }
}

/* Would catch: the same line at each return. */
static void test_restart__tells_everything_once(void **state)
{
    (void)state;
    scenario s = {.name = "junk",
                  .sets = restart_sets,
                  .more = JOB_SETS(RESTART_STAGES, "checkpoint.every", "10 steps", "fault.snapshot",
                                   "none", "trace.start", "1000", "trace.steps", "5",
                                   "devices.memory", "1000GiB"),
                  .n_samples = RESTART_SAMPLES,
                  .dropout = 0.1f,
                  .adjust = catch_messages,
                  .at = {{.point = "step", .who = 1, .step = 12, .act = put_junk_and_die},
                         {.point = "step", .who = 1, .step = 25, .act = die_again}}};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 2);
    expect_one_line("mine is no file of a checkpoint: it stays");
    expect_one_line("trace.start: step 1000 is not one of the run");
    expect_one_line("no trace: ");
    expect_one_line("devices.memory: 2 x 1.0 TiB, ");
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart__goes_back_to_the_newest_checkpoint),
        cmocka_unit_test(test_restart__goes_back_to_a_snapshot),
        cmocka_unit_test(test_restart__takes_a_snapshot_when_one_replica_is_left),
        cmocka_unit_test(test_restart__brings_parked_moments_back),
        cmocka_unit_test(test_restart__a_damaged_snapshot_is_not_used),
        cmocka_unit_test(test_restart__tells_everything_once),
        cmocka_unit_test(test_restart__a_full_disk_counts_what_is_repeated),
    };
    return cmocka_run_group_tests(tests, restart_set_up, restart_tear_down);
}
