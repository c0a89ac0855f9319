/* The kind of a host that joins. Would catch: plans that price the devices of a host by the profile
 * of the machine that had its name before, and ones that forget what the user has stated. */
#include "control/controller/judge/host_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const fl_kind_origin kinds[] = {
    {.host = "b", .from = "stated"},
    {.host = "c", .kind = "P, baseline", .from = "measured"},
};

static void test_host_kind__is_the_one_that_it_names(void **state)
{
    (void)state;
    const fl_costs_origin costs = {.kinds = kinds, .n_kinds = 2};
    const fl_machine_kind own = {.processor = "P, avx2", .gpus = "G"};
    static const struct {
        fl_machine_kind kind;
        fl_device_kind devices;
        int expected;
        bool known;
    } cases[] = {
        {{.processor = "P, avx2"}, FL_DEVICE_CPU, 0, true},
        {{.processor = "P, baseline"}, FL_DEVICE_CPU, 2, true},
        {{.processor = "Q, avx2"}, FL_DEVICE_CPU, 0, false},
        {{.processor = "Q, avx2", .gpus = "G"}, FL_DEVICE_CUDA, 0, true}, /* GPUs compute */
        {{.processor = "P, avx2", .gpus = "H"}, FL_DEVICE_CUDA, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool known;
        assert_int_equal(fl_host_kind_find(&costs, cases[i].devices, &own, &cases[i].kind, &known),
                         cases[i].expected);
        assert_int_equal(known, cases[i].known);
    }
}

static void test_host_kind__changes_when_another_machine_joins(void **state)
{
    (void)state;
    static fl_cluster c;
    bool has_speed[FL_MAX_WORKERS] = {[2] = true};
    const fl_costs_origin costs = {.kinds = kinds, .n_kinds = 2, .has_speed = has_speed};
    const fl_machine_kind slow = {.processor = "P, baseline"}, other = {.processor = "Q"};
    fl_cluster_init(&c, 3, 2);
    const fl_host b = {.name = "b", .first = 2, .n = 2}, d = {.name = "d", .first = 4, .n = 2};
    fl_host_kind_take(&costs, FL_DEVICE_CPU, &b, &slow, &c);
    assert_int_equal(c.kind_of[1], 0);
    assert_int_equal(c.kind_of[2], 2);
    assert_int_equal(c.kind_of[3], 2);
    fl_host_kind_take(&costs, FL_DEVICE_CPU, &b, &other, &c); /* no profile: as the head's */
    assert_int_equal(c.kind_of[2], 0);
    c.kind_of[2] = c.kind_of[3] = 1; /* the user's */
    fl_host_kind_take(&costs, FL_DEVICE_CPU, &b, &slow, &c);
    assert_int_equal(c.kind_of[2], 1);
    fl_host_kind_take(&costs, FL_DEVICE_CPU, &d, &slow, &c); /* its speed is the user's */
    assert_int_equal(c.kind_of[4], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_kind__is_the_one_that_it_names),
        cmocka_unit_test(test_host_kind__changes_when_another_machine_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
