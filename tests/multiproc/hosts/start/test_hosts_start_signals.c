/* A signal at many moments of a start on several hosts. Would catch: a start that leaves keys, a
 * job or a part of a model behind, which refuse the same command; a wrong exit code; a start that
 * ends without a word. The hosts are loopback addresses. */
#include "support/data/idx_files.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_IMAGES = 64, SIDE = 28 };

#define PLAN NET_JOB "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 "

/* A file of the run directory that has appeared, or else a text in the head's log. */
typedef struct moment {
    const char *file, *text;
    bool agent; /* the other host joins */
} moment;

static int make_loopback(void **state)
{
    net_hosts *h = calloc(1, sizeof *h);
    char images[FOLDER_SIZE + 16];
    assert_non_null(h);
    net_hosts_make_loopback(h, 2);
    snprintf(images, sizeof images, "%s/images", h->dir);
    assert_int_equal(mkdir(images, 0777), 0);
    write_split(images, "train", N_IMAGES, SIDE, SIDE, N_CLASSES);
    write_split(images, "t10k", N_IMAGES, SIDE, SIDE, N_CLASSES);
    *state = h;
    return 0;
}

/* The images of the quickstart would take most of the time of each start. */
static void start_head(net_hosts *h)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             PLAN "--set data.path=%s/images --set train.max_steps=1000000 "
                  "--set train.epochs=1000000",
             h->dir);
    net_hosts_start_head(h, job);
}

/* Without a word about links, which are measured then. */
static void write_unstated(const net_hosts *h)
{
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir));
}

static bool has_file(const net_hosts *h, const char *file)
{
    char path[FOLDER_SIZE + 64];
    snprintf(path, sizeof path, "%s/run/%s", h->dir, file);
    return access(path, F_OK) == 0;
}

static bool has_come(const net_hosts *h, const moment *m)
{
    return m->file != NULL ? has_file(h, m->file) : net_hosts_log_has(h, "head.log", m->text);
}

/* Where the other host joins, the training may have begun before the signal comes: it then ends as
 * any run does. */
static void stop_at(net_hosts *h, const moment *m, int number)
{
    start_head(h);
    if (m->agent) {
        net_hosts_start_agent(h, 1);
    }
    NET_AWAIT(has_come(h, m));
    kill(h->head, number);
    int code = net_hosts_await_exit(&h->head);
    bool begun = m->agent && has_file(h, "summary.txt");
    bool is_clean =
        !has_file(h, "") && net_hosts_log_has(h, "head.log", "stopped before the training began");
    if (code != (number == SIGTERM ? 5 : 130) || !(begun || is_clean)) {
        net_hosts_show_logs(h);
        fail_msg("signal %d at %s: exit code %d, or something is left", number,
                 m->file != NULL ? m->file : m->text, code);
    }
    if (m->agent) {
        kill(h->host[1].agent, SIGKILL);
        net_hosts_await_exit(&h->host[1].agent);
    }
    assert_true(net_hosts_shell("rm -f %s/*.log", h->dir));
}

static void test_start_signals__nothing_is_left_of_a_survey(void **state)
{
    static const moment moments[] = {
        {.file = "model/model.safetensors.part"},
        {.file = "hosts.key"},
        {.file = "job.yaml"},
        {.text = "measures the links between hosts"},
        {.text = "gate: waits for 1 other host", .agent = true},
    };
    static const int numbers[] = {SIGTERM, SIGHUP, SIGINT};
    net_hosts *h = *state;
    write_unstated(h);
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        stop_at(h, &moments[i], numbers[i % 3]);
    }
}

static void test_start_signals__nothing_is_left_of_a_wait(void **state)
{
    static const moment key = {.file = "hosts.key"}, gate = {.text = "gate: waits for 1 other"};
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU};
    net_hosts *h = *state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        stop_at(h, i % 2 == 0 ? &key : &gate, numbers[i]);
    }
}

/* nohup */
static void test_start_signals__an_ignored_signal_stays_ignored(void **state)
{
    net_hosts *h = *state;
    void (*before)(int) = signal(SIGHUP, SIG_IGN);
    start_head(h);
    signal(SIGHUP, before);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "gate: waits for 1 other host"));
    kill(h->head, SIGHUP);
    kill(h->head, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->head), 5);
}

/* Would catch: an agent that says that no training began, of which it knows nothing. */
static void test_start_signals__an_agent_says_that_it_has_not_joined(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    net_hosts *h = *state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pid_t agent = net_hosts_start(h, 1, "agent.log",
                                      "agent --join tcp://127.0.0.1:1 --key none.key --name b");
        NET_AWAIT(net_hosts_log_has(h, "agent.log", "for the head to write none.key"));
        kill(agent, numbers[i]);
        assert_int_equal(net_hosts_await_exit(&agent), numbers[i] == SIGTERM ? 5 : 130);
        assert_true(net_hosts_log_has(h, "agent.log", "before this host asked to join the run"));
        assert_true(net_hosts_shell("rm %s/agent.log", h->dir));
    }
}

/* What was there before, and a file of somebody else, stay. */
static void test_start_signals__a_folder_of_the_user_stays(void **state)
{
    net_hosts *h = *state;
    const moment gate = {.text = "gate: waits for 1 other host"};
    assert_true(net_hosts_shell("mkdir %s/run && touch %s/run/notes", h->dir, h->dir));
    start_head(h);
    NET_AWAIT(has_come(h, &gate));
    kill(h->head, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->head), 5);
    assert_true(net_hosts_shell("test \"$(ls %s/run)\" = notes", h->dir));
}

#define LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOPBACK(test_start_signals__nothing_is_left_of_a_survey),
        LOOPBACK(test_start_signals__nothing_is_left_of_a_wait),
        LOOPBACK(test_start_signals__an_ignored_signal_stays_ignored),
        LOOPBACK(test_start_signals__an_agent_says_that_it_has_not_joined),
        LOOPBACK(test_start_signals__a_folder_of_the_user_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
