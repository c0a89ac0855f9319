/* What a run that goes back still says of a host. Would catch: the time of a loss or of a drain
 * that changes with each return, a drain that took no time, and a host that leaves once more. */
#include "control/checkpoint/manifest/manifest.h"
#include "control/controller/members/host_again.h"
#include "control/controller/members/host_report.h"
#include "control/controller/parts/host_times.h"
#include "control/controller/parts/parts.h"
#include "control/controller/report/lasting.h"
#include "control/state/lasting.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/lines.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 3, B = 1, C = 2, SECOND_US = 1000000 };

static const double near_s = 1e-3;

typedef struct rig {
    char dir[FOLDER_SIZE];
    int dir_fd;
    FILE *out;
    char *said;
    size_t n_said;
    int64_t now_us;
    fl_plan plan;
    fl_hosts hosts, again;
    fl_host_record records[N];
    fl_host_drain drains[N];
    fl_worker workers[N];
    fl_lasting lasting;
    fl_resume_origin origin;
    fl_checkpoint resume;
    fl_controller_options options;
    fl_controller c;
} rig;

/* A controller of the run, whose clock shows run_s now. */
static void begin(rig *r, fl_hosts *hosts, int64_t run_s)
{
    memset(r->records, 0, sizeof r->records);
    memset(r->drains, 0, sizeof r->drains);
    r->records[0] = (fl_host_record){.state = FL_HOST_STATE_JOINED, .joined_us = r->now_us};
    r->options = (fl_controller_options){
        .plan = &r->plan, .hosts = hosts, .lasting = &r->lasting, .origin = &r->origin};
    r->c.options = &r->options;
    r->c.n_workers = N;
    r->c.workers = r->workers;
    r->c.hosts =
        (fl_host_watch){.table = hosts, .n_first = N, .records = r->records, .drains = r->drains};
    r->c.elastic.plan = r->plan;
    assert_int_equal(fl_event_log_open(&r->c.log, r->dir_fd, r->out, &r->c.elastic.plan), FL_OK);
    r->c.log.files.start_us = r->now_us - run_s * SECOND_US;
}

static void end(rig *r)
{
    fl_lasting_keep_hosts(&r->c);
    fl_event_log_close(&r->c.log);
    for (int i = 0; i < FL_RUNFILES; i++) {
        (void)unlinkat(r->dir_fd, fl_runfile_name((fl_runfile)i), 0);
    }
}

static void turn(rig *r)
{
    for (int i = 0; i < N; i++) {
        fl_host_report(&r->c, i, r->now_us);
    }
    fl_runfiles_flush(&r->c.log.files);
}

static int set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    make_folder(r->dir);
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY);
    r->out = open_memstream(&r->said, &r->n_said);
    r->now_us = fl_now_us();
    r->plan = (fl_plan){
        .generation = 1, .K = 1, .R = 1, .M = 1, .n_layers = 1, .n_workers = N, .first = {0, 1}};
    r->hosts.host[0] = (fl_host){.name = "a", .address = "10.0.0.1", .n = 1};
    r->hosts.n = 1;
    fl_hosts_add(&r->hosts, "b", "10.0.0.2", 1);
    fl_hosts_add(&r->hosts, "c", "10.0.0.3", 1);
    r->again = r->hosts;
    r->again.host[B].absent = true;
    r->origin.why = "lost";
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    fl_free(r->lasting.hosts);
    fclose(r->out);
    free(r->said);
    close(r->dir_fd);
    int removed = remove_folder(r->dir);
    free(r);
    return removed;
}

/* At 20 s, host b has ended 5 s ago, and hosts a and c are in the run since its start. */
static void live_once(rig *r, fl_host_state state)
{
    begin(r, &r->hosts, 20);
    for (int i = 0; i < N; i++) {
        r->records[i].state = FL_HOST_STATE_JOINED;
        r->records[i].joined_us = r->now_us - 19 * SECOND_US;
    }
    turn(r);
    r->records[B].state = state;
    r->records[B].ended_us = r->now_us - 5 * SECOND_US;
    r->drains[B].since_us = r->now_us - 7 * SECOND_US;
}

