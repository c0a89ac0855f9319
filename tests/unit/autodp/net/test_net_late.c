/* What a net says of a wait that was not over in time. Would catch: "took longer than 0 ms", for a
 * process that stood still until its deadline had passed. */
#include "autodp/net/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_net_late__names_no_wait_of_nothing(void **state)
{
    (void)state;
    char text[128];
    fl_net_late_text(text, sizeof text, "receiving from", 1, 200);
    assert_string_equal(text, "receiving from member 1 took longer than 200 ms");
    fl_net_late_text(text, sizeof text, "receiving from", 1, 0);
    assert_string_equal(text,
                        "receiving from member 1: its time was over before the wait for it began");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_net_late__names_no_wait_of_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
