#include "control/observe/metrics.h"

#include "control/events/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const fl_metrics_parts[FL_METRICS_PARTS] = {"compute", "wait", "all_reduce_wait",
                                                        "optimizer", "data"};

/* ---- text that may exceed its buffer ---- */

typedef struct out {
    char *text;
    size_t size, n; /* n: length of the whole text, also of the part that did not fit */
} out;

static void put_bytes(out *o, const char *bytes, size_t n)
{
    if (o->n + 1 < o->size) {
        size_t room = o->size - 1 - o->n, fits = n < room ? n : room;
        memcpy(o->text + o->n, bytes, fits);
        o->text[o->n + fits] = 0;
    }
    o->n += n;
}

static void put_text(out *o, const char *text)
{
    put_bytes(o, text, strlen(text));
}

/* ---- families ---- */

static void family(out *o, const char *name, const char *type, const char *help)
{
    const char *const parts[] = {"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        put_text(o, parts[i]);
    }
}

/* Escape a label's value: backslash, quote and newline. */
static void put_value(out *o, const char *value)
{
    for (const char *c = value; *c != 0; c++) {
        if (*c == '\\' || *c == '"') {
            put_bytes(o, "\\", 1);
            put_bytes(o, c, 1);
        } else if (*c == '\n') {
            put_bytes(o, "\\n", 2);
        } else {
            put_bytes(o, c, 1);
        }
    }
}

/* labels: name, value, ..., NULL; then the sample's value. */
static void begin_sample(out *o, const char *name, const char *const *labels)
{
    put_text(o, name);
    for (int i = 0; labels != NULL && labels[i] != NULL; i += 2) {
        put_text(o, i == 0 ? "{" : ",");
        put_text(o, labels[i]);
        put_text(o, "=\"");
        put_value(o, labels[i + 1]);
        put_text(o, "\"");
    }
    put_text(o, labels != NULL && labels[0] != NULL ? "} " : " ");
}

static void real(out *o, const char *name, const char *const *labels, double value)
{
    char digits[FL_JSON_DECIMAL_MAX];
    begin_sample(o, name, labels);
    put_text(o, fl_json_decimal(value, digits));
    put_text(o, "\n");
}

static void integer(out *o, const char *name, const char *const *labels, int64_t value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    begin_sample(o, name, labels);
    put_text(o, digits);
    put_text(o, "\n");
}

static void counter(out *o, const char *name, const char *help, int64_t value)
{
    family(o, name, "counter", help);
    integer(o, name, NULL, value);
}

static void gauge(out *o, const char *name, const char *help, int64_t value)
{
    family(o, name, "gauge", help);
    integer(o, name, NULL, value);
}

/* Left out while unknown. */
static void level(out *o, const char *name, const char *help, double value)
{
    if (isfinite(value)) {
        family(o, name, "gauge", help);
        real(o, name, NULL, value);
    }
}

#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A summary without quantiles: count and sum. */
static void summary(out *o, const char *name, const char *help, double sum, int64_t count)
{
    char part[64];
    family(o, name, "summary", help);
    snprintf(part, sizeof part, "%s_sum", name);
    real(o, part, NULL, sum);
    snprintf(part, sizeof part, "%s_count", name);
    integer(o, part, NULL, count);
}

/* ---- the run ---- */

static void put_run(out *o, const fl_metrics *m)
{
    static const char *const states[] = {"starting",  "running", "paused", "stopping",
                                         "finishing", "ending",  "over"};
    family(o, "frostline_build_info", "gauge", "The version of Frostline.");
    integer(o, "frostline_build_info", LABELS("version", m->version), 1);
    family(o, "frostline_run_info", "gauge", "The job and the run.");
    integer(o, "frostline_run_info", LABELS("job", m->job, "run", m->run), 1);
    level(o, "frostline_run_start_time_seconds", "When the run began, since 1970.",
          m->start_time_s);
    family(o, "frostline_run_state", "gauge", "1 for the state that the run is in.");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        integer(o, "frostline_run_state", LABELS("state", states[i]),
                strcmp(states[i], m->state) == 0);
    }
}

