/* The line that says which worker waits for which, from tables of the operations that they are in.
 */
#include "control/observe/wait_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const int64_t SECOND = 1000000000;

enum { N = 4, NOW = 100 };

/* Two replicas of two stages: workers 0 1 and 2 3. */
static fl_plan plan_of(int K, int R)
{
    fl_plan plan = {.generation = 3, .K = K, .R = R, .M = 4, .n_layers = 8, .n_workers = N};
    for (int i = 0; i < K * R; i++) {
        plan.rank_of[i] = i;
    }
    for (int i = K * R; i < N; i++) {
        plan.rank_of[i] = i;
    }
    return plan;
}

static fl_flight_entry entry(fl_flight_kind kind, int peer, int item)
{
    return (fl_flight_entry){.kind = kind,
                             .generation = 3,
                             .step = 37,
                             .micro_batch = -1,
                             .item = item,
                             .peer = peer,
                             .entered_ns = (NOW - 2) * SECOND};
}

static fl_flight_entry of_micro_batch(fl_flight_kind kind, int peer, int m)
{
    fl_flight_entry e = entry(kind, peer, -1);
    e.micro_batch = m;
    e.bytes = 8192;
    return e;
}

static fl_wait_graph_worker in(fl_flight_kind phase, fl_flight_entry at)
{
    fl_wait_graph_worker w = {.at = at, .phase = entry(phase, -1, -1)};
    w.sum = at.kind == FL_FLIGHT_SUM ? at : entry(FL_FLIGHT_SUM, -1, 37);
    w.gather = at.kind == FL_FLIGHT_GATHER ? at : entry(FL_FLIGHT_GATHER, -1, 1);
    return w;
}

static const fl_model *model; /* of the run; NULL: not known */

static void check(const fl_wait_graph_worker *workers, int n, int K, int R, int lost,
                  const char *expected)
{
    char text[1024];
    fl_plan plan = plan_of(K, R);
    fl_wait_graph_explain(workers, n, &plan, model, lost, NOW * SECOND, text, sizeof text);
    assert_string_equal(text, expected);
}

static void test_wait_graph__a_receive(void **state)
{
    (void)state;
    fl_wait_graph_worker w[2] = {
        in(FL_FLIGHT_STEP, of_micro_batch(FL_FLIGHT_RECEIVE_GRAD, 1, 0)),
        in(FL_FLIGHT_STEP, of_micro_batch(FL_FLIGHT_RECEIVE, 0, 2)),
    };
    check(w, 2, 2, 1, 1,
          "worker 1 is in receive of activations from worker 0 (step 37, micro-batch 2, 8192 "
          "bytes), since 2.0 s; worker 0 waits for worker 1 in receive of gradients (step 37, "
          "micro-batch 0, 8192 bytes)");
}

/* A worker in a collective waits only for the workers that have not entered it. */
static void test_wait_graph__a_sum_at_which_one_never_arrived(void **state)
{
    (void)state;
    fl_flight_entry sum = entry(FL_FLIGHT_SUM, -1, 38);
    fl_wait_graph_worker w[N] = {
        in(FL_FLIGHT_STEP, sum),
        in(FL_FLIGHT_STEP, entry(FL_FLIGHT_BACKWARD, -1, 6)),
        in(FL_FLIGHT_STEP, sum),
        in(FL_FLIGHT_STEP, sum),
    };
    w[1].at.micro_batch = 3;
    check(w, N, 2, 2, 1,
          "worker 1 is in backward of layer 6 (step 37, micro-batch 3), since 2.0 s; workers 0, 2 "
          "and 3 wait for worker 1, which never arrived, in sum over all workers (step 37)");
    check(w, N, 2, 2, -1,
          "worker 1 is in backward of layer 6 (step 37, micro-batch 3), since 2.0 s; workers 0, 2 "
          "and 3 wait for worker 1, which never arrived, in sum over all workers (step 37)");
}

/* A plugin's author knows layers by their name or kind, not by their number. A number beyond the
 * model, as a damaged record may hold it, stays a number. */
static void test_wait_graph__names_the_layer(void **state)
{
    (void)state;
    fl_model *two = NULL;
    fl_layer layer = {0};
    assert_int_equal(fl_model_create("two", &two), FL_OK);
    assert_int_equal(fl_layer_linear(4, 4, &layer), FL_OK);
    assert_int_equal(fl_model_add(two, 1, layer), FL_OK);
    assert_int_equal(fl_layer_norm(&(fl_norm_config){.dim = 4}, &layer), FL_OK);
    assert_int_equal(fl_model_add(two, 1, layer), FL_OK);
    model = two;
    fl_wait_graph_worker w[1] = {in(FL_FLIGHT_STEP, entry(FL_FLIGHT_FORWARD, -1, 1))};
    w[0].at.micro_batch = 3;
    check(w, 1, 1, 1, 0,
          "worker 0 is in forward of layer 1, norm (step 37, micro-batch 3), "
          "since 2.0 s");
    w[0].at.item = 2;
    check(w, 1, 1, 1, 0, "worker 0 is in forward of layer 2 (step 37, micro-batch 3), since 2.0 s");
    assert_int_equal(fl_layer_norm(&(fl_norm_config){.dim = 4}, &layer), FL_OK);
    assert_int_equal(fl_model_add_named(two, 1, "blocks.1.ln", layer), FL_OK);
    check(w, 1, 1, 1, 0,
          "worker 0 is in forward of layer 2, blocks.1.ln (step 37, micro-batch 3), "
          "since 2.0 s");
    model = NULL;
    fl_model_destroy(&two);
}

