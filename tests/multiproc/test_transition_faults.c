/* A worker that dies, stops or refuses at each point of a transition, one that trains as well as
 * one that waits for its first stage; a user who stops the run there; a head that dies there.
 *
 * What must come of it: a refusal leaves the old generation as it was, to the bit, and the next
 * transition finds nothing left behind; the death of a worker that is not needed, or not yet, is
 * told and the run goes on; any other ends the run with the worker's name, long before any deadline
 * between workers (they are set beyond this test's own); no process outlives its head; and
 * no step that was reported, under whichever plan, has another loss than one worker finds. */
#include "device/alloc.h"
#include "device/clock.h"
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "support/lines.h"
#include "support/runs.h"
#include "support/toy.h"

#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    N_SAMPLES = 203,
    BATCH = 10,
    EPOCHS = 4,
    STEPS = EPOCHS * 21,
    BLOCKS = 4,
    WORKERS = 4,
    FIRST = 8, /* the step at which generation 2 begins */
    AT_ONCE = 4,
    PATIENCE_MS = 60000,
    REFUSALS_MAX = 32,
};

static const double TOLERANCE = 1e-5;

typedef enum deed {
    NOTHING,
    KILL,
    STOP,
    INTERRUPT, /* the user stops the run at that moment */
    BEHEAD,    /* the controller is killed */
    NO_MEMORY, /* the device's budget leaves a part of what is needed */
    NO_ALLOC,  /* an allocation fails */
    VOTE_NO,   /* it was ready, and votes against it all the same */
    NO_STATE,  /* its connections fail when state moves, too late for a refusal */
} deed;

/* Between the test and the processes of one run. */
typedef struct shared {
    _Atomic int64_t done_us; /* when the deed was done; 0: not yet */
    _Atomic int64_t n_deeds;
    _Atomic int64_t left_behind; /* bytes of the device that a refusal did not give back */
    _Atomic int64_t n_migrations;
    _Atomic int64_t late; /* allocations between the vote and the switch */
    int64_t ended_us;
    fl_status status;
    char message[4096];
} shared;

typedef struct scenario {
    const char *point;
    int who;
    deed deed;
    int n_script;
    fl_script_entry script[REFUSALS_MAX];

    char dir[128];
    shared *shared;
    pid_t head;
    int alive; /* a pipe that ends when nobody of the run lives */
    int64_t begun_us;
} scenario;

static scenario *mine; /* in a head and its workers: the run that they belong to */
static double *one;    /* [STEPS] losses of one worker */

/* ---- in the workers ---- */

/* The n-th attempt (from 0) at a transition in this run. */
static int attempt_of(const fl_worker_state *w)
{
    const fl_generation *m = w->next != NULL ? w->next : w->now;
    return (int)m->plan.generation - 2;
}

/* Refusals get ever later in the opening, until one comes too late to matter. */
static void refuse(fl_worker_state *w)
{
    static size_t budget, used;
    static uint32_t generation;
    int attempt = attempt_of(w);
    if (budget == 0) {
        budget = w->device->budget_bytes;
    }
    if (used != 0 && generation == w->now->plan.generation && w->device->used_bytes != used) {
        atomic_store(&mine->shared->left_behind, (int64_t)w->device->used_bytes - (int64_t)used);
    }
    used = w->device->used_bytes;
    generation = w->now->plan.generation;
    bool last = attempt == mine->n_script - 1;
    if (!last) {
        atomic_fetch_add(&mine->shared->n_deeds, 1);
    }
    if (mine->deed == NO_MEMORY) {
        /* Not enough for the next plan alone; all that it needs beside this one is not asked for.
         */
        w->device->budget_bytes = last ? budget : (size_t)attempt * 4 * 1024;
    } else {
        fl_alloc_fail_at(last ? 0 : (uint64_t)attempt * 4 + 1);
    }
}

static void do_deed(fl_worker_state *w)
{
    shared *s = mine->shared;
    atomic_store(&s->done_us, fl_now_us());
    switch (mine->deed) {
    case KILL:
        raise(SIGKILL);
        break;
    case STOP:
        raise(SIGSTOP);
        break;
    case INTERRUPT:
        kill(getppid(), SIGINT);
        break;
    case BEHEAD:
        kill(getppid(), SIGKILL);
        break;
    case NO_MEMORY:
    case NO_ALLOC:
        refuse(w);
        break;
    case VOTE_NO:
        if (attempt_of(w) < mine->n_script - 1) {
            atomic_fetch_add(&s->n_deeds, 1);
            atomic_store(&w->prepare_thread.state, FL_PREPARE_REFUSED);
        }
        break;
    case NO_STATE:
        fl_message_abort(w->messages, FL_EINTERNAL);
        break;
    case NOTHING:
        break;
    }
}

