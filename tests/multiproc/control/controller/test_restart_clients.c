/* What clients of the control socket see of a run that goes back after a loss, and what it keeps of
 * their requests. Would catch: clients that hear that the run is over, requests without an answer,
 * and a pause or a drained worker that the return forgets. */
#include "control/socket/ctl_names.h"
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

#include <cmocka.h>
#include <pthread.h>
#include <sys/stat.h>
#include <zmq.h>

/* A controller that goes back for as long as two requests. */
static void *refuse_twice(void *socket)
{
    char peer[256], request[512];
    for (int i = 0; i < 3; i++) {
        const char *reply =
            i < 2 ? "{\"ok\": false, \"error\": {\"code\": \"recovering\"}}" : "{\"ok\": true}";
        int n = zmq_recv(socket, peer, sizeof peer, 0);
        assert_true(n > 0 && zmq_recv(socket, request, sizeof request, 0) > 0);
        assert_true(zmq_send(socket, peer, (size_t)n, ZMQ_SNDMORE) == n);
        assert_true(zmq_send(socket, reply, strlen(reply), 0) > 0);
    }
    return NULL;
}

/* Would catch: a command that fails because it came while the run goes back. */
static void test_restart_clients__a_request_refused_meanwhile_is_repeated(void **state)
{
    (void)state;
    char dir[128], endpoint[160];
    const char *reply = "";
    fl_ctl_client_link *link = NULL;
    pthread_t thread;
    snprintf(dir, sizeof dir, "%s/refuses", root);
    snprintf(endpoint, sizeof endpoint, "ipc://%s/" FL_CTL_SOCKET, dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_ROUTER);
    assert_int_equal(zmq_bind(socket, endpoint), 0);
    assert_int_equal(pthread_create(&thread, NULL, refuse_twice, socket), 0);
    assert_int_equal(fl_ctl_client_open(dir, false, &link), FL_OK);
    assert_int_equal(fl_ctl_client_insist(link, "{}", LIVE_WAIT_MS, &reply), FL_OK);
    assert_string_equal(reply, "{\"ok\": true}");
    assert_int_equal(pthread_join(thread, NULL), 0);
    fl_ctl_client_close(&link);
    zmq_close(socket);
    zmq_ctx_term(zmq);
}

/* Shared with the workers. The run that goes back waits until the client has seen that it does, and
 * then until it has heard that it did. */
typedef struct meeting {
    atomic_bool listens, killed, has_seen, has_heard;
} meeting;
static meeting *shared;

/* Worker 1 dies in a step behind that of a snapshot, once the client has heard something. Nothing
 * waits for the client before: what it asks for is carried out between two steps. */
static void kill_for_client(const char *point, fl_worker_state *w)
{
    static const char taken[] = "\"snapshot.taken\"";
    bool at_step = strcmp(point, "step") == 0;
    if (at_step && w->rank == 1 && w->step % 4 == 1 && atomic_load(&shared->listens) &&
        count_events(scenario_here()->dir, taken, "") > 0 &&
        !atomic_exchange(&shared->killed, true)) {
        kill_this_worker(w);
    }
    bool again = atomic_load(&shared->killed) && w->birth->step > 0;
    while (strcmp(point, "begin") == 0 && again && !atomic_load(&shared->has_seen)) {
        nap(500);
    }
    while (at_step && again && !atomic_load(&shared->has_heard)) {
        nap(500);
    }
}

/* The state, which must be one of a run that lives. */
static bool look_recovering(live_run *run)
{
    static const char *const good[] = {"starting", "running", "recovering", "finishing"};
    json_t *status = live_ask(run, "status", "{}");
    const char *state = json_string_value(json_object_get(status, "state"));
    bool known = false, found = strcmp(state, "recovering") == 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        known = known || strcmp(state, good[i]) == 0;
    }
    if (!known) {
        fail_msg("the state is %s", state);
    }
    json_decref(status);
    return found;
}

typedef struct heard {
    int n_failed, n_lost, n_returning, n_resumed, n_stopped, n_gaps;
    int64_t sequence, lost_at, repeated, again_from;
} heard;

static bool is_event(const json_t *event, const char *name)
{
    return strcmp(json_string_value(json_object_get(event, "event")), name) == 0;
}

