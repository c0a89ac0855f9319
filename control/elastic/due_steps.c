#include "control/elastic/due_steps.h"

#include "freeze/interval.h"
#include "freeze/policy.h"
#include "pipe/plan/batch/evaluation.h"

#include <math.h>

enum { LEAD_MS = 200, LEAST_LEAD = 6, MOST_LEAD = 64, UNKNOWN_LEAD = 16 };

static const double NOMINAL_FLOPS = 20e9; /* operations a second of one processor */

int64_t fl_due_lead(const fl_due_steps *due, double step_flops, int64_t n_cores)
{
    int64_t lead = UNKNOWN_LEAD;
    if (step_flops > 0.0) {
        double step_ms = step_flops / (NOMINAL_FLOPS * (double)n_cores) * 1e3;
        double steps = ceil(fmin(LEAD_MS / step_ms, MOST_LEAD));
        lead = steps > LEAST_LEAD ? (int64_t)steps : LEAST_LEAD;
    }
    int64_t interval = fl_freeze_period(due->job, due->steps_per_epoch, due->n_steps);
    bool policy = due->job->freeze.policy != FL_FREEZE_NONE;
    return policy && interval <= lead ? interval - 1 : lead;
}

int64_t fl_due_policy(const fl_due_steps *due, int64_t step)
{
    int64_t effect = step + due->lead;
    bool holds = due->recording == NULL && due->job->freeze.policy != FL_FREEZE_NONE &&
                 effect > 0 && effect < due->n_steps &&
                 fl_freeze_due(due->job, step, due->steps_per_epoch, due->n_steps);
    return holds ? effect : 0;
}

static bool is_scripted(const fl_job *job, int64_t step)
{
    for (int i = 0; i < job->elastic.n_script; i++) {
        if (job->elastic.script[i].step == step) {
            return true;
        }
    }
    return false;
}

static bool is_recorded(const fl_recording *recording, int64_t step)
{
    int i = fl_recording_find(recording, step);
    return i < recording->n && recording->of[i].step == step;
}

bool fl_due_at(const fl_due_steps *due, fl_due_kind kind, int64_t step)
{
    switch (kind) {
    case FL_DUE_SCRIPT:
        return due->recording == NULL && is_scripted(due->job, step);
    case FL_DUE_POLICY:
        return step >= due->lead && fl_due_policy(due, step - due->lead) == step;
    case FL_DUE_REPLAY:
        return due->recording != NULL && is_recorded(due->recording, step);
    case FL_DUE_STOP:
        return due->recording == NULL &&
               fl_evaluation_is_judged(due->job, step, due->steps_per_epoch, due->n_steps);
    case FL_DUE_NONE:
    case FL_DUE_KINDS:
        break;
    }
    return false;
}

int64_t fl_due_first(const fl_due_steps *due, int64_t from, int64_t to)
{
    for (int64_t step = from; step <= to; step++) {
        for (int kind = FL_DUE_NONE + 1; kind < FL_DUE_KINDS; kind++) {
            if (kind != FL_DUE_STOP && fl_due_at(due, (fl_due_kind)kind, step)) {
                return step;
            }
        }
    }
    return 0;
}
