/* Plans for several hosts: prices by hand, layouts by table, and what a cluster must be. What is
 * chosen for one: test_cluster_choices.c. */
#include "pipe/cost/time/routes.h"
#include "pipe/plan/layouts.h"

#include "support/data/cluster.h"
#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- prices ---- */

/* One micro-batch of 8 samples up and down two stages: 100 bytes a sample each way. */
static void test_cluster__prices_a_boundary_by_its_link(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    static const int cuts[] = {0, 2, 4}, near[] = {0, 1}, far[] = {0, 2};
    situation_init(&s, 4, 4, 8);
    cluster_between(&c, 2, 2, slow_net);
    c.link[FL_LINK_SOCKET] = (fl_link_cost){2.0, 100.0, 100.0};
    s.input.cluster = &c;
    double within = priced(&s, 2, 1, 1, cuts, near), across = priced(&s, 2, 1, 1, cuts, far);
    double step = 8 * 4 * 3.0 + 2 * N_PARAMS * 1e-4;
    assert_true(fabs(within - (step + 2 * (2.0 + 8.0) + 2 * 2.0)) < 1e-6);
    assert_true(fabs(across - (step + 2 * (50.0 + 80.0) + 2 * 50.0)) < 1e-6);
    c.socket_of[1] = 2;
    c.n_sockets = 3;
    c.link[FL_LINK_HOST] = (fl_link_cost){3.0, 50.0, 50.0};
    assert_true(fabs(priced(&s, 2, 1, 1, cuts, near) - (step + 2 * (3.0 + 16.0) + 2 * 3.0)) < 1e-6);
    situation_fini(&s);
}

/* Two pipelines that cross the same two hosts share their interfaces. */
static void test_cluster__devices_share_the_interface_of_their_host(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    static const int cuts[] = {0, 2, 4}, both[] = {0, 2, 1, 3}, one[] = {0, 2, 1, 0};
    fl_routes r;
    situation_init(&s, 4, 4, 8);
    cluster_between(&c, 2, 2, slow_net);
    fl_routes_init(&r, &c, &s.profile, 2, 2, both);
    assert_true(fl_routes_message_us(&r, 0, 0, 100.0) == 50.0 + 2 * 10.0);
    fl_routes_init(&r, &c, &s.profile, 2, 1, one);
    assert_true(fl_routes_message_us(&r, 0, 0, 100.0) == 50.0 + 10.0);
    fl_routes_init(&r, &c, &s.profile, 2, 2, both);
    assert_true(fl_routes_crossing_us(&r, 3, (double[]){100.0}) == 2 * 3 * 10.0);
    s.input.cluster = &c; /* so many micro-batches that the network is what takes the time */
    s.profile.optimizer_us_per_param = 0.0;
    c.link[FL_LINK_HOSTS] = (fl_link_cost){0.0, 1.0, 1e9};
    double step = priced(&s, 2, 2, 4, cuts, both);
    assert_true(step >= 2 * 400.0 && step < 2 * 400.0 + 2 * 24.0);
    situation_fini(&s);
}

/* 4 owners in two hosts: a ring of two within each, then each host sends the bytes once. */
static void test_cluster__sums_gradients_in_two_levels(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    fl_routes r;
    situation_init(&s, 4, 4, 8);
    cluster_between(&c, 2, 2, slow_net);
    c.link[FL_LINK_SOCKET] = (fl_link_cost){2.0, 100.0, 100.0};
    fl_routes_init(&r, &c, &s.profile, 1, 4, NULL);
    fl_ring ring = fl_routes_ring(&r, (int[]){0}, 1);
    assert_int_equal(ring.n_within, 2);
    assert_int_equal(ring.n_hosts, 2);
    assert_true(fabs(fl_ring_us(&ring, 1000.0) - (2 * 2.0 + 10.0 + 2 * 50.0 + 100.0)) < 1e-9);
    assert_true(fabs(fl_ring_crossing_us(&ring, 1000.0) - (2 * 50.0 + 100.0)) < 1e-9);
    double flat = 2 * 3 * 50.0 + 1.5 * 100.0; /* of 4 that all cross: dearer */
    assert_true(fl_ring_us(&ring, 1000.0) < flat);
    assert_true(fl_routes_commit_us(&r) == 2 * 2.0 + 2 * 50.0);
    /* Two stages of two owners each, one in each host: the interfaces send one sum, then the
     * other's. */
    fl_routes_init(&r, &c, &s.profile, 2, 2, NULL);
    double free_us[2] = {0.0, 0.0};
    assert_true(fl_routes_queue(&r, 1, 10.0, 5.0, free_us) == 15.0);
    assert_true(fl_routes_queue(&r, 0, 12.0, 5.0, free_us) == 20.0);
    situation_fini(&s);
}

