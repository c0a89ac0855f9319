/* The events of the cache. */
#include "control/events/log/event_log.h"

#include "pipe/step/input/activations.h"

static const char *policy_text(fl_cache_policy policy)
{
    static const char *const text[] = {"off", "on", "auto"};
    return text[policy];
}

void fl_event_log_cache_opened(fl_event_log *log, const fl_controller_options *options)
{
    const fl_activations *a = options->activations;
    const char *why = options->no_cache_why;
    if (a == NULL && (why == NULL || why[0] == 0)) {
        return;
    }
    fl_json *j = fl_event_log_begin(log, "cache.opened");
    fl_json_text(j, "policy", policy_text(options->job->cache.policy));
    if (a == NULL) {
        fl_json_text(j, "why_not", why);
        fl_event_log_end(log);
        if (options->job->freeze.policy != FL_FREEZE_NONE) {
            fl_progress_note(&log->progress, "no cache of frozen blocks' outputs: %s", why);
        }
        return;
    }
    const fl_read_cost *read =
        options->plan_input == NULL ? NULL : options->plan_input->cached_read;
    fl_cache_stats stats;
    fl_activations_stats(a, &stats);
    fl_json_integer(j, "memory_bytes", stats.memory_bytes);
    fl_json_integer(j, "disk_bytes", stats.disk_bytes);
    if (read != NULL) {
        fl_json_rounded(j, "read_call_us", read->call_us, 3);
        fl_json_rounded(j, "read_us_per_byte", read->us_per_byte, 9);
    }
    fl_event_log_end(log);
}

void fl_event_log_cache(fl_event_log *log, int rank, const fl_cache_report *r)
{
    fl_json *j = fl_event_log_begin(log, r->decided ? "cache.decided" : "cache.used");
    fl_json_integer(j, "rank", rank);
    fl_json_integer(j, "step", r->step);
    fl_json_integer(j, "epoch", r->epoch);
    fl_json_integer(j, "f", r->f);
    fl_json_text(j, "state", r->on ? "on" : "off");
    fl_json_integer(j, "hits", r->n_hits);
    fl_json_integer(j, "upgrades", r->n_upgrades);
    fl_json_integer(j, "misses", r->n_misses);
    fl_json_integer(j, "device_hits", r->n_device);
    fl_json_integer(j, "pinned_hits", r->n_pinned);
    fl_json_rounded(j, "read_us", r->read_us, 3);
    fl_json_rounded(j, "compute_us", r->compute_us, 3);
    fl_json_integer(j, "values", r->n_values);
    fl_json_integer(j, "used_bytes", r->used_bytes);
    fl_json_integer(j, "evicted", r->n_evicted);
    fl_json_integer(j, "damaged", r->n_damaged);
    fl_json_integer(j, "recovered", r->n_recovered);
    fl_event_log_end(log);
    fl_progress_cache(&log->progress, r);
}

void fl_event_log_cache_tiers(fl_event_log *log, int rank, const fl_cache_tiers_report *report)
{
    fl_json *j = fl_event_log_begin(log, "cache.tiers");
    fl_json_integer(j, "rank", rank);
    fl_json_integer(j, "pinned_bytes", report->pinned_bytes);
    fl_json_integer(j, "device_bytes", report->device_bytes);
    if (report->why_not[0] != '\0') {
        fl_json_text(j, "why_not", report->why_not);
    }
    fl_event_log_end(log);
}
