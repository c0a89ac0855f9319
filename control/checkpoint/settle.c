/* From the reports of the workers to the commit: ② to ⑤. */
#include "control/checkpoint/parts.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>

enum { TRIES_MAX = 10, LEFT_MS = 1000, WHY_MAX = 1200 };

void fl__checkpoints_free_one(fl_checkpoint **checkpoint)
{
    if (*checkpoint != NULL) {
        fl_checkpoint_fini(*checkpoint);
        fl_free(*checkpoint);
        *checkpoint = NULL;
    }
}

/* A worker may report its part after this: one that was slow, or that left with a change of the
 * plan and was not awaited. Nobody waits for the others of that part. */
static fl_collection *take_open(fl_checkpoints *c, int i)
{
    fl_collection *taken = c->open[i];
    c->n_open--;
    memmove(&c->open[i], &c->open[i + 1], (size_t)(c->n_open - i) * sizeof c->open[0]);
    if (taken->serial == 0) {
        c->dropped_step = taken->step;
    } else if (taken->serial > c->dropped_serial) {
        c->dropped_serial = taken->serial;
    }
    return taken;
}

void fl__checkpoints_drop_open(fl_checkpoints *c, int i)
{
    fl_free(take_open(c, i));
}

/* ---- ② ---- */

static bool is_captured(const fl_checkpoints *c, int64_t step)
{
    return c->captured != NULL && c->captured->step == step;
}

/* Without memory there is no capture: the collection then finds none. */
void fl__checkpoints_capture_now(fl_checkpoints *c)
{
    fl__checkpoints_free_one(&c->captured);
    if (fl_alloc(sizeof *c->captured, (void **)&c->captured) != FL_OK ||
        fl_checkpoints_capture(c, c->captured) != FL_OK) {
        fl__checkpoints_free_one(&c->captured);
    }
    c->moved_us = fl_now_us();
}

void fl_checkpoints_counted(fl_checkpoints *c)
{
    const fl_run_stats *stats = c->run->stats;
    c->n_skipped = stats->last.skipped ? c->n_skipped + 1 : 0;
    if (c->asked && stats->steps == c->target && !is_captured(c, c->target)) {
        fl__checkpoints_capture_now(c);
    }
}

void fl__checkpoints_follow_commit(fl_checkpoints *c)
{
    const fl_transition *e = &c->elastic->transition;
    if (c->asked && e->state == FL_ELASTIC_COMMITTING && c->run->stats->steps == e->due_step &&
        e->due_step > 0 && e->due_step < c->target) {
        c->target = e->due_step;
        fl__checkpoints_capture_now(c);
    }
}

/* ---- ③ ---- */

/* Workers that are further than the command's step name the step that they save. A worker that has
 * written its part begins its last checkpoint while others still write theirs: the capture of the
 * one before stays until all have. */
static void retarget(fl_checkpoints *c, int64_t step)
{
    int64_t steps = c->run->stats->steps;
    bool is_in_use = c->n_open > 0 && is_captured(c, c->open[0]->step);
    if (is_captured(c, step) || is_in_use) {
        return;
    }
    if (steps == step) {
        fl__checkpoints_capture_now(c);
    } else if (c->asked && steps < step) {
        c->target = step;
    }
}

static fl_collection *open_collection(fl_checkpoints *c, int64_t step, int64_t serial)
{
    fl_collection *collection = NULL;
    if (c->n_open == FL_CHECKPOINT_OPEN ||
        fl_alloc(sizeof *collection, (void **)&collection) != FL_OK) {
        return NULL;
    }
    fl_collection_begin(collection, step, serial);
    c->moved_us = fl_now_us();
    c->begun_us = c->asked || c->n_open > 0 ? c->begun_us : c->moved_us;
    retarget(c, step);
    c->open[c->n_open++] = collection;
    return collection;
}

