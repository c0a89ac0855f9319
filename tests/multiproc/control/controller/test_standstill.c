/* A worker that stops, or hangs, in a known operation: the run's message and its events name the
 * worker, the operation, and the workers that waited for it. */
#include "device/flight/flight.h"
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <jansson.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { AT_STEP = 5 };

/* Replicas of one stage, which go on without one that hangs. */
#define ALONE                                                                                      \
    "pipe.k", "1", "pipe.m", "2", "train.batch", "12", "train.epochs", "2", "train.evaluate",      \
        "false", "fault.detect", "3s", "fault.deadline", "600s", "fault.on_loss", "continue",      \
        "fault.restarts", "0"

/* A worker that stops, or hangs, when it begins an operation of this kind. */
typedef struct standstill {
    const char *name, *k, *r, *deadline;
    int who;
    fl_flight_kind kind;
    bool hang; /* its link goes on; else the process is stopped */
    const fl_script_entry *script;
} standstill;

static void stand_still(fl_flight_kind kind, int rank, int64_t step)
{
    const standstill *t = scenario_here()->context;
    if (rank != t->who || kind != t->kind || step < AT_STEP) {
        return;
    }
    if (!t->hang) {
        raise(SIGSTOP);
    }
    for (;;) {
        pause();
    }
}

/* Run it to its end, which has to be a failure; the first line of the message into text. */
static scenario run_to_the_end(const standstill *t, char *text, size_t size_bytes)
{
    scenario s = {.name = t->name,
                  .sets = JOB_SETS("pipe.k", t->k, "autodp.r", t->r, "pipe.m", "2", "devices.count",
                                   "3", "train.batch", "12", "train.epochs", "2", "train.evaluate",
                                   "false", "fault.detect", "2s", "fault.deadline", t->deadline),
                  .script = t->script,
                  .n_script = t->script != NULL,
                  .n_samples = 204,
                  .at_operation = stand_still,
                  .context = t};
    scenario_start(&s);
    expect_end(&s, FL_EFAILED);
    snprintf(text, size_bytes, "%.*s", (int)strcspn(s.outcome->message, "\n"), s.outcome->message);
    scenario_forget(&s);
    return s;
}

static json_t *lost_event(const char *dir)
{
    json_t *lines = lines_with(dir, "events.jsonl", "\"worker.lost\"");
    json_t *found = json_incref(json_array_get(lines, 0));
    json_decref(lines);
    assert_non_null(found);
    return found;
}

static void expect_hung(const char *dir, int nth, int who)
{
    json_t *lines = lines_with(dir, "events.jsonl", "\"worker.lost\"");
    const json_t *event = json_array_get(lines, (size_t)nth);
    assert_non_null(event);
    assert_int_equal(number(event, "rank"), who);
    assert_string_equal(json_string_value(json_object_get(event, "how")), "hung");
    assert_true(json_is_true(json_object_get(event, "goes_on")));
    json_decref(lines);
}

/* The run has gone on without it. Runs that wait for their losses take that time beside each other.
 */
static void finish_hung(scenario *s, int nth, int who)
{
    expect_end(s, FL_OK);
    expect_hung(s->dir, nth, who);
    scenario_forget(s);
}

/* flight.json shows the worker in that very operation. */
static void check_file(const char *dir, const standstill *t)
{
    char path[200];
    snprintf(path, sizeof path, "%s/flight.json", dir);
    json_t *all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    const json_t *worker = json_array_get(json_object_get(all, "workers"), (size_t)t->who);
    const json_t *main = json_array_get(json_object_get(worker, "threads"), 0);
    const json_t *inside = json_object_get(main, "inside");
    const json_t *at = json_array_get(inside, json_array_size(inside) - 1);
    assert_string_equal(json_string_value(json_object_get(at, "operation")),
                        fl_flight_text(t->kind));
    assert_int_equal(length(json_object_get(main, "recent")), 16);
    json_decref(all);
}

