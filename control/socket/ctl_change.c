/* Commands that change the plan, or the choice of later plans: scale, freeze, thaw, pin, unpin,
 * drain, and M. Each requests a transition from elastic.c; the reply follows when that has ended,
 * committed or not. */
#include "control/elastic/drain.h"
#include "control/events/fields.h"
#include "control/socket/ctl.h"

#include "device/text/plural.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- requesting a plan ---- */

static bool has_model(const fl_ctl *ctl, fl_ctl_call *call)
{
    if (ctl->run->options->plan_input == NULL) {
        fl_ctl_refuse(call, FL_CTL_NOT_AVAILABLE, "nothing is known of this run's model");
        return false;
    }
    return true;
}

static int blocks_of(const fl_ctl *ctl)
{
    return fl_model_n_blocks(ctl->run->options->plan_input->model);
}

/* Each pending request finds its outcome. */
static_assert((int)FL_ELASTIC_OUTCOMES >= (int)FL_CTL_PENDING,
              "outcomes are dropped before they are read");

static void plan_fields(fl_json *j, uint32_t generation, fl_grid grid, bool changed, int64_t step)
{
    fl_json_integer(j, "step", step);
    fl_json_bool(j, "changed", changed);
    fl_json_integer(j, "generation", generation);
    fl_fields_grid(j, grid);
}

void fl_ctl_plan_fields(const fl_ctl *ctl, fl_json *j)
{
    plan_fields(j, ctl->run->plan->generation, fl_plan_grid(ctl->run->plan), true,
                ctl->run->stats->steps);
}

/* A transition needs every worker, and follows the one in progress. */
static bool must_wait(const fl_ctl *ctl)
{
    return ctl->run->phase->state == FL_CONTROLLER_STARTING ||
           ctl->elastic->transition.state != FL_ELASTIC_IDLE;
}

/* Request the plan; *terms take effect when it starts to run. */
static void ask_plan_with(fl_ctl *ctl, fl_ctl_call *call, const fl_plan *plan,
                          const fl_elastic_terms *terms, const char *why)
{
    fl_plan placed = *plan;
    fl_decide_place(ctl->elastic, &terms->usable, &placed);
    fl_worker_pool_members(&terms->usable, &placed);
    if (must_wait(ctl)) {
        call->wait = FL_CTL_WAIT_IDLE;
    } else if (fl_plan_is_same(&placed, ctl->run->plan)) {
        fl_elastic_terms_set(ctl->elastic, terms);
        plan_fields(call->result, ctl->run->plan->generation, fl_plan_grid(ctl->run->plan), false,
                    ctl->run->stats->steps);
    } else if (fl_elastic_ask_with(ctl->elastic, plan, 0, terms, why) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        call->wait = FL_CTL_WAIT_PLAN;
        call->generation = ctl->elastic->transition.requested;
    }
}

static void pin_fields(const fl_ctl *ctl, fl_json *j, int64_t step)
{
    fl_json_integer(j, "step", step);
    fl_json_array(j, "pinned");
    for (int i = 0; i < blocks_of(ctl); i++) {
        if (ctl->elastic->pinned[i]) {
            fl_json_integer(j, NULL, i + 1);
        }
    }
    fl_json_close(j, ']');
}

void fl_ctl_pin_result(const fl_ctl *ctl, fl_ctl_call *call)
{
    pin_fields(ctl, call->result, fl_elastic_outcome_of(ctl->elastic, call->generation)->step);
}

void fl_ctl_plan_result(const fl_ctl *ctl, fl_ctl_call *call)
{
    if (call->request.command->result != NULL) {
        call->request.command->result(ctl, call);
    } else {
        const fl_elastic_outcome *o = fl_elastic_outcome_of(ctl->elastic, call->generation);
        plan_fields(call->result, o->generation, o->grid, true, o->step);
    }
}

bool fl_ctl_plan_has_ended(const fl_ctl *ctl, fl_ctl_call *call)
{
    const fl_elastic_outcome *o = call->wait == FL_CTL_WAIT_PLAN
                                      ? fl_elastic_outcome_of(ctl->elastic, call->generation)
                                      : NULL;
    if (o != NULL && !o->committed) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%.900s%s", o->why,
                      o->may_pass ? "; the plan is unchanged, and the request may be repeated"
                                  : "");
    }
    return o != NULL;
}

/* ---- scale ---- */

enum { DEVICES, STAGES, REPLICAS, MICRO_BATCHES }; /* scale's arguments */

static void refuse_more(fl_ctl_call *call, int64_t wanted, int n)
{
    char devices[FL_COUNT_BYTES], workers[FL_COUNT_BYTES];
    fl_ctl_refuse(call, FL_CTL_REFUSED, "found %s, allowed: at most the %s of devices.max",
                  fl_count(wanted, "device", devices), fl_count(n, "worker", workers));
}

