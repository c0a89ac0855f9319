#include "control/checkpoint/checkpoints.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TRIES_MAX = 10, LEFT_MS = 1000, LOOK_MS = 100 };

/* ---- opening and closing ---- */

/* A resumed run writes into the folder of the run that was interrupted. */
static fl_status open_resumed(fl_checkpoints *c, const fl_checkpoint *resume)
{
    fl_checkpoint *newest = NULL;
    FL_TRY(fl_alloc(sizeof *newest, (void **)&newest));
    *newest = *resume;
    newest->job = NULL;
    fl_checkpoint_tidy(c->store->dir_fd, resume->step);
    c->newest = newest;
    c->last_step = resume->step;
    c->n_skipped = resume->worker.n_skipped;
    c->sums.any = true;
    c->sums.last_step = resume->step;
    c->sums.best_step = fl_checkpoint_best(c->store->dir_fd);
    fl_checkpoint_announce(c->store, resume);
    return FL_OK;
}

fl_status fl_checkpoints_open(fl_checkpoints *c)
{
    const fl_controller_options *o = c->run->options;
    c->store = o->model == NULL ? NULL : o->checkpoints;
    c->ticket = 1;
    c->dropped_step = -1;
    c->base_lr = o->job->train.lr;
    c->schedule = (fl_checkpoint_schedule){.every = o->job->checkpoint.every,
                                           .steps_per_epoch = c->run->stats->steps_per_epoch};
    if (c->store != NULL) {
        FL_TRY(fl_alloc(sizeof *c->commit, (void **)&c->commit));
    }
    return c->store != NULL && o->resume != NULL ? open_resumed(c, o->resume) : FL_OK;
}

static void free_checkpoint(fl_checkpoint **checkpoint)
{
    if (*checkpoint != NULL) {
        fl_checkpoint_fini(*checkpoint);
        fl_free(*checkpoint);
        *checkpoint = NULL;
    }
}

static void drop_collection(fl_checkpoints *c, int i)
{
    fl_free(c->open[i]);
    c->n_open--;
    memmove(&c->open[i], &c->open[i + 1], (size_t)(c->n_open - i) * sizeof c->open[0]);
}

void fl_checkpoints_close(fl_checkpoints *c)
{
    if (c->commit != NULL) {
        fl_commit_end(c->commit);
        free_checkpoint(&c->commit->checkpoint);
        fl_free(c->commit);
        c->commit = NULL;
    }
    while (c->n_open > 0) {
        drop_collection(c, 0);
    }
    fl_free(c->settled);
    c->settled = NULL;
    free_checkpoint(&c->captured);
    free_checkpoint(&c->newest);
}

/* ---- outcomes ---- */

const fl_checkpoint_outcome *fl_checkpoints_outcome_of(const fl_checkpoints *c, int64_t ticket)
{
    const fl_checkpoint_outcome *o = &c->outcome[ticket % FL_CHECKPOINT_OUTCOMES];
    return o->ticket == ticket ? o : NULL;
}

/* The checkpoint with this ticket is over, and so are requests for it. */
static fl_checkpoint_outcome *end_ticket(fl_checkpoints *c, bool good, int64_t step)
{
    fl_checkpoint_outcome *o = &c->outcome[c->ticket % FL_CHECKPOINT_OUTCOMES];
    *o = (fl_checkpoint_outcome){.ticket = c->ticket, .good = good, .step = step};
    o->seconds = (double)(fl_now_us() - c->begun_us) * 1e-6;
    c->ticket++;
    c->asked = c->again = false;
    c->n_late = c->n_switched = 0;
    return o;
}

static void fail_ticket(fl_checkpoints *c, int64_t step, const char *why)
{
    fl_checkpoint_outcome *o = end_ticket(c, false, step);
    snprintf(o->why, sizeof o->why, "%s", why);
    c->sums.n_failed++;
    fl_event_log_no_checkpoint(c->log, step, why);
}

