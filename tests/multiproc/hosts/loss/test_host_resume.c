/* A run on several hosts that was interrupted, or that has lost what it cannot do without. Would
 * catch: a run that continues only where it began, on other numbers of hosts and workers with other
 * losses, with samples that are used twice or never, and a host that starts from the first weights.
 * Hosts are network name spaces; without the right to make them, the tests are skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/lines.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { FIRST = 7, SECOND = 14, LAST = 20 };

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 2});
}

/* ---- --resume ---- */

/* Continue DIR/run up to a step on the hosts of these letters. */
static void resume_on(net_hosts *h, const char *letters, int n_steps, const char *more)
{
    char job[512];
    net_hosts_write_file(h, letters);
    snprintf(job, sizeof job, "--resume %s/run --set train.max_steps=%d %s", h->dir, n_steps, more);
    net_hosts_start_head(h, job);
    for (const char *c = letters + 1; *c != '\0'; c++) {
        net_hosts_start_agent(h, *c - 'a');
    }
    net_hosts_expect(h, 0);
}

#define EACH_STEP "--set train.max_steps=%d --set 'checkpoint.every=%s'"

static void test_host_resume__on_other_hosts(void **state)
{
    net_hosts *h = *state;
    char job[1024];
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    snprintf(job, sizeof job, NET_JOB EACH_STEP " --set pipe.k=2 --set autodp.r=1", FIRST,
             "5 steps");
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    net_hosts_expect(h, 0);
    resume_on(h, "abc", SECOND, "--set pipe.k=2 --set autodp.r=2");
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "\"step\": 7"), 1);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "\"first_worker\""), 1); /* hosts */
    assert_int_equal(net_hosts_n_events(h, "plan.chosen", "\"r\": 2"), 1);
    assert_true(net_hosts_shell("'%s/frostline' run --resume %s/run --set train.max_steps=%d "
                                "--set devices.count=1 --set pipe.k=1 --set autodp.r=1",
                                FL_BINARY_DIR, h->dir, LAST));
    snprintf(job, sizeof job, "--set train.max_steps=%d", LAST);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, LAST, LAST);
}

/* ---- going back ---- */

/* Runs last until they are stopped: a loss comes in the middle of the training, however fast steps
 * are. COMPARED: the rounding of the larger model comes to 1e-5 after 200 steps. */
enum { ENDLESS = 1000000, KILL_AT = 30, MORE = 20, COMPARED = 100, STOPPED = 5 };
#define LARGER "--set model.dim=64 --set model.blocks=4 "

/* Hosts a, b and c, in one pipeline with a checkpoint after every fifth step. */
static void start_pipeline(net_hosts *h, const char *more)
{
    char job[1024];
    snprintf(job, sizeof job,
             NET_JOB EACH_STEP " --set train.epochs=%d --set pipe.k=4 --set autodp.r=1 %s", ENDLESS,
             "5 steps", ENDLESS, more);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_steps(h) > KILL_AT);
}

/* It has gone back once, and trains on until it is stopped. */
static void stop_resumed(net_hosts *h)
{
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") > 0);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + MORE && net_hosts_n_steps(h) > COMPARED);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", ""), 1);
}

static void check_first(const net_hosts *h, const char *more)
{
    char job[128];
    snprintf(job, sizeof job, "%s --set train.max_steps=%d", more, COMPARED);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

/* The head learns it at once; that it notices a host which vanishes is shown in test_hosts.c. */
static void lose_agent(net_hosts *h, int i)
{
    kill(h->host[i].agent, SIGINT);
    assert_int_equal(net_hosts_await_exit(&h->host[i].agent), 130);
}

/* A field of the only event of this name. */
static int value_in(const net_hosts *h, const char *event, const char *field)
{
    char dir[FOLDER_SIZE + 16], name[64];
    snprintf(dir, sizeof dir, "%s/run", h->dir);
    snprintf(name, sizeof name, "\"event\": \"%s\"", event);
    json_t *events = lines_with(dir, "events.jsonl", name);
    assert_int_equal(length(events), 1);
    int value = number(json_array_get(events, 0), field);
    json_decref(events);
    return value;
}

/* A lost host had layers that no other one has. The rest go back, the other agent with them. The
 * host was lost at the step from which they go back, not at the one to which. Their plan was chosen
 * from candidates, as the first one was. */
static void test_host_resume__goes_back_on_the_hosts_that_are_left(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_pipeline(h, "--set fault.snapshot=none");
    lose_agent(h, 1);
    stop_resumed(h);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "repeated_steps"), 1);
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"host\": \"b\""), 1);
    assert_int_equal(value_in(h, "host.lost", "step"),
                     value_in(h, "run.resumed", "step") +
                         value_in(h, "run.resumed", "repeated_steps"));
    assert_int_equal(net_hosts_n_events(h, "plan.chosen", "\"candidates\": [{"), 2);
    assert_true(net_hosts_log_has(h, "c.log", "the run goes back to an earlier step"));
    check_first(h, "");
}

/* The head has the state of all hosts in memory: with that, no file is needed. The worker of the
 * lost host comes back nowhere; the others of its pipeline get the head's copy of their layers. */
static void test_host_resume__goes_back_to_the_snapshot_of_the_head(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_pipeline(h, "--set checkpoint.every=none --set 'fault.snapshot=10 steps'");
    lose_agent(h, 1);
    stop_resumed(h);
    assert_true(net_hosts_n_events(h, "snapshot.taken", "") > 0);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "the snapshot in memory"), 1);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "\"refused\": []"), 1);
    check_first(h, "");
}

