/* The agent over real processes, as its controller sees it: it starts, watches and ends workers,
 * and survives what its controller does, or does not do. */
#include "support/runs/agent_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static agent_shared *now_shared; /* of the test that runs */

/* In place of the C library's, for all of this program: inside the kernel, a parent may have to
 * wait for a thread of the child that it reaps, and nothing ends that wait. */
pid_t waitpid(pid_t pid, int *stat_loc, int options)
{
    while (now_shared != NULL && atomic_load(&now_shared->held) == getpid()) {
        nap(1000);
    }
    return wait4(pid, stat_loc, options, NULL);
}

static int set_up(void **state)
{
    int failed = agent_rig_set_up(state);
    now_shared = ((agent_rig *)*state)->shared;
    return failed;
}

static int tear_down(void **state)
{
    now_shared = NULL;
    return agent_rig_tear_down(state);
}

static void test_agent__starts_workers_and_reports_their_exits(void **state)
{
    agent_rig *r = *state;
    agent_rig_start(r);
    assert_int_equal(atomic_load(&r->shared->n_closed), 1);
    assert_int_equal(fl_agent_watch(r->agent), AGENT_RIG_WORKERS);
    for (int i = 0; i < AGENT_RIG_WORKERS; i++) {
        assert_int_equal(r->workers[i].pid, atomic_load(&r->shared->pid[i]));
    }
    assert_int_not_equal(atomic_load(&r->shared->agent), getpid());
    atomic_store(&r->shared->leaves, 1 << 1);
    AWAIT(fl_agent_watch(r->agent) == AGENT_RIG_WORKERS - 1);
    assert_true(r->workers[1].exited_us > 0 && !r->workers[1].killed);
    assert_true(WIFEXITED(r->workers[1].wait_status));
    assert_int_equal(WEXITSTATUS(r->workers[1].wait_status), AGENT_RIG_EXIT_CODE);
    char *log = agent_rig_log(r, 1);
    assert_non_null(strstr(log, "worker 1: stage 0 of replica 1, process "));
    assert_non_null(strstr(log, "worker 1 at nowhere, step 0 of 40\n"));
    free(log);
    log = agent_rig_log(r, 2);
    assert_non_null(strstr(log, "standby, process "));
    free(log);
}

static void test_agent__kills_one_worker_alone(void **state)
{
    agent_rig *r = *state;
    agent_rig_start(r);
    fl_agent_kill(r->agent, &r->workers[1], 1);
    assert_true(r->workers[1].killed && WIFSIGNALED(r->workers[1].wait_status));
    assert_int_equal(WTERMSIG(r->workers[1].wait_status), SIGKILL);
    AWAIT(agent_process_is_gone(r->workers[1].pid)); /* the agent reaps it */
    assert_int_equal(fl_agent_watch(r->agent), AGENT_RIG_WORKERS - 1);
    assert_int_equal(kill(r->workers[0].pid, 0), 0);
}

static void test_agent__looks_at_processes(void **state)
{
    agent_rig *r = *state;
    fl_process_look look;
    agent_rig_start(r);
    assert_false(fl_agent_look(r->agent, 0, &look)); /* asks */
    AWAIT(fl_agent_watch(r->agent) == AGENT_RIG_WORKERS && fl_agent_look(r->agent, 0, &look));
    assert_true(look.cpu_us > 0);
    fl_agent_kill(r->agent, &r->workers[0], 1);
    for (int i = 0; i < 20; i++) { /* no look at what has ended */
        fl_agent_watch(r->agent);
        bool known = fl_agent_look(r->agent, 0, &look);
        assert_true(!known || i < 2); /* an answer from before may still come */
        nap(1000);
    }
}

/* Would catch: an exit that the controller learns only once the agent has reaped the worker, which
 * may take minutes; and a run that does not end without that agent. */
static void test_agent__tells_an_exit_before_it_reaps(void **state)
{
    agent_rig *r = *state;
    agent_rig_start(r);
    pid_t agent = atomic_load(&r->shared->agent);
    atomic_store(&r->shared->held, (int)agent);
    atomic_store(&r->shared->leaves, 1 << 1);
    AWAIT(fl_agent_watch(r->agent) == AGENT_RIG_WORKERS - 1);
    assert_int_equal(WEXITSTATUS(r->workers[1].wait_status), AGENT_RIG_EXIT_CODE);
    assert_int_equal(kill(r->workers[1].pid, 0), 0); /* a zombie */
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    assert_true(agent_process_is_gone(agent));
    agent_rig_assert_gone(r);
}

/* Would catch: exits at the end of a run that nobody learns, for the same reason. */
static void test_agent__tells_all_exits_before_it_reaps_at_its_end(void **state)
{
    agent_rig *r = *state;
    agent_rig_start(r);
    atomic_store(&r->shared->held, atomic_load(&r->shared->agent));
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    for (int i = 0; i < AGENT_RIG_WORKERS; i++) {
        assert_true(r->workers[i].exited_us > 0 && WIFSIGNALED(r->workers[i].wait_status));
    }
    agent_rig_assert_gone(r);
}

