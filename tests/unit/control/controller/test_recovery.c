/* What follows a loss, in an order of events that a run rarely has. Would catch: a recovery that
 * waits for ever for the report of a worker which it has not asked for one, and one that takes the
 * moment at which a loss was noticed for that of the fault. */
#include "control/controller/faults/recovery.h"
#include "control/controller/members/joining.h"
#include "control/controller/parts/parts.h"
#include "control/elastic/elastic_transition.h"
#include "device/system/clock.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 3, LAYERS = 2, JOINS = 2, STEPS = 100, STEP = 10 };

#define SECOND_US INT64_C(1000000)

typedef struct rig {
    char dir[FOLDER_SIZE];
    int dir_fd;
    FILE *out;
    fl_plan plan;
    fl_plan_input input;
    fl_controller_options options;
    fl_worker workers[N];
    fl_joining_worker joining[N];
    fl_controller c;
} rig;

static int leave(void *context, const fl_worker_birth *birth, const char *endpoint)
{
    (void)context, (void)birth, (void)endpoint;
    return 0;
}

/* Two workers train; the third one is to join with generation 2, to which they are going over. */
static void place_workers(rig *r)
{
    r->plan = (fl_plan){.generation = 1,
                        .K = 1,
                        .R = 2,
                        .M = 1,
                        .n_layers = LAYERS,
                        .n_workers = N,
                        .first = {0, LAYERS},
                        .rank_of = {0, 1},
                        .departed = {[JOINS] = true}};
    fl_workers_init(r->workers, N, &r->plan, 0);
    fl_workers_place(r->workers, N, &r->plan);
    for (int rank = 0; rank < N; rank++) {
        r->workers[rank].ready = r->workers[rank].linked = true;
        r->workers[rank].exited_us = 0;
        r->workers[rank].incarnation = 1;
    }
    r->workers[JOINS].joins = true;
    r->joining[JOINS] = (fl_joining_worker){.state = FL_JOINING_ASKED, .generation = 2};
}

static void begin_commit(rig *r)
{
    fl_transition *t = &r->c.elastic.transition;
    t->state = FL_ELASTIC_COMMITTING;
    t->before = r->plan;
    t->next = r->plan;
    t->next.generation = t->requested = t->last_asked = 2;
    t->next.departed[JOINS] = false;
}

static void connect_parts(rig *r)
{
    fl_controller *c = &r->c;
    r->options = (fl_controller_options){
        .job = &c->job, .plan = &r->plan, .plan_input = &r->input, .n_steps = STEPS, .n_epochs = 1};
    c->options = &r->options;
    c->n_workers = N;
    c->workers = r->workers;
    c->joining = r->joining;
    c->shutdown.phase = (fl_phase){.state = FL_CONTROLLER_RUNNING, .lost = -1};
    c->facts = (fl_run_facts){.options = &r->options,
                              .plan = &c->elastic.plan,
                              .phase = &c->shutdown.phase,
                              .stats = &c->stats,
                              .n_workers = N,
                              .workers = r->workers};
    c->elastic = (fl_elastic){.run = &c->facts,
                              .cache = &c->cache,
                              .workers = r->workers,
                              .router = &c->router,
                              .log = &c->log,
                              .job = &c->job,
                              .plan = r->plan};
    c->elastic.decide.due_at = -1;
    c->checkpoints.run = &c->facts;
    c->checkpoints.elastic = &c->elastic;
    c->checkpoints.router = &c->router;
    c->checkpoints.log = &c->log;
}

static int set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    make_folder(r->dir);
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY);
    r->out = fopen("/dev/null", "w");
    fl_job_defaults(&r->c.job);
    r->c.job.fault.restarts = 0;
    place_workers(r);
    connect_parts(r);
    fl_signals_block(&r->c.signals);
    assert_int_equal(fl_flight_create(N, &r->c.flight), FL_OK);
    const fl_agent_options agent = {.n_workers = N,
                                    .dir_fd = r->dir_fd,
                                    .flight = r->c.flight,
                                    .signals = &r->c.signals,
                                    .endpoint = "nowhere",
                                    .worker = leave};
    assert_int_equal(fl_agent_open(&agent, r->workers, &r->c.agent), FL_OK);
    assert_int_equal(fl_store_create(&r->c.elastic.store), FL_OK);
    assert_int_equal(fl_event_log_open(&r->c.log, r->dir_fd, r->out, &r->c.elastic.plan), FL_OK);
    fl_run_stats_init(&r->c.stats, 1000, 10, STEPS, 1, false);
    r->c.stats.steps = STEP;
    begin_commit(r);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    fl_agent_close(&r->c.agent, FL_AGENT_ENDS_OVER);
    fl_signals_restore(&r->c.signals);
    fl_event_log_close(&r->c.log);
    fl_store_destroy(&r->c.elastic.store);
    fl_flight_destroy(&r->c.flight);
    fclose(r->out);
    close(r->dir_fd);
    int removed = remove_folder(r->dir);
    free(r);
    return removed;
}

