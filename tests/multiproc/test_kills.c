/* Each worker of a real run, and its head, killed at five moments: while it starts, in its first
 * step, in the middle of an epoch, while it evaluates, and when it is about to leave.
 *
 * What must come of it: the run ends with the worker's name and signal long before any deadline
 * between workers (they are set beyond this test's own), and no process outlives its head. */
#include "device/clock.h"
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "support/runs.h"
#include "support/toy.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 4, HEAD = WORKERS, VICTIMS = WORKERS + 1, AT_ONCE = 4, PATIENCE_MS = 60000 };

/* A step is killed in its middle: by a neighbour that has finished the one before. */
static const struct {
    const char *name, *point;
    int64_t step; /* steps done; -1: any */
    bool by_neighbour;
} moments[] = {
    {"starting", "begin", -1, false},     {"first step", "step", 1, true},
    {"mid-epoch", "step", 9, true},       {"evaluating", "evaluate", -1, false},
    {"about to leave", "end", -1, false},
};
enum { MOMENTS = sizeof moments / sizeof *moments };

/* Between the test and the processes of one run. */
typedef struct shared {
    _Atomic int pids[VICTIMS];
    _Atomic int64_t done_us; /* when the kill was sent; 0: not yet */
    int64_t ended_us;
    fl_status status;
    char message[4096];
} shared;

typedef struct scenario {
    int moment, victim;
    char dir[128];
    shared *shared;
    pid_t head;
    int alive; /* a pipe that ends when nobody of the run lives */
} scenario;

static scenario *mine; /* in a head and its workers: the run that they belong to */

/* ---- in the run ---- */

void fl__test_point(const char *point, fl_worker_state *w)
{
    shared *s = mine->shared;
    int i = mine->moment;
    int killer = mine->victim == HEAD ? 0 : mine->victim;
    if (moments[i].by_neighbour && mine->victim != HEAD) {
        killer = (mine->victim + 1) % WORKERS;
    }
    atomic_store(&s->pids[w->rank], (int)getpid());
    if (w->rank == killer && strcmp(point, moments[i].point) == 0 &&
        (moments[i].step < 0 || w->step == moments[i].step)) {
        atomic_store(&s->done_us, fl_now_us());
        kill(atomic_load(&s->pids[mine->victim]), SIGKILL);
    }
}

/* In a child: the controller of one run. */
static _Noreturn void be_head(scenario *s)
{
    static const char *const settings[][2] = {
        {"pipe.k", "2"},
        {"autodp.r", "2"},
        {"pipe.m", "2"},
        {"devices.count", "4"},
        {"train.batch", "12"},
        {"train.epochs", "2"},
        {"fault.deadline", "600s"},
    };
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    mine = s;
    atomic_store(&s->shared->pids[HEAD], (int)getpid());
    hush();
    fl_job_defaults(&job);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        must(fl_job_set(&job, settings[i][0], settings[i][1]));
    }
    must(fl_toy_dataset(240, &data));
    must(fl_toy_model(4, 0.1f, &model));
    s->shared->status = fl_run_in(model, &data, &job, s->dir, NULL);
    s->shared->ended_us = fl_now_us();
    snprintf(s->shared->message, sizeof s->shared->message, "%s", fl_errmsg());
    _exit(0);
}

/* ---- in the test ---- */

static void start(scenario *s, int moment, int victim)
{
    int ends[2];
    s->moment = moment;
    s->victim = victim;
    s->shared =
        mmap(NULL, sizeof *s->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s->shared != MAP_FAILED);
    snprintf(s->dir, sizeof s->dir, "%s/%d-%d", root, moment, victim);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    s->head = fork();
    assert_true(s->head >= 0);
    if (s->head == 0) {
        close(ends[0]);
        be_head(s);
    }
    close(ends[1]);
    s->alive = ends[0];
}

/* Wait until nobody of the run lives, and see how it ended. Returns how long that took from the
 * kill, in us. */
static int64_t finish(scenario *s)
{
    struct pollfd end = {.fd = s->alive, .events = POLLIN};
    const shared *left = s->shared;
    const char *moment = moments[s->moment].name;
    int status = 0;
    if (poll(&end, 1, PATIENCE_MS) != 1) {
        kill(s->head, SIGKILL);
        fail_msg("%s: victim %d: somebody lives on", moment, s->victim);
    }
    int64_t gone_us = fl_now_us();
    assert_int_equal(waitpid(s->head, &status, 0), s->head);
    close(s->alive);
    if (atomic_load(&left->done_us) == 0) {
        fail_msg("%s: victim %d: nobody was killed", moment, s->victim);
    }
    if (s->victim == HEAD) {
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        return gone_us - left->done_us;
    }
    char name[32];
    snprintf(name, sizeof name, "worker %d (", s->victim);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (left->status != FL_EFAILED || strstr(left->message, name) != left->message ||
        strstr(left->message, "was killed by signal 9") == NULL) {
        fail_msg("%s: victim %d: status %d, %s", moment, s->victim, (int)left->status,
                 left->message);
    }
    return left->ended_us - left->done_us;
}

/* Would catch: a wait that only a deadline ends, a death that is blamed on a survivor, a process
 * that outlives its head. */
static void test_kills__end_the_run_by_name_at_every_moment(void **state)
{
    (void)state;
    scenario all[MOMENTS * VICTIMS];
    int n = 0;
    int64_t longest_us = 0;
    for (int first = 0; first < MOMENTS * VICTIMS; first += AT_ONCE) {
        for (n = first; n < first + AT_ONCE && n < MOMENTS * VICTIMS; n++) {
            start(&all[n], n / VICTIMS, n % VICTIMS);
        }
        for (int i = first; i < n; i++) {
            int64_t took_us = finish(&all[i]);
            longest_us = took_us > longest_us ? took_us : longest_us;
            munmap(all[i].shared, sizeof *all[i].shared);
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
