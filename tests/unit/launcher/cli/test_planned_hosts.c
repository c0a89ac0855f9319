/* The hosts that plan and doctor count devices of. Would catch: a plan for this machine alone where
 * the job has hosts, and a number of devices that a run on them refuses. */
#include "launcher/cli/hosts/planned_hosts.h"

#include "device/alloc.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_hosts__are_those_of_the_job),
        cmocka_unit_test(test_planned_hosts__refuse_another_number_of_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
