/* Which checkpoint an interrupted run continues from: the newest that is whole, of this run and of
 * its model and data, and whose place in the run's files is there. */
#include "launcher/run/plan/resume.h"

#include "autodp/ledger.h"
#include "autodp/sampler.h"
#include "control/checkpoint/manifest/record_place.h"
#include "control/checkpoint/snapshots.h"
#include "control/state/sums/early_stop.h"
#include "device/errors/failure.h"
#include "device/machine/host_limits.h"
#include "device/system/alloc.h"
#include "device/text/shown_text.h"
#include "launcher/job/job.h"
#include "launcher/run/runs/checkpoint_folder.h"
#include "launcher/run/runs/run_again.h"
#include "nn/model.h"
#include "pipe/plan/batch/evaluation.h"
#include "pipe/state/weights/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LISTED_MAX = 12 };

/* ---- what it must agree with ---- */

/* The first layer that differs, for the message. */
static fl_status refuse_model(const fl_resume *r, const fl_checkpoint_model *here)
{
    const fl_checkpoint_model *there = &r->checkpoint->model;
    int n = here->n_layers < there->n_layers ? here->n_layers : there->n_layers, i = 0;
    while (i < n && strcmp(here->layer[i].name, there->layer[i].name) == 0 &&
           here->layer[i].n_params == there->layer[i].n_params &&
           here->layer[i].block == there->layer[i].block) {
        i++;
    }
    if (i == n) {
        return fl_resume_within(r->folder,
                                fl_fail(FL_EINVAL,
                                        "another model: %d layers, the checkpoint has %d, or the "
                                        "shapes or ties of their parameters differ",
                                        here->n_layers, there->n_layers));
    }
    return fl_resume_within(
        r->folder, fl_fail(FL_EINVAL,
                           "another model: layer %d is %s of block %d with %" PRId64
                           " parameters, the checkpoint has %s of block %d with %" PRId64,
                           i, here->layer[i].name, here->layer[i].block, here->layer[i].n_params,
                           there->layer[i].name, there->layer[i].block, there->layer[i].n_params));
}

static fl_status check_model(const fl_resume *r, const fl_preparation *p)
{
    fl_checkpoint_model *here = NULL;
    FL_TRY(fl_alloc(sizeof *here, (void **)&here));
    fl_checkpoint_model_of(p->model, here);
    fl_status status =
        here->fingerprint == r->checkpoint->model.fingerprint ? FL_OK : refuse_model(r, here);
    fl_free(here);
    return status;
}

static fl_status check_data(const fl_resume *r, const fl_preparation *p)
{
    const fl_checkpoint_data *there = &r->checkpoint->data;
    const fl_dataset *d = p->dataset;
    uint64_t here = d->ops->fingerprint == NULL ? 0 : d->ops->fingerprint(d->self);
    if (p->n_samples != there->n_samples || p->n_validation != there->n_validation) {
        return fl_resume_within(r->folder, fl_fail(FL_EINVAL,
                                                   "%" PRId64 " samples to train on and %" PRId64
                                                   " to validate on found, the run had %" PRId64
                                                   " and %" PRId64,
                                                   p->n_samples, p->n_validation, there->n_samples,
                                                   there->n_validation));
    }
    if (here != 0 && there->fingerprint != 0 && here != there->fingerprint) {
        return fl_resume_within(r->folder, fl_fail(FL_EINVAL,
                                                   "other data: their fingerprint is %016" PRIx64
                                                   ", the run trained on %016" PRIx64,
                                                   here, there->fingerprint));
    }
    return FL_OK;
}

/* To its last step, and its model was kept. A process that ended between the two, or while it began
 * to make a finished run longer, left a run that is not complete. */
static bool is_complete(const fl_resume *r, const fl_preparation *p)
{
    return r->ended == FL_RUN_FINISHED &&
           (!p->job->run.save_model ||
            faccessat(r->dir_fd, FL_MODEL_FOLDER "/" FL_MODEL_FILE, F_OK, AT_EACCESS) == 0);
}

