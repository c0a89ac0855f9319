/* A start that finds the run of a process which ends it: how long it waits, and what it says then.
 * The process is one of the test: it holds job.yaml, and the record names it. Nothing is trained.
 */
#include "launcher/run/plan/resume.h"
#include "launcher/run/runs/run_ending.h"
#include "support/cli.h"

#include "device/system/alloc.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 60000, OWN_PID = 1, NO_NAMESPACE = 77 };

static char run_dir[400];

static void write_record(const char *mode, const char *event, int pid)
{
    char path[420];
    snprintf(path, sizeof path, "%s/events.jsonl", run_dir);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fprintf(file, "{\"wall\": \"2026-01-31T09:30:00.000Z\", \"event\": \"%s\", ", event);
    fprintf(file, "\"controller_pid\": %d}\n", pid);
    fclose(file);
}

static int make_run(void **state)
{
    cli_make_folder(state);
    cli_must_run("mkdir run; echo 'name: small' >run/job.yaml");
    snprintf(run_dir, sizeof run_dir, "%s/run", cli_folder);
    return 0;
}

/* ---- the process that has the run ---- */

/* child: that process, as it was forked; it ends with the descriptor `ends`. */
typedef struct holder {
    pid_t child;
    int ends;
} holder;

static void hold(int told, int ends)
{
    char path[420], byte = 0;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s/job.yaml", run_dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    byte = fd >= 0 && fcntl(fd, F_SETLK, &whole) == 0 ? 'y' : 'n';
    (void)!write(told, &byte, 1);
    (void)!read(ends, &byte, 1);
    _exit(0);
}

static bool enter_namespace(void)
{
    return unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0;
}

/* As a container does: its first process is number 1 there. */
static void hold_in_namespace(int told, int ends)
{
    int wait_status;
    if (!enter_namespace()) {
        _exit(NO_NAMESPACE);
    }
    if (fork() == 0) {
        hold(told, ends);
    }
    wait(&wait_status);
    _exit(0);
}

/* False: the system permits no name space. */
static bool start_holder(bool in_namespace, holder *out)
{
    int told[2], ends[2];
    char byte = 0;
    assert_int_equal(pipe(told) + pipe(ends), 0);
    out->child = fork();
    if (out->child == 0) {
        close(told[0]);
        close(ends[1]);
        in_namespace ? hold_in_namespace(told[1], ends[0]) : hold(told[1], ends[0]);
    }
    close(told[1]);
    close(ends[0]);
    out->ends = ends[1];
    bool held = read(told[0], &byte, 1) == 1;
    close(told[0]);
    assert_true(byte == 'y' || (!held && in_namespace));
    return held;
}

static void end_holder(const holder *h)
{
    int wait_status;
    close(h->ends);
    waitpid(h->child, &wait_status, 0);
}

/* The state that `list` shows in another container than the holder's; -1: there is none. */
static int look_in_namespace(void)
{
    int wait_status = 0;
    pid_t child = fork();
    if (child == 0) {
        fl_run_entry entry;
        if (!enter_namespace()) {
            _exit(NO_NAMESPACE);
        }
        pid_t first = fork();
        if (first == 0) {
            _exit(fl_run_look(run_dir, &entry) == FL_OK ? (int)entry.state : NO_NAMESPACE);
        }
        waitpid(first, &wait_status, 0);
        _exit(WEXITSTATUS(wait_status));
    }
    waitpid(child, &wait_status, 0);
    return WEXITSTATUS(wait_status) == NO_NAMESPACE ? -1 : WEXITSTATUS(wait_status);
}

/* ---- tests ---- */

/* Would catch: "starting" of a run that has ended, seen from another container, which cannot tell
 * the process that ends it from one that resumes it. One that waits for its hosts says so. */