/* After the vote nothing may fail that could have been had before. */
static void watch_allocations(const char *point)
{
    static uint64_t before;
    if (strcmp(point, "migrate") == 0) {
        before = fl_alloc_count();
    } else if (strcmp(point, "migrated") == 0) {
        atomic_fetch_add(&mine->shared->late, (int64_t)(fl_alloc_count() - before));
        atomic_fetch_add(&mine->shared->n_migrations, 1);
    }
}

void fl__test_point(const char *point, fl_worker_state *w)
{
    if (mine != NULL) {
        watch_allocations(point);
    }
    if (mine != NULL && mine->point != NULL && strcmp(point, mine->point) == 0 &&
        w->rank == mine->who) {
        do_deed(w);
    }
}

/* ---- a run ---- */

/* In a child: the controller of one run. */
static _Noreturn void be_head(scenario *s, int workers, int K)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    mine = s;
    hush();
    fl_job_defaults(&job);
    set(&job, "pipe.k", K);
    set(&job, "autodp.r", 1);
    set(&job, "pipe.m", 2);
    set(&job, "devices.count", workers);
    set(&job, "train.batch", BATCH);
    set(&job, "train.epochs", EPOCHS);
    must(fl_job_set(&job, "train.lr", "1e-4"));
    must(fl_job_set(&job, "train.evaluate", "false"));
    must(fl_job_set(&job, "fault.detect", "2s"));
    must(fl_job_set(&job, "fault.deadline", "600s"));
    memcpy(job.elastic.script, s->script, sizeof s->script);
    job.elastic.n_script = s->n_script;
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(BLOCKS, 0.1f, &model));
    s->shared->status = fl_run_in(model, &data, &job, s->dir, NULL);
    s->shared->ended_us = fl_now_us();
    snprintf(s->shared->message, sizeof s->shared->message, "%s", fl_errmsg());
    _exit(0);
}

static void start(scenario *s, int number, int workers, int K)
{
    int ends[2];
    void *page =
        mmap(NULL, sizeof *s->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    s->shared = page;
    snprintf(s->dir, sizeof s->dir, "%s/%d", root, number);
    assert_int_equal(pipe(ends), 0);
    s->begun_us = fl_now_us();
    fflush(NULL);
    s->head = fork();
    assert_true(s->head >= 0);
    if (s->head == 0) {
        close(ends[0]);
        be_head(s, workers, K);
    }
    close(ends[1]);
    s->alive = ends[0];
}

/* Wait until nobody of the run lives; the controller's wait status. */
static int finish(scenario *s)
{
    struct pollfd end = {.fd = s->alive, .events = POLLIN};
    int status = 0;
    int64_t left_ms = PATIENCE_MS - (fl_now_us() - s->begun_us) / 1000;
    if (poll(&end, 1, left_ms > 0 ? (int)left_ms : 0) != 1) {
        kill(s->head, SIGKILL); /* its workers die with it */
        waitpid(s->head, &status, 0);
        fail_msg("%s: worker %d, deed %d: the run hangs", s->point, s->who, (int)s->deed);
    }
    assert_int_equal(waitpid(s->head, &status, 0), s->head);
    close(s->alive);
    return status;
}

/* ---- what it left ---- */

/* The number behind `"name":` in a line of JSON. */
static double number_in(const char *line, const char *name)
{
    char quoted[48];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(line, quoted);
    assert_non_null(at);
    return strtod(at + strlen(quoted), NULL);
}

static FILE *open_in(const scenario *s, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    return file;
}

/* Every step that was reported follows the one before and has the loss that one worker finds; and
 * exactly those from `first` on were made under a later generation. Returns how many there were. */
static int check_steps(const scenario *s, int first)
{
    FILE *file = open_in(s, "steps.jsonl");
    char line[4096];
    int n = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        double loss = number_in(line, "loss");
        assert_int_equal((int)number_in(line, "step"), n);
        if (fabs(loss - one[n]) > TOLERANCE * fabs(one[n])) {
            fail_msg("%s: worker %d, deed %d: step %d has loss %.9g, one worker %.9g", s->point,
                     s->who, (int)s->deed, n, loss, one[n]);
        }
        assert_int_equal(number_in(line, "generation") > 1, n >= first);
        n++;
    }
    fclose(file);
    return n;
}

static void finish_well(scenario *s)
{
    int status = finish(s);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || s->shared->status != FL_OK) {
        fail_msg("%s: worker %d, deed %d: status %d, %s", s->point == NULL ? "" : s->point, s->who,
                 (int)s->deed, s->shared->status, s->shared->message);
    }
    assert_int_equal(atomic_load(&s->shared->late), 0);
    assert_true(s->n_script == 0 || atomic_load(&s->shared->n_migrations) > 0);
}

static void release(scenario *s)
{
    munmap(s->shared, sizeof *s->shared);
}

/* ---- the cases ---- */

