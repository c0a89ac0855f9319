/* The end of a run while a host is being drained. Would catch: a host that has left the run and is
 * in the record as one that was to leave, one that counts as drained although the run needed it to
 * its end, and a drain that begins when the training is over. */
#include "control/controller/members/host_watch.h"
#include "control/controller/parts/parts.h"
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/lines.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 2, B = 1, ASKED_FOR = 2, NOW_US = 100000000 };

typedef struct rig {
    char dir[FOLDER_SIZE];
    int dir_fd;
    FILE *out;
    fl_plan plan;
    fl_hosts hosts;
    fl_host_record records[N];
    fl_host_drain drains[N];
    fl_worker workers[N];
    fl_controller_options options;
    fl_controller c;
} rig;

/* Host b, with worker 1, is to leave, and the transition to generation 2 was asked for that. */
static int set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    make_folder(r->dir);
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY);
    r->out = fopen("/dev/null", "w");
    r->plan = (fl_plan){
        .generation = 1, .K = 1, .R = 1, .M = 1, .n_layers = 1, .n_workers = N, .first = {0, 1}};
    r->hosts.host[0] = (fl_host){.name = "a", .address = "10.0.0.1", .n = 1};
    r->hosts.n = 1;
    fl_hosts_add(&r->hosts, "b", "10.0.0.2", 1);
    r->records[0] = (fl_host_record){.state = FL_HOST_STATE_JOINED, .joined_us = 1};
    r->records[B] = (fl_host_record){.state = FL_HOST_STATE_DRAINING, .joined_us = 1};
    r->drains[B] = (fl_host_drain){.step = FL_HOST_DRAIN_ASKED,
                                   .generation = ASKED_FOR,
                                   .since_us = 1,
                                   .told.state = FL_HOST_STATE_DRAINING};
    fl_job_defaults(&r->c.job);
    r->options = (fl_controller_options){.job = &r->c.job, .plan = &r->plan, .hosts = &r->hosts};
    r->c.options = &r->options;
    r->c.n_workers = N;
    r->c.workers = r->workers;
    r->c.hosts = (fl_host_watch){.table = &r->hosts, .records = r->records, .drains = r->drains};
    r->c.elastic.plan = r->plan;
    r->c.elastic.transition.requested = ASKED_FOR;
    r->c.shutdown.phase = (fl_phase){.state = FL_CONTROLLER_FINISHING, .lost = -1};
    for (int rank = 0; rank < N; rank++) {
        r->workers[rank] = (fl_worker){.rank = rank, .incarnation = 1};
    }
    assert_int_equal(fl_event_log_open(&r->c.log, r->dir_fd, r->out, &r->c.elastic.plan), FL_OK);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    fl_event_log_close(&r->c.log);
    fclose(r->out);
    close(r->dir_fd);
    int removed = remove_folder(r->dir);
    free(r);
    return removed;
}

static void end_transition(rig *r, bool committed)
{
    fl_transition *t = &r->c.elastic.transition;
    t->outcomes[0] = (fl_elastic_outcome){.generation = ASKED_FOR, .committed = committed};
    t->n_outcomes = 1;
}

static fl_host_state turn(rig *r, fl_phase_state phase)
{
    r->c.shutdown.phase.state = phase;
    fl_host_watch_turn(&r->c, NOW_US);
    return r->records[B].state;
}

static int n_drained(rig *r)
{
    fl_runfiles_flush(&r->c.log.files);
    return count_events(r->dir, "host.drained", "\"host\": \"b\"");
}

/* The processes of the host have not ended yet: the record says all the same that it has left. */
static void test_host_watch__a_drain_that_took_effect_is_done_at_the_end(void **state)
{
    rig *r = *state;
    end_transition(r, true);
    r->c.shutdown.phase.n_stops = 1; /* the run is to stop, and trains its last step */
    assert_int_equal(turn(r, FL_CONTROLLER_RUNNING), FL_HOST_STATE_DRAINING);
    assert_int_equal(r->drains[B].step, FL_HOST_DRAIN_LEAVING);
    assert_int_equal(n_drained(r), 0);
    assert_int_equal(turn(r, FL_CONTROLLER_FINISHING), FL_HOST_STATE_DRAINED);
    assert_int_equal(r->records[B].ended_us, NOW_US);
    assert_int_equal(turn(r, FL_CONTROLLER_OVER), FL_HOST_STATE_DRAINED);
    assert_int_equal(n_drained(r), 1);
}

/* The others have gone over; those that leave have not reported it. */
static void test_host_watch__a_host_that_owns_nothing_has_left(void **state)
{
    rig *r = *state;
    r->c.elastic.plan.departed[B] = true;
    assert_int_equal(turn(r, FL_CONTROLLER_FINISHING), FL_HOST_STATE_DRAINED);
    assert_int_equal(n_drained(r), 1);
}

static void test_host_watch__a_drain_that_did_not_take_effect_is_none(void **state)
{
    rig *r = *state;
    assert_int_equal(turn(r, FL_CONTROLLER_FINISHING), FL_HOST_STATE_DRAINING); /* no outcome */
    end_transition(r, false);
    assert_int_equal(turn(r, FL_CONTROLLER_FINISHING), FL_HOST_STATE_DRAINING);
    assert_int_equal(r->drains[B].step, FL_HOST_DRAIN_WANTED);
    assert_int_equal(turn(r, FL_CONTROLLER_OVER), FL_HOST_STATE_DRAINING);
    assert_int_equal(r->drains[B].step, FL_HOST_DRAIN_WANTED); /* and is not asked for again */
    assert_int_equal(n_drained(r), 0);
}

static void test_host_watch__a_notice_at_the_end_begins_no_drain(void **state)
{
    rig *r = *state;
    r->records[B] = (fl_host_record){
        .state = FL_HOST_STATE_JOINED, .joined_us = 1, .notice_us = 2, .grace_us = 1000000};
    r->drains[B] = (fl_host_drain){.told.state = FL_HOST_STATE_JOINED, .joined_us = 1};
    assert_int_equal(turn(r, FL_CONTROLLER_FINISHING), FL_HOST_STATE_JOINED);
    assert_int_equal(r->drains[B].step, FL_HOST_DRAIN_NONE);
}

/* A loss ends the run: nobody can tell any more what would have become of the drain. */
static void test_host_watch__a_loss_leaves_the_drain_as_it_is(void **state)
{
    rig *r = *state;
    end_transition(r, true);
    r->c.shutdown.phase.lost = 0;
    assert_int_equal(turn(r, FL_CONTROLLER_ENDING), FL_HOST_STATE_DRAINING);
    assert_int_equal(r->drains[B].step, FL_HOST_DRAIN_ASKED);
}

#define RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG(test_host_watch__a_drain_that_took_effect_is_done_at_the_end),
        RIG(test_host_watch__a_host_that_owns_nothing_has_left),
        RIG(test_host_watch__a_drain_that_did_not_take_effect_is_none),
        RIG(test_host_watch__a_notice_at_the_end_begins_no_drain),
        RIG(test_host_watch__a_loss_leaves_the_drain_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
