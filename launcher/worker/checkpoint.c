/* A worker's part of a checkpoint. */
#include "launcher/worker/worker_state.h"

#include <stdio.h>

fl_status fl_worker_checkpoint(fl_worker_state *w, int64_t step)
{
    fl_checkpoint_part_report report = {
        .step = step, .generation = w->now->plan.generation, .status = FL_ENOTSUP};
    snprintf(report.text, sizeof report.text, "workers of this version write no checkpoints");
    fl_link_checkpoint_part(w->link, &report);
    return FL_OK;
}
