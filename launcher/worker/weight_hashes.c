/* Hashes of the weights, for `frostline diff`. Where train.hash_weights asks for it, each owner of
 * layers in replica 0 reports their hashes to the controller, which writes them into weights.jsonl
 * of the run directory: other hosts may not have that directory. A hash depends on the bits of the
 * weights alone, so plans that compute the same bits give the same hashes. */
#include "launcher/worker/worker_state.h"

#include "cache/value.h"
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
    if (status == FL_OK) {
        fl_link_hashes(w->link, &report);
    }
    return status;
}
