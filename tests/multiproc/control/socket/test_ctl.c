/* Control requests to runs that are training. Would catch: a reply that is sent before the request
 * has taken effect, a request that is carried out twice or only by some workers, a pause that loses
 * or repeats a step, and replies or events that differ from docs/control.md. */
#include "autodp/ledger.h"
#include "device/system/clock.h"
#include "launcher/run/runs/runs.h"
#include "support/data/toy.h"
#include "support/runs/live_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS_PER_EPOCH = 21, STEPS_MAX = 20000 };

/* Two workers, one pipeline; more epochs than any test wants. */
#define BASE                                                                                       \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "devices.count", "2",      \
        "pipe.k", "2", "autodp.r", "1", "pipe.m", "2"
#define ENDLESS BASE, "train.epochs", "9000", "train.decay", "constant", "train.warmup", "0"

static void done(live_run *run, const char *cmd, const char *args)
{
    json_decref(live_ask(run, cmd, args));
}

static int64_t asked_for(live_run *run, const char *cmd, const char *args, const char *key)
{
    json_t *result = live_ask(run, cmd, args);
    assert_true(json_is_integer(json_object_get(result, key)));
    int64_t value = (int64_t)json_integer_value(json_object_get(result, key));
    json_decref(result);
    return value;
}

static int64_t count_steps(const live_run *run)
{
    static double losses[STEPS_MAX];
    return fl_toy_losses(run->dir, losses, STEPS_MAX);
}

/* Wait until every worker says that it does this. */
static void await_operation(live_run *run, const char *operation)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    bool all = false;
    while (!all) {
        json_t *status = live_ask(run, "status", "{}"), *worker;
        size_t i;
        all = true;
        json_array_foreach(json_object_get(status, "workers"), i, worker)
        {
            const char *does = json_string_value(json_object_get(worker, "operation"));
            all = all && strcmp(does, operation) == 0;
        }
        json_decref(status);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
}

static void test_ctl__a_pause_holds_all_workers_until_resume(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 30);
    int64_t step = asked_for(&run, "pause", "{}", "step");
    await_operation(&run, "paused");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(live_status(&run, "step"), step);
    }
    assert_int_equal(asked_for(&run, "pause", "{}", "step"), step); /* and once more */
    assert_int_equal(asked_for(&run, "resume", "{}", "step"), step);
    live_await_step(&run, step + 30);
    done(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

/* Would catch: waits between paused workers that reach their deadline; standby workers that receive
 * a command never or twice. */
static void test_ctl__a_pause_outlasts_every_deadline(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, "devices.count", "3", "elastic.script",
                                                    "[{step: 15000, k: 1}]", "fault.detect", "3s",
                                                    "fault.deadline", "3s", NULL});
    live_await_step(&run, 10);
    int64_t step = asked_for(&run, "pause", "{}", "step");
    int64_t until_us = fl_deadline_us(6500);
    while (fl_left_ms(until_us) > 0) {
        assert_int_equal(live_status(&run, "step"), step);
    }
    for (int i = 0; i < 5; i++) { /* each command goes to all three workers */
        done(&run, "set", "{\"field\": \"log.level\", \"value\": \"info\"}");
    }
    done(&run, "resume", "{}");
    done(&run, "pause", "{}");
    done(&run, "resume", "{}");
    live_await_step(&run, step + 50);
    done(&run, "pause", "{}");
    int64_t last = asked_for(&run, "stop", "{}", "last_step"); /* of a paused run */
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_int_equal(count_steps(&run), last);
    live_clean(&run);
}

/* Would catch: a pause that loses, repeats or changes a step. Both runs last until they are
 * stopped: each pause comes in the middle of the training, however fast its steps are. */
static void test_ctl__pauses_do_not_change_the_losses(void **state)
{
    (void)state;
    enum { PAUSES = 12, STEPS = 1500 };
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    for (int i = 0; i < PAUSES; i++) {
        done(&run, "pause", "{}");
        done(&run, "resume", "{}");
    }
    live_await_step(&run, STEPS);
    live_interrupt(&run);
    double *held = live_take_losses(&run, STEPS);

    run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, STEPS);
    live_interrupt(&run);
    double *free_run = live_take_losses(&run, STEPS);

    for (int i = 0; i < STEPS; i++) {
        assert_true(held[i] == free_run[i]);
    }
    free(held);
    free(free_run);
}

static void test_ctl__stop_says_after_which_step(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 5);
    int64_t last = asked_for(&run, "stop", "{\"when\": \"now\"}", "last_step");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_int_equal(count_steps(&run), last);
    live_clean(&run);
}

/* Would catch: an end in the middle of an epoch, or one that standby workers do not learn of. */
static void test_ctl__stop_at_the_end_of_the_epoch(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, "devices.count", "3", "elastic.script",
                                                    "[{step: 15000, k: 1}]", NULL});
    live_await_step(&run, 30);
    int64_t last = asked_for(&run, "stop", "{\"when\": \"epoch\"}", "last_step");
    assert_int_equal(last % STEPS_PER_EPOCH, 0);
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_int_equal(count_steps(&run), last);
    char path[256];
    fl_ledger_proof proof;
    snprintf(path, sizeof path, "%s/ledger.bin", run.dir);
    assert_int_equal(fl_ledger_prove(path, &proof), FL_OK);
    assert_true(fl_ledger_is_exact(&proof));
    fl_ledger_proof_fini(&proof);
    live_clean(&run);
}