/* NULL: this report is dropped. */
static fl_collection *collection_of(fl_checkpoints *c, int64_t step, int64_t serial,
                                    uint32_t generation)
{
    bool is_dropped = serial == 0 ? step == c->dropped_step : serial <= c->dropped_serial;
    if (c->store == NULL || is_dropped || generation < c->since) {
        return NULL;
    }
    for (int i = 0; i < c->n_open; i++) {
        if (c->open[i]->step == step) {
            c->moved_us = fl_now_us();
            return c->open[i];
        }
    }
    return open_collection(c, step, serial);
}

void fl_checkpoints_file(fl_checkpoints *c, int rank, const fl_checkpoint_file_report *report)
{
    fl_collection *collection = collection_of(c, report->step, report->serial, report->generation);
    if (collection != NULL) {
        fl_collection_file(collection, rank, report);
    }
}

void fl_checkpoints_part(fl_checkpoints *c, int rank, const fl_checkpoint_part_report *report)
{
    fl_collection *collection = collection_of(c, report->step, report->serial, report->generation);
    if (collection != NULL) {
        fl_collection_part(collection, rank, report);
    }
}

/* A worker that has left for a while reports nothing any more, and has reported all before; one
 * that was lost has not. Nor does one that has joined after the others had saved the state. */
static bool is_awaited(const fl_checkpoints *c, const fl_collection *collection, int rank,
                       int64_t now_us)
{
    const fl_worker *w = &c->run->workers[rank];
    const fl_plan *plan = is_captured(c, collection->step) ? &c->captured->plan : c->run->plan;
    bool left = !w->lost && w->exited_us != 0 && now_us - w->exited_us > LEFT_MS * 1000;
    bool came_later = collection->n_parts > 0 && w->since > collection->generation;
    return !collection->reported[rank] && !plan->departed[rank] && !left && !came_later;
}

bool fl__checkpoints_is_complete(const fl_checkpoints *c, const fl_collection *collection,
                                 int64_t now_us)
{
    for (int rank = 0; rank < c->run->n_workers; rank++) {
        if (is_awaited(c, collection, rank, now_us)) {
            return false;
        }
    }
    return c->run->stats->steps >= collection->step;
}

/* ---- ④ and ⑤ ---- */

void fl__checkpoints_prepare_commit(fl_checkpoints *c, int64_t step, fl_checkpoint *checkpoint)
{
    const fl_controller_options *o = c->run->options;
    *c->commit =
        (fl_commit){.store = c->store,
                    .model = o->model,
                    .run_fd = o->dir_fd,
                    .checkpoint = checkpoint,
                    .step = step,
                    .best_step = fl_stop_rule_best(&c->run->stats->stop_rule, &c->run->stats->stop),
                    .best_asked = c->best_asked,
                    .keep = o->job->checkpoint.keep};
}

/* files: what was reported of the checkpoint's files, in their order; NULL: only remove the folder
 */
static void start_commit(fl_checkpoints *c, int64_t step, fl_checkpoint *checkpoint,
                         const fl_collection *files)
{
    fl__checkpoints_prepare_commit(c, step, checkpoint);
    for (int i = 0; files != NULL && i < files->n_files; i++) {
        c->commit->writer[i] = 1 + files->writer[i];
    }
    c->committing = fl_commit_start(c->commit) == FL_OK;
    c->moved_us = fl_now_us();
}

/* Only the folder that is not a checkpoint: a run that begins and ends at one step has no other. */
static void remove_folder(fl_checkpoints *c, int64_t step)
{
    if (!fl__checkpoints_has(c, step)) {
        start_commit(c, step, NULL, NULL);
    }
}

void fl__checkpoints_fail_open(fl_checkpoints *c, const char *why)
{
    int64_t step = c->open[0]->step;
    fl__checkpoints_free_one(&c->captured);
    fl__checkpoints_drop_open(c, 0);
    fl__checkpoints_fail_ticket(c, step, why);
    remove_folder(c, step);
}

/* The reason, which names the worker, and on which host it is: one of several, each of which may
 * have another folder, or no room, where the checkpoint is written. */
