#include "pipe/plan/plan_change.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/text/size_text.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/plan/migrate_schedule.h"

static int moments_of(const fl_plan_input *input)
{
    return fl_optimizer_n_moments(input->job->train.optimizer);
}

void fl_plan_change_place(const fl_plan_input *input, const fl_plan *running, fl_plan *next,
                          const bool *drained)
{
    if (input->cluster == NULL) {
        fl_migrate_place(input->model, running, next, moments_of(input), drained);
    } else {
        fl_migrate_place_near(input->model, input->cluster, running, next, moments_of(input),
                              drained);
    }
}

static fl_status needed_bytes(const fl_plan_input *input, const fl_plan *plan, int rank,
                              int64_t *size_bytes)
{
    fl_place place = fl_plan_place(plan, rank);
    fl_stage_memory m = {0};
    if (place.active) {
        FL_TRY(fl_plan_memory(input, plan, place.stage, &m));
    }
    *size_bytes = m.total_bytes;
    return FL_OK;
}

fl_status fl_plan_change_check_room(const fl_plan_input *input, const fl_plan *running,
                                    const fl_plan *next)
{
    char size[3][FL_SIZE_TEXT_MAX];
    for (int rank = 0; rank < next->n_workers; rank++) {
        int64_t then, budget = fl_cluster_memory(input->cluster, input->job, rank);
        FL_TRY(needed_bytes(input, next, rank, &then));
        int64_t most =
            fl_migrate_least_bytes(input->model, running, next, rank, moments_of(input), then);
        if (most > budget) {
            return fl_fail_field(FL_EBUDGET, FL_FIELDS("devices.memory"),
                                 "worker %d would hold %s while the plans change and %s "
                                 "afterwards; it has %s",
                                 rank, fl_size_text((double)most, size[0]),
                                 fl_size_text((double)then, size[1]),
                                 fl_size_text((double)budget, size[2]));
        }
    }
    return FL_OK;
}

/* All bytes in turn, each over its class of link. */
static double move_ms(const fl_plan_input *input, const fl_move *moves, int n, int64_t bytes)
{
    int64_t by_link[FL_N_LINKS];
    double us = 0.0;
    if (input->cluster == NULL) {
        double bytes_per_ms = input->profile->link_bytes_per_us * 1e3;
        return bytes > 0 ? (double)bytes / bytes_per_ms : 0.0;
    }
    fl_migrate_link_bytes(input->model, input->cluster, moves, n, moments_of(input), by_link);
    for (int i = 0; i < FL_N_LINKS; i++) {
        fl_link_cost link = fl_cluster_link(input->cluster, input->profile, (fl_link_class)i);
        us += by_link[i] > 0 ? (double)by_link[i] / link.bytes_per_us : 0.0;
    }
    return us * 1e-3;
}

fl_status fl_plan_change_price(const fl_plan_input *input, const fl_plan *running,
                               const fl_plan *next, const int *parked, double fixed_ms,
                               fl_plan_change *out)
{
    int capacity = next->n_layers * (next->R + 1), n = 0;
    fl_move *moves = NULL;
    FL_TRY(fl_alloc_array((size_t)capacity, sizeof *moves, (void **)&moves));
    fl_status status =
        fl_migrate_schedule(input->model, running, next, parked, NULL, moves, capacity, &n);
    if (status == FL_OK) {
        out->move_bytes = fl_migrate_bytes(input->model, moves, n, moments_of(input));
        out->cost_ms = fixed_ms + move_ms(input, moves, n, out->move_bytes);
    }
    fl_free(moves);
    return status;
}