/* The worker has left its waits. */
static void report(rig *r, int rank, int64_t step)
{
    const fl_broken_report broken = {
        .serial = r->c.recovery.serial, .generation = 2, .step = step, .summed_step = -1};
    fl_recovery_broken(&r->c, &r->workers[rank], &broken);
}

/* All are asked to break off while the controller does not know yet that they have gone over to the
 * generation in which another worker joins: that one is not asked, and never reports. */
static void test_recovery__a_worker_that_joins_is_taken_out_when_the_commit_comes_late(void **state)
{
    rig *r = *state;
    char why[256] = "";
    const fl_transition_parts moved = {.generation = 2, .step = STEP};
    assert_true(fl_recovery_begin(&r->c, FL_LOSS_STUCK, -1, fl_now_us(), why, sizeof why));
    assert_int_equal(r->c.recovery.state, FL_RECOVERY_COLLECTING);
    assert_false(fl_worker_is_awaited(&r->workers[JOINS]));

    fl_elastic_moved(&r->c.elastic, &r->workers[0], &moved);
    assert_int_equal(r->c.elastic.plan.generation, 2);
    assert_true(fl_worker_is_awaited(&r->workers[JOINS])); /* a member now */
    report(r, 0, STEP);
    assert_true(fl_recovery_watch(&r->c, fl_now_us(), why, sizeof why));
    assert_true(r->workers[JOINS].lost);
    assert_false(fl_worker_is_awaited(&r->workers[JOINS]));
    assert_false(r->workers[0].lost || r->workers[1].lost);

    report(r, 1, STEP - 5); /* nobody else is waited for: this report, which cannot be, is read */
    assert_false(fl_recovery_watch(&r->c, fl_now_us(), why, sizeof why));
    assert_non_null(strstr(why, "worker 1 stands at step 5"));
}

/* How long ago the fault of such a loss was. */
static int64_t faulty_for(const rig *r, fl_loss_kind kind, int rank, int64_t now_us)
{
    return now_us - fl_recovery_fault_us(&r->c, kind, rank, now_us);
}

/* All wait for each other, and no worker is known to be lost. */
static void test_recovery__counts_from_when_the_last_worker_began_to_wait(void **state)
{
    rig *r = *state;
    char why[256] = "";
    int64_t now_us = fl_now_us() + 100 * SECOND_US;
    r->workers[0].waits_us = 4 * SECOND_US;
    r->workers[1].waits_us = 3 * SECOND_US;
    assert_int_equal(faulty_for(r, FL_LOSS_STUCK, 1, now_us), 3 * SECOND_US);
    assert_true(fl_recovery_begin(&r->c, FL_LOSS_STUCK, -1, now_us, why, sizeof why));
    assert_int_equal(r->c.recovery.begun_us - r->c.recovery.fault_us, 3 * SECOND_US);
}

/* One leaves its generation a second ago, after it had waited for two: the other one still waits.
 */
static void test_recovery__counts_the_waits_before_connections_break(void **state)
{
    rig *r = *state;
    r->workers[0].waits_us = 2 * SECOND_US;
    r->workers[1].waits_us = 5 * SECOND_US;
    report(r, 0, STEP);
    assert_true(r->workers[0].left_us > 0);
    int64_t now_us = r->workers[0].left_us + SECOND_US;
    assert_int_equal(faulty_for(r, FL_LOSS_REPORTED, -1, now_us), 3 * SECOND_US);
    r->workers[1].waits_us = 0; /* it works: nothing was wrong until the connection broke */
    assert_int_equal(faulty_for(r, FL_LOSS_REPORTED, -1, now_us), SECOND_US);
}

/* Each worker has failed because of the others: the last step is all that is known. */
static void test_recovery__counts_from_the_last_step_if_no_worker_shows_more(void **state)
{
    rig *r = *state;
    fl_recovery_counted(&r->c);
    int64_t now_us = r->c.recovery.trained_us + 4 * SECOND_US;
    assert_true(r->c.recovery.trained_us > 0);
    for (int rank = 0; rank < 2; rank++) {
        r->workers[rank].failed_us = now_us - 1;
        r->workers[rank].failure = FL_EPEER;
    }
    assert_int_equal(faulty_for(r, FL_LOSS_REPORTED, 0, now_us), 4 * SECOND_US);
}

/* The controller waits a moment for what may explain the failure. */
static void test_recovery__counts_from_the_report_of_a_failure(void **state)
{
    rig *r = *state;
    int64_t now_us = fl_now_us();
    r->workers[1].failed_us = now_us - SECOND_US / 5;
    r->workers[1].failure = FL_EINVAL;
    assert_int_equal(faulty_for(r, FL_LOSS_REPORTED, 1, now_us), SECOND_US / 5);
    r->workers[0].unread_us = now_us - SECOND_US / 4;
    assert_int_equal(faulty_for(r, FL_LOSS_UNREADABLE, 0, now_us), SECOND_US / 4);
}