static void note_written(fl_checkpoints *c, const fl_collection *settled)
{
    fl_checkpoint_outcome *o = end_ticket(c, true, settled->step);
    o->is_best = c->commit->best_step_found == settled->step;
    o->bytes = settled->bytes;
    o->linked_bytes = fl_collection_linked_bytes(settled, c->newest);
    o->copy_ms = (double)settled->copy_us * 1e-3;
    o->write_ms = (double)settled->write_us * 1e-3;
    o->commit_ms = (double)c->commit->took_us * 1e-3;
    c->last_good = *o;
    c->sums = (fl_checkpoint_sums){.n_written = c->sums.n_written + 1,
                                   .n_failed = c->sums.n_failed,
                                   .any = true,
                                   .last_step = settled->step,
                                   .best_step = c->commit->best_step_found,
                                   .last_us = fl_now_us(),
                                   .last_bytes = o->bytes,
                                   .last_linked_bytes = o->linked_bytes,
                                   .last_seconds = o->seconds};
    fl_event_log_checkpoint(c->log, o);
    c->written(c->context, o);
}

/* ---- ② ---- */

static bool is_captured(const fl_checkpoints *c, int64_t step)
{
    return c->captured != NULL && c->captured->step == step;
}

/* Without memory there is no capture: the collection then finds none. */
static void capture_now(fl_checkpoints *c)
{
    free_checkpoint(&c->captured);
    if (fl_alloc(sizeof *c->captured, (void **)&c->captured) != FL_OK ||
        fl_checkpoints_capture(c, c->captured) != FL_OK) {
        free_checkpoint(&c->captured);
    }
    c->moved_us = fl_now_us();
}

void fl_checkpoints_counted(fl_checkpoints *c)
{
    const fl_run_stats *stats = c->run->stats;
    c->n_skipped = stats->last.skipped ? c->n_skipped + 1 : 0;
    if (c->asked && stats->steps == c->target && !is_captured(c, c->target)) {
        capture_now(c);
    }
}

/* ---- ③ ---- */

/* Workers that are further than the command's step name the step that they save. */
static void retarget(fl_checkpoints *c, int64_t step)
{
    int64_t steps = c->run->stats->steps;
    if (is_captured(c, step)) {
        return;
    }
    if (steps == step) {
        capture_now(c);
    } else if (c->asked && steps < step) {
        c->target = step;
    }
}

static fl_collection *open_collection(fl_checkpoints *c, int64_t step)
{
    fl_collection *collection = NULL;
    if (c->n_open == FL_CHECKPOINT_OPEN ||
        fl_alloc(sizeof *collection, (void **)&collection) != FL_OK) {
        return NULL;
    }
    fl_collection_begin(collection, step);
    c->begun_us = c->asked || c->n_open > 0 ? c->begun_us : fl_now_us();
    retarget(c, step);
    c->open[c->n_open++] = collection;
    return collection;
}

static fl_collection *collection_of(fl_checkpoints *c, int64_t step)
{
    for (int i = 0; i < c->n_open; i++) {
        if (c->open[i]->step == step) {
            return c->open[i];
        }
    }
    return c->store == NULL || step == c->dropped_step ? NULL : open_collection(c, step);
}

void fl_checkpoints_file(fl_checkpoints *c, int rank, const fl_checkpoint_file_report *report)
{
    fl_collection *collection = collection_of(c, report->step);
    c->moved_us = fl_now_us();
    if (collection != NULL) {
        fl_collection_file(collection, rank, report);
    }
}

void fl_checkpoints_part(fl_checkpoints *c, int rank, const fl_checkpoint_part_report *report)
{
    fl_collection *collection = collection_of(c, report->step);
    c->moved_us = fl_now_us();
    if (collection != NULL) {
        fl_collection_part(collection, rank, report);
    }
}

/* A worker that has left for a while reports nothing any more. */
static bool is_awaited(const fl_checkpoints *c, const fl_collection *collection, int rank,
                       int64_t now_us)
{
    const fl_worker *w = &c->run->workers[rank];
    const fl_plan *plan = is_captured(c, collection->step) ? &c->captured->plan : c->run->plan;
    bool left = w->exited_us != 0 && now_us - w->exited_us > LEFT_MS * 1000;
    return !collection->reported[rank] && !plan->departed[rank] && !left;
}

static bool is_complete(const fl_checkpoints *c, const fl_collection *collection, int64_t now_us)
{
    for (int rank = 0; rank < c->run->n_workers; rank++) {
        if (is_awaited(c, collection, rank, now_us)) {
            return false;
        }
    }
    return c->run->stats->steps >= collection->step;
}