static bool check_scale(fl_ctl *ctl, fl_ctl_call *call, const fl_worker_pool *usable)
{
    const fl_ctl_value *v = call->request.value;
    int64_t wanted =
        v[DEVICES].given ? v[DEVICES].integer : v[STAGES].integer * v[REPLICAS].integer;
    int n = fl_worker_pool_count(usable, ctl->run->n_workers);
    if (!v[DEVICES].given && !(v[STAGES].given && v[REPLICAS].given)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "devices, or k and r, must be given");
    } else if (v[DEVICES].given && (v[STAGES].given || v[REPLICAS].given)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "devices, or k and r, but not both");
    } else if (wanted > ctl->run->n_workers) {
        refuse_more(call, wanted, ctl->run->n_workers);
    } else if (wanted > n && (must_wait(ctl) || ctl->grow(ctl->context, (int)wanted - n))) {
        call->wait = FL_CTL_WAIT_IDLE; /* until they have joined */
    } else if (wanted > n) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    }
    return call->error == FL_CTL_OK && call->wait == FL_CTL_WAIT_NONE;
}

static void choose_scale(fl_ctl *ctl, fl_ctl_call *call, fl_worker_pool *usable)
{
    const fl_ctl_value *v = call->request.value;
    fl_job job = *ctl->run->options->job;
    fl_plan_input input = *ctl->run->options->plan_input;
    fl_plan plan;
    usable->limit = v[DEVICES].given ? (int)v[DEVICES].integer : 0;
    if (v[DEVICES].given) {
        fl_worker_pool_loosen(&job, v[DEVICES].integer);
    }
    if (v[DEVICES].given && v[DEVICES].integer > ctl->run->options->n_devices) {
        job.pipe.k = job.autodp.r = FL_JOB_AUTO; /* they are for devices.count workers */
    }
    if (v[STAGES].given) {
        job.pipe.k = v[STAGES].integer;
        job.autodp.r = v[REPLICAS].integer;
    }
    job.pipe.m = v[MICRO_BATCHES].given ? v[MICRO_BATCHES].integer : job.pipe.m;
    input.job = &job;
    input.F = ctl->run->plan->F;
    if (fl_worker_pool_choose(usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
        return;
    }
    fl_elastic_terms terms = fl_elastic_terms_now(ctl->elastic);
    terms.usable.limit = usable->limit; /* later plans keep this limit, and an M that was given */
    terms.m = job.pipe.m;
    fl_elastic_terms_want(ctl->elastic, &plan, &terms);
    if (v[STAGES].given) {
        terms.k = plan.K;
        terms.r = plan.R;
    }
    ask_plan_with(ctl, call, &plan, &terms, "ctl scale");
}

void fl_ctl_scale(fl_ctl *ctl, fl_ctl_call *call)
{
    fl_worker_pool usable = ctl->elastic->usable;
    usable.limit = 0;
    if (has_model(ctl, call) && check_scale(ctl, call, &usable)) {
        choose_scale(ctl, call, &usable);
    }
}

/* ---- drain ---- */

/* Refuse for a worker that is no member: nothing would change, and a lost one may come back. */
static bool check_drain(const fl_ctl *ctl, fl_ctl_call *call, int64_t rank)
{
    if (rank >= ctl->run->n_started) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "worker: the run has workers 0 to %d",
                      ctl->run->n_started - 1);
    } else if (ctl->elastic->usable.drained[rank] && ctl->run->plan->departed[rank]) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "worker %lld is not in the run: it %s before",
                      (long long)rank,
                      ctl->run->workers[rank].lost ? "was lost" : "was drained or lost");
    }
    return call->error == FL_CTL_OK;
}

enum { WORKER, HOST }; /* drain's arguments */

static void drain_worker(fl_ctl *ctl, fl_ctl_call *call, int64_t rank)
{
    bool ranks[FL_MAX_WORKERS] = {false};
    fl_elastic_terms terms;
    fl_plan plan;
    char why[64];
    if (!check_drain(ctl, call, rank)) {
        return;
    }
    ranks[rank] = true;
    if (fl_drain_choose(ctl->elastic, ranks, &plan, &terms) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "worker %lld cannot be drained: %s", (long long)rank,
                      fl_errmsg());
        return;
    }
    snprintf(why, sizeof why, "ctl drain of worker %lld", (long long)rank);
    ask_plan_with(ctl, call, &plan, &terms, why);
}

void fl_ctl_drain(fl_ctl *ctl, fl_ctl_call *call)
{
    const fl_ctl_value *v = call->request.value;
    if (v[WORKER].given == v[HOST].given) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                      "found %s, allowed: worker, its rank; or host, its name",
                      v[HOST].given ? "both" : "neither of worker and host");
    } else if (has_model(ctl, call) && v[HOST].given) {
        fl_ctl_drain_host(ctl, call, v[HOST].text);
    } else if (call->error == FL_CTL_OK) {
        drain_worker(ctl, call, v[WORKER].integer);
    }
}

