#include "control/controller/members/host_again.h"

#include "control/checkpoint/manifest/manifest.h"
#include "control/controller/parts/parts.h"
#include "control/state/lasting.h"
#include "device/system/clock.h"

static bool is_gone(fl_host_state state)
{
    return state == FL_HOST_STATE_LOST || state == FL_HOST_STATE_DRAINED;
}

bool fl_host_again_has_event(const fl_controller *controller, int64_t end_bytes)
{
    const fl_checkpoint *resume = controller->options->resume;
    return end_bytes > 0 && resume != NULL && resume->records.events_bytes >= end_bytes;
}

static void keep_joining(fl_host_drain *drain, const fl_lasting_host *before)
{
    drain->told.joined_step = before->told.joined_step;
    drain->told.joined_bytes = before->told.joined_bytes;
}

/* Of a host that is not awaited. Where the event was cut off, it is written again. A loss was first
 * told before all steps in flight were counted: the return tells the step from which it goes back,
 * and later ones the same. */
static void keep_record(fl_controller *controller, int i, const fl_lasting_host *before)
{
    fl_host_record *record = &controller->hosts.records[i];
    fl_host_drain *drain = &controller->hosts.drains[i];
    if (before == NULL || !is_gone(before->record.state)) {
        *record = (fl_host_record){.state = FL_HOST_STATE_LOST,
                                   .ended_us = fl_now_us(),
                                   .why = "the run went back without it"};
        return;
    }
    *record = before->record;
    drain->k = before->k;
    drain->r = before->r;
    if (before->told.state == record->state &&
        fl_host_again_has_event(controller, before->told.end_bytes)) {
        drain->told = before->told;
        drain->joined_us = record->joined_us;
    } else if (before->told.state == record->state) {
        bool fixed = before->told.fixed || record->state == FL_HOST_STATE_DRAINED;
        drain->told = (fl_host_told){
            .step = fixed ? before->told.step : 0, .seconds = before->told.seconds, .again = true};
    }
    keep_joining(drain, before);
}

/* Of a host that joins again by itself. */
static void keep_joined(fl_controller *controller, int i, const fl_lasting_host *before)
{
    if (before != NULL && before->record.ended_us == 0) {
        controller->hosts.drains[i].joined_s = before->record.joined_s;
        keep_joining(&controller->hosts.drains[i], before);
    }
}

/* One whose agent lives joins again by itself. */
static void add_host(fl_controller *controller, const fl_lasting_host *before)
{
    fl_hosts *table = controller->hosts.table;
    const fl_host *host = &before->host;
    int i = fl_hosts_add(table, host->name, host->address, host->n);
    table->host[i].absent = true;
    table->host[i].n_apart = host->n_apart;
    if (is_gone(before->record.state)) {
        keep_record(controller, i, before);
    } else {
        keep_joined(controller, i, before);
    }
}

static void keep_head(fl_controller *controller, const fl_lasting_host *before)
{
    fl_host_record *head = &controller->hosts.records[0];
    if (before != NULL) {
        head->joined_us = before->record.joined_us;
        head->joined_s = before->record.joined_s;
    }
}

void fl_host_again_take(fl_controller *controller)
{
    const fl_lasting *lasting = controller->options->lasting;
    fl_hosts *table = controller->hosts.table;
    int n_first = table->n;
    keep_head(controller, fl_lasting_host_of(lasting, 0));
    for (int i = 1; i < n_first; i++) {
        if (table->host[i].absent) {
            keep_record(controller, i, fl_lasting_host_of(lasting, i));
        } else {
            keep_joined(controller, i, fl_lasting_host_of(lasting, i));
        }
    }
    for (int i = n_first; lasting != NULL && i < lasting->n_hosts; i++) {
        if (fl_hosts_n_ranks(table) + lasting->hosts[i].host.n <= controller->n_workers) {
            add_host(controller, &lasting->hosts[i]);
        }
    }
}

int64_t fl_host_again_step(const fl_controller *controller, int i)
{
    const fl_resume_origin *origin = controller->options->origin;
    const fl_host_drain *drain = &controller->hosts.drains[i];
    fl_host_state state = controller->hosts.records[i].state;
    bool before = is_gone(state) && drain->joined_us == 0 && drain->told.state != state &&
                  origin != NULL && origin->why != NULL;
    if (before && drain->told.step > 0) {
        return drain->told.step;
    }
    return before && state == FL_HOST_STATE_LOST
               ? origin->step + origin->n_repeated
               : fl_workers_finished_steps(controller->workers, controller->n_workers,
                                           controller->stats.steps);
}