static void note_event(heard *h, const json_t *event, int64_t sequence)
{
    h->n_gaps += h->sequence > 0 && sequence != h->sequence + 1;
    h->sequence = sequence;
    h->n_failed += is_event(event, "run.failed");
    if (is_event(event, "worker.lost") && json_is_true(json_object_get(event, "goes_on"))) {
        h->n_lost++;
        h->lost_at = json_integer_value(json_object_get(event, "steps"));
    }
    h->n_resumed += is_event(event, "run.resumed");
    h->n_stopped += is_event(event, "run.stopped");
    if (is_event(event, "run.returning")) {
        h->n_returning++;
        h->repeated = json_integer_value(json_object_get(event, "repeated_steps"));
        h->again_from = json_integer_value(json_object_get(event, "step"));
        assert_string_equal(json_string_value(json_object_get(event, "to")), "snapshot");
        assert_non_null(strstr(json_string_value(json_object_get(event, "why")), "worker 1 ("));
    }
}

static bool take_event(fl_ctl_client_link *events, heard *h)
{
    const char *line;
    int64_t sequence;
    fl_status status = fl_ctl_client_event(events, 1, &line, &sequence);
    if (status == FL_EDEADLINE) {
        return false;
    }
    assert_int_equal(status, FL_OK);
    json_t *event = json_loads(line, 0, NULL);
    note_event(h, event, sequence);
    json_decref(event);
    return true;
}

/* Requests that are events. */
#define HIGH_LR "{\"field\": \"train.lr\", \"value\": 2e-4}"
#define LOW_LR "{\"field\": \"train.lr\", \"value\": 1e-4}"

/* Would catch: clients that hear that the run failed or is over while it goes back, requests that
 * get no answer, and events that subscribers miss on the way. */
