#include "support/runs/fake/fake_worker.h"

#include "autodp/sampler.h"
#include "control/link/link.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/nap.h"
#include "support/runs/fake/fake_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

typedef struct fake_worker {
    const fake_run *run;
    int rank;
    const char *endpoint;
    fl_link *link;
    atomic_bool aborted;
    int64_t *ids;
    fl_cursor cursor;
} fake_worker;

static void on_abort(void *context, uint32_t generation, fl_status why)
{
    (void)generation;
    (void)why;
    atomic_store(&((fake_worker *)context)->aborted, true);
}

static _Noreturn void die_by(int number)
{
    signal(number, SIG_DFL); /* a sanitizer would turn it into an exit code */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    abort();
}

static void linger(void)
{
    for (;;) {
        nap(10000);
    }
}

/* identity: of the socket; "": the controller makes one up */
static void send_junk(const char *endpoint, const char *identity)
{
    void *zmq = zmq_ctx_new();
    void *socket = zmq_socket(zmq, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_IDENTITY, identity, strlen(identity));
    zmq_connect(socket, endpoint);
    for (int i = 0; i < FAKE_N_JUNK; i++) {
        zmq_send(socket, "junk", 4, ZMQ_SNDMORE);
        zmq_send(socket, "junk", 4, 0);
    }
    zmq_close(socket);
    zmq_ctx_term(zmq); /* once the controller's socket has all of it */
}

/* Returns the exit code of a worker that leaves, -1 of one that goes on. */
static int misbehave(fake_worker *w)
{
    const fake_run *run = w->run;
    while (run->waits_for_test && !atomic_load(&run->shared->go_on)) {
        nap(1000);
    }
    switch (run->deed) {
    case FAKE_EXIT:
        fl_log(FL_LOG_ERROR, "the last words of worker %d", w->rank);
        _exit(3);
    case FAKE_SEGFAULT:
        die_by(SIGSEGV);
    case FAKE_STOP:
        raise(SIGSTOP);
        return -1;
    case FAKE_CLOSE:
        fl_link_close(&w->link);
        linger();
        return -1;
    case FAKE_LEAVE:
        fl_link_close(&w->link);
        return 0;
    case FAKE_REPORT:
        fl_link_failed(w->link, FL_EIO, "the disk \"sda\"\n is on fire");
        return 3;
    case FAKE_DIE_LATE:
        while (atomic_load(&run->shared->n_reports) < run->n_workers - 1) {
            nap(1000);
        }
        nap(20000); /* the reports are on their way to the controller */
        die_by(SIGKILL);
    case FAKE_HANG:
        fl_link_doing(w->link, "counting sheep");
        while (!atomic_load(&w->aborted)) {
            nap(1000);
        }
        return 3;
    case FAKE_DONE_STAYS:
        fl_link_done(w->link);
        linger();
        return -1;
    case FAKE_JUNK:
        send_junk(w->endpoint, "");
        break;
    case FAKE_FORMER:
        send_junk(w->endpoint, "worker-1.9");
        break;
    case FAKE_LIE:
        fl_link_time(w->link, &(fl_time_report){.step = run->at_step, .wait_us = INT64_MAX});
        linger();
        return -1;
    case FAKE_NOTHING:
    case FAKE_LATE_LINK:
    case FAKE_ONE_STEP_ON:
        break;
    }
    return -1;
}

static bool strikes(const fake_worker *w, int64_t step)
{
    return w->rank == w->run->who && step == w->run->at_step && w->run->deed != FAKE_DONE_STAYS;
}

static void report_step(fake_worker *w, int64_t step)
{
    const fake_run *run = w->run;
    int64_t n, epoch = w->cursor.epoch;
    fl_sampler_next(7, run->n_samples, run->batch, &w->cursor, w->ids, &n);
    fl_link_ledger(w->link, epoch, step, 1, 0, w->ids, n);
    fl_step_report report = {.step = step,
                             .epoch = epoch,
                             .loss = 1.0 / (double)(step + 1),
                             .grad_norm = 0.1,
                             .lr = 1e-3,
                             .ms = (double)run->step_us * 1e-3,
                             .samples = n,
                             .tokens = 17 * n,
                             .generation = 1,
                             .k = run->k,
                             .r = 1,
                             .m = 1,
                             .metrics = {.n = 1, .mean = {0.5}}};
    fl_link_step(w->link, &report);
    if (run->evaluate && w->cursor.epoch != epoch) {
        fl_eval_report eval = {.epoch = epoch,
                               .step = step,
                               .loss = 0.5,
                               .metrics = {.n = 1, .mean = {0.75}},
                               .ms = 1,
                               .samples = run->n_samples};
        fl_link_eval(w->link, &eval);
    }
}

static bool all_have_done(const fake_run *run, int64_t step)
{
    for (int i = 0; i < run->k; i++) {
        if (atomic_load(&run->shared->done[i]) <= step) {
            return false;
        }
    }
    return true;
}

