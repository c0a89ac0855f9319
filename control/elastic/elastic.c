/* Which change of the plan comes next: what is due by the script or the policy, what the tuner or a
 * recording proposes, and what a request asks for. elastic_transition.c carries it out. */
#include "control/elastic/elastic.h"

#include "control/elastic/elastic_transition.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>

fl_status fl_elastic_open(fl_elastic *elastic)
{
    const fl_controller_options *o = elastic->run->options;
    fl_elastic_terms terms = {.k = 0};
    fl_elastic_terms_want(elastic, &elastic->plan, &terms);
    elastic->k = terms.k;
    elastic->r = terms.r;
    FL_TRY(fl_stragglers_open(elastic));
    FL_TRY(fl_decide_open(elastic));
    FL_TRY(fl_learn_open(elastic));
    elastic->due = (fl_due_steps){.job = o->job,
                                  .steps_per_epoch = elastic->run->stats->steps_per_epoch,
                                  .n_steps = o->n_steps,
                                  .recording = o->recording,
                                  .lead = o->lead};
    return FL_OK;
}

void fl_elastic_close(fl_elastic *elastic)
{
    fl_stragglers_close(elastic);
    fl_decide_close(elastic);
    fl_learn_close(elastic);
}

void fl_elastic_end(fl_elastic *elastic)
{
    fl_elastic_leave(elastic);
    fl_measure_watch(elastic, true);
    fl_learn_end(elastic);
    fl_stragglers_end(elastic);
}

/* ---- the pool of later plans ---- */

void fl_elastic_pin(fl_elastic *elastic, int block, bool pinned)
{
    elastic->pinned[block - 1] = elastic->transition.terms.pinned[block - 1] = pinned;
}

void fl_elastic_lr(fl_elastic *elastic, double lr)
{
    elastic->job->train.lr = lr;
}

/* ---- the start of a transition ---- */

/* Each generation number is used once, even if its generation was cancelled: entries in the store
 * and messages in flight that carry the number then never belong to another generation. */
uint32_t fl_elastic_next_generation(const fl_elastic *elastic)
{
    uint32_t asked = elastic->transition.last_asked, now = elastic->plan.generation;
    return (asked > now ? asked : now) + 1;
}

/* What an entry of the script leaves open where the values of the running plan cannot stay. */
typedef enum freedom { NOTHING_OPEN, M_OPEN, GRID_OPEN, FREEDOMS } freedom;

/* A value that the entry leaves out stays; from some freedom on, one that the job leaves to the
 * planner is chosen anew. */
static int64_t scripted_value(int64_t entry, int64_t job, int64_t running, bool is_open)
{
    return entry >= 0 ? entry : is_open && job == FL_JOB_AUTO ? FL_JOB_AUTO : running;
}

static fl_status scripted_plan_with(fl_elastic *elastic, const fl_script_entry *entry, freedom open,
                                    fl_plan *plan)
{
    fl_job job = *elastic->run->options->job;
    fl_plan_input input = *elastic->run->options->plan_input;
    job.pipe.k = scripted_value(entry->k, job.pipe.k, elastic->plan.K, open >= GRID_OPEN);
    job.pipe.m = scripted_value(entry->m, elastic->job->pipe.m, elastic->plan.M, open >= M_OPEN);
    job.autodp.r = scripted_value(entry->r, job.autodp.r, elastic->plan.R, open >= GRID_OPEN);
    input.job = &job;
    input.F = entry->f >= 0 ? entry->f : elastic->plan.F;
    input.generation = fl_elastic_next_generation(elastic);
    FL_TRY(fl_worker_pool_choose(&elastic->usable, &input, plan));
    fl_decide_place(elastic, &elastic->usable, plan);
    return FL_OK;
}

/* The plan that an entry of the script asks for. The running K, R and M may come from measured
 * times, and some of them leave no plan: 6 micro-batches for 4 samples of a replica, for example.
 * Then the entry takes effect all the same, as in any other run of the job. */
static fl_status scripted_plan(fl_elastic *elastic, const fl_script_entry *entry, fl_plan *plan)
{
    fl_status status = FL_OK;
    for (int open = NOTHING_OPEN; open < FREEDOMS; open++) {
        status = scripted_plan_with(elastic, entry, (freedom)open, plan);
        if (status == FL_OK) {
            return FL_OK;
        }
    }
    return status;
}

fl_elastic_terms fl_elastic_terms_now(const fl_elastic *elastic)
{
    fl_elastic_terms terms = {
        .usable = elastic->usable, .m = elastic->job->pipe.m, .k = elastic->k, .r = elastic->r};
    memcpy(terms.pinned, elastic->pinned, sizeof terms.pinned);
    return terms;
}