static void put_progress(out *o, const fl_metrics *m)
{
    counter(o, "frostline_steps_total", "Steps finished.", m->steps);
    gauge(o, "frostline_planned_steps", "Steps of the whole run.", m->planned_steps);
    counter(o, "frostline_epochs_total", "Epochs finished.", m->epochs);
    gauge(o, "frostline_planned_epochs", "Epochs of the whole run.", m->planned_epochs);
    counter(o, "frostline_samples_total", "Samples trained on.", m->samples);
    counter(o, "frostline_tokens_total", "Tokens of these samples.", m->tokens);
    summary(o, "frostline_step_seconds", "Time that steps took.", m->step_seconds_sum, m->steps);
    level(o, "frostline_predicted_step_seconds", "Predicted step time of the running plan.",
          m->predicted_step_seconds);
    level(o, "frostline_mfu_ratio", "Model FLOPs utilization.", m->mfu);
    level(o, "frostline_gradient_norm", "Norm of the gradient of the last step, before clipping.",
          m->gradient_norm);
    level(o, "frostline_learning_rate", "Learning rate of the last step.", m->learning_rate);
}

static bool any_is_finite(const fl_metric_means *means, int n)
{
    for (int i = 0; i < n && i < means->n; i++) {
        if (isfinite(means->mean[i])) {
            return true;
        }
    }
    return false;
}

/* The metrics of the model's loss on some samples; unknown values are left out. */
static void put_loss_metrics(out *o, const fl_metrics *m, const char *name, const char *samples,
                             const fl_metric_means *means)
{
    for (int i = 0; i < m->loss_metrics.n && i < means->n; i++) {
        if (isfinite(means->mean[i])) {
            real(o, name, LABELS("metric", m->loss_metrics.metric[i].name, "samples", samples),
                 means->mean[i]);
        }
    }
}

static void put_loss(out *o, const fl_metrics *m)
{
    static const char *const name = "frostline_loss_metric";
    int n = m->loss_metrics.n;
    level(o, "frostline_loss", "Training loss of the last step.", m->loss);
    level(o, "frostline_validation_loss", "Loss of the last evaluation on validation samples.",
          m->validation_loss);
    level(o, "frostline_validation_accuracy_ratio",
          "Accuracy of the last evaluation on validation samples.", m->validation_accuracy);
    level(o, "frostline_test_loss", "Loss of the last evaluation on test samples.", m->test_loss);
    level(o, "frostline_test_accuracy_ratio", "Accuracy of the last evaluation on test samples.",
          m->test_accuracy);
    if (any_is_finite(&m->train_metrics, n) || any_is_finite(&m->validation_metrics, n) ||
        any_is_finite(&m->test_metrics, n)) {
        family(o, name, "gauge", "A metric of the loss, of the last step or evaluation.");
        put_loss_metrics(o, m, name, "train", &m->train_metrics);
        put_loss_metrics(o, m, name, "validation", &m->validation_metrics);
        put_loss_metrics(o, m, name, "test", &m->test_metrics);
    }
}

static void put_plan(out *o, const fl_metrics *m)
{
    gauge(o, "frostline_generation", "Number of the plan that runs.", m->generation);
    gauge(o, "frostline_blocks", "Blocks of the model.", m->blocks);
    gauge(o, "frostline_frozen_blocks", "Blocks that are frozen (F).", m->frozen);
    gauge(o, "frostline_stages", "Stages of a pipeline (K).", m->stages);
    gauge(o, "frostline_replicas", "Pipelines (R).", m->replicas);
    gauge(o, "frostline_micro_batches", "Micro-batches of a pipeline and step (M).",
          m->micro_batches);
    family(o, "frostline_transitions_total", "counter", "Changes of plan: committed or cancelled.");
    integer(o, "frostline_transitions_total", LABELS("outcome", "committed"), m->n_committed);
    integer(o, "frostline_transitions_total", LABELS("outcome", "cancelled"), m->n_cancelled);
    summary(o, "frostline_transition_stall_seconds",
            "Time that training was paused for changes of plan.", m->stall_seconds_sum,
            m->n_committed);
    level(o, "frostline_transition_last_stall_seconds",
          "Time that training was paused for the last change of plan.", m->last_stall_seconds);
    counter(o, "frostline_migrated_bytes_total",
            "Weights and moments sent between workers for changes of plan.", m->migrated_bytes);
    counter(o, "frostline_worker_losses_total", "Workers lost, after which the run went on.",
            m->n_losses);
    summary(o, "frostline_recovery_seconds", "Time from a loss until training had gone on.",
            m->recovery_seconds_sum, m->n_recoveries + m->n_returns);
    counter(o, "frostline_run_returns_total",
            "Losses after which the run went back to a snapshot or a checkpoint.", m->n_returns);
    counter(o, "frostline_steps_repeated_total", "Steps that were taken again for that.",
            m->n_repeated);
    counter(o, "frostline_snapshots_total", "Snapshots of the state in memory.", m->n_snapshots);
}