static fl_status check_length(const fl_resume *r, const fl_preparation *p)
{
    int64_t step = r->checkpoint->step;
    if (step > p->n_steps) {
        return fl_resume_within(r->job_path,
                                fl_fail(FL_EINVAL,
                                        "train.epochs and train.max_steps give %" PRId64
                                        " steps, allowed: at least the %" PRId64 " that are done",
                                        p->n_steps, step));
    }
    if (step == p->n_steps && is_complete(r, p)) {
        return fl_resume_within(
            r->dir,
            fl_fail(FL_EINVAL,
                    "the run has finished all of its %" PRId64 " steps; --set %s makes it longer",
                    step, p->job->train.max_steps > 0 ? "train.max_steps=N" : "train.epochs=N"));
    }
    return FL_OK;
}

/* The rule of the job that the run continues with. */
static bool has_ended_early(const fl_resume *r, const fl_preparation *p, fl_stop_rule *rule)
{
    fl_metric_list metrics = fl_model_metrics(p->model);
    const fl_early_stop *stop = &r->checkpoint->controller.stats.stop;
    return fl_stop_rule_of(p->job, &metrics, p->steps_per_epoch, p->n_steps, rule) == FL_OK &&
           fl_early_stop_holds(stop, rule, r->checkpoint->step);
}

/* What was the best of one metric says nothing of another one. */
static fl_status check_improvement(fl_resume *r, const fl_preparation *p)
{
    fl_stop_rule rule;
    fl_early_stop *stop = &r->checkpoint->controller.stats.stop;
    if (strcmp(fl_stop_rule_name(p->job), fl_stop_rule_name(&r->made_by)) != 0) {
        *stop = (fl_early_stop){0};
    }
    if (!is_complete(r, p) || !has_ended_early(r, p, &rule)) {
        return FL_OK;
    }
    return fl_resume_within(
        r->dir,
        fl_fail(FL_EINVAL,
                "the run ended early, after %" PRId64 " steps: %s has not "
                "improved for %" PRId64 " steps; --set train.stop_after=none, or more than "
                "%" PRId64 " steps, makes it longer",
                r->checkpoint->step, fl_stop_rule_name(p->job),
                r->checkpoint->step - stop->best_step, r->checkpoint->step - stop->best_step));
}

/* ---- its own soundness ---- */

static fl_status within_path(const char *path, fl_status status)
{
    char shown[FL_SHOWN_PATH_BYTES];
    return fl_within(status, "%s", fl_text_shown(path, shown, sizeof shown));
}

static fl_status check_cursor(const fl_resume *r, const fl_preparation *p)
{
    const fl_checkpoint *c = r->checkpoint;
    int64_t batch = fl_sampler_batch(p->job), epoch = c->step / p->steps_per_epoch;
    int64_t position = c->step % p->steps_per_epoch * batch;
    return c->cursor.epoch == epoch && c->cursor.position == position
               ? FL_OK
               : within_path(r->folder,
                             fl_fail(FL_EFORMAT,
                                     "sample %" PRId64 " of epoch %" PRId64 " found, %" PRId64
                                     " of epoch %" PRId64 " expected after %" PRId64 " steps",
                                     c->cursor.position, c->cursor.epoch + 1, position, epoch + 1,
                                     c->step));
}

/* Before one of them is cut. */
static fl_status check_writable(const fl_resume *r)
{
    static const char *const names[] = {"steps.jsonl", "events.jsonl", FL_LEDGER_NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (faccessat(r->dir_fd, names[i], W_OK, AT_EACCESS) != 0) {
            char shown[FL_SHOWN_PATH_BYTES];
            return fl_fail(FL_EINVAL, "--resume: %s/%s: %s",
                           fl_text_shown(r->dir, shown, sizeof shown), names[i], strerror(errno));
        }
    }
    return FL_OK;
}

