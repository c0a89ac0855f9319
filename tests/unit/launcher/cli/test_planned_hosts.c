/* The hosts that plan and doctor count devices of. Would catch: a plan for this machine alone where
 * the job has hosts, and a number of devices that a run on them refuses. */
#include "launcher/cli/hosts/planned_hosts.h"

#include "device/system/alloc.h"
#include "launcher/job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void make_job(fl_job *job)
{
    fl_job_defaults(job);
    job->n_hosts = 2;
    for (int i = 0; i < 2; i++) {
        job->hosts[i].devices = 4;
        strcpy(job->hosts[i].name, i == 0 ? "a" : "b");
        strcpy(job->hosts[i].address, i == 0 ? "192.0.2.1" : "192.0.2.2");
    }
}

static void test_planned_hosts__are_those_of_the_job(void **state)
{
    (void)state;
    static fl_job job;
    fl_planned_hosts *planned = NULL;
    make_job(&job);
    job.devices.count = FL_JOB_AUTO;
    assert_int_equal(fl_planned_hosts_make(NULL, &job, &planned), FL_OK);
    assert_non_null(planned);
    assert_int_equal(job.devices.count, 8);
    assert_int_equal(planned->hosts.n, 2);
    assert_int_equal(planned->hosts.host[1].first, 4);
    assert_int_equal(planned->file.cluster.n_devices, 8);
    fl_free(planned);
}

static void test_planned_hosts__refuse_another_number_of_devices(void **state)
{
    (void)state;
    static fl_job job;
    fl_planned_hosts *planned = NULL;
    make_job(&job);
    job.devices.count = 7;
    assert_int_equal(fl_planned_hosts_make(NULL, &job, &planned), FL_EINVAL);
    assert_null(planned);
    assert_non_null(strstr(fl_errmsg(), "found 7, but the hosts have 8 devices"));
}

/* Would catch: a job whose `hosts` state what no plan sees. */
static void test_planned_hosts__have_what_the_job_states(void **state)
{
    (void)state;
    static fl_job job;
    fl_planned_hosts *planned = NULL;
    char text[FL_HOST_STATED_MAX];
    make_job(&job);
    job.devices.count = FL_JOB_AUTO;
    job.devices.memory_bytes = INT64_C(2) << 30;
    job.hosts[1].memory_bytes = INT64_C(1) << 30;
    job.hosts[1].speed = 0.5;
    strcpy(job.hosts[1].profile, "b.yaml");
    assert_int_equal(fl_planned_hosts_make(NULL, &job, &planned), FL_OK);
    const fl_cluster *c = &planned->file.cluster;
    assert_true(c->speed[3] == 1.0 && c->memory_bytes[3] == 0);
    assert_true(c->speed[4] == 0.5 && c->speed[7] == 0.5);
    assert_true(c->memory_bytes[4] == INT64_C(1) << 30);
    assert_false(fl_cluster_file_states_costs(&planned->file, 0));
    assert_true(fl_cluster_file_states_costs(&planned->file, 1));
    assert_string_equal(fl_cluster_file_stated(&planned->file, 0, text), "");
    assert_string_equal(fl_cluster_file_stated(&planned->file, 1, text),
                        "memory 1.0 GiB, speed 0.5, profile b.yaml");
    fl_free(planned);
}

static void test_planned_hosts__refuse_more_memory_than_a_worker_has(void **state)
{
    (void)state;
    static fl_job job;
    fl_planned_hosts *planned = NULL;
    make_job(&job);
    job.devices.count = FL_JOB_AUTO;
    job.devices.memory_bytes = INT64_C(2) << 30;
    job.hosts[1].memory_bytes = INT64_C(3) << 30;
    assert_int_equal(fl_planned_hosts_make(NULL, &job, &planned), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "hosts: entry 2, memory: found 3.0 GiB, allowed: at most "
                                        "devices.memory, 2.0 GiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_hosts__are_those_of_the_job),
        cmocka_unit_test(test_planned_hosts__refuse_another_number_of_devices),
        cmocka_unit_test(test_planned_hosts__have_what_the_job_states),
        cmocka_unit_test(test_planned_hosts__refuse_more_memory_than_a_worker_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