/* One step, after which all wait for all. False: leave. */
static bool fake_step(fake_worker *w, int64_t step)
{
    fake_shared *shared = w->run->shared;
    fl_command command;
    fl_link_doing(w->link, "step");
    nap(w->run->step_us);
    if (w->rank == 0 && fl_link_take_command(w->link, step + 1, &command) &&
        command.kind == FL_COMMAND_STOP && w->run->deed != FAKE_ONE_STEP_ON) {
        atomic_store(&shared->stop_at, step + 1); /* nobody is past this step's barrier */
    }
    atomic_store(&shared->done[w->rank], step + 1);
    while (!all_have_done(w->run, step)) {
        if (atomic_load(&w->aborted)) {
            return false;
        }
        nap(w->run->step_us / 10);
    }
    if (w->rank == 0) {
        report_step(w, step);
    }
    fl_time_report time = {.step = step, .compute_us = w->run->step_us};
    fl_link_time(w->link, &time);
    return true;
}

/* Somebody does a deed that the others notice as a lost peer, or as a deadline that passed. */
static bool notices(const fake_worker *w, int64_t step)
{
    return w->rank != w->run->who && step == w->run->at_step &&
           (w->run->deed == FAKE_DIE_LATE || w->run->deed == FAKE_HANG);
}

static bool is_stopped(const fake_run *run, int64_t step)
{
    int64_t stop_at = atomic_load(&run->shared->stop_at);
    return stop_at > 0 && step >= stop_at;
}

static int fake_train(fake_worker *w)
{
    const fake_run *run = w->run;
    int64_t n_steps = run->epochs * fl_sampler_steps_per_epoch(run->n_samples, run->batch);
    for (int64_t step = 0; step < n_steps && !is_stopped(run, step); step++) {
        if (strikes(w, step)) {
            int code = misbehave(w);
            if (code >= 0) {
                return code;
            }
        }
        if (notices(w, step)) {
            fl_link_failed(w->link, run->deed == FAKE_HANG ? FL_EDEADLINE : FL_EPEER,
                           "my peer is lost");
            atomic_fetch_add(&run->shared->n_reports, 1);
            return 3;
        }
        if (!fake_step(w, step)) {
            fl_link_failed(w->link, FL_EPEER, "the controller ended this generation");
            return 3;
        }
    }
    if (w->rank == run->who && run->deed == FAKE_DONE_STAYS) {
        return misbehave(w);
    }
    fl_link_done(w->link);
    return 0;
}

/* A worker without a stage is woken once: for the command that stops the run, or at its end. */
static int fake_stand_by(fake_worker *w)
{
    if (!fl_link_wait_wake(w->link, w->run->deadline_ms)) {
        fl_link_failed(w->link, FL_EDEADLINE, "the controller did not wake the standby worker");
        return 3;
    }
    fl_log(FL_LOG_INFO, "the controller woke this standby worker");
    fl_link_done(w->link);
    return 0;
}

/* Through the rendezvous store, as groups do it. */
static bool greet(fake_worker *w)
{
    const fl_kv *kv = fl_link_kv(w->link);
    void *data = NULL;
    size_t n = 0;
    if (w->rank == 0) {
        return kv->set(kv->self, "fake/greeting", fl_deadline_us(w->run->deadline_ms), "good day",
                       8) == FL_OK;
    }
    bool same = kv->get(kv->self, "fake/greeting", fl_deadline_us(w->run->deadline_ms), &data,
                        &n) == FL_OK &&
                n == 8 && memcmp(data, "good day", 8) == 0;
    fl_free(data);
    return same;
}

int fake_worker_main(void *context, const fl_worker_birth *birth, const char *endpoint)
{
    int rank = birth->rank;
    fake_worker w = {.run = (const fake_run *)context, .rank = rank, .endpoint = endpoint};
    const fake_run *run = w.run;
    w.ids = calloc((size_t)run->batch, sizeof *w.ids);
    fl_log(FL_LOG_INFO, "hello from worker %d", rank);
    if (strikes(&w, -1) && run->deed == FAKE_LATE_LINK) {
        misbehave(&w);
    }
    fl_link_options options = {.endpoint = endpoint,
                               .rank = rank,
                               .incarnation = birth->incarnation,
                               .generation = 1,
                               .detect_ms = run->detect_ms,
                               .on_abort = on_abort,
                               .context = &w};
    if (fl_link_open(&options, &w.link) != FL_OK) {
        fl_log(FL_LOG_ERROR, "%s", fl_errmsg());
        return 4;
    }
    int code = strikes(&w, -1) ? misbehave(&w) : -1; /* a late link is late once */
    if (code < 0 && !greet(&w)) {
        fl_link_failed(w.link, FL_EINTERNAL, fl_errmsg());
        code = 3;
    }
    if (code < 0) {
        fl_link_ready(w.link, 1000 + rank);
        code = rank < run->k ? fake_train(&w) : fake_stand_by(&w);
    }
    fl_link_close(&w.link);
    free(w.ids);
    return code;
}
