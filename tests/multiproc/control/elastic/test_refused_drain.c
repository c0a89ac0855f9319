/* Allocations of a worker fail, one at a time, while the run prepares the plan without a worker
 * that is drained: the first one, then the second, and so on until none is left. The others then
 * open a message group of their own, which no change of the plan alone does.
 *
 * Required of each: the change is cancelled or made; the run goes on, and every step has the loss
 * that one worker finds; and the worker leaves in the end. */
#include "device/system/alloc.h"
#include "support/runs/live_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { DRAINED = 3, MORE_STEPS = 5 };

static const double TOLERANCE = 1e-5;

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "train.epochs", "9000",    \
        "pipe.m", "2", "fault.detect", "10s", "fault.deadline", "600s"

/* Between the test and the worker whose allocations fail. */
typedef struct shared {
    int who;
    _Atomic int next; /* the allocation that fails in the next attempt */
    _Atomic bool over;
} shared;

static shared *failing;

/* ---- in the worker ---- */

static void fail_in_prepare(const char *point, fl_worker_state *w)
{
    static uint64_t armed_at;
    if (w->rank != failing->who) {
        return;
    }
    if (strcmp(point, "prepare") == 0) {
        int n = atomic_fetch_add(&failing->next, 1);
        armed_at = fl_alloc_count() + (uint64_t)n;
        fl_alloc_fail_at((uint64_t)n);
    } else if (strcmp(point, "migrate") == 0 && fl_alloc_count() < armed_at) {
        fl_alloc_fail_at(0);
        atomic_store(&failing->over, true);
    }
}

/* ---- a run ---- */

/* Ask until the worker leaves: the answer comes when the change is made, or cancelled. Meanwhile
 * the run is paused, so that no allocation of a step fails instead: a worker without memory for its
 * report ends. Between two requests, it trains. */
static void drain(live_run *run)
{
    char text[128];
    bool leaves = false;
    while (!leaves) {
        snprintf(
            text, sizeof text,
            "{\"v\": 1, \"id\": \"refused-%d\", \"cmd\": \"drain\", \"args\": {\"worker\": %d}}",
            atomic_load(&failing->next), DRAINED);
        live_do(run, "pause", "{}");
        json_t *reply = live_send(run, text);
        leaves = json_is_true(json_object_get(reply, "ok"));
        json_decref(reply);
        live_do(run, "resume", "{}");
    }
    live_await_state(run, DRAINED, "drained");
}

/* The losses of one worker; the caller frees them. */
static double *losses_alone(int n_steps)
{
    live_run run = live_start((const char *const[]){TRAINING, "devices.count", "1", "pipe.k", "1",
                                                    "autodp.r", "1", NULL});
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    return live_take_losses(&run, n_steps);
}

static void try_allocations(void)
{
    live_run run = live_start_with(
        (const char *const[]){TRAINING, "devices.count", "4", "pipe.k", "2", "autodp.r", "2", NULL},
        (scenario_deed){0}, fail_in_prepare);
    live_await_step(&run, 1);
    int first = atomic_load(&failing->next);
    drain(&run);
    int n_steps = (int)live_status(&run, "step") + MORE_STEPS;
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    double *losses = live_take_losses(&run, n_steps), *one = losses_alone(n_steps);
    print_message("worker %d: allocations %d to %d, %d steps%s\n", failing->who, first,
                  atomic_load(&failing->next) - 1, n_steps,
                  atomic_load(&failing->over) ? ", no more" : "");
    double worst = worst_difference(losses, one, 0, n_steps);
    if (!(worst <= TOLERANCE)) {
        fail_msg("losses differ by %g", worst);
    }
    free(losses);
    free(one);
}

static void test_refused_drain__leaves_the_run_as_it_was(void **state)
{
    (void)state;
    failing = shared_memory(sizeof *failing);
    for (int who = 0; who <= DRAINED; who += 3) {
        failing->who = who;
        atomic_store(&failing->next, 1);
        atomic_store(&failing->over, false);
        while (!atomic_load(&failing->over)) {
            try_allocations();
        }
    }
    munmap(failing, sizeof *failing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_drain__leaves_the_run_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