static void put_checkpoints(out *o, const fl_metrics *m)
{
    static const char *const name = "frostline_checkpoints_total";
    family(o, name, "counter", "Checkpoints: written, or failed to be written.");
    integer(o, name, LABELS("outcome", "written"), m->n_checkpoints);
    integer(o, name, LABELS("outcome", "failed"), m->n_checkpoints_failed);
    if (m->checkpoint_step >= 0) {
        gauge(o, "frostline_checkpoint_step", "Finished steps of the newest checkpoint.",
              m->checkpoint_step);
        gauge(o, "frostline_checkpoint_bytes",
              "Bytes written for the newest checkpoint, without links to older ones.",
              m->checkpoint_bytes);
    }
    level(o, "frostline_checkpoint_seconds",
          "Time from the request for the newest checkpoint until it was durable.",
          m->checkpoint_seconds);
    level(o, "frostline_checkpoint_age_seconds", "Time since the newest checkpoint became durable.",
          m->checkpoint_age_seconds);
}

static void put_cache(out *o, const fl_metrics *m)
{
    static const char *const name = "frostline_cache_samples_total";
    static const char *const hits = "frostline_cache_hits_total";
    static const char *const limit = "frostline_cache_limit_bytes";
    gauge(o, "frostline_cache_in_use", "1 while frozen blocks are read from the cache.",
          m->cache_used);
    family(o, name, "counter", "Samples found in the cache, found for fewer blocks, or not found.");
    integer(o, name, LABELS("result", "hit"), m->cache_hits);
    integer(o, name, LABELS("result", "upgrade"), m->cache_upgrades);
    integer(o, name, LABELS("result", "miss"), m->cache_misses);
    family(o, hits, "counter", "Samples found in the cache, by where they were.");
    integer(o, hits, LABELS("tier", "store"),
            m->cache_hits - m->cache_device_hits - m->cache_pinned_hits);
    integer(o, hits, LABELS("tier", "pinned"), m->cache_pinned_hits);
    integer(o, hits, LABELS("tier", "device"), m->cache_device_hits);
    gauge(o, "frostline_cache_values", "Samples in the cache.", m->cache_values);
    gauge(o, "frostline_cache_used_bytes", "Bytes that cached values take.", m->cache_used_bytes);
    family(o, limit, "gauge", "Bytes that cached values may take.");
    integer(o, limit, LABELS("tier", "memory"), m->cache_memory_bytes);
    integer(o, limit, LABELS("tier", "disk"), m->cache_disk_bytes);
    counter(o, "frostline_cache_evicted_total", "Values evicted from the cache.", m->cache_evicted);
}

static void put_control(out *o, const fl_metrics *m)
{
    static const char *const requests = "frostline_control_requests_total";
    counter(o, "frostline_stragglers_total",
            "Times that a worker was reported as slow in its own compute.", m->n_stragglers);
    counter(o, "frostline_events_total", "Events published.", m->n_events);
    counter(o, "frostline_events_dropped_total", "Events that a slow subscriber did not receive.",
            m->n_events_dropped);
    family(o, requests, "counter", "Requests to the control socket.");
    integer(o, requests, LABELS("outcome", "ok"), m->n_requests);
    integer(o, requests, LABELS("outcome", "refused"), m->n_requests_refused);
}

/* ---- the hosts ---- */

static double end_of(const fl_metrics_host *h)
{
    return h->end_time_s;
}

static double clock_of(const fl_metrics_host *h)
{
    return h->clock_offset_s;
}

static double round_trip_of(const fl_metrics_host *h)
{
    return h->round_trip_s;
}

/* Hosts of which it is not known are left out. */
static void each_host(out *o, const fl_metrics *m, const char *name, const char *help,
                      double (*of)(const fl_metrics_host *))
{
    bool any = false;
    for (int i = 0; i < m->n_hosts; i++) {
        double value = of(&m->hosts[i]);
        if (isfinite(value) && !any) {
            family(o, name, "gauge", help);
            any = true;
        }
        if (isfinite(value)) {
            real(o, name, LABELS("host", m->hosts[i].name), value);
        }
    }
}

