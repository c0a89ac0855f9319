/* The ends of tasks that an engine has started, which are made of nothing but Slurm's variables.
 * Would catch: a task that a signal ends at any moment, and for which the others wait ten minutes;
 * a head that counts a host as lost where a signal ends the whole run; and exit codes that a script
 * cannot use. */
#include "support/hosts/net_filter.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    COMPARED = 12,
    STOPPED = 130,
    TERMINATED = 5,
    FAILED = 3,
    REFUSED = 2,
    KILLED = 128 + SIGKILL
};

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* Of two tasks; its log is task-I.log. */
static pid_t start_task_of(const net_hosts *h, int i, const char *job)
{
    char number[16], log[32], arguments[NET_HOSTS_TEXT];
    snprintf(number, sizeof number, "%d", i);
    snprintf(log, sizeof log, "task-%d.log", i);
    snprintf(arguments, sizeof arguments,
             "run %s --set pipe.k=2 --set autodp.r=1 --set pipe.m=2 --set "
             "elastic.enabled=false --set train.epochs=100000 --run-dir %s/run",
             job, h->dir);
    setenv("SLURM_JOB_ID", "9", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    setenv("SLURM_STEP_NUM_NODES", "2", 1);
    setenv("SLURM_STEP_NODELIST", "n[1-2]", 1);
    setenv("SLURM_CPUS_ON_NODE", "1", 1);
    setenv("SLURM_PROCID", number, 1);
    setenv("SLURM_NODEID", number, 1);
    return net_hosts_start(h, i, log, arguments);
}

static pid_t start_task(const net_hosts *h, int i)
{
    return start_task_of(h, i, NET_JOB);
}

static bool has_file(const net_hosts *h, const char *name)
{
    char path[FOLDER_SIZE + 64];
    snprintf(path, sizeof path, "%s/.start-9-0-0/%s", h->dir, name);
    return access(path, F_OK) == 0;
}

/* A host that leaves before the run ends has lost its worker. After a task was killed that had not
 * seen the other one, the folder may stay. */
static void expect_codes(const net_hosts *h, pid_t tasks[2], int head, int other)
{
    int codes[2] = {net_hosts_await_exit(&tasks[0]), net_hosts_await_exit(&tasks[1])};
    bool is_left = head != KILLED && other != KILLED && has_file(h, "");
    bool is_told = (head != STOPPED && head != TERMINATED) || other == 0 ||
                   net_hosts_log_has(h, "task-0.log", "stopped before the training began");
    int n_lost = other == 0 ? net_hosts_n_events(h, "worker.lost", "") : 0; /* of a run */
    if (!is_told || n_lost != 0 || codes[0] != head || codes[1] != other || is_left) {
        net_hosts_shell("cd %s && tail -n 20 task-*.log; ls -A . .start-9-0-0", h->dir);
        fail_msg("%s\nexit codes %d and %d, not %d and %d, lost: %d%s", net_hosts_said(), codes[0],
                 codes[1], head, other, n_lost, is_left ? "; the folder stays" : "");
    }
    assert_true(
        net_hosts_shell("rm -rf %s/run %s/.start-9-0-0 %s/task-*.log", h->dir, h->dir, h->dir));
}

/* The signal comes to the other task first: it waits for the head, which has it a moment later. */
static void stop_all(const net_hosts *h, int number, int head, bool trains)
{
    pid_t tasks[2] = {start_task(h, 0), start_task(h, 1)};
    if (trains) {
        NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    } else {
        NET_AWAIT(has_file(h, "head") && has_file(h, "lock-1"));
    }
    kill(tasks[1], number);
    kill(tasks[0], number);
    expect_codes(h, tasks, head, trains ? 0 : head);
}

static void test_signals__for_all_stop_the_run(void **state)
{
    const net_hosts *h = *state;
    NET_NEED(h);
    stop_all(h, SIGINT, STOPPED, true);
    stop_all(h, SIGTERM, TERMINATED, true);
}

static void test_signals__for_all_stop_a_start(void **state)
{
    const net_hosts *h = *state;
    NET_NEED(h);
    stop_all(h, SIGINT, STOPPED, false);
}

/* As soon as it has made its file, and before the other one is there. */
static void end_first(const net_hosts *h, int first, int number, int head, int other)
{
    pid_t tasks[2] = {0};
    tasks[first] = start_task(h, first);
    NET_AWAIT(has_file(h, first == 0 ? "head" : "lock-1"));
    if (number == SIGKILL) { /* of a lock that it does not have yet, nothing is known */
        NET_AWAIT(
            net_hosts_shell("test -s %s/.start-9-0-0/%s", h->dir, first == 0 ? "head" : "lock-1"));
    }
    kill(tasks[first], number);
    tasks[1 - first] = start_task(h, 1 - first);
    expect_codes(h, tasks, head, other);
}

static void test_signals__a_task_that_ends_early_is_noticed(void **state)
{
    const net_hosts *h = *state;
    NET_NEED(h);
    end_first(h, 1, SIGTERM, FAILED, TERMINATED);
    end_first(h, 1, SIGKILL, FAILED, KILLED);
    end_first(h, 0, SIGTERM, TERMINATED, TERMINATED);
    end_first(h, 0, SIGKILL, KILLED, FAILED);
}

/* The head has begun to measure the links to the task that a signal ends, and stands still until
 * the signal is there. The hosts cannot connect to the ports that are measured, so that this takes
 * five seconds. Would catch: a task that joins in the second for which it holds its end, so
 * that its host is lost a moment later, and ends without a word. */
static void test_signals__a_task_that_is_measured_tells_its_end(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    const net_hosts *h = *state;
    NET_NEED(h);
    net_filter_block(h, 0, 1, NET_FILTER_DROPS, false);
    net_filter_block(h, 1, 0, NET_FILTER_DROPS, false);
    for (int i = 0; i < 2; i++) {
        static const char job[] = NET_JOB NET_FILTER_PORTS;
        pid_t tasks[2] = {start_task_of(h, 0, job), start_task_of(h, 1, job)};
        NET_AWAIT(net_hosts_log_has(h, "task-0.log", "measures the links between hosts"));
        kill(tasks[0], SIGSTOP);
        NET_AWAIT(net_hosts_child_of(tasks[1]) != 0);
        kill(tasks[1], numbers[i]);
        kill(tasks[0], SIGCONT);
        NET_AWAIT(net_hosts_log_has(h, "task-1.log", "stopped by signal"));
        expect_codes(h, tasks, FAILED, numbers[i] == SIGTERM ? TERMINATED : STOPPED);
    }
}

/* Both tasks of a start are killed, and another start has its name. */
static void test_signals__a_start_with_the_name_of_a_killed_one_runs(void **state)
{
    const net_hosts *h = *state;
    NET_NEED(h);
    pid_t tasks[2] = {start_task(h, 0), start_task(h, 1)};
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    for (int i = 0; i < 2; i++) {
        kill(tasks[i], SIGKILL);
        assert_int_equal(net_hosts_await_exit(&tasks[i]), KILLED);
    }
    assert_true(net_hosts_shell("rm -rf %s/run", h->dir));
    assert_true(has_file(h, "lock-1"));
    tasks[0] = start_task(h, 0);
    NET_AWAIT(net_hosts_shell("! grep -q $(cat %s/.start-9-0-0/start) %s/.start-9-0-0/lock-1 && "
                              "grep -q $(cat %s/.start-9-0-0/start) %s/.start-9-0-0/task-0",
                              h->dir, h->dir, h->dir, h->dir)); /* it looks for the other one */
    tasks[1] = start_task(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    kill(tasks[0], SIGTERM);
    expect_codes(h, tasks, TERMINATED, 0);
}

/* While the head still loads its data. */
static void test_signals__a_folder_that_is_removed_ends_the_head(void **state)
{
    const net_hosts *h = *state;
    NET_NEED(h);
    pid_t head = start_task(h, 0);
    NET_AWAIT(has_file(h, "head"));
    assert_true(net_hosts_shell("rm -rf %s/.start-9-0-0", h->dir));
    assert_int_equal(net_hosts_await_exit(&head), FAILED);
    assert_true(net_hosts_log_has(h, "task-0.log", "was removed before the run began"));
}

/* Its host does not have the job. Would catch: a code for which a script starts it again and again.
 */
static void test_signals__a_task_without_a_job_is_noticed(void **state)
{
    const net_hosts *h = *state;
    NET_NEED(h);
    for (int i = 0; i < 2; i++) {
        pid_t tasks[2];
        tasks[i] = start_task_of(h, i, "missing.yaml");
        tasks[1 - i] = start_task(h, 1 - i);
        expect_codes(h, tasks, REFUSED, REFUSED);
    }
}

/* One comes after the other has ended. Would catch: a folder that stays after a start that no task
 * begins. */
static void test_signals__tasks_that_refuse_the_job_leave_nothing(void **state)
{
    const net_hosts *h = *state;
    NET_NEED(h);
    for (int first = 0; first < 2; first++) {
        pid_t task = start_task_of(h, first, "missing.yaml");
        assert_int_equal(net_hosts_await_exit(&task), REFUSED);
        assert_true(has_file(h, "")); /* the other one may be late */
        task = start_task_of(h, 1 - first, "missing.yaml");
        assert_int_equal(net_hosts_await_exit(&task), REFUSED);
        assert_false(has_file(h, ""));
    }
}

#define TWO(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TWO(test_signals__for_all_stop_the_run),
        TWO(test_signals__for_all_stop_a_start),
        TWO(test_signals__a_task_that_ends_early_is_noticed),
        TWO(test_signals__a_task_that_is_measured_tells_its_end),
        TWO(test_signals__a_start_with_the_name_of_a_killed_one_runs),
        TWO(test_signals__a_folder_that_is_removed_ends_the_head),
        TWO(test_signals__a_task_without_a_job_is_noticed),
        TWO(test_signals__tasks_that_refuse_the_job_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