static fl_status check_records(fl_resume *r, const fl_preparation *p)
{
    char path[PATH_MAX + 16];
    const fl_checkpoint *c = r->checkpoint;
    fl_runfiles_place place = fl_checkpoint_place(c);
    fl_ledger_place ledger = {.n_samples = p->n_samples,
                              .seed = p->job->train.seed,
                              .batch = fl_sampler_batch(p->job),
                              .step = c->step};
    FL_TRY(check_writable(r));
    snprintf(path, sizeof path, "%s/" FL_LEDGER_NAME, r->dir);
    fl_status status = fl_runfiles_check_place(r->dir_fd, &place, &r->cut);
    if (status != FL_OK) {
        char shown[FL_SHOWN_PATH_BYTES];
        return fl_fail(status, "%s/%s", fl_text_shown(r->dir, shown, sizeof shown), fl_errmsg());
    }
    return fl_ledger_check_place(path, &ledger);
}

static fl_status read_made_by(fl_resume *r)
{
    const char *text = r->checkpoint->job;
    if (text == NULL || text[0] == '\0') {
        r->made_by = r->before;
        return FL_OK;
    }
    return fl_job_parse(r->folder, text, strlen(text), NULL, 0, &r->made_by);
}

static fl_status check_checkpoint(fl_resume *r, const fl_preparation *p,
                                  const fl_checkpoint_folder *folder)
{
    fl_checkpoint *c = r->checkpoint;
    fl_checkpoint_fini(c);
    snprintf(r->folder, sizeof r->folder, "%s/%s", r->checkpoints, folder->name);
    FL_TRY(fl_checkpoint_read(r->folder, c));
    if (c->step != folder->step) {
        return within_path(
            r->folder, fl_fail(FL_EFORMAT,
                               "the manifest is of a checkpoint after %" PRId64 " steps", c->step));
    }
    FL_TRY(check_model(r, p));
    FL_TRY(check_data(r, p));
    FL_TRY(check_length(r, p));
    FL_TRY(read_made_by(r));
    FL_TRY(fl_job_check_resume(&r->made_by, p->job, r->job_path)); /* it may have been edited */
    FL_TRY(check_improvement(r, p));
    FL_TRY(check_cursor(r, p));
    FL_TRY(check_records(r, p));
    return fl_checkpoint_verify(c, r->folder, fl_host_limits_processors());
}

/* ---- the choice ---- */

/* Whether an older checkpoint may be better. */
static bool is_of_this_one(fl_status status)
{
    return status == FL_EFORMAT || status == FL_EIO || status == FL_ENOTSUP;
}

static fl_status add_refused(fl_resume *r, int64_t step)
{
    void *refused = r->refused;
    fl_refused_checkpoint *to;
    char why[FL_RESUME_WHY_MAX];
    snprintf(why, sizeof why, "%s", fl_errmsg());
    FL_TRY(
        fl_alloc_room(&refused, (size_t)r->n_refused, 1, sizeof *r->refused, &r->refused_capacity));
    r->refused = refused;
    to = &r->refused[r->n_refused++];
    to->step = step;
    memcpy(to->why, why, sizeof why);
    return FL_OK;
}

static fl_status found_none(const fl_resume *r)
{
    char target[PATH_MAX], again[FL_RUN_AGAIN_TEXT], folder[FL_SHOWN_PATH_BYTES];
    bool is_program = r->before.model.kind == FL_MODEL_PROGRAM;
    fl_checkpoint_folder_missing(r->dir, target);
    fl_text_shown(r->checkpoints, folder, sizeof folder);
    if (target[0] != '\0') {
        char shown[FL_SHOWN_PATH_BYTES];
        return fl_resume_within(
            r->dir, fl_fail(FL_EINVAL,
                            "found no checkpoint in %s: it is a link to %s, which is not "
                            "there; if that folder was moved to DIR/NAME, with the name of the run "
                            "directory, --set checkpoint.dir=DIR names it",
                            folder, fl_text_shown(target, shown, sizeof shown)));
    }
    return fl_resume_within(r->dir,
                            fl_fail(FL_EINVAL, "found no checkpoint in %s: %s", folder,
                                    fl_run_again_text(r->dir, r->job_text, is_program, again)));
}

