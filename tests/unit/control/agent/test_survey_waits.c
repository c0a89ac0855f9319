/* The wait of a survey for this host's own measurement, whose process may be stopped. Would catch:
 * a start of a run on several hosts that hangs with it, and one that does not heed SIGTERM there.
 * And its ports: agents that find none take their head for dead, a run whose port another process
 * takes meanwhile does not begin, and a port that is taken is no mistake of the user. */
#include "control/agent/survey/host_survey.h"
#include "control/link/held_port.h"
#include "device/system/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum { ALL_MS = 100, LONG_MS = 60000 };

static bool want_none(void *context, int host, const fl_machine_kind *kind)
{
    (void)context, (void)host, (void)kind;
    return false;
}

/* The head alone, whose process measures for ever. */
static fl_status survey(int64_t all_ms, int *stopped)
{
    int ends[2];
    fl_hosts *hosts = calloc(1, sizeof *hosts);
    fl_host_survey *found = calloc(1, sizeof *found);
    assert_non_null(hosts);
    assert_non_null(found);
    hosts->n = 1;
    hosts->host[0].n = 1;
    hosts->detect_ms = LONG_MS;
    snprintf(hosts->agents, sizeof hosts->agents, "tcp://127.0.0.1:*");
    snprintf(hosts->links, sizeof hosts->links, "tcp://127.0.0.1:*");
    assert_int_equal(zmq_curve_keypair(hosts->keys.server, hosts->secret), 0);
    assert_int_equal(zmq_curve_keypair(hosts->keys.public_key, hosts->keys.secret), 0);
    assert_int_equal(pipe(ends), 0);
    const fl_host_measuring measuring = {
        .job = "", .cwd = "/", .all_ms = all_ms, .own_fd = ends[0], .wants = want_none};
    const fl_host_survey_options options = {.hosts = hosts,
                                            .n_ranks = 1,
                                            .run_dir = "/",
                                            .join_ms = LONG_MS,
                                            .measuring = &measuring,
                                            .quiet = true};
    fl_status status = fl_host_survey_run(&options, found, stopped);
    close(ends[0]);
    close(ends[1]);
    free(found);
    free(hosts);
    return status;
}

static void test_survey_waits__a_process_that_never_measures_ends_the_start(void **state)
{
    (void)state;
    int stopped = 0;
    assert_int_equal(survey(ALL_MS, &stopped), FL_EDEADLINE);
    assert_int_equal(stopped, 0);
    assert_non_null(strstr(fl_errmsg(), "this host has been measuring what layers cost"));
}

static void test_survey_waits__a_signal_ends_the_wait_for_it(void **state)
{
    (void)state;
    int stopped = 0;
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &term, &before), 0);
    kill(getpid(), SIGTERM);
    int64_t begun_us = fl_now_us();
    assert_int_equal(survey(LONG_MS, &stopped), FL_ESTOPPED);
    assert_int_equal(stopped, SIGTERM);
    assert_true(fl_now_us() - begun_us < (int64_t)LONG_MS * 1000);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

/* A socket at a port of 127.0.0.1; 0: any. -1: another one has it. */
static int take_port(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int free_port(void)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    int fd = take_port(0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    return ntohs(at.sin_port);
}

static void check_held(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
    assert_int_equal(take_port(port), -1);
}

/* The head alone, with nothing to measure, at these ports. */
static fl_status survey_at(int agents, int links, fl_held_ports *held)
{
    fl_hosts *hosts = calloc(1, sizeof *hosts);
    fl_host_survey *found = calloc(1, sizeof *found);
    int stopped = 0;
    assert_true(hosts != NULL && found != NULL);
    hosts->n = hosts->host[0].n = 1;
    hosts->detect_ms = LONG_MS;
    snprintf(hosts->agents, sizeof hosts->agents, "tcp://127.0.0.1:%d", agents);
    snprintf(hosts->links, sizeof hosts->links, "tcp://127.0.0.1:%d", links);
    assert_int_equal(zmq_curve_keypair(hosts->keys.server, hosts->secret), 0);
    assert_int_equal(zmq_curve_keypair(hosts->keys.public_key, hosts->keys.secret), 0);
    const fl_host_survey_options options = {.hosts = hosts,
                                            .n_ranks = 1,
                                            .run_dir = "/",
                                            .join_ms = LONG_MS,
                                            .held_ports = held,
                                            .quiet = true};
    fl_status status = fl_host_survey_run(&options, found, &stopped);
    free(found);
    free(hosts);
    return status;
}

static void test_survey_waits__the_ports_of_the_head_are_held_afterwards(void **state)
{
    (void)state;
    fl_held_ports held = {-1, -1};
    int agents = free_port(), links = free_port();
    assert_int_equal(survey_at(agents, links, &held), FL_OK);
    check_held(agents);
    check_held(links);
    fl_held_ports_close(&held);
    assert_true(held.agents == -1 && held.links == -1);
}

static int hold(int port)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", port);
    int fd = fl_held_port_open(endpoint);
    assert_true(fd >= 0);
    return fd;
}

/* As the run has held them since it began; the process that measures for this host has a copy. */
static void test_survey_waits__takes_over_ports_that_are_held(void **state)
{
    (void)state;
    int agents = free_port(), links = free_port();
    fl_held_ports held = {.agents = hold(agents), .links = hold(links)};
    assert_int_equal(survey_at(agents, links, &held), FL_OK);
    check_held(agents);
    check_held(links);
    fl_held_ports_close(&held);
}

static void expect_busy(int agents, int links, int taken)
{
    char endpoint[64];
    fl_held_ports held = {-1, -1};
    int fd = hold(taken);
    assert_int_equal(survey_at(agents, links, &held), FL_EBUSY);
    snprintf(endpoint, sizeof endpoint, "another process has taken tcp://127.0.0.1:%d", taken);
    assert_non_null(strstr(fl_errmsg(), endpoint));
    fl_held_port_close(&fd);
}

static void test_survey_waits__a_port_that_stays_taken_is_busy(void **state)
{
    (void)state;
    int agents = free_port(), links = free_port();
    expect_busy(agents, links, agents);
    expect_busy(agents, links, links);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survey_waits__a_process_that_never_measures_ends_the_start),
        cmocka_unit_test(test_survey_waits__a_signal_ends_the_wait_for_it),
        cmocka_unit_test(test_survey_waits__the_ports_of_the_head_are_held_afterwards),
        cmocka_unit_test(test_survey_waits__takes_over_ports_that_are_held),
        cmocka_unit_test(test_survey_waits__a_port_that_stays_taken_is_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
