#include "control/controller/members/host_report.h"

#include "control/controller/members/host_again.h"
#include "control/controller/parts/host_times.h"
#include "control/controller/parts/parts.h"
#include "control/events/log/event_log_hosts.h"

/* Whether the run went back behind the event that the host has joined. */
static bool is_joining_cut(const fl_controller *controller, int i)
{
    int64_t joined_bytes = controller->hosts.drains[i].told.joined_bytes;
    return joined_bytes > 0 && !fl_host_again_has_event(controller, joined_bytes);
}

/* again: the host was in the run when that went back, and joins with it */
static fl_host_told told_now(const fl_controller *controller, int i, bool again, int64_t now_us)
{
    const fl_host_drain *d = &controller->hosts.drains[i];
    fl_host_state state = controller->hosts.records[i].state;
    bool joins_cut = state == FL_HOST_STATE_JOINED && again && is_joining_cut(controller, i);
    return (fl_host_told){.state = state,
                          .step =
                              joins_cut ? d->told.joined_step : fl_host_again_step(controller, i),
                          .fixed = d->joined_us == 0,
                          .joined_step = d->told.joined_step,
                          .joined_bytes = d->told.joined_bytes,
                          .seconds = d->told.again     ? d->told.seconds
                                     : d->since_us > 0 ? (double)(now_us - d->since_us) * 1e-6
                                                       : 0.0,
                          .again = d->told.again};
}

/* NULL: now. A host that only connects again has joined before, as its event says. */
static const fl_run_moment *find_moment(const fl_controller *controller, int i, bool connects,
                                        fl_run_moment *at)
{
    const fl_host_record *r = &controller->hosts.records[i];
    if (r->state == FL_HOST_STATE_JOINED && r->joined_s > 0.0 && !connects) {
        at->time_s = r->joined_s;
        at->wall_s = controller->log.files.start_wall_s + r->joined_s;
        return at;
    }
    at->time_s = r->ended_s;
    at->wall_s = r->ended_wall_s;
    return r->ended_wall_s > 0.0 ? at : NULL;
}

static void tell_state(fl_controller *controller, int i, const fl_run_moment *at, bool connects)
{
    const fl_hosts *hosts = controller->options->hosts;
    const fl_host_record *r = &controller->hosts.records[i];
    fl_host_told *told = &controller->hosts.drains[i].told;
    const fl_host *apart = r->apart_from == 0 ? NULL : &hosts->host[r->apart_from - 1];
    fl_event_log_host(&controller->log, at, &hosts->host[i], r, apart, told);
    told->end_bytes = fl_runfiles_events_bytes(&controller->log.files);
    told->again = false;
    if (told->state == FL_HOST_STATE_JOINED && !connects) {
        told->joined_step = told->step;
        told->joined_bytes = told->end_bytes;
    }
}

void fl_host_report(fl_controller *controller, int i, int64_t now_us)
{
    const fl_host_record *r = &controller->hosts.records[i];
    fl_host_drain *d = &controller->hosts.drains[i];
    bool is_news = r->state != d->told.state ||
                   (r->state == FL_HOST_STATE_JOINED && r->joined_us != d->joined_us);
    bool again = r->joined_us != 0 && d->joined_s > 0.0;
    bool connects = again && !is_joining_cut(controller, i);
    fl_run_moment at;
    fl_host_times_note(controller, i);
    if (is_news) {
        d->told = told_now(controller, i, again, now_us);
    }
    d->joined_us = r->joined_us;
    if (is_news && i > 0) {
        tell_state(controller, i, find_moment(controller, i, connects, &at), connects);
    }
}

/* A host that has left since had joined before. */
static void tell_joining(fl_controller *controller, int i)
{
    double joined_s = controller->hosts.records[i].joined_s;
    fl_host_told *told = &controller->hosts.drains[i].told;
    const fl_run_moment at = {.time_s = joined_s,
                              .wall_s = controller->log.files.start_wall_s + joined_s};
    const fl_host_record joined = {.state = FL_HOST_STATE_JOINED};
    const fl_host_told then = {.step = told->joined_step, .again = true};
    if (is_joining_cut(controller, i)) {
        fl_event_log_host(&controller->log, &at, &controller->options->hosts->host[i], &joined,
                          NULL, &then);
        told->joined_bytes = fl_runfiles_events_bytes(&controller->log.files);
    }
}

int64_t fl_host_report_loss_step(const fl_controller *controller, int rank)
{
    const fl_host_watch *h = &controller->hosts;
    int i = h->records == NULL ? -1 : fl_hosts_of(h->table, rank);
    bool is_told = i > 0 && h->drains[i].told.state == FL_HOST_STATE_LOST;
    return is_told ? h->drains[i].told.step
                   : fl_workers_finished_steps(controller->workers, controller->n_workers,
                                               controller->stats.steps);
}

void fl_host_report_gone(fl_controller *controller, int64_t now_us)
{
    const fl_host_watch *h = &controller->hosts;
    for (int i = 1; h->records != NULL && i < controller->options->hosts->n; i++) {
        fl_host_state state = h->records[i].state;
        if (state == FL_HOST_STATE_LOST || state == FL_HOST_STATE_DRAINED) {
            tell_joining(controller, i);
            fl_host_report(controller, i, now_us);
        }
    }
}
