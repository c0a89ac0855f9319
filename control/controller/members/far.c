#include "control/controller/members/far.h"

#include "pipe/state/weights/model_file.h"

fl_status fl_far_open_router(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    const fl_hosts *hosts = o->hosts;
    if (hosts == NULL) {
        return fl_router_open(&controller->router, o->dir_fd, o->run_dir, controller->n_workers,
                              NULL);
    }
    const fl_router_far far = {
        .endpoint = hosts->links, .secret = hosts->secret, .client = hosts->keys.public_key};
    return fl_router_open(&controller->router, o->dir_fd, o->run_dir, controller->n_workers, &far);
}

void fl_far_note_layers(const fl_controller *controller)
{
    fl_model_file *file = controller->options->model_file;
    const fl_plan *plan = &controller->elastic.plan;
    const fl_hosts *hosts = controller->options->hosts;
    if (file == NULL || hosts == NULL || !controller->options->job->run.shared) {
        return; /* else workers of this host have written them */
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
                fl_model_file_note(file, layer);
            }
        }
    }
}
