#include "launcher/top/model/top_model.h"

#include "launcher/top/model/top_words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How much of a share is from the newest reply: a bar should neither jump nor crawl. */
static const double NEWEST = 0.35;

void fl_top_model_init(fl_top_model *m)
{
    memset(m, 0, sizeof *m);
    m->straggler = m->checkpoint_step = m->best_step = -1;
    m->left_s = m->loss = m->grad_norm = m->lr = m->step_ms = NAN;
    m->evaluated_loss = m->mfu = m->predicted_ms = NAN;
}

/* ---- reading JSON of which nothing is believed ---- */

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value);
    return json_is_number(value) && isfinite(number) ? number : NAN;
}

static int64_t whole(const json_t *object, const char *key, int64_t least, int64_t most)
{
    const json_t *value = json_object_get(object, key);
    int64_t number = json_is_integer(value) ? (int64_t)json_integer_value(value) : least;
    return number < least ? least : number > most ? most : number;
}

static int64_t count_field(const json_t *object, const char *key)
{
    return whole(object, key, 0, INT64_MAX);
}

static void word(const json_t *object, const char *key, char *text, size_t size_bytes)
{
    const char *value = json_string_value(json_object_get(object, key));
    snprintf(text, size_bytes, "%s", value == NULL ? "" : value);
}

/* ---- status ---- */

static void read_plan(fl_top_model *m, const json_t *plan)
{
    const json_t *first = json_object_get(plan, "first"), *cut;
    size_t i;
    m->generation = count_field(plan, "generation");
    m->F = whole(plan, "f", 0, FL_MAX_LAYERS);
    m->K = whole(plan, "k", 1, FL_MAX_STAGES);
    m->R = whole(plan, "r", 1, FL_MAX_WORKERS);
    m->M = whole(plan, "m", 1, INT32_MAX);
    m->frozen_layers = whole(plan, "frozen_layers", 0, FL_MAX_LAYERS);
    m->predicted_ms = real(plan, "predicted_step_ms");
    m->n_first = 0;
    json_array_foreach((json_t *)first, i, cut)
    {
        json_int_t layer = json_integer_value(cut), below = i == 0 ? 0 : m->first[i - 1];
        if (i > (size_t)m->K || layer < below || layer > FL_MAX_LAYERS) {
            m->n_first = 0;
            return;
        }
        m->first[m->n_first++] = (int)layer;
    }
    m->n_first = m->n_first == m->K + 1 ? m->n_first : 0;
}

static void read_pinned(fl_top_model *m, const json_t *pinned)
{
    const json_t *block;
    size_t i;
    memset(m->pinned, 0, sizeof m->pinned);
    json_array_foreach((json_t *)pinned, i, block)
    {
        json_int_t number = json_integer_value(block);
        if (number >= 1 && number <= FL_MAX_LAYERS) {
            m->pinned[number] = true;
        }
    }
}

static void read_cache(fl_top_model *m, const json_t *cache)
{
    word(cache, "state", m->cache, sizeof m->cache);
    m->hits = count_field(cache, "hits");
    m->upgrades = count_field(cache, "upgrades");
    m->misses = count_field(cache, "misses");
    m->cache_used_bytes = count_field(cache, "used_bytes");
    m->cache_bytes = whole(cache, "memory_bytes", 0, INT64_MAX / 2) +
                     whole(cache, "disk_bytes", 0, INT64_MAX / 2);
}

static void read_checkpoints(fl_top_model *m, const json_t *checkpoints)
{
    m->checkpoint_step = whole(checkpoints, "step", -1, INT64_MAX / 2);
    m->best_step = whole(checkpoints, "best_step", -1, INT64_MAX / 2);
    m->checkpoint_age_s = real(checkpoints, "age_s");
    m->checkpoint_s = real(checkpoints, "seconds");
    m->checkpoint_bytes = count_field(checkpoints, "bytes");
    m->n_checkpoints_failed = count_field(checkpoints, "failed");
}