/* ---- layouts ---- */

static void test_cluster__fills_hosts_block_by_block(void **state)
{
    (void)state;
    static const int wanted[3][8] = {
        {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 4, 5, 2, 3, 6, 7}, {0, 2, 4, 6, 1, 3, 5, 7}};
    static fl_layout_hosts hosts;
    static fl_layouts layouts;
    fl_cluster c;
    int device_of[FL_MAX_WORKERS];
    cluster_between(&c, 2, 4, slow_net);
    fl_layout_hosts_init(&hosts, &c);
    fl_layouts_init(&layouts, &hosts, 4, 2);
    for (int i = 0; i < 3; i++) {
        assert_true(fl_layouts_next(&layouts, device_of));
        assert_memory_equal(device_of, wanted[i], sizeof wanted[i]);
    }
    /* Hosts of 4 and pipelines of 3: the second does not begin on what the first left. */
    fl_layouts_init(&layouts, &hosts, 3, 2);
    assert_true(fl_layouts_next(&layouts, device_of));
    assert_memory_equal(device_of, ((int[]){0, 1, 2, 4, 5, 6}), 6 * sizeof(int));
}

/* Every layout names each device at most once, and every kind of placement of two is among few. */
static void test_cluster__layouts_are_placements(void **state)
{
    (void)state;
    static fl_layout_hosts hosts;
    static fl_layouts layouts;
    seed_random();
    for (int round = 0; round < 300; round++) {
        fl_cluster c;
        int device_of[FL_MAX_WORKERS], n_layouts = 0, at = 0;
        cluster_between(&c, draw(1, 6), draw(1, 6), slow_net);
        for (int d = 0; d < c.n_devices; d++) {
            c.speed[d] = draw(1, 2);
            at = draw(0, 2) == 0 ? draw(0, c.n_hosts - 1) : c.host_of[d];
            c.host_of[d] = c.socket_of[d] = at;
        }
        int K = draw(1, c.n_devices), R = draw(1, c.n_devices / K);
        fl_layout_hosts_init(&hosts, &c);
        fl_layouts_init(&layouts, &hosts, K, R);
        for (; fl_layouts_next(&layouts, device_of); n_layouts++) {
            bool used[FL_MAX_WORKERS] = {false};
            for (int i = 0; i < K * R; i++) {
                assert_true(device_of[i] >= 0 && device_of[i] < c.n_devices);
                assert_false(used[device_of[i]]);
                used[device_of[i]] = true;
            }
        }
        assert_true(n_layouts >= 1);
    }
}

/* What the input promises, and is not so. */
static void test_cluster__check_names_what_is_wrong(void **state)
{
    (void)state;
    fl_cluster good, c;
    cluster_between(&good, 2, 2, slow_net);
    c = good;
    c.host_of[3] = 2;
    assert_int_equal(fl_cluster_check(&c), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "device 3"));
    c = good;
    c.socket_of[2] = 0;
    assert_int_equal(fl_cluster_check(&c), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "socket 0"));
    c = good;
    c.speed[1] = 0.0;
    assert_int_equal(fl_cluster_check(&c), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "speed"));
    c = good;
    c.link[FL_LINK_HOSTS].bytes_per_us = 0.0;
    assert_int_equal(fl_cluster_check(&c), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "between hosts"));
    c = good;
    c.n_devices = FL_MAX_WORKERS + 1;
    assert_int_equal(fl_cluster_check(&c), FL_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster__prices_a_boundary_by_its_link),
        cmocka_unit_test(test_cluster__devices_share_the_interface_of_their_host),
        cmocka_unit_test(test_cluster__sums_gradients_in_two_levels),
        cmocka_unit_test(test_cluster__fills_hosts_block_by_block),
        cmocka_unit_test(test_cluster__layouts_are_placements),
        cmocka_unit_test(test_cluster__check_names_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
