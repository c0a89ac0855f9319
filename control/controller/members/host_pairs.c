#include "control/controller/members/host_pairs.h"

#include "control/controller/members/worker_pairs.h"
#include "control/controller/parts/parts.h"
#include "control/elastic/drain.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "pipe/plan/migrate_schedule.h"

#include <stdio.h>

enum {
    TRY_PERCENT = 65, /* of fault.detect, for a trial: with trial_us of watch.h before it, a pair is
                       * found as fast as a host that is silent */
    TRY_LEAST_MS = 1000,
    TRY_MOST_MS = 10000,
    FRESH_US = 1000 * 1000, /* for so long, what was found still holds */
    SLACK_US = 1500 * 1000, /* beyond a trial, until nobody waits for the gate any more */
    YOUNG_TIMES = 2,        /* so much longer, for the next attempt of a worker's connection */
    LEAVE_US = 2000 * 1000, /* for the gate to count a host as lost */
    PAUSE_TIMES = 4,        /* the silence of a worker, between two trials of one meeting */
};

/* ---- ③ ---- */

static bool is_in_run(const fl_host_record *r)
{
    return r->state == FL_HOST_STATE_JOINED || r->state == FL_HOST_STATE_DRAINING;
}

static void list_ranks(const fl_controller *controller, int host, bool *ranks)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        ranks[rank] = fl_hosts_of(controller->options->hosts, rank) == host;
    }
}

/* What the run would be without this host. */
static fl_host_loss price_loss(const fl_controller *controller, int host)
{
    const fl_controller_options *o = controller->options;
    const fl_elastic *e = &controller->elastic;
    fl_host_loss loss = {.n_devices = o->hosts->host[host].n};
    bool lost[FL_MAX_WORKERS] = {false};
    unsigned char orphans[FL_MAX_LAYERS];
    fl_elastic_terms terms;
    fl_plan plan;
    if (o->plan_input == NULL) {
        return loss;
    }
    list_ranks(controller, host, lost);
    loss.keeps_all =
        fl_migrate_orphans(o->plan_input->model, &e->plan, e->decide.parked, lost, orphans) == 0;
    loss.has_plan = fl_drain_choose(e, lost, &plan, &terms) == FL_OK;
    loss.step_us = loss.has_plan ? plan.predicted_step_us : 0.0;
    return loss;
}

/* The first pair of this host. */
static const fl_host_pair *find_pair(const fl_host_sight *sight, int host)
{
    const fl_host_pair *p = sight->pair;
    while (p->a != host && p->b != host) {
        p++;
    }
    return p;
}

/* why [FL_HOST_WHY_MAX + 1] for the host that is left out, and what the log says. */
static void explain_pair(const fl_controller_options *o, const fl_host_pair *p, int host, char *why)
{
    const fl_hosts *hosts = o->hosts;
    const fl_host *a = &hosts->host[p->a], *b = &hosts->host[p->b];
    const fl_host *other = p->a == host ? b : a;
    char ports[FL_WORKER_PAIRS_TEXT];
    if (p->a == p->b) {
        fl_worker_pairs_explain_own(p, ports);
        snprintf(why, FL_HOST_WHY_MAX + 1, "its workers %s", ports);
        fl_log(FL_LOG_WARN, "host %s (%s): its workers %s; the run does without host %s", a->name,
               a->address, ports, a->name);
        return;
    }
    if (p->port == 0) {
        snprintf(why, FL_HOST_WHY_MAX + 1, "it and host %s (%s) do not reach each other: %s",
                 other->name, other->address, p->why);
        fl_log(FL_LOG_WARN,
               "hosts %s (%s) and %s (%s) do not reach each other (%s tries: %s); the run does "
               "without host %s",
               a->name, a->address, b->name, b->address, a->name, p->why, hosts->host[host].name);
        return;
    }
    fl_worker_pairs_explain(hosts, o->job->autodp.security, p, ports);
    snprintf(why, FL_HOST_WHY_MAX + 1,
             "it and host %s: agents reach each other, workers do not: %s", other->name, ports);
    fl_log(FL_LOG_WARN,
           "hosts %s (%s) and %s (%s): agents reach each other, their workers do not: %s; the run "
           "does without host %s",
           a->name, a->address, b->name, b->address, ports, hosts->host[host].name);
}

static void leave_out(fl_controller *controller, int host, int64_t now_us)
{
    fl_host_pairs *pairs = &controller->host_pairs;
    const fl_host_pair *p = find_pair(&pairs->sight, host);
    int other = p->a == host ? p->b : p->a;
    bool own = other == host; /* its agent tries its own door: a port of a worker is gone */
    const fl_host_trial trial = {.port = own ? 0 : p->port, .by_other = !own && p->a == other};
    fl_host_record *r = &controller->hosts.records[host];
    char why[FL_HOST_WHY_MAX + 1];
    explain_pair(controller->options, p, host, why);
    r->apart_from = other + 1;
    r->trial = trial;
    controller->hosts.table->host[host].n_apart++;
    if (fl_agent_leave_out_host(controller->agent, host, other, &trial, why)) {
        pairs->state = FL_HOST_PAIRS_LEAVING;
        pairs->since_us = now_us;
    }
}