/* The line names the worker, its operation, and the workers that wait for it. */
static void expect_named(const standstill *t, const char *is_in, const char *waits)
{
    char text[4096];
    scenario s = run_to_the_end(t, text, sizeof text);
    print_message("%s\n", text);
    assert_non_null(strstr(text, is_in));
    assert_non_null(strstr(text, waits));
    json_t *event = lost_event(s.dir);
    assert_int_equal(number(event, "rank"), t->who);
    const char *line = json_string_value(json_object_get(event, "waits"));
    assert_non_null(strstr(line, is_in));
    assert_non_null(strstr(line, waits));
    assert_null(strchr(line, '\n'));
    json_decref(event);
    check_file(s.dir, t);
}

/* Would catch: a message that calls a worker silent without naming the receive that it stopped in.
 */
static void test_standstill__stopped_in_a_receive(void **state)
{
    (void)state;
    standstill t = {.name = "receive",
                    .k = "2",
                    .r = "1",
                    .deadline = "600s",
                    .who = 1,
                    .kind = FL_FLIGHT_RECEIVE};
    expect_named(&t, "worker 1 is in receive of activations from worker 0 (step 5",
                 "worker 0 waits for worker 1 in receive of gradients (step 5");
}

static void test_standstill__stopped_in_an_all_reduce(void **state)
{
    (void)state;
    standstill t = {.name = "reduce",
                    .k = "1",
                    .r = "2",
                    .deadline = "600s",
                    .who = 1,
                    .kind = FL_FLIGHT_REDUCE_WAIT};
    /* Worker 1's other threads go on until all are stopped: worker 0 may have got all that it needs
     * of the all-reduce, and then waits in the sum behind it. */
    expect_named(&t, "worker 1 is in all-reduce (step 5", "worker 0 waits for worker 1, which ");
}

/* The vote of a transition, and state on its way. */
static void test_standstill__stopped_in_a_transition(void **state)
{
    (void)state;
    const fl_script_entry third_stage = {.step = 8, .f = -1, .k = 3, .r = 1, .m = 2};
    standstill t = {.name = "vote",
                    .k = "2",
                    .r = "1",
                    .deadline = "600s",
                    .who = 1,
                    .kind = FL_FLIGHT_VOTE,
                    .script = &third_stage};
    expect_named(
        &t, "worker 1 is in transition: vote (before step",
        "workers 0 and 2 wait for worker 1, which never arrived, in gathering (transition: "
        "vote");
    /* From one stage to two: wherever the cut is, worker 0 sends the layers behind it. From two
     * stages to three it may keep all that it has. */
    const fl_script_entry second_stage = {.step = 8, .f = -1, .k = 2, .r = 1, .m = 2};
    t.name = "state";
    t.k = "1";
    t.script = &second_stage;
    t.kind = FL_FLIGHT_STATE_OUT;
    t.who = 0;
    expect_named(&t, "worker 0 is in send of state to worker", "worker");
}

/* Would catch: a hang that looks like slowness until fault.deadline. */
static void test_standstill__a_worker_that_hangs_is_found_at_once(void **state)
{
    (void)state;
    standstill t = {.name = "hang",
                    .k = "2",
                    .r = "1",
                    .deadline = "600s",
                    .who = 0,
                    .kind = FL_FLIGHT_BACKWARD,
                    .hang = true};
    expect_named(&t, "worker 0 is in backward of layer", "worker 1 waits for worker 0");
    t.name = "optimizer";
    t.who = 1;
    t.kind = FL_FLIGHT_OPTIMIZER;
    expect_named(&t, "worker 1 is in optimizer (step 5", "worker 0 waits for worker 1");
}

/* The worker without a stage hangs before the first command that needs it. */
static void hang_in_standby(fl_flight_kind kind, int rank, int64_t step)
{
    (void)step;
    while (kind == FL_FLIGHT_STANDBY && rank == *(const int *)scenario_here()->context) {
        pause();
    }
}

/* Would catch: workers that wait for ever for one that hangs in standby: two of them for its report
 * of where it stands, a single one to send it a command. */