/* ---- ④ and ⑤ ---- */

static void prepare_commit(fl_checkpoints *c, int64_t step, fl_checkpoint *checkpoint)
{
    const fl_controller_options *o = c->run->options;
    *c->commit =
        (fl_commit){.store = c->store,
                    .model = o->model,
                    .run_fd = o->dir_fd,
                    .checkpoint = checkpoint,
                    .step = step,
                    .best_step = fl_stop_rule_best(&c->run->stats->stop_rule, &c->run->stats->stop),
                    .keep = o->job->checkpoint.keep};
}

static void start_commit(fl_checkpoints *c, int64_t step, fl_checkpoint *checkpoint)
{
    prepare_commit(c, step, checkpoint);
    c->committing = fl_commit_start(c->commit) == FL_OK;
    c->moved_us = fl_now_us();
}

/* Only the folder that is not a checkpoint: a run that begins and ends at one step has no other. */
static void remove_folder(fl_checkpoints *c, int64_t step)
{
    if (c->newest == NULL || c->newest->step != step) {
        start_commit(c, step, NULL);
    }
}

static void fail_collection(fl_checkpoints *c, const char *why)
{
    int64_t step = c->open[0]->step;
    free_checkpoint(&c->captured);
    drop_collection(c, 0);
    fail_ticket(c, step, why);
    remove_folder(c, step);
}

/* The workers' state is one that the controller has not captured: they were further than the step
 * asked for, or a worker reported a change of the plan at that step before the leader reported the
 * step before it. Any change that is on its way waits for the step asked for, and comes then.
 * Or a worker was to link a file that is damaged, and the next checkpoint has that file anew. Or
 * the workers came to the same step twice: a leader passes the request on before it commits a
 * change of the plan, and the step at which they wait for that may have its checkpoint already. */
static void try_again(fl_checkpoints *c)
{
    int64_t step = c->open[0]->step;
    int *n = is_captured(c, step) ? &c->n_switched : &c->n_late;
    *n += c->asked;
    if (c->asked && c->n_late + c->n_switched == TRIES_MAX) {
        char why[sizeof c->open[0]->why];
        snprintf(why, sizeof why, "%s", c->open[0]->why);
        fail_collection(c, why[0] != '\0' ? why
                           : c->n_late > c->n_switched
                               ? "the workers were each time further than the step asked for"
                               : "the plan changed each time at the step asked for");
        return;
    }
    c->again = c->asked;
    c->asked = false;
    free_checkpoint(&c->captured);
    drop_collection(c, 0);
    remove_folder(c, step);
}

/* All parts of the first open collection are there. */
static void settle_collection(fl_checkpoints *c)
{
    fl_collection *first = c->open[0];
    if (!is_captured(c, first->step) && c->run->stats->steps == first->step) {
        capture_now(c);
    }
    if (first->status == FL_OK &&
        (!is_captured(c, first->step) || c->captured->plan.generation != first->generation)) {
        try_again(c);
        return;
    }
    if (c->asked && (first->status == FL_EFORMAT || first->status == FL_EBUSY)) {
        try_again(c);
        return;
    }
    fl_status status = fl_collection_finish(first, c->newest, c->captured);
    if (status == FL_OK) {
        status = fl_checkpoints_check_files(c, c->captured);
    }
    if (status == FL_OK && c->ledger != NULL) {
        /* Every worker has reported its part after its samples of all steps before. A ledger that
         * cannot be written is reported by control/events/record.h. */
        fl_status flushed = fl_ledger_flush(c->ledger);
        (void)flushed;
    }
    if (status != FL_OK) {
        fail_collection(c, fl_errmsg());
        return;
    }
    start_commit(c, first->step, c->captured);
    if (!c->committing) {
        fail_collection(c, fl_errmsg());
        return;
    }
    c->settled = first;
    c->captured = NULL;
    c->open[0] = NULL;
    drop_collection(c, 0);
}