static void test_restart_clients__clients_see_it_recover(void **state)
{
    (void)state;
    fl_ctl_client_link *events = NULL;
    heard h = {0};
    int n_recovering = 0;
    shared = shared_memory(sizeof *shared);
    live_run run = live_start_again(
        &(scenario){.name = "clients",
                    .sets = restart_sets,
                    .more = JOB_SETS(RESTART_STAGES, "fault.snapshot", "4 steps", "elastic.enabled",
                                     "false", "train.epochs", "100000"),
                    .n_samples = RESTART_SAMPLES,
                    .dropout = 0.1f,
                    .at_point = kill_for_client});
    assert_int_equal(fl_ctl_client_open(run.dir, true, &events), FL_OK);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    for (int i = 0; !take_event(events, &h); i++) { /* it has subscribed when it hears something */
        live_do(&run, "set", i % 2 == 0 ? HIGH_LR : LOW_LR);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    atomic_store(&shared->listens, true);
    while (h.n_resumed == 0) {
        while (take_event(events, &h)) {
        }
        if (look_recovering(&run)) {
            n_recovering++;
            atomic_store(&shared->has_seen, true);
        }
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    atomic_store(&shared->has_heard, true);
    assert_int_equal(kill(run.controller, SIGINT), 0);
    while (h.n_stopped == 0) {
        (void)take_event(events, &h);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_true(n_recovering > 0);
    assert_int_equal(h.n_failed, 0);
    assert_true(h.n_lost > 0);
    assert_int_equal(h.n_returning, 1);
    assert_int_equal(h.n_resumed, 1);
    assert_int_equal(h.n_gaps, 0);
    assert_true(h.repeated > 0 && h.again_from > 0 && h.again_from + h.repeated <= h.lost_at + 1);
    fl_ctl_client_close(&events);
    scenario_forget(&run.scenario);
}

static void await_state(live_run *run, const char *wanted)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    for (bool there = false; !there;) {
        json_t *status = live_ask(run, "status", "{}");
        there = strcmp(json_string_value(json_object_get(status, "state")), wanted) == 0;
        json_decref(status);
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(2000);
    }
}

static double lr_at(const live_run *run, int64_t step)
{
    json_t *line = live_step(run, step);
    double lr = json_number_value(json_object_get(line, "lr"));
    json_decref(line);
    return lr;
}

/* Kill this worker of a paused run, which goes back for it for the n-th time. */
static void kill_and_await(live_run *run, int rank, int64_t n)
{
    assert_int_equal(kill(live_process_of(run, rank), SIGKILL), 0);
    restart_await(run, "returns", n);
    await_state(run, "paused");
}

/* Would catch: a pause, a drained worker or a learning rate that a return forgets; counters that
 * begin again; a summary without the loss; a loss before the first step after a return that is told
 * as one of step 0. */
static void test_restart_clients__keeps_what_operators_want(void **state)
{
    (void)state;
    live_run run = live_start_again(
        &(scenario){.name = "wishes",
                    .sets = restart_sets,
                    .more = JOB_SETS(RESTART_STAGES, "devices.count", "3", "train.epochs", "10000",
                                     "fault.snapshot", "100 steps", "elastic.enabled", "false"),
                    .n_samples = RESTART_SAMPLES,
                    .dropout = 0.1f});
    restart_await(&run, "snapshots", 1);
    live_do(&run, "set", "{\"field\": \"train.lr\", \"value\": 0.00025}");
    live_do(&run, "drain", "{\"worker\": 2}");
    live_await_state(&run, 2, "drained");
    live_do(&run, "pause", "{}");
    int64_t n_snapshots = restart_recovery_number(&run, "snapshots");
    kill_and_await(&run, 1, 1);
    live_await_state(&run, 2, "drained");
    int64_t step = restart_recovery_number(&run, "snapshot_step");
    assert_int_equal(live_status(&run, "step"), step);
    assert_true(restart_recovery_number(&run, "snapshots") >= n_snapshots);
    assert_int_equal(restart_recovery_number(&run, "losses"), 1);
    char at[64];
    snprintf(at, sizeof at, "(Killed) at step %lld", (long long)step);
    kill_and_await(&run, 1, 2);
    assert_int_equal(count_events(run.dir, "\"run.resumed\"", at), 1);
    assert_int_equal(restart_recovery_number(&run, "losses"), 2);
    live_do(&run, "resume", "{}");
    live_await_step(&run, step + 10);
    live_do(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_true(lr_at(&run, step) / (double)(step + 1) >
                2.0 * lr_at(&run, 10) / 11.0); /* warm-up */
    restart_expect_summary(
        run.dir, "  losses         workers lost 2 times; the run went back 2 times and repeated");
    scenario_forget(&run.scenario);
}

/* Workers of a run that has gone back, before they are ready. */
static void hold_at_begin(const char *point, fl_worker_state *w)
{
    (void)w;
    bool again = atomic_load(&scenario_here()->outcome->n_deeds) > 0;
    while (again && strcmp(point, "begin") == 0 && !atomic_load(&shared->has_heard)) {
        nap(500);
    }
}

/* Would catch: a trace of the steps from 0 on, asked for while a run that goes back to a later one
 * starts its workers. */
static void test_restart_clients__traces_what_follows(void **state)
{
    (void)state;
    shared = shared_memory(sizeof *shared);
    live_run run = live_start_again(
        &(scenario){.name = "traced",
                    .sets = restart_sets,
                    .more = JOB_SETS(RESTART_STAGES, "train.epochs", "10000", "fault.snapshot",
                                     "4 steps", "elastic.enabled", "false"),
                    .n_samples = RESTART_SAMPLES,
                    .dropout = 0.1f,
                    .at_point = hold_at_begin,
                    .at = {{.point = "step",
                            .who = 1,
                            .step = RESTART_FATAL_STEP,
                            .act = restart_kill_once_snapped}}});
    restart_await(&run, "returns", 1);
    live_refused(&run, "trace", "{}", "recovering");
    live_refused(&run, "trace", "{\"at\": 9000}", "recovering");
    int64_t begin = live_status(&run, "step");
    atomic_store(&shared->has_heard, true);
    live_await_step(&run, begin + 1);
    char name[64], when[64];
    json_t *trace = live_ask(&run, "trace", "{\"steps\": 2}");
    int64_t step = json_integer_value(json_object_get(trace, "step"));
    snprintf(name, sizeof name, "/trace-%d-%d.json", (int)step, (int)step + 1);
    snprintf(when, sizeof when, "once every worker has done step %d", (int)step + 1);
    assert_true(step > begin);
    assert_int_equal(json_integer_value(json_object_get(trace, "last_step")), step + 1);
    assert_non_null(strstr(json_string_value(json_object_get(trace, "file")), name));
    assert_string_equal(json_string_value(json_object_get(trace, "written")), when);
    json_decref(trace);
    live_do(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    scenario_forget(&run.scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart_clients__a_request_refused_meanwhile_is_repeated),
        cmocka_unit_test(test_restart_clients__clients_see_it_recover),
        cmocka_unit_test(test_restart_clients__keeps_what_operators_want),
        cmocka_unit_test(test_restart_clients__traces_what_follows),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
