/* Which plan is chosen for several hosts, and what a change of plans costs there. Against every
 * placement that there is: test_cluster_search.c. */
#include "pipe/plan/plan_change.h"
#include "pipe/plan/planner.h"
#include "pipe/plan/worker_pool.h"

#include "support/data/cluster.h"
#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- choices ---- */

/* The same plan, to the last bit, as without a cluster. */
static void test_cluster__one_host_is_as_none(void **state)
{
    (void)state;
    seed_random();
    for (int round = 0; round < 100; round++) {
        situation s;
        fl_cluster c;
        fl_plan with = {0}, without = {0};
        situation_init(&s, draw(1, 20), draw(1, 24), draw(1, 200));
        s.profile.link_us = draw(0, 30);
        s.profile.link_bytes_per_us = draw(1, 1000);
        s.profile.reduce_bytes_per_us = draw(1, 1000);
        s.profile.reduce_cpu_share = draw(0, 10) * 0.1;
        s.job.devices.memory_bytes = draw(20, 600) * (int64_t)1000;
        fl_cluster_init(&c, 1, s.input.n_workers);
        fl_status a = fl_plan_choose(&s.input, &without, NULL, 0, NULL);
        s.input.cluster = &c;
        assert_int_equal(fl_plan_choose(&s.input, &with, NULL, 0, NULL), a);
        assert_memory_equal(&with, &without, sizeof with);
        situation_fini(&s);
    }
}

static bool is_within_hosts(const fl_plan *plan, const fl_cluster *c)
{
    for (int i = 0; i + 1 < plan->K * plan->R; i++) {
        if ((i + 1) % plan->K != 0 &&
            c->host_of[plan->rank_of[i]] != c->host_of[plan->rank_of[i + 1]]) {
            return false;
        }
    }
    return true;
}

/* Wide boundaries and few parameters: pipelines stay within hosts. Many parameters and thin
 * boundaries: the owners of a stage do, and pipelines cross. */
static void test_cluster__pipelines_cross_only_where_it_is_faster(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    situation_init(&s, 8, 8, 64);
    cluster_between(&c, 2, 4, slow_net);
    s.input.cluster = &c;
    s.job.pipe.k = 4;
    s.job.autodp.r = 2;
    for (int i = 0; i < 8; i++) {
        s.profile.layer[i].n_params = 10;
        s.profile.layer[i].out_bytes = 10000;
    }
    fl_plan near = chosen(&s);
    assert_true(is_within_hosts(&near, &c));
    for (int i = 0; i < 8; i++) {
        s.profile.layer[i].n_params = 1000 * 1000;
        s.profile.layer[i].out_bytes = 1;
    }
    fl_plan far = chosen(&s);
    assert_false(is_within_hosts(&far, &c));
    for (int k = 0; k < 4; k++) {
        assert_int_equal(c.host_of[far.rank_of[k]], c.host_of[far.rank_of[4 + k]]);
    }
    assert_true(far.predicted_step_us < fl_plan_predict(&s.input, &near, NULL));
    situation_fini(&s);
}

/* Two hosts, one of which is half as fast: where a pipeline has to have both, its slow device gets
 * half of the layers of the fast one. */
static void test_cluster__a_slow_device_gets_fewer_layers(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    situation_init(&s, 12, 2, 64);
    cluster_between(&c, 2, 1, (fl_link_cost){0.0, 1e6, 1e6});
    c.speed[1] = 0.5;
    s.input.cluster = &c;
    s.job.pipe.k = 2;
    fl_plan plan = chosen(&s);
    int slow = plan.rank_of[0] == 1 ? 0 : 1;
    assert_int_equal(plan.first[slow + 1] - plan.first[slow], 4);
    s.job.pipe.k = 1; /* one device is enough: the fast one, wherever it is */
    s.job.autodp.r = 1;
    c.speed[0] = 0.25;
    assert_int_equal(chosen(&s).rank_of[0], 1);
    situation_fini(&s);
}

/* A kind of device on which two layers of twelve take ten times as long, and the others as long as
 * elsewhere. One factor for all its layers would give it a few of any; by its own costs it gets its
 * half without these two. */
