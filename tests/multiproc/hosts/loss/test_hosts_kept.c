/* A person ends the wait of a run that goes back for hosts, and snapshots in memory are all that it
 * has. Would catch: the work since its start lost with them, and a command that does not continue
 * this run. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

/* Would catch: a record that is cut before the hosts have joined again, and no longer says why the
 * run goes back. */
static void expect_return_told(const net_hosts *h, const char *to)
{
    (void)net_hosts_shell("'%s/frostline' ctl %s/run status 2>&1; echo code $?", FL_BINARY_DIR,
                          h->dir);
    const char *told = net_hosts_said();
    if (strstr(told, "recovering: the run goes back after a loss, for ") == NULL ||
        strstr(told, " s, return 1, from step ") == NULL || strstr(told, to) == NULL ||
        strstr(told, "code 3") == NULL || strstr(told, "; it waits for host c (10.") == NULL ||
        strstr(told, ") to join again, for ") == NULL) {
        fail_msg("told: %s", told);
    }
}

/* Host b is lost with a layer; host c, whose agent is stopped, does not join again.
 * snapshots  "none": the run goes back to its first step */
static void lose_hosts(net_hosts *h, const char *snapshots, const char *checkpoints)
{
    bool keeps = strcmp(snapshots, "none") != 0;
    char job[1024];
    snprintf(job, sizeof job,
             NET_JOB "--set train.max_steps=100000 --set train.epochs=100 --set pipe.k=3 "
                     "--set autodp.r=1 --set pipe.m=2 --set elastic.enabled=false "
                     "--set fault.snapshot='%s' --set fault.detect=3s --set checkpoint.every=%s",
             snapshots, checkpoints);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    NET_AWAIT(!keeps || net_hosts_n_events(h, "snapshot.taken", "") > 1);
    kill(h->host[2].agent, SIGSTOP);
    kill(h->host[1].agent, SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "waits for 1 other host to join again"));
    expect_return_told(h, keeps ? " (snapshot): worker " : " to step 0 (first step): worker ");
}

static void kill_agents(net_hosts *h)
{
    for (int i = 1; i < 3; i++) {
        kill(h->host[i].agent, SIGKILL);
        (void)net_hosts_await_exit(&h->host[i].agent);
    }
}

/* by_ctl  a client ends the wait, else SIGTERM does */
static void stop_while_it_waits(net_hosts *h, const char *snapshots, const char *checkpoints,
                                bool by_ctl)
{
    lose_hosts(h, snapshots, checkpoints);
    if (!by_ctl) {
        kill(h->head, SIGTERM);
    } else if (!net_hosts_shell("'%s/frostline' ctl %s/run stop", FL_BINARY_DIR, h->dir)) {
        fail_msg("not stopped: %s", net_hosts_said());
    }
    assert_int_equal(net_hosts_await_exit(&h->head), by_ctl ? 130 : 5);
    assert_true(net_hosts_shell("! ls %s/run | grep -q ^waiting", h->dir));
    kill_agents(h);
}

/* The command that the log names, without the name of the program. */
static void read_command(const net_hosts *h, const char *begins, char *text, size_t size_bytes)
{
    bool found = net_hosts_shell("sed -n 's|.*`frostline \\(%s[^`]*\\)`.*|\\1|p' %s/head.log | "
                                 "tail -n 1 | tr -d '\\n'",
                                 begins, h->dir);
    snprintf(text, size_bytes, "%s", net_hosts_said());
    if (!found || text[0] == '\0') {
        net_hosts_show_logs(h);
        fail_msg("no command");
    }
}

static void test_hosts_kept__a_snapshot_becomes_a_checkpoint(void **state)
{
    net_hosts *h = *state;
    char command[NET_HOSTS_TEXT];
    NET_NEED(h);
    stop_while_it_waits(h, "3 steps", "1h", false);
    read_command(h, "run --resume", command, sizeof command);
    if (!net_hosts_log_has(h, "head.log", "its snapshot in memory of step")) {
        net_hosts_show_logs(h);
        fail_msg("no checkpoint");
    }
    assert_true(net_hosts_shell("'%s/frostline' list %s --json | grep -q '\"stopped\"'",
                                FL_BINARY_DIR, h->dir));
    h->head = net_hosts_start(h, 0, "again.log", command);
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "checkpoints/step-") > 0 ||
              net_hosts_log_has(h, "again.log", "error"));
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + 5);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
    assert_true(net_hosts_shell("'%s/frostline' ledger %s/run", FL_BINARY_DIR, h->dir));
    assert_true(
        net_hosts_shell("grep -q 'continue .*run --resume .* --hosts %s/hosts.yaml --listen "
                        "tcp://%s:5570$' %s/again.log",
                        h->dir, h->host[0].address, h->dir));
}

static void test_hosts_kept__a_run_without_checkpoints_says_so(void **state)
{
    net_hosts *h = *state;
    char command[NET_HOSTS_TEXT], options[2 * NET_HOSTS_TEXT];
    NET_NEED(h);
    stop_while_it_waits(h, "3 steps", "none", true);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "its snapshot in memory is lost: checkpoint.every is none"));
    assert_true(net_hosts_shell("[ ! -e %s/run/checkpoints ]", h->dir));
    read_command(h, "run /", command, sizeof command);
    snprintf(options, sizeof options, "run %s/run/job.yaml --hosts %s/hosts.yaml", h->dir, h->dir);
    assert_int_equal(strncmp(command, options, strlen(options)), 0);
    snprintf(options, sizeof options, " --run-dir %s/run-2", h->dir);
    assert_non_null(strstr(command, options));
}

/* Would catch: a record that is empty from the beginning of the wait on, so that the run "starts".
 */
static void test_hosts_kept__a_return_to_the_first_step_is_told(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    stop_while_it_waits(h, "none", "none", true);
    assert_true(net_hosts_shell("'%s/frostline' list %s --json | grep -q '\"stopped\"'",
                                FL_BINARY_DIR, h->dir));
}

/* Would catch: a command with a job file that is gone. */
static void test_hosts_kept__a_removed_job_is_no_advice(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    lose_hosts(h, "none", "none");
    assert_true(net_hosts_shell("rm -r %s/run", h->dir));
    kill(h->head, SIGTERM);
    (void)net_hosts_await_exit(&h->head);
    kill_agents(h);
    if (!net_hosts_log_has(h, "head.log", "run/job.yaml was removed: the command that began") ||
        net_hosts_log_has(h, "head.log", "run/job.yaml --hosts")) {
        net_hosts_show_logs(h);
        fail_msg("advice with a job that was removed");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hosts_kept__a_snapshot_becomes_a_checkpoint,
                                        make_three, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_kept__a_run_without_checkpoints_says_so,
                                        make_three, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_kept__a_return_to_the_first_step_is_told,
                                        make_three, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_kept__a_removed_job_is_no_advice, make_three,
                                        net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
