/* Hashes of the weights, for `frostline diff`. Where train.hash_weights asks for it, each owner of
 * layers in replica 0 appends a line for each to weights.jsonl in the run directory, before its
 * next step: they stay even if it is killed right after. A host that does not share the run
 * directory reports them to the controller, which writes them. A hash depends on the bits of the
 * weights alone, so plans that compute the same bits give the same hashes. */
#include "launcher/worker/worker_state.h"

#include "cache/value.h"
#include "control/events/log/weight_lines.h"
#include "device/system/alloc.h"

#include <errno.h>

/* room: as fl_params_read_weights needs for any layer */
static fl_status hash_layers(const fl_params *p, float *room, fl_hashes_report *report)
{
    for (int layer = p->first; layer < p->last; layer++) {
        size_t bytes = (size_t)fl_params_layer_count(p, layer) * fl_dtype_size(FL_F32);
        const float *weights;
        FL_TRY(fl_params_read_weights(p, layer, room, &weights));
        report->hash[report->n++] = fl_checksum(weights, bytes, 0);
    }
    return FL_OK;
}

static fl_status take_room(const fl_params *p, void **room)
{
    int64_t largest = 0;
    for (int layer = p->first; layer < p->last; layer++) {
        int64_t n = fl_params_layer_count(p, layer);
        largest = n > largest ? n : largest;
    }
    return p->device->ops->host_memory
               ? FL_OK
               : fl_alloc_array((size_t)largest, fl_dtype_size(FL_F32), room);
}

static void append_hashes(fl_worker_state *w, const fl_model *model, const fl_hashes_report *report)
{
    int error = fl_weight_lines_append(w->c->dir_fd, model, report);
    if (error != 0) {
        w->hashes_failed = true;
        fl_link_hashes_failed(w->link,
                              &(fl_hashes_failed_report){.step = report->step, .error = error});
    }
}

fl_status fl_worker_hash_weights(fl_worker_state *w)
{
    int64_t every = w->c->job->train.hash_weights;
    if (every == 0 || w->step % every != 0 || w->now->place.replica != 0 || w->hashes_failed) {
        return FL_OK;
    }
    const fl_params *p = fl_generation_params(w->now);
    fl_hashes_report report = {.step = w->step, .first = p->first};
    void *room = NULL;
    if (take_room(p, &room) != FL_OK) {
        w->hashes_failed = true;
        fl_link_hashes_failed(w->link,
                              &(fl_hashes_failed_report){.step = w->step, .error = ENOMEM});
        return FL_OK;
    }
    fl_status status = hash_layers(p, room, &report);
    fl_free(room);
    if (status == FL_OK && w->c->apart) {
        fl_link_hashes(w->link, &report);
    } else if (status == FL_OK) {
        append_hashes(w, p->model, &report);
    }
    return status;
}