static void read_recovery(fl_top_model *m, const json_t *recovery)
{
    m->n_losses = count_field(recovery, "losses");
    m->n_returns = count_field(recovery, "returns");
    m->n_repeated = count_field(recovery, "repeated_steps");
    m->snapshot_step = whole(recovery, "snapshot_step", -1, INT64_MAX / 2);
}

static void read_metrics(fl_top_model *m, const json_t *metrics)
{
    const json_t *metric;
    size_t i;
    m->n_metrics = 0;
    json_array_foreach((json_t *)metrics, i, metric)
    {
        const char *name = json_string_value(json_object_get(metric, "name"));
        if (name != NULL && fl_metric_name_is_valid(name) && m->n_metrics < FL_METRICS_MAX) {
            fl_top_metric *to = &m->metric[m->n_metrics++];
            word(metric, "name", to->name, sizeof to->name);
            to->is_share = json_is_true(json_object_get(metric, "share"));
            to->value = real(metric, "evaluated");
        }
    }
}

static void read_progress(fl_top_model *m, const json_t *s)
{
    m->step = count_field(s, "step");
    m->steps = count_field(s, "steps");
    m->epoch = count_field(s, "epoch");
    m->epochs = count_field(s, "epochs");
    m->time_s = real(s, "time");
    m->left_s = real(s, "left_s");
    m->loss = real(s, "loss");
    m->grad_norm = real(s, "grad_norm");
    m->lr = real(s, "lr");
    m->step_ms = real(s, "step_ms");
    m->samples_per_s = real(s, "samples_per_s");
    const char *split = json_string_value(json_object_get(s, "evaluated_on"));
    m->validates = split != NULL && strcmp(split, "validation") == 0;
    m->evaluated_loss = real(s, m->validates ? "validation_loss" : "test_loss");
    m->mfu = real(s, "mfu");
    m->blocks = whole(s, "blocks", 0, FL_MAX_LAYERS);
    m->straggler = whole(s, "straggler", -1, FL_MAX_WORKERS);
    read_metrics(m, json_object_get(s, "loss_metrics"));
}

/* ---- hosts ---- */

static void read_hosts(fl_top_model *m, const json_t *status)
{
    const json_t *object;
    size_t i;
    m->n_hosts = 0;
    m->link_us = m->link_bytes_per_s = NAN;
    json_array_foreach(json_object_get(status, "hosts"), i, object)
    {
        if (m->n_hosts < FL_MAX_WORKERS) {
            fl_top_host *h = &m->host[m->n_hosts++];
            word(object, "name", h->name, sizeof h->name);
            word(object, "state", h->state, sizeof h->state);
            h->n_workers = (int)whole(object, "workers", 0, FL_MAX_WORKERS);
        }
    }
    json_array_foreach(json_object_get(status, "links"), i, object)
    {
        const char *between = json_string_value(json_object_get(object, "between"));
        if (between != NULL && strcmp(between, "hosts") == 0) {
            m->link_us = real(object, "latency_us");
            m->link_bytes_per_s = real(object, "bytes_per_s");
        }
    }
}

/* ---- workers ---- */

static double seconds(const json_t *object, const char *key)
{
    double value = real(object, key);
    return value > 0.0 ? value : 0.0;
}

/* What a worker's shares are measured from. */
typedef struct baseline {
    double spent_s[FL_TOP_SHARES], since_s;
} baseline;

/* Zero if the sums restarted (at the end of an epoch) or were not seen before. */
static baseline baseline_of(const fl_top_worker *before, double times_s)
{
    baseline base = {.since_s = 0.0};
    if (before != NULL && times_s >= before->since_s) {
        memcpy(base.spent_s, before->spent_s, sizeof base.spent_s);
        base.since_s = before->since_s;
    }
    return base;
}

/* Workers tell of whole steps: between two of them nothing is known, unless it takes too long. */
static bool tells(const fl_top_worker *w, const fl_top_worker *before, double passed_s,
                  double patience_s)
{
    return before == NULL || w->steps != before->steps || passed_s > patience_s;
}