static void put_links(out *o, const fl_metrics *m)
{
    static const char *const latency = "frostline_link_latency_seconds";
    static const char *const rate = "frostline_link_bytes_per_second";
    family(o, latency, "gauge", "Latency of a class of links between workers, as plans know it.");
    for (int i = 0; i < FL_METRICS_LINKS; i++) {
        real(o, latency, LABELS("between", m->links[i].between), m->links[i].latency_seconds);
    }
    family(o, rate, "gauge", "Bandwidth of a class of links between workers, as plans know it.");
    for (int i = 0; i < FL_METRICS_LINKS; i++) {
        real(o, rate, LABELS("between", m->links[i].between), m->links[i].bytes_per_second);
    }
}

/* Of a host that is left out: the one that it does not reach. */
static void put_apart(out *o, const fl_metrics *m)
{
    static const char *const name = "frostline_host_apart";
    bool any = false;
    for (int i = 0; i < m->n_hosts; i++) {
        const fl_metrics_host *h = &m->hosts[i];
        if (h->apart_from == NULL) {
            continue;
        }
        if (!any) {
            family(o, name, "gauge",
                   "A host that the run does without because it and the host `from` do not reach "
                   "each other.");
            any = true;
        }
        integer(o, name, LABELS("host", h->name, "from", h->apart_from), 1);
    }
}

/* Of a run on several hosts. */
static void put_hosts(out *o, const fl_metrics *m)
{
    static const char *const info = "frostline_host_info";
    static const char *const workers = "frostline_host_workers";
    if (m->n_hosts == 0) {
        return;
    }
    family(o, info, "gauge", "A host's address and state.");
    for (int i = 0; i < m->n_hosts; i++) {
        const fl_metrics_host *h = &m->hosts[i];
        integer(o, info, LABELS("host", h->name, "address", h->address, "state", h->state), 1);
    }
    family(o, workers, "gauge", "Workers of a host that are members of the run.");
    for (int i = 0; i < m->n_hosts; i++) {
        integer(o, workers, LABELS("host", m->hosts[i].name), m->hosts[i].n_workers);
    }
    put_apart(o, m);
    each_host(o, m, "frostline_host_end_time_seconds",
              "When a host was drained or lost, since 1970.", end_of);
    each_host(o, m, "frostline_host_clock_offset_seconds", "A host's time of day minus the head's.",
              clock_of);
    each_host(o, m, "frostline_host_round_trip_seconds",
              "A message from the head to a host's agent and back.", round_trip_of);
    put_links(o, m);
}

/* ---- the workers ---- */

/* Labels without a value are left out: that of the host, and those of the GPU. */
static void put_worker_info(out *o, const char *name, const fl_metrics *m, int i)
{
    char rank[16], replica[16], stage[16], gpu[16];
    const fl_metrics_worker *w = &m->workers[i];
    bool has_host = w->host >= 0 && w->host < m->n_hosts, has_gpu = w->gpu_name[0] != '\0';
    const char *labels[16] = {"worker",  rank,
                              "state",   w->state,
                              "replica", w->replica < 0 ? "" : replica,
                              "stage",   w->stage < 0 ? "" : stage};
    int n = 8;
    snprintf(rank, sizeof rank, "%d", i);
    snprintf(replica, sizeof replica, "%d", w->replica);
    snprintf(stage, sizeof stage, "%d", w->stage);
    snprintf(gpu, sizeof gpu, "%d", w->gpu);
    if (has_host) {
        labels[n++] = "host";
        labels[n++] = m->hosts[w->host].name;
    }
    if (has_gpu) {
        labels[n++] = "gpu";
        labels[n++] = gpu;
        labels[n++] = "gpu_name";
        labels[n++] = w->gpu_name;
    }
    integer(o, name, labels, 1);
}

static void put_info(out *o, const fl_metrics *m)
{
    static const char *const name = "frostline_worker_info";
    family(o, name, "gauge", "A worker's state, replica and stage, its host and its GPU.");
    for (int i = 0; i < m->n_workers; i++) {
        put_worker_info(o, name, m, i);
    }
}

static int64_t steps_of(const fl_metrics_worker *w)
{
    return w->steps;
}

static int64_t slow_of(const fl_metrics_worker *w)
{
    return w->slow;
}

static int64_t used_of(const fl_metrics_worker *w)
{
    return w->memory_used_bytes;
}

static int64_t peak_of(const fl_metrics_worker *w)
{
    return w->memory_peak_bytes;
}

static int64_t parked_of(const fl_metrics_worker *w)
{
    return w->memory_parked_bytes;
}

static int64_t workspace_of(const fl_metrics_worker *w)
{
    return w->memory_workspace_bytes;
}

