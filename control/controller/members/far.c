#include "control/controller/members/far.h"

#include "control/link/held_port.h"
#include "pipe/state/weights/model_file.h"

fl_status fl_far_open_router(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    const fl_hosts *hosts = o->hosts;
    if (hosts == NULL) {
        return fl_router_open(&controller->router, o->dir_fd, o->run_dir, controller->n_workers,
                              NULL);
    }
    fl_held_ports *held = o->held_ports;
    const fl_router_far far = {.endpoint = hosts->links,
                               .held_fd = held == NULL ? NULL : &held->links,
                               .secret = hosts->secret,
                               .client = hosts->keys.public_key};
    return fl_router_open(&controller->router, o->dir_fd, o->run_dir, controller->n_workers, &far);
}

/* What the host read is what lies here, or the host has another file than the head. */
static fl_status note_layer(const fl_controller *controller, int rank, int layer)
{
    const fl_controller_options *o = controller->options;
    const fl_host *host = &o->hosts->host[fl_hosts_of(o->hosts, rank)];
    uint64_t found = 0;
    FL_TRY(fl_model_file_hash(o->model_file, layer, &found));
    if (layer >= controller->saved.n || found != controller->saved.hash[layer]) {
        return fl_fail(FL_EIO,
                       "layer %d of %s/%s is not as worker %d of host %s has written it: that host "
                       "has another folder than the head, such as a copy or an overlay; allowed: "
                       "a run.dir on a file system that all hosts share, or run.shared false",
                       layer, o->run_dir, FL_MODEL_FOLDER, rank, host->name);
    }
    fl_model_file_note(o->model_file, layer);
    return FL_OK;
}

fl_status fl_far_note_layers(const fl_controller *controller)
{
    const fl_model_file *file = controller->options->model_file;
    const fl_plan *plan = &controller->elastic.plan;
    const fl_hosts *hosts = controller->options->hosts;
    if (file == NULL || hosts == NULL || !controller->options->job->run.shared) {
        return FL_OK; /* else workers of this host have written them */
    }
    /* A worker is done once all have met, and each met the others after it had written its layers:
     * one that is lost between these two has written them, too. */
    bool met = fl_worker_any_is_done(controller->workers, controller->n_workers);
    for (int rank = hosts->host[0].n; met && rank < plan->n_workers; rank++) {
        fl_place place = fl_plan_place(plan, rank);
        if (!place.active) {
            continue;
        }
        for (int layer = plan->first[place.stage]; layer < plan->first[place.stage + 1]; layer++) {
            if (layer % plan->R == place.replica) {
                FL_TRY(note_layer(controller, rank, layer));
            }
        }
    }
    return FL_OK;
}