static fl_script_entry to(int64_t step, int k)
{
    return (fl_script_entry){.step = step, .f = -1, .k = k, .r = 1, .m = 2};
}

/* A run of two stages that becomes one of three: workers 0 and 1 train, worker 2 joins, worker 3
 * has no stage before and none after. */
static scenario joining(const char *point, int who, deed what)
{
    return (scenario){
        .point = point, .who = who, .deed = what, .n_script = 1, .script = {to(FIRST, 3)}};
}

static const char *const points[] = {"prepare", "vote", "migrate", "migrated", "switch"};
enum { N_POINTS = sizeof points / sizeof *points };

static const char *how(deed what)
{
    return what == KILL   ? "was killed by signal 9"
           : what == STOP ? "did not answer"
                          : "reported: moving state to generation 2";
}

static int64_t check_lost(scenario *s)
{
    char name[32];
    int status = finish(s);
    const shared *left = s->shared;
    snprintf(name, sizeof name, "worker %d (", s->who);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (atomic_load(&left->done_us) == 0 || left->status != FL_EFAILED ||
        strstr(left->message, name) != left->message ||
        strstr(left->message, how(s->deed)) == NULL) {
        fail_msg("%s: worker %d, deed %d: status %d, %s", s->point, s->who, (int)s->deed,
                 left->status, left->message);
    }
    assert_int_equal(count_events(s->dir, "\"worker.lost\"", name), 1);
    assert_int_equal(count_events(s->dir, "\"run.failed\"", name), 1);
    assert_in_range(check_steps(s, FIRST), 0, STEPS);
    return left->ended_us - left->done_us;
}

/* Worker 3 has no stage under either plan; worker 2 is needed once all have voted. */
static bool can_be_spared(const scenario *s)
{
    bool voted = strcmp(s->point, "prepare") != 0 && strcmp(s->point, "vote") != 0;
    return s->who == 3 || (s->who == 2 && !voted);
}

/* The run comes to its end, under the old plan if the fault came before the vote. */
static void check_spared(scenario *s)
{
    char name[32];
    bool over = s->point[0] != 'p' && s->point[0] != 'v';
    int status = finish(s);
    const shared *left = s->shared;
    snprintf(name, sizeof name, "worker %d (standby)", s->who);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (atomic_load(&left->done_us) == 0 || left->status != FL_OK) {
        fail_msg("%s: worker %d, deed %d: status %d, %s", s->point, s->who, (int)s->deed,
                 left->status, left->message);
    }
    assert_int_equal(count_events(s->dir, "\"worker.lost\"", ""), 1);
    assert_int_equal(count_events(s->dir, "\"worker.lost\"", "\"goes_on\": true"), 1);
    assert_int_equal(count_events(s->dir, "\"worker.lost\"", name), 1);
    assert_int_equal(count_events(s->dir, "\"worker.lost\"", how(s->deed)), 1);
    assert_int_equal(count_events(s->dir, "\"transition.cancelled\"", ""), over ? 0 : 1);
    assert_int_equal(count_events(s->dir, "\"transition.done\"", ""), over ? 1 : 0);
    assert_int_equal(check_steps(s, over ? FIRST : STEPS), STEPS);
}

/* Would catch: a wait that only a deadline ends, a death that is blamed on a survivor, a survivor
 * that trains on with a part of the state, a run that ends for a worker it does not need, a process
 * that outlives its head. */
static void test_faults__of_one_worker(deed what)
{
    scenario all[N_POINTS * WORKERS];
    int n = 0, n_spared = 0;
    int64_t longest_us = 0;
    for (int i = 0; i < N_POINTS; i++) {
        for (int who = 0; who < WORKERS; who++) {
            all[n++] = joining(points[i], who, what);
        }
    }
    for (int first = 0; first < n; first += AT_ONCE) {
        for (int i = first; i < n && i < first + AT_ONCE; i++) {
            start(&all[i], 100 * (int)what + i, WORKERS, 2);
        }
        for (int i = first; i < n && i < first + AT_ONCE; i++) {
            if (can_be_spared(&all[i])) {
                check_spared(&all[i]);
                n_spared++;
            } else {
                int64_t took_us = check_lost(&all[i]);
                longest_us = took_us > longest_us ? took_us : longest_us;
            }
            release(&all[i]);
        }
    }
    print_message("%d runs, %d of them went on; the longest of the others took %.2f s to end\n", n,
                  n_spared, (double)longest_us * 1e-6);
}

static void test_faults__a_killed_worker_ends_the_run_that_needs_it(void **state)
{
    (void)state;
    test_faults__of_one_worker(KILL);
}

static void test_faults__a_stopped_worker_ends_the_run_that_needs_it(void **state)
{
    (void)state;
    test_faults__of_one_worker(STOP);
}