static void each(out *o, const fl_metrics *m, const char *name, const char *type, const char *help,
                 int64_t (*of)(const fl_metrics_worker *))
{
    family(o, name, type, help);
    for (int i = 0; i < m->n_workers; i++) {
        char rank[16];
        snprintf(rank, sizeof rank, "%d", i);
        integer(o, name, LABELS("worker", rank), of(&m->workers[i]));
    }
}

static void put_seconds(out *o, const fl_metrics *m)
{
    static const char *const name = "frostline_worker_seconds_total";
    family(o, name, "counter", "Time of a worker's steps, by activity.");
    for (int i = 0; i < m->n_workers; i++) {
        char rank[16];
        snprintf(rank, sizeof rank, "%d", i);
        for (int part = 0; part < FL_METRICS_PARTS; part++) {
            real(o, name, LABELS("worker", rank, "part", fl_metrics_parts[part]),
                 m->workers[i].seconds[part]);
        }
    }
}

static int64_t captures_of(const fl_metrics_worker *w)
{
    return w->graphs.captures;
}

static int64_t launches_of(const fl_metrics_worker *w)
{
    return w->graphs.launches;
}

static int64_t calls_of(const fl_metrics_worker *w)
{
    return w->graphs.calls;
}

static int64_t graph_memory_of(const fl_metrics_worker *w)
{
    return w->graphs.memory_bytes;
}

static void put_shapes(out *o, const fl_metrics *m)
{
    static const char *const name = "frostline_worker_graph_shapes";
    family(o, name, "gauge", "Shapes of micro-batches, by how they are computed.");
    for (int i = 0; i < m->n_workers; i++) {
        char rank[16];
        const fl_metrics_graphs *g = &m->workers[i].graphs;
        snprintf(rank, sizeof rank, "%d", i);
        integer(o, name, LABELS("worker", rank, "way", "measuring"), g->n_measured);
        integer(o, name, LABELS("worker", rank, "way", "graphs"), g->n_by_graphs);
        integer(o, name, LABELS("worker", rank, "way", "calls"), g->n_by_calls);
    }
}

/* Of devices that have graphs. */
static void put_graphs(out *o, const fl_metrics *m)
{
    bool any = false;
    for (int i = 0; i < m->n_workers; i++) {
        any = any || m->workers[i].graphs.any;
    }
    if (any) {
        each(o, m, "frostline_worker_graph_captures_total", "counter",
             "Forwards, and pieces of backwards, captured as CUDA graphs.", captures_of);
        each(o, m, "frostline_worker_graph_launches_total", "counter", "Launches of these graphs.",
             launches_of);
        each(o, m, "frostline_worker_graph_calls_total", "counter",
             "Forwards and backwards computed call by call, though the device has graphs.",
             calls_of);
        each(o, m, "frostline_worker_graph_memory_bytes", "gauge",
             "The driver's memory for these graphs, outside the budget.", graph_memory_of);
        put_shapes(o, m);
    }
}

static void put_workers(out *o, const fl_metrics *m)
{
    put_info(o, m);
    each(o, m, "frostline_worker_steps_total", "counter", "Steps that a worker has finished.",
         steps_of);
    put_seconds(o, m);
    each(o, m, "frostline_worker_slow", "gauge", "1 for a worker that is reported as slow.",
         slow_of);
    each(o, m, "frostline_worker_memory_used_bytes", "gauge", "Device memory in use.", used_of);
    each(o, m, "frostline_worker_memory_peak_bytes", "gauge", "The most that was in use.", peak_of);
    each(o, m, "frostline_worker_memory_parked_bytes", "gauge",
         "Host memory that keeps the moments of frozen layers, outside the budget.", parked_of);
    each(o, m, "frostline_worker_memory_workspace_bytes", "gauge",
         "Workspaces of kernels, outside the budget.", workspace_of);
    gauge(o, "frostline_worker_memory_budget_bytes", "Device memory that each worker has.",
          m->memory_budget_bytes);
}

size_t fl_metrics_render(const fl_metrics *metrics, char *text, size_t size)
{
    out o = {text, size, 0};
    if (size > 0) {
        text[0] = 0;
    }
    put_run(&o, metrics);
    put_progress(&o, metrics);
    put_loss(&o, metrics);
    put_plan(&o, metrics);
    put_checkpoints(&o, metrics);
    put_cache(&o, metrics);
    put_control(&o, metrics);
    put_hosts(&o, metrics);
    put_workers(&o, metrics);
    put_graphs(&o, metrics);
    return o.n;
}