static const char *with_host(const fl_checkpoints *c, int rank, const char *why, char text[WHY_MAX])
{
    const fl_hosts *hosts = c->run->hosts;
    int i = hosts == NULL ? -1 : fl_hosts_of(hosts, rank);
    int n = snprintf(text, WHY_MAX, "%s", why);
    if (i >= 0 && n > 0 && n < WHY_MAX) {
        snprintf(text + n, (size_t)(WHY_MAX - n), "; worker %d is on host %s", rank,
                 hosts->host[i].name);
    }
    return text;
}

/* No later step has the state of that evaluation. Workers that come to its step twice have written
 * it before. */
static void report_lost_best(fl_checkpoints *c, int64_t step, const char *why)
{
    if (step == c->best_asked && !fl__checkpoints_has(c, step)) {
        c->sums.n_failed++;
        fl_event_log_no_checkpoint(c->log, step, why);
    }
}

/* The workers' state is one that the controller has not captured: they were further than the step
 * asked for, or a worker reported a change of the plan at that step before the leader reported the
 * step before it. A change with a step of its own waits for the capture (fl_elastic_watch); one
 * that comes as soon as all are ready does not. Or a worker was to link a file that is damaged, and
 * the next checkpoint has that file anew. Or the workers came to the same step twice: a leader
 * passes the request on before it commits a change of the plan, and the step at which they wait for
 * that may have its checkpoint already. */
static void try_again(fl_checkpoints *c)
{
    char why[sizeof c->open[0]->why];
    int64_t step = c->open[0]->step;
    int *n = is_captured(c, step) ? &c->n_switched : &c->n_late;
    *n += c->asked;
    snprintf(why, sizeof why, "%s",
             c->open[0]->why[0] != '\0'  ? c->open[0]->why
             : c->n_late > c->n_switched ? "the workers were further than the step asked for"
                                         : "the plan changed at the step asked for");
    if (c->asked && c->n_late + c->n_switched == TRIES_MAX) {
        fl__checkpoints_fail_open(c, why);
        return;
    }
    report_lost_best(c, step, why);
    c->again = c->asked;
    c->asked = false;
    fl__checkpoints_free_one(&c->captured);
    fl__checkpoints_drop_open(c, 0);
    remove_folder(c, step);
}

/* All parts of the first open collection are there. */
void fl__checkpoints_settle(fl_checkpoints *c)
{
    fl_collection *first = c->open[0];
    if (!is_captured(c, first->step) && c->run->stats->steps == first->step) {
        fl__checkpoints_capture_now(c);
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
         * cannot be written is reported by control/events/log/record.h. */
        fl_status flushed = fl_ledger_flush(c->ledger);
        (void)flushed;
    }
    if (status != FL_OK) {
        char why[WHY_MAX];
        fl__checkpoints_fail_open(c, first->status == FL_OK
                                         ? fl_errmsg()
                                         : with_host(c, first->failed_rank, first->why, why));
        return;
    }
    start_commit(c, first->step, c->captured, first);
    if (!c->committing) {
        fl__checkpoints_fail_open(c, fl_errmsg());
        return;
    }
    c->settled = take_open(c, 0);
    c->captured = NULL;
}

/* The thread has ended. */
void fl__checkpoints_finish_commit(fl_checkpoints *c)
{
    fl_collection *settled = c->settled;
    fl_commit_end(c->commit);
    c->committing = false;
    c->settled = NULL;
    if (settled != NULL && c->commit->status == FL_OK) {
        fl__checkpoints_free_one(&c->newest);
        c->newest = c->commit->checkpoint;
        c->commit->checkpoint = NULL;
        fl__checkpoints_note_written(c, settled);
    } else if (settled != NULL) {
        fl__checkpoints_free_one(&c->commit->checkpoint);
        const char *why = c->commit->why;
        int writer = c->commit->lost_writer;
        char text[WHY_MAX];
        fl__checkpoints_fail_ticket(c, settled->step,
                                    writer == 0 ? why : with_host(c, writer - 1, why, text));
    }
    fl_free(settled);
}

