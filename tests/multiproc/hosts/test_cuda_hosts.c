/* Runs on the GPUs of two hosts, for which network name spaces and the stand-ins of GPUs and of
 * NCCL are there. Catches losses that differ from those of one CPU, workers of the second host that
 * take other GPUs than their own, data that NCCL sends in plain between hosts which talk by TLS,
 * and a host without the GPUs that the run counts on which is not refused by its name. */
#include "support/device/cuda_plugin.h"
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

#include <cmocka.h>

enum { STEPS = 8, LONG_STEPS = 24, LOST_AFTER = 8 };

#define SAMPLES "--set data.samples=128 --set train.epochs=9 "
#define GPU_JOB NET_JOB SAMPLES "--set devices.kind=cuda "

static const char nccl[] = FL_BINARY_DIR "/tests/nccl_standin.so";

static int make_hosts_of_1(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

static int make_hosts_of_2(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){2, 2});
}

/* For the programs that start from now on; library NULL: they have no NCCL. */
static void use(const char *gpus, const char *library)
{
    assert_int_equal(setenv("FROSTLINE_NCCL", library == NULL ? "no library" : library, 1), 0);
    assert_int_equal(setenv("FROSTLINE_NCCL_STANDIN", "streams=none", 1), 0);
    use_standin(gpus);
}

static void start_head(net_hosts *h, int n_steps, const char *more)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job, GPU_JOB "--set train.max_steps=%d %s", n_steps, more);
    net_hosts_start_head(h, job);
}

/* Against one worker on a CPU. */
static void compare(const net_hosts *h, int n_steps)
{
    char more[128];
    snprintf(more, sizeof more, SAMPLES "--set train.max_steps=%d", STEPS);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, n_steps, STEPS);
}

/* A run over both hosts, to its end. */
static void train(net_hosts *h, const char *more)
{
    start_head(h, STEPS, more);
    net_hosts_start_agent(h, 1);
    net_hosts_expect(h, 0);
    compare(h, STEPS);
}

/* Each worker has the GPU of its place on its own host. */
static void check_gpus(const net_hosts *h)
{
    char text[96];
    int n_devices = h->host[0].n_devices;
    for (int rank = 0; rank < 2 * n_devices; rank++) {
        snprintf(text, sizeof text, "\"gpu\": %d, \"gpu_name\": \"Stand-in\"", rank % n_devices);
        assert_int_equal(net_hosts_n_events(h, "run.started", text), 1);
        snprintf(text, sizeof text, "rank\": %d, \"host\": \"%s\"", rank,
                 h->host[rank / n_devices].name);
        assert_int_equal(net_hosts_n_events(h, "run.started", text), 1);
    }
}

static int count_transports(const net_hosts *h, const char *text)
{
    return net_hosts_n_events(h, "transport.chosen", text);
}

/* One GPU each: a pipeline over both hosts, replicas on them, and back. */
static void test_cuda_hosts__change_plans_through_host_memory(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    use("devices=1", NULL);
    train(h, "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2 --set "
             "'elastic.script=[{step: 3, k: 1, r: 2, m: 1}, {step: 6, k: 2, r: 1, m: 2}]'");
    assert_int_equal(net_hosts_n_events(h, "transition.done", ""), 2);
    check_gpus(h);
}

/* Two GPUs each. With TLS, NCCL is for the pairs of a host alone. */
static void test_cuda_hosts__use_nccl_within_hosts(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    use("devices=2", nccl);
    train(h, "--set pipe.k=2 --set autodp.r=2 --set pipe.m=2 --set "
             "'elastic.script=[{step: 4, k: 4, r: 1, m: 2}]'");
    check_gpus(h);
    assert_int_equal(count_transports(h, "\"nccl_pairs\": 2"), 2);
    assert_int_equal(
        count_transports(h, "0 and 2: they are on different hosts (autodp.security: tls)"), 2);
}

/* In plain, all pairs use it, also those that the job insists on. */
static void test_cuda_hosts__use_nccl_between_hosts_in_plain(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    use("devices=2", nccl);
    train(h,
          "--set autodp.security=none --set autodp.transport=nccl --set pipe.k=2 --set autodp.r=2 "
          "--set pipe.m=2 --set 'elastic.script=[{step: 4, k: 1, r: 4, m: 1}]'");
    assert_int_equal(count_transports(h, "\"nccl_pairs\": 6"), 2);
}