/* With one after every step there is always one on its way: its layers are 2 MB, those of a step a
 * few. The worker that sends its part dies in between. */
static void test_host_resume__goes_back_while_a_snapshot_is_on_its_way(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_pipeline(h, LARGER "--set checkpoint.every=none --set 'fault.snapshot=1 steps'");
    NET_AWAIT(net_hosts_n_events(h, "snapshot.taken", "") > 0);
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    stop_resumed(h);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "the snapshot in memory"), 1);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "\"refused\": []"), 1);
    check_first(h, LARGER);
}

/* Its agent starts it again, in a new process of the agent. There is no checkpoint yet. */
static void test_host_resume__goes_back_to_the_start_with_all_hosts(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_pipeline(h, "--set checkpoint.every=none --set fault.snapshot=none");
    kill(net_hosts_worker_pid(h, 2), SIGKILL);
    stop_resumed(h);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "the start of the run"), 1);
    assert_true(net_hosts_log_has(h, "b.log", "the run goes back to an earlier step"));
    assert_true(net_hosts_log_has(h, "c.log", "the run goes back to an earlier step"));
    check_first(h, "");
}

/* `frostline ARGUMENTS` about DIR/run ends with this code, and says the text. */
static void expect_said(const net_hosts *h, const char *command, int code, const char *text)
{
    bool same = net_hosts_shell("'%s/frostline' %s > %s/said 2>&1; test $? = %d", FL_BINARY_DIR,
                                command, h->dir, code);
    if (!same || !net_hosts_log_has(h, "said", text)) {
        (void)net_hosts_shell("cat %s/said; tail -n 4 %s/run/events.jsonl | cut -c 1-100", h->dir,
                              h->dir);
        fail_msg("frostline %s: expected %d and \"%s\":\n%s", command, code, text,
                 net_hosts_said());
    }
}

/* Would catch: a run that is called lost, or over, while it waits for a host to join again, and
 * that another process may take over then; a request to stop that is refused. */
static void test_host_resume__lives_while_it_waits_for_a_host(void **state)
{
    net_hosts *h = *state;
    char command[512];
    NET_NEED(h);
    start_pipeline(h, "");
    kill(h->host[1].agent, SIGSTOP);
    kill(net_hosts_worker_pid(h, 2), SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "to join again"));
    snprintf(command, sizeof command, "list %s", h->dir);
    expect_said(h, command, 0, "recovering");
    snprintf(command, sizeof command, "ctl %s/run status --timeout 100", h->dir); /* at once */
    expect_said(h, command, 3, "recovering: the run goes back after a loss");
    snprintf(command, sizeof command, "top %s/run", h->dir);
    expect_said(h, command, 3, "recovering: the run goes back after a loss");
    snprintf(command, sizeof command, "run --resume %s/run", h->dir);
    expect_said(h, command, 3, "the run goes back after a loss");
    kill(h->host[1].agent, SIGCONT);
    snprintf(command, sizeof command, "ctl %s/run stop", h->dir);
    expect_said(h, command, 0, "");
    assert_int_equal(net_hosts_await_exit(&h->head), 130);
    assert_int_equal(net_hosts_n_events(h, "run.stopped", ""), 1);
}

/* Would catch: a host that is refused for ever because it was not there when the run went back to a
 * checkpoint that is gone by now. */
static void test_host_resume__a_host_that_was_not_there_joins_later(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_pipeline(h, "--set fault.snapshot=none --set elastic.enabled=false");
    lose_agent(h, 1);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "repeated_steps") == 1);
    NET_AWAIT(net_hosts_shell("step=$(sed -n 's/.*run.resumed.*\"step\": *\\([0-9]*\\).*/\\1/p' "
                              "%s/run/events.jsonl) && test -n \"$step\" && "
                              "! test -e %s/run/checkpoints/step-$(printf %%09d $step)",
                              h->dir, h->dir));
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"b\"") == 1);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
}

/* Would catch: an agent that waits for a head which has given up. */
static void test_host_resume__ends_where_the_hosts_left_do_not_suffice(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_pipeline(h, "--set model.blocks=6 --set model.dim=48 --set devices.memory=1500KiB "
                      "--set pipe.m=16");
    lose_agent(h, 2);
    assert_int_equal(net_hosts_await_exit(&h->head), 3);
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 3);
    assert_true(net_hosts_log_has(h, "head.log", "the run cannot go back"));
    assert_true(net_hosts_log_has(h, "b.log", "the run has ended: "));
    assert_int_equal(net_hosts_n_events(h, "run.failed", ""), 1);
}

#define HOSTS(test) cmocka_unit_test_setup_teardown(test, make_three, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTS(test_host_resume__on_other_hosts),
        HOSTS(test_host_resume__goes_back_on_the_hosts_that_are_left),
        HOSTS(test_host_resume__goes_back_to_the_snapshot_of_the_head),
        HOSTS(test_host_resume__goes_back_while_a_snapshot_is_on_its_way),
        HOSTS(test_host_resume__goes_back_to_the_start_with_all_hosts),
        HOSTS(test_host_resume__lives_while_it_waits_for_a_host),
        HOSTS(test_host_resume__a_host_that_was_not_there_joins_later),
        HOSTS(test_host_resume__ends_where_the_hosts_left_do_not_suffice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