static void test_cluster__a_kind_has_costs_of_its_own(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    situation_init(&s, 12, 2, 64);
    fl_profile kind = s.profile;
    cluster_between(&c, 2, 1, (fl_link_cost){0.0, 1e6, 1e6});
    kind.layer[0].fwd_us *= 10;
    kind.layer[0].bwd_us *= 10;
    kind.layer[1] = kind.layer[0];
    c.kind_of[1] = fl_cluster_add_kind(&c, &s.profile, &kind);
    assert_int_equal(c.kind_of[1], 1);
    assert_true(fabs(fl_cluster_speed(&c, 1) - 12.0 / 30.0) < 1e-9);
    assert_true(fl_cluster_speed(&c, 0) == 1.0);
    assert_int_equal(fl_cluster_check(&c), FL_OK);
    s.input.cluster = &c;
    s.job.pipe.k = 2;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.rank_of[1], 1);
    assert_int_equal(plan.first[1], 6);
    c.n_kinds = 0;
    assert_int_equal(fl_cluster_check(&c), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "kind"));
    situation_fini(&s);
}

/* Replicas on devices of two kinds: the step is that of the slower one, and a part of the cluster
 * keeps its kinds. */
static void test_cluster__replicas_wait_for_the_slower_kind(void **state)
{
    (void)state;
    situation s;
    fl_cluster c, part;
    static const int cuts[] = {0, 4};
    situation_init(&s, 4, 2, 8);
    fl_profile kind = s.profile;
    cluster_between(&c, 2, 1, (fl_link_cost){0.0, 1e9, 1e9});
    for (int i = 0; i < 4; i++) {
        kind.layer[i].fwd_us *= 3;
        kind.layer[i].bwd_us *= 3;
    }
    kind.optimizer_us_per_param *= 3;
    s.input.cluster = &c;
    double alike = priced(&s, 1, 2, 1, cuts, (int[]){0, 1});
    c.kind_of[1] = fl_cluster_add_kind(&c, &s.profile, &kind);
    double mixed = priced(&s, 1, 2, 1, cuts, (int[]){0, 1});
    assert_true(fabs(mixed - 3.0 * alike) < 1e-3 * alike);
    fl_cluster_take(&c, (int[]){1}, 1, &part);
    assert_int_equal(part.kind_of[0], 1);
    assert_ptr_equal(part.kind[0], &kind);
    assert_false(fl_cluster_is_alike(&c, 0, 1));
    situation_fini(&s);
}

/* So many splits that only the partition finds the cuts: 40 layers at the speeds 1, 1 and 1 / 2. */
static void test_cluster__cuts_of_many_layers_follow_the_speeds(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    situation_init(&s, 40, 3, 64);
    cluster_between(&c, 3, 1, (fl_link_cost){0.0, 1e6, 1e6});
    c.speed[2] = 0.5;
    s.input.cluster = &c;
    s.job.pipe.k = 3;
    fl_plan plan = chosen(&s);
    for (int k = 0; k < 3; k++) {
        int n = plan.first[k + 1] - plan.first[k];
        assert_int_equal(n, plan.rank_of[k] == 2 ? 8 : 16);
    }
    situation_fini(&s);
}

/* A stage must fit the device that has it: the small one holds three of ten layers. */
static void test_cluster__a_stage_fits_its_own_device(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    fl_plan plan;
    situation_init(&s, 10, 2, 8);
    cluster_between(&c, 2, 1, (fl_link_cost){0.0, 1e6, 1e6});
    c.memory_bytes[0] = (int64_t)N_PARAMS * 4 * 4 * 5 / 2 + 12000;
    s.input.cluster = &c;
    s.job.pipe.k = 2;
    plan = chosen(&s);
    int small = plan.rank_of[0] == 0 ? 0 : 1;
    int n = plan.first[small + 1] - plan.first[small];
    assert_true(n >= 1 && n <= 3);
    fl_candidate detail;
    (void)fl_plan_predict(&s.input, &plan, &detail);
    assert_int_equal(detail.why_not, FL_OK);
    plan.first[1] = 5; /* as if all had the same memory */
    (void)fl_plan_predict(&s.input, &plan, &detail);
    assert_int_equal(detail.why_not, FL_EBUDGET);
    c.memory_bytes[1] = c.memory_bytes[0];
    assert_int_equal(fl_plan_choose(&s.input, &plan, NULL, 0, NULL), FL_EBUDGET);
    situation_fini(&s);
}