static void test_standstill__a_worker_that_hangs_in_standby_is_found(void **state)
{
    (void)state;
    const fl_script_entry freezes = {.step = 8, .f = 1, .k = -1, .r = -1, .m = -1};
    const struct {
        const char *name, *r, *count;
        int who;
    } cases[] = {{"one-trains", "1", "2", 1}, {"two-train", "2", "3", 2}};
    scenario s[2];
    for (int i = 0; i < 2; i++) {
        s[i] = (scenario){
            .name = cases[i].name,
            .sets = JOB_SETS(ALONE, "devices.count", cases[i].count, "autodp.r", cases[i].r),
            .script = &freezes,
            .n_script = 1,
            .n_samples = 204,
            .at_operation = hang_in_standby,
            .context = &cases[i].who};
        scenario_start(&s[i]);
    }
    for (int i = 0; i < 2; i++) {
        finish_hung(&s[i], 0, cases[i].who);
    }
}

/* Of three workers, worker 0 trains and worker 2 hangs in standby. At one step, worker 0 trains on
 * once that process is gone: no change of the plan needs it before. */
static void train_on_without_it(fl_flight_kind kind, int rank, int64_t step)
{
    atomic_int *pid = *(atomic_int *const *)scenario_here()->context;
    if (kind == FL_FLIGHT_STANDBY && rank == 2) {
        atomic_store(pid, (int)getpid());
        for (;;) {
            pause();
        }
    }
    while (rank == 0 && step == AT_STEP &&
           (atomic_load(pid) == 0 || kill(atomic_load(pid), 0) == 0)) {
        sched_yield();
    }
}

/* Would catch: a worker that hangs in standby until the run needs it; and one that waits there, and
 * is taken for hung. */
static void test_standstill__a_worker_in_standby_is_found_before_it_is_needed(void **state)
{
    (void)state;
    atomic_int *pid = shared_memory(sizeof *pid);
    scenario s = {.name = "standby",
                  .sets = JOB_SETS(ALONE, "devices.count", "3", "autodp.r", "1"),
                  .n_samples = 204,
                  .at_operation = train_on_without_it,
                  .context = &pid};
    scenario_run(&s);
    munmap(pid, sizeof *pid);
    expect_hung(s.dir, 0, 2);
    json_t *lines = lines_with(s.dir, "events.jsonl", "\"worker.lost\"");
    assert_int_equal(json_array_size(lines), 1);
    json_decref(lines);
}

/* As a broken network does, after which the link, which is a socket in the run directory here, is
 * connected again. */
static void cut_connections(void)
{
    for (int fd = 0; fd < (int)sysconf(_SC_OPEN_MAX); fd++) {
        struct sockaddr_storage own = {.ss_family = AF_UNIX};
        socklen_t size = sizeof own;
        if (getsockname(fd, (struct sockaddr *)&own, &size) == 0 && own.ss_family != AF_UNIX) {
            shutdown(fd, SHUT_RDWR);
        }
    }
}

/* Where worker 2 hangs, without its connections: the others have released it. A change of the plan
 * takes three commands; the third one is part of the vote, and not one to be woken for. */
typedef struct cut {
    const char *name;
    fl_flight_kind kind;
    int nth;   /* operation of this kind */
    bool late; /* for its last command it is woken after the leader has begun to send it */
    atomic_int *n_sends; /* commands that the leader has begun to send, in shared memory */
} cut;

static void hang_without_connections(fl_flight_kind kind, int rank, int64_t step)
{
    const cut *c = scenario_here()->context;
    static int n_before, n_standby;
    (void)step;
    if (kind == FL_FLIGHT_SEND_COMMAND) {
        atomic_fetch_add(c->n_sends, 1);
    }
    if (kind == FL_FLIGHT_STANDBY && rank == 2 && ++n_standby == 3 && c->late) {
        while (atomic_load(c->n_sends) < c->nth) {
            sched_yield();
        }
    }
    if (kind != c->kind || rank != 2 || ++n_before < c->nth) {
        return;
    }
    cut_connections();
    for (;;) {
        pause();
    }
}

/* Would catch: members that go on without one in standby, because its connections are broken, and a
 * controller that asks it to prepare each change, and waits for its answer until fault.deadline. On
 * a busy machine the leader sends its command before the worker begins to receive it: a controller
 * that took only later commands for missed ones waited for ever. */
