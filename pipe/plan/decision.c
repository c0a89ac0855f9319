/* The numbers are those of decision.h. */
#include "pipe/plan/decision.h"

#include "device/text/number_text.h"
#include "device/text/plural.h"
#include "pipe/cost/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double MARGIN = 0.03;

/* ---- ① ---- */

/* The costs of the steps that remain with F blocks frozen: the cache warms up in the first epoch
 * after a change, and serves what it has from then on. */
static fl_plan_input costs_of(const fl_decision_input *in, int F)
{
    fl_plan_input costs = *in->costs;
    fl_cache_warmup w = in->warming;
    fl_cache_warmup_move(&w, F, in->step, in->steps_per_epoch);
    costs.F = F;
    costs.missing = fl_cache_warmup_share(&w, in->steps_per_epoch, in->step, in->n_steps);
    costs.kept = w.kept;
    return costs;
}

static fl_status choose_plan(const fl_decision_input *in, const fl_job *job, fl_plan *plan)
{
    fl_plan_input costs = costs_of(in, in->wanted);
    costs.job = job;
    FL_TRY(fl_worker_pool_choose(in->usable, &costs, plan));
    fl_plan_change_place(in->costs, in->running, plan, in->usable->drained);
    return FL_OK;
}

static fl_status keep(const fl_decision_input *in, fl_plan *plan)
{
    *plan = *in->running;
    plan->F = in->wanted;
    plan->M = in->own_m;
    return FL_OK;
}

static fl_status rebalance(const fl_decision_input *in, fl_plan *plan)
{
    fl_job job = *in->costs->job;
    job.pipe.k = in->running->K;
    job.pipe.m = in->own_m;
    job.autodp.r = in->running->R;
    return choose_plan(in, &job, plan);
}

static fl_status repack(const fl_decision_input *in, fl_plan *plan)
{
    return choose_plan(in, in->costs->job, plan);
}

typedef fl_status make_plan(const fl_decision_input *in, fl_plan *plan);

static bool is_listed(const fl_decision *d, const fl_plan *plan)
{
    for (int i = 0; i < d->n_options; i++) {
        const fl_plan *p = &d->option[i].plan;
        if (fl_grid_is_same(fl_plan_grid(p), fl_plan_grid(plan)) &&
            fl_plan_has_same_cuts(p, plan)) {
            return true;
        }
    }
    return false;
}

/* ---- ② ---- */

static double predict_ms(const fl_decision_input *in, const fl_plan *plan)
{
    fl_plan_input costs = costs_of(in, plan->F);
    return fl_plan_predict(&costs, plan, NULL) * 1e-3 * in->ratio;
}

static fl_status price(const fl_decision_input *in, fl_decision_option *o)
{
    o->step_ms = predict_ms(in, &o->plan);
    FL_TRY(fl_plan_change_price(in->costs, in->running, &o->plan, in->parked, in->fixed_ms,
                                &o->change));
    return fl_plan_change_check_room(in->costs, in->running, &o->plan);
}

/* An option whose plan is listed already under another name is left out. */
static void add_option(const fl_decision_input *in, fl_decision *d, const char *name,
                       make_plan *make)
{
    fl_decision_option *o = &d->option[d->n_options];
    *o = (fl_decision_option){.name = name};
    o->status = make(in, &o->plan);
    if (o->status != FL_OK) {
        o->plan = (fl_plan){0};
    } else if (is_listed(d, &o->plan)) {
        return;
    } else {
        o->status = price(in, o);
    }
    snprintf(o->why_not, sizeof o->why_not, "%s", o->status == FL_OK ? "" : fl_errmsg());
    d->n_options++;
}

/* ---- ③ ---- */

double fl_decision_total_ms(const fl_decision *d, int option)
{
    const fl_decision_option *o = &d->option[option];
    double caution = o->change.move_bytes > 0 ? 1.0 + MARGIN : 1.0;
    return caution * o->step_ms * (double)d->left + o->change.cost_ms;
}

static int cheapest(const fl_decision *d)
{
    int best = -1;
    for (int i = 0; i < d->n_options; i++) {
        if (d->option[i].status == FL_OK &&
            (best < 0 || fl_decision_total_ms(d, i) < fl_decision_total_ms(d, best))) {
            best = i;
        }
    }
    return best;
}

/* ---- ④ ---- */

static bool must_pay(const fl_decision_input *in)
{
    if (in->joined) {
        return true;
    }
    return in->wanted > in->running->F && !in->by_hand && in->costs->job->freeze.must_pay;
}

