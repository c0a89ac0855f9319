/* What clients say of a run whose controller takes a request and never answers it: one that ends,
 * and one that goes back after a loss. A process plays the controller.
 * Would catch: a stop that has ended the run and is reported as failed; a client that waits, and
 * then says that the controller is stopped, while the record has the loss. */
#include "control/socket/ctl_names.h"
#include "launcher/run/runs/run_hold.h"
#include "support/cli.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

/* What events.jsonl gets: before the controller listens, and after the first request. */
typedef struct play {
    const char *before, *after; /* after: NULL: it lives on */
} play;

static void put_events(const char *text)
{
    FILE *file = fopen("events.jsonl", "a");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        _exit(2);
    }
}

static _Noreturn void be_controller(const play *p, int ready)
{
    char start[256], request[512];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int dir = open(".", O_PATH | O_DIRECTORY);
    snprintf(start, sizeof start,
             "{\"t\": 0.0, \"event\": \"run.started\", \"job\": \"small\", "
             "\"controller_pid\": %d, \"steps\": 100}\n"
             "{\"t\": 0.1, \"event\": \"run.running\"}\n",
             (int)getpid());
    put_events(start);
    put_events(p->before);
    void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_ROUTER);
    if (fl_run_hold(dir) < 0 || zmq_bind(socket, "ipc://" FL_CTL_SOCKET) != 0 ||
        write(ready, "", 1) != 1 || zmq_recv(socket, request, sizeof request, 0) < 0) {
        _exit(2);
    }
    while (p->after == NULL) {
        pause();
    }
    put_events(p->after);
    _exit(0);
}

static pid_t start_controller(const char *run, const play *p)
{
    char path[4096], byte;
    int ready[2];
    snprintf(path, sizeof path, "mkdir %s && touch %s/job.yaml", run, run);
    cli_must_run(path);
    snprintf(path, sizeof path, "%s/%s", cli_folder, run);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (chdir(path) != 0) {
            _exit(2);
        }
        be_controller(p, ready[1]);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void end_controller(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void expect(const char *arguments, int exit_code, const char *out, const char *err)
{
    cli_run(arguments);
    assert_int_equal(cli_result.exit_code, exit_code);
    if (strstr(cli_result.out, out) == NULL || strstr(cli_result.err, err) == NULL) {
        fail_msg("%s: %s%s", arguments, cli_result.out, cli_result.err);
    }
}

static void test_silent__a_stop_that_ended_the_run_is_done(void **state)
{
    (void)state;
    static const play stopped = {"", "{\"t\": 2.0, \"event\": \"run.stopped\", \"steps\": 7}\n"};
    pid_t pid = start_controller("stopped", &stopped);
    expect("ctl stopped stop", 0, "last_step          7\n", "");
    end_controller(pid);
    pid = start_controller("json", &stopped);
    expect("ctl json stop --json", 0, "\"ok\": true, \"result\": {\"step\": 7, \"last_step\": 7}",
           "");
    end_controller(pid);
}

static void test_silent__another_end_is_none_of_a_stop(void **state)
{
    (void)state;
    static const play failed = {"", "{\"t\": 2.0, \"event\": \"run.failed\", \"steps\": 7}\n"};
    static const play stopped = {"", "{\"t\": 2.0, \"event\": \"run.stopped\", \"steps\": 7}\n"};
    pid_t pid = start_controller("failed", &failed);
    expect("ctl failed stop", 3, "", "the run has ended");
    end_controller(pid);
    pid = start_controller("paused", &stopped);
    expect("ctl paused pause", 3, "", "the run has ended");
    end_controller(pid);
}

static void test_silent__a_run_that_goes_back_is_told_as_such(void **state)
{
    (void)state;
    static const play returning = {
        "{\"t\": 2.0, \"wall\": \"2026-01-31T09:30:00.000Z\", \"event\": \"run.returning\", "
        "\"steps\": 25, \"step\": 20, \"to\": \"snapshot\", \"why\": \"worker 1 was lost\"}\n",
        NULL};
    static const char said[] = "return 1, from step 25 to step 20 (snapshot): worker 1 was lost";
    pid_t pid = start_controller("returning", &returning);
    expect("top returning --once", 3, "", said);
    expect("ctl returning status", 3, "", said);
    end_controller(pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent__a_stop_that_ended_the_run_is_done),
        cmocka_unit_test(test_silent__another_end_is_none_of_a_stop),
        cmocka_unit_test(test_silent__a_run_that_goes_back_is_told_as_such),
    };
    return cmocka_run_group_tests(tests, cli_make_folder, cli_remove_folder);
}