static void expect_times(const rig *r, int i, double joined_s, double ended_s, double wall_s)
{
    const fl_host_record *record = &r->records[i];
    assert_true(fabs(record->joined_s - joined_s) < near_s);
    assert_true(fabs(record->ended_s - ended_s) < near_s);
    assert_true(fabs(record->ended_wall_s - wall_s) < near_s);
}

/* The only event of the host with this name. */
static void expect_event_time(const rig *r, const char *event, const char *host, double at_s)
{
    json_t *lines = lines_with(r->dir, "events.jsonl", event), *line;
    int n = 0;
    FOR_EACH(line, lines)
    {
        if (strcmp(json_string_value(json_object_get(line, "host")), host) == 0) {
            assert_true(fabs(json_number_value(json_object_get(line, "time")) - at_s) < 1e-5);
            n++;
        }
    }
    assert_int_equal(n, 1);
    json_decref(lines);
}

static void test_host_times__stay_when_the_run_goes_back(void **state)
{
    rig *r = *state;
    live_once(r, FL_HOST_STATE_LOST);
    end(r); /* with the loss, before any turn */
    double wall_s = r->lasting.hosts[B].record.ended_wall_s;
    assert_true(wall_s > 1.5e9);
    for (int run_s = 12; run_s >= 0; run_s -= 12) { /* to a checkpoint, and to the start */
        begin(r, &r->again, run_s);
        fl_host_again_take(&r->c);
        fl_host_report_gone(&r->c, r->now_us);
        expect_event_time(r, "host.lost", "b", r->records[B].ended_s); /* as status shows it */
        turn(r);
        r->records[C].state = FL_HOST_STATE_JOINED; /* again, and now */
        r->records[C].joined_us = fl_now_us();
        turn(r);
        expect_times(r, 0, 1.0, 0.0, 0.0);
        expect_times(r, B, 1.0, 15.0, wall_s);
        expect_times(r, C, 1.0, 0.0, 0.0);
        end(r);
    }
}

/* Would catch: a host that joined late because the run went back once more before it was there. */
static void test_host_times__stay_although_a_host_has_not_joined_again(void **state)
{
    rig *r = *state;
    live_once(r, FL_HOST_STATE_LOST);
    end(r);
    begin(r, &r->again, 12);
    fl_host_again_take(&r->c);
    turn(r);
    end(r);
    begin(r, &r->again, 12);
    fl_host_again_take(&r->c);
    r->records[C].state = FL_HOST_STATE_JOINED;
    r->records[C].joined_us = fl_now_us();
    turn(r);
    expect_times(r, C, 1.0, 0.0, 0.0);
    end(r);
}

static void test_host_times__of_a_host_that_comes_back_are_new(void **state)
{
    rig *r = *state;
    live_once(r, FL_HOST_STATE_LOST);
    end(r);
    begin(r, &r->again, 12);
    fl_host_again_take(&r->c);
    r->records[B] =
        (fl_host_record){.state = FL_HOST_STATE_JOINED, .joined_us = r->now_us + 3 * SECOND_US};
    turn(r);
    expect_times(r, B, 15.0, 0.0, 0.0);
    end(r);
}

static void test_host_times__a_drain_is_told_again_with_its_time(void **state)
{
    rig *r = *state;
    live_once(r, FL_HOST_STATE_DRAINED);
    turn(r);
    assert_int_equal(count_events(r->dir, "host.drained", "\"seconds\": 7"), 1);
    end(r);
    fflush(r->out);
    assert_non_null(strstr(r->said, "host b (10.0.0.2) has left the run"));
    size_t before = r->n_said;
    begin(r, &r->again, 0); /* the events are cut off */
    fl_host_again_take(&r->c);
    turn(r);
    assert_int_equal(count_events(r->dir, "host.drained", "\"seconds\": 7"), 1);
    fflush(r->out);
    assert_null(strstr(r->said + before, "has left the run"));
    end(r);
}

/* Would catch: a host that comes back, and for which the run does not return to its K and R. */
static void test_host_times__the_grid_before_a_drain_is_known_later(void **state)
{
    rig *r = *state;
    live_once(r, FL_HOST_STATE_DRAINED);
    r->drains[B].k = 1;
    r->drains[B].r = 3;
    end(r);
    for (int i = 0; i < 2; i++) {
        begin(r, &r->again, 12);
        fl_host_again_take(&r->c);
        assert_int_equal(r->drains[B].k, 1);
        assert_int_equal(r->drains[B].r, 3);
        end(r);
    }
}

