/* A thread that runs before all others, where the process may. Would catch: one that has no such
 * priority although it may have it, and what it starts inheriting it. */
#include "device/system/thread_priority.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { FAILED = 100 };

/* The exit code of a process that runs `body`. */
static int run(int (*body)(void))
{
    int how = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(body());
    }
    return pid > 0 && waitpid(pid, &how, 0) == pid && WIFEXITED(how) ? WEXITSTATUS(how) : FAILED;
}

/* The scheduling class: SCHED_OTHER is 0, SCHED_RR 2. */
static int class_of_this(void)
{
    return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

/* What the system lets a process have. */
static int class_it_may_have(void)
{
    const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    (void)sched_setscheduler(0, SCHED_RR, &lowest);
    return class_of_this();
}

static int class_first(void)
{
    fl_thread_run_first();
    return class_of_this();
}

static int class_of_child(void)
{
    fl_thread_run_first();
    return run(class_of_this);
}

static void test_thread_priority__runs_first_where_it_may(void **state)
{
    (void)state;
    assert_int_equal(run(class_first), run(class_it_may_have));
    assert_int_equal(run(class_of_child), SCHED_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_priority__runs_first_where_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