/* Would catch: a worker that goes on with what it had when others have gone over already. */
static void test_faults__a_failed_migration_ends_the_run(void **state)
{
    (void)state;
    for (int who = 0; who < 3; who++) { /* to and from worker 3 nothing moves */
        scenario s = joining("migrate", who, NO_STATE);
        start(&s, 400 + who, WORKERS, 2);
        (void)check_lost(&s);
        assert_int_equal(check_steps(&s, FIRST), FIRST);
        release(&s);
    }
}

/* Would catch: a wish to stop that is told to who no longer speaks, or to a standby worker that is
 * none any more, and a stop that leaves a transition half done. */
static void test_faults__the_user_may_stop_at_any_point(void **state)
{
    (void)state;
    scenario all[N_POINTS * 2];
    for (int i = 0; i < N_POINTS; i++) {
        all[2 * i] = joining(points[i], 0, INTERRUPT);
        all[2 * i + 1] = joining(points[i], 2, INTERRUPT);
        all[2 * i].n_script = all[2 * i + 1].n_script = 2;
        all[2 * i].script[1] = all[2 * i + 1].script[1] = to(FIRST + 3, 2);
    }
    for (int i = 0; i < 2 * N_POINTS; i++) {
        scenario *s = &all[i];
        start(s, 500 + i, WORKERS, 2);
        int status = finish(s);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (s->shared->status != FL_ESTOPPED) {
            fail_msg("%s: worker %d: status %d, %s", s->point, s->who, s->shared->status,
                     s->shared->message);
        }
        assert_in_range(check_steps(s, FIRST), 1, STEPS - 1);
        release(s);
    }
}

/* Would catch: workers that wait for a command of a head that is gone. */
static void test_faults__nobody_outlives_the_head(void **state)
{
    (void)state;
    for (int i = 0; i < N_POINTS; i++) {
        scenario s = joining(points[i], 2, BEHEAD);
        start(&s, 550 + i, WORKERS, 2);
        int status = finish(&s);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        release(&s);
    }
}

/* `n` transitions of which worker `who` refuses all but the last. */
static void check_refusals(const char *point, int who, deed what, int n, int number)
{
    char text[64];
    scenario s = {.point = point, .who = who, .deed = what, .n_script = n};
    for (int i = 0; i < n; i++) {
        s.script[i] = to(FIRST + 2 * i, 3);
        s.script[i].f = i < n - 1 ? 2 : 0; /* so that they would have moments to keep */
    }
    start(&s, number, WORKERS, 2);
    finish_well(&s);
    snprintf(text, sizeof text, "worker %d", who);
    assert_int_equal(check_steps(&s, FIRST + 2 * (n - 1)), STEPS);
    assert_int_equal(atomic_load(&s.shared->n_deeds), n - 1);
    /* Another worker that lost its peer may be heard first, and is then the one that is named. */
    assert_int_equal(count_events(s.dir, "\"transition.cancelled\"", ""), n - 1);
    assert_true(count_events(s.dir, "\"transition.cancelled\"", text) > 0);
    assert_int_equal(count_events(s.dir, "\"transition.done\"", ""), 1);
    assert_int_equal(atomic_load(&s.shared->left_behind), 0);
    release(&s);
}

/* Would catch: a refusal that the others learn of only when a deadline has passed, a worker that
 * keeps what it had opened, a generation's number used twice, and a step at which everybody waits
 * for a command that was given before. */
static void test_faults__a_refusal_leaves_the_old_generation(void **state)
{
    (void)state;
    const int who[] = {1, 2};
    for (int i = 0; i < 2; i++) {
        check_refusals("prepare", who[i], NO_MEMORY, 4, 600 + i);
        check_refusals("prepare", who[i], NO_ALLOC, 16, 610 + i);
        check_refusals("vote", who[i], VOTE_NO, 4, 620 + i);
    }
}

/* ---- */

static int set_up(void **state)
{
    (void)state;
    scenario s = {.deed = NOTHING};
    one = calloc(STEPS + 1, sizeof *one);
    if (one == NULL || make_root(NULL) != 0) {
        return -1;
    }
    start(&s, 0, 1, 1);
    finish_well(&s);
    return fl_toy_losses(s.dir, one, STEPS + 1) == STEPS && one[STEPS - 1] < one[0] ? 0 : -1;
}

static int tear_down(void **state)
{
    free(one);
    return remove_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults__a_killed_worker_ends_the_run_that_needs_it),
        cmocka_unit_test(test_faults__a_stopped_worker_ends_the_run_that_needs_it),
        cmocka_unit_test(test_faults__a_failed_migration_ends_the_run),
        cmocka_unit_test(test_faults__the_user_may_stop_at_any_point),
        cmocka_unit_test(test_faults__nobody_outlives_the_head),
        cmocka_unit_test(test_faults__a_refusal_leaves_the_old_generation),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