/* The thread has ended. */
static void finish_commit(fl_checkpoints *c)
{
    fl_collection *settled = c->settled;
    fl_commit_end(c->commit);
    c->committing = false;
    c->settled = NULL;
    if (settled != NULL && c->commit->status == FL_OK) {
        free_checkpoint(&c->newest);
        c->newest = c->commit->checkpoint;
        c->commit->checkpoint = NULL;
        note_written(c, settled);
    } else if (settled != NULL) {
        free_checkpoint(&c->commit->checkpoint);
        fail_ticket(c, settled->step, c->commit->why);
    }
    fl_free(settled);
}

/* ---- ① ---- */

static bool is_ending(const fl_checkpoints *c)
{
    return c->run->phase->n_stops > 0 || c->run->phase->state > FL_CONTROLLER_RUNNING ||
           c->run->stats->steps >= c->run->stats->n_steps;
}

/* step: 0 for the present one, of a run that is paused. */
static void ask_workers(fl_checkpoints *c, int64_t step, int64_t now_us)
{
    c->begun_us = c->again ? c->begun_us : now_us;
    c->asked = true;
    c->again = false;
    c->target = step;
    c->moved_us = now_us;
    c->dropped_step = -1;
    free_checkpoint(&c->captured);
    fl_router_command(c->router, c->run->plan,
                      &(fl_command){.kind = FL_COMMAND_CHECKPOINT, .due_step = step});
}

/* Where evaluations are judged, no step beyond the next one is asked for: the workers wait there,
 * and may be asked for that very step. */
static int64_t limit_to_judged(const fl_checkpoints *c, int64_t step)
{
    const fl_run_stats *stats = c->run->stats;
    int64_t period = stats->evaluation_period;
    if (!stats->stop_rule.keeps_best || period <= 0) {
        return step;
    }
    bool is_due = stats->steps > 0 && stats->steps % period == 0;
    if (is_due && stats->stop.judged < stats->steps) {
        return 0; /* they wait there now: fl_checkpoints_keep */
    }
    int64_t judged = (stats->steps / period + 1) * period;
    return step < judged ? step : judged;
}

/* The step to ask for; 0: none now. */
static int64_t step_to_ask(fl_checkpoints *c, int64_t now_us)
{
    const fl_run_stats *stats = c->run->stats;
    fl_checkpoint_moment moment = {.steps = stats->steps,
                                   .end_step = stats->n_steps,
                                   .now_us = now_us,
                                   .last_step = c->last_step,
                                   .last_us = c->last_us,
                                   .lead = fl_checkpoint_lead(fl_measure_step_ms(c->elastic),
                                                              c->run->options->lead, c->n_late,
                                                              c->n_switched)};
    int64_t due = limit_to_judged(c, fl_checkpoint_due(&c->schedule, &moment));
    if (due > 0 && !c->again) {
        c->last_step = due;
        c->last_us = now_us;
        return due;
    }
    if (c->again || c->ticket_wanted >= c->ticket) {
        int64_t step = limit_to_judged(c, stats->steps + moment.lead);
        return step < stats->n_steps ? step : 0;
    }
    return 0;
}

/* Whether the newest checkpoint is of the present step: the run has been paused since. */
static bool is_there(const fl_checkpoints *c)
{
    return c->newest != NULL && c->newest->step == c->run->stats->steps;
}

/* A step has one checkpoint. It is the answer to a request if it has the present state, too. */
static void repeat_outcome(fl_checkpoints *c)
{
    bool same = false;
    fl_checkpoint *now = NULL;
    fl_status status = fl_alloc(sizeof *now, (void **)&now);
    if (status == FL_OK) {
        status = fl_checkpoints_capture(c, now);
    }
    same = status == FL_OK && fl_checkpoint_has_state(c->newest, now) &&
           fl_checkpoint_newest(c->store->dir_fd) == now->step;
    free_checkpoint(&now);
    fl_checkpoint_outcome last = c->last_good;
    fl_checkpoint_outcome *o = end_ticket(c, same, c->newest->step);
    if (same && last.step == o->step) {
        last.ticket = o->ticket;
        *o = last;
    }
    snprintf(o->why, sizeof o->why, "%s",
             same
                 ? ""
                 : "the checkpoint after this step is there, and settings or the plan have changed "
                   "since: resume the run, and ask after the next step");
}

