/* The state that each worker keeps, sends and receives when one plan follows another, as pure
 * decisions: the schedule, the places, the kept bytes and the memory must agree with each other. */
#include "device/random/random.h"
#include "nn/model.h"
#include "pipe/cost/layout.h"
#include "pipe/cost/plan.h"
#include "pipe/plan/migrate_schedule.h"
#include "pipe/state/params.h"
#include "support/data/toy.h"
#include "support/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 6, WORKERS = 6, MOMENTS = 2, ROUNDS = 2000, LAYERS_MAX = 32 };

static fl_model *model;
static int n_layers;

static int set_up(void **state)
{
    (void)state;
    if (fl_toy_model(BLOCKS, 0.0f, &model) != FL_OK) {
        return -1;
    }
    n_layers = fl_model_n_layers(model);
    return n_layers <= LAYERS_MAX ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_model_destroy(&model);
    return 0;
}

static fl_plan plan_of(int F, int K, int R)
{
    fl_plan plan = {.F = F, .K = K, .R = R, .M = 1, .n_layers = n_layers, .n_workers = WORKERS};
    for (int k = 0; k <= K; k++) {
        plan.first[k] = n_layers * k / K;
    }
    for (int i = 0; i < K * R; i++) {
        plan.rank_of[i] = i;
    }
    return plan;
}

static int64_t moved_bytes(const fl_plan *old, const fl_plan *next, const int *parked)
{
    fl_move moves[LAYERS_MAX * (WORKERS + 1)];
    int n = 0;
    assert_int_equal(
        fl_migrate_schedule(model, old, next, parked, NULL, moves, n_layers * (next->R + 1), &n),
        FL_OK);
    return fl_migrate_bytes(model, moves, n, MOMENTS);
}

/* Four stages become two replicas of two: every worker keeps the quarter that it has. */
static void test_migrate__places_go_to_who_has_most(void **state)
{
    (void)state;
    int parked[LAYERS_MAX];
    memset(parked, -1, sizeof parked);
    fl_plan old = plan_of(0, 4, 1), next = plan_of(0, 2, 2);
    next.first[1] = old.first[2];
    int64_t before = moved_bytes(&old, &next, parked);
    fl_migrate_place(model, &old, &next, MOMENTS, NULL);
    int64_t all = 4 * (1 + MOMENTS) * fl_layout_count(model, 0, n_layers);
    assert_int_equal(moved_bytes(&old, &next, parked), all);
    assert_true(before > all);
    /* Nobody moves without need. */
    next = plan_of(3, 4, 1);
    fl_migrate_place(model, &old, &next, MOMENTS, NULL);
    assert_memory_equal(next.rank_of, old.rank_of, 4 * sizeof(int));
    assert_int_equal(moved_bytes(&old, &next, parked), 0);
}

static int drawn(uint64_t seed, int which, int n)
{
    return (int)(fl_mix64(seed, (uint64_t)which) % (uint64_t)n);
}

static fl_plan drawn_plan(uint64_t seed, int at)
{
    int K = 1 + drawn(seed, at, WORKERS), R = 1 + drawn(seed, at + 1, WORKERS / K);
    fl_plan plan = plan_of(drawn(seed, at + 2, BLOCKS), K, R);
    for (int i = K * R; i < WORKERS; i++) {
        plan.rank_of[i] = i;
    }
    /* Any places, standby workers too. */
    for (int i = 0; i < WORKERS; i++) {
        int j = i + drawn(seed, at + 3 + i, WORKERS - i), swap = plan.rank_of[i];
        plan.rank_of[i] = plan.rank_of[j];
        plan.rank_of[j] = swap;
    }
    return plan;
}

/* Bytes that `rank` needs under the next plan and that are not handed over to it. */
static int64_t fresh_bytes(const fl_plan *next, int rank, const unsigned char *handed)
{
    fl_place place = fl_plan_place(next, rank);
    int64_t bytes = 0;
    for (int l = 0; place.active && l < n_layers; l++) {
        if (l < next->first[place.stage] || l >= next->first[place.stage + 1]) {
            continue;
        }
        int64_t weights = 4 * fl_layout_count(model, l, l + 1);
        bytes += (handed[l] & FL_HANDED_WEIGHT) != 0 ? 0 : weights;
        bool trains = l >= fl_frozen_layers(model, next->F);
        bytes += trains && (handed[l] & FL_HANDED_MOMENTS) == 0 ? MOMENTS * weights : 0;
    }
    return bytes;
}

