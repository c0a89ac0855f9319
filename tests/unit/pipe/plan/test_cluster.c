/* Plans for several hosts: prices by hand, layouts by table, and choices against every placement
 * that there is. */
#include "pipe/cost/time/routes.h"
#include "pipe/plan/layouts.h"
#include "pipe/plan/plan_change.h"
#include "pipe/plan/planner.h"
#include "pipe/plan/worker_pool.h"

#include "support/data/situation.h"
#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const double NANOSECOND_US = 1e-3;

static const fl_link_cost slow_net = {
    .latency_us = 50.0, .bytes_per_us = 10.0, .reduce_bytes_per_us = 10.0};

static void cluster_between(fl_cluster *c, int n_hosts, int devices, fl_link_cost between)
{
    fl_cluster_init(c, n_hosts, devices);
    c->link[FL_LINK_HOSTS] = between;
    assert_int_equal(fl_cluster_check(c), FL_OK);
}

static double priced(const situation *s, int K, int R, int M, const int *cuts, const int *device_of)
{
    static fl_cost_table table;
    fl_candidate c;
    fl_cost_table_init(&table, &s->input);
    fl_cost_model_price(&table, (fl_grid){.K = K, .R = R, .M = M}, cuts, device_of, &c);
    return c.step_us;
}

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

/* ---- against every placement ---- */

typedef struct search {
    const situation *s;
    fl_plan plan;
    bool used[FL_MAX_WORKERS];
    double best;
} search;

static void try_splits(search *t, int stage)
{
    fl_plan *plan = &t->plan;
    if (stage == plan->K - 1) {
        fl_candidate detail;
        plan->first[plan->K] = plan->n_layers;
        (void)fl_plan_predict(&t->s->input, plan, &detail);
        t->best = detail.why_not == FL_OK ? fmin(t->best, detail.step_us) : t->best;
        return;
    }
    for (int next = plan->first[stage] + 1; next <= plan->n_layers - (plan->K - stage - 1);
         next++) {
        plan->first[stage + 1] = next;
        try_splits(t, stage + 1);
    }
}

static void try_places(search *t, int place)
{
    if (place == t->plan.K * t->plan.R) {
        try_splits(t, 0);
        return;
    }
    for (int d = 0; d < t->s->input.n_workers; d++) {
        if (!t->used[d]) {
            t->used[d] = true;
            t->plan.rank_of[place] = d;
            try_places(t, place + 1);
            t->used[d] = false;
        }
    }
}

/* A device of another kind: some layers are slower there, others faster. */
static void draw_kind(const situation *s, fl_cluster *c, fl_profile *kind)
{
    *kind = s->profile;
    for (int i = 0; i < kind->n_layers; i++) {
        fl_layer_cost *l = &kind->layer[i];
        l->fwd_us = draw(1, 20) * 0.5;
        l->bwd_us = draw(1, 40) * 0.5;
    }
    kind->optimizer_us_per_param = draw(1, 4) * 1e-4;
    kind->loss_us = draw(0, 4) * 0.5;
    int number = fl_cluster_add_kind(c, &s->profile, kind);
    for (int d = 1; d < c->n_devices; d++) {
        c->kind_of[d] = draw(0, 1) ? number : 0;
    }
}

static void draw_situation(situation *s, fl_cluster *c, fl_profile *kind)
{
    int n_hosts = draw(2, 3), devices = n_hosts == 2 ? draw(1, 2) : 1, n_layers = draw(2, 5);
    situation_init(s, n_layers, n_hosts * devices, draw(1, 12));
    fl_cluster_init(c, n_hosts, devices);
    c->link[FL_LINK_HOSTS] = (fl_link_cost){draw(0, 100), draw(1, 200), draw(1, 200)};
    bool differ = draw(0, 1);
    for (int d = 0; d < c->n_devices; d++) {
        c->speed[d] = differ ? draw(1, 4) * 0.5 : 1.0;
        c->memory_bytes[d] = differ && draw(0, 1) ? draw(30, 200) * (int64_t)1000 : 0;
    }
    for (int i = 0; i < n_layers; i++) {
        fl_layer_cost *l = &s->profile.layer[i];
        l->fwd_us = draw(1, 10) * 0.5;
        l->bwd_us = draw(1, 20) * 0.5;
        l->out_bytes = draw(1, 400);
        l->n_params = draw(1, 20) * 100;
    }
    if (draw(0, 1)) {
        draw_kind(s, c, kind);
    }
    s->profile.reduce_cpu_share = draw(0, 10) * 0.1;
    s->job.devices.memory_bytes = draw(30, 200) * (int64_t)1000;
    s->input.cluster = c;
}

