/* The hosts of a run: the drain of one, and what status shows of them and of the links. */
#include "control/events/fields.h"
#include "control/socket/ctl.h"
#include "device/system/clock.h"

#include <math.h>
#include <stdio.h>

/* ---- drain ---- */

/* "b, c": those in the run, but the head. */
static void list_names(const fl_run_facts *run, char *text, size_t size_bytes)
{
    size_t n = 0;
    snprintf(text, size_bytes, "none: no other host is in the run");
    for (int i = 1; i < run->hosts->n && n < size_bytes; i++) {
        if (run->host_records[i].state == FL_HOST_STATE_JOINED) {
            n += (size_t)snprintf(text + n, size_bytes - n, "%s%s", n == 0 ? "" : ", ",
                                  run->hosts->host[i].name);
        }
    }
}

void fl_ctl_drain_host(fl_ctl *ctl, fl_ctl_call *call, const char *name)
{
    const fl_hosts *hosts = ctl->run->hosts;
    if (hosts == NULL) {
        fl_ctl_refuse(call, FL_CTL_NOT_AVAILABLE, "this run has one host, and no other to drain");
        return;
    }
    int i = fl_hosts_find(hosts, name);
    if (i < 0) {
        char names[256];
        list_names(ctl->run, names, sizeof names);
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT, "host: found %s, allowed: %s", name, names);
    } else if (!ctl->drain_host(ctl->context, i)) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", fl_errmsg());
    } else {
        call->wait = FL_CTL_WAIT_HOST;
        call->ticket = i;
        call->asked_us = fl_now_us();
    }
}

bool fl_ctl_host_has_ended(const fl_ctl *ctl, fl_ctl_call *call)
{
    if (call->wait != FL_CTL_WAIT_HOST) {
        return false;
    }
    const fl_host_record *r = &ctl->run->host_records[call->ticket];
    const char *name = ctl->run->hosts->host[call->ticket].name;
    if (r->state == FL_HOST_STATE_LOST) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "host %s was lost before it was drained: %s", name,
                      r->why);
    } else if (r->state == FL_HOST_STATE_JOINED && r->joined_us < call->asked_us) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "host %s cannot be drained: %s", name, r->why);
    }
    return r->state != FL_HOST_STATE_DRAINING;
}

void fl_ctl_host_result(const fl_ctl *ctl, fl_ctl_call *call)
{
    const fl_host *host = &ctl->run->hosts->host[call->ticket];
    fl_ctl_plan_fields(ctl, call->result);
    fl_json_text(call->result, "host", host->name);
    fl_json_integer(call->result, "workers", host->n);
}

/* ---- status ---- */

/* As it was noted, or will be; null: not yet. */
static void moment_field(const fl_run_view *view, fl_json *j, const char *key, int64_t at_us,
                         double noted_s)
{
    double ago_s = (double)(fl_now_us() - at_us) * 1e-6;
    double at_s = noted_s > 0.0 ? noted_s : fmax(view->time_s - ago_s, 0.0);
    fl_json_rounded(j, key, at_us == 0 ? (double)NAN : at_s, 3);
}

/* Against the head's clock; null: not known yet. */
static void clock_fields(int i, const fl_clock_estimate *clock, fl_json *j)
{
    bool known = i == 0 || clock->known;
    fl_json_rounded(j, "clock_ms", known ? (double)clock->wall_offset_ns * 1e-6 : (double)NAN, 3);
    fl_json_rounded(j, "drift_ppm", known ? (double)clock->drift_ppb * 1e-3 : (double)NAN, 3);
    fl_json_rounded(j, "round_trip_ms", known ? (double)clock->round_trip_ns * 1e-6 : (double)NAN,
                    3);
}

static void host_fields(const fl_run_view *view, int i, fl_json *j)
{
    const fl_host *host = &view->run->hosts->host[i];
    const fl_host_record *r = &view->run->host_records[i];
    fl_json_object(j, NULL);
    fl_json_text(j, "name", host->name);
    fl_json_text(j, "address", host->address);
    fl_json_text(j, "state", fl_host_state_text(r->state));
    fl_json_integer(j, "first_worker", host->first);
    fl_json_integer(j, "workers", host->n);
    fl_fields_host_costs(j, view->run->options, host);
    moment_field(view, j, "joined_at", r->joined_us, r->joined_s);
    moment_field(view, j, "ended_at", r->ended_us, r->ended_s);
    clock_fields(i, &r->clock, j);
    fl_json_text(j, "why", r->why);
    if (r->state == FL_HOST_STATE_LOST && r->apart_from != 0) {
        fl_json_text(j, "apart_from", view->run->hosts->host[r->apart_from - 1].name);
    }
    fl_json_close(j, '}');
}

static void link_fields(const fl_plan_input *input, fl_link_class class, fl_json *j)
{
    fl_link_cost cost = fl_cluster_link(input->cluster, input->profile, class);
    fl_json_object(j, NULL);
    fl_json_text(j, "between", fl_link_class_text(class));
    fl_json_rounded(j, "latency_us", cost.latency_us, 3);
    fl_json_rounded(j, "bytes_per_s", cost.bytes_per_us * 1e6, 0);
    fl_json_text(j, "from", fl_costs_origin_of_link(input->cluster, input->profile, class));
    fl_json_close(j, '}');
}

void fl_ctl_host_fields(const fl_run_view *view, fl_json *j)
{
    const fl_hosts *hosts = view->run->hosts;
    const fl_plan_input *input = view->run->options->plan_input;
    if (hosts == NULL) {
        return;
    }
    fl_json_text(j, "agents_at", hosts->agents);
    fl_json_array(j, "hosts");
    for (int i = 0; i < hosts->n; i++) {
        host_fields(view, i, j);
    }
    fl_json_close(j, ']');
    fl_json_array(j, "links");
    for (int class = 0; input != NULL && input->cluster != NULL && class < FL_N_LINKS; class ++) {
        link_fields(input, (fl_link_class) class, j);
    }
    fl_json_close(j, ']');
}
