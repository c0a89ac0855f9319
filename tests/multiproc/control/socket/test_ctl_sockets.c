/* The sockets of a run, from before they are there until its head is killed. Would catch: sockets
 * that others may use or that a run leaves behind, and a run that is called live, lost or over when
 * it is not. */
#include "device/system/clock.h"
#include "launcher/cli/ctl/ctl_place.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/runs.h"
#include "support/folder.h"
#include "support/runs/live_run.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Two workers, one pipeline; more epochs than any test wants. */
#define BASE                                                                                       \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "devices.count", "2",      \
        "pipe.k", "2", "autodp.r", "1", "pipe.m", "2"
#define ENDLESS BASE, "train.epochs", "9000", "train.decay", "constant", "train.warmup", "0"

static void test_ctl__the_sockets_are_this_users_and_go_with_the_run(void **state)
{
    (void)state;
    static const char *const names[] = {"control.sock", "events.sock"};
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    char path[256];
    struct stat info;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", run.dir, names[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", run.dir, names[i]);
        assert_int_not_equal(stat(path, &info), 0);
    }
    live_clean(&run);
}

/* Would catch: a run that counts as live because its controller was killed before it removed its
 * files. */
static void test_ctl__a_run_whose_head_was_killed_is_lost(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    fl_run_entry entry;
    live_await_step(&run, 5);
    assert_int_equal(fl_run_look(run.dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_LIVE);
    kill(run.controller, SIGKILL);
    assert_int_equal(waitpid(run.controller, NULL, 0), run.controller);
    fl_ctl_client_close(&run.ctl);
    assert_int_equal(fl_run_look(run.dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_LOST);
    assert_true(entry.steps >= 5);
    assert_int_equal(fl_run_find("/nonexistent", run.dir, &entry), FL_EINVAL);
    live_clean(&run);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A process that has begun a run and does not listen yet. Returns once it holds the run. */
static pid_t begin_run(const char *dir)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool held = fl_run_hold(dir_fd) >= 0 && write(ready[1], &byte, 1) == 1;
        if (held) {
            raise(SIGSTOP); /* until it is killed */
        }
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* A client waits for a run that does not answer yet until its deadline. */
static void check_await(const char *dir)
{
    fl_args args = {.operand = dir};
    fl_ctl_place place;
    int64_t deadline_us = fl_deadline_us(200);
    assert_int_equal(fl_ctl_place_await(&args, dir, FL_CTL_PATIENT, deadline_us, &place), FL_EBUSY);
    assert_non_null(strstr(fl_errmsg(), "try again later, or with a longer --timeout"));
    assert_int_equal(fl_left_ms(deadline_us), 0); /* asked again until then */
}

/* Would catch: a run called lost, or over, in the moments before its sockets are there; a client
 * that does not wait for them. */
static void test_ctl__a_run_that_does_not_answer_yet_is_starting(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_run_entry entry;
    make_folder(dir);
    write_file(dir, "job.yaml", "name: early\n");
    write_file(dir, "events.jsonl", "{\"event\": \"run.started\", \"job\": \"early\"}\n");
    pid_t pid = begin_run(dir);
    assert_int_equal(fl_run_look(dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_STARTING);
    assert_int_equal(fl_run_find("/nonexistent", dir, &entry), FL_EBUSY);
    assert_non_null(strstr(fl_errmsg(), "the run is starting and does not answer yet"));
    check_await(dir);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fl_run_look(dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_LOST);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ctl__the_sockets_are_this_users_and_go_with_the_run),
        cmocka_unit_test(test_ctl__a_run_whose_head_was_killed_is_lost),
        cmocka_unit_test(test_ctl__a_run_that_does_not_answer_yet_is_starting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