void fl_elastic_terms_set(fl_elastic *elastic, const fl_elastic_terms *terms)
{
    elastic->usable = terms->usable;
    memcpy(elastic->pinned, terms->pinned, sizeof elastic->pinned);
    elastic->job->pipe.m = terms->m;
    elastic->k = terms->k;
    elastic->r = terms->r;
}

void fl_elastic_terms_want(const fl_elastic *elastic, const fl_plan *plan, fl_elastic_terms *terms)
{
    const fl_job *job = elastic->run->options->job;
    bool fixed = (job->pipe.k > 0 && job->autodp.r > 0) || !job->elastic.enabled;
    terms->k = fixed ? plan->K : 0;
    terms->r = fixed ? plan->R : 0;
}

/* What the script or a policy gives the run, it is to have from then on. */
static void prepare_next(fl_elastic *elastic, int64_t now_us)
{
    const fl_plan *next = &elastic->transition.next;
    fl_elastic_terms terms = fl_elastic_terms_now(elastic);
    if (next->K != elastic->plan.K || next->R != elastic->plan.R) {
        fl_elastic_terms_want(elastic, next, &terms);
    }
    fl_elastic_prepare(elastic, &terms, now_us);
}

/* The next entry of elastic.script; NULL: none is left. */
static const fl_script_entry *next_entry(const fl_elastic *elastic)
{
    const fl_job *job = elastic->run->options->job;
    int i = elastic->transition.n_scripted;
    return elastic->run->options->recording == NULL && i < job->elastic.n_script
               ? &job->elastic.script[i]
               : NULL;
}

static void begin_scripted(fl_elastic *elastic, const fl_script_entry *entry, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    e->n_scripted++;
    e->due = FL_DUE_SCRIPT;
    e->due_step = entry->step;
    e->next.generation = 0;
    snprintf(e->why, sizeof e->why, "elastic.script, step %lld", (long long)entry->step);
    if (scripted_plan(elastic, entry, &e->next) != FL_OK) {
        fl_elastic_cancel(elastic, fl_errmsg());
        return;
    }
    prepare_next(elastic, now_us);
}

/* Workers wait at this step, so they must also learn that nothing changes there. */
static void begin_decided(fl_elastic *elastic, int64_t effect, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (!fl_decide_next(elastic, &e->next, e->why, sizeof e->why)) {
        fl_router_command(
            elastic->router, &elastic->plan,
            &(fl_command){.kind = FL_COMMAND_PASS, .due_step = effect, .due = FL_DUE_POLICY});
        return;
    }
    e->next.generation = fl_elastic_next_generation(elastic);
    e->policy_asked = e->next.generation;
    e->due = FL_DUE_POLICY;
    e->due_step = effect;
    prepare_next(elastic, now_us);
}

/* Whether it is time to prepare this entry. Preparation starts `lead` steps ahead, but at most half
 * the gap to the entry before: between dense entries, requests of users must get their turn. */
static bool is_near(const fl_elastic *elastic, const fl_script_entry *entry)
{
    bool first = elastic->transition.n_scripted == 0;
    int64_t gap = entry->step - (first ? 0 : entry[-1].step);
    int64_t ahead = elastic->due.lead < gap / 2 ? elastic->due.lead : gap / 2;
    return elastic->run->stats->steps + ahead >= entry->step;
}

/* Between script and policy, the change that takes effect first is prepared first. Their order is
 * therefore the same in every run, and no worker waits at a step whose answer comes after a later
 * one. */
static void look_at_due(fl_elastic *elastic, int64_t now_us)
{
    const fl_script_entry *entry = next_entry(elastic);
    int64_t effect = fl_decide_due(elastic);
    if (effect > 0 && (entry == NULL || effect <= entry->step)) {
        begin_decided(elastic, effect, now_us);
    } else if (entry != NULL && is_near(elastic, entry)) {
        begin_scripted(elastic, entry, now_us);
    }
}

/* Workers wait at a step for which an answer is due, so a change that commits after that step must
 * not be prepared before it. */
static fl_status check_due(const fl_elastic *elastic, int64_t due_step)
{
    int64_t between = fl_due_first(&elastic->due, elastic->run->stats->steps + 1, due_step);
    return between == 0 ? FL_OK
                        : fl_fail(FL_EBUSY, "a decision is due at step %lld", (long long)between);
}