static void check_pair(const fl_plan *old, fl_plan *next, const int *parked)
{
    int64_t fresh = 0, back = 0, before = moved_bytes(old, next, parked);
    for (int rank = 0; rank < WORKERS; rank++) {
        unsigned char handed[LAYERS_MAX];
        fl_migrate_handed(model, old, next, parked, rank, handed);
        fresh += fresh_bytes(next, rank, handed);
        int64_t had = fl_migrate_state_bytes(model, old, rank, MOMENTS);
        int64_t has = fl_migrate_state_bytes(model, next, rank, MOMENTS);
        int64_t kept = fl_migrate_kept_bytes(model, old, next, rank, MOMENTS);
        assert_true(kept <= had && kept <= has);
        int64_t least = fl_migrate_least_bytes(model, old, next, rank, MOMENTS, has + 1);
        assert_int_equal(least, had - kept > 1 ? had + has - kept : has + 1);
        back += has - kept - fresh_bytes(next, rank, handed);
        assert_true(back >= 0); /* parked moments that return to a layer here */
    }
    /* A worker receives exactly the bytes that were not handed over to it. */
    assert_int_equal(fresh, before);
    fl_migrate_place(model, old, next, MOMENTS, NULL);
    bool used[WORKERS] = {false};
    for (int i = 0; i < next->K * next->R; i++) {
        assert_in_range(next->rank_of[i], 0, WORKERS - 1);
        assert_false(used[next->rank_of[i]]);
        used[next->rank_of[i]] = true;
    }
}

/* Three plans that a run may have one after another, and the workers that keep what froze with the
 * first. */
typedef struct history {
    fl_plan first, second, third;
    int parked[LAYERS_MAX];
} history;

static history drawn_history(uint64_t seed)
{
    history h = {.first = drawn_plan(seed, 0),
                 .second = drawn_plan(seed, 100),
                 .third = drawn_plan(seed, 200)};
    fl_plan start = h.first;
    start.F = 0;
    memset(h.parked, -1, sizeof h.parked);
    fl_migrate_parked(model, &start, &h.first, NULL, h.parked);
    return h;
}

static void test_migrate__all_accounts_agree(void **state)
{
    (void)state;
    uint64_t seed = drawn_seed();
    for (int i = 0; i < ROUNDS; i++) {
        history h = drawn_history(fl_mix64(seed, (uint64_t)i));
        check_pair(&h.first, &h.third, h.parked);
        fl_migrate_parked(model, &h.first, &h.second, NULL, h.parked);
        check_pair(&h.second, &h.third, h.parked);
    }
}

/* Moments of frozen layers move from workers that leave to workers that stay, once each. No move is
 * listed for a layer whose keeper stays. */
static void check_keepers(const fl_plan *old, const fl_plan *next, const int *before)
{
    fl_move moves[LAYERS_MAX * (WORKERS + 1)];
    int after[LAYERS_MAX], n = 0, n_frozen = fl_frozen_layers(model, next->F), n_to_parked = 0;
    memcpy(after, before, sizeof after);
    fl_migrate_parked(model, old, next, NULL, after);
    assert_int_equal(
        fl_migrate_schedule(model, old, next, before, NULL, moves, n_layers * (next->R + 1), &n),
        FL_OK);
    for (int i = 0; i < n; i++) {
        const fl_move *m = &moves[i];
        if (m->to_parked) {
            n_to_parked++;
            assert_true(m->layer < n_frozen && m->from == m->to && m->moments);
            assert_true(next->departed[m->moments_from] && after[m->layer] == m->to);
            assert_true(before[m->layer] < 0 || before[m->layer] == m->moments_from);
        }
    }
    for (int layer = 0; layer < n_frozen; layer++) {
        assert_in_range(after[layer], 0, WORKERS - 1);
        assert_false(next->departed[after[layer]]);
        n_to_parked -= before[layer] >= 0 && before[layer] != after[layer];
        n_to_parked -= before[layer] < 0 && !fl_plan_place(old, after[layer]).active;
    }
    assert_true(n_to_parked >= 0); /* the rest froze, and all its owners leave */
}

