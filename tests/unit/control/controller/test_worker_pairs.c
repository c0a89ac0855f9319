/* What the controller says of hosts whose workers do not reach each other. */
#include "control/controller/members/worker_pairs.h"

#include <frostline/job.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Would catch: advice to set autodp.ports together with autodp.security none, which refuses it. */
static void test_worker_pairs__advise_what_the_job_allows(void **state)
{
    (void)state;
    static const fl_hosts hosts = {.n = 2, .host = {{.name = "b"}, {.name = "c"}}};
    static const fl_host_pair pair = {.a = 0, .b = 1, .port = 20017, .why = "no answer in 2.0 s"};
    static fl_hosts with_ports;
    char text[FL_WORKER_PAIRS_TEXT];
    fl_worker_pairs_explain(&hosts, FL_SECURITY_TLS, &pair, text);
    assert_string_equal(text, "port 20017 of host c (b tries: no answer in 2.0 s); let TCP to any "
                              "port between the hosts through, or set autodp.ports");
    fl_worker_pairs_explain(&hosts, FL_SECURITY_NONE, &pair, text);
    assert_string_equal(text, "port 20017 of host c (b tries: no answer in 2.0 s); let TCP to any "
                              "port between the hosts through");
    with_ports = hosts;
    with_ports.ports[0] = 20000;
    with_ports.ports[1] = 20099;
    fl_worker_pairs_explain(&with_ports, FL_SECURITY_TLS, &pair, text);
    assert_string_equal(text, "port 20017 of host c (b tries: no answer in 2.0 s); let TCP to the "
                              "ports 20000 to 20099 between the hosts through");
}

static void test_worker_pairs__name_loopback_where_it_is_filtered(void **state)
{
    (void)state;
    static const fl_host_pair pair = {
        .a = 1, .b = 1, .port = 20017, .why = "worker 1 tries port 20017: no answer in 2.0 s"};
    char text[FL_WORKER_PAIRS_TEXT];
    fl_worker_pairs_explain_own(&pair, text);
    assert_string_equal(text, "do not reach each other over the interface lo: loopback is filtered "
                              "(worker 1 tries port 20017: no answer in 2.0 s; `frostline doctor` "
                              "checks it)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker_pairs__advise_what_the_job_allows),
        cmocka_unit_test(test_worker_pairs__name_loopback_where_it_is_filtered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