static void test_standstill__a_cut_worker_that_hangs_in_standby_is_found(void **state)
{
    (void)state;
    const fl_script_entry freezes[] = {{.step = 8, .f = 1, .k = -1, .r = -1, .m = -1},
                                       {.step = 20, .f = 2, .k = -1, .r = -1, .m = -1}};
    cut cuts[] = {{.name = "cut-in-standby", .kind = FL_FLIGHT_STANDBY, .nth = 3},
                  {.name = "cut-in-the-vote", .kind = FL_FLIGHT_RECEIVE_COMMAND, .nth = 3},
                  {.name = "cut-in-a-receive", .kind = FL_FLIGHT_RECEIVE_COMMAND, .nth = 4},
                  {.name = "cut-late", .kind = FL_FLIGHT_RECEIVE_COMMAND, .nth = 4, .late = true}};
    scenario s[4];
    for (int i = 0; i < 4; i++) {
        cuts[i].n_sends = shared_memory(sizeof *cuts[i].n_sends);
        s[i] = (scenario){.name = cuts[i].name,
                          .sets = JOB_SETS(ALONE, "devices.count", "3", "autodp.r", "2"),
                          .script = freezes,
                          .n_script = 2,
                          .n_samples = 204,
                          .at_operation = hang_without_connections,
                          .context = &cuts[i]};
        scenario_start(&s[i]);
    }
    for (int i = 0; i < 4; i++) {
        finish_hung(&s[i], 0, 2);
        munmap(cuts[i].n_sends, sizeof *cuts[i].n_sends);
    }
}

static void hang_in_a_wait_for_a_command(fl_flight_kind kind, int rank, int64_t step)
{
    (void)step;
    while (kind == FL_FLIGHT_COMMAND && rank == *(const int *)scenario_here()->context) {
        pause();
    }
}

/* Would catch: a thread that counts as waiting for the controller for ever, although the controller
 * has answered: the leader's at a step that has a decision, and that of a worker that has reported
 * where it stands after a loss. */
static void test_standstill__a_worker_that_hangs_in_its_wait_for_a_command_is_found(void **state)
{
    (void)state;
    const fl_script_entry freezes = {.step = 8, .f = 1, .k = -1, .r = -1, .m = -1};
    int leader = 0, other = 2;
    scenario s = {.name = "command",
                  .sets = JOB_SETS(ALONE, "devices.count", "2", "autodp.r", "2"),
                  .script = &freezes,
                  .n_script = 1,
                  .n_samples = 204,
                  .at_operation = hang_in_a_wait_for_a_command,
                  .context = &leader};
    scenario_start(&s);
    scenario t = {.name = "regroup",
                  .sets = JOB_SETS(ALONE, "devices.count", "3", "autodp.r", "3"),
                  .n_samples = 204,
                  .at = {{.point = "step", .who = 1, .step = AT_STEP, .act = kill_this_worker}},
                  .at_operation = hang_in_a_wait_for_a_command,
                  .context = &other};
    scenario_start(&t);
    finish_hung(&s, 0, leader);
    finish_hung(&t, 1, other);
}

/* No worker stands still in an operation of its own, but all wait. */
static void test_standstill__all_wait_for_each_other(void **state)
{
    (void)state;
    standstill t = {.name = "circle",
                    .k = "2",
                    .r = "1",
                    .deadline = "2s",
                    .who = 1,
                    .kind = FL_FLIGHT_RECEIVE,
                    .hang = true};
    char text[4096];
    scenario s = run_to_the_end(&t, text, sizeof text);
    print_message("%s\n", text);
    assert_non_null(strstr(text, "is alive, but others waited for it in vain"));
    assert_non_null(strstr(text, "worker 1 waits for worker 0 in receive of activations"));
    (void)s;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standstill__stopped_in_a_receive),
        cmocka_unit_test(test_standstill__stopped_in_an_all_reduce),
        cmocka_unit_test(test_standstill__stopped_in_a_transition),
        cmocka_unit_test(test_standstill__a_worker_that_hangs_is_found_at_once),
        cmocka_unit_test(test_standstill__a_worker_that_hangs_in_standby_is_found),
        cmocka_unit_test(test_standstill__a_worker_in_standby_is_found_before_it_is_needed),
        cmocka_unit_test(test_standstill__a_cut_worker_that_hangs_in_standby_is_found),
        cmocka_unit_test(test_standstill__a_worker_that_hangs_in_its_wait_for_a_command_is_found),
        cmocka_unit_test(test_standstill__all_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
