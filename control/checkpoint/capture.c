/* The controller's part of a checkpoint (② of checkpoints.h). */
#include "control/checkpoint/checkpoints.h"

#include "autodp/sampler.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/optimizer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void write_time(char text[40])
{
    struct timespec now;
    struct tm utc;
    char day[24];
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(text, 40, "%s.%03ldZ", day, now.tv_nsec / 1000000);
}

static void capture_data(const fl_controller_options *o, fl_checkpoint_data *out)
{
    const fl_dataset *d = o->dataset;
    *out = (fl_checkpoint_data){.n_samples = o->n_samples, .n_validation = o->n_validation};
    if (d != NULL && d->ops->fingerprint != NULL) {
        out->fingerprint = d->ops->fingerprint(d->self);
    }
}

static int64_t file_length(const fl_event_log *log, fl_runfile file)
{
    off_t end = lseek(log->files.fd[file], 0, SEEK_END);
    return end < 0 ? 0 : (int64_t)end;
}

/* The lines that are in memory go to their file first, so that its length is that of the steps. */
static void capture_records(const fl_checkpoints *c, fl_checkpoint_records *out)
{
    fl_runfiles_flush(&c->log->files);
    out->steps_bytes = file_length(c->log, FL_RUNFILE_STEPS);
    out->events_bytes = file_length(c->log, FL_RUNFILE_EVENTS);
}

fl_status fl_checkpoints_capture(const fl_checkpoints *c, fl_checkpoint *out)
{
    const fl_controller_options *o = c->run->options;
    const fl_run_stats *stats = c->run->stats;
    int64_t per_epoch = stats->steps_per_epoch;
    if (o->job_text != NULL) {
        FL_TRY(fl_strdup(o->job_text, &out->job));
    }
    write_time(out->written);
    snprintf(out->frostline, sizeof out->frostline, "%s", FL_VERSION);
    out->step = stats->steps;
    out->cursor = (fl_cursor){.epoch = stats->steps / per_epoch,
                              .position = stats->steps % per_epoch * fl_sampler_batch(o->job)};
    fl_checkpoint_model_of(o->model, &out->model);
    capture_data(o, &out->data);
    out->plan = c->elastic->plan;
    out->worker = (fl_checkpoint_worker){.lr_factor = c->elastic->job->train.lr / c->base_lr,
                                         .end_step = stats->n_steps,
                                         .planned_steps = o->n_steps,
                                         .n_skipped = c->n_skipped};
    fl_controller_state_capture(c->elastic, c->log->files.start_us, fl_now_us(), &out->controller);
    capture_records(c, &out->records);
    return FL_OK;
}

/* Commands and decisions change these between two steps; the rest changes with steps and time. */
bool fl_checkpoint_has_state(const fl_checkpoint *before, const fl_checkpoint *now)
{
    const fl_controller_state *a = &before->controller, *b = &now->controller;
    return before->plan.generation == now->plan.generation && a->lr == b->lr &&
           a->alpha == b->alpha && a->m == b->m && a->last_asked == b->last_asked &&
           before->worker.end_step == now->worker.end_step &&
           memcmp(a->pinned, b->pinned, sizeof a->pinned) == 0 &&
           memcmp(a->usable.drained, b->usable.drained, sizeof a->usable.drained) == 0;
}

fl_status fl_checkpoints_check_files(const fl_checkpoints *c, const fl_checkpoint *checkpoint)
{
    const fl_controller_options *o = c->run->options;
    int n_moments = fl_optimizer_n_moments(o->job->train.optimizer);
    for (int layer = 0; layer < checkpoint->model.n_layers; layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            char name[FL_CHECKPOINT_NAME_MAX];
            int rank = fl_checkpoint_writer_rank(o->model, &checkpoint->plan,
                                                 checkpoint->controller.parked, n_moments,
                                                 (fl_checkpoint_part)part, layer);
            fl_checkpoint_file_name((fl_checkpoint_part)part, layer, name);
            if (rank >= 0 && fl_checkpoint_find(checkpoint, name) == NULL) {
                return fl_fail(FL_EFAILED, "worker %d did not write %s", rank, name);
            }
        }
    }
    return FL_OK;
}