/* The head cannot be left out: one of its workers is lost. */
static void note_own(fl_controller *controller)
{
    const fl_hosts *hosts = controller->options->hosts;
    fl_host_pairs *pairs = &controller->host_pairs;
    char text[FL_WORKER_PAIRS_TEXT];
    for (int i = 0; i < pairs->sight.n; i++) {
        const fl_host_pair *p = &pairs->sight.pair[i];
        if (p->a == 0 && p->b == 0) {
            fl_worker_pairs_explain_own(p, text);
            snprintf(pairs->own_why, sizeof pairs->own_why, "on host %s (%s), whose workers %s",
                     hosts->host[0].name, hosts->host[0].address, text);
        }
    }
}

/* Each host that leaves takes its pairs with it. */
static void decide_hosts(fl_controller *controller, int64_t now_us)
{
    fl_host_sight *sight = &controller->host_pairs.sight;
    int n_hosts = controller->options->hosts->n, host;
    fl_host_loss *without = NULL;
    if (fl_alloc_array((size_t)n_hosts, sizeof *without, (void **)&without) != FL_OK) {
        return;
    }
    for (int i = 0; i < sight->n; i++) {
        without[sight->pair[i].a] = price_loss(controller, sight->pair[i].a);
        without[sight->pair[i].b] = price_loss(controller, sight->pair[i].b);
    }
    while ((host = fl_host_sight_choose(sight, without, n_hosts)) > 0) {
        leave_out(controller, host, now_us);
        fl_host_sight_drop(sight, host);
    }
    note_own(controller);
    fl_free(without);
}

/* ---- ① and ② ---- */

/* Pairs of hosts that have left the run meanwhile tell nothing. */
static void drop_gone(fl_controller *controller)
{
    for (int i = 1; i < controller->options->hosts->n; i++) {
        if (!is_in_run(&controller->hosts.records[i])) {
            fl_host_sight_drop(&controller->host_pairs.sight, i);
        }
    }
}

static bool ask_hosts(fl_controller *controller, int64_t now_us)
{
    fl_host_pairs *pairs = &controller->host_pairs;
    int64_t try_ms = controller->options->job->fault.detect_ms * TRY_PERCENT / 100;
    try_ms = try_ms > TRY_MOST_MS ? TRY_MOST_MS : try_ms < TRY_LEAST_MS ? TRY_LEAST_MS : try_ms;
    if (!fl_agent_ask_reach(controller->agent, try_ms)) {
        return false;
    }
    pairs->state = FL_HOST_PAIRS_ASKED;
    pairs->since_us = now_us;
    pairs->stood_us = fl_standstill_since(controller->workers, controller->n_workers,
                                          controller->recovery.trained_us, now_us);
    pairs->timeout_ms = try_ms;
    return true;
}

static bool await_answers(fl_controller *controller, int64_t now_us)
{
    fl_host_pairs *pairs = &controller->host_pairs;
    int64_t most_us = pairs->timeout_ms * 1000 + SLACK_US, passed_us = now_us - pairs->since_us;
    bool late = passed_us > most_us;
    if (!pairs->sight.complete && !late) {
        return true;
    }
    drop_gone(controller);
    bool young = fl_worker_pairs_add(controller, pairs->timeout_ms, now_us, &pairs->sight);
    if (young && pairs->sight.n == 0 && passed_us < YOUNG_TIMES * most_us) {
        return true;
    }
    pairs->state = FL_HOST_PAIRS_IDLE;
    decide_hosts(controller, now_us);
    pairs->checked_us = now_us;
    return pairs->state == FL_HOST_PAIRS_LEAVING;
}

static bool await_losses(fl_controller *controller, int64_t now_us)
{
    fl_host_pairs *pairs = &controller->host_pairs;
    bool waits = false;
    for (int i = 1; i < controller->options->hosts->n; i++) {
        const fl_host_record *r = &controller->hosts.records[i];
        waits = waits || (r->apart_from != 0 && is_in_run(r));
    }
    if (waits && now_us - pairs->since_us < LEAVE_US) {
        return true;
    }
    pairs->state = FL_HOST_PAIRS_IDLE;
    return false;
}

static bool has_others(const fl_controller *controller)
{
    const fl_host_record *records = controller->hosts.records;
    int n = 0;
    for (int i = 1; records != NULL && i < controller->options->hosts->n; i++) {
        n += is_in_run(&records[i]);
    }
    return n > 0;
}

