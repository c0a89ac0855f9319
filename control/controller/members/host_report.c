#include "control/controller/members/host_report.h"

#include "control/controller/members/host_again.h"
#include "control/controller/parts/host_times.h"
#include "control/controller/parts/parts.h"
#include "control/events/log/event_log_hosts.h"

static fl_host_told told_now(const fl_controller *controller, int i, int64_t now_us)
{
    const fl_host_drain *d = &controller->hosts.drains[i];
    return (fl_host_told){.state = controller->hosts.records[i].state,
                          .step = fl_host_again_step(controller, i),
                          .fixed = d->joined_us == 0,
                          .seconds = d->told.again     ? d->told.seconds
                                     : d->since_us > 0 ? (double)(now_us - d->since_us) * 1e-6
                                                       : 0.0,
                          .again = d->told.again};
}

static void tell_state(fl_controller *controller, int i)
{
    const fl_hosts *hosts = controller->options->hosts;
    const fl_host_record *r = &controller->hosts.records[i];
    fl_host_told *told = &controller->hosts.drains[i].told;
    const fl_host *apart = r->apart_from == 0 ? NULL : &hosts->host[r->apart_from - 1];
    fl_event_log_host(&controller->log, &hosts->host[i], r, apart, told);
    told->end_bytes = fl_runfiles_events_bytes(&controller->log.files);
    told->again = false;
}

void fl_host_report(fl_controller *controller, int i, int64_t now_us)
{
    const fl_host_record *r = &controller->hosts.records[i];
    fl_host_drain *d = &controller->hosts.drains[i];
    bool is_news = r->state != d->told.state ||
                   (r->state == FL_HOST_STATE_JOINED && r->joined_us != d->joined_us);
    fl_host_times_note(controller, i);
    if (is_news) {
        d->told = told_now(controller, i, now_us);
    }
    d->joined_us = r->joined_us;
    if (is_news && i > 0) {
        tell_state(controller, i);
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
            fl_host_report(controller, i, now_us);
        }
    }
}
