/* What changes the plan, or what the next plans may be: scale, freeze, thaw, pin, unpin, drain, and
 * M. Each asks elastic.c for a transition and is answered when that has ended, well or not. */
#include "control/socket/ctl.h"

#include "device/plural.h"

#include <stdio.h>
#include <string.h>

/* ---- asking ---- */

static bool has_model(const fl_controller *controller, fl_ctl_call *call)
{
    if (controller->options->plan_input == NULL) {
        fl_ctl_refuse(call, FL_CTL_NOT_AVAILABLE, "nothing is known of this run's model");
        return false;
    }
    return true;
}

static int blocks_of(const fl_controller *controller)
{
    return fl_model_n_blocks(controller->options->plan_input->model);
}

static bool same_plan(const fl_plan *a, const fl_plan *b)
{
    return a->F == b->F && a->K == b->K && a->R == b->R && a->M == b->M &&
           memcmp(a->first, b->first, (size_t)(a->K + 1) * sizeof *a->first) == 0 &&
           memcmp(a->rank_of, b->rank_of, (size_t)(a->K * a->R) * sizeof *a->rank_of) == 0 &&
           memcmp(a->departed, b->departed, sizeof a->departed) == 0;
}

static void plan_fields(fl_json *j, const fl_plan *plan, bool changed, int64_t step)
{
    fl_json_integer(j, "step", step);
    fl_json_bool(j, "changed", changed);
    fl_json_integer(j, "generation", plan->generation);
    fl_json_integer(j, "f", plan->F);
    fl_json_integer(j, "k", plan->K);
    fl_json_integer(j, "r", plan->R);
    fl_json_integer(j, "m", plan->M);
}

static void ask(fl_controller *controller, fl_ctl_call *call, const fl_plan *plan, const char *why)
{
    fl_plan placed = *plan;
    fl_decide_place(controller, &placed);
    fl_worker_pool_members(&controller->usable, &placed);
    if (controller->elastic.state != FL_ELASTIC_IDLE) {
        call->wait = FL_CTL_WAIT_IDLE;
    } else if (same_plan(&placed, &controller->plan)) {
        plan_fields(call->result, &controller->plan, false, controller->stats.steps);
    } else if (fl_elastic_ask(controller, plan, 0, why) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        call->wait = FL_CTL_WAIT_PLAN;
        call->generation = controller->elastic.next.generation;
    }
}

static void pin_fields(const fl_controller *controller, fl_json *j, int64_t step)
{
    fl_json_integer(j, "step", step);
    fl_json_array(j, "pinned");
    for (int i = 0; i < blocks_of(controller); i++) {
        if (controller->pinned[i]) {
            fl_json_integer(j, NULL, i + 1);
        }
    }
    fl_json_close(j, ']');
}

void fl_ctl_plan_result(const fl_controller *controller, fl_ctl_call *call)
{
    int64_t step = controller->elastic.outcome.step;
    if (call->request.command->run == fl_ctl_pin) {
        pin_fields(controller, call->result, step);
    } else {
        plan_fields(call->result, &controller->plan, true, step);
    }
}

/* ---- scale ---- */

enum { DEVICES, STAGES, REPLICAS, MICRO_BATCHES }; /* scale's arguments */

/* " 0, 3" */
static void list_left(const fl_controller *controller, char *text, size_t size_bytes)
{
    int n = 0, at = 0;
    text[0] = 0;
    for (int i = 0; i < controller->n_workers && at < (int)size_bytes; i++) {
        if (controller->plan.departed[i]) {
            at += snprintf(text + at, size_bytes - (size_t)at, "%s %d", n == 0 ? "" : ",", i);
            n++;
        }
    }
}

static void refuse_more(const fl_controller *controller, fl_ctl_call *call, int64_t wanted, int n)
{
    char left[64], devices[FL_COUNT_BYTES], workers[FL_COUNT_BYTES];
    int n_left = controller->n_workers - fl_plan_members(&controller->plan);
    list_left(controller, left, sizeof left);
    fl_ctl_refuse(call, FL_CTL_REFUSED,
                  "found %s, allowed: at most the %s that can take work; a run starts with "
                  "devices.count of them%s%s%s%s",
                  fl_count(wanted, "device", devices), fl_count(n, "worker", workers),
                  n_left == 0 ? "" : "; worker", n_left > 1 ? "s" : "", left,
                  n_left == 0   ? ""
                  : n_left == 1 ? " has left"
                                : " have left");
}