static void test_ending__another_container_sees_the_end(void **state)
{
    (void)state;
    holder h;
    write_record("w", "run.started", OWN_PID);
    write_record("a", "run.stopped", OWN_PID);
    bool possible = start_holder(true, &h);
    int ends = look_in_namespace();
    cli_must_run("echo 'since 1, 600 s at most, 0: b (10.0.0.2)' >run/waiting.txt");
    int resumes = look_in_namespace();
    cli_must_run("rm run/waiting.txt");
    end_holder(&h);
    if (!possible || ends < 0) {
        print_message("[  NOTE  ] no name space of processes may be made here\n");
        skip();
    }
    assert_int_equal(ends, FL_RUN_STOPPED);
    assert_int_equal(resumes, FL_RUN_STARTING);
}

/* Would catch: a scheduler's start that ends at once because the head is in a container, where it
 * has another number than outside. */
static void test_ending__a_head_in_a_container_is_waited_for(void **state)
{
    (void)state;
    holder h;
    write_record("w", "run.started", OWN_PID);
    write_record("a", "run.stopping", OWN_PID);
    bool possible = start_holder(true, &h);
    fl_run_ending ending = fl_run_ending_look(run_dir);
    end_holder(&h);
    if (!possible) {
        print_message("[  NOTE  ] no name space of processes may be made here\n");
        skip();
    }
    assert_true(ending.ends);
    assert_true(ending.holder > OWN_PID);
}

/* Would catch: a start that waits for one which takes the run over. */
static void test_ending__a_process_that_resumes_the_run_does_not_end_it(void **state)
{
    (void)state;
    holder h;
    write_record("w", "run.started", (int)getpid());
    write_record("a", "run.stopped", (int)getpid());
    start_holder(false, &h);
    fl_run_ending ending = fl_run_ending_look(run_dir);
    end_holder(&h);
    assert_false(ending.ends || ending.starts);
    assert_int_equal(ending.holder, h.child);
}

/* Would catch: "the run still trains" of a run that a process has been ending all the time. */
static void test_ending__the_message_names_the_process_and_the_time(void **state)
{
    (void)state;
    holder h;
    char expected[80];
    fl_resume *resume = NULL;
    assert_int_equal(fl_alloc(sizeof *resume, (void **)&resume), FL_OK);
    start_holder(false, &h);
    write_record("w", "run.started", (int)h.child);
    write_record("a", "run.stopping", (int)h.child);
    fl_status status = fl_resume_open(run_dir, resume);
    end_holder(&h);
    fl_resume_close(resume);
    fl_free(resume);
    assert_int_equal(status, FL_EBUSY);
    snprintf(expected, sizeof expected, "process %d has been ending the run for ", (int)h.child);
    if (strstr(fl_errmsg(), expected) == NULL || strstr(fl_errmsg(), "`kill ") == NULL) {
        fail_msg("%s", fl_errmsg());
    }
}

static int n_looks;

/* Asked between two looks: the run trains again before the first answer. */
static int train_again(void)
{
    if (n_looks++ == 0) {
        write_record("a", "run.resumed", (int)getpid());
    }
    return n_looks > 3 ? SIGTERM : 0;
}

/* Would catch: a start that waits on when another one has taken the run and trains it. */
static void test_ending__the_wait_ends_when_the_run_trains_again(void **state)
{
    (void)state;
    holder h;
    start_holder(false, &h);
    write_record("w", "run.started", (int)h.child);
    write_record("a", "run.stopping", (int)h.child);
    n_looks = 0;
    int number = fl_run_await_end(run_dir, WAIT_MS, train_again);
    end_holder(&h);
    assert_int_equal(number, 0);
    assert_int_equal(n_looks, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ending__a_head_in_a_container_is_waited_for),
        cmocka_unit_test(test_ending__another_container_sees_the_end),
        cmocka_unit_test(test_ending__a_process_that_resumes_the_run_does_not_end_it),
        cmocka_unit_test(test_ending__the_message_names_the_process_and_the_time),
        cmocka_unit_test(test_ending__the_wait_ends_when_the_run_trains_again),
    };
    return cmocka_run_group_tests(tests, make_run, cli_remove_folder);
}