/* All workers have entered the collective, and the lost one did not complete it. */
static void test_wait_graph__a_sum_at_which_one_came_and_stopped(void **state)
{
    (void)state;
    fl_flight_entry sum = entry(FL_FLIGHT_SUM, -1, 38);
    fl_wait_graph_worker w[2] = {in(FL_FLIGHT_STEP, sum), in(FL_FLIGHT_STEP, sum)};
    check(
        w, 2, 2, 1, 0,
        "worker 0 is in sum over all workers (step 37), since 2.0 s; worker 1 waits for worker 0, "
        "which arrived and did not finish, in sum over all workers (step 37)");
}

/* An all-reduce is among the owners of a stage: the other stage's workers wait in the sum. */
static void test_wait_graph__an_all_reduce_of_one_stage(void **state)
{
    (void)state;
    fl_flight_entry sum = entry(FL_FLIGHT_SUM, -1, 38);
    fl_flight_entry wait = entry(FL_FLIGHT_REDUCE_WAIT, -1, 512);
    wait.bytes = 400;
    fl_wait_graph_worker w[N] = {in(FL_FLIGHT_STEP, sum), in(FL_FLIGHT_STEP, wait),
                                 in(FL_FLIGHT_STEP, sum),
                                 in(FL_FLIGHT_STEP, entry(FL_FLIGHT_OPTIMIZER, -1, -1))};
    w[1].reduce = entry(FL_FLIGHT_REDUCE, -1, 512);
    w[3].reduce = entry(FL_FLIGHT_REDUCE, -1, 514);
    w[3].reduce.step = 36;
    check(w, N, 2, 2, 3,
          "worker 3 is in optimizer (step 37), since 2.0 s; workers 0 and 2 wait for workers 1 and "
          "3, which never arrived, in sum over all workers (step 37); worker 1 waits for worker 3, "
          "which never arrived, in all-reduce (step 37, bucket 0 of stage 1, 400 bytes)");
}

static void test_wait_graph__a_vote_and_a_migration(void **state)
{
    (void)state;
    fl_flight_entry vote = entry(FL_FLIGHT_GATHER, -1, 2);
    fl_wait_graph_worker w[3] = {
        in(FL_FLIGHT_VOTE, vote),
        in(FL_FLIGHT_VOTE, entry(FL_FLIGHT_VOTE, -1, -1)),
        in(FL_FLIGHT_VOTE, vote),
    };
    check(w, 3, 2, 1, 1,
          "worker 1 is in transition: vote (before step 37), since 2.0 s; workers 0 and 2 wait for "
          "worker 1, which never arrived, in gathering (transition: vote)");
    fl_flight_entry state_in = entry(FL_FLIGHT_STATE_IN, 1, 20);
    state_in.bytes = 99;
    fl_wait_graph_worker m[2] = {in(FL_FLIGHT_MIGRATION, state_in),
                                 in(FL_FLIGHT_MIGRATION, entry(FL_FLIGHT_MIGRATION, -1, -1))};
    check(m, 2, 2, 1, 1,
          "worker 1 is in transition: migration (before step 37), since 2.0 s; worker 0 waits for "
          "worker 1 in receive of state (transition: migration, 99 bytes)");
}

/* Would catch: a worker that never got ready, and a message that does not name the call of NCCL. */
static void test_wait_graph__an_opening(void **state)
{
    (void)state;
    fl_wait_graph_worker w[2] = {in(FL_FLIGHT_NONE, entry(FL_FLIGHT_COMM_SPLIT, -1, -1)),
                                 in(FL_FLIGHT_NONE, entry(FL_FLIGHT_COMM_CONNECT, 0, -1))};
    check(w, 2, 2, 1, 0,
          "worker 0 is in ncclCommSplit (step 37), since 2.0 s; worker 1 waits for worker 0 in "
          "first operation of a communicator (step 37)");
    check(w, 2, 2, 1, 1,
          "worker 1 is in first operation of a communicator with worker 0 (step 37), since 2.0 s");
}

/* Worker 1 computes, worker 0 waits for its gradient, and the other replica for both of them. Would
 * catch: a neighbour that waits, with as few steps, in place of the worker that holds it up. */
