/* What hosts must have alike is compared before a worker starts. Would catch: a run that trains on
 * other data, from other weights or with another plugin on one host than on the others, because a
 * path leads to another file there, and a head that does not say why a host cannot take part. Hosts
 * are network name spaces with mounts of their own; without the right to make them, the tests are
 * skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* The head and the host both say it, and no worker has run. The head ends with the code of bad
 * input: would catch a run that a scheduler starts again and again. */
static void expect_refusal(net_hosts *h, const char *text)
{
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 2);
    assert_int_equal(net_hosts_await_exit(&h->head), 2);
    if (!net_hosts_log_has(h, "b.log", text) || !net_hosts_log_has(h, "head.log", text)) {
        (void)net_hosts_shell("cat %s/b.log %s/head.log", h->dir, h->dir);
        fprintf(stderr, "%s\n", net_hosts_said());
        fail_msg("nobody says: %s", text);
    }
    assert_int_equal(net_hosts_n_steps(h), 0);
}

#define DATA FL_TEST_FASHION

/* One label more or less than what the head has. */
static void test_host_facts__other_data_is_refused(void **state)
{
    net_hosts *h = *state;
    char text[256];
    NET_NEED(h);
    assert_true(net_hosts_shell("cp -r " DATA " %s/data && cd %s/data && "
                                "for value in 1 2; do printf \"\\\\00$value\" | dd bs=1 "
                                "of=t10k-labels-idx1-ubyte seek=100$value conv=notrunc; done",
                                h->dir, h->dir));
    net_hosts_start_head(h, NET_JOB "--set train.max_steps=4");
    net_hosts_start_agent_with(h, 1, "data", DATA);
    expect_refusal(h, "host b: data.path " DATA ": found other data, of fingerprint ");
    snprintf(text, sizeof text, "with 12000 and 2000 samples, the head has ");
    assert_true(net_hosts_log_has(h, "b.log", text));
}

/* Hosts that share no files each have the data. */
static void test_host_facts__data_that_is_missing_is_refused(void **state)
{
    net_hosts *h = *state;
    char job[1024];
    NET_NEED(h);
    assert_true(net_hosts_shell("mkdir %s/empty", h->dir));
    snprintf(job, sizeof job,
             NET_JOB "--set train.max_steps=4 --set run.shared=false --set run.dir=%s/logs",
             h->dir);
    net_hosts_start_head(h, job);
    net_hosts_start_agent_with(h, 1, "empty", DATA);
    expect_refusal(h, DATA);
    assert_true(net_hosts_log_has(h, "head.log", "cannot start worker 1 of 2 on host b"));
}

/* The user of the head reads where the path is in the file that was given to `run`, or which --set
 * has it. Would catch: a line of the job that the head has sent, which no user has seen. */
static void test_host_facts__the_head_names_its_users_file(void **state)
{
    net_hosts *h = *state;
    char job[1024], text[256];
    NET_NEED(h);
    assert_true(net_hosts_shell("mkdir %s/empty && printf 'model: {kind: vit}\\ndata:\\n  kind: "
                                "idx\\n  path: " DATA "\\n' > %s/mine.yaml",
                                h->dir, h->dir));
    for (int set = 0; set < 2; set++) {
        snprintf(job, sizeof job,
                 "%s/mine.yaml --set train.max_steps=4 --set run.shared=false --set "
                 "run.dir=%s/logs%s",
                 h->dir, h->dir, set ? " --set data.path=" DATA : "");
        net_hosts_start_head(h, job);
        net_hosts_start_agent_with(h, 1, "empty", DATA);
        snprintf(text, sizeof text, "cannot start worker 1 of 2 on host b (10.213.8.2): data.path");
        assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 2);
        assert_int_equal(net_hosts_await_exit(&h->head), 2);
        assert_true(net_hosts_log_has(h, "head.log", text));
        snprintf(text, sizeof text, "%s:4:9: cannot start worker 1 of 2 on host b", "mine.yaml");
        const char *where = set ? "set data.path=" DATA ": cannot start" : text;
        if (!net_hosts_log_has(h, "head.log", where)) {
            net_hosts_show_logs(h);
            fail_msg("the head does not say: %s", where);
        }
        assert_false(net_hosts_log_has(h, "head.log", "job.yaml of the head"));
        assert_true(net_hosts_shell("rm -r %s/run && rm %s/head.log", h->dir, h->dir));
    }
}

static void test_host_facts__other_weights_are_refused(void **state)
{
    net_hosts *h = *state;
    char job[1024], text[256], path[FOLDER_SIZE + 64];
    NET_NEED(h);
    for (int seed = 1; seed <= 2; seed++) {
        assert_true(net_hosts_shell("'%s/frostline' run " NET_JOB "--set devices.count=1 "
                                    "--set train.max_steps=1 --set train.seed=%d --run-dir %s/w%d",
                                    FL_BINARY_DIR, seed, h->dir, seed));
    }
    snprintf(path, sizeof path, "%s/w1/model/model.safetensors", h->dir);
    snprintf(job, sizeof job, NET_JOB "--set train.max_steps=4 --set model.init=%s", path);
    net_hosts_start_head(h, job);
    net_hosts_start_agent_with(h, 1, "w2/model/model.safetensors", path);
    snprintf(text, sizeof text, "host b: weights of %s: found the fingerprint ", path);
    expect_refusal(h, text);
}

#define PLUGIN_JOB                                                                                 \
    "'" FL_SOURCE_DIR "/configs/quickstart.yaml' --set data.path='" FL_TEST_FASHION "' "           \
    "--set model.kind=plugin --set model.plugin=%s "                                               \
    "--set train.batch=16 --set train.evaluate=false --set freeze.policy=none "                    \
    "--set pipe.tune=false --set devices.count=auto --set train.max_steps=4"

/* It makes the same layers, so that only the file's content differs. */
static void test_host_facts__another_plugin_is_refused(void **state)
{
    net_hosts *h = *state;
    char job[1024], text[512], path[FOLDER_SIZE + 64];
    NET_NEED(h);
    assert_true(net_hosts_shell("cd %s && cp %s/tests/plugin_toy.so mine.so && "
                                "cp mine.so other.so && printf x >> other.so",
                                h->dir, FL_BINARY_DIR));
    snprintf(path, sizeof path, "%s/mine.so", h->dir);
    snprintf(job, sizeof job, PLUGIN_JOB, path);
    net_hosts_start_head(h, job);
    net_hosts_start_agent_with(h, 1, "other.so", path);
    snprintf(text, sizeof text, "host b: model.plugin %s: found another file, of fingerprint ",
             path);
    expect_refusal(h, text);
    snprintf(text, sizeof text, " at %s", path);
    assert_true(net_hosts_log_has(h, "b.log", text));
}

#define HOSTS(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTS(test_host_facts__other_data_is_refused),
        HOSTS(test_host_facts__data_that_is_missing_is_refused),
        HOSTS(test_host_facts__the_head_names_its_users_file),
        HOSTS(test_host_facts__other_weights_are_refused),
        HOSTS(test_host_facts__another_plugin_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
