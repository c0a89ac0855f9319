/* Checks of a job against the model, the devices and the length of its run. */
#include "freeze/interval.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/schema.h"

#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "freeze/policy.h"
#include "pipe/plan/batch/evaluation.h"

#include <inttypes.h>

static fl_status check_entry(int entry, int f, int n_blocks)
{
    return f <= n_blocks ? FL_OK
                         : fl_fail(FL_EINVAL,
                                   "entry %d, f: found %d, allowed: at most %d, the model's blocks",
                                   entry, f, n_blocks);
}

static fl_status check_script(const fl_job *job, int n_blocks)
{
    for (int i = 0; i < job->elastic.n_script; i++) {
        if (check_entry(i + 1, job->elastic.script[i].f, n_blocks) != FL_OK) {
            return fl_job_refuse_entry(job, i, NULL);
        }
    }
    return FL_OK;
}

static fl_status check_list(const fl_job *job, int n_blocks)
{
    int64_t most = n_blocks - job->freeze.keep;
    for (int i = 0; i < job->freeze.n_list; i++) {
        if (job->freeze.list[i] > most) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS("freeze.list", "freeze.keep"),
                                 "entry %d: found %d, allowed: at most %" PRId64
                                 ", the model's %d blocks less freeze.keep %" PRId64,
                                 i + 1, job->freeze.list[i], most, n_blocks, job->freeze.keep);
        }
    }
    return FL_OK;
}

static fl_status check_freeze(const fl_job *job, int n_blocks)
{
    char policy[FL_FIELD_VALUE_MAX];
    if (job->freeze.policy == FL_FREEZE_NONE) {
        return FL_OK; /* other fields of freeze have no effect without a policy */
    }
    fl_field_format(fl_schema_field(fl_schema_find("freeze.policy")), job, policy);
    if (n_blocks == 1) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("freeze.policy"),
                             "found %s, allowed: none, for a model of 1 block", policy);
    }
    if (job->freeze.keep >= n_blocks) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("freeze.keep", "freeze.policy"),
                             "found %" PRId64 ", allowed: at most %d of the model's %d "
                             "blocks with freeze.policy %s, which otherwise could freeze none",
                             job->freeze.keep, n_blocks - 1, n_blocks, policy);
    }
    return check_list(job, n_blocks);
}

fl_status fl_job_check_model(const fl_job *job, int n_blocks)
{
    FL_TRY(check_script(job, n_blocks));
    return check_freeze(job, n_blocks);
}

fl_status fl_job_check_devices(const fl_job *job, int n_devices)
{
    if (job->cache.stores > n_devices) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("cache.stores"),
                             "found %" PRId64 ", allowed: at most %d, one for each device",
                             job->cache.stores, n_devices);
    }
    return FL_OK;
}

/* The default is longer than any run of less than an epoch, and harmless there. */
static void warn_of_evaluation(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps)
{
    const fl_period *every = &job->train.evaluate_every;
    bool is_default = every->steps < 0 && every->share <= 0 && every->epochs == 1.0;
    int64_t period = fl_evaluation_period(job, steps_per_epoch, n_steps);
    char place[FL_PLACE_MAX], found[FL_FIELD_VALUE_MAX];
    if (is_default || period == 0 || (job->train.evaluate && period <= n_steps)) {
        return;
    }
    fl_job_place(job, "train.evaluate_every", place);
    fl_field_format(fl_schema_field(fl_schema_find("train.evaluate_every")), job, found);
    if (!job->train.evaluate) {
        fl_log(FL_LOG_WARN, "%strain.evaluate_every: %s has no effect with train.evaluate false",
               place, found);
    } else {
        fl_log(FL_LOG_WARN,
               "%strain.evaluate_every: %s is longer than the run of %" PRId64
               " steps: the run evaluates only at its end",
               place, found, n_steps);
    }
}

/* Warn if no evaluation can end the run. */
static void warn_of_stop(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps)
{
    int64_t patience = fl_evaluation_patience(job, steps_per_epoch, n_steps);
    int64_t period = fl_evaluation_period(job, steps_per_epoch, n_steps);
    char place[FL_PLACE_MAX], found[FL_FIELD_VALUE_MAX];
    if (patience == 0 || patience + period < n_steps) {
        return;
    }
    fl_field_format(fl_schema_field(fl_schema_find("train.stop_after")), job, found);
    fl_log(FL_LOG_WARN,
           "%strain.stop_after: %s after the first evaluation, after %" PRId64
           " steps, is not before the end of the run after %" PRId64 ": nothing will end it early",
           fl_job_place(job, "train.stop_after", place), found, period, n_steps);
}

void fl_job_warn_length(const fl_job *job, int64_t steps_per_epoch, int64_t n_steps)
{
    int last = (int)job->elastic.n_script - 1;
    char place[FL_PLACE_MAX];
    warn_of_evaluation(job, steps_per_epoch, n_steps);
    warn_of_stop(job, steps_per_epoch, n_steps);
    if (job->freeze.policy != FL_FREEZE_NONE &&
        fl_freeze_interval(job, n_steps - 1, steps_per_epoch, n_steps) == 0) {
        fl_log(FL_LOG_WARN,
               "%sfreeze.start: comes after the last of %" PRId64 " steps: nothing will freeze",
               fl_job_place(job, "freeze.start", place), n_steps);
    }
    if (last >= 0 && job->elastic.script[last].step >= n_steps) {
        fl_log(FL_LOG_WARN,
               "%selastic.script: entry %d: step %" PRId64 " is not one of the run's %" PRId64,
               fl_job_entry_place(job, last, place), last + 1, job->elastic.script[last].step,
               n_steps);
    }
    if (job->trace.steps > 0 && job->trace.start >= n_steps) {
        fl_log(FL_LOG_WARN,
               "%strace.start: step %" PRId64 " is not one of the run's %" PRId64
               ": nothing will be traced",
               fl_job_place(job, "trace.start", place), job->trace.start, n_steps);
    }
}
