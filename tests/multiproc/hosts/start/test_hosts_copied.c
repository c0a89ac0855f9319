/* A host whose run directory is another one than the head's, with run.shared: a copy that was made
 * before the host joined, a folder with a copy of the keys, or an overlay; and one that it cannot
 * write. Would catch: a run that ends well although a host has written its layers into a copy, or
 * that finds it out at its end. Hosts are network name spaces; without the
 * right to make them, the tests are skipped. */
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

#define SPLIT                                                                                      \
    NET_JOB "--set pipe.k=2 --set autodp.r=1 --set train.max_steps=8 "                             \
            "--set 'checkpoint.every=4 steps' "

/* The head waits for host b, whose agent starts after the command, in DIR. No worker starts. */
static void check_refused(void **state, const char *command, const char *why)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_start_head(h, SPLIT);
    net_hosts_await_key(h);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "waits for 1 other host"));
    net_hosts_start_agent_after(h, 1, command);
    net_hosts_expect_codes(h, 2, 2);
    assert_true(net_hosts_log_has(h, "b.log", why));
    assert_true(net_hosts_log_has(h, "b.log", "allowed: a run.dir "));
    assert_true(net_hosts_log_has(h, "head.log", why));
    assert_int_equal(net_hosts_n_steps(h), 0);
    assert_true(net_hosts_shell("! test -e %s/run/model/model.safetensors", h->dir));
    assert_true(net_hosts_shell("! ls %s/run | grep joining-", h->dir));
}

static void test_hosts_copied__a_copy_is_not_the_run_directory(void **state)
{
    check_refused(state, "cp -a run copy && mount --bind copy run", "run directory here");
}

static void test_hosts_copied__nor_is_a_folder_with_its_keys(void **state)
{
    check_refused(state, "mkdir copy && cp -a run/hosts.key copy && mount --bind copy run",
                  "run directory here");
}

#define OVERLAY                                                                                    \
    "mkdir -p upper work && "                                                                      \
    "mount -t overlay overlay -o lowerdir=run,upperdir=upper,workdir=work run"

/* It shows the head's files, also new ones. */
static void test_hosts_copied__nor_is_an_overlay_of_it(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    if (!net_hosts_shell("cd %s && mkdir run && unshare --mount sh -c '" OVERLAY "' && "
                         "rm -r run upper work",
                         h->dir)) {
        print_message("skipped: no right to mount an overlay\n");
        skip();
    }
    check_refused(state, OVERLAY, "does not come to the head");
}

static void test_hosts_copied__nor_is_one_that_the_host_cannot_write(void **state)
{
    check_refused(state, "mount --bind run run && mount -o remount,bind,ro run",
                  "/run cannot be written here: Read-only file system");
}

static void test_hosts_copied__nor_is_one_of_which_a_mount_hides_a_part(void **state)
{
    check_refused(state, "mount -t tmpfs none run/model",
                  "/run: cannot open model/model.safetensors.part: No such file or directory; the "
                  "head has written it");
}

/* Would catch: an agent that ssh has started waiting for keys that the head has written long ago,
 * and a message that names another reason. */
static void test_hosts_copied__ssh_names_a_folder_that_is_not_shared(void **state)
{
    net_hosts *h = *state;
    char path[4096], before[4096];
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    assert_true(net_hosts_shell("mkdir %s/bin && cat > %s/bin/ssh <<'END'\n#!/bin/sh\n"
                                "exec ip netns exec %s sh -c \"mount -t tmpfs none %s/run && $4\"\n"
                                "END\nchmod 755 %s/bin/ssh",
                                h->dir, h->dir, h->host[1].space, h->dir, h->dir));
    snprintf(before, sizeof before, "%s", getenv("PATH"));
    snprintf(path, sizeof path, "%s/bin:%.3900s", h->dir, before);
    setenv("PATH", path, 1);
    net_hosts_start_head(h, SPLIT "--ssh ");
    setenv("PATH", before, 1);
    net_hosts_expect(h, 2);
    assert_true(net_hosts_log_has(h, "head.log", "no such file on this host: it does not share"));
    assert_true(net_hosts_log_has(h, "head.log", "or run.shared false"));
}

/* Would catch: a checkpoint without the layers of a host that wrote them into another folder. */
static void test_hosts_copied__a_checkpoint_needs_the_files_of_all(void **state)
{
    net_hosts *h = *state;
    char checkpoints[512];
    NET_NEED(h);
    snprintf(checkpoints, sizeof checkpoints, "%s/run/checkpoints", h->dir);
    net_hosts_start_head(h, SPLIT);
    net_hosts_await_key(h);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "waits for 1 other host"));
    assert_true(net_hosts_shell("mkdir -p %s/elsewhere %s", h->dir, checkpoints));
    net_hosts_start_agent_with(h, 1, "elsewhere", checkpoints);
    net_hosts_expect(h, 0);
    assert_true(net_hosts_n_events(h, "checkpoint.failed", "which worker 1 has written: No") > 0);
    assert_true(net_hosts_n_events(h, "checkpoint.failed", "; worker 1 is on host b\"") > 0);
    assert_int_equal(net_hosts_n_events(h, "checkpoint.written", ""), 0);
    assert_true(net_hosts_shell("! find %s -name manifest.json | grep .", checkpoints));
}

/* Would catch: a model without the layers of a host that wrote them into another folder. The copy
 * is made when the model's file is there, and put in its place for this host alone: so does
 * a copy that follows slowly, or a mount below the run directory. */
static void test_hosts_copied__a_model_needs_the_layers_of_all(void **state)
{
    net_hosts *h = *state;
    char model[512];
    NET_NEED(h);
    snprintf(model, sizeof model, "%s/run/model", h->dir);
    net_hosts_start_head(h, SPLIT);
    net_hosts_await_key(h);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "waits for 1 other host"));
    assert_true(net_hosts_shell("cp -a %s %s/elsewhere", model, h->dir));
    net_hosts_start_agent_with(h, 1, "elsewhere", model);
    net_hosts_expect_codes(h, 3, 3);
    assert_true(
        net_hosts_log_has(h, "head.log", "of host b has written it: that host has another"));
    assert_true(net_hosts_log_has(h, "head.log", "or run.shared false"));
    assert_true(net_hosts_shell("! ls %s | grep .", model));
}

/* The file that shows it is gone before the run ends. */
static void test_hosts_copied__the_run_directory_is(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_start_head(h, SPLIT);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    assert_true(net_hosts_shell("! ls %s/run | grep joining-", h->dir));
    net_hosts_expect(h, 0);
    assert_true(net_hosts_shell("test -e %s/run/model/model.safetensors", h->dir));
}

#define HOSTS(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTS(test_hosts_copied__a_copy_is_not_the_run_directory),
        HOSTS(test_hosts_copied__nor_is_a_folder_with_its_keys),
        HOSTS(test_hosts_copied__nor_is_an_overlay_of_it),
        HOSTS(test_hosts_copied__nor_is_one_that_the_host_cannot_write),
        HOSTS(test_hosts_copied__nor_is_one_of_which_a_mount_hides_a_part),
        HOSTS(test_hosts_copied__ssh_names_a_folder_that_is_not_shared),
        HOSTS(test_hosts_copied__a_checkpoint_needs_the_files_of_all),
        HOSTS(test_hosts_copied__a_model_needs_the_layers_of_all),
        HOSTS(test_hosts_copied__the_run_directory_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
