/* Plans for several hosts against every placement, split, K and R that there is. */
#include "pipe/plan/planner.h"

#include "support/data/situation.h"
#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const double NANOSECOND_US = 1e-3;

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster__chooses_as_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
