/* When a host that is silent counts as lost. Would catch: a host that vanishes and is noticed only
 * after fault.detect, so that the others train again later than that; one that is lost although its
 * answers come in time; a silence in which nobody listened, and that counts all the same.
 * And when a host that is awaited is given up. */
#include "control/agent/gate/gate_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SECOND_US = 1000000, NOW_US = 1000 * SECOND_US, JOINED_PINGS = FL__GATE_FIRST_PINGS };

typedef struct gate_with_host {
    fl_hosts hosts;
    fl__remote_host remote[2];
    fl_agent_child children[2];
    fl__kept_frame kept[2];
    fl_agent_options options;
    fl__gate gate;
} gate_with_host;

/* The gate of two hosts, which has heard host b `silent_us` ago and looks at it now. */
static gate_with_host *look(int64_t detect_ms, int64_t silent_us, int64_t excused_us)
{
    gate_with_host *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->hosts = (fl_hosts){.n = 2, .detect_ms = detect_ms};
    snprintf(w->hosts.host[1].name, sizeof w->hosts.host[1].name, "b");
    w->hosts.host[0].n = w->hosts.host[1].n = w->hosts.host[1].first = 1;
    w->remote[1] = (fl__remote_host){.state = FL__HOST_JOINED,
                                     .heard_us = NOW_US - silent_us + excused_us,
                                     .n_first_pings = JOINED_PINGS};
    w->options.n_workers = 2;
    w->gate = (fl__gate){.o = &w->options,
                         .hosts = &w->hosts,
                         .remote = w->remote,
                         .children = w->children,
                         .kept = w->kept,
                         .alive_us = NOW_US};
    fl__gate_watch_hosts(&w->gate, NOW_US);
    return w;
}

static void expect_silence(int64_t detect_ms, int64_t silent_us, fl__host_state state)
{
    gate_with_host *w = look(detect_ms, silent_us, 0);
    bool is_lost = state == FL__HOST_GONE;
    if (w->remote[1].state != state) {
        fail_msg("fault.detect %lld ms, silent for %lld us: %d", (long long)detect_ms,
                 (long long)silent_us, (int)w->remote[1].state);
    }
    assert_int_equal(w->remote[1].silent_ms, is_lost ? silent_us / 1000 : 0);
    assert_int_equal(w->remote[1].owes[FL_HOST_NEWS_LOST], is_lost);
    free(w);
}

static void test_gate_watch__a_silent_host_is_lost_within_the_time_of_the_job(void **state)
{
    (void)state;
    static const int64_t detect_ms[] = {100, 2000, 5000, 3600000};
    for (size_t i = 0; i < sizeof detect_ms / sizeof *detect_ms; i++) {
        int64_t detect_us = detect_ms[i] * 1000;
        expect_silence(detect_ms[i], detect_us / 10 * 9, FL__HOST_GONE);
        expect_silence(detect_ms[i], detect_us / 10 * 8, FL__HOST_JOINED);
        expect_silence(detect_ms[i], 0, FL__HOST_JOINED);
    }
}

static void test_gate_watch__says_for_how_long(void **state)
{
    (void)state;
    gate_with_host *w = look(5000, 4300000, 0);
    assert_string_equal(w->remote[1].why, "it has not answered for 4.3 s");
    free(w);
}

/* As fl__gate_excuse_hosts moves it on. */
static void test_gate_watch__a_silence_that_is_excused_loses_none(void **state)
{
    (void)state;
    gate_with_host *w = look(5000, 9 * SECOND_US, 5 * SECOND_US);
    assert_int_equal(w->remote[1].state, FL__HOST_JOINED);
    free(w);
}

static fl__remote_host *join_with(gate_with_host *w, const char *version, bool again)
{
    fl_host_join join = {.name = "b", .n_devices = 1};
    const fl_host_peer from = {.n = 1};
    w->remote[1].state = FL__HOST_AWAITED;
    w->hosts.again = again;
    snprintf(join.version, sizeof join.version, "%s", version);
    fl__gate_take_join(&w->gate, &from, &join);
    return &w->remote[1];
}

/* Would catch: a head that waits ten minutes for an agent whose version it has refused, and then
 * ends with a code for which a scheduler starts it again. */
static void test_gate_watch__another_version_ends_the_wait(void **state)
{
    (void)state;
    gate_with_host *w = look(5000, 0, 0);
    const fl__remote_host *r = join_with(w, "9.8.7", false);
    assert_int_equal(r->state, FL__HOST_GONE);
    assert_true(r->unfit);
    assert_non_null(strstr(r->why, "it has frostline 9.8.7, and the head " FL_VERSION));
    assert_int_equal(join_with(w, "9.8.7", true)->state, FL__HOST_AWAITED);
    free(w);
}

/* The version of the messages is another one: the frame of a JOIN of today with another number. */
static fl__host_state hear_other_wire(gate_with_host *w, const char *name, const char *from_address,
                                      pid_t ssh)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_message join = {.type = FL_HOST_JOIN, .join = {.n_devices = 1}};
    fl_host_peer from = {.n = 1};
    snprintf(from.address, sizeof from.address, "%s", from_address);
    snprintf(join.join.name, sizeof join.join.name, "%s", name);
    size_t n = fl_host_wire_put(&join, bytes);
    bytes[4]++; /* of the version, after the magic number */
    w->remote[1].state = FL__HOST_AWAITED;
    w->remote[1].starter.pid = ssh;
    fl__gate_take_message(&w->gate, &from, bytes, n);
    w->remote[1].starter.pid = 0;
    return w->remote[1].state;
}

/* The same, where it is the version of the messages. Another agent of the host may be on its way,
 * by ssh, or one of another host may have its name by mistake. */
static void test_gate_watch__another_version_of_messages_does_too(void **state)
{
    (void)state;
    gate_with_host *w = look(5000, 0, 0);
    assert_int_equal(hear_other_wire(w, "c", "10.0.0.2", 0), FL__HOST_AWAITED);
    assert_int_equal(hear_other_wire(w, "b", "10.0.0.2", 1), FL__HOST_AWAITED);
    snprintf(w->hosts.host[0].address, FL_HOST_TEXT, "10.0.0.1");
    assert_int_equal(hear_other_wire(w, "b", "10.0.0.1", 0), FL__HOST_AWAITED);
    assert_int_equal(hear_other_wire(w, "b", "10.0.0.2", 0), FL__HOST_GONE);
    assert_true(w->remote[1].unfit);
    assert_non_null(strstr(w->remote[1].why, "it has another version of frostline"));
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate_watch__a_silent_host_is_lost_within_the_time_of_the_job),
        cmocka_unit_test(test_gate_watch__says_for_how_long),
        cmocka_unit_test(test_gate_watch__a_silence_that_is_excused_loses_none),
        cmocka_unit_test(test_gate_watch__another_version_ends_the_wait),
        cmocka_unit_test(test_gate_watch__another_version_of_messages_does_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
