#include "control/controller/report/lasting.h"

#include "control/controller/parts/host_times.h"
#include "control/controller/parts/parts.h"
#include "control/state/lasting.h"
#include "device/system/alloc.h"

#include <string.h>
#include <sys/wait.h>

/* A drained worker leaves by itself; a lost one does not, and is started again. */
static bool was_drained(const fl_controller *controller, int rank)
{
    const fl_worker *w = &controller->workers[rank];
    bool left_well = w->exited_us == 0 || w->incarnation == 0 ||
                     (WIFEXITED(w->wait_status) && WEXITSTATUS(w->wait_status) == 0);
    return controller->elastic.usable.drained[rank] && w->departed && !w->joins && !w->lost &&
           !w->killed && left_well && controller->joining[rank].state == FL_JOINING_NONE;
}

void fl_lasting_keep_clock(fl_controller *controller)
{
    fl_lasting *l = controller->options->lasting;
    fl_runfiles *files = &controller->log.files;
    if (l == NULL) {
        return;
    }
    if (l->start_us == 0) {
        l->start_us = files->start_us;
        l->start_wall_s = files->start_wall_s;
        l->begun_ms = files->begun_ms;
    }
    files->start_us = l->start_us;
    files->start_wall_s = l->start_wall_s;
    files->begun_ms = l->begun_ms;
}

void fl_lasting_keep_hosts(const fl_controller *controller)
{
    fl_lasting *l = controller->options->lasting;
    const fl_hosts *hosts = controller->options->hosts;
    const fl_host_record *records = controller->hosts.records;
    if (l == NULL || records == NULL) {
        return;
    }
    fl_free(l->hosts);
    l->n_hosts = 0;
    if (fl_alloc_array((size_t)hosts->n, sizeof *l->hosts, (void **)&l->hosts) != FL_OK) {
        l->hosts = NULL; /* the run goes back with all of its hosts */
        return;
    }
    l->n_hosts = hosts->n;
    for (int i = 0; i < hosts->n; i++) {
        fl_host_times_note(controller, i);
        l->hosts[i] = (fl_lasting_host){.host = hosts->host[i],
                                        .record = records[i],
                                        .told = controller->hosts.drains[i].told,
                                        .k = controller->hosts.drains[i].k,
                                        .r = controller->hosts.drains[i].r};
        if (records[i].state == FL_HOST_STATE_AWAITED) { /* it has not joined again so far */
            l->hosts[i].record.joined_s = controller->hosts.drains[i].joined_s;
        }
    }
}

void fl_lasting_keep_wait(const fl_controller *controller, int64_t now_us)
{
    fl_lasting *l = controller->options->lasting;
    int64_t since_us = 0;
    for (int rank = 0; controller->workers != NULL && rank < controller->n_workers; rank++) {
        int64_t spawned_us = controller->workers[rank].spawned_us;
        since_us = spawned_us > since_us ? spawned_us : since_us;
    }
    if (l != NULL) {
        l->awaited_ms = since_us == 0 ? 0 : (now_us - since_us) / 1000;
    }
}

void fl_lasting_keep(const fl_controller *controller)
{
    fl_lasting *l = controller->options->lasting;
    const fl_elastic *e = &controller->elastic;
    const fl_checkpoint_sums *sums = &controller->checkpoints.sums;
    if (l == NULL) {
        return;
    }
    *l = (fl_lasting){.start_us = l->start_us,
                      .start_wall_s = l->start_wall_s,
                      .begun_ms = l->begun_ms,
                      .any = true,
                      .paused = fl_ctl_paused(controller->ctl),
                      .lr = controller->job.train.lr,
                      .alpha = controller->job.freeze.alpha,
                      .m = controller->job.pipe.m,
                      .end_step = controller->stats.n_steps_asked,
                      .stop = controller->shutdown.wish,
                      .limit = e->usable.limit,
                      .counts = fl_ctl_count(controller->ctl),
                      .transitions = e->transition.sums,
                      .cache = controller->cache,
                      .n_snapshots = controller->snapshots.n_taken,
                      .checkpoints = *sums,
                      .n_stragglers = controller->n_stragglers_before + fl_stragglers_count(e),
                      .hosts = l->hosts,
                      .n_hosts = l->n_hosts};
    memcpy(l->pinned, e->pinned, sizeof l->pinned);
    fl_lasting_keep_hosts(controller);
    for (int rank = 0; rank < controller->n_workers; rank++) {
        l->drained[rank] = was_drained(controller, rank);
        l->n_restarts[rank] = controller->joining[rank].n_restarts;
    }
}

/* The newest checkpoint is another one if the controller has ended while it became durable. */
static void restore_checkpoints(const fl_checkpoint_sums *before, fl_checkpoint_sums *sums)
{
    sums->n_written = before->n_written;
    sums->n_failed = before->n_failed;
    if (before->any && sums->any && before->last_step == sums->last_step) {
        sums->last_us = before->last_us;
        sums->last_bytes = before->last_bytes;
        sums->last_linked_bytes = before->last_linked_bytes;
        sums->last_seconds = before->last_seconds;
    }
}

void fl_lasting_restore(fl_controller *controller)
{
    const fl_lasting *l = controller->options->lasting;
    fl_elastic *e = &controller->elastic;
    if (l == NULL || !l->any) {
        return;
    }
    controller->job.train.lr = l->lr;
    controller->job.freeze.alpha = l->alpha;
    controller->job.pipe.m = l->m;
    if (l->end_step < controller->stats.n_steps) {
        fl_run_stats_end(&controller->stats, l->end_step);
    }
    e->usable.limit = l->limit;
    memcpy(e->pinned, l->pinned, sizeof e->pinned);
    e->transition.sums = l->transitions;
    controller->cache = l->cache;
    controller->snapshots.n_taken = l->n_snapshots;
    restore_checkpoints(&l->checkpoints, &controller->checkpoints.sums);
    controller->n_stragglers_before = l->n_stragglers;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        controller->joining[rank].n_restarts = l->n_restarts[rank];
        controller->replan.drained[rank] = l->drained[rank];
    }
}