/* Would catch: an orphan, or a zombie, after the end of a run. */
static void test_agent__ends_all_when_it_is_closed(void **state)
{
    agent_rig *r = *state;
    agent_rig_start(r);
    pid_t agent = atomic_load(&r->shared->agent);
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    assert_null(r->agent);
    assert_true(agent_process_is_gone(agent));
    for (int i = 0; i < AGENT_RIG_WORKERS; i++) {
        assert_true(kill(r->workers[i].pid, 0) != 0 && errno == ESRCH);
        assert_true(WIFSIGNALED(r->workers[i].wait_status));
    }
}

/* Would catch: workers that outlive their agent, and a controller that does not notice. */
static void test_agent__takes_its_workers_with_it(void **state)
{
    agent_rig *r = *state;
    char text[256];
    agent_rig_start(r);
    assert_false(fl_agent_is_lost(r->agent, text, sizeof text));
    kill(atomic_load(&r->shared->agent), SIGKILL);
    AWAIT(fl_agent_watch(r->agent) == 0);
    assert_true(fl_agent_is_lost(r->agent, text, sizeof text));
    assert_non_null(strstr(text, "the agent, the parent of the workers, was killed by signal 9"));
    agent_rig_assert_gone(r);
    fl_agent_kill(r->agent, r->workers,
                  AGENT_RIG_WORKERS); /* what comes late finds nobody, and does not wait */
    fl_process_look look;
    assert_false(fl_agent_look(r->agent, 0, &look));
}

/* Would catch: a controller that waits for an agent which does not run, an exit that is lost, and
 * workers that are killed because their agent was stopped. */
static void test_agent__may_be_stopped(void **state)
{
    agent_rig *r = *state;
    fl_process_look look;
    agent_rig_start(r);
    pid_t agent = atomic_load(&r->shared->agent);
    kill(agent, SIGSTOP);
    atomic_store(&r->shared->leaves, 1 << 0);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(fl_agent_watch(r->agent), AGENT_RIG_WORKERS);
        (void)fl_agent_look(r->agent, 1, &look);
    }
    fl_agent_kill(r->agent, &r->workers[2], 1); /* gives up waiting */
    assert_true(r->workers[2].killed && r->workers[2].exited_us == 0);
    assert_int_equal(kill(r->workers[1].pid, 0), 0);
    kill(agent, SIGCONT);
    AWAIT(fl_agent_watch(r->agent) == 1);
    assert_int_equal(WEXITSTATUS(r->workers[0].wait_status), AGENT_RIG_EXIT_CODE);
    assert_int_equal(WTERMSIG(r->workers[2].wait_status), SIGKILL);
    assert_true(kill(r->workers[1].pid, 0) == 0);
}

static void test_agent__ends_even_if_it_is_stopped(void **state)
{
    agent_rig *r = *state;
    agent_rig_start(r);
    kill(atomic_load(&r->shared->agent), SIGSTOP);
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    assert_true(agent_process_is_gone(atomic_load(&r->shared->agent)));
    agent_rig_assert_gone(r);
}

/* Would catch: orphans of a controller that was killed. */
static void test_agent__ends_with_its_controller(void **state)
{
    agent_rig *r = *state;
    pid_t controller = fork();
    if (controller == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when an assertion fails */
        if (fl_agent_open(&r->options, r->workers, &r->agent) == FL_OK &&
            fl_agent_start_all(r->agent, &agent_rig_birth) == FL_OK) {
            pause();
        }
        _exit(1);
    }
    AWAIT(agent_rig_has_begun(r->shared));
    kill(controller, SIGKILL);
    assert_int_equal(waitpid(controller, NULL, 0), controller);
    AWAIT(agent_process_is_gone(atomic_load(&r->shared->agent)));
    for (int i = 0; i < AGENT_RIG_WORKERS; i++) {
        AWAIT(agent_process_is_gone(atomic_load(&r->shared->pid[i])));
    }
}

/* Would catch: a Ctrl-C at a terminal, or a SIGTERM of a batch system for the whole process group,
 * that ends the agent before the controller has ended the run. */
static void test_agent__leaves_signals_to_the_controller(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGPIPE, SIGXCPU};
    agent_rig *r = *state;
    agent_rig_start(r);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        kill(atomic_load(&r->shared->agent), numbers[i]);
    }
    fl_agent_kill(r->agent, &r->workers[1], 1);
    assert_int_equal(WTERMSIG(r->workers[1].wait_status), SIGKILL);
    assert_int_equal(fl_agent_watch(r->agent), AGENT_RIG_WORKERS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_agent__starts_workers_and_reports_their_exits, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_agent__kills_one_worker_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__looks_at_processes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__tells_an_exit_before_it_reaps, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_agent__tells_all_exits_before_it_reaps_at_its_end,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__ends_all_when_it_is_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__takes_its_workers_with_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__may_be_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__ends_even_if_it_is_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__ends_with_its_controller, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__leaves_signals_to_the_controller, set_up,
                                        tear_down),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* adopts what a dead agent or controller leaves */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