static void test_wait_graph__the_culprit_waits_for_nobody(void **state)
{
    (void)state;
    fl_plan plan = plan_of(2, 2);
    fl_wait_graph_worker w[N] = {
        in(FL_FLIGHT_STEP, of_micro_batch(FL_FLIGHT_RECEIVE_GRAD, 1, 0)),
        in(FL_FLIGHT_STEP, entry(FL_FLIGHT_BACKWARD, -1, 6)),
        in(FL_FLIGHT_STEP, entry(FL_FLIGHT_SUM, -1, 38)),
        in(FL_FLIGHT_STEP, entry(FL_FLIGHT_SUM, -1, 38)),
    };
    w[2].sum = w[2].at;
    w[3].sum = w[3].at;
    assert_int_equal(fl_wait_graph_culprit(w, N, &plan), 1);
    w[1].at = of_micro_batch(FL_FLIGHT_RECEIVE, 0, 0); /* all wait */
    assert_int_equal(fl_wait_graph_culprit(w, N, &plan), -1);
}

static void test_wait_graph__nobody(void **state)
{
    (void)state;
    fl_wait_graph_worker w[2] = {in(FL_FLIGHT_STEP, entry(FL_FLIGHT_FORWARD, -1, 0)),
                                 in(FL_FLIGHT_STEP, entry(FL_FLIGHT_DATA, -1, -1))};
    check(w, 2, 2, 1, -1, "");
    fl_wait_graph_worker fresh[1];
    memset(fresh, 0, sizeof fresh);
    check(fresh, 1, 1, 1, 0, "");
    check(fresh, 1, 1, 1, -1, "");
    w[0].last = entry(FL_FLIGHT_OPTIMIZER, -1, -1);
    w[0].last.left_ns = (NOW - 1) * SECOND;
    w[0].at.kind = FL_FLIGHT_NONE;
    check(w, 2, 2, 1, 0, "worker 0 is behind optimizer (step 37), since 1.0 s");
}

/* A thousand workers and little room: the line is cut, never overrun, and the lost one is in it. */
static void test_wait_graph__many_workers_in_little_room(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    static fl_wait_graph_worker w[MANY];
    static fl_plan plan;
    char text[512];
    plan = plan_of(1, 1);
    plan.K = 4;
    plan.R = MANY / 4;
    plan.n_workers = MANY;
    for (int i = 0; i < MANY; i++) {
        plan.rank_of[i] = i;
        w[i] = in(FL_FLIGHT_STEP, entry(FL_FLIGHT_SUM, -1, 38));
    }
    w[700] = in(FL_FLIGHT_STEP, entry(FL_FLIGHT_DATA, -1, -1));
    for (size_t size = 1; size <= sizeof text; size++) {
        memset(text, '#', sizeof text);
        fl_wait_graph_explain(w, MANY, &plan, NULL, 700, NOW * SECOND, text, size);
        assert_true(strlen(text) < size);
        assert_true(size == sizeof text || text[size] == '#');
    }
    assert_string_equal(text,
                        "worker 700 is in data (step 37), since 2.0 s; workers 0, 1, 2, 3, 4, 5, "
                        "6, 7 and 991 more wait for worker 700, which never arrived, in sum over "
                        "all workers (step 37)");
}

/* Each call is named once, with all workers in it, whatever their peers. */
static void test_wait_graph__lists_calls_that_open_communicators(void **state)
{
    (void)state;
    char text[256], little[24];
    fl_flight_entry call[20] = {entry(FL_FLIGHT_COMM_SPLIT, -1, -1),
                                entry(FL_FLIGHT_COMM_INIT, 0, -1), entry(FL_FLIGHT_NONE, -1, -1),
                                entry(FL_FLIGHT_COMM_SPLIT, 1, -1)};
    assert_string_equal(fl_wait_graph_openings(call, N, text, sizeof text),
                        "workers 0 and 3 wait in ncclCommSplit; worker 1 waits in "
                        "ncclCommInitRankConfig");
    assert_string_equal(fl_wait_graph_openings(call + 2, 1, text, sizeof text), "");
    for (int i = 0; i < 20; i++) {
        call[i] = entry(FL_FLIGHT_COMM_SHRINK, -1, -1);
    }
    assert_string_equal(fl_wait_graph_openings(call, 20, text, sizeof text),
                        "workers 0, 1, 2, 3, 4, 5, 6, 7 and 12 more wait in ncclCommShrink");
    assert_string_equal(fl_wait_graph_openings(call, 20, little, sizeof little),
                        "workers 0, 1, 2, 3, 4, ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_graph__a_receive),
        cmocka_unit_test(test_wait_graph__a_sum_at_which_one_never_arrived),
        cmocka_unit_test(test_wait_graph__names_the_layer),
        cmocka_unit_test(test_wait_graph__a_sum_at_which_one_came_and_stopped),
        cmocka_unit_test(test_wait_graph__an_all_reduce_of_one_stage),
        cmocka_unit_test(test_wait_graph__a_vote_and_a_migration),
        cmocka_unit_test(test_wait_graph__an_opening),
        cmocka_unit_test(test_wait_graph__the_culprit_waits_for_nobody),
        cmocka_unit_test(test_wait_graph__nobody),
        cmocka_unit_test(test_wait_graph__many_workers_in_little_room),
        cmocka_unit_test(test_wait_graph__lists_calls_that_open_communicators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