static double wall_of(const char *text)
{
    struct tm utc = {0};
    assert_non_null(strptime(text, "%Y-%m-%dT%H:%M:%S", &utc));
    return (double)timegm(&utc);
}

/* Would catch: status and the event with two times of one joining, and after a return to the first
 * step a host that has left but never joined. */
static void test_host_times__of_joining_are_those_of_events(void **state)
{
    rig *r = *state;
    live_once(r, FL_HOST_STATE_LOST);
    turn(r);
    expect_event_time(r, "host.joined", "b", r->records[B].joined_s);
    end(r);
    for (int n = 0; n < 2; n++) {
        begin(r, &r->again, 30);
        fl_host_again_take(&r->c);
        fl_host_report_gone(&r->c, r->now_us);
        expect_event_time(r, "host.joined", "b", r->records[B].joined_s);
        expect_event_time(r, "host.lost", "b", r->records[B].ended_s);
        r->records[C].state = FL_HOST_STATE_JOINED;
        r->records[C].joined_us = fl_now_us();
        turn(r);
        expect_event_time(r, "host.joined", "c", r->records[C].joined_s);
        expect_times(r, C, 1.0, 0.0, 0.0);
        json_t *lines = lines_with(r->dir, "events.jsonl", "host.joined");
        const char *wall = json_string_value(json_object_get(json_array_get(lines, 0), "wall"));
        assert_true(fabs(wall_of(wall) - r->c.log.files.start_wall_s) < 3.0);
        json_decref(lines);
        end(r);
    }
}

/* Events that were not cut off. Would catch: a host that joined twice at one time. */
static void test_host_times__of_connecting_again_are_new(void **state)
{
    rig *r = *state;
    live_once(r, FL_HOST_STATE_LOST);
    turn(r);
    r->resume.records.events_bytes = fl_runfiles_events_bytes(&r->c.log.files);
    end(r);
    begin(r, &r->again, 30);
    r->options.resume = &r->resume;
    fl_host_again_take(&r->c);
    fl_host_report_gone(&r->c, r->now_us);
    assert_int_equal(count_events(r->dir, "host.", ""), 0);
    r->records[C].state = FL_HOST_STATE_JOINED;
    r->records[C].joined_us = fl_now_us();
    turn(r);
    expect_times(r, C, 1.0, 0.0, 0.0);
    json_t *lines = lines_with(r->dir, "events.jsonl", "host.joined");
    assert_int_equal(length(lines), 1);
    assert_true(json_number_value(json_object_get(json_array_get(lines, 0), "time")) >= 30.0);
    json_decref(lines);
    end(r);
}

/* Worker 1 is in standby, and hears of no step. Would catch: one loss at two steps, that of the
 * worker and that of its host; a second worker of the host that is lost later. */
static void test_host_times__a_worker_is_lost_at_the_step_of_its_host(void **state)
{
    rig *r = *state;
    for (int rank = 0; rank < N; rank++) {
        r->workers[rank] = (fl_worker){.rank = rank, .steps = rank == B ? 261 : 427};
    }
    r->c.stats.steps = 425;
    live_once(r, FL_HOST_STATE_LOST);
    assert_int_equal(fl_host_report_loss_step(&r->c, B), 427);
    turn(r);
    assert_int_equal(count_events(r->dir, "host.lost", "\"step\": 427"), 1);
    r->workers[0].steps = 430;
    assert_int_equal(fl_host_report_loss_step(&r->c, B), 427);
    assert_int_equal(fl_host_report_loss_step(&r->c, 0), 430);
    end(r);
}

#define RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG(test_host_times__stay_when_the_run_goes_back),
        RIG(test_host_times__stay_although_a_host_has_not_joined_again),
        RIG(test_host_times__of_a_host_that_comes_back_are_new),
        RIG(test_host_times__a_drain_is_told_again_with_its_time),
        RIG(test_host_times__the_grid_before_a_drain_is_known_later),
        RIG(test_host_times__of_joining_are_those_of_events),
        RIG(test_host_times__of_connecting_again_are_new),
        RIG(test_host_times__a_worker_is_lost_at_the_step_of_its_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
