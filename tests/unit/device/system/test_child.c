/* A child that is stopped. Would catch: a run that goes back, whose signals wait for its next
 * controller, and that heeds no SIGTERM until the deadline of such a child has passed. */
#include "device/system/child.h"
#include "device/system/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHORT_MS = 50, LONG_MS = 60000 };

static void stop_itself(void *context)
{
    (void)context;
    for (;;) {
        raise(SIGSTOP);
    }
}

static void assert_no_child(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void test_child__that_is_stopped_is_late(void **state)
{
    (void)state;
    fl_child_end end;
    assert_int_equal(fl_child_run("test", stop_itself, NULL, SHORT_MS, &end), FL_OK);
    assert_true(end.late);
    assert_no_child();
}

static void test_child__that_is_stopped_keeps_nobody_from_a_signal(void **state)
{
    static const struct timespec at_once = {0};
    fl_child_end end;
    sigset_t set, before;
    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, &before), 0);
    kill(getpid(), SIGTERM);
    int64_t begun_us = fl_now_us();
    assert_int_equal(fl_child_run("test", stop_itself, NULL, LONG_MS, &end), FL_ESTOPPED);
    assert_true(fl_now_us() - begun_us < (int64_t)LONG_MS * 1000);
    assert_false(end.late);
    assert_no_child();
    assert_int_equal(sigtimedwait(&set, NULL, &at_once), SIGTERM); /* it is left for the caller */
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

static pid_t fork_stopped(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        stop_itself(NULL);
    }
    return pid;
}

static void test_child__that_does_not_end_by_itself_is_killed(void **state)
{
    (void)state;
    int how = 0;
    assert_false(fl_child_await(fork_stopped(), SHORT_MS, &how));
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGKILL);
    assert_no_child();
    assert_false(fl_child_await(fork_stopped(), 0, &how));
    assert_no_child();
}

static void test_child__that_ends_by_itself_is_awaited(void **state)
{
    (void)state;
    int how = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(7);
    }
    assert_true(fl_child_await(pid, LONG_MS, &how));
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 7);
    assert_no_child();
}

/* Would catch: an end whose status is not that of waitpid, and a child that is reaped by a look. */
static void test_child__that_has_ended_is_seen_before_it_is_reaped(void **state)
{
    (void)state;
    static const int codes[] = {0, 7, 255}, signals[] = {SIGKILL, SIGTERM, SIGABRT};
    for (int i = 0; i < 6; i++) {
        int seen = -1, reaped = -2;
        pid_t pid = fork();
        if (pid == 0 && i < 3) {
            _exit(codes[i]);
        } else if (pid == 0) {
            stop_itself(NULL);
        }
        if (i >= 3) {
            assert_false(fl_child_has_ended(pid, &seen));
            assert_int_equal(kill(pid, signals[i - 3]), 0);
            assert_int_equal(kill(pid, SIGCONT), 0);
        }
        for (int64_t until_us = fl_deadline_us(LONG_MS); !fl_child_has_ended(pid, &seen);) {
            assert_true(fl_left_ms(until_us) > 0);
        }
        assert_true(fl_child_has_ended(pid, &seen));
        assert_true(fl_child_reap(pid, LONG_MS, &reaped));
        assert_int_equal(seen, reaped);
        assert_false(fl_child_has_ended(pid, &seen));
    }
    assert_no_child();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child__that_is_stopped_is_late),
        cmocka_unit_test(test_child__that_is_stopped_keeps_nobody_from_a_signal),
        cmocka_unit_test(test_child__that_does_not_end_by_itself_is_killed),
        cmocka_unit_test(test_child__that_ends_by_itself_is_awaited),
        cmocka_unit_test(test_child__that_has_ended_is_seen_before_it_is_reaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