static fl_status check_asked(const fl_elastic *elastic, const fl_plan *next, int64_t due_step)
{
    const fl_transition *e = &elastic->transition;
    if (elastic->run->phase->state != FL_CONTROLLER_RUNNING || elastic->run->phase->n_stops > 0) {
        return fl_fail(FL_EBUSY, "the run is %s",
                       elastic->run->phase->state == FL_CONTROLLER_STARTING ? "still starting"
                                                                            : "about to end");
    }
    if (elastic->run->options->recording != NULL) {
        return fl_fail(FL_EBUSY, "the run repeats another one, which has its plans");
    }
    if (e->state == FL_ELASTIC_RECOVERING) {
        return fl_fail(FL_EBUSY, "the run recovers from a loss; retry when it has");
    }
    if (e->state != FL_ELASTIC_IDLE) {
        return fl_fail(FL_EBUSY,
                       "another change of the plan (generation %u: %s) is in progress; retry when "
                       "it has finished",
                       e->next.generation, e->why);
    }
    FL_TRY(check_due(elastic, due_step));
    FL_TRY(fl_plan_check(next));
    if (next->n_workers != elastic->plan.n_workers || next->n_layers != elastic->plan.n_layers) {
        return fl_fail(FL_EINVAL, "a plan for %d layers on %d workers; the run has %d on %d",
                       next->n_layers, next->n_workers, elastic->plan.n_layers,
                       elastic->plan.n_workers);
    }
    return FL_OK;
}

fl_status fl_elastic_ask_with(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                              const fl_elastic_terms *terms, const char *why)
{
    fl_transition *e = &elastic->transition;
    fl_plan placed = *next;
    FL_TRY(check_asked(elastic, next, due_step));
    fl_decide_place(elastic, &terms->usable, &placed);
    FL_TRY(fl_decide_check_room(elastic, &placed));
    e->next = placed;
    e->next.generation = e->requested = fl_elastic_next_generation(elastic);
    e->told = 0;
    e->due = FL_DUE_NONE;
    e->due_step = due_step;
    snprintf(e->why, sizeof e->why, "%s", why);
    fl_elastic_prepare(elastic, terms, fl_now_us());
    return FL_OK;
}

fl_status fl_elastic_ask(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                         const char *why)
{
    fl_elastic_terms now = fl_elastic_terms_now(elastic);
    return fl_elastic_ask_with(elastic, next, due_step, &now, why);
}

/* The step at which a decision of the controller itself takes effect: at the latest the first step
 * at which workers wait anyway. */
static int64_t step_ahead(const fl_elastic *elastic)
{
    int64_t now = elastic->run->stats->steps, ahead = now + elastic->due.lead;
    int64_t first = fl_due_first(&elastic->due, now + 1, ahead);
    return first > 0 ? first : ahead;
}

static void look_at_tuner(fl_elastic *elastic, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (fl_tune_next_plan(elastic, &e->next, e->why, sizeof e->why)) {
        e->next.generation = fl_elastic_next_generation(elastic);
        e->due = FL_DUE_NONE;
        e->due_step = step_ahead(elastic);
        fl_tune_asked(elastic, e->next.generation);
        prepare_next(elastic, now_us);
    }
}

static void look_at_recording(fl_elastic *elastic, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (fl_replay_next_plan(elastic, &e->next, &e->due_step, &e->due)) {
        e->next.generation = fl_elastic_next_generation(elastic);
        snprintf(e->why, sizeof e->why, "repeated, step %lld", (long long)e->due_step);
        fl_elastic_terms terms = fl_elastic_terms_now(elastic);
        memcpy(terms.usable.drained, e->next.departed, sizeof e->next.departed);
        fl_elastic_prepare(elastic, &terms, now_us);
    } else {
        fl_replay_watch(elastic);
    }
}

static void look_at_all(fl_elastic *elastic, int64_t now_us)
{
    if (fl_again_pauses(elastic, now_us)) {
        return;
    }
    if (elastic->run->options->recording != NULL) {
        look_at_recording(elastic, now_us);
        return;
    }
    look_at_due(elastic, now_us);
    if (elastic->transition.state == FL_ELASTIC_IDLE) {
        look_at_tuner(elastic, now_us);
    }
}

void fl_elastic_watch(fl_elastic *elastic, int64_t save_step, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (elastic->run->phase->state != FL_CONTROLLER_RUNNING || elastic->run->phase->n_stops > 0 ||
        elastic->run->stats->ended_early) {
        return;
    }
    if (e->state == FL_ELASTIC_IDLE) {
        fl_measure_watch(elastic, false);
        look_at_all(elastic, now_us);
    } else {
        fl_elastic_drive(elastic, save_step, now_us);
    }
}
