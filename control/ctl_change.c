/* What changes the plan, or what the next plans may be: scale, freeze, thaw, pin, unpin, drain, and
 * M. Each asks elastic.c for a transition and is answered when that has ended, well or not. */
#include "control/ctl.h"

#include <stdio.h>
#include <string.h>

/* ---- asking ---- */

static bool has_model(const fl_head *head, fl_ctl_call *call)
{
    if (head->options->plan_input == NULL) {
        fl_ctl_refuse(call, FL_CTL_NOT_AVAILABLE, "nothing is known of this run's model");
        return false;
    }
    return true;
}

static int blocks_of(const fl_head *head)
{
    return fl_model_n_blocks(head->options->plan_input->model);
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

static void ask(fl_head *head, fl_ctl_call *call, const fl_plan *plan, const char *why)
{
    fl_plan placed = *plan;
    fl_decide_place(head, &placed);
    fl_usable_members(&head->usable, &placed);
    if (head->elastic.state != FL_ELASTIC_IDLE) {
        call->wait = FL_CTL_WAIT_IDLE;
    } else if (same_plan(&placed, &head->plan)) {
        plan_fields(call->result, &head->plan, false, head->tally.steps);
    } else if (fl_elastic_ask(head, plan, 0, why) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        call->wait = FL_CTL_WAIT_PLAN;
        call->generation = head->elastic.next.generation;
    }
}

void fl_ctl_plan_result(const fl_head *head, fl_ctl_call *call)
{
    plan_fields(call->result, &head->plan, true, head->elastic.outcome.step);
}

/* ---- scale ---- */

enum { DEVICES, STAGES, REPLICAS, MICRO_BATCHES }; /* scale's arguments */

/* " 0, 3" */
static void list_left(const fl_head *head, char *text, size_t size_bytes)
{
    int n = 0, at = 0;
    text[0] = 0;
    for (int i = 0; i < head->n_workers && at < (int)size_bytes; i++) {
        if (head->plan.departed[i]) {
            at += snprintf(text + at, size_bytes - (size_t)at, "%s %d", n == 0 ? "" : ",", i);
            n++;
        }
    }
}

static void refuse_more(const fl_head *head, fl_ctl_call *call, int64_t wanted, int n)
{
    char left[64];
    int n_left = head->n_workers - fl_plan_members(&head->plan);
    list_left(head, left, sizeof left);
    fl_ctl_refuse(call, FL_CTL_REFUSED,
                  "%lld devices are more than the %d workers that can take work; a run has "
                  "as many as its devices.count says, from its start on%s%s%s%s",
                  (long long)wanted, n, n_left == 0 ? "" : "; worker", n_left > 1 ? "s" : "", left,
                  n_left == 0   ? ""
                  : n_left == 1 ? " has left"
                                : " have left");
}

static bool check_scale(const fl_head *head, fl_ctl_call *call, const fl_usable *usable)
{
    const fl_ctl_value *v = call->request.value;
    int64_t wanted =
        v[DEVICES].given ? v[DEVICES].integer : v[STAGES].integer * v[REPLICAS].integer;
    int n = fl_usable_count(usable, head->n_workers);
    if (!v[DEVICES].given && !(v[STAGES].given && v[REPLICAS].given)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "devices, or k and r, must be given");
    } else if (v[DEVICES].given && (v[STAGES].given || v[REPLICAS].given)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "devices, or k and r, but not both");
    } else if (wanted > n) {
        refuse_more(head, call, wanted, n);
    }
    return call->error == FL_CTL_OK;
}

static void choose_scale(fl_head *head, fl_ctl_call *call, fl_usable *usable)
{
    const fl_ctl_value *v = call->request.value;
    fl_job job = head->job;
    fl_plan_input input = *head->options->plan_input;
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
    input.F = head->plan.F;
    if (fl_usable_choose(usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
        return;
    }
    ask(head, call, &plan, "ctl scale");
    if (call->error == FL_CTL_OK && call->wait != FL_CTL_WAIT_IDLE) {
        call->limit_before = head->usable.limit;
        head->usable.limit = usable->limit; /* later plans stay within it */
    }
}

void fl_ctl_scale(fl_head *head, fl_ctl_call *call)
{
    fl_usable usable = head->usable;
    usable.limit = 0;
    if (has_model(head, call) && check_scale(head, call, &usable)) {
        choose_scale(head, call, &usable);
    }
}

/* ---- drain ---- */

void fl_ctl_drain(fl_head *head, fl_ctl_call *call)
{
    int64_t rank = call->request.value[0].integer;
    fl_usable usable = head->usable;
    fl_plan_input input;
    fl_job job = head->job;
    fl_plan plan;
    char why[64];
    if (!has_model(head, call)) {
        return;
    }
    if (rank >= head->n_workers) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "worker: the run has workers 0 to %d",
                      head->n_workers - 1);
        return;
    }
    usable.drained[rank] = true;
    int n = fl_usable_count(&usable, head->n_workers);
    fl_ctl_loosen(&job, n);
    input = *head->options->plan_input;
    input.job = &job;
    input.F = head->plan.F;
    if (n == 0) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "worker %lld is the last that can take work",
                      (long long)rank);
        return;
    }
    plan = head->plan;
    if (!fl_usable_covers(&usable, &plan) && fl_usable_choose(&usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
        return;
    }
    snprintf(why, sizeof why, "ctl drain of worker %lld", (long long)rank);
    bool before = head->usable.drained[rank];
    head->usable.drained[rank] = true;
    ask(head, call, &plan, why);
    if (call->error != FL_CTL_OK || call->wait == FL_CTL_WAIT_IDLE) {
        head->usable.drained[rank] = before;
    }
}