/* ---- freeze and thaw ---- */

/* The lowest pinned block; one more than the number of blocks if none is pinned. */
static int lowest_pin(const fl_ctl *ctl)
{
    int block = 1, n = blocks_of(ctl);
    while (block <= n && !ctl->elastic->pinned[block - 1]) {
        block++;
    }
    return block;
}

/* Request a plan with F frozen blocks; *terms take effect when it starts to run. */
static void go_to(fl_ctl *ctl, fl_ctl_call *call, int F, const fl_elastic_terms *terms)
{
    fl_plan plan = *ctl->run->plan;
    char why[64];
    snprintf(why, sizeof why, "ctl %s %d", call->request.command->name, F);
    if (F != plan.F && must_wait(ctl)) {
        call->wait = FL_CTL_WAIT_IDLE; /* the best plan is chosen then */
    } else if (F != plan.F && fl_decide_by_hand(ctl->elastic, F, why, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        ask_plan_with(ctl, call, &plan, terms, why);
    }
}

void fl_ctl_freeze(fl_ctl *ctl, fl_ctl_call *call)
{
    char blocks[FL_COUNT_BYTES];
    int F = (int)call->request.value[0].integer;
    if (!has_model(ctl, call)) {
        return;
    }
    if (F > blocks_of(ctl)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "blocks: found %d, allowed: 0 to %d", F,
                      blocks_of(ctl));
    } else if (F < ctl->run->plan->F) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "frozen now: %s; to keep only %d frozen, use thaw %d",
                      fl_count(ctl->run->plan->F, "block", blocks), F, F);
    } else if (F >= lowest_pin(ctl)) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "block %d is pinned", lowest_pin(ctl));
    } else {
        fl_elastic_terms now = fl_elastic_terms_now(ctl->elastic);
        go_to(ctl, call, F, &now);
    }
}

void fl_ctl_thaw(fl_ctl *ctl, fl_ctl_call *call)
{
    char blocks[FL_COUNT_BYTES];
    int F = (int)call->request.value[0].integer;
    if (!has_model(ctl, call)) {
        return;
    }
    if (F > ctl->run->plan->F) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "frozen now: %s; to freeze %d, use freeze %d",
                      fl_count(ctl->run->plan->F, "block", blocks), F, F);
    } else {
        fl_elastic_terms now = fl_elastic_terms_now(ctl->elastic);
        go_to(ctl, call, F, &now);
    }
}

/* ---- pins ---- */

static bool check_block(const fl_ctl *ctl, fl_ctl_call *call)
{
    int block = (int)call->request.value[0].integer;
    if (has_model(ctl, call) && block > blocks_of(ctl)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "block: found %d, allowed: 1 to %d", block,
                      blocks_of(ctl));
    }
    return call->error == FL_CTL_OK;
}

/* Pinning a frozen block thaws it and all blocks above it. The pin takes effect with that plan. If
 * the transition fails, the block is not pinned. */
void fl_ctl_pin(fl_ctl *ctl, fl_ctl_call *call)
{
    int block = (int)call->request.value[0].integer;
    if (!check_block(ctl, call)) {
        return;
    }
    fl_elastic_terms terms = fl_elastic_terms_now(ctl->elastic);
    terms.pinned[block - 1] = true;
    if (block <= ctl->run->plan->F) {
        go_to(ctl, call, block - 1, &terms);
    } else {
        fl_elastic_pin(ctl->elastic, block, true);
        pin_fields(ctl, call->result, ctl->run->stats->steps);
    }
}

void fl_ctl_unpin(fl_ctl *ctl, fl_ctl_call *call)
{
    if (check_block(ctl, call)) {
        (void)fl_elastic_pin(ctl->elastic, (int)call->request.value[0].integer, false);
        pin_fields(ctl, call->result, ctl->run->stats->steps);
    }
}

/* ---- set pipe.m ---- */

void fl_ctl_set_m(fl_ctl *ctl, fl_ctl_call *call)
{
    const fl_ctl_value *value = &call->request.value[1];
    fl_plan plan = *ctl->run->plan;
    fl_job job = *ctl->run->options->job;
    if (!has_model(ctl, call)) {
        return;
    }
    fl_plan_input input = *ctl->run->options->plan_input;
    job.pipe.k = plan.K;
    job.autodp.r = plan.R;
    job.pipe.m = value->integer;
    input.job = &job;
    input.F = plan.F;
    if (value->integer < 1 || value->integer > FL_MAX_MICRO_BATCHES) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                      "value: allowed for pipe.m: an integer from 1 to %d", FL_MAX_MICRO_BATCHES);
    } else if (fl_worker_pool_choose(&ctl->elastic->usable, &input, &plan) != FL_OK) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        fl_elastic_terms terms = fl_elastic_terms_now(ctl->elastic);
        terms.m = value->integer; /* later plans keep it */
        ask_plan_with(ctl, call, &plan, &terms, "ctl set pipe.m");
    }
}