static void test_migrate__who_leaves_keeps_nothing(void **state)
{
    (void)state;
    uint64_t seed = drawn_seed();
    int n_left = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t mine = fl_mix64(seed, (uint64_t)i);
        history h = drawn_history(mine);
        for (int rank = 0; rank < WORKERS; rank++) {
            bool leaves = drawn(mine, 300 + rank, 2) == 0;
            h.second.departed[rank] = leaves && !fl_plan_place(&h.second, rank).active;
            n_left += h.second.departed[rank];
        }
        check_keepers(&h.first, &h.second, h.parked);
        fl_migrate_parked(model, &h.first, &h.second, NULL, h.parked);
        check_keepers(&h.second, &h.third, h.parked); /* nobody leaves */
    }
    assert_true(n_left > ROUNDS / 10);
}

/* ---- lost workers ---- */

/* Two replicas of two stages on the workers 0 to 3, all layers trained. */
static void test_migrate__a_replica_covers_what_was_lost(void **state)
{
    (void)state;
    static const struct {
        bool lost[WORKERS];
        int stage; /* of the orphans; -1: there are none */
    } cases[] = {
        {{false}, -1},
        {{true}, -1},
        {{true, true}, -1},                      /* a whole replica */
        {{true, false, false, true}, -1},        /* one of each stage, of both replicas */
        {{true, false, true}, 0},                /* both owners of the first stage */
        {{false, true, false, true}, 1},         /* both of the second */
        {{false, false, false, false, true}, -1} /* one that has no stage */
    };
    int parked[LAYERS_MAX];
    memset(parked, -1, sizeof parked);
    fl_plan old = plan_of(0, 2, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char orphans[LAYERS_MAX];
        int stage = cases[i].stage, first = stage < 0 ? 0 : old.first[stage],
            last = stage < 0 ? 0 : old.first[stage + 1];
        assert_int_equal(fl_migrate_orphans(model, &old, parked, cases[i].lost, orphans),
                         last - first);
        for (int layer = 0; layer < n_layers; layer++) {
            bool gone = layer >= first && layer < last;
            assert_int_equal(orphans[layer], gone ? FL_ORPHAN_WEIGHTS | FL_ORPHAN_MOMENTS : 0);
        }
    }
}

/* Layer 0 thaws with its moments, the other layers below n_frozen without, and no move brings what
 * nobody has. */
static void check_fresh(const fl_plan *old, const fl_plan *thawed, const int *parked,
                        const bool *lost, int n_frozen)
{
    fl_move moves[LAYERS_MAX * (WORKERS + 1)];
    bool fresh[LAYERS_MAX];
    int n = 0, n_with_params = 0;
    assert_int_equal(fl_migrate_schedule(model, old, thawed, parked, lost, moves,
                                         LAYERS_MAX * (WORKERS + 1), &n),
                     FL_OK);
    assert_int_equal(n, n_layers * thawed->R);
    for (int i = 0; i < n; i++) {
        int layer = moves[i].layer;
        assert_int_equal(moves[i].moments, layer == 0 || layer >= n_frozen);
        assert_int_equal(moves[i].moments_from, layer == 0 ? 1 : moves[i].from);
        n_with_params += layer > 0 && layer < n_frozen && fl_model_params(model, layer)->n > 0;
    }
    assert_int_equal(fl_migrate_fresh(model, old, thawed, parked, lost, fresh), n_with_params);
    for (int layer = 0; layer < n_layers; layer++) {
        assert_int_equal(fresh[layer], layer > 0 && layer < n_frozen);
    }
}

/* Frozen layers lose their moments with the worker that keeps them, and keep their weights. */
static void test_migrate__parked_moments_are_lost_alone(void **state)
{
    (void)state;
    const bool lost[WORKERS] = {[5] = true};
    unsigned char orphans[LAYERS_MAX];
    fl_move moves[LAYERS_MAX * (WORKERS + 1)];
    int parked[LAYERS_MAX], n = 0;
    fl_plan old = plan_of(2, 2, 1), next = plan_of(2, 1, 1), thawed = plan_of(0, 1, 1);
    int n_frozen = fl_frozen_layers(model, old.F);
    memset(parked, -1, sizeof parked);
    parked[0] = 1;
    for (int layer = 1; layer < n_frozen; layer++) {
        parked[layer] = 5;
    }
    assert_int_equal(fl_migrate_orphans(model, &old, parked, lost, orphans), 0);
    for (int layer = 0; layer < n_layers; layer++) {
        bool gone = layer >= 1 && layer < n_frozen;
        assert_int_equal(orphans[layer], gone ? FL_ORPHAN_MOMENTS : 0);
    }
    assert_int_equal(fl_migrate_schedule(model, &old, &next, parked, lost, moves,
                                         LAYERS_MAX * (WORKERS + 1), &n),
                     FL_OK);
    check_fresh(&old, &thawed, parked, lost, n_frozen); /* with the plan that follows the loss */
    fl_migrate_parked(model, &old, &next, lost, parked);
    assert_int_equal(parked[0], 1);
    for (int layer = 1; layer < n_layers; layer++) {
        assert_int_equal(parked[layer], -1);
    }
    check_fresh(&next, &thawed, parked, NULL, n_frozen); /* with a later one */
    fl_migrate_parked(model, &next, &thawed, NULL, parked);
    assert_int_equal(parked[0], -1);
}