/* A drain or a scale that did not come about leaves everything usable as it was. */
void fl_ctl_plan_failed(fl_head *head, const fl_ctl_call *call)
{
    if (call->request.command->run == fl_ctl_drain) {
        head->usable.drained[call->request.value[0].integer] = false;
    } else if (call->request.command->run == fl_ctl_scale) {
        head->usable.limit = call->limit_before;
    }
}

/* ---- freeze and thaw ---- */

/* The lowest pinned block, or one more than there are. */
static int lowest_pin(const fl_head *head)
{
    int block = 1, n = blocks_of(head);
    while (block <= n && !head->pinned[block - 1]) {
        block++;
    }
    return block;
}

static void go_to(fl_head *head, fl_ctl_call *call, int F)
{
    fl_plan plan = head->plan;
    char why[64];
    snprintf(why, sizeof why, "ctl %s %d", call->request.command->name, F);
    if (F != plan.F && head->elastic.state != FL_ELASTIC_IDLE) {
        call->wait = FL_CTL_WAIT_IDLE; /* what is best is decided then */
    } else if (F != plan.F && fl_decide_by_hand(head, F, why, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        ask(head, call, &plan, why);
    }
}

void fl_ctl_freeze(fl_head *head, fl_ctl_call *call)
{
    int F = (int)call->request.value[0].integer;
    if (!has_model(head, call)) {
        return;
    }
    if (F > blocks_of(head)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "blocks: the model has %d", blocks_of(head));
    } else if (F < head->plan.F) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%d blocks are frozen; thaw takes that back",
                      head->plan.F);
    } else if (F >= lowest_pin(head)) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "block %d is pinned", lowest_pin(head));
    } else {
        go_to(head, call, F);
    }
}

void fl_ctl_thaw(fl_head *head, fl_ctl_call *call)
{
    int F = (int)call->request.value[0].integer;
    if (!has_model(head, call)) {
        return;
    }
    if (F > head->plan.F) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%d blocks are frozen; freeze is for more",
                      head->plan.F);
    } else {
        go_to(head, call, F);
    }
}

/* ---- pins ---- */

static void set_pin(fl_head *head, fl_ctl_call *call, bool pin)
{
    int block = (int)call->request.value[0].integer;
    if (!has_model(head, call)) {
        return;
    }
    if (block > blocks_of(head)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "block: the model has %d", blocks_of(head));
        return;
    }
    if (pin && block <= head->plan.F) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "block %d is frozen; thaw %d first", block, block - 1);
        return;
    }
    head->pinned[block - 1] = pin;
    fl_json_integer(call->result, "step", head->tally.steps);
    fl_json_array(call->result, "pinned");
    for (int i = 0; i < blocks_of(head); i++) {
        if (head->pinned[i]) {
            fl_json_integer(call->result, NULL, i + 1);
        }
    }
    fl_json_close(call->result, ']');
}

void fl_ctl_pin(fl_head *head, fl_ctl_call *call)
{
    set_pin(head, call, true);
}

void fl_ctl_unpin(fl_head *head, fl_ctl_call *call)
{
    set_pin(head, call, false);
}

/* ---- set pipe.m ---- */

void fl_ctl_set_m(fl_head *head, fl_ctl_call *call)
{
    const fl_ctl_value *value = &call->request.value[1];
    fl_plan plan = head->plan;
    fl_job job = head->job;
    if (!has_model(head, call)) {
        return;
    }
    fl_plan_input input = *head->options->plan_input;
    job.pipe.k = plan.K;
    job.autodp.r = plan.R;
    job.pipe.m = value->integer;
    input.job = &job;
    input.F = plan.F;
    if (value->integer < 1) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "value: allowed for pipe.m: an integer from 1");
    } else if (fl_usable_choose(&head->usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        ask(head, call, &plan, "ctl set pipe.m");
    }
}
