#include "support/runs/restart.h"

#include "device/system/clock.h"
#include "support/lines.h"
#include "support/nap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double TOLERANCE = 1e-5;

const char *const *const restart_sets =
    JOB_SETS("train.batch", "10", "train.epochs", "3", "train.lr", "1e-4", "train.evaluate",
             "false", "fault.detect", "10s"); /* a slow worker must not count as lost */

double *restart_one;

int restart_set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    restart_one = losses_of_one(restart_sets, RESTART_SAMPLES, RESTART_STEPS);
    return 0;
}

int restart_tear_down(void **state)
{
    free(restart_one);
    return remove_root(state);
}

void restart_start(scenario *s, const char *name, const char *const *more,
                   void (*act)(fl_worker_state *w))
{
    *s = (scenario){.name = name,
                    .sets = restart_sets,
                    .more = more,
                    .n_samples = RESTART_SAMPLES,
                    .dropout = 0.1f,
                    .at = {{.point = "step", .who = 1, .step = RESTART_FATAL_STEP, .act = act}}};
    scenario_start(s);
}

void restart_kill_later(fl_worker_state *w)
{
    while (atomic_load(w->c->store->kept_step) < 4) {
        nap(500);
    }
    kill_this_worker(w);
}

void restart_kill_once_snapped(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        while (count_events(scenario_here()->dir, "\"snapshot.taken\"", "") == 0) {
            nap(500);
        }
        kill_this_worker(w);
    }
}

void restart_expect_losses(const scenario *s, const double *expected)
{
    double *losses = losses_of(s, RESTART_STEPS);
    assert_true(worst_difference(losses, expected, 0, RESTART_STEPS) <= TOLERANCE);
    free(losses);
}

void restart_expect_summary(const char *dir, const char *text)
{
    char path[256], summary[4096];
    snprintf(path, sizeof path, "%s/summary.txt", dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    summary[fread(summary, 1, sizeof summary - 1, file)] = 0;
    fclose(file);
    if (strstr(summary, text) == NULL) {
        fail_msg("\"%s\" is not in: %s", text, summary);
    }
}

int64_t restart_recovery_number(live_run *run, const char *key)
{
    json_t *status = live_ask(run, "status", "{}");
    int64_t n = json_integer_value(json_object_get(json_object_get(status, "recovery"), key));
    json_decref(status);
    return n;
}

void restart_await(live_run *run, const char *key, int64_t least)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (restart_recovery_number(run, key) < least) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(2000);
    }
}
