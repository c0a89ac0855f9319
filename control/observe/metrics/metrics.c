#include "control/observe/metrics/metrics_text.h"

#include <math.h>
#include <string.h>

static void put_run(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const states[] = {"starting",  "running", "paused", "stopping",
                                         "finishing", "ending",  "over"};
    fl__metrics_family(o, "frostline_build_info", "gauge", "The version of Frostline.");
    fl__metrics_integer(o, "frostline_build_info", FL__METRICS_LABELS("version", m->version), 1);
    fl__metrics_family(o, "frostline_run_info", "gauge", "The job and the run.");
    fl__metrics_integer(o, "frostline_run_info", FL__METRICS_LABELS("job", m->job, "run", m->run),
                        1);
    fl__metrics_level(o, "frostline_run_start_time_seconds", "When the run began, since 1970.",
                      m->start_time_s);
    fl__metrics_family(o, "frostline_run_state", "gauge", "1 for the state that the run is in.");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        fl__metrics_integer(o, "frostline_run_state", FL__METRICS_LABELS("state", states[i]),
                            strcmp(states[i], m->state) == 0);
    }
}

static void put_progress(fl__metrics_text *o, const fl_metrics *m)
{
    fl__metrics_counter(o, "frostline_steps_total", "Steps finished.", m->steps);
    fl__metrics_gauge(o, "frostline_planned_steps", "Steps of the whole run.", m->planned_steps);
    fl__metrics_counter(o, "frostline_epochs_total", "Epochs finished.", m->epochs);
    fl__metrics_gauge(o, "frostline_planned_epochs", "Epochs of the whole run.", m->planned_epochs);
    fl__metrics_counter(o, "frostline_samples_total", "Samples trained on.", m->samples);
    fl__metrics_counter(o, "frostline_tokens_total", "Tokens of these samples.", m->tokens);
    fl__metrics_summary(o, "frostline_step_seconds", "Time that steps took.", m->step_seconds_sum,
                        m->steps);
    fl__metrics_level(o, "frostline_predicted_step_seconds",
                      "Predicted step time of the running plan.", m->predicted_step_seconds);
    fl__metrics_level(o, "frostline_mfu_ratio", "Model FLOPs utilization.", m->mfu);
    fl__metrics_level(o, "frostline_gradient_norm",
                      "Norm of the gradient of the last step, before clipping.", m->gradient_norm);
    fl__metrics_level(o, "frostline_learning_rate", "Learning rate of the last step.",
                      m->learning_rate);
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
static void put_loss_metrics(fl__metrics_text *o, const fl_metrics *m, const char *name,
                             const char *samples, const fl_metric_means *means)
{
    for (int i = 0; i < m->loss_metrics.n && i < means->n; i++) {
        if (isfinite(means->mean[i])) {
            fl__metrics_real(
                o, name,
                FL__METRICS_LABELS("metric", m->loss_metrics.metric[i].name, "samples", samples),
                means->mean[i]);
        }
    }
}

static void put_loss(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const name = "frostline_loss_metric";
    int n = m->loss_metrics.n;
    fl__metrics_level(o, "frostline_loss", "Training loss of the last step.", m->loss);
    fl__metrics_level(o, "frostline_validation_loss",
                      "Loss of the last evaluation on validation samples.", m->validation_loss);
    fl__metrics_level(o, "frostline_validation_accuracy_ratio",
                      "Accuracy of the last evaluation on validation samples.",
                      m->validation_accuracy);
    fl__metrics_level(o, "frostline_test_loss", "Loss of the last evaluation on test samples.",
                      m->test_loss);
    fl__metrics_level(o, "frostline_test_accuracy_ratio",
                      "Accuracy of the last evaluation on test samples.", m->test_accuracy);
    if (any_is_finite(&m->train_metrics, n) || any_is_finite(&m->validation_metrics, n) ||
        any_is_finite(&m->test_metrics, n)) {
        fl__metrics_family(o, name, "gauge",
                           "A metric of the loss, of the last step or evaluation.");
        put_loss_metrics(o, m, name, "train", &m->train_metrics);
        put_loss_metrics(o, m, name, "validation", &m->validation_metrics);
        put_loss_metrics(o, m, name, "test", &m->test_metrics);
    }
}

static void put_plan(fl__metrics_text *o, const fl_metrics *m)
{
    fl__metrics_gauge(o, "frostline_generation", "Number of the plan that runs.", m->generation);
    fl__metrics_gauge(o, "frostline_blocks", "Blocks of the model.", m->blocks);
    fl__metrics_gauge(o, "frostline_frozen_blocks", "Blocks that are frozen (F).", m->frozen);
    fl__metrics_gauge(o, "frostline_stages", "Stages of a pipeline (K).", m->stages);
    fl__metrics_gauge(o, "frostline_replicas", "Pipelines (R).", m->replicas);
    fl__metrics_gauge(o, "frostline_micro_batches", "Micro-batches of a pipeline and step (M).",
                      m->micro_batches);
    fl__metrics_family(o, "frostline_transitions_total", "counter",
                       "Changes of plan: committed or cancelled.");
    fl__metrics_integer(o, "frostline_transitions_total",
                        FL__METRICS_LABELS("outcome", "committed"), m->n_committed);
    fl__metrics_integer(o, "frostline_transitions_total",
                        FL__METRICS_LABELS("outcome", "cancelled"), m->n_cancelled);
    fl__metrics_summary(o, "frostline_transition_stall_seconds",
                        "Time that training was paused for changes of plan.", m->stall_seconds_sum,
                        m->n_committed);
    fl__metrics_level(o, "frostline_transition_last_stall_seconds",
                      "Time that training was paused for the last change of plan.",
                      m->last_stall_seconds);
    fl__metrics_counter(o, "frostline_migrated_bytes_total",
                        "Weights and moments sent between workers for changes of plan.",
                        m->migrated_bytes);
    fl__metrics_counter(o, "frostline_worker_losses_total",
                        "Workers lost, after which the run went on.", m->n_losses);
    fl__metrics_summary(o, "frostline_recovery_seconds",
                        "Time from a loss until training had gone on.", m->recovery_seconds_sum,
                        m->n_recoveries + m->n_returns);
    fl__metrics_counter(o, "frostline_run_returns_total",
                        "Losses after which the run went back to a snapshot or a checkpoint.",
                        m->n_returns);
    fl__metrics_counter(o, "frostline_steps_repeated_total",
                        "Steps that were taken again for that.", m->n_repeated);
    fl__metrics_counter(o, "frostline_snapshots_total", "Snapshots of the state in memory.",
                        m->n_snapshots);
}

static void put_checkpoints(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const name = "frostline_checkpoints_total";
    fl__metrics_family(o, name, "counter", "Checkpoints: written, or failed to be written.");
    fl__metrics_integer(o, name, FL__METRICS_LABELS("outcome", "written"), m->n_checkpoints);
    fl__metrics_integer(o, name, FL__METRICS_LABELS("outcome", "failed"), m->n_checkpoints_failed);
    if (m->checkpoint_step >= 0) {
        fl__metrics_gauge(o, "frostline_checkpoint_step",
                          "Finished steps of the newest checkpoint.", m->checkpoint_step);
        fl__metrics_gauge(o, "frostline_checkpoint_bytes",
                          "Bytes written for the newest checkpoint, without links to older ones.",
                          m->checkpoint_bytes);
    }
    fl__metrics_level(o, "frostline_checkpoint_seconds",
                      "Time from the request for the newest checkpoint until it was durable.",
                      m->checkpoint_seconds);
    fl__metrics_level(o, "frostline_checkpoint_age_seconds",
                      "Time since the newest checkpoint became durable.",
                      m->checkpoint_age_seconds);
}

static void put_cache(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const name = "frostline_cache_samples_total";
    static const char *const hits = "frostline_cache_hits_total";
    static const char *const limit = "frostline_cache_limit_bytes";
    fl__metrics_gauge(o, "frostline_cache_in_use", "1 while frozen blocks are read from the cache.",
                      m->cache_used);
    fl__metrics_family(o, name, "counter",
                       "Samples found in the cache, found for fewer blocks, or not found.");
    fl__metrics_integer(o, name, FL__METRICS_LABELS("result", "hit"), m->cache_hits);
    fl__metrics_integer(o, name, FL__METRICS_LABELS("result", "upgrade"), m->cache_upgrades);
    fl__metrics_integer(o, name, FL__METRICS_LABELS("result", "miss"), m->cache_misses);
    fl__metrics_family(o, hits, "counter", "Samples found in the cache, by where they were.");
    fl__metrics_integer(o, hits, FL__METRICS_LABELS("tier", "store"),
                        m->cache_hits - m->cache_device_hits - m->cache_pinned_hits);
    fl__metrics_integer(o, hits, FL__METRICS_LABELS("tier", "pinned"), m->cache_pinned_hits);
    fl__metrics_integer(o, hits, FL__METRICS_LABELS("tier", "device"), m->cache_device_hits);
    fl__metrics_gauge(o, "frostline_cache_values", "Samples in the cache.", m->cache_values);
    fl__metrics_gauge(o, "frostline_cache_used_bytes", "Bytes that cached values take.",
                      m->cache_used_bytes);
    fl__metrics_family(o, limit, "gauge", "Bytes that cached values may take.");
    fl__metrics_integer(o, limit, FL__METRICS_LABELS("tier", "memory"), m->cache_memory_bytes);
    fl__metrics_integer(o, limit, FL__METRICS_LABELS("tier", "disk"), m->cache_disk_bytes);
    fl__metrics_counter(o, "frostline_cache_evicted_total", "Values evicted from the cache.",
                        m->cache_evicted);
}

static void put_control(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const requests = "frostline_control_requests_total";
    fl__metrics_counter(o, "frostline_stragglers_total",
                        "Times that a worker was reported as slow in its own compute.",
                        m->n_stragglers);
    fl__metrics_counter(o, "frostline_events_total", "Events published.", m->n_events);
    fl__metrics_counter(o, "frostline_events_dropped_total",
                        "Events that a slow subscriber did not receive.", m->n_events_dropped);
    fl__metrics_family(o, requests, "counter", "Requests to the control socket.");
    fl__metrics_integer(o, requests, FL__METRICS_LABELS("outcome", "ok"), m->n_requests);
    fl__metrics_integer(o, requests, FL__METRICS_LABELS("outcome", "refused"),
                        m->n_requests_refused);
}

size_t fl_metrics_render(const fl_metrics *metrics, char *text, size_t size)
{
    fl__metrics_text o = {text, size, 0};
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
    fl__metrics_put_hosts(&o, metrics);
    fl__metrics_put_workers(&o, metrics);
    fl__metrics_put_graphs(&o, metrics);
    return o.n;
}
