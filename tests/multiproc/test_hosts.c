/* Runs on two hosts, which are two network name spaces with a virtual cable between them: they
 * share processors and files, and no address. Would catch: a loss that depends on where the workers
 * are, bytes between hosts that go through shared memory, a run that ends with a worker or a host
 * that it can do without, workers that outlive the head, and strangers who are let in. Without the
 * right to make name spaces, each of these tests is skipped; the last ones need none. */
#include "device/clock.h"
#include "support/folder.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/shell.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 12, MANY_STEPS = 1000, WAIT_MS = 120000, COMPARED = 12, TEXT = 4096 };

/* Where the hosts are. */
typedef struct place {
    char dir[FOLDER_SIZE];
    bool spaces;       /* the hosts have name spaces of their own */
    char space[2][32]; /* their names */
    char address[2][32];
    pid_t head, agent;
} place;

static output said;

/* ---- name spaces ---- */

static bool shell(const char *format, ...)
{
    char command[TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    run_command(NULL, command, &said);
    return said.exit_code == 0;
}

static void remove_spaces(const place *p)
{
    shell("ip netns del %s 2>/dev/null; ip netns del %s 2>/dev/null", p->space[0], p->space[1]);
}

/* False without the right to make them. */
static bool make_spaces(place *p)
{
    int id = (int)getpid();
    for (int i = 0; i < 2; i++) {
        snprintf(p->space[i], sizeof p->space[i], "fl%d%c", id, 'a' + i);
        snprintf(p->address[i], sizeof p->address[i], "10.213.7.%d", i + 1);
    }
    const char *a = p->space[0], *b = p->space[1];
    return shell("ip netns add %s && ip netns add %s", a, b) &&
           shell("ip -n %s link add fl0 type veth peer name fl0 netns %s", a, b) &&
           shell("ip -n %s addr add %s/24 dev fl0 && ip -n %s addr add %s/24 dev fl0", a,
                 p->address[0], b, p->address[1]) &&
           shell(
               "for s in %s %s; do ip -n $s link set lo up && ip -n $s link set fl0 up || exit 1; "
               "done",
               a, b);
}

/* Bytes that host a has sent to host b. */
static long bytes_sent(const place *p)
{
    assert_true(shell("ip netns exec %s cat /sys/class/net/fl0/statistics/tx_bytes", p->space[0]));
    return strtol(said.out, NULL, 10);
}

/* ---- processes ---- */

static void write_hosts(const place *p)
{
    char path[FOLDER_SIZE + 16];
    snprintf(path, sizeof path, "%s/hosts.yaml", p->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "hosts:\n  - {name: a, devices: 1, address: %s}\n  - {name: b, devices: 1, address: "
            "%s}\nlinks:\n  between_hosts: {latency_us: 50, bandwidth: 1GiB}\n",
            p->address[0], p->address[1]);
    fclose(file);
}

static int make_place(void **state, bool spaces)
{
    place *p = calloc(1, sizeof *p);
    make_folder(p->dir);
    p->spaces = spaces;
    if (spaces && !make_spaces(p)) {
        remove_spaces(p);
        p->space[0][0] = '\0'; /* the test is skipped */
    } else if (!spaces) {
        snprintf(p->address[0], sizeof p->address[0], "127.0.0.1");
        snprintf(p->address[1], sizeof p->address[1], "127.0.0.2");
    }
    write_hosts(p);
    *state = p;
    return 0;
}

static int make_two_spaces(void **state)
{
    return make_place(state, true);
}

static int make_loopback(void **state)
{
    return make_place(state, false);
}

static void end_process(pid_t *pid)
{
    if (*pid > 0) {
        kill(*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
        *pid = 0;
    }
}

static int remove_place(void **state)
{
    place *p = *state;
    end_process(&p->head);
    end_process(&p->agent);
    if (p->spaces) {
        remove_spaces(p);
    }
    int failed = remove_folder(p->dir);
    free(p);
    return failed;
}

#define NEED_SPACES(p)                                                                             \
    if ((p)->space[0][0] == '\0') {                                                                \
        print_message("skipped: no right to make network name spaces\n");                          \
        skip();                                                                                    \
    }

#define AWAIT(condition)                                                                           \
    for (int64_t until_us = fl_deadline_us(WAIT_MS); !(condition); nap(2000)) {                    \
        if (fl_left_ms(until_us) == 0) {                                                           \
            fail_msg("never: %s", #condition);                                                     \
        }                                                                                          \
    }

/* Start a program on host i; its output goes to DIR/log. */
static pid_t start(const place *p, int i, const char *log, const char *arguments)
{
    char command[TEXT];
    snprintf(command, sizeof command, "exec %s%s '%s/frostline' %s > %s/%s 2>&1 < /dev/null",
             p->spaces ? "ip netns exec " : "", p->spaces ? p->space[i] : "", FL_BINARY_DIR,
             arguments, p->dir, log);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

#define JOB                                                                                        \
    "'" FL_SOURCE_DIR "/configs/quickstart.yaml' --set model.blocks=2 --set model.dim=16 "         \
    "--set train.batch=16 --set train.evaluate=false --set freeze.policy=none "                    \
    "--set pipe.tune=false "

/* The same job on one host with one worker. */
static void run_alone(const place *p, const char *more)
{
    if (!shell("'%s/frostline' run " JOB "--run-dir %s/alone --set devices.count=1 %s",
               FL_BINARY_DIR, p->dir, more)) {
        fail_msg("%s\n%s", said.out, said.err);
    }
}

static void start_head(place *p, const char *more)
{
    char arguments[TEXT];
    snprintf(arguments, sizeof arguments,
             "run " JOB "--run-dir %s/run --hosts %s/hosts.yaml --listen tcp://%s:5570 %s", p->dir,
             p->dir, p->address[0], more);
    p->head = start(p, 0, "head.log", arguments);
}

static bool exists(const place *p, const char *name)
{
    char path[FOLDER_SIZE + 64];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    return access(path, F_OK) == 0;
}

static void show_log(const place *p, const char *name)
{
    shell("cat %s/%s %s/run/worker-*.log", p->dir, name, p->dir);
    print_message("%s: %s\n", name, said.out);
}

static void await_key(place *p)
{
    AWAIT(exists(p, "run/hosts.key") || waitpid(p->head, NULL, WNOHANG) != 0);
    if (!exists(p, "run/hosts.key")) {
        show_log(p, "head.log");
        fail_msg("the head has ended");
    }
}

static void start_agent_with(place *p, const char *more)
{
    char arguments[TEXT];
    await_key(p);
    snprintf(arguments, sizeof arguments,
             "agent --join tcp://%s:5570 --key %s/run/hosts.key "
             "--name b %s",
             p->address[0], p->dir, more);
    p->agent = start(p, 1, "agent.log", arguments);
}

static void start_agent(place *p)
{
    start_agent_with(p, "");
}

/* The exit code of one of the two processes; 128 + signal. */
static int await_exit(pid_t *pid)
{
    int how = 0;
    AWAIT(waitpid(*pid, &how, WNOHANG) == *pid);
    *pid = 0;
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static void expect_exits(place *p, int head, int agent)
{
    int head_code = await_exit(&p->head), agent_code = await_exit(&p->agent);
    if (head_code != head || agent_code != agent) {
        show_log(p, "head.log");
        show_log(p, "agent.log");
        fail_msg("head %d, agent %d", head_code, agent_code);
    }
}

static int n_steps_done(const place *p)
{
    char path[FOLDER_SIZE + 32];
    int n = 0, c;
    snprintf(path, sizeof path, "%s/run/steps.jsonl", p->dir);
    FILE *file = fopen(path, "r");
    while (file != NULL && (c = fgetc(file)) != EOF) {
        n += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

static bool log_has(const place *p, const char *log, const char *text)
{
    return shell("grep -qF '%s' %s/%s", text, p->dir, log);
}

/* How often the run has lost this worker. */
static int n_lost(const place *p, int rank)
{
    char dir[FOLDER_SIZE + 16], text[32];
    snprintf(dir, sizeof dir, "%s/run", p->dir);
    snprintf(text, sizeof text, "\"rank\": %d", rank);
    return count_events(dir, "worker.lost", text);
}

/* ---- what a run leaves ---- */

static double worst_loss(const place *p, int n_steps)
{
    char dir[2][FOLDER_SIZE + 16];
    double worst = 0.0;
    json_t *lines[2];
    for (int i = 0; i < 2; i++) {
        snprintf(dir[i], sizeof dir[i], "%s/%s", p->dir, i == 0 ? "alone" : "run");
        lines[i] = lines_with(dir[i], "steps.jsonl", "");
        assert_int_equal(length(lines[i]), n_steps);
    }
    for (size_t step = 0; step < COMPARED; step++) {
        double one = json_number_value(json_object_get(json_array_get(lines[0], step), "loss"));
        double other = json_number_value(json_object_get(json_array_get(lines[1], step), "loss"));
        assert_true(isfinite(other) && one > 0.0);
        worst = fmax(worst, fabs(other - one) / one);
    }
    json_decref(lines[0]);
    json_decref(lines[1]);
    return worst;
}

static void check_run(const place *p, int n_steps)
{
    double worst = worst_loss(p, n_steps);
    print_message("losses differ by at most %.2e from those of one worker\n", worst);
    assert_true(worst <= 1e-5);
    assert_true(exists(p, "run/model/model.safetensors"));
    assert_true(shell("'%s/frostline' ledger %s/run", FL_BINARY_DIR, p->dir));
}

static void run_on_two(place *p, const char *more)
{
    char plan[512];
    long before = bytes_sent(p);
    snprintf(plan, sizeof plan, "--set train.max_steps=%d %s", STEPS, more);
    start_head(p, plan);
    start_agent(p);
    expect_exits(p, 0, 0);
    snprintf(plan, sizeof plan, "--set train.max_steps=%d", STEPS);
    run_alone(p, plan);
    check_run(p, STEPS);
    long sent = bytes_sent(p) - before;
    print_message("%ld bytes from host a to host b\n", sent);
    assert_true(sent > STEPS * 16 * 17 * 16 * 4L / 2); /* half of the activations, at least */
}

/* ---- tests in name spaces ---- */

static void test_hosts__a_pipeline_across_two(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    run_on_two(p, "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2");
}

static void test_hosts__replicas_on_two(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    run_on_two(p, "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1");
}

static void test_hosts__transitions_between_plans(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    run_on_two(p,
               "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2 "
               "--set 'elastic.script=[{step: 4, k: 1, r: 2, m: 1}, {step: 8, k: 2, r: 1, m: 4}]'");
}

/* ssh as the program finds it in PATH. before: what PATH was. */
static void make_ssh(const place *p, const char *script, char before[TEXT])
{
    char path[FOLDER_SIZE + 32], with[TEXT + FOLDER_SIZE + 8];
    snprintf(before, TEXT, "%s", getenv("PATH"));
    assert_true(shell("mkdir %s/bin", p->dir));
    snprintf(path, sizeof path, "%s/bin/ssh", p->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    fclose(file);
    assert_true(shell("chmod 755 %s", path));
    snprintf(with, sizeof with, "%s/bin:%s", p->dir, before);
    setenv("PATH", with, 1);
}

/* What ssh gets is run by sh, in the name space of host b. */
static void test_hosts__the_head_starts_agents_by_ssh(void **state)
{
    place *p = *state;
    char script[512], more[256], before[TEXT];
    NEED_SPACES(p);
    snprintf(script, sizeof script,
             "[ \"$1 $2 $3\" = '-o BatchMode=yes %s' ] || exit 9\n"
             "exec ip netns exec %s sh -c \"$4\"",
             p->address[1], p->space[1]);
    make_ssh(p, script, before);
    snprintf(more, sizeof more,
             "--ssh --set train.max_steps=%d --set pipe.k=2 --set autodp.r=1 --set pipe.m=2",
             STEPS);
    start_head(p, more);
    int code = await_exit(&p->head);
    setenv("PATH", before, 1);
    if (code != 0) {
        show_log(p, "head.log");
        fail_msg("head %d", code);
    }
    assert_true(log_has(p, "head.log", "joined the run")); /* the agent's output */
    snprintf(more, sizeof more, "--set train.max_steps=%d", STEPS);
    run_alone(p, more);
    check_run(p, STEPS);
}

/* The hosts are in the job, and there is no other option: a free port of the head's address. */
static void test_hosts__the_job_names_the_hosts(void **state)
{
    place *p = *state;
    char script[512], arguments[TEXT], more[64], before[TEXT];
    NEED_SPACES(p);
    snprintf(script, sizeof script, "[ \"$3\" = %s ] || exit 9\nexec ip netns exec %s sh -c \"$4\"",
             p->address[1], p->space[1]);
    make_ssh(p, script, before);
    snprintf(arguments, sizeof arguments,
             "run " JOB "--run-dir %s/run --set 'hosts=[{name: a, address: %s, devices: 1}, "
             "{name: b, address: %s, devices: 1}]' --set train.max_steps=%d --set pipe.k=2 "
             "--set autodp.r=1 --set pipe.m=2",
             p->dir, p->address[0], p->address[1], STEPS);
    p->head = start(p, 0, "head.log", arguments);
    int code = await_exit(&p->head);
    setenv("PATH", before, 1);
    if (code != 0) {
        show_log(p, "head.log");
        fail_msg("head %d", code);
    }
    snprintf(more, sizeof more, "--set train.max_steps=%d", STEPS);
    run_alone(p, more);
    check_run(p, STEPS);
}

/* Would catch: a run that waits for a host which ssh cannot reach. */
static void test_hosts__a_host_that_ssh_does_not_reach_ends_the_start(void **state)
{
    place *p = *state;
    char before[TEXT];
    make_ssh(p, "echo no route to host >&2; exit 255", before);
    start_head(p, "--ssh --set train.max_steps=4");
    int code = await_exit(&p->head);
    setenv("PATH", before, 1);
    if (code != 3) {
        show_log(p, "head.log");
        fail_msg("head %d", code);
    }
    assert_true(log_has(p, "head.log", "no route to host"));
    assert_true(log_has(p, "head.log", "ended with exit code 255"));
    assert_true(log_has(p, "head.log", "cannot start worker 1 of 2: Host is down"));
}

static pid_t pid_of_worker(const place *p, int rank)
{
    char dir[FOLDER_SIZE + 16];
    int pid = 0;
    snprintf(dir, sizeof dir, "%s/run", p->dir);
    json_t *events = lines_with(dir, "events.jsonl", "\"pid\"");
    json_t *event;
    FOR_EACH(event, events)
    {
        json_t *workers = json_object_get(event, "workers"), *w;
        FOR_EACH(w, workers)
        {
            pid = json_object_get(w, "pid") != NULL && number(w, "rank") == rank ? number(w, "pid")
                                                                                 : pid;
        }
    }
    json_decref(events);
    assert_true(pid > 0);
    return pid;
}

static void start_long_with(place *p, const char *plan, const char *of_agent)
{
    char more[256];
    snprintf(more, sizeof more,
             "--set train.max_steps=%d --set train.epochs=1 %s --set elastic.enabled=false "
             "--set fault.detect=2s",
             MANY_STEPS, plan);
    start_head(p, more);
    start_agent_with(p, of_agent);
    AWAIT(n_steps_done(p) > COMPARED);
}

#define REPLICAS "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1"
#define STAGES "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2"

static void start_long(place *p)
{
    start_long_with(p, REPLICAS, "");
}

static void check_long(place *p)
{
    char more[64];
    snprintf(more, sizeof more, "--set train.max_steps=%d", MANY_STEPS);
    run_alone(p, more);
    check_run(p, MANY_STEPS);
}

static void test_hosts__goes_on_without_a_remote_worker(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long(p);
    kill(pid_of_worker(p, 1), SIGKILL);
    expect_exits(p, 0, 0);
    assert_true(n_lost(p, 1) > 0);
    check_long(p);
}

/* Its training thread stops; its link, a thread of its own, goes on. */
static void test_hosts__throws_out_a_remote_worker_that_hangs(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long(p);
    pid_t worker = pid_of_worker(p, 1);
    if (ptrace(PTRACE_SEIZE, worker, NULL, NULL) != 0) {
        print_message("skipped: no right to stop a thread: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(ptrace(PTRACE_INTERRUPT, worker, NULL, NULL), 0);
    AWAIT(n_lost(p, 1) > 0);
    AWAIT(waitpid(worker, NULL, WNOHANG) < 0); /* its tracer sees the end first */
    expect_exits(p, 0, 0);
    assert_true(n_lost(p, 1) > 0);
    check_long(p);
}

static void test_hosts__goes_on_without_a_host(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long(p);
    pid_t worker = pid_of_worker(p, 1);
    kill(p->agent, SIGKILL);
    expect_exits(p, 0, 128 + SIGKILL);
    AWAIT(kill(worker, 0) != 0 && errno == ESRCH);
    assert_true(n_lost(p, 1) > 0);
    assert_true(log_has(p, "head.log", "host b (10.213.7.2) is lost"));
    check_long(p);
}

/* ---- hosts that are drained ---- */

static int n_events(const place *p, const char *event, const char *text)
{
    char dir[FOLDER_SIZE + 16];
    snprintf(dir, sizeof dir, "%s/run", p->dir);
    return count_events(dir, event, text);
}

/* The run has lost nothing, and has taken no step twice: check_long reads the steps, and the ledger
 * the samples. */
static void check_drained(place *p)
{
    expect_exits(p, 0, 6);
    assert_int_equal(n_events(p, "worker.lost", ""), 0);
    assert_int_equal(n_events(p, "run.recovered", ""), 0);
    assert_int_equal(n_events(p, "host.lost", ""), 0);
    assert_int_equal(n_events(p, "host.drained", "\"host\": \"b\""), 1);
    check_long(p);
}

static void test_hosts__a_notice_drains_a_replica(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long(p);
    kill(p->agent, SIGTERM);
    check_drained(p);
    assert_int_equal(n_events(p, "host.draining", "\"why\": \"notice\""), 1);
    assert_true(log_has(p, "agent.log", "drained: the run goes on without this host"));
}

/* The loss of this host would end the run. */
static void test_hosts__a_notice_drains_a_stage(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long_with(p, STAGES, "");
    kill(p->agent, SIGTERM);
    check_drained(p);
}

/* A model that needs the memory of both: the agent does not wait for what cannot be. */
static void test_hosts__a_host_that_the_run_needs_is_not_drained(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long_with(p,
                    "--set model.blocks=6 --set model.dim=48 --set devices.memory=2560KiB "
                    "--set pipe.k=2 --set autodp.r=1 --set pipe.m=16",
                    "--grace 86400");
    kill(p->agent, SIGTERM);
    expect_exits(p, 3, 5);
    assert_true(log_has(p, "head.log", "host b cannot be drained"));
    assert_true(log_has(p, "agent.log", "stopped by signal 15: "));
    assert_int_equal(n_events(p, "host.lost", "\"host\": \"b\""), 1);
    assert_int_equal(n_events(p, "run.failed", ""), 1);
}

/* The controller, which is stopped, does not answer, and neither does the worker, so that the
 * others do not train on. */
static void ask_in_vain(place *p, const char *of_agent)
{
    start_long_with(p, REPLICAS, of_agent);
    kill(pid_of_worker(p, 1), SIGSTOP);
    kill(p->head, SIGSTOP);
    kill(p->agent, SIGTERM);
    AWAIT(log_has(p, "agent.log", "asked the head to go on without this host"));
}

static void check_lost(place *p)
{
    int agent = await_exit(&p->agent);
    kill(p->head, SIGCONT);
    if (agent != 5) {
        show_log(p, "agent.log");
        fail_msg("agent %d", agent);
    }
    assert_int_equal(await_exit(&p->head), 0);
    assert_true(n_lost(p, 1) > 0);
    assert_int_equal(n_events(p, "host.lost", "stopped by signal 15"), 1);
    check_long(p);
}

static void test_hosts__a_second_notice_ends_a_host_at_once(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    ask_in_vain(p, "--grace 86400");
    while (kill(p->agent, 0) == 0 &&
           waitid(P_PID, (id_t)p->agent, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           !log_has(p, "agent.log", "stopped by signal 15")) {
        kill(p->agent, SIGTERM);
        nap(50000);
    }
    check_lost(p);
}

static void test_hosts__a_host_that_is_not_drained_in_time_is_lost(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    ask_in_vain(p, "--grace 1");
    check_lost(p);
    assert_true(log_has(p, "agent.log", "did not drain this host in the time of --grace"));
}

static void test_hosts__notices_a_cut_cable(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long(p);
    assert_true(shell("ip -n %s link set fl0 down", p->space[1]));
    expect_exits(p, 0, 3);
    assert_true(n_lost(p, 1) > 0);
    assert_true(log_has(p, "head.log", "it has been silent for"));
    assert_true(log_has(p, "agent.log", "the head at tcp://10.213.7.1:5570 has been silent"));
    check_long(p);
}

static void test_hosts__workers_end_with_the_head(void **state)
{
    place *p = *state;
    NEED_SPACES(p);
    start_long(p);
    pid_t worker = pid_of_worker(p, 1);
    kill(p->head, SIGKILL);
    expect_exits(p, 128 + SIGKILL, 3);
    AWAIT(kill(worker, 0) != 0 && errno == ESRCH);
}

/* ---- strangers ---- */

static void send_junk(int port)
{
    unsigned char noise[512];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 50; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fd >= 0);
        memset(noise, i * 7, sizeof noise);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
            (void)send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        }
        close(fd);
    }
}

/* Neither a wrong key, nor a wrong name, nor noise changes what the run computes. */
static void test_hosts__strangers_are_refused(void **state)
{
    place *p = *state;
    char more[256], arguments[TEXT];
    snprintf(more, sizeof more,
             "--set train.max_steps=%d --set pipe.k=2 --set autodp.r=1 "
             "--set pipe.m=2",
             STEPS);
    start_head(p, more);
    await_key(p);
    AWAIT(log_has(p, "head.log", "waits for 1 other host"));
    send_junk(5570);
    send_junk(5571);
    assert_true(shell("'%s/frostline' key %s/a && '%s/frostline' key %s/b && cat %s/a.pub %s/b > "
                      "%s/other && chmod 600 %s/other",
                      FL_BINARY_DIR, p->dir, FL_BINARY_DIR, p->dir, p->dir, p->dir, p->dir,
                      p->dir));
    snprintf(arguments, sizeof arguments, "agent --join tcp://%s:5570 --key %s/other --name b",
             p->address[0], p->dir);
    p->agent = start(p, 1, "other.log", arguments);
    assert_int_equal(await_exit(&p->agent), 2);
    assert_true(log_has(p, "other.log", "refuses the key"));
    snprintf(arguments, sizeof arguments,
             "agent --join tcp://%s:5570 --key %s/run/hosts.key "
             "--name c",
             p->address[0], p->dir);
    p->agent = start(p, 1, "c.log", arguments);
    assert_int_equal(await_exit(&p->agent), 2);
    assert_true(log_has(p, "c.log", "the run has no host of this name"));
    start_agent(p);
    expect_exits(p, 0, 0);
    snprintf(more, sizeof more, "--set train.max_steps=%d", STEPS);
    run_alone(p, more);
    check_run(p, STEPS);
}

static void test_hosts__bad_input_is_refused(void **state)
{
    place *p = *state;
    static const struct {
        const char *arguments, *text;
    } cases[] = {
        {"run " JOB "--hosts far.yaml",
         "--hosts: the first host, a, has the address 192.0.2.1, which this host has not; this "
         "host is b; allowed: frostline run on the first host"},
        {"run " JOB "--hosts far.yaml --listen tcp://127.0.0.1:5570",
         "the first host, a, has the address 192.0.2.1, which this host has not"},
        {"run " JOB "--hosts hosts.yaml --listen tcp://192.0.2.1:5570",
         "--listen: cannot listen at tcp://192.0.2.1:5570"},
        {"run " JOB "--hosts near.yaml",
         "host a: 127.0.0.1 is 127.0.0.1, which other hosts cannot reach"},
        {"run " JOB "--listen tcp://127.0.0.1:5570", "--listen: the run has one host"},
        {"run " JOB "--set 'hosts=[{name: a, address: 127.0.0.1, devices: 1}]'",
         "hosts: found one host, allowed: two or more"},
        {"run " JOB "--set 'hosts=[{name: a, address: a.invalid, devices: 1}, "
         "{name: b, address: 127.0.0.1, devices: 1}]'",
         "hosts: host a: a.invalid: no IPv4 address"},
        {"run " JOB "--hosts large.yaml --listen tcp://127.0.0.1:5570",
         "host b: found memory of 1125899906842624 bytes, allowed: at most devices.memory"},
        {"run " JOB "--hosts bare.yaml --listen tcp://127.0.0.1:5570", "host b has no address"},
        {"run " JOB "--hosts one.yaml --listen tcp://127.0.0.1:5570", "found one host"},
        {"run " JOB "--hosts twice.yaml --listen tcp://127.0.0.1:5570",
         "hosts.address: found 127.0.0.1 twice"},
        {"run " JOB "--hosts name.yaml --listen tcp://127.0.0.1:5570",
         "hosts.address: found 'localhost', allowed: an IPv4 address"},
        {"run " JOB "--ssh", "--ssh: an option of --hosts, which is missing"},
        {"run " JOB "--hosts hosts.yaml --listen 127.0.0.1", "allowed: tcp://ADDRESS:PORT"},
        {"run " JOB "--hosts none.yaml --listen tcp://127.0.0.1:5570",
         "none.yaml: cannot be opened"},
        {"run " JOB "--hosts hosts.yaml --listen tcp://127.0.0.1:5570 --set devices.count=3",
         "devices.count: found 3, but the hosts have 2 devices"},
        {"run " JOB "--hosts hosts.yaml --listen tcp://127.0.0.1:5570 --set cache.policy=on "
         "--set cache.stores=2",
         "cache.stores: found 2, but host a has 1 devices"},
        {"run " JOB "--hosts hosts.yaml --listen tcp://127.0.0.1:5570 --set devices.count=auto "
         "--set devices.max=1",
         "devices.max: found 1, but the hosts have 2 devices"},
        {"run --replay x --hosts hosts.yaml --listen tcp://127.0.0.1:5570",
         "--replay is given, too"},
        {"agent --key hosts.yaml", "--join ADDRESS is missing"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --grace soon",
         "--grace: found 'soon', allowed: 0 to 86400 seconds"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --grace -1", "--grace: found '-1'"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --grace 86401", "--grace: found '86401'"},
        {"agent --join tcp://127.0.0.1:5570", "--key FILE is missing"},
        {"agent --join x --key hosts.yaml", "allowed: tcp://ADDRESS:PORT"},
        {"agent --join tcp://127.0.0.1:5570 --key hosts.yaml", "others may read this secret"},
        {"agent --join tcp://127.0.0.1:5570 --key private.yaml", "no keys found"},
    };
    assert_true(shell("cd %s && cp hosts.yaml private.yaml && chmod 600 private.yaml && "
                      "sed 's/devices: 1, address: 127.0.0.2/devices: 1, memory: 1048576GiB, "
                      "address: 127.0.0.2/' hosts.yaml > large.yaml && "
                      "sed 's/, address: 127.0.0.2//' hosts.yaml > bare.yaml && "
                      "sed '/name: b/d' hosts.yaml > one.yaml && "
                      "sed 's/127.0.0.2/127.0.0.1/' hosts.yaml > twice.yaml && "
                      "sed 's/127.0.0.2/localhost/' hosts.yaml > name.yaml && "
                      "sed 's/127.0.0.1/192.0.2.1/' hosts.yaml > far.yaml && "
                      "sed 's/127.0.0.2/192.0.2.1/' hosts.yaml > near.yaml && "
                      "'%s/frostline' key k && cat k.pub k > keys && chmod 600 keys",
                      p->dir, FL_BINARY_DIR));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[TEXT];
        snprintf(command, sizeof command, "'%s/frostline' %s", FL_BINARY_DIR, cases[i].arguments);
        run_command(p->dir, command, &said);
        if (said.exit_code != 2 || strstr(said.err, cases[i].text) == NULL) {
            fail_msg("%s: exit code %d, %s", cases[i].arguments, said.exit_code, said.err);
        }
    }
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, make_two_spaces, remove_place)
#define LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPACES(test_hosts__a_pipeline_across_two),
        SPACES(test_hosts__replicas_on_two),
        SPACES(test_hosts__transitions_between_plans),
        SPACES(test_hosts__the_head_starts_agents_by_ssh),
        SPACES(test_hosts__the_job_names_the_hosts),
        SPACES(test_hosts__goes_on_without_a_remote_worker),
        SPACES(test_hosts__throws_out_a_remote_worker_that_hangs),
        SPACES(test_hosts__goes_on_without_a_host),
        SPACES(test_hosts__a_notice_drains_a_replica),
        SPACES(test_hosts__a_notice_drains_a_stage),
        SPACES(test_hosts__a_host_that_the_run_needs_is_not_drained),
        SPACES(test_hosts__a_second_notice_ends_a_host_at_once),
        SPACES(test_hosts__a_host_that_is_not_drained_in_time_is_lost),
        SPACES(test_hosts__notices_a_cut_cable),
        SPACES(test_hosts__workers_end_with_the_head),
        LOOPBACK(test_hosts__a_host_that_ssh_does_not_reach_ends_the_start),
        LOOPBACK(test_hosts__strangers_are_refused),
        LOOPBACK(test_hosts__bad_input_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