/* The learning rate of a step, as steps.jsonl tells it. */
static double lr_of(const live_run *run, int64_t step)
{
    json_t *line = live_step(run, step);
    double lr = json_number_value(json_object_get(line, "lr"));
    json_decref(line);
    return lr;
}

static void test_ctl__set_holds_from_the_step_it_names(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 20);
    int64_t step = asked_for(&run, "set", "{\"field\": \"train.lr\", \"value\": 0.0003}", "step");
    live_await_step(&run, step + 20);
    live_refused(&run, "set", "{\"field\": \"train.lr\", \"value\": 0}", "bad_argument");
    live_refused(&run, "set", "{\"field\": \"train.lr\", \"value\": \"fast\"}", "bad_argument");
    live_refused(&run, "set", "{\"field\": \"train.batch\", \"value\": 3}", "bad_argument");
    live_refused(&run, "set", "{\"field\": \"freeze.alpha\", \"value\": 0.5}", "refused");
    done(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_true(fabs(lr_of(&run, step - 1) - 1e-4) < 1e-12);
    assert_true(fabs(lr_of(&run, step) - 3e-4) < 1e-12);
    assert_true(fabs(lr_of(&run, step + 20) - 3e-4) < 1e-12);
    live_clean(&run);
}

/* Would catch: a request that is carried out again because its reply was lost. */
static void test_ctl__an_id_is_done_once_and_answered_again(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 5);
    const char *pause = "{\"v\": 1, \"id\": \"once\", \"cmd\": \"pause\"}";
    json_t *first = live_send(&run, pause);
    done(&run, "resume", "{}");
    json_t *again = live_send(&run, pause);
    assert_true(json_equal(first, again));
    int64_t step = live_status(&run, "step");
    live_await_step(&run, step + 30); /* it is not paused */
    json_t *other = live_send(&run, "{\"v\": 1, \"id\": \"once\", \"cmd\": \"resume\"}");
    assert_string_equal(json_string_value(json_object_get(json_object_get(other, "error"), "code")),
                        "id_reused");
    json_decref(first);
    json_decref(again);
    json_decref(other);
    done(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

static void test_ctl__refuses_what_it_does_not_have(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_refused(&run, "trace", "{\"steps\": 0}", "bad_argument");
    live_refused(&run, "dance", "{}", "unknown_command");
    live_refused(&run, "status", "{\"twice\": 2}", "bad_argument");
    live_refused(&run, "plan", "{\"devices\": 0}", "bad_argument");
    live_refused(&run, "plan", "{\"frozen\": 99}", "bad_argument");
    done(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

static void test_ctl__plan_tells_and_changes_nothing(void **state)
{
    (void)state;
    live_run run =
        live_start((const char *const[]){ENDLESS, "pipe.k", "auto", "autodp.r", "auto", NULL});
    live_await_step(&run, 30);
    json_t *plan = live_ask(&run, "plan", "{\"devices\": 1, \"frozen\": 2}");
    assert_int_equal(json_integer_value(json_object_get(plan, "k")), 1);
    assert_int_equal(json_integer_value(json_object_get(plan, "r")), 1);
    assert_int_equal(json_integer_value(json_object_get(plan, "f")), 2);
    assert_true(json_number_value(json_object_get(plan, "step_ms")) > 0.0);
    assert_true(json_number_value(json_object_get(plan, "speedup")) > 0.0);
    assert_true(json_array_size(json_object_get(plan, "candidates")) >= 1);
    json_decref(plan);
    json_t *status = live_ask(&run, "status", "{}");
    json_t *now = json_object_get(status, "plan");
    assert_int_equal(json_integer_value(json_object_get(now, "generation")), 1);
    assert_int_equal(json_integer_value(json_object_get(now, "f")), 0);
    json_decref(status);
    done(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

/* Would catch: a peak that is not measured, or does not reach the controller; a step with no
 * operations; workers' time sums whose period does not advance. */
static void test_ctl__status_tells_how_well_the_devices_are_used(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 30);
    json_t *status = live_ask(&run, "status", "{}");
    assert_true(json_number_value(json_object_get(status, "step_flops")) > 0.0);
    assert_true(json_number_value(json_object_get(status, "peak_flops")) > 0.0);
    assert_true(json_number_value(json_object_get(status, "mfu")) > 0.0);
    json_t *cache = json_object_get(status, "cache");
    assert_string_equal(json_string_value(json_object_get(cache, "state")), "none");
    json_decref(status);
    done(&run, "pause", "{}"); /* no epoch ends, so the sums do not restart */
    status = live_ask(&run, "status", "{}");
    json_t *again = live_ask(&run, "status", "{}");
    assert_true(json_number_value(json_object_get(again, "times_s")) >=
                json_number_value(json_object_get(status, "times_s")));
    json_decref(status);
    json_decref(again);
    done(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

static int pinned_of(const json_t *reply)
{
    return (int)json_array_size(json_object_get(json_object_get(reply, "result"), "pinned"));
}

/* Three requests at once: status, the change, status. Their replies as they come, by their ids. */
static void ask_around(live_run *run, const char *change, int round, json_t *replies[3])
{
    const char *const cmd[] = {"status", change, "status"};
    const char *const args[] = {"{}", "{\"block\": 1}", "{}"};
    char text[128];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "{\"v\": 1, \"id\": \"%d.%d\", \"cmd\": \"%s\", \"args\": %s}",
                 round, i, cmd[i], args[i]);
        assert_int_equal(fl_ctl_client_send(run->ctl, text), FL_OK);
    }
    for (int i = 0; i < 3; i++) {
        const char *reply;
        assert_int_equal(fl_ctl_client_receive(run->ctl, LIVE_WAIT_MS, &reply), FL_OK);
        json_t *tree = json_loads(reply, 0, NULL);
        int of = -1, at = -1;
        const char *id = json_string_value(json_object_get(tree, "id"));
        assert_int_equal(sscanf(id, "%d.%d", &of, &at), 2);
        assert_int_equal(of, round);
        assert_true(at >= 0 && at < 3 && json_is_true(json_object_get(tree, "ok")));
        replies[at] = tree;
    }
}

/* Would catch: a status without the effect of the request before it, when one turn answers both; a
 * polling client that no longer gets replies. */
static void test_ctl__status_shows_what_was_asked_for_before_it(void **state)
{
    (void)state;
    enum { ROUNDS = 60 };
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 5);
    for (int round = 0; round < ROUNDS; round++) {
        json_t *replies[3] = {NULL};
        bool pins = round % 2 == 0;
        ask_around(&run, pins ? "pin" : "unpin", round, replies);
        assert_int_equal(pinned_of(replies[0]), pins ? 0 : 1);
        assert_int_equal(pinned_of(replies[2]), pins ? 1 : 0);
        for (int i = 0; i < 3; i++) {
            json_decref(replies[i]);
        }
    }
    done(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

/* ---- events ---- */

/* The line of events.jsonl that is this one, counted from `from`; -1: none. */
static int find_line(const char *path, const char *line, int from)
{
    static char text[1 << 18];
    FILE *file = fopen(path, "r");
    int found = -1;
    for (int i = 0; fgets(text, sizeof text, file) != NULL && found < 0; i++) {
        text[strcspn(text, "\n")] = 0;
        found = i >= from && strcmp(text, line) == 0 ? i : -1;
    }
    fclose(file);
    return found;
}

/* Would catch: events that are not published, are out of order or differ from the file; a last
 * event that is not published before the run ends. */
static void test_ctl__events_are_the_lines_of_the_file(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    fl_ctl_client_link *events = NULL;
    const char *line = NULL;
    int64_t sequence = 0, before = 0;
    char path[256];
    int at = -1, n = 0;
    assert_int_equal(fl_ctl_client_open(run.dir, true, &events), FL_OK);
    live_await_step(&run, 2 * STEPS_PER_EPOCH);
    done(&run, "pause", "{}");
    done(&run, "resume", "{}");
    done(&run, "stop", "{\"when\": \"epoch\"}");
    snprintf(path, sizeof path, "%s/events.jsonl", run.dir);
    bool last = false;
    while (!last) {
        assert_int_equal(fl_ctl_client_event(events, LIVE_WAIT_MS, &line, &sequence), FL_OK);
        assert_true(before == 0 || sequence == before + 1);
        before = sequence;
        int next = find_line(path, line, at + 1);
        assert_true(next >= 0 && (at < 0 || next == at + 1));
        at = next;
        n++;
        last = strstr(line, "\"run.stopped\"") != NULL;
    }
    assert_true(n >= 4); /* paused, resumed, ending, stopped */
    assert_int_equal(at + 1, sequence);
    fl_ctl_client_close(&events);
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ctl__a_pause_holds_all_workers_until_resume),
        cmocka_unit_test(test_ctl__a_pause_outlasts_every_deadline),
        cmocka_unit_test(test_ctl__pauses_do_not_change_the_losses),
        cmocka_unit_test(test_ctl__stop_says_after_which_step),
        cmocka_unit_test(test_ctl__stop_at_the_end_of_the_epoch),
        cmocka_unit_test(test_ctl__set_holds_from_the_step_it_names),
        cmocka_unit_test(test_ctl__an_id_is_done_once_and_answered_again),
        cmocka_unit_test(test_ctl__refuses_what_it_does_not_have),
        cmocka_unit_test(test_ctl__plan_tells_and_changes_nothing),
        cmocka_unit_test(test_ctl__status_tells_how_well_the_devices_are_used),
        cmocka_unit_test(test_ctl__status_shows_what_was_asked_for_before_it),
        cmocka_unit_test(test_ctl__events_are_the_lines_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
