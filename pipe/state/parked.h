/* The moments of frozen layers: where they lie until a thaw. */
#ifndef FL_PIPE_STATE_PARKED_H
#define FL_PIPE_STATE_PARKED_H

#include "device/device.h"
#include "nn/model.h"
#include "pipe/state/state_source.h"

/* Moments of frozen layers that this worker keeps, in host memory and outside the device's budget:
 * fl_parked_bytes counts them. Where the device computes in host memory they stay where they were;
 * elsewhere they are copied to host memory of their own, and the device's is given back. */
typedef struct fl_parked {
    int n_layers;
    fl_device *device; /* borrowed: which trained them */
    int *rank; /* [n_layers] the rank that keeps the layer's moments; the same on every worker */
    float **moments; /* [n_layers] as fl_params has them; NULL: not here */
    int64_t *n;      /* [n_layers] floats in moments[layer] */
    /* [n_layers] the step (from 0) whose update was the first of the moments that the layer has, or
     * had when it froze; the same on every worker. Not 0 after a thaw with fresh ones. */
    int64_t *since;
} fl_parked;

fl_status fl_parked_init(fl_parked *parked, fl_device *device, int n_layers) FL_MUST_CHECK;
void fl_parked_fini(fl_parked *parked);
int64_t fl_parked_bytes(const fl_parked *parked);

/* Where a run begins with frozen layers whose moments were saved: rank [n_layers] is who keeps
 * them, and worker `own_rank` reads its own. Pages are touched as they are read. FL_ENOMEM, or the
 * source's failure; call fini after a failure, too. */
fl_status fl_parked_load(fl_parked *parked, const fl_model *model, int n_moments, const int *rank,
                         int own_rank, const fl_state_source *source) FL_MUST_CHECK;

/* ---- for pipe/state/migrate.c ---- */

/* Whether parked moments have host memory of their own. */
bool fl__parked_is_apart(const fl_parked *parked);

/* Room for n floats that are to be parked, and its return. */
fl_status fl__parked_reserve(fl_parked *parked, int64_t n, float **out) FL_MUST_CHECK;
void fl__parked_give(fl_parked *parked, float **moments, int64_t n);

/* Forget the moments of a layer. */
void fl__parked_drop(fl_parked *parked, int layer);

#endif
