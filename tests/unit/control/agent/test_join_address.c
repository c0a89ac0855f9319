/* The address of a host that joins. Would catch: a pod that was made again, and whose workers would
 * listen at the address of the one before; and a host whose fast network, which the file of hosts
 * names, would be given up for the one by which it reaches the head. */
#include "control/agent/join/join_address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { OLD = 0x0a000002, NEW = 0x0a000009 };

typedef struct address_case {
    const char *known;
    fl_host_join join;
    const char *expected;
} address_case;

static void test_join_address__is_one_that_the_host_has(void **state)
{
    (void)state;
    static const address_case cases[] = {
        /* it has moved */
        {"10.0.0.2", {.address = "10.0.0.9", .n_own = 2, .own = {0x7f000001, NEW}}, "10.0.0.9"},
        /* two networks, and the file names the other one */
        {"10.0.0.2", {.address = "10.0.0.9", .n_own = 2, .own = {NEW, OLD}}, "10.0.0.2"},
        {"10.0.0.2",
         {.address = "10.0.0.9", .chosen = true, .n_own = 2, .own = {NEW, OLD}},
         "10.0.0.9"},
        /* it says too little */
        {"10.0.0.2", {.address = "", .n_own = 1, .own = {NEW}}, "10.0.0.2"},
        {"10.0.0.2", {.address = "b.example", .n_own = 1, .own = {NEW}}, "10.0.0.2"},
        {"10.0.0.2", {.address = "10.0.0.9"}, "10.0.0.2"},
        /* all hosts on one machine */
        {"127.0.0.2", {.address = "127.0.0.1", .n_own = 1, .own = {0x7f000001}}, "127.0.0.2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_host host = {.n = 1};
        snprintf(host.address, sizeof host.address, "%s", cases[i].known);
        assert_string_equal(fl_join_address(&host, &cases[i].join), cases[i].expected);
    }
}

/* Would catch: others that are told an address which leads them to themselves, or to nobody. */
static void test_join_address__others_reach_the_host_there(void **state)
{
    (void)state;
    static const struct {
        const char *head, *address;
        fl_host_join join;
        const char *wrong;
    } cases[] = {
        {"10.0.0.1", "10.0.0.2", {.n_own = 2, .own = {0x7f000001, OLD}}, NULL},
        {"10.0.0.1", "10.0.0.2", {.n_own = 0}, NULL}, /* it says nothing of its addresses */
        {"127.0.0.1", "127.0.0.2", {.n_own = 1, .own = {0x7f000001}}, NULL},
        {"10.0.0.1", "10.0.0.9", {.n_own = 1, .own = {OLD}}, "10.0.0.9, which is no address of"},
        {"10.0.0.1", "127.0.0.2", {.n_own = 1, .own = {OLD}}, "127.0.0.2, which leads other hosts"},
        {"10.0.0.1", "0.0.0.0", {.n_own = 1, .own = {OLD}}, "0.0.0.0, which means every address"},
        {"10.0.0.1", "240.0.0.1", {.n_own = 0}, "240.0.0.1, an address of 240.0.0.0/4"},
        {"127.0.0.1", "0.0.0.0", {.n_own = 0}, "0.0.0.0, which means every address"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static fl_hosts hosts;
        char why[FL_HOST_TEXT_MAX + 1] = "";
        snprintf(hosts.host[0].address, sizeof hosts.host[0].address, "%s", cases[i].head);
        bool good = fl_join_is_reachable(&hosts, &cases[i].join, cases[i].address, why);
        assert_int_equal(good, cases[i].wrong == NULL);
        assert_true(good || strstr(why, cases[i].wrong) != NULL);
    }
}

/* Would catch: a user with a mistyped --name, who reads only that no ranks are left. */
static void test_join_address__names_the_hosts_that_are_awaited(void **state)
{
    (void)state;
    static fl_hosts hosts = {.n = 3,
                             .host = {{.name = "a", .address = "10.0.0.1", .n = 1},
                                      {.name = "b", .address = "10.0.0.2", .first = 1, .n = 1},
                                      {.name = "c", .address = "10.0.0.3", .first = 2, .n = 1}}};
    const fl_host_join join = {.name = "bb", .n_devices = 1};
    bool awaited[3] = {false, true, false};
    char why[FL_HOST_TEXT_MAX + 1] = "";
    assert_true(fl_join_has_ranks(&hosts, &join, 4, awaited, why));
    assert_false(fl_join_has_ranks(&hosts, &join, 3, awaited, why));
    assert_non_null(strstr(why,
                           "only 0 of 3 ranks are left (devices.max); the run waits for "
                           "b (10.0.0.2): if this host is one of them, give its name with --name"));
    awaited[1] = false;
    assert_false(fl_join_has_ranks(&hosts, &join, 3, awaited, why));
    assert_null(strstr(why, "waits"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_address__is_one_that_the_host_has),
        cmocka_unit_test(test_join_address__others_reach_the_host_there),
        cmocka_unit_test(test_join_address__names_the_hosts_that_are_awaited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
