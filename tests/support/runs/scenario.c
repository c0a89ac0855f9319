#include "support/runs/scenario.h"

#include "control/link/link_thread.h"
#include "device/errors/failure.h"
#include "device/system/clock.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/run.h"
#include "support/data/toy.h"
#include "support/nap.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static scenario *here;

const scenario *scenario_here(void)
{
    return here;
}

pid_t controller_here(void)
{
    return atomic_load(&here->outcome->pid[CONTROLLER]);
}

void *shared_memory(size_t size_bytes)
{
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* ---- in the workers ---- */

static bool is_due(const scenario_deed *deed, const char *point, const fl_worker_state *w)
{
    return deed->act != NULL && strcmp(point, deed->point) == 0 &&
           (deed->who == EVERYBODY || deed->who == w->rank) &&
           (deed->step == 0 || deed->step == w->step);
}

void fl__test_point(const char *point, fl_worker_state *w)
{
    if (here == NULL) {
        return;
    }
    atomic_store(&here->outcome->pid[w->rank], (int)getpid());
    if (here->at_point != NULL) {
        here->at_point(point, w);
    }
    for (int i = 0; i < SCENARIO_DEEDS; i++) {
        if (is_due(&here->at[i], point, w)) {
            atomic_fetch_add(&here->outcome->n_deeds, 1);
            atomic_store(&here->outcome->deed_us, fl_now_us());
            here->at[i].act(w);
        }
    }
}

void fl__flight_point(fl_flight_kind kind, int rank, int64_t step)
{
    if (here != NULL && here->at_operation != NULL) {
        here->at_operation(kind, rank, step);
    }
}

void kill_this_worker(fl_worker_state *w)
{
    (void)w;
    raise(SIGKILL);
}

void stop_this_worker(fl_worker_state *w)
{
    (void)w;
    raise(SIGSTOP);
}

/* Whether the run's events from the byte `from` on name this one. */
static bool has_event(int events, off_t from, const char *name)
{
    char text[4096];
    ssize_t n;
    while ((n = pread(events, text, sizeof text - 1, from)) > 0) {
        text[n] = 0;
        if (strstr(text, name) != NULL) {
            return true;
        }
        if (n < (ssize_t)sizeof text - 1) {
            return false;
        }
        from += n - (ssize_t)strlen(name); /* the name may lie across two parts */
    }
    return false;
}

/* The worker holds until the controller has heard of it: one that gets no processor for a while
 * would let a short run finish. */
static void signal_the_run(const fl_worker_state *w, int number)
{
    int events = openat(w->c->dir_fd, "events.jsonl", O_RDONLY | O_CLOEXEC);
    off_t from = lseek(events, 0, SEEK_END);
    if (events < 0 || from < 0 || kill(controller_here(), number) != 0) {
        abort(); /* in a worker: the run fails, and the test with it */
    }
    while (!has_event(events, from, "\"run.stopping\"")) {
        nap(1000);
    }
    close(events);
}

void interrupt_the_run(fl_worker_state *w)
{
    signal_the_run(w, SIGINT);
}

static bool has_order_to_stop(fl_link *link)
{
    pthread_mutex_lock(&link->lock);
    bool stops = atomic_load(&link->n_commands) > 0 && link->command[0].kind == FL_COMMAND_STOP;
    pthread_mutex_unlock(&link->lock);
    return stops;
}

void stop_after_step(fl_worker_state *w, int number)
{
    if (!w->leads) {
        return; /* only the leader receives the order */
    }
    signal_the_run(w, number);
    while (!has_order_to_stop(w->link)) {
        nap(1000);
    }
}

void interrupt_after_step(fl_worker_state *w)
{
    stop_after_step(w, SIGINT);
}

void kill_the_controller(fl_worker_state *w)
{
    (void)w;
    kill(controller_here(), SIGKILL);
}

void read_device(const fl_params *p, const float *from, int64_t n, float *to)
{
    must(p->device->ops->copy_out(p->device, p->stream, to, from, (size_t)n * sizeof *to));
    must(p->device->ops->sync(p->device, p->stream));
}

void clear_device(const fl_params *p, float *memory, int64_t n)
{
    must(p->device->ops->fill_zero(p->device, p->stream, memory, (size_t)n * sizeof *memory));
    must(p->device->ops->sync(p->device, p->stream));
}

/* ---- the controller ---- */

static void set_all(fl_job *job, const char *const *sets)
{
    for (int i = 0; sets != NULL && sets[i] != NULL; i += 2) {
        must(fl_job_set(job, sets[i], sets[i + 1]));
    }
}

static void fill_job(const scenario *s, fl_job *job)
{
    fl_job_defaults(job);
    set_test_device(job);
    if (s->device != NULL) {
        must(fl_job_set(job, "devices.kind", s->device));
        must(fl_job_set(job, "autodp.transport", "auto"));
    }
    must(fl_job_set(job, "checkpoint.every", "none")); /* a test that needs some says when */
    must(fl_job_set(job, "fault.on_loss", "stop"));    /* as one that wants the others to go on */
    set_all(job, s->sets);
    set_all(job, s->more);
    if (s->n_script > 0) {
        memcpy(job->elastic.script, s->script, (size_t)s->n_script * sizeof *s->script);
        job->elastic.n_script = s->n_script;
    }
}

static void make_model(const scenario *s, fl_model **model, fl_dataset *data)
{
    int blocks = s->blocks == 0 ? 4 : s->blocks;
    if (s->length != NULL) {
        must(ragged_dataset(s->n_samples, s->length, s->per_token, data));
        must(ragged_model(blocks, s->dropout, s->per_token, model));
    } else {
        must(fl_toy_dataset(s->n_samples, data));
        must(fl_toy_model(blocks, s->dropout, model));
    }
}

static fl_status resume(const scenario *s, fl_model *model, const fl_dataset *data,
                        const fl_job *job)
{
    fl_resume *r = calloc(1, sizeof *r);
    fl_failure failure;
    fl_status status = fl_resume_open(s->dir, r);
    if (status == FL_OK) {
        status = fl_run_continue(model, data, job, r, NULL, NULL, NULL);
    }
    fl_failure_keep(&failure, status);
    fl_resume_close(r);
    free(r);
    return fl_failure_raise(&failure);
}

static _Noreturn void be_controller(scenario *s)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    here = s;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when an assertion fails */
    atomic_store(&s->outcome->pid[CONTROLLER], (int)getpid());
    hush();
    fill_job(s, &job);
    make_model(s, &model, &data);
    if (s->adjust != NULL) {
        must(s->adjust(&job, &model, &data));
    }
    s->outcome->status = s->resumes ? resume(s, model, &data, &job)
                                    : fl_run_again(model, &data, &job, s->dir, s->repeats, NULL);
    s->outcome->ended_us = fl_now_us();
    snprintf(s->outcome->message, sizeof s->outcome->message, "%s",
             s->outcome->status == FL_OK ? "" : fl_errmsg());
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    _exit(0);
}

