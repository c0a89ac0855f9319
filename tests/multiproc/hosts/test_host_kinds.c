/* A host whose kernels are slower has costs of its own, and gets fewer layers. Would catch: a
 * profile of another kind of host that is read and not used, or used for the wrong host; live times
 * of one kind that correct the costs of another; and a bad profile that says nothing of its host.
 * Host b uses the plainest kernels; where the processor has no others, or without the right to make
 * network name spaces, the tests are skipped. */
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

enum { N_STEPS = 30, COMPARED = 8, N_LAYERS = 10 };

#define MODEL                                                                                      \
    NET_JOB "--set model.blocks=4 --set model.dim=64 --set devices.memory=64MiB "                  \
            "--set pipe.schedule=1f1b "

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* DIR/b.yaml has the costs of this model on such a host. */
static void measure_b(const net_hosts *h)
{
    assert_true(net_hosts_shell("FROSTLINE_KERNELS=baseline '%s/frostline' plan " MODEL
                                "--set devices.count=1 --set pipe.profile=%s/b.yaml 2>&1",
                                FL_BINARY_DIR, h->dir));
}

/* The file of hosts says so of host b. */
static void name_profile(const net_hosts *h, const char *name)
{
    assert_true(net_hosts_shell("sed -i '/name: b/s|}|, profile: %s/%s}|' %s/hosts.yaml", h->dir,
                                name, h->dir));
}

static void test_host_kinds__a_slower_kind_gets_fewer_layers(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    if (!net_hosts_have_kernels("avx2")) {
        skip();
    }
    measure_b(h);
    name_profile(h, "b.yaml");
    net_hosts_start_head(h, MODEL "--set train.max_steps=30 --set pipe.k=2 --set autodp.r=1 ");
    net_hosts_start_agent_env(h, 1, "FROSTLINE_KERNELS=baseline");
    net_hosts_expect(h, 0);
    assert_int_equal(net_hosts_n_events(h, "\"costs\"", "\"kinds\": [{\"host\": \"b\""), 1);
    assert_in_range(net_hosts_layers_of_second(h, N_LAYERS), 1, N_LAYERS / 2 - 1);
    /* b's times teach the head's profile nothing */
    assert_int_equal(net_hosts_n_events(h, "\"costs.learned\"", "\"steps\": 0, "), 1);
    net_hosts_run_alone(h, "--set model.blocks=4 --set model.dim=64 --set devices.memory=64MiB "
                           "--set train.max_steps=30");
    net_hosts_check(h, N_STEPS, COMPARED);
}

/* Its agent dies, and one with another instruction set joins in its place. */
static void come_back_with(net_hosts *h, const char *variable)
{
    kill(h->host[1].agent, SIGKILL);
    (void)net_hosts_await_exit(&h->host[1].agent);
    net_hosts_start_agent_env(h, 1, variable);
}

static bool has_profile(const net_hosts *h, const char *from)
{
    return net_hosts_shell("'%s/frostline' ctl %s/run status --json | tr -d ' \n' | "
                           "grep -q '\"name\":\"b\".*\"profile\":\"%s\"'",
                           FL_BINARY_DIR, h->dir, from);
}

/* The machine behind the name is another one. Would catch: plans that price it by the profile of
 * the one before. */
static void test_host_kinds__a_host_that_returns_has_the_kind_that_it_names(void **state)
{
    net_hosts *h = *state;
    char path[FOLDER_SIZE + 16];
    NET_NEED(h);
    if (!net_hosts_have_kernels("avx2")) {
        skip();
    }
    snprintf(path, sizeof path, "%s/cache", h->dir);
    assert_int_equal(setenv("XDG_CACHE_HOME", path, 1), 0);
    net_hosts_start_head(h, MODEL "--set train.epochs=1000 --set elastic.enabled=false "
                                  "--set pipe.k=1 --set autodp.r=2 ");
    net_hosts_start_agent_env(h, 1, "FROSTLINE_KERNELS=baseline");
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    NET_AWAIT(has_profile(h, "measured"));
    come_back_with(h, "ALL_KERNELS=1"); /* those that the head has */
    NET_AWAIT(has_profile(h, "thehead.s"));
    assert_true(net_hosts_log_has(h, "head.log", "host b is of another kind than before"));
    come_back_with(h, "FROSTLINE_KERNELS=baseline");
    NET_AWAIT(has_profile(h, "measured"));
    assert_true(net_hosts_shell("'%s/frostline' ctl %s/run stop", FL_BINARY_DIR, h->dir));
    net_hosts_expect(h, 130);
}

/* Bad input: the host, the file, and what is wrong. */
static void test_host_kinds__a_bad_profile_is_refused(void **state)
{
    net_hosts *h = *state;
    char text[256];
    name_profile(h, "none.yaml");
    net_hosts_shell("'%s/frostline' plan " MODEL "--set pipe.profile=none --cluster %s/hosts.yaml "
                    "2>&1; echo \" exit=$?\"",
                    FL_BINARY_DIR, h->dir);
    snprintf(text, sizeof text, "hosts: entry 2, profile: %s/none.yaml: No such file", h->dir);
    assert_non_null(strstr(net_hosts_said(), text));
    assert_non_null(strstr(net_hosts_said(), " exit=2"));
    net_hosts_shell("FROSTLINE_KERNELS=none '%s/frostline' plan " MODEL
                    "--set pipe.profile=none 2>&1; echo \" exit=$?\"",
                    FL_BINARY_DIR);
    assert_non_null(strstr(net_hosts_said(), "FROSTLINE_KERNELS: found 'none', allowed"));
    assert_non_null(strstr(net_hosts_said(), " exit=2"));
}

/* Would catch: a plan for links that nobody has stated, and that does not say so. */
static void test_host_kinds__a_plan_assumes_links_that_are_not_stated(void **state)
{
    net_hosts *h = *state;
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml && '%s/frostline' plan " MODEL
                                "--set pipe.profile=none --cluster %s/hosts.yaml 2>&1",
                                h->dir, FL_BINARY_DIR, h->dir));
    assert_non_null(strstr(net_hosts_said(), "links between hosts: assumed, 50 us and 1.0 GiB/s"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_host_kinds__a_slower_kind_gets_fewer_layers, make_two,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(
            test_host_kinds__a_host_that_returns_has_the_kind_that_it_names, make_two,
            net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_kinds__a_bad_profile_is_refused, make_two,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_kinds__a_plan_assumes_links_that_are_not_stated,
                                        make_two, net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
