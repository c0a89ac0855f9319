/* Opening, closing, a turn of the loop, and the end. */
#include "control/checkpoint/parts.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 100 };

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

/* One that goes back to a snapshot in memory has older checkpoints, or none. */
static fl_status open_returned(fl_checkpoints *c, const fl_checkpoint *snapshot)
{
    char path[PATH_MAX], name[FL_CHECKPOINT_NAME_MAX];
    int64_t step = fl_checkpoint_newest(c->store->dir_fd);
    c->last_step = snapshot->step;
    c->n_skipped = snapshot->worker.n_skipped;
    if (step < 0) {
        return FL_OK;
    }
    snprintf(path, sizeof path, "%s/" FL_CHECKPOINT_FOLDER "/%s", c->run->options->run_dir,
             fl_checkpoint_folder_name(step, name));
    FL_TRY(fl_alloc(sizeof *c->newest, (void **)&c->newest));
    fl_status status = fl_checkpoint_read(path, c->newest);
    if (status != FL_OK) {
        fl__checkpoints_free_one(&c->newest);
        return status;
    }
    c->sums = (fl_checkpoint_sums){
        .any = true, .last_step = step, .best_step = fl_checkpoint_best(c->store->dir_fd)};
    fl_checkpoint_announce(c->store, c->newest);
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
    if (c->store == NULL || o->resume == NULL) {
        return FL_OK;
    }
    return o->returns ? open_returned(c, o->resume) : open_resumed(c, o->resume);
}

void fl_checkpoints_close(fl_checkpoints *c)
{
    if (c->commit != NULL) {
        fl_commit_end(c->commit);
        fl__checkpoints_free_one(&c->commit->checkpoint);
        fl_free(c->commit);
        c->commit = NULL;
    }
    while (c->n_open > 0) {
        fl__checkpoints_drop_open(c, 0);
    }
    fl_free(c->settled);
    c->settled = NULL;
    fl__checkpoints_free_one(&c->captured);
    fl__checkpoints_free_one(&c->newest);
}

/* ---- while the run lasts ---- */

void fl_checkpoints_forgive(fl_checkpoints *c, int64_t gap_us, int64_t now_us)
{
    c->moved_us = c->moved_us + gap_us < now_us ? c->moved_us + gap_us : now_us;
}

int64_t fl_checkpoints_awaited(const fl_checkpoints *c, bool paused)
{
    return c->asked && !paused && c->run->stats->steps < c->target ? c->target : 0;
}

void fl_checkpoints_watch(fl_checkpoints *c, bool paused, int64_t now_us)
{
    if (c->store == NULL) {
        return;
    }
    fl__checkpoints_follow_commit(c);
    if (c->committing) {
        if (!fl_commit_is_done(c->commit)) {
            return;
        }
        fl__checkpoints_finish_commit(c);
    }
    if (c->n_open > 0 && fl__checkpoints_is_complete(c, c->open[0], now_us)) {
        fl__checkpoints_settle(c);
    } else if (c->n_open > 0 || c->asked) {
        fl__checkpoints_watch_deadline(c, now_us);
    } else if (c->run->phase->state == FL_CONTROLLER_RUNNING) {
        fl__checkpoints_look_at_schedule(c, paused, now_us);
    }
}

/* ---- the end ---- */

static const char second_signal[] = "a second signal ended the run before it was written";

/* Wait for the commit. A disk that does not return keeps neither the run nor the user. */
static bool await_commit(fl_checkpoints *c)
{
    int64_t deadline_us = fl_deadline_us(c->run->options->job->fault.deadline_ms);
    bool ended = fl_commit_wait(c->commit, 0);
    while (!ended && fl_left_ms(deadline_us) > 0 && !c->hurried(c->context)) {
        ended = fl_commit_wait(c->commit, LOOK_MS);
    }
    return ended;
}

/* Their folders are removed with those that are no checkpoints (fl_checkpoint_tidy). */
static void drop_unwritten(fl_checkpoints *c, int64_t step, const char *why)
{
    while (c->n_open > 0) {
        fl__checkpoints_drop_open(c, 0);
    }
    fl__checkpoints_fail_ticket(c, step, why);
}

static void abandon_commit(fl_checkpoints *c)
{
    int64_t step = c->commit->step;
    bool is_checkpoint = c->settled != NULL || c->n_open > 0; /* else it removes a folder */
    bool hurried = c->hurried(c->context);
    fl_commit_abandon(c->commit);
    c->commit = NULL; /* the thread's */
    c->committing = false;
    fl_free(c->settled);
    c->settled = NULL;
    if (is_checkpoint) {
        drop_unwritten(c, step,
                       hurried ? second_signal
                               : "the disk has not taken it until the run had to end");
    }
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
        fl__checkpoints_prepare_commit(c, now->step, now);
        c->commit->renews = true;
        status = fl_commit_start(c->commit);
    }
    if (status != FL_OK) {
        c->commit->checkpoint = NULL;
        fl__checkpoints_free_one(&now);
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

/* The signal came before any worker had reported a part of the last checkpoint. */
static bool lacks_the_last(const fl_checkpoints *c)
{
    int64_t newest = c->newest == NULL ? 0 : c->newest->step;
    return fl__checkpoints_wants_last(c) && c->hurried(c->context) && c->run->stats->steps > newest;
}

void fl_checkpoints_finish(fl_checkpoints *c)
{
    int64_t n_failed = c->sums.n_failed;
    if (c->store == NULL) {
        return;
    }
    while (c->committing || c->n_open > 0) {
        if (c->committing && !await_commit(c)) {
            abandon_commit(c);
            return;
        }
        if (c->committing) {
            fl__checkpoints_finish_commit(c);
        } else if (c->hurried(c->context)) {
            drop_unwritten(c, c->open[0]->step, second_signal);
        } else if (fl__checkpoints_is_complete(c, c->open[0], INT64_MAX)) {
            fl__checkpoints_settle(c);
        } else {
            fl__checkpoints_fail_open(c, "the run ended before every worker had finished its part");
        }
    }
    if (c->ticket_wanted >= c->ticket) {
        fl__checkpoints_fail_ticket(c, -1, "the run ended before it could be written");
    } else if (c->sums.n_failed == n_failed && lacks_the_last(c)) {
        fl__checkpoints_fail_ticket(c, -1, second_signal);
    }
    if (lacks_the_end(c) && !c->hurried(c->context)) {
        renew_newest(c);
    }
    fl_checkpoint_tidy(c->store->dir_fd, c->newest == NULL ? -1 : c->newest->step);
    c->sums.last_step = fl_checkpoint_newest(c->store->dir_fd);
    c->sums.best_step = fl_checkpoint_best(c->store->dir_fd);
    c->sums.any = c->sums.last_step >= 0;
}
