/* The wait of a survey for this host's own measurement, whose process may be stopped. Would catch:
 * a start of a run on several hosts that hangs with it, and one that does not heed SIGTERM there.
 * And what it leaves: agents that find no port take their head for dead. */
#include "control/agent/join/held_port.h"
#include "control/agent/survey/host_survey.h"
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

/* The head alone, with nothing to measure. */
static void test_survey_waits__the_port_of_agents_is_held_afterwards(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    fl_hosts *hosts = calloc(1, sizeof *hosts);
    fl_host_survey *found = calloc(1, sizeof *found);
    int held = -1, stopped = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(hosts != NULL && found != NULL);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    hosts->n = hosts->host[0].n = 1;
    hosts->detect_ms = LONG_MS;
    snprintf(hosts->agents, sizeof hosts->agents, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    snprintf(hosts->links, sizeof hosts->links, "tcp://127.0.0.1:*");
    assert_int_equal(zmq_curve_keypair(hosts->keys.server, hosts->secret), 0);
    assert_int_equal(zmq_curve_keypair(hosts->keys.public_key, hosts->keys.secret), 0);
    const fl_host_survey_options options = {.hosts = hosts,
                                            .n_ranks = 1,
                                            .run_dir = "/",
                                            .join_ms = LONG_MS,
                                            .held_port = &held,
                                            .quiet = true};
    assert_int_equal(fl_host_survey_run(&options, found, &stopped), FL_OK);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, size), 0);
    close(fd);
    fl_held_port_close(&held);
    free(found);
    free(hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survey_waits__a_process_that_never_measures_ends_the_start),
        cmocka_unit_test(test_survey_waits__a_signal_ends_the_wait_for_it),
        cmocka_unit_test(test_survey_waits__the_port_of_agents_is_held_afterwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
