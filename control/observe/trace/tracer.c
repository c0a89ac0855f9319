/* From the request of a trace to its file:
 *
 *     IDLE ── fl_trace_request ──> ARMED ──(the first step begins)──> RECORDING ──(the last one is
 *      ^                                                                  │        over everywhere)
 *      └───────────────────── RUN/trace-A-B.json is written <────────────┘
 *
 * If the run ends earlier, the file holds the steps that were done; if none were, there is no file.
 * After a loss the run may go back, with another controller, which traces what is repeated.
 *
 * Workers do nothing for it: they always record. The controller's loop turns more often while it
 * drains the rings; operations that it reads too late are counted and reported. */
#include "control/observe/trace/tracer.h"

#include "autodp/sampler.h"
#include "control/observe/trace/trace_far.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    AT_ONCE = 256,
    TURN_MS = 20,
    STEPS_AHEAD = 2,
    LAST_MS = 1000, /* for other hosts to answer, when the run is over */
};

struct fl_tracer {
    const fl_run_facts *run;
    fl_event_log *log;
    bool active;
    bool of_job;      /* the job asks for the trace, also after the run has gone back */
    bool has_devices; /* some worker has a track of its device */
    fl_agent *agent;  /* NULL: workers of other hosts are out of reach */
    fl_trace_far *far;
    fl_trace_data data;
    uint64_t cursor[][FL_FLIGHT_TRACKS]; /* [n_workers] */
};

/* The recorders of workers on other hosts are copies, and hold a part of what they did. */
static int n_near(const fl_run_facts *run)
{
    return run->hosts == NULL ? run->n_workers : run->hosts->host[0].n;
}

/* ---- requests ---- */

/* The current step: that of the trainer that is furthest ahead. A run that continues is at the step
 * after its checkpoint before its workers begin one. */
static int64_t step_at_work(const fl_run_facts *run)
{
    int64_t step = run->stats->steps;
    for (int i = 0; i < run->plan->K * run->plan->R; i++) {
        int64_t at = fl_flight_step_of(run->flight, fl_plan_active(run->plan, i));
        step = at > step ? at : step;
    }
    return step;
}

static void note_plan(fl_tracer *t, const fl_plan *plan)
{
    fl_trace_about *about = &t->data.about;
    if (fl_trace_plan(about, plan->generation) == NULL && about->n_plans < FL_TRACE_PLANS) {
        about->plan[about->n_plans++] = *plan;
    }
}

static void note_layers(const fl_run_facts *run, fl_trace_about *about)
{
    const fl_plan_input *input = run->options->plan_input;
    if (input == NULL || input->profile == NULL || input->model == NULL) {
        return;
    }
    about->n_layers = input->profile->n_layers;
    for (int i = 0; i < about->n_layers; i++) {
        const fl_layer_cost *cost = &input->profile->layer[i];
        about->layer[i] = (fl_trace_layer){.fwd_us = cost->fwd_us,
                                           .bwd_us = cost->bwd_us,
                                           .call_us = cost->fwd_call_us + cost->bwd_call_us};
        snprintf(about->layer[i].kind, sizeof about->layer[i].kind, "%s",
                 fl_model_layer(input->model, i)->ops->kind);
    }
}

fl_status fl_tracer_create(const fl_run_facts *run, fl_event_log *log, fl_tracer **out)
{
    fl_tracer *t = NULL;
    size_t n = (size_t)run->n_workers;
    FL_TRY(fl_alloc(sizeof *t + n * sizeof t->cursor[0], (void **)&t));
    t->run = run;
    t->log = log;
    fl_status status = fl_trace_far_create(run, &t->far);
    *out = t;
    if (status != FL_OK) {
        fl_tracer_destroy(out);
    }
    return status;
}

void fl_tracer_reach(fl_tracer *tracer, fl_agent *agent)
{
    tracer->agent = agent;
}

void fl_tracer_destroy(fl_tracer **tracer)
{
    if (*tracer != NULL) {
        fl_trace_fini(&(*tracer)->data);
        fl_trace_far_destroy(&(*tracer)->far);
        fl_free(*tracer);
        *tracer = NULL;
    }
}