static void update_shares(fl_top_worker *w, const fl_top_worker *before, double times_s,
                          double patience_s)
{
    baseline base = baseline_of(before, times_s);
    double sum = 0.0, now[FL_TOP_SHARES], passed_s = times_s - base.since_s;
    if (!tells(w, before, passed_s, patience_s)) {
        memcpy(w->share, before->share, sizeof w->share);
        memcpy(w->spent_s, base.spent_s, sizeof w->spent_s);
        w->since_s = base.since_s;
        return;
    }
    for (int i = 0; i < FL_TOP_IDLE; i++) {
        now[i] = fmax(w->spent_s[i] - base.spent_s[i], 0.0);
        sum += now[i];
    }
    double whole_s = fmax(passed_s, sum); /* a report may be ahead of the watch */
    now[FL_TOP_IDLE] = whole_s - sum;
    for (int i = 0; i < FL_TOP_SHARES && whole_s > 0.0; i++) {
        double old = before == NULL ? now[i] / whole_s : before->share[i];
        w->share[i] = NEWEST * now[i] / whole_s + (1.0 - NEWEST) * old;
    }
    w->since_s = times_s;
}

static void read_worker(fl_top_worker *w, const json_t *object)
{
    memset(w, 0, sizeof *w);
    w->rank = (int)whole(object, "rank", 0, FL_MAX_WORKERS - 1);
    w->replica = (int)whole(object, "replica", -1, FL_MAX_WORKERS - 1);
    w->stage = (int)whole(object, "stage", -1, FL_MAX_STAGES - 1);
    word(object, "host", w->host, sizeof w->host);
    word(object, "state", w->state, sizeof w->state);
    double restarts_in_s = real(object, "restarts_in_s");
    if (!isnan(restarts_in_s)) {
        snprintf(w->state, sizeof w->state, "restarts in %.0f s", fmin(restarts_in_s, 9999.0));
    }
    word(object, "operation", w->operation, sizeof w->operation);
    w->steps = count_field(object, "steps");
    w->gpu = (int)whole(object, "gpu", -1, FL_MAX_WORKERS - 1);
    w->memory_bytes = count_field(object, "memory_peak_bytes");
    if (w->gpu >= 0) {
        w->memory_bytes += count_field(object, "memory_workspace_bytes");
    }
    w->spent_s[FL_TOP_COMPUTE] = seconds(object, "compute_s") + seconds(object, "optimizer_s");
    w->spent_s[FL_TOP_WAIT] = seconds(object, "wait_s");
    w->spent_s[FL_TOP_REDUCE] = seconds(object, "reduce_wait_s");
    w->spent_s[FL_TOP_DATA] = seconds(object, "data_s");
}