static void look_at_schedule(fl_checkpoints *c, bool paused, int64_t now_us)
{
    bool wanted = c->again || c->ticket_wanted >= c->ticket;
    c->last_us = c->last_us == 0 ? now_us : c->last_us; /* the run has just begun to train */
    if (is_ending(c) || c->keep_step > 0 || c->elastic->transition.state == FL_ELASTIC_COMMITTING ||
        (c->n_switched > 0 && c->elastic->transition.state != FL_ELASTIC_IDLE)) {
        return;
    }
    if (paused) {
        if (wanted && is_there(c)) {
            repeat_outcome(c);
        } else if (wanted) {
            ask_workers(c, 0, now_us);
        }
        return;
    }
    int64_t step = step_to_ask(c, now_us);
    if (step > 0) {
        ask_workers(c, step, now_us);
    }
}

bool fl_checkpoints_keep(fl_checkpoints *c, int64_t step, int64_t now_us)
{
    bool is_written = c->newest != NULL && c->newest->step == step;
    bool is_under_way = (c->n_open > 0 && c->open[0]->step == step) ||
                        (c->settled != NULL && c->settled->step == step);
    bool is_asked = c->asked && c->target == step;
    c->keep_step = 0;
    if (c->store == NULL || is_ending(c) || is_written || is_under_way || is_asked) {
        return true;
    }
    if (c->committing || c->n_open > 0 || c->asked) {
        c->keep_step = step;
        return false;
    }
    ask_workers(c, step, now_us);
    if (c->run->stats->steps == step) { /* before a change of the plan at this very step */
        capture_now(c);
    }
    return true;
}

/* ---- the whole ---- */

static const char *name_awaited(const fl_checkpoints *c, int64_t now_us, char *text, size_t size)
{
    for (int rank = 0; c->n_open > 0 && rank < c->run->n_workers; rank++) {
        if (is_awaited(c, c->open[0], rank, now_us)) {
            snprintf(text, size, "worker %d has not finished its part within fault.deadline", rank);
            return text;
        }
    }
    return "no worker has begun its part within fault.deadline";
}

/* Nothing has happened to the checkpoint for fault.deadline. Workers may still write: their reports
 * are dropped from now on. */
static void watch_deadline(fl_checkpoints *c, int64_t now_us)
{
    char why[128];
    bool ahead = c->asked && c->n_open == 0 && c->run->stats->steps < c->target;
    c->moved_us = ahead ? now_us : c->moved_us;
    if ((!c->asked && c->n_open == 0) ||
        now_us - c->moved_us <= c->run->options->job->fault.deadline_ms * 1000) {
        return;
    }
    c->dropped_step = c->n_open > 0 ? c->open[0]->step : c->target;
    if (c->n_open > 0) {
        fail_collection(c, name_awaited(c, now_us, why, sizeof why));
    } else {
        fail_ticket(c, c->target, name_awaited(c, now_us, why, sizeof why));
    }
}

void fl_checkpoints_watch(fl_checkpoints *c, bool paused, int64_t now_us)
{
    if (c->store == NULL) {
        return;
    }
    if (c->committing) {
        if (!fl_commit_is_done(c->commit)) {
            return;
        }
        finish_commit(c);
    }
    if (c->n_open > 0 && is_complete(c, c->open[0], now_us)) {
        settle_collection(c);
    } else if (c->n_open > 0 || c->asked) {
        watch_deadline(c, now_us);
    } else if (c->run->phase->state == FL_CONTROLLER_RUNNING) {
        look_at_schedule(c, paused, now_us);
    }
}

/* Wait for the commit. A disk that does not return keeps neither the run nor the user. */
static bool await_commit(fl_checkpoints *c)
{
    int64_t deadline_us = fl_deadline_us(c->run->options->job->fault.deadline_ms);
    bool ended = fl_commit_wait(c->commit, LOOK_MS);
    while (!ended && fl_left_ms(deadline_us) > 0 && !c->hurried(c->context)) {
        ended = fl_commit_wait(c->commit, LOOK_MS);
    }
    return ended;
}

static void abandon_commit(fl_checkpoints *c)
{
    int64_t step = c->commit->step;
    fl_commit_abandon(c->commit);
    c->commit = NULL; /* the thread's */
    c->committing = false;
    fl_free(c->settled);
    c->settled = NULL;
    while (c->n_open > 0) {
        drop_collection(c, 0);
    }
    fail_ticket(c, step, "the disk has not taken it until the run had to end");
}

