/* Counts of captured work over a run. Would catch: counts that start again with each plan, or that
 * a repeated report adds twice. */
#include "control/state/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static fl_graphs_report report_of(uint32_t generation, int64_t captures, int64_t launches,
                                  int64_t calls)
{
    fl_graphs_report r = {.generation = generation};
    r.graphs.captures = captures;
    r.graphs.launches = launches;
    r.graphs.calls = calls;
    return r;
}

static void expect(const fl_graph_sums *sums, int64_t captures, int64_t launches, int64_t calls)
{
    const fl_graph_counts total = fl_graph_sums_total(sums);
    assert_int_equal(total.captures, captures);
    assert_int_equal(total.launches, launches);
    assert_int_equal(total.calls, calls);
}

/* Counts of a generation grow from report to report; those of the next begin at zero, also where
 * they are already higher than the last ones. */
static void test_graph_sums__go_on_over_generations(void **state)
{
    (void)state;
    fl_graph_sums sums = {0};
    static const struct {
        uint32_t generation;
        int64_t captures, launches, calls, all[3];
    } reports[] = {
        {0, 3, 10, 8, {3, 10, 8}},   {0, 3, 50, 9, {3, 50, 9}},   {0, 3, 50, 9, {3, 50, 9}},
        {2, 4, 60, 1, {7, 110, 10}}, {2, 5, 61, 2, {8, 111, 11}}, {7, 0, 0, 5, {8, 111, 16}},
    };
    expect(&sums, 0, 0, 0);
    assert_false(sums.any);
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        const fl_graphs_report r = report_of(reports[i].generation, reports[i].captures,
                                             reports[i].launches, reports[i].calls);
        fl_graph_sums_add(&sums, &r);
        assert_true(sums.any);
        expect(&sums, reports[i].all[0], reports[i].all[1], reports[i].all[2]);
    }
}

/* Would catch: a counter that falls back when a process takes the place of a lost one, or memory of
 * a process that has ended. */
static void test_graph_sums__go_on_after_a_loss(void **state)
{
    (void)state;
    fl_worker worker = {.rank = 1};
    fl_graphs_report r = report_of(2, 4, 60, 1);
    r.graphs.bytes = 4096;
    fl_graph_sums_add(&worker.graphs, &r);
    assert_int_equal(worker.graphs.memory_bytes, 4096);
    fl_worker_begin_again(&worker, 0);
    expect(&worker.graphs, 4, 60, 1);
    assert_int_equal(worker.graphs.memory_bytes, 0);
    r = report_of(2, 1, 2, 3); /* even of the same generation */
    fl_graph_sums_add(&worker.graphs, &r);
    expect(&worker.graphs, 5, 62, 4);
    r = report_of(5, 1, 1, 1);
    fl_graph_sums_add(&worker.graphs, &r);
    expect(&worker.graphs, 6, 63, 5);
}

static void test_graph_sums__count_the_shapes_of_the_last_report(void **state)
{
    (void)state;
    fl_graph_sums sums = {0};
    fl_graphs_report r = report_of(1, 1, 1, 1);
    static const fl_stage_way ways[] = {FL_STAGE_MEASURED, FL_STAGE_BY_CALLS, FL_STAGE_BY_GRAPHS,
                                        FL_STAGE_BY_CALLS};
    for (int i = 0; i < 4; i++) {
        r.graphs.shape[i].way = ways[i];
    }
    for (int n = 4; n >= 0; n -= 4) {
        r.graphs.shapes = n;
        fl_graph_sums_add(&sums, &r);
        assert_int_equal(sums.n_shapes[FL_STAGE_MEASURED], n / 4);
        assert_int_equal(sums.n_shapes[FL_STAGE_BY_GRAPHS], n / 4);
        assert_int_equal(sums.n_shapes[FL_STAGE_BY_CALLS], n / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph_sums__go_on_over_generations),
        cmocka_unit_test(test_graph_sums__go_on_after_a_loss),
        cmocka_unit_test(test_graph_sums__count_the_shapes_of_the_last_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