/* A plan that some other placement, split, K or R beats; or a refusal where one fits. */
static void test_cluster__chooses_as_brute_force(void **state)
{
    (void)state;
    int n_chosen = 0, n_refused = 0, n_pipelines = 0;
    seed_random();
    for (int round = 0; round < 120; round++) {
        situation s;
        fl_cluster c;
        fl_plan plan = {0};
        fl_profile kind;
        double best = INFINITY;
        draw_situation(&s, &c, &kind);
        s.job.pipe.m = draw(1, s.job.train.batch < 4 ? (int)s.job.train.batch : 4);
        fl_status status = fl_plan_choose(&s.input, &plan, NULL, 0, NULL);
        for (int K = 1; K <= s.profile.n_layers && K <= s.input.n_workers; K++) {
            for (int R = 1; R <= s.input.n_workers / K && R <= s.job.train.batch; R++) {
                search t = {.s = &s, .best = INFINITY};
                int64_t share = (s.job.train.batch + R - 1) / R;
                t.plan = (fl_plan){.K = K,
                                   .R = R,
                                   .M = (int)s.job.pipe.m,
                                   .n_layers = s.profile.n_layers,
                                   .n_workers = s.input.n_workers,
                                   .schedule = s.job.pipe.schedule};
                if (s.job.pipe.m <= share) {
                    try_places(&t, 0);
                    best = fmin(best, t.best);
                }
            }
        }
        assert_int_equal(status, isinf(best) ? FL_EBUDGET : FL_OK);
        if (status == FL_OK && fabs(best - plan.predicted_step_us) > NANOSECOND_US) {
            print_message("round %d: %g, brute force %g\n", round, plan.predicted_step_us, best);
        }
        assert_true(status != FL_OK || fabs(best - plan.predicted_step_us) <= NANOSECOND_US);
        n_chosen += status == FL_OK;
        n_refused += status != FL_OK;
        n_pipelines += status == FL_OK && plan.K > 1;
        situation_fini(&s);
    }
    print_message("%d chosen, %d of them pipelines, %d refused\n", n_chosen, n_pipelines,
                  n_refused);
    assert_true(n_chosen > 40 && n_pipelines > 10);
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

/* Without worker 0 the plan is on the others, each with its own speed. */
static void test_cluster__drained_devices_are_left_out(void **state)
{
    (void)state;
    situation s;
    fl_cluster c;
    fl_plan plan;
    fl_worker_pool usable = {.drained = {true}};
    situation_init(&s, 4, 3, 8);
    cluster_between(&c, 3, 1, slow_net);
    c.speed[1] = 0.5;
    s.input.cluster = &c;
    s.job.pipe.k = 1;
    s.job.autodp.r = 1;
    assert_int_equal(fl_worker_pool_choose(&usable, &s.input, &plan), FL_OK);
    assert_int_equal(plan.rank_of[0], 2);
    assert_true(fabs(plan.predicted_step_us - fl_plan_predict(&s.input, &plan, NULL)) < 1e-9);
    situation_fini(&s);
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
        cmocka_unit_test(test_cluster__one_host_is_as_none),
        cmocka_unit_test(test_cluster__pipelines_cross_only_where_it_is_faster),
        cmocka_unit_test(test_cluster__a_slow_device_gets_fewer_layers),
        cmocka_unit_test(test_cluster__a_kind_has_costs_of_its_own),
        cmocka_unit_test(test_cluster__replicas_wait_for_the_slower_kind),
        cmocka_unit_test(test_cluster__cuts_of_many_layers_follow_the_speeds),
        cmocka_unit_test(test_cluster__a_stage_fits_its_own_device),
        cmocka_unit_test(test_cluster__chooses_as_brute_force),
        cmocka_unit_test(test_cluster__moves_are_priced_by_their_links),
        cmocka_unit_test(test_cluster__drained_devices_are_left_out),
        cmocka_unit_test(test_cluster__check_names_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
