/* The network interface that NCCL is told to use. Catches one that is not that of the host's
 * address, and a user's own choice that is overwritten. */
#include "autodp/nccl/interface.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char variable[] = "NCCL_SOCKET_IFNAME";

static void test_interface__is_that_of_the_address(void **state)
{
    (void)state;
    unsetenv(variable);
    assert_int_equal(fl_nccl_choose_interface("127.0.0.1"), FL_OK);
    assert_string_equal(getenv(variable), "=lo");
}

static void test_interface__is_loopback_without_an_address(void **state)
{
    (void)state;
    unsetenv(variable);
    assert_int_equal(fl_nccl_choose_interface(NULL), FL_OK);
    assert_string_equal(getenv(variable), "=lo");
}

static void test_interface__keeps_what_the_user_has_set(void **state)
{
    (void)state;
    setenv(variable, "ib0", 1);
    assert_int_equal(fl_nccl_choose_interface("127.0.0.1"), FL_OK);
    assert_string_equal(getenv(variable), "ib0");
}

static void test_interface__names_an_address_that_none_has(void **state)
{
    (void)state;
    static const char *const wrong[] = {"192.0.2.77", "host-b", ""};
    unsetenv(variable);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(fl_nccl_choose_interface(wrong[i]), FL_EINVAL);
        assert_non_null(strstr(fl_errmsg(), wrong[i]));
        assert_null(getenv(variable));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interface__is_that_of_the_address),
        cmocka_unit_test(test_interface__is_loopback_without_an_address),
        cmocka_unit_test(test_interface__keeps_what_the_user_has_set),
        cmocka_unit_test(test_interface__names_an_address_that_none_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
