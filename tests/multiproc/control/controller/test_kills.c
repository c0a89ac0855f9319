/* Each worker of a real run, and its controller, killed at five moments: while it starts, in its
 * first step, in the middle of an epoch, while it evaluates, and when it is about to leave.
 *
 * The run must end with the worker's name and signal long before any deadline between workers (they
 * are set beyond this test's own), and no process may outlive its controller. */
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { WORKERS = 4, VICTIMS = WORKERS + 1, AT_ONCE = 4, NAME_BYTES = 32 };

static const char *const *const training =
    JOB_SETS("pipe.k", "2", "autodp.r", "2", "pipe.m", "2", "devices.count", "4", "train.batch",
             "12", "train.epochs", "2", "fault.deadline", "600s");

/* A step is killed in its middle: by a neighbour that has finished the one before. */
static const struct {
    const char *name, *point;
    int64_t step; /* steps done; 0: any */
    bool by_neighbour;
} moments[] = {
    {"starting", "begin", 0, false},     {"first step", "step", 1, true},
    {"mid-epoch", "step", 9, true},      {"evaluating", "evaluate", 0, false},
    {"about to leave", "end", 0, false},
};
enum { MOMENTS = sizeof moments / sizeof *moments };

static int victim_of(const scenario *s)
{
    return *(const int *)s->context;
}

static void kill_the_victim(fl_worker_state *w)
{
    (void)w;
    const scenario *s = scenario_here();
    kill(atomic_load(&s->outcome->pid[victim_of(s)]), SIGKILL);
}

static const int victims[VICTIMS] = {0, 1, 2, 3, CONTROLLER};

static void start(scenario *s, char *name, int moment, const int *victim)
{
    int killer = *victim == CONTROLLER ? 0 : *victim;
    if (moments[moment].by_neighbour && *victim != CONTROLLER) {
        killer = (*victim + 1) % WORKERS;
    }
    snprintf(name, NAME_BYTES, "%s %d", moments[moment].name, *victim);
    *s = (scenario){.name = name,
                    .sets = training,
                    .n_samples = 240,
                    .dropout = 0.1f,
                    .context = victim,
                    .at = {{.point = moments[moment].point,
                            .who = killer,
                            .step = moments[moment].step,
                            .act = kill_the_victim}}};
    scenario_start(s);
}

/* Returns the time until the run ended, in us; 0 if the controller was killed and cannot report it.
 */
static int64_t finish(scenario *s)
{
    int64_t took_us = 0;
    if (victim_of(s) == CONTROLLER) {
        expect_beheaded(s);
    } else {
        took_us = expect_lost(s, victim_of(s), "was killed by signal 9");
    }
    scenario_forget(s);
    return took_us;
}

/* Would catch: a wait that only a deadline ends, a death that is blamed on a survivor, a process
 * that outlives its controller. */
static void test_kills__end_the_run_by_name_at_every_moment(void **state)
{
    (void)state;
    scenario all[MOMENTS * VICTIMS];
    char name[MOMENTS * VICTIMS][NAME_BYTES];
    int n = 0;
    int64_t longest_us = 0;
    for (int first = 0; first < MOMENTS * VICTIMS; first += AT_ONCE) {
        for (n = first; n < first + AT_ONCE && n < MOMENTS * VICTIMS; n++) {
            start(&all[n], name[n], n / VICTIMS, &victims[n % VICTIMS]);
        }
        for (int i = first; i < n; i++) {
            int64_t took_us = finish(&all[i]);
            longest_us = took_us > longest_us ? took_us : longest_us;
        }
    }
    print_message("%d runs; the longest took %.2f s to end\n", n, (double)longest_us * 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kills__end_the_run_by_name_at_every_moment),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