/* One host has no library: the run goes on without NCCL on its pairs. */
static void test_cuda_hosts__agree_on_the_transport(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    use("devices=2", nccl);
    start_head(h, STEPS, "--set autodp.security=none --set pipe.k=2 --set autodp.r=2");
    use("devices=2", NULL);
    net_hosts_start_agent(h, 1);
    net_hosts_expect(h, 0);
    compare(h, STEPS);
    assert_int_equal(count_transports(h, "\"nccl_pairs\": 1"), 1);
    assert_int_equal(count_transports(h, "0 and 2: worker 2 has none"), 1);
}

/* A worker of the other host dies while it trains: the run goes on, and it comes back. */
static void test_cuda_hosts__go_on_without_a_worker(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    use("devices=1", NULL);
    start_head(h, LONG_STEPS, "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1");
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > LOST_AFTER);
    assert_int_equal(kill(net_hosts_worker_pid(h, 1), SIGKILL), 0);
    net_hosts_expect(h, 0);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", "\"rank\": 1"), 1);
    compare(h, LONG_STEPS);
}

/* For the next run. */
static void clear(const net_hosts *h)
{
    assert_true(net_hosts_shell("rm -rf %s/run %s/*.log", h->dir, h->dir));
}

/* The agent ends with exit code 2, and both say this. */
static void refuse_b(net_hosts *h, const char *gpus, const char *library, const char *more,
                     const char *text)
{
    use("devices=2", nccl);
    start_head(h, STEPS, more);
    use(gpus, library);
    net_hosts_start_agent(h, 1);
    net_hosts_expect_codes(h, 2, 2);
    assert_true(net_hosts_log_has(h, "b.log", text));
    assert_true(net_hosts_log_has(h, "head.log", text));
    clear(h);
}

static void test_cuda_hosts__refuse_a_host_that_lacks_something(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    refuse_b(h, "devices=1", nccl, "",
             "host b: hosts: found 2 devices, but there is 1 GPU, or CUDA_VISIBLE_DEVICES shows no "
             "more; allowed: at most 1");
    refuse_b(h, "count_code=35", nccl, "", "host b: devices.kind: no NVIDIA driver");
    refuse_b(h, "devices=2", NULL, "--set autodp.security=none --set autodp.transport=nccl",
             "host b: autodp.transport: found nccl, but");
}

/* Before it waits for any other host. */
static void test_cuda_hosts__refuse_a_head_that_lacks_something(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    static const char *const cases[][3] = {
        {"devices=1", "", "host a: hosts: found 2 devices, but there is 1 GPU"},
        {"devices=2", "--set autodp.transport=nccl",
         "autodp.transport: found nccl, but the run has 2 hosts, and NCCL does not encrypt"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        use(cases[i][0], nccl);
        start_head(h, STEPS, cases[i][1]);
        assert_int_equal(net_hosts_await_exit(&h->head), 2);
        assert_true(net_hosts_log_has(h, "head.log", cases[i][2]));
        clear(h);
    }
}

#define ON(hosts, test) cmocka_unit_test_setup_teardown(test, hosts, net_hosts_tear_down)

#define QUICK                                                                                      \
    ON(make_hosts_of_1, test_cuda_hosts__change_plans_through_host_memory),                        \
        ON(make_hosts_of_2, test_cuda_hosts__use_nccl_within_hosts),                               \
        ON(make_hosts_of_2, test_cuda_hosts__refuse_a_host_that_lacks_something),                  \
        ON(make_hosts_of_2, test_cuda_hosts__refuse_a_head_that_lacks_something)

int main(void)
{
    const struct CMUnitTest few[] = {QUICK};
    const struct CMUnitTest all[] = {
        QUICK,
        ON(make_hosts_of_2, test_cuda_hosts__use_nccl_between_hosts_in_plain),
        ON(make_hosts_of_2, test_cuda_hosts__agree_on_the_transport),
        ON(make_hosts_of_1, test_cuda_hosts__go_on_without_a_worker),
    };
    return getenv("FL_TEST_MATRIX") != NULL ? cmocka_run_group_tests(all, NULL, NULL)
                                            : cmocka_run_group_tests(few, NULL, NULL);
}