static fl_status none_is_good(const fl_resume *r)
{
    char text[3072] = "";
    size_t n = 0;
    for (int i = 0; i < r->n_refused && n < sizeof text; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "\n  after %" PRId64 " steps: %s",
                              r->refused[i].step, r->refused[i].why);
    }
    return r->n_refused == 0
               ? found_none(r)
               : fl_resume_within(r->dir, fl_fail(FL_EINVAL, "no checkpoint can be used:%s", text));
}

static fl_status not_there(const fl_resume *r, const fl_checkpoint_folder *all, int n,
                           int64_t wanted)
{
    char list[LISTED_MAX * 24] = "", shown[FL_SHOWN_PATH_BYTES];
    size_t used = 0;
    int listed = 0;
    for (int i = 0; i < n && listed < LISTED_MAX; i++) {
        if (all[i].whole) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRId64,
                                     listed++ == 0 ? "" : ", ", all[i].step);
        }
    }
    return fl_fail(FL_EINVAL,
                   "--checkpoint %" PRId64 ": %s has no checkpoint after that many steps; found: "
                   "%s",
                   wanted, fl_text_shown(r->dir, shown, sizeof shown), listed == 0 ? "none" : list);
}

static bool is_wanted(const fl_checkpoint_folder *folder, int64_t wanted)
{
    return folder->whole && (wanted < 0 || folder->step == wanted);
}

static fl_status choose_folder(fl_resume *r, const fl_preparation *p,
                               const fl_checkpoint_folder *all, int n, int64_t wanted)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (!is_wanted(&all[i], wanted)) {
            continue;
        }
        any = true;
        fl_status status = check_checkpoint(r, p, &all[i]);
        if (!is_of_this_one(status)) {
            return status;
        }
        FL_TRY(add_refused(r, all[i].step));
    }
    return wanted >= 0 && !any ? not_there(r, all, n, wanted) : none_is_good(r);
}

/* After an evaluation that ends a run, its test samples are evaluated, all of them. */
static bool lacks_test(const fl_resume *r, const fl_preparation *p)
{
    const fl_dataset *d = p->dataset;
    return !fl_run_stats_is_tested(&r->checkpoint->controller.stats,
                                   d->ops->count(d->self, FL_TEST) - p->n_validation);
}

/* A checkpoint is written before the evaluation that follows its last step. */
static bool lacks_evaluation(const fl_resume *r, const fl_preparation *p, int64_t end_step)
{
    const fl_run_stats *stats = &r->checkpoint->controller.stats;
    int64_t step = r->checkpoint->step;
    int64_t period = fl_evaluation_period(p->job, p->steps_per_epoch, p->n_steps);
    bool done = stats->any_eval && stats->last_eval.step + 1 >= step;
    bool ends = done && end_step == step && end_step < p->n_steps;
    done = done && !(ends && lacks_test(r, p));
    return p->job->train.evaluate && step > 0 && !done &&
           fl_evaluation_is_due(step, period, end_step);
}

static fl_status take_checkpoint(fl_resume *r, const fl_preparation *p)
{
    const fl_checkpoint *c = r->checkpoint;
    r->folder_fd = r->returns ? -1 : open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->folder_fd < 0 && !r->returns) {
        return fl_resume_within(r->folder, fl_fail(FL_EIO, "%s", strerror(errno)));
    }
    fl_stop_rule rule;
    int64_t end_step =
        has_ended_early(r, p, &rule) ? c->step : fl_checkpoint_end_step(c, p->n_steps);
    r->start = (fl_worker_birth){.step = c->step,
                                 .cursor = c->cursor,
                                 .lr_factor = c->worker.lr_factor,
                                 .end_step = end_step,
                                 .evaluates = lacks_evaluation(r, p, end_step),
                                 .n_skipped = c->worker.n_skipped};
    r->origin = (fl_resume_origin){.checkpoint = r->folder,
                                   .why = r->why,
                                   .step = c->step,
                                   .n_repeated = r->why == NULL ? 0 : r->lost_at - c->step,
                                   .n_cut_steps = r->cut.n_steps,
                                   .n_cut_events = r->cut.n_events,
                                   .ended = fl_run_state_text(r->ended),
                                   .plan_why = r->plan_why,
                                   .n_refused = r->n_refused,
                                   .refused = r->refused,
                                   .n_changed = r->n_changed,
                                   .changed = r->changed};
    return FL_OK;
}

