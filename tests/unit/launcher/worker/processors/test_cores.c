/* The choice of processors while other runs are on the machine. Would catch: two runs that are
 * pinned to one processor while another is idle, and a mark that outlives its run. */
#include "launcher/worker/processors/cores.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static cpu_set_t all;
static char name[64]; /* this test's own: runs at work on this machine have other marks */

static int n_allowed(void)
{
    return CPU_COUNT(&all);
}

static void need_two(void)
{
    if (n_allowed() < 2) {
        skip();
    }
}

static void test_cores__go_to_the_first_run_in_order(void **state)
{
    (void)state;
    fl_cores cores;
    int n = 0;
    fl_cores_take(name, n_allowed(), &cores);
    assert_int_equal(cores.n, n_allowed());
    assert_int_equal(cores.n_shared, 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &all)) {
            assert_int_equal(cores.cpu[n++], cpu);
        }
    }
    fl_cores_release(&cores);
}

static void test_cores__of_another_run_are_left_alone(void **state)
{
    (void)state;
    need_two();
    fl_cores one, other;
    fl_cores_take(name, 1, &one);
    fl_cores_take(name, 1, &other);
    assert_int_equal(one.n + other.n, 2);
    assert_int_equal(other.n_shared, 0);
    assert_int_not_equal(one.cpu[0], other.cpu[0]);
    int first = one.cpu[0];
    fl_cores_release(&one);
    fl_cores_take(name, 1, &one);
    assert_int_equal(one.cpu[0], first);
    fl_cores_release(&one);
    fl_cores_release(&other);
}

static void test_cores__are_shared_when_there_are_too_few(void **state)
{
    (void)state;
    need_two();
    fl_cores one, other;
    fl_cores_take(name, 1, &one);
    fl_cores_take(name, n_allowed(), &other);
    assert_int_equal(other.n, n_allowed());
    assert_int_equal(other.n_shared, 1);
    for (int i = 1; i < other.n; i++) {
        assert_true(other.cpu[i - 1] < other.cpu[i]);
    }
    fl_cores_release(&other);
    fl_cores_release(&one);
    fl_cores_take(name, n_allowed() + 1, &one);
    assert_int_equal(one.n, 0);
    fl_cores_release(&one);
}

/* The mark of a run that was killed, and of one whose worker outlives its owner for a while. */
static void test_cores__are_free_again_when_all_processes_have_gone(void **state)
{
    (void)state;
    fl_cores cores;
    int ready[2], status;
    assert_int_equal(pipe(ready), 0);
    pid_t owner = fork();
    if (owner == 0) {
        fl_cores_take(name, n_allowed(), &cores);
        char done = cores.n_shared == 0 ? 'y' : 'n';
        _exit(write(ready[1], &done, 1) == 1 && pause() == 0 ? 0 : 1);
    }
    char answer = 0;
    assert_int_equal(read(ready[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    fl_cores_take(name, n_allowed(), &cores);
    assert_int_equal(cores.n_shared, n_allowed());
    fl_cores_release(&cores);
    assert_int_equal(kill(owner, SIGKILL), 0);
    assert_int_equal(waitpid(owner, &status, 0), owner);
    fl_cores_take(name, n_allowed(), &cores);
    assert_int_equal(cores.n_shared, 0);
    fl_cores_release(&cores);
    close(ready[0]);
    close(ready[1]);
}

static void test_cores__are_those_that_the_user_allows(void **state)
{
    (void)state;
    need_two();
    fl_cores cores;
    cpu_set_t last, before, now;
    CPU_ZERO(&last);
    for (int cpu = CPU_SETSIZE - 1; CPU_COUNT(&last) == 0; cpu--) {
        if (CPU_ISSET((size_t)cpu, &all)) {
            CPU_SET((size_t)cpu, &last);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof last, &last), 0);
    fl_cores_take(name, 1, &cores);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(cores.n, 1);
    assert_true(CPU_ISSET((size_t)cores.cpu[0], &last));
    fl_cores_confine(&cores, &before);
    assert_true(CPU_EQUAL(&before, &all));
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &last));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    fl_cores_release(&cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores__go_to_the_first_run_in_order),
        cmocka_unit_test(test_cores__of_another_run_are_left_alone),
        cmocka_unit_test(test_cores__are_shared_when_there_are_too_few),
        cmocka_unit_test(test_cores__are_free_again_when_all_processes_have_gone),
        cmocka_unit_test(test_cores__are_those_that_the_user_allows),
    };
    snprintf(name, sizeof name, "frostline test %d", (int)getpid());
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