/* What was left before is not of the trace. */
static void skip_entries(fl_tracer *t)
{
    const fl_run_facts *run = t->run;
    for (int rank = 0; rank < run->n_workers; rank++) {
        for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
            t->cursor[rank][track] = fl_flight_written(run->flight, rank, track);
        }
    }
}

fl_status fl_tracer_request(fl_tracer *t, int64_t *first_step, int64_t n_steps)
{
    const fl_run_facts *run = t->run;
    int64_t now = step_at_work(run), wanted = *first_step;
    int64_t soon = run->phase->state < FL_CONTROLLER_RUNNING ? now : now + STEPS_AHEAD;
    if (n_steps < 1 || n_steps > FL_TRACE_STEPS_MAX) {
        return fl_fail(FL_EINVAL, "a trace of %" PRId64 " steps, 1 .. %d are allowed", n_steps,
                       FL_TRACE_STEPS_MAX);
    }
    if (t->active) {
        const fl_trace_about *about = &t->data.about;
        return fl_fail(FL_EINVAL, "a trace of steps %" PRId64 " .. %" PRId64 " is under way",
                       about->first_step, about->first_step + about->n_steps - 1);
    }
    wanted = wanted < 0 ? soon : wanted;
    if (wanted < soon || wanted >= run->options->n_steps) {
        return fl_fail(FL_EINVAL,
                       "a trace from step %" PRId64 ", but the run is at %" PRId64 " of %" PRId64,
                       wanted, now, run->options->n_steps);
    }
    memset(&t->data.about, 0, sizeof t->data.about);
    t->active = true;
    t->of_job = false;
    t->has_devices = false;
    fl_trace_far_begin(t->far);
    skip_entries(t); /* its first step may be over before the next turn */
    int64_t left = run->options->n_steps - wanted;
    t->data.about.n_workers = run->n_started;
    t->data.about.first_step = *first_step = wanted;
    t->data.about.n_steps = n_steps < left ? n_steps : left;
    t->data.about.batch = fl_sampler_batch(run->options->job);
    snprintf(t->data.about.job, sizeof t->data.about.job, "%s", run->options->job->name);
    note_layers(run, &t->data.about);
    return FL_OK;
}

void fl_tracer_begin(fl_tracer *t)
{
    const fl_controller_options *o = t->run->options;
    int64_t begin = o->job->trace.start, end = begin + o->job->trace.steps;
    int64_t done = t->run->stats->steps;
    bool is_past = begin < done && (end <= done || done == o->n_steps);
    if (o->job->trace.steps <= 0 || is_past) {
        return;
    }
    begin = begin < done ? done : begin;
    if (fl_tracer_request(t, &begin, end - begin) == FL_OK) {
        t->of_job = true;
        return;
    }
    bool again = o->origin != NULL && o->origin->why != NULL; /* it goes back, and has warned */
    if (!again) {
        fl_log(FL_LOG_WARN, "no trace: %s", fl_errmsg());
    }
}

int fl_tracer_turn_ms(const fl_tracer *t, int turn_ms)
{
    return t->active && turn_ms > TURN_MS ? TURN_MS : turn_ms;
}

/* ---- draining ---- */

static fl_status drain_track(fl_tracer *t, int rank, int track)
{
    const fl_flight *flight = t->run->flight;
    fl_flight_entry entry[AT_ONCE];
    fl_flight_view view;
    fl_trace_about *about = &t->data.about;
    uint64_t lost = 0;
    int n;
    fl_flight_look(flight, rank, track, &view);
    fl_flight_role role = track == 0 ? FL_FLIGHT_MAIN : view.role;
    t->has_devices = t->has_devices || role == FL_FLIGHT_DEVICE;
    while ((n = fl_flight_read(flight, rank, track, &t->cursor[rank][track], entry, AT_ONCE,
                               &lost)) > 0) {
        for (int i = 0; i < n; i++) {
            bool in = entry[i].step >= about->first_step &&
                      entry[i].step < about->first_step + about->n_steps;
            fl_flight_role of = fl_trace_role(entry[i].kind, role);
            if (in && entry[i].kind != FL_FLIGHT_NONE) {
                FL_TRY(fl_trace_add(&t->data, &(fl_trace_event){rank, (int32_t)of, entry[i]}));
            }
        }
    }
    about->lost += (int64_t)lost;
    return FL_OK;
}