/* ---- a change of plans ---- */

/* Two hosts of two. One stage each becomes two replicas of a stage: what host 1 lacks comes over
 * the slow link, and places stay in the host that the planner chose. */
static void test_cluster__moves_are_priced_by_their_links(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    fl_plan_change near, far;
    static const int parked[] = {-1, -1, -1, -1};
    const fl_plan running = {
        .K = 1, .R = 1, .M = 1, .n_layers = 4, .n_workers = 4, .first = {0, 4}, .rank_of = {1}};
    fl_plan next = running, cross = running;
    situation_init(&s, 4, 4, 8);
    cluster_between(&c, 2, 2, slow_net);
    s.input.cluster = &c;
    next.R = cross.R = 2;
    next.rank_of[0] = 0;
    next.rank_of[1] = 1;
    cross.rank_of[0] = 2;
    cross.rank_of[1] = 0;
    fl_plan_change_place(&s.input, &running, &next, (bool[4]){false});
    assert_int_equal(next.rank_of[0], 1); /* which has the layers */
    assert_int_equal(next.rank_of[1], 0);
    fl_plan_change_place(&s.input, &running, &cross, (bool[4]){false});
    assert_int_equal(c.host_of[cross.rank_of[0]], 1);
    assert_int_equal(cross.rank_of[1], 1);
    assert_int_equal(fl_plan_change_price(&s.input, &running, &next, parked, 5.0, &near), FL_OK);
    assert_int_equal(fl_plan_change_price(&s.input, &running, &cross, parked, 5.0, &far), FL_OK);
    assert_int_equal(near.move_bytes, far.move_bytes);
    double bytes = (double)near.move_bytes;
    assert_true(bytes > 0.0);
    assert_true(fabs(near.cost_ms - (5.0 + bytes / s.profile.link_bytes_per_us * 1e-3)) < 1e-9);
    assert_true(fabs(far.cost_ms - (5.0 + bytes / slow_net.bytes_per_us * 1e-3)) < 1e-9);
    situation_fini(&s);
}

/* Without worker 0 the plan is on the others, each with its own speed. Would catch: no candidates
 * where some workers are left out, as if there were no other plan. */
static void test_cluster__drained_devices_are_left_out(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    fl_plan plan;
    fl_worker_pool usable = {.drained = {true}};
    fl_candidate candidates[32];
    int n_candidates = 0;
    situation_init(&s, 4, 3, 8);
    cluster_between(&c, 3, 1, slow_net);
    c.speed[1] = 0.5;
    s.input.cluster = &c;
    s.job.pipe.k = 1;
    s.job.autodp.r = 1;
    assert_int_equal(fl_worker_pool_choose(&usable, &s.input, &plan), FL_OK);
    assert_int_equal(plan.rank_of[0], 2);
    assert_true(fabs(plan.predicted_step_us - fl_plan_predict(&s.input, &plan, NULL)) < 1e-9);
    s.job.pipe.k = s.job.autodp.r = FL_JOB_AUTO;
    assert_int_equal(
        fl_worker_pool_choose_listed(&usable, &s.input, &plan, candidates, 32, &n_candidates),
        FL_OK);
    assert_true(n_candidates > 1);
    assert_true(fl_grid_is_same(candidates[0].grid, fl_plan_grid(&plan)));
    for (int i = 0; i < n_candidates; i++) {
        assert_true(candidates[i].grid.K * candidates[i].grid.R <= 2);
    }
    situation_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster__one_host_is_as_none),
        cmocka_unit_test(test_cluster__pipelines_cross_only_where_it_is_faster),
        cmocka_unit_test(test_cluster__a_slow_device_gets_fewer_layers),
        cmocka_unit_test(test_cluster__a_kind_has_costs_of_its_own),
        cmocka_unit_test(test_cluster__replicas_wait_for_the_slower_kind),
        cmocka_unit_test(test_cluster__cuts_of_many_layers_follow_the_speeds),
        cmocka_unit_test(test_cluster__a_stage_fits_its_own_device),
        cmocka_unit_test(test_cluster__moves_are_priced_by_their_links),
        cmocka_unit_test(test_cluster__drained_devices_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