/* ---- the test ---- */

void scenario_start(scenario *s)
{
    int ends[2];
    s->outcome = shared_memory(sizeof *s->outcome);
    snprintf(s->dir, sizeof s->dir, "%s/%s", root, s->name);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    s->controller = fork();
    assert_true(s->controller >= 0);
    if (s->controller == 0) {
        close(ends[0]);
        be_controller(s);
    }
    close(ends[1]);
    s->alive = ends[0];
}

void scenario_wait(scenario *s)
{
    struct pollfd end = {.fd = s->alive, .events = POLLIN};
    if (s->controller == 0) {
        return; /* waited for already */
    }
    if (poll(&end, 1, SCENARIO_PATIENCE_MS) != 1) {
        kill(s->controller, SIGKILL); /* its workers die with it */
        waitpid(s->controller, &s->wait_status, 0);
        fail_msg("%s: after %d s, a process of the run still lives", s->name,
                 SCENARIO_PATIENCE_MS / 1000);
    }
    assert_int_equal(waitpid(s->controller, &s->wait_status, 0), s->controller);
    close(s->alive);
    s->controller = 0;
}

void scenario_forget(scenario *s)
{
    munmap(s->outcome, sizeof *s->outcome);
    s->outcome = NULL;
}

void scenario_run(scenario *s)
{
    scenario_start(s);
    expect_end(s, FL_OK);
    scenario_forget(s);
}

/* ---- how it ended ---- */

void expect_end(scenario *s, fl_status status)
{
    scenario_wait(s);
    if (!WIFEXITED(s->wait_status) || WEXITSTATUS(s->wait_status) != 0 ||
        s->outcome->status != status) {
        fail_msg("%s: wait status %d, %s instead of %s: %s", s->name, s->wait_status,
                 fl_status_text(s->outcome->status), fl_status_text(status), s->outcome->message);
    }
}

static void expect_deed(const scenario *s)
{
    if (atomic_load(&s->outcome->deed_us) == 0) {
        fail_msg("%s: nothing was done to the run; wait status %d: %s: %s", s->name, s->wait_status,
                 fl_status_text(s->outcome->status), s->outcome->message);
    }
}

void expect_beheaded(scenario *s)
{
    scenario_wait(s);
    expect_deed(s);
    if (!WIFSIGNALED(s->wait_status) || WTERMSIG(s->wait_status) != SIGKILL) {
        fail_msg("%s: wait status %d", s->name, s->wait_status);
    }
}

int64_t expect_lost(scenario *s, int who, const char *how)
{
    char name[32];
    snprintf(name, sizeof name, "worker %d (", who);
    expect_end(s, FL_EFAILED);
    expect_deed(s);
    const char *message = s->outcome->message;
    if (strncmp(message, name, strlen(name)) != 0 || strstr(message, how) == NULL) {
        fail_msg("%s: not worker %d, %s, but: %s", s->name, who, how, message);
    }
    return s->outcome->ended_us - atomic_load(&s->outcome->deed_us);
}

/* ---- what it left ---- */

double *losses_of(const scenario *s, int n_steps)
{
    double *losses = calloc((size_t)n_steps + 1, sizeof *losses);
    assert_non_null(losses);
    assert_int_equal(fl_toy_losses(s->dir, losses, n_steps + 1), n_steps);
    return losses;
}

double *losses_of_one(const char *const *sets, int64_t n_samples, int n_steps)
{
    static int n;
    char name[16];
    snprintf(name, sizeof name, "one-%d", n++);
    scenario s = {.name = name,
                  .sets = sets,
                  .more = JOB_SETS("pipe.k", "1", "autodp.r", "1", "pipe.m", "1", "devices.count",
                                   "1", "train.evaluate", "false"),
                  .n_samples = n_samples,
                  .dropout = 0.1f};
    scenario_run(&s);
    return losses_of(&s, n_steps);
}

double worst_difference(const double *a, const double *b, int from, int to)
{
    double worst = 0.0;
    for (int i = from; i < to; i++) {
        double difference = fabs(a[i] - b[i]) / fabs(b[i]);
        worst = difference <= worst ? worst : difference; /* also one that is not a number */
    }
    return worst;
}