/* M alone is the tuner's. */
static bool is_running(const fl_decision_input *in, const fl_decision_option *o)
{
    return o->plan.K == in->running->K && o->plan.R == in->running->R &&
           fl_plan_has_same_cuts(&o->plan, in->running);
}

static bool pays(const fl_decision *d, int option)
{
    return fl_decision_total_ms(d, option) < d->stay_ms * (double)d->left;
}

/* ---- in words ---- */

FL_PRINTF(2, 3) static void say(fl_decision *d, const char *format, ...)
{
    size_t used = strlen(d->why);
    va_list args;
    va_start(args, format);
    vsnprintf(d->why + used, sizeof d->why - used, format, args);
    va_end(args);
}

static void explain_stay(fl_decision *d)
{
    char steps[FL_COUNT_BYTES], ms[3][FL_NUMBER_TEXT_MAX];
    const fl_decision_option *o = &d->option[d->best];
    say(d,
        "the blocks stay unfrozen, because freezing them would not pay over the %s that "
        "remain: %s is predicted to take %s ms a step and %s ms to change; without freezing a "
        "step takes %s ms",
        fl_count(d->left, "step", steps), o->name, fl_number_text(o->step_ms, 4, ms[0]),
        fl_number_text(o->change.cost_ms, 3, ms[1]), fl_number_text(d->stay_ms, 4, ms[2]));
}

/* After workers have joined. */
static void explain_plan_stays(fl_decision *d, bool is_best)
{
    char steps[FL_COUNT_BYTES], grid[FL_GRID_TEXT_MAX], ms[3][FL_NUMBER_TEXT_MAX];
    const fl_decision_option *o = &d->option[d->best];
    fl_grid_text(fl_plan_grid(&o->plan), grid);
    if (is_best) {
        say(d, "the running plan is the best for the workers that are there now");
    } else {
        say(d,
            "%s would not pay over the %s that remain: %s ms a step and %s ms to change; the "
            "running plan takes %s ms a step",
            grid, fl_count(d->left, "step", steps), fl_number_text(o->step_ms, 4, ms[0]),
            fl_number_text(o->change.cost_ms, 3, ms[1]), fl_number_text(d->stay_ms, 4, ms[2]));
    }
}

static void explain_choice(fl_decision *d)
{
    char steps[FL_COUNT_BYTES], ms[2][FL_NUMBER_TEXT_MAX];
    const fl_decision_option *o = &d->option[d->chosen];
    say(d, "%s: %s ms a step over %s, %s ms to change", o->name,
        fl_number_text(o->step_ms, 4, ms[0]), fl_count(d->left, "step", steps),
        fl_number_text(o->change.cost_ms, 3, ms[1]));
    for (int i = 0; i < d->n_options; i++) {
        const fl_decision_option *other = &d->option[i];
        if (i != d->chosen && other->status == FL_OK) {
            say(d, "; %s: %s and %s", other->name, fl_number_text(other->step_ms, 4, ms[0]),
                fl_number_text(other->change.cost_ms, 3, ms[1]));
        }
    }
    if (!pays(d, d->chosen)) {
        say(d, "; slower than the %s ms a step of the running plan, but it was asked for",
            fl_number_text(d->stay_ms, 4, ms[0]));
    }
}

void fl_decision_make(const fl_decision_input *in, fl_decision *out)
{
    fl_decision *d = out;
    *d = (fl_decision){.step = in->step,
                       .left = in->n_steps - in->step,
                       .F = in->running->F,
                       .wanted = in->wanted,
                       .joined = in->joined,
                       .ratio = in->ratio,
                       .stay_ms = predict_ms(in, in->running)};
    if (!in->joined) {
        add_option(in, d, "keep", keep);
    }
    if (in->costs->job->elastic.enabled && !in->joined) {
        add_option(in, d, "rebalance", rebalance);
    }
    if (in->costs->job->elastic.enabled || in->joined) {
        add_option(in, d, "repack", repack);
    }
    d->best = cheapest(d);
    bool is_best = in->joined && d->best >= 0 && is_running(in, &d->option[d->best]);
    bool stays = d->best < 0 || is_best || (must_pay(in) && !pays(d, d->best));
    d->chosen = stays ? FL_DECISION_STAY : d->best;
    if (d->best < 0) {
        say(d, "no plan is possible: %.400s", d->option[0].why_not);
    } else if (stays && in->joined) {
        explain_plan_stays(d, is_best);
    } else if (stays) {
        explain_stay(d);
    } else {
        explain_choice(d);
    }
}
