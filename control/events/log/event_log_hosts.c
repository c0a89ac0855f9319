#include "control/events/log/event_log_hosts.h"

#include "device/text/number_text.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"

#include <stdio.h>

static void note_host(fl_event_log *log, const fl_host *host, const fl_host_record *record,
                      double seconds)
{
    char workers[FL_COUNT_BYTES], after[FL_NUMBER_TEXT_MAX];
    fl_count(host->n, "worker", workers);
    switch (record->state) {
    case FL_HOST_STATE_DRAINING:
        fl_progress_note(&log->progress, "host %s (%s, %s) is to leave: the run goes on without it",
                         host->name, host->address, workers);
        break;
    case FL_HOST_STATE_DRAINED:
        fl_progress_note(&log->progress, "host %s (%s) has left the run with %s, after %s s",
                         host->name, host->address, workers, fl_number_text(seconds, 2, after));
        break;
    case FL_HOST_STATE_LOST: /* the gate has said it, and of one that joins, too */
    case FL_HOST_STATE_JOINED:
    case FL_HOST_STATE_AWAITED:
    case FL_HOST_STATES:
        break;
    }
}

/* It has not been lost: it could not take part. */
static bool is_refused(const fl_host_record *record)
{
    return record->state == FL_HOST_STATE_LOST && record->unfit;
}

void fl_event_log_host(fl_event_log *log, const fl_run_moment *at, const fl_host *host,
                       const fl_host_record *record, const fl_host *apart, const fl_host_told *told)
{
    char name[32];
    snprintf(name, sizeof name, "host.%s",
             is_refused(record) ? "refused" : fl_host_state_text(record->state));
    fl_json *j = at != NULL ? fl_event_log_begin_at(log, name, at) : fl_event_log_begin(log, name);
    fl_json_text(j, "host", host->name);
    fl_json_text(j, "address", host->address);
    fl_json_integer(j, "first_worker", host->first);
    fl_json_integer(j, "workers", host->n);
    fl_json_integer(j, "step", told->step);
    if (record->state == FL_HOST_STATE_DRAINING) {
        fl_json_text(j, "why", record->notice_us != 0 ? "notice" : "requested");
        fl_json_rounded(j, "grace_s", (double)record->grace_us * 1e-6, 3);
    } else if (record->state == FL_HOST_STATE_DRAINED) {
        fl_json_rounded(j, "seconds", told->seconds, 3);
    } else if (record->state == FL_HOST_STATE_LOST) {
        fl_json_text(j, "why", record->why);
        if (apart != NULL) {
            fl_json_text(j, "apart_from", apart->name);
        }
    }
    fl_event_log_end(log);
    if (!told->again) {
        note_host(log, host, record, told->seconds);
    }
}

static void put_cost(fl_json *j, const fl_link_cost *cost)
{
    fl_json_rounded(j, "latency_us", cost->latency_us, 1);
    fl_json_rounded(j, "bytes_per_s", cost->bytes_per_us * 1e6, 0);
    fl_json_rounded(j, "reduce_bytes_per_s", cost->reduce_bytes_per_us * 1e6, 0);
}

void fl_event_log_links(fl_event_log *log, const fl_controller_options *o)
{
    char rate[2][FL_SIZE_TEXT_MAX];
    if (o->n_links == 0 || o->plan_input == NULL) {
        return;
    }
    fl_link_cost worst =
        fl_cluster_link(o->plan_input->cluster, o->plan_input->profile, FL_LINK_HOSTS);
    fl_json *j = fl_event_log_begin(log, "hosts.measured");
    fl_json_text(j, "security", o->job->autodp.security == FL_SECURITY_NONE ? "none" : "tls");
    put_cost(j, &worst);
    fl_json_array(j, "pairs");
    for (int i = 0; i < o->n_links; i++) {
        const fl_host_link *link = &o->links[i];
        fl_link_cost cost = fl_far_link_cost(&link->link);
        fl_json_object(j, NULL);
        fl_json_text(j, "a", o->hosts->host[link->a].name);
        fl_json_text(j, "b", o->hosts->host[link->b].name);
        put_cost(j, &cost);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    fl_event_log_end(log);
    fl_progress_note(&log->progress, "between hosts, measured: %.0f us, %s/s, all-reduce %s/s",
                     worst.latency_us, fl_size_text(worst.bytes_per_us * 1e6, rate[0]),
                     fl_size_text(worst.reduce_bytes_per_us * 1e6, rate[1]));
}