/* A field that a command changed while the run trained keeps that value, unless the job that the
 * run continues with has another one than the job that wrote the checkpoint. */
static void take_job(fl_resume *r, const fl_job *now)
{
    fl_controller_state *state = &r->checkpoint->controller;
    const fl_job *then = &r->made_by;
    if (now->train.lr != then->train.lr) {
        r->start.lr_factor = 1.0;
        state->lr = now->train.lr;
    }
    if (now->freeze.alpha != then->freeze.alpha) {
        state->alpha = now->freeze.alpha;
    }
    if (now->pipe.m != then->pipe.m) {
        state->m = now->pipe.m;
    }
}

/* The snapshot has the run's own state, so only its place in the run's files is checked. */
static fl_status take_snapshot(fl_resume *r, const fl_preparation *p)
{
    fl_checkpoint *c = r->checkpoint;
    *c = *r->kept->checkpoint;
    c->job = NULL;
    r->made_by = r->before;
    r->returns = true;
    snprintf(r->folder, sizeof r->folder, "the snapshot in memory");
    return check_records(r, p);
}

/* The run's files end before the snapshot, as after a full disk: an older checkpoint may do. */
static fl_status choose_instead(fl_resume *r, const fl_preparation *p,
                                const fl_checkpoint_folder *all, int n, fl_status status)
{
    fl_failure first;
    fl_failure_keep(&first, status);
    r->returns = false;
    FL_TRY(add_refused(r, r->kept->checkpoint->step));
    return choose_folder(r, p, all, n, r->wanted) == FL_OK ? FL_OK : fl_failure_raise(&first);
}

static bool is_newest(const fl_resume *r, const fl_checkpoint_folder *all, int n)
{
    bool newer = r->kept != NULL && r->kept->checkpoint != NULL;
    for (int i = 0; i < n; i++) {
        newer = newer && (!all[i].whole || all[i].step <= r->kept->checkpoint->step);
    }
    return newer;
}

/* The files begin again, too; how much of them that drops is for the event. */
static fl_status take_start(fl_resume *r)
{
    const fl_runfiles_place start = {.step = 0};
    snprintf(r->folder, sizeof r->folder, FL_RESUME_START);
    FL_TRY(check_writable(r));
    FL_TRY(fl_runfiles_check_place(r->dir_fd, &start, &r->cut));
    r->origin = (fl_resume_origin){.checkpoint = r->folder,
                                   .why = r->why,
                                   .n_repeated = r->lost_at,
                                   .n_cut_steps = r->cut.n_steps,
                                   .n_cut_events = r->cut.n_events,
                                   .ended = fl_run_state_text(r->ended)};
    return FL_OK;
}

fl_status fl_resume_choose(fl_resume *r, const fl_preparation *p)
{
    if (r->begins_again) {
        return take_start(r);
    }
    fl_checkpoint_folder *all = NULL;
    int n = 0;
    fl_status status = fl_checkpoint_folder_find(&r->before, p->job, r->dir, r->checkpoints);
    if (status == FL_OK) {
        status = fl_checkpoint_list(r->checkpoints, &all, &n);
    }
    if (status != FL_OK) {
        return fl_fail(status, "--resume: %s", fl_errmsg());
    }
    bool any = r->kept != NULL && r->kept->checkpoint != NULL, newest = any && is_newest(r, all, n);
    status = newest ? take_snapshot(r, p) : choose_folder(r, p, all, n, r->wanted);
    if (status != FL_OK && newest && n > 0) {
        status = choose_instead(r, p, all, n, status);
    } else if (status != FL_OK && !newest && any) {
        status = take_snapshot(r, p);
    }
    fl_free(all);
    if (status == FL_OK) {
        status = take_checkpoint(r, p);
    }
    if (status == FL_OK) {
        take_job(r, p->job);
    }
    return status;
}