static fl_status drain_workers(fl_tracer *t)
{
    note_plan(t, t->run->plan);
    for (int rank = 0; rank < n_near(t->run); rank++) {
        for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
            FL_TRY(drain_track(t, rank, track));
        }
    }
    return FL_OK;
}

/* ---- other hosts ---- */

static bool ask_agent(void *context, int rank, const fl_records_request *request)
{
    return fl_agent_ask_records(context, rank, request);
}

static const fl_flight_records *take_from_agent(void *context, int rank)
{
    return fl_agent_take_records(context, rank);
}

static fl_status drain_far(fl_tracer *t, bool over)
{
    const fl_trace_source source = {.ask = ask_agent, .take = take_from_agent, .context = t->agent};
    return t->agent == NULL ? FL_OK
                            : fl_trace_far_turn(t->far, &source, &t->data, over, fl_now_us());
}

/* ---- the end of one ---- */

static void short_name(const fl_trace_about *about, char *name, size_t size_bytes)
{
    snprintf(name, size_bytes, "trace-%" PRId64 "-%" PRId64 ".json", about->first_step,
             about->first_step + about->n_steps - 1);
}

int64_t fl_tracer_last_step(const fl_tracer *t)
{
    return t->data.about.first_step + t->data.about.n_steps - 1;
}

void fl_tracer_file_name(const fl_tracer *t, char *text, size_t size_bytes)
{
    char name[64];
    short_name(&t->data.about, name, sizeof name);
    snprintf(text, size_bytes, "%s/%s", t->run->options->run_dir, name);
}

static fl_status write_file(fl_tracer *t, char *name, size_t size_bytes)
{
    short_name(&t->data.about, name, size_bytes);
    int fd = openat(t->run->options->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        return fl_fail(FL_EIO, "%s: %s", name, strerror(errno));
    }
    fl_status status = fl_trace_write(&t->data, file);
    if (fclose(file) != 0 && status == FL_OK) {
        status = fl_fail(FL_EIO, "%s: %s", name, strerror(errno));
    }
    return status;
}

/* The hosts whose operations the trace does not have. */
static void missing_fields(fl_json *j, const fl_trace_data *trace)
{
    if (trace->n_hosts == 0) {
        return;
    }
    fl_json_array(j, "missing_hosts");
    for (int i = 0; i < trace->n_hosts; i++) {
        const fl_trace_host *host = &trace->hosts[i];
        if (host->missing[0] != '\0') {
            fl_log(FL_LOG_WARN, "the trace has no operations of host %s: %s", host->name,
                   host->missing);
            fl_json_object(j, NULL);
            fl_json_text(j, "host", host->name);
            fl_json_text(j, "why", host->missing);
            fl_json_close(j, '}');
        }
    }
    fl_json_close(j, ']');
}

static void report_written(fl_tracer *t, const char *name)
{
    const fl_trace_about *about = &t->data.about;
    fl_json *j = fl_event_log_begin(t->log, "trace.written");
    fl_json_integer(j, "first_step", about->first_step);
    fl_json_integer(j, "steps", about->n_steps);
    fl_json_text(j, "file", name);
    fl_json_integer(j, "operations", (int64_t)t->data.n);
    fl_json_integer(j, "lost", about->lost);
    missing_fields(j, &t->data);
    fl_event_log_end(t->log);
    fl_progress_note(&t->log->progress, "trace of steps %" PRId64 " .. %" PRId64 ": %s/%s",
                     about->first_step, about->first_step + about->n_steps - 1,
                     t->run->options->run_dir, name);
}

/* first_step, n_steps  as requested */
static void report_failed(fl_tracer *t, int64_t first_step, int64_t n_steps, const char *why)
{
    fl_json *j = fl_event_log_begin(t->log, "trace.failed");
    fl_json_integer(j, "first_step", first_step);
    fl_json_integer(j, "steps", n_steps);
    fl_json_text(j, "message", why);
    missing_fields(j, &t->data);
    fl_event_log_end(t->log);
}