/* What the user reads of the third worker, which is in this state of joining. */
static char *watch_joining(rig *r, const fl_joining_worker *state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *usual = r->c.log.progress.out, *out = open_memstream(&text, &n);
    assert_non_null(out);
    r->joining[JOINS] = *state;
    r->c.log.progress.out = out;
    fl_joining_watch(&r->c, fl_now_us());
    r->c.log.progress.out = usual;
    fclose(out);
    return text;
}

/* The change with which it joins is given up. */
static char *join_in_vain(rig *r)
{
    const fl_joining_worker asked = {.state = FL_JOINING_ASKED, .generation = 2};
    fl_transition *t = &r->c.elastic.transition;
    t->state = FL_ELASTIC_IDLE;
    t->n_outcomes = 1;
    t->outcomes[0] = (fl_elastic_outcome){.generation = 2, .why = "worker 0: no answer"};
    return watch_joining(r, &asked);
}

static void expect_in_vain(rig *r, const char *text)
{
    char *said = join_in_vain(r);
    assert_string_equal(said, text);
    free(said);
}

/* Would catch: a question about the network, and an attempt that is announced, where the worker has
 * ended because its host was lost or left out; and a lost host of which the reason is not told. */
static void test_recovery__a_worker_that_joins_ends_with_its_host(void **state)
{
    rig *r = *state;
    fl_worker *w = &r->workers[JOINS];
    fl_hosts hosts = {.n = 2,
                      .host = {{.name = "a", .address = "10.0.0.1", .first = 0, .n = 2},
                               {.name = "b", .address = "10.0.0.2", .first = JOINS, .n = 1}}};
    fl_host_record records[2] = {{.state = FL_HOST_STATE_JOINED}, {.state = FL_HOST_STATE_JOINED}};
    fl_host_drain drains[2] = {{.k = 0}};
    r->options.hosts = &hosts;
    r->c.hosts = (fl_host_watch){.table = &hosts, .records = records, .drains = drains};
    char *text = join_in_vain(r);
    assert_non_null(strstr(text, "worker 2 of host b (10.0.0.2) cannot join the run yet: worker 0: "
                                 "no answer; can all hosts reach each other"));
    assert_non_null(strstr(text, "; attempt 1, the next one in "));
    free(text);
    w->exited_us = fl_now_us();
    snprintf(w->host_why, sizeof w->host_why, "with host b (10.0.0.2): it is off");
    records[1] = (fl_host_record){.state = FL_HOST_STATE_LOST, .why = "it is off"};
    expect_in_vain(r,
                   "worker 2 cannot join the run: it was lost with host b (10.0.0.2): it is off; "
                   "a new agent there joins again (frostline agent --join)\n");
    fl_joining_watch(&r->c, fl_now_us());
    assert_int_equal(r->joining[JOINS].state, FL_JOINING_NONE);
    records[1].apart_from = 1;
    expect_in_vain(r,
                   "worker 2 cannot join the run yet: it was left out with host b (10.0.0.2): it "
                   "is off; its agent joins again when they do\n");
    records[1] = (fl_host_record){.state = FL_HOST_STATE_JOINED}; /* a new agent is there already */
    expect_in_vain(r,
                   "worker 2 cannot join the run: it was lost with host b (10.0.0.2): it is off\n");
    r->c.hosts = (fl_host_watch){.records = NULL};
}

/* A host that vanishes: its worker is silent before the host counts as lost. Would catch: a loss
 * whose reason is the silence of the worker. */
static void test_recovery__a_silent_worker_that_joins_was_lost_with_its_host(void **state)
{
    rig *r = *state;
    fl_worker *w = &r->workers[JOINS];
    const fl_joining_worker silent = {.state = FL_JOINING_STARTING, .late = FL_LOSS_SILENT};
    w->exited_us = fl_now_us();
    w->wait_status = SIGKILL;
    w->missed_us = 3 * SECOND_US;
    char *text = watch_joining(r, &silent);
    assert_non_null(strstr(text, "did not answer for 3.0 s"));
    free(text);
    snprintf(w->host_why, sizeof w->host_why, "with host b (10.0.0.2): it is off");
    text = watch_joining(r, &silent);
    assert_non_null(strstr(text, "was lost, with host b (10.0.0.2): it is off"));
    assert_null(strstr(text, "did not answer"));
    free(text);
}

#define RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG(test_recovery__a_worker_that_joins_is_taken_out_when_the_commit_comes_late),
        RIG(test_recovery__counts_from_when_the_last_worker_began_to_wait),
        RIG(test_recovery__counts_the_waits_before_connections_break),
        RIG(test_recovery__counts_from_the_last_step_if_no_worker_shows_more),
        RIG(test_recovery__counts_from_the_report_of_a_failure),
        RIG(test_recovery__a_worker_that_joins_ends_with_its_host),
        RIG(test_recovery__a_silent_worker_that_joins_was_lost_with_its_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
