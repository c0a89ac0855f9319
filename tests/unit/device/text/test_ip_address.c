/* Which addresses a host may have. Would catch: a class of addresses that one command refuses and
 * another one takes, because each command asks here. */
#include "device/text/ip_address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_ip_address__addresses_of_no_host_have_a_fault(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fault;
    } cases[] = {
        {"0.0.0.0", "which means every address of a host"},
        {"*", "which means every address of a host"},
        {"::", "which means every address of a host"},
        {"[::]", "which means every address of a host"},
        {"0.0.0.1", "an address of 0.0.0.0/8, which no host has"},
        {"0.255.255.255", "an address of 0.0.0.0/8, which no host has"},
        {"224.0.0.0", "a multicast address"},
        {"239.255.255.255", "a multicast address"},
        {"240.0.0.0", "an address of 240.0.0.0/4 (class E), which no host has"},
        {"255.255.255.254", "an address of 240.0.0.0/4 (class E), which no host has"},
        {"255.255.255.255", "a broadcast address"},
        {"::1", "an IPv6 loopback address"},
        {"[::1]", "an IPv6 loopback address"},
        {"ff02::1", "an IPv6 multicast address"},
        {"fe80::1%eth0", "an IPv6 link-local address"},
        {"::ffff:10.0.0.1", "an IPv4 address in the form of an IPv6 one"},
        {"fd00::2", "an IPv6 address"},
        /* a host may have it */
        {"1.0.0.0", NULL},
        {"10.0.0.1", NULL},
        {"127.0.0.2", NULL},
        {"169.254.0.1", NULL},
        {"223.255.255.255", NULL},
        /* no address */
        {"", NULL},
        {"b.example", NULL},
        {"0.0.0", NULL},
        {"010.0.0.1", NULL},
        {"[::1", NULL},
        {"::1]", NULL},
        {"fe80::1%e\x1b[2J", NULL},
        {"[fe80::1%eth0]x", NULL},
        {"1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19:20:21:22:23:24:25", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *fault = fl_ip_fault(cases[i].text);
        if ((fault == NULL) != (cases[i].fault == NULL) ||
            (fault != NULL && strcmp(fault, cases[i].fault) != 0)) {
            fail_msg("%s: %s", cases[i].text, fault == NULL ? "none" : fault);
        }
    }
}

static void test_ip_address__loopback_is_of_every_host(void **state)
{
    (void)state;
    assert_true(fl_ip_is_loopback("127.0.0.1"));
    assert_true(fl_ip_is_loopback("127.255.255.254"));
    assert_false(fl_ip_is_loopback("128.0.0.1"));
    assert_false(fl_ip_is_loopback("127.example"));
    assert_false(fl_ip_is_loopback("localhost"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ip_address__addresses_of_no_host_have_a_fault),
        cmocka_unit_test(test_ip_address__loopback_is_of_every_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