static int by_place(const void *left, const void *right)
{
    const fl_top_worker *a = left, *b = right;
    bool none = a->stage < 0 || a->replica < 0, other = b->stage < 0 || b->replica < 0;
    if (none != other) {
        return none ? 1 : -1;
    }
    if (!none && a->replica != b->replica) {
        return a->replica < b->replica ? -1 : 1;
    }
    if (!none && a->stage != b->stage) {
        return a->stage < b->stage ? -1 : 1;
    }
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static const fl_top_worker *of_rank(const fl_top_worker *workers, int n, int rank)
{
    for (int i = 0; i < n; i++) {
        if (workers[i].rank == rank) {
            return &workers[i];
        }
    }
    return NULL;
}

static void read_workers(fl_top_model *m, const json_t *array, double times_s)
{
    int n_before = m->n_workers;
    double patience_s = fmax(2.0, 3e-3 * (isnan(m->step_ms) ? 0.0 : m->step_ms));
    const json_t *object;
    size_t i;
    memcpy(m->before, m->worker, (size_t)n_before * sizeof *m->before);
    m->n_workers = 0;
    json_array_foreach((json_t *)array, i, object)
    {
        if (m->n_workers == FL_MAX_WORKERS) {
            break;
        }
        fl_top_worker *w = &m->worker[m->n_workers++];
        read_worker(w, object);
        update_shares(w, of_rank(m->before, n_before, w->rank), times_s, patience_s);
    }
    qsort(m->worker, (size_t)m->n_workers, sizeof *m->worker, by_place);
}

bool fl_top_model_status(fl_top_model *m, const json_t *result)
{
    if (!json_is_object(json_object_get(result, "plan")) ||
        !json_is_array(json_object_get(result, "workers"))) {
        return false;
    }
    m->known = true;
    word(result, "job", m->job, sizeof m->job);
    word(result, "state", m->state, sizeof m->state);
    word(result, "transition", m->transition, sizeof m->transition);
    read_progress(m, result);
    read_plan(m, json_object_get(result, "plan"));
    read_pinned(m, json_object_get(result, "pinned"));
    read_cache(m, json_object_get(result, "cache"));
    read_checkpoints(m, json_object_get(result, "checkpoints"));
    read_recovery(m, json_object_get(result, "recovery"));
    read_hosts(m, result);
    read_workers(m, json_object_get(result, "workers"), seconds(result, "times_s"));
    if (!m->every_step && m->step > 0) {
        fl_top_series_add(&m->loss_curve, m->step, m->loss);
        fl_top_series_add(&m->rate_curve, m->step, m->samples_per_s);
    }
    return true;
}

/* ---- steps and events ---- */

void fl_top_model_step(fl_top_model *m, const char *line)
{
    json_t *step = json_loads(line, 0, NULL);
    int64_t number = whole(step, "step", -1, INT64_MAX - 1);
    double ms = real(step, "ms");
    if (number >= 0) {
        fl_top_series_add(&m->loss_curve, number, real(step, "loss"));
        fl_top_series_add(&m->rate_curve, number, real(step, "samples") / ms * 1e3);
    }
    json_decref(step);
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

static void end_by(fl_top_model *m, const char *name, const json_t *event)
{
    static const char *const last[] = {"run.finished", "run.stopped", "run.failed", NULL};
    const char *message = json_string_value(json_object_get(event, "message"));
    if (!is_one_of(name, last)) {
        return;
    }
    m->over = true;
    m->step = whole(event, "steps", m->step, INT64_MAX / 2); /* the last answer came before it */
    snprintf(m->how, sizeof m->how, "%s%s%.*s", name + strlen("run."),
             message == NULL || *message == 0 ? "" : ": ",
             message == NULL ? 0 : (int)strcspn(message, "\n"), message == NULL ? "" : message);
}

void fl_top_model_event(fl_top_model *m, const char *line)
{
    static const char *const warnings[] = {
        "run.stalled",          "run.failed",        "worker.lost",    "worker.slow",
        "agent.lost",           "host.lost",         "host.refused",   "trace.failed",
        "transition.cancelled", "checkpoint.failed", "step.nonfinite", NULL};
    json_t *event = json_loads(line, 0, NULL);
    const char *name = json_string_value(json_object_get(event, "event"));
    if (name != NULL) {
        fl_top_event *to = &m->event[m->n_events++ % FL_TOP_EVENTS];
        (void)fl_top_words(event, to->text, sizeof to->text);
        to->warns = is_one_of(name, warnings);
        end_by(m, name, event);
    }
    json_decref(event);
}

void fl_top_model_forget_events(fl_top_model *m)
{
    m->n_events = m->n_lost = 0;
}

void fl_top_model_forget_steps(fl_top_model *m)
{
    m->loss_curve.n = m->rate_curve.n = 0;
    m->loss_curve.stride = m->rate_curve.stride = 0;
}

void fl_top_model_end(fl_top_model *m, const char *how)
{
    if (!m->over) {
        snprintf(m->how, sizeof m->how, "%s", how);
    }
    m->over = true;
}

const fl_top_event *fl_top_model_event_at(const fl_top_model *m, int64_t i)
{
    int64_t kept = m->n_events < FL_TOP_EVENTS ? m->n_events : FL_TOP_EVENTS;
    return i < 0 || i >= kept ? NULL : &m->event[(m->n_events - 1 - i) % FL_TOP_EVENTS];
}

bool fl_top_model_is_slow(const fl_top_model *m, int rank)
{
    return m->straggler >= 0 && m->straggler == rank;
}