static bool check_scale(const fl_controller *controller, fl_ctl_call *call,
                        const fl_worker_pool *usable)
{
    const fl_ctl_value *v = call->request.value;
    int64_t wanted =
        v[DEVICES].given ? v[DEVICES].integer : v[STAGES].integer * v[REPLICAS].integer;
    int n = fl_worker_pool_count(usable, controller->n_workers);
    if (!v[DEVICES].given && !(v[STAGES].given && v[REPLICAS].given)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "devices, or k and r, must be given");
    } else if (v[DEVICES].given && (v[STAGES].given || v[REPLICAS].given)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "devices, or k and r, but not both");
    } else if (wanted > n) {
        refuse_more(controller, call, wanted, n);
    }
    return call->error == FL_CTL_OK;
}

static void choose_scale(fl_controller *controller, fl_ctl_call *call, fl_worker_pool *usable)
{
    const fl_ctl_value *v = call->request.value;
    fl_job job = controller->job;
    fl_plan_input input = *controller->options->plan_input;
    fl_plan plan;
    usable->limit = v[DEVICES].given ? (int)v[DEVICES].integer : 0;
    if (v[DEVICES].given) {
        fl_ctl_loosen(&job, v[DEVICES].integer);
    }
    if (v[STAGES].given) {
        job.pipe.k = v[STAGES].integer;
        job.autodp.r = v[REPLICAS].integer;
    }
    job.pipe.m = v[MICRO_BATCHES].given ? v[MICRO_BATCHES].integer : job.pipe.m;
    input.job = &job;
    input.F = controller->plan.F;
    if (fl_worker_pool_choose(usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
        return;
    }
    ask(controller, call, &plan, "ctl scale");
    if (call->error == FL_CTL_OK && call->wait != FL_CTL_WAIT_IDLE) {
        call->limit_before = controller->usable.limit;
        controller->usable.limit = usable->limit; /* later plans stay within it */
    }
}

void fl_ctl_scale(fl_controller *controller, fl_ctl_call *call)
{
    fl_worker_pool usable = controller->usable;
    usable.limit = 0;
    if (has_model(controller, call) && check_scale(controller, call, &usable)) {
        choose_scale(controller, call, &usable);
    }
}

/* ---- drain ---- */

void fl_ctl_drain(fl_controller *controller, fl_ctl_call *call)
{
    int64_t rank = call->request.value[0].integer;
    fl_worker_pool usable = controller->usable;
    fl_plan_input input;
    fl_job job = controller->job;
    fl_plan plan;
    char why[64];
    if (!has_model(controller, call)) {
        return;
    }
    if (rank >= controller->n_workers) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "worker: the run has workers 0 to %d",
                      controller->n_workers - 1);
        return;
    }
    usable.drained[rank] = true;
    int n = fl_worker_pool_count(&usable, controller->n_workers);
    fl_ctl_loosen(&job, n);
    input = *controller->options->plan_input;
    input.job = &job;
    input.F = controller->plan.F;
    if (n == 0) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "worker %lld is the last that can take work",
                      (long long)rank);
        return;
    }
    plan = controller->plan;
    if (!fl_worker_pool_covers(&usable, &plan) &&
        fl_worker_pool_choose(&usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
        return;
    }
    snprintf(why, sizeof why, "ctl drain of worker %lld", (long long)rank);
    bool before = controller->usable.drained[rank];
    controller->usable.drained[rank] = true;
    ask(controller, call, &plan, why);
    if (call->error != FL_CTL_OK || call->wait == FL_CTL_WAIT_IDLE) {
        controller->usable.drained[rank] = before;
    }
}

/* A drain, a scale or a pin that did not come about leaves everything as it was. */
void fl_ctl_plan_failed(fl_controller *controller, const fl_ctl_call *call)
{
    if (call->request.command->run == fl_ctl_drain) {
        controller->usable.drained[call->request.value[0].integer] = false;
    } else if (call->request.command->run == fl_ctl_scale) {
        controller->usable.limit = call->limit_before;
    } else if (call->request.command->run == fl_ctl_pin) {
        controller->pinned[call->request.value[0].integer - 1] = call->pinned_before;
    }
}