/* ---- a checkpoint that cannot be finished ---- */

/* Its folder stays until the next commit or the end of the run, which remove it: survivors may be
 * writing into it. Reports of it may still arrive. */
static void give_up_open(fl_checkpoints *c, int i)
{
    if (is_captured(c, c->open[i]->step)) {
        fl__checkpoints_free_one(&c->captured);
    }
    fl__checkpoints_drop_open(c, i);
    c->since = fl_elastic_next_generation(c->elastic);
}

/* rewritten: the step whose checkpoint gets another try; -1: none does. */
static void give_up_unfinished(fl_checkpoints *c, int64_t rewritten, const char *why)
{
    int64_t now_us = fl_now_us();
    for (int i = c->n_open - 1; i >= 0; i--) {
        int64_t step = c->open[i]->step;
        if (!fl__checkpoints_is_complete(c, c->open[i], now_us)) {
            give_up_open(c, i);
            if (step != rewritten) {
                fl__checkpoints_fail_ticket(c, step, why);
            }
        }
    }
}

/* Survivors may have begun the last checkpoint although the lost worker has not reported the last
 * steps. They write it again. */
void fl_checkpoints_interrupt(fl_checkpoints *c, const char *why)
{
    if (!fl__run_is_ending(c->run)) {
        give_up_unfinished(c, c->run->stats->n_steps, why);
        c->since = fl_elastic_next_generation(c->elastic);
    }
    c->again = c->again || c->asked;
    c->asked = false;
}

/* Whether the checkpoint after this step needs nothing more from any worker. */
static bool has_all_parts(const fl_checkpoints *c, int64_t step)
{
    bool has_all = fl__checkpoints_has(c, step) || (c->settled != NULL && c->settled->step == step);
    for (int i = 0; i < c->n_open; i++) {
        has_all = has_all || (c->open[i]->step == step &&
                              fl__checkpoints_is_complete(c, c->open[i], fl_now_us()));
    }
    return has_all;
}

bool fl_checkpoints_regroup(fl_checkpoints *c, int64_t step, const char *why)
{
    bool saved = has_all_parts(c, step);
    give_up_unfinished(c, fl__run_is_ending(c->run) ? step : -1, why);
    if (saved && c->n_open > 1 && !c->committing) {
        fl__checkpoints_settle(c); /* the one before is complete, and has its own capture */
    }
    if (saved && c->n_open > 0 && c->open[0]->step == step && !is_captured(c, step)) {
        fl__checkpoints_capture_now(c); /* before the plan changes */
    }
    c->since = fl_elastic_next_generation(c->elastic);
    c->dropped_step = -1; /* they may write it again */
    return saved;
}

bool fl__checkpoints_wants_last(const fl_checkpoints *c)
{
    const fl_interval *every = &c->schedule.every;
    return c->store != NULL && (every->ms > 0 || every->steps > 0 || every->epochs > 0);
}

bool fl_checkpoints_has_last(const fl_checkpoints *c, int64_t step)
{
    return !fl__checkpoints_wants_last(c) || has_all_parts(c, step);
}

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
void fl__checkpoints_watch_deadline(fl_checkpoints *c, int64_t now_us)
{
    char why[128];
    bool ahead = c->asked && c->n_open == 0 && c->run->stats->steps < c->target;
    c->moved_us = ahead ? now_us : c->moved_us;
    if ((!c->asked && c->n_open == 0) ||
        now_us - c->moved_us <= c->run->options->job->fault.deadline_ms * 1000) {
        return;
    }
    if (c->n_open > 0) {
        fl__checkpoints_fail_open(c, name_awaited(c, now_us, why, sizeof why));
    } else {
        c->dropped_serial = c->serial;
        fl__checkpoints_fail_ticket(c, c->target, name_awaited(c, now_us, why, sizeof why));
    }
}