/* The schedule asked for a checkpoint at the step after which the run ended early: it was captured
 * before the evaluation that ended the run. */
static bool lacks_the_end(const fl_checkpoints *c)
{
    const fl_run_stats *stats = c->run->stats;
    return stats->ended_early && c->newest != NULL && c->newest->step == stats->steps &&
           c->newest->controller.stats.stop.judged < stats->steps &&
           c->newest->plan.generation == c->elastic->plan.generation &&
           fl_checkpoint_newest(c->store->dir_fd) == stats->steps;
}

/* The newest checkpoint, with the present state of the controller. */
static fl_status start_renewal(fl_checkpoints *c)
{
    fl_checkpoint *now = NULL;
    FL_TRY(fl_alloc(sizeof *now, (void **)&now));
    fl_status status = fl_checkpoints_capture(c, now);
    if (status == FL_OK) {
        now->n_files = c->newest->n_files;
        memcpy(now->file, c->newest->file, sizeof now->file);
        prepare_commit(c, now->step, now);
        c->commit->renews = true;
        status = fl_commit_start(c->commit);
    }
    if (status != FL_OK) {
        c->commit->checkpoint = NULL;
        free_checkpoint(&now);
    }
    return status;
}

/* Without it, a run that is resumed from this checkpoint repeats its last evaluation. */
static void renew_newest(fl_checkpoints *c)
{
    if (start_renewal(c) != FL_OK) {
        fl_log(FL_LOG_WARN, "the last checkpoint lacks the last evaluation: %s", fl_errmsg());
    } else if (!await_commit(c)) {
        fl_commit_abandon(c->commit);
        c->commit = NULL; /* the thread's */
    } else {
        fl_commit_end(c->commit);
        if (c->commit->status != FL_OK) {
            fl_log(FL_LOG_WARN, "the last checkpoint lacks the last evaluation: %s",
                   c->commit->why);
        }
    }
}

void fl_checkpoints_finish(fl_checkpoints *c)
{
    if (c->store == NULL) {
        return;
    }
    while (c->committing || c->n_open > 0) {
        if (c->committing && !await_commit(c)) {
            abandon_commit(c);
            return;
        }
        if (c->committing) {
            finish_commit(c);
        } else if (is_complete(c, c->open[0], INT64_MAX)) {
            settle_collection(c);
        } else {
            fail_collection(c, "the run ended before every worker had finished its part");
        }
    }
    if (c->ticket_wanted >= c->ticket) {
        fail_ticket(c, -1, "the run ended before it could be written");
    }
    if (lacks_the_end(c)) {
        renew_newest(c);
    }
    fl_checkpoint_tidy(c->store->dir_fd, c->newest == NULL ? -1 : c->newest->step);
    c->sums.last_step = fl_checkpoint_newest(c->store->dir_fd);
    c->sums.best_step = fl_checkpoint_best(c->store->dir_fd);
    c->sums.any = c->sums.last_step >= 0;
}

/* Without its files, a run is not resumed. Checkpoints by the schedule are still written: their
 * weights are a model. */
static fl_status check_records(const fl_checkpoints *c)
{
    static const char *const names[] = {"steps.jsonl", "events.jsonl", "ledger.bin"};
    for (int i = 0; i < 3 - (c->ledger == NULL); i++) {
        if (faccessat(c->run->options->dir_fd, names[i], F_OK, 0) != 0) {
            return fl_fail(FL_EFAILED, "%s: %s; without it the run cannot be resumed", names[i],
                           strerror(errno));
        }
    }
    return FL_OK;
}

fl_status fl_checkpoints_request(fl_checkpoints *c, int64_t *ticket)
{
    if (c->store == NULL) {
        return fl_fail(FL_ENOTSUP, "this run has no folder for checkpoints");
    }
    if (is_ending(c)) {
        return fl_fail(FL_EBUSY, "the run is ending");
    }
    FL_TRY(check_records(c));
    bool begun = c->captured != NULL || c->n_open > 0 || c->settled != NULL;
    c->ticket_wanted = c->ticket + begun;
    *ticket = c->ticket_wanted;
    return FL_OK;
}
