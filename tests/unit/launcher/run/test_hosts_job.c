/* What the hosts of a run change in its job. */
#include "launcher/job/job.h"
#include "launcher/run/hosts/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static fl_hosts hosts = {.n = 2, .host = {{.n = 1}, {.n = 2, .first = 1}}};

/* A run that is resumed on other hosts takes its job with an override of its own, and a message
 * blamed a --set that nobody gave. */
static void test_hosts_job__the_number_of_devices_has_no_place(void **state)
{
    (void)state;
    static const char *const own[] = {"devices.count=auto"}, *const given[] = {"devices.count=3"};
    char place[FL_PLACE_MAX];
    fl_job job;
    assert_int_equal(fl_job_parse("a.yaml", "{}", 2, own, 1, &job), FL_OK);
    assert_int_equal(fl_hosts_take_job(&hosts, &job), FL_OK);
    assert_int_equal(job.devices.count, 3);
    assert_string_equal(fl_job_place(&job, "devices.count", place), "a.yaml: ");
    assert_int_equal(fl_job_parse("a.yaml", "{}", 2, given, 1, &job), FL_OK);
    assert_int_equal(fl_hosts_take_job(&hosts, &job), FL_OK);
    assert_string_equal(fl_job_place(&job, "devices.count", place), "--set devices.count=3: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_job__the_number_of_devices_has_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