/* ---- freeze and thaw ---- */

/* The lowest pinned block, or one more than there are. */
static int lowest_pin(const fl_controller *controller)
{
    int block = 1, n = blocks_of(controller);
    while (block <= n && !controller->pinned[block - 1]) {
        block++;
    }
    return block;
}

static void go_to(fl_controller *controller, fl_ctl_call *call, int F)
{
    fl_plan plan = controller->plan;
    char why[64];
    snprintf(why, sizeof why, "ctl %s %d", call->request.command->name, F);
    if (F != plan.F && controller->elastic.state != FL_ELASTIC_IDLE) {
        call->wait = FL_CTL_WAIT_IDLE; /* what is best is decided then */
    } else if (F != plan.F && fl_decide_by_hand(controller, F, why, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        ask(controller, call, &plan, why);
    }
}

void fl_ctl_freeze(fl_controller *controller, fl_ctl_call *call)
{
    char blocks[FL_COUNT_BYTES];
    int F = (int)call->request.value[0].integer;
    if (!has_model(controller, call)) {
        return;
    }
    if (F > blocks_of(controller)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "blocks: the model has %d", blocks_of(controller));
    } else if (F < controller->plan.F) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s frozen by now; thaw is for fewer",
                      fl_count(controller->plan.F, "block", blocks));
    } else if (F >= lowest_pin(controller)) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "block %d is pinned", lowest_pin(controller));
    } else {
        go_to(controller, call, F);
    }
}

void fl_ctl_thaw(fl_controller *controller, fl_ctl_call *call)
{
    char blocks[FL_COUNT_BYTES];
    int F = (int)call->request.value[0].integer;
    if (!has_model(controller, call)) {
        return;
    }
    if (F > controller->plan.F) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s frozen by now; freeze is for more",
                      fl_count(controller->plan.F, "block", blocks));
    } else {
        go_to(controller, call, F);
    }
}

/* ---- pins ---- */

static bool check_block(const fl_controller *controller, fl_ctl_call *call)
{
    if (has_model(controller, call) && call->request.value[0].integer > blocks_of(controller)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "block: the model has %d", blocks_of(controller));
    }
    return call->error == FL_CTL_OK;
}

/* A frozen block thaws, with all above it; the pin holds from then on, or not at all. The block is
 * pinned while that goes on, so that no policy freezes it meanwhile. */
void fl_ctl_pin(fl_controller *controller, fl_ctl_call *call)
{
    int block = (int)call->request.value[0].integer;
    if (!check_block(controller, call)) {
        return;
    }
    call->pinned_before = controller->pinned[block - 1];
    controller->pinned[block - 1] = true;
    if (block > controller->plan.F) {
        pin_fields(controller, call->result, controller->stats.steps);
        return;
    }
    go_to(controller, call, block - 1);
    if (call->error != FL_CTL_OK || call->wait == FL_CTL_WAIT_IDLE) {
        controller->pinned[block - 1] = call->pinned_before;
    }
}

void fl_ctl_unpin(fl_controller *controller, fl_ctl_call *call)
{
    if (check_block(controller, call)) {
        controller->pinned[call->request.value[0].integer - 1] = false;
        pin_fields(controller, call->result, controller->stats.steps);
    }
}

/* ---- set pipe.m ---- */

void fl_ctl_set_m(fl_controller *controller, fl_ctl_call *call)
{
    const fl_ctl_value *value = &call->request.value[1];
    fl_plan plan = controller->plan;
    fl_job job = controller->job;
    if (!has_model(controller, call)) {
        return;
    }
    fl_plan_input input = *controller->options->plan_input;
    job.pipe.k = plan.K;
    job.autodp.r = plan.R;
    job.pipe.m = value->integer;
    input.job = &job;
    input.F = plan.F;
    if (value->integer < 1 || value->integer > FL_MAX_MICRO_BATCHES) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                      "value: allowed for pipe.m: an integer from 1 to %d", FL_MAX_MICRO_BATCHES);
    } else if (fl_worker_pool_choose(&controller->usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        ask(controller, call, &plan, "ctl set pipe.m");
    }
}
