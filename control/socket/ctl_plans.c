/* Commands that ask the planner. */
#include "control/events/fields.h"
#include "control/socket/ctl.h"
#include "device/machine/survey.h"

#include <math.h>

enum { CANDIDATES = 16 };

static void candidate_fields(fl_json *j, const fl_candidate *c, double ratio)
{
    fl_json_object(j, NULL);
    fl_fields_candidate(j, c, ratio);
    fl_json_bool(j, "fits", c->why_not == FL_OK);
    fl_json_close(j, '}');
}

/* Additional devices are assumed to have processors of their own; additional workers of GPUs share
 * these. */
static fl_plan_input input_of(const fl_ctl *ctl, const fl_ctl_call *call, fl_job *job)
{
    const fl_ctl_value *devices = &call->request.value[0], *frozen = &call->request.value[1];
    fl_plan_input input = *ctl->run->options->plan_input;
    *job = *ctl->run->options->job;
    input.job = job;
    input.F = frozen->given ? (int)frozen->integer : ctl->run->plan->F;
    input.n_workers = devices->given ? (int)devices->integer : fl_plan_members(ctl->run->plan);
    fl_worker_pool_loosen(job, input.n_workers);
    int more = input.n_workers - ctl->run->n_workers;
    const fl_device_survey *shared = ctl->run->options->devices;
    bool own = shared == NULL || shared->n == 0 || ctl->run->hosts != NULL;
    if (own && input.n_processors > 0 && more > 0) {
        input.n_processors += more * (int)ctl->run->options->job->devices.cores;
    }
    return input;
}

static void plan_fields(const fl_ctl *ctl, fl_json *j, const fl_plan_input *input,
                        const fl_plan *plan, const fl_candidate *candidates, int n)
{
    /* Predictions are corrected by the measured times of the running plan. */
    double now_ms = fl_measure_step_ms(ctl->elastic),
           predicted_ms = fl_measure_predict_ms(ctl->elastic, ctl->run->plan);
    double raw_ms = plan->predicted_step_us * 1e-3;
    double ratio = fl_measure_ratio(ctl->elastic);
    now_ms = now_ms > 0.0 ? now_ms : predicted_ms;
    fl_json_integer(j, "devices", input->n_workers);
    fl_fields_plan(j, plan);
    fl_json_rounded(j, "step_ms", raw_ms * ratio, 3);
    fl_json_rounded(j, "now_step_ms", now_ms, 3);
    fl_json_rounded(j, "speedup", now_ms / (raw_ms * ratio), 3);
    fl_json_array(j, "candidates");
    for (int i = 0; i < n; i++) {
        candidate_fields(j, &candidates[i], ratio);
    }
    fl_json_close(j, ']');
}

void fl_ctl_plan(fl_ctl *ctl, fl_ctl_call *call)
{
    fl_candidate candidates[CANDIDATES];
    fl_plan plan;
    fl_job job;
    int n = 0;
    if (ctl->run->options->plan_input == NULL) {
        fl_ctl_refuse(call, FL_CTL_NOT_AVAILABLE, "nothing is known of this run's model");
        return;
    }
    fl_plan_input input = input_of(ctl, call, &job);
    int blocks = fl_model_n_blocks(input.model);
    if (input.F > blocks) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "frozen: allowed: 0 to %d", blocks);
    } else if (fl_plan_choose(&input, &plan, candidates, CANDIDATES, &n) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        plan_fields(ctl, call->result, &input, &plan, candidates, n);
    }
}