/* Each layer that trains gets moments, unless it is fresh: it was frozen, and its moments are
 * orphans. */
static void check_moments(const history *h, const fl_plan *next, const bool *lost,
                          const unsigned char *orphans, const fl_move *moves, int n)
{
    int before = fl_frozen_layers(model, h->first.F), after = fl_frozen_layers(model, next->F);
    bool fresh[LAYERS_MAX];
    (void)fl_migrate_fresh(model, &h->first, next, h->parked, lost, fresh);
    for (int i = 0; i < n; i++) {
        int layer = moves[i].layer;
        assert_int_equal(fresh[layer], layer >= after && layer < before &&
                                           (orphans[layer] & FL_ORPHAN_MOMENTS) != 0);
        assert_true(moves[i].to_parked || moves[i].moments == (layer >= after && !fresh[layer]));
    }
}

/* Each place of the next plan gets each of its layers once, from a living worker. */
static void check_sources(const fl_plan *next, const bool *lost, const fl_move *moves, int n)
{
    int n_got = 0;
    for (int i = 0; i < n; i++) {
        const fl_move *m = &moves[i];
        fl_place place = fl_plan_place(next, m->to);
        assert_false(lost[m->from]);
        assert_false(m->moments && lost[m->moments_from]);
        assert_true(m->to_parked || (place.active && m->layer >= next->first[place.stage] &&
                                     m->layer < next->first[place.stage + 1]));
        n_got += !m->to_parked;
    }
    assert_int_equal(n_got, n_layers * next->R);
}

/* The survivors go on if and only if no layer's weights are orphans. */
static void test_migrate__survivors_take_over(void **state)
{
    (void)state;
    uint64_t seed = drawn_seed();
    int n_ok = 0, n_orphaned = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t mine = fl_mix64(seed, (uint64_t)i);
        history h = drawn_history(mine);
        bool lost[WORKERS];
        unsigned char orphans[LAYERS_MAX];
        fl_move moves[LAYERS_MAX * (WORKERS + 1)];
        int n = 0, n_left = 0;
        for (int rank = 0; rank < WORKERS; rank++) {
            lost[rank] = rank < WORKERS - 1 && drawn(mine, 400 + rank, 4) == 0;
            n_left += !lost[rank];
        }
        fl_plan next = plan_of(h.second.F, 1 + drawn(mine, 410, n_left), 1);
        next.R = 1 + drawn(mine, 411, n_left / next.K);
        fl_migrate_place(model, &h.first, &next, MOMENTS, lost);
        int n_gone = fl_migrate_orphans(model, &h.first, h.parked, lost, orphans);
        fl_status status = fl_migrate_schedule(model, &h.first, &next, h.parked, lost, moves,
                                               n_layers * (next.R + 1), &n);
        assert_int_equal(status, n_gone > 0 ? FL_EPEER : FL_OK);
        if (status == FL_OK) {
            check_sources(&next, lost, moves, n);
            check_moments(&h, &next, lost, orphans, moves, n);
            fl_migrate_parked(model, &h.first, &next, lost, h.parked);
            for (int layer = 0; layer < n_layers; layer++) {
                assert_true(h.parked[layer] < 0 || !lost[h.parked[layer]]);
            }
        }
        n_ok += status == FL_OK;
        n_orphaned += status != FL_OK;
    }
    assert_true(n_ok > ROUNDS / 20 && n_orphaned > ROUNDS / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_migrate__places_go_to_who_has_most),
        cmocka_unit_test(test_migrate__all_accounts_agree),
        cmocka_unit_test(test_migrate__who_leaves_keeps_nothing),
        cmocka_unit_test(test_migrate__a_replica_covers_what_was_lost),
        cmocka_unit_test(test_migrate__parked_moments_are_lost_alone),
        cmocka_unit_test(test_migrate__survivors_take_over),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