bool fl_host_pairs_check(fl_controller *controller, int64_t now_us)
{
    fl_host_pairs *pairs = &controller->host_pairs;
    bool stale = pairs->state != FL_HOST_PAIRS_IDLE &&
                 now_us - pairs->since_us >
                     YOUNG_TIMES * (TRY_MOST_MS * INT64_C(1000) + SLACK_US) + LEAVE_US;
    if (stale) { /* nobody has asked for the outcome of that trial */
        pairs->state = FL_HOST_PAIRS_IDLE;
    }
    if (controller->pass.o != NULL || !has_others(controller)) {
        return false;
    }
    switch (pairs->state) {
    case FL_HOST_PAIRS_ASKED:
        return await_answers(controller, now_us);
    case FL_HOST_PAIRS_LEAVING:
        return await_losses(controller, now_us);
    case FL_HOST_PAIRS_IDLE:
        break;
    }
    bool fresh = pairs->checked_us != 0 && now_us - pairs->checked_us < FRESH_US;
    return !fresh && ask_hosts(controller, now_us);
}

bool fl_host_pairs_check_early(fl_controller *controller, int64_t now_us)
{
    const fl_host_pairs *pairs = &controller->host_pairs;
    bool lately = pairs->state == FL_HOST_PAIRS_IDLE && pairs->checked_us != 0 &&
                  now_us - pairs->checked_us < controller->shutdown.limits.silence_us;
    return !lately && fl_host_pairs_check(controller, now_us);
}

void fl_host_pairs_forget(fl_controller *controller)
{
    fl_host_pairs *pairs = &controller->host_pairs;
    pairs->state = pairs->state == FL_HOST_PAIRS_ASKED ? FL_HOST_PAIRS_IDLE : pairs->state;
}

const char *fl_host_pairs_cut_worker(const fl_controller *controller, int *who)
{
    const char *why = controller->host_pairs.own_why;
    int last = -1;
    for (int rank = 0; why[0] != '\0' && rank < controller->options->hosts->host[0].n; rank++) {
        const fl_worker *w = &controller->workers[rank];
        last = fl_worker_is_awaited(w) ? rank : last;
    }
    *who = last;
    return last >= 0 ? why : NULL;
}

bool fl_host_pairs_may_explain(const fl_controller *controller, fl_loss_kind kind, int who)
{
    return kind == FL_LOSS_STUCK || kind == FL_LOSS_NEVER_READY ||
           (kind == FL_LOSS_REPORTED && who >= 0 &&
            fl_status_is_regroup(controller->workers[who].failure));
}

/* ---- the start, a transition, the end ---- */

static int64_t count_ready(const fl_controller *controller, bool *linked)
{
    int64_t n = 0;
    *linked = true;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        n += w->ready;
        *linked = *linked && (w->linked || w->departed);
    }
    return n;
}

/* How many have finished, while others wait for the meeting at the end of the run; 0: not yet. */
static int64_t count_finished(const fl_controller *controller)
{
    int64_t n_done = 0, n_left = 0;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        n_done += w->done && !w->departed;
        n_left += fl_worker_is_awaited(w);
    }
    return n_left > 0 ? n_done : 0;
}

/* How far the workers are that open connections, at the start of the run or for the next
 * generation, or that meet at its end: another number whenever one more is ready. 0: none does. */
static int64_t progress_of(const fl_controller *controller)
{
    const fl_transition *t = &controller->elastic.transition;
    bool linked;
    if (controller->shutdown.phase.state == FL_CONTROLLER_STARTING) {
        int64_t n = count_ready(controller, &linked);
        return linked ? 1 + n : 0;
    }
    return t->state == FL_ELASTIC_PREPARING
               ? ((int64_t)t->next.generation << 16) + 1 + t->n_ready + t->n_refused
               : -count_finished(controller);
}

bool fl_host_pairs_check_meeting(fl_controller *controller, int64_t now_us)
{
    fl_host_pairs *pairs = &controller->host_pairs;
    int64_t progress = progress_of(controller);
    if (progress != pairs->progress) {
        pairs->progress = progress;
        pairs->idle_us = now_us;
    }
    const fl_watch_limits *limits = &controller->shutdown.limits;
    int64_t passed_us = now_us - pairs->idle_us;
    if (progress == 0 || passed_us < limits->trial_us) {
        return false;
    }
    if (passed_us < limits->silence_us) {
        return fl_host_pairs_check_early(controller, now_us);
    }
    bool waits = fl_host_pairs_check(controller, now_us);
    if (!waits) { /* a long while until the next one */
        pairs->idle_us = now_us + PAUSE_TIMES * limits->silence_us;
    }
    return waits;
}