/* No step of the trace was finished, as far as its operations tell. */
static void report_none(fl_tracer *t, int64_t first_step, int64_t n_steps)
{
    char why[128] = "their operations were overwritten, or their hosts did not answer";
    const fl_phase *phase = t->run->phase;
    bool returns = phase->back.returns;
    if (returns && t->of_job) {
        return; /* the next controller traces them */
    }
    if (returns) {
        snprintf(why, sizeof why, "the run goes back after a loss; ask again when it trains");
    } else if (phase->state == FL_CONTROLLER_OVER && t->run->stats->steps <= first_step) {
        snprintf(why, sizeof why, "the run ended before step %" PRId64, first_step);
    }
    report_failed(t, first_step, n_steps, why);
    fl_progress_note(&t->log->progress, "no trace of steps %" PRId64 " .. %" PRId64 ": %s",
                     first_step, first_step + n_steps - 1, why);
}

static void finish_trace(fl_tracer *t, fl_status status)
{
    char name[64] = "";
    fl_trace_about *about = &t->data.about;
    int64_t first_step = about->first_step, n_steps = about->n_steps; /* as requested */
    about->n_workers = t->run->n_started; /* with those that have come meanwhile */
    t->active = false;
    if (status == FL_OK) {
        status = fl_trace_far_finish(t->far, &t->data);
    }
    if (status == FL_OK) {
        fl_trace_keep_finished(&t->data);
    }
    bool none = status == FL_OK && about->n_steps == 0;
    if (status == FL_OK && !none) {
        status = write_file(t, name, sizeof name);
    }
    if (none) {
        report_none(t, first_step, n_steps);
    } else if (status == FL_OK) {
        report_written(t, name);
    } else {
        report_failed(t, first_step, n_steps, fl_errmsg());
        fl_log(FL_LOG_WARN, "gave up the trace: %s", fl_errmsg());
    }
    fl_trace_fini(&t->data);
}

/* Whether every worker that trains has started a later step, or will not start one. */
static bool is_over(const fl_run_facts *run, int64_t end)
{
    if (run->phase->state >= FL_CONTROLLER_FINISHING) {
        return true;
    }
    for (int i = 0; i < run->plan->K * run->plan->R; i++) {
        int rank = fl_plan_active(run->plan, i);
        int64_t step = fl_flight_step_of(run->flight, rank);
        /* Of another host it is a copy, and its agent may have stopped: the worker reports, too. */
        int64_t reported = rank < n_near(run) ? 0 : run->workers[rank].steps;
        if (step < end && reported < end) {
            return false;
        }
    }
    return true;
}

/* The loop does not turn any more. */
static fl_status await_far(fl_tracer *t)
{
    int64_t deadline_us = fl_deadline_us(LAST_MS);
    char text[256];
    while (t->agent != NULL && !fl_trace_far_is_done(t->far, fl_now_us()) &&
           !fl_agent_is_lost(t->agent, text, sizeof text) && fl_left_ms(deadline_us) > 0) {
        struct pollfd item = {.fd = fl_agent_fd(t->agent), .events = POLLIN};
        (void)poll(&item, 1, TURN_MS);
        (void)fl_agent_watch(t->agent);
        FL_TRY(drain_far(t, true));
    }
    fl_trace_far_give_up(t->far, "its agent did not answer before the run ended");
    return FL_OK;
}

void fl_tracer_watch(fl_tracer *t)
{
    const fl_run_facts *run = t->run;
    fl_phase_state state = run->phase->state;
    if (!t->active || state < FL_CONTROLLER_RUNNING) {
        return;
    }
    if (step_at_work(run) < t->data.about.first_step && state == FL_CONTROLLER_RUNNING) {
        skip_entries(t);
        return;
    }
    /* Ask before draining: every operation that ended before the answer is then in the trace. */
    int64_t end = t->data.about.first_step + t->data.about.n_steps;
    /* What a device did behind the commit point of a step is known at that of the next one. */
    bool has_devices = t->has_devices || fl_trace_far_has_devices(t->far);
    bool over = is_over(run, has_devices ? end + 1 : end);
    bool last = state == FL_CONTROLLER_OVER;
    fl_status status = drain_workers(t);
    if (status == FL_OK) {
        status = drain_far(t, over);
    }
    if (status == FL_OK && last) {
        status = await_far(t);
    }
    bool done = over && state == FL_CONTROLLER_RUNNING && fl_trace_far_is_done(t->far, fl_now_us());
    if (status != FL_OK || last || done) {
        finish_trace(t, status);
    }
}
