/* Workers that compute slowly, by the times that they report. Would catch: a line on the terminal
 * each time that the same worker is slow again, and a worker that is lost and said to compute at
 * its usual speed again. */
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/runs/elastic_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLOW_WINDOW = 50, N_SLOW = 3 };

/* The workers of r->elastic.plan have all layers each. */
static int set_up(void **state)
{
    int status = rig_set_up(state);
    rig *r = *state;
    rig_know_the_model(r);
    for (int i = 0; i < r->profile.n_layers; i++) {
        r->profile.layer[i] = (fl_layer_cost){.fwd_us = 10, .bwd_us = 20};
    }
    r->elastic.plan = rig_plan(1, RIG_WORKERS);
    assert_int_equal(fl_stragglers_open(&r->elastic), FL_OK);
    return status;
}

static int tear_down(void **state)
{
    rig *r = *state;
    fl_stragglers_close(&r->elastic);
    return rig_tear_down(state);
}

/* Each worker of the plan reports that many steps; worker 1 takes `slowness` times as long. */
static void report_times(rig *r, int slowness)
{
    const fl_plan *plan = &r->elastic.plan;
    for (int step = 0; step < SLOW_WINDOW; step++) {
        for (int i = 0; i < plan->R; i++) {
            int rank = fl_plan_active(plan, i);
            fl_time_report report = {.step = step, .compute_us = rank == 1 ? 100 * slowness : 100};
            fl_stragglers_add(&r->elastic, rank, &report);
        }
    }
}

/* The run goes on with n workers: all but `lost`. */
static void go_on_without(rig *r, const bool *lost, int n)
{
    fl_plan next = rig_plan(1, n);
    next.generation = r->elastic.plan.generation + 1;
    for (int rank = 0, i = 0; rank < RIG_WORKERS; rank++) {
        next.departed[rank] = lost[rank];
        if (!lost[rank]) {
            next.rank_of[i++] = rank;
        }
    }
    r->elastic.plan = next;
}

static void expect_events(rig *r, int n_slow, int n_recovered)
{
    fl_runfiles_flush(&r->log.files);
    assert_int_equal(count_events(r->dir, "worker.slow", "\"rank\": 1"), n_slow);
    assert_int_equal(count_events(r->dir, "worker.slow", ""), n_slow);
    assert_int_equal(count_events(r->dir, "worker.recovered", ""), n_recovered);
}

static int count_text(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        n++;
    }
    return n;
}

static void test_stragglers__are_named_once_on_the_terminal(void **state)
{
    rig *r = *state;
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *terminal = open_memstream(&text, &size_bytes);
    r->log.progress.out = terminal;
    for (int i = 0; i < N_SLOW; i++) {
        report_times(r, 4);
        report_times(r, 1);
    }
    fl_stragglers_end(&r->elastic);
    assert_int_equal(fl_stragglers_count(&r->elastic), N_SLOW);
    expect_events(r, N_SLOW, N_SLOW);
    r->log.progress.out = r->out;
    fclose(terminal);
    assert_int_equal(count_text(text, "worker 1 computes slowly"), 1);
    assert_int_equal(count_text(text, "worker 1 computed slowly 3 times"), 1);
    free(text);
}

static void test_stragglers__that_are_lost_do_not_recover(void **state)
{
    rig *r = *state;
    report_times(r, 4);
    assert_int_equal(fl_stragglers_named(&r->elastic), 1);
    go_on_without(r, (const bool[RIG_WORKERS]){[1] = true}, 2);
    report_times(r, 4);
    assert_int_equal(fl_stragglers_named(&r->elastic), -1);
    expect_events(r, 1, 0);
    go_on_without(r, (const bool[RIG_WORKERS]){false}, RIG_WORKERS);
    report_times(r, 4);
    expect_events(r, 2, 0);
}

static void test_stragglers__do_not_recover_by_the_loss_of_the_others(void **state)
{
    rig *r = *state;
    report_times(r, 4);
    go_on_without(r, (const bool[RIG_WORKERS]){[0] = true, [2] = true}, 1);
    report_times(r, 4);
    assert_int_equal(fl_stragglers_named(&r->elastic), -1);
    expect_events(r, 1, 0);
}

#define IN_A_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_RIG(test_stragglers__are_named_once_on_the_terminal),
        IN_A_RIG(test_stragglers__that_are_lost_do_not_recover),
        IN_A_RIG(test_stragglers__do_not_recover_by_the_loss_of_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
