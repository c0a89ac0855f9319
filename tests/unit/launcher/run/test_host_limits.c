/* What a run may use, read from trees of files like those of a laptop, a container and a batch job;
 * and what a job wants beyond that. */
#include "launcher/run/machine/job_demand.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[FOLDER_SIZE];

static int set_up(void **state)
{
    (void)state;
    make_folder(root);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(root);
}

/* A file below the root, with the folders on its way. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static fl_host_limits look(void)
{
    fl_host_limits machine;
    fl_host_limits_read(root, &machine);
    return machine;
}

static void test_read__finds_no_limit_where_there_is_none(void **state)
{
    (void)state;
    fl_host_limits m = look();
    assert_true(m.processors >= 1);
    assert_int_equal(m.processors, m.affinity);
    assert_int_equal(m.memory_bytes, 0);
    put("/proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable: 16000000 kB\n");
    put("/proc/self/cgroup", "0::/user.slice\n");
    put("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
    m = look();
    assert_int_equal(m.processors, m.affinity);
    assert_int_equal(m.memory_bytes, INT64_C(16384000) * 1024);
    assert_int_equal(m.available_bytes, INT64_C(16000000) * 1024);
}

/* The parent's limits hold as well, and the lowest counts. */
static void test_read__takes_the_lowest_of_all_groups(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: 16384000 kB\n");
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
    put("/sys/fs/cgroup/job/step/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/job/memory.max", "8589934592\n");
    fl_host_limits m = look();
    assert_true(m.quota == 0.5);
    assert_int_equal(m.available_bytes, INT64_C(4294967296));
    assert_int_equal(m.processors, 1);
    assert_int_equal(m.memory_bytes, INT64_C(4294967296));
    assert_int_equal(m.total_bytes, INT64_C(16384000) * 1024);
}

/* A container's path is the host's, but what it sees is the root of its own tree. */
static void test_read__takes_the_root_of_a_container(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/docker/0123\n");
    put("/sys/fs/cgroup/cpu.max", "25000 100000\n");
    assert_true(look().quota == 0.25);
}

static void test_read__reads_version_1(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: 16384000 kB\n");
    put("/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/a\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "30000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    fl_host_limits m = look();
    assert_true(m.quota == 0.3);
    assert_int_equal(m.memory_bytes, 1073741824);
}

/* Would catch: no warning about 12 devices on 2 processors, or 1 TiB on a machine with 23 GiB. */
static void test_compare__tells_what_is_too_much(void **state)
{
    (void)state;
    char processors[512], memory[512];
    fl_job job;
    fl_job_defaults(&job);
    fl_host_limits m = {.affinity = 2, .processors = 2, .memory_bytes = INT64_C(23) << 30};
    m.total_bytes = m.memory_bytes;
    job.devices.cores = 1;
    job.devices.memory_bytes = INT64_C(1) << 30;
    fl_job_demand_compare(&m, &job, NULL, 2, processors, memory, sizeof memory);
    assert_string_equal(processors, "");
    assert_string_equal(memory, "");
    job.devices.memory_bytes = INT64_C(1) << 40;
    fl_job_demand_compare(&m, &job, NULL, 12, processors, memory, sizeof memory);
    assert_non_null(strstr(processors, "12 x 1 cores want 12 processors, but this run may use 2;"));
    assert_non_null(strstr(memory, "12 x 1.0 TiB, and 1.0 GiB of cache.memory, are more than "
                                   "the 23.0 GiB that this machine has;"));
    m.quota = 1.5;
    m.processors = 1;
    m.memory_bytes = INT64_C(2) << 30;
    job.devices.memory_bytes = INT64_C(1) << 30;
    fl_job_demand_compare(&m, &job, NULL, 2, processors, memory, sizeof memory);
    assert_non_null(
        strstr(processors, "may use 2 for the time of 1.5 (its control group's quota)"));
    assert_non_null(strstr(memory, "the 2.0 GiB that this run's control group allows"));
    job.cache.policy = FL_CACHE_OFF;
    fl_job_demand_compare(&m, &job, NULL, 2, processors, memory, sizeof memory);
    assert_string_equal(memory, "");
    job.devices.max = 3;
    fl_job_demand_compare(&m, &job, NULL, 3, processors, memory, sizeof memory);
    assert_non_null(strstr(processors, "lower devices.max or devices.cores"));
}

/* Would catch: the devices of all hosts compared with the processors and the memory of this one,
 * and the advice to lower devices.count, which the hosts determine. */
static void test_compare__counts_the_devices_of_this_host(void **state)
{
    (void)state;
    char processors[512], memory[512];
    fl_job job;
    fl_job_defaults(&job);
    fl_host_limits m = {.affinity = 2, .processors = 2, .memory_bytes = INT64_C(3) << 30};
    fl_host own = {.name = "a", .n = 2};
    job.devices.cores = 1;
    job.devices.count = 8;
    job.devices.max = 16;
    job.devices.memory_bytes = INT64_C(1) << 30;
    fl_job_demand_compare(&m, &job, &own, 16, processors, memory, sizeof memory);
    assert_string_equal(processors, "");
    assert_string_equal(memory, "");
    own.n = 3;
    fl_job_demand_compare(&m, &job, &own, 16, processors, memory, sizeof memory);
    assert_non_null(strstr(processors, "3 x 1 cores want 3 processors, but this run may use 2;"));
    assert_non_null(strstr(processors, "lower the devices of this host or devices.cores"));
    assert_non_null(strstr(memory, "lower devices.memory or the devices of this host"));
}

int main(void)
{
#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, set_up, clean)
    const struct CMUnitTest tests[] = {
        IN_ROOT(test_read__finds_no_limit_where_there_is_none),
        IN_ROOT(test_read__takes_the_lowest_of_all_groups),
        IN_ROOT(test_read__takes_the_root_of_a_container),
        IN_ROOT(test_read__reads_version_1),
        cmocka_unit_test(test_compare__tells_what_is_too_much),
        cmocka_unit_test(test_compare__counts_the_devices_of_this_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
