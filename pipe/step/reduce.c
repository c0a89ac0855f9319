#include "pipe/step/reduce.h"

#include "device/system/alloc.h"
#include "nn/model.h"

#include <string.h>

/* The first layer of the bucket that ends before layer `end`. */
static int bucket_begin(const fl_params *p, int end, int64_t bucket_elements)
{
    int layer = end;
    while (layer > p->first_trainable) {
        layer--;
        if (fl_params_grad_at(p, end) - fl_params_grad_at(p, layer) >= bucket_elements) {
            break;
        }
    }
    return layer;
}

/* A bucket of n elements of the gradients, complete after the backward of lowest_layer. */
static fl_status add_bucket(fl_reduce *r, fl_group *group, uint32_t id, const int *owners,
                            int n_owners, int64_t at, int64_t n, int lowest_layer)
{
    const fl_params *p = r->params;
    const fl_bucket_options bucket = {.id = id,
                                      .owners = owners,
                                      .n_owners = n_owners,
                                      .data = p->grad + at,
                                      .dtype = FL_F32,
                                      .n = n,
                                      .shared = p->grad_shared,
                                      .offset_bytes = (size_t)at * sizeof(float)};
    FL_TRY(fl_bucket_create(group, &bucket, &r->bucket[r->n]));
    r->lowest_layer[r->n] = lowest_layer;
    r->n++;
    return FL_OK;
}

static fl_status add_layers(fl_reduce *r, fl_group *group, const fl_plan *plan, fl_place place,
                            int64_t bucket_bytes)
{
    const fl_params *p = r->params;
    int owners[FL_MAX_WORKERS];
    for (int i = 0; i < plan->R; i++) {
        owners[i] = i * plan->K + place.stage;
    }
    int end = p->last;
    while (end > p->first_trainable) {
        int begin = bucket_begin(p, end, bucket_bytes / (int64_t)sizeof(float));
        int64_t at = fl_params_grad_at(p, begin);
        int64_t n = fl_params_grad_at(p, end) - at;
        if (n > 0) {
            uint32_t id = fl_bucket_id(place.stage, r->n);
            FL_TRY(add_bucket(r, group, id, owners, plan->R, at, n, begin));
        }
        end = begin;
    }
    return FL_OK;
}

static int stage_of(const fl_plan *plan, int layer)
{
    int stage = 0;
    while (plan->first[stage + 1] <= layer) {
        stage++;
    }
    return stage;
}

/* The owners of all uses of the tie, by group index, in the same order on every worker. */
static int list_owners(const fl_plan *plan, const fl_tie *tie, int owners[FL_MAX_WORKERS])
{
    int n = 0;
    for (int replica = 0; replica < plan->R; replica++) {
        for (int k = 0, before = -1; k < tie->n; k++) {
            int stage = stage_of(plan, tie->use[k].layer);
            if (stage != before) {
                owners[n++] = replica * plan->K + stage;
            }
            before = stage;
        }
    }
    return n;
}

static fl_status add_ties(fl_reduce *r, fl_group *group, const fl_plan *plan)
{
    const fl_params *p = r->params;
    int owners[FL_MAX_WORKERS];
    for (int i = 0; i < p->n_ties; i++) {
        const fl_params_tie *tie = &p->tie[i];
        int n_owners = list_owners(plan, fl_model_tie_at(p->model, tie->tie), owners);
        uint32_t id = fl_bucket_id_of_tie(tie->tie);
        if (n_owners > 1) {
            FL_TRY(add_bucket(r, group, id, owners, n_owners, tie->at, tie->n, p->first_trainable));
        }
    }
    return FL_OK;
}

static fl_status fill(fl_reduce *r, fl_group *group, const fl_plan *plan, fl_place place,
                      int64_t bucket_bytes)
{
    const fl_params *p = r->params;
    size_t most = (size_t)(p->last - p->first_trainable + p->n_ties);
    FL_TRY(fl_alloc_array(most, sizeof(fl_bucket *), (void **)&r->bucket));
    FL_TRY(fl_alloc_array(most, sizeof(int), (void **)&r->lowest_layer));
    if (r->R > 1) {
        FL_TRY(add_layers(r, group, plan, place, bucket_bytes));
    }
    return add_ties(r, group, plan);
}

fl_status fl_reduce_init(fl_reduce *reduce, fl_params *params, fl_group *group, const fl_plan *plan,
                         fl_place place, int64_t bucket_bytes)
{
    *reduce = (fl_reduce){.params = params, .replica = place.replica, .R = plan->R};
    fl_status status = fill(reduce, group, plan, place, bucket_bytes);
    if (status != FL_OK) {
        fl_reduce_fini(reduce);
    }
    return status;
}

void fl_reduce_fini(fl_reduce *reduce)
{
    for (int i = 0; i < reduce->n; i++) {
        fl_bucket_destroy(&reduce->bucket[i]);
    }
    fl_free(reduce->bucket);
    fl_free(reduce->lowest_layer);
    memset(reduce, 0, sizeof *reduce);
}

fl_status fl_reduce_layer_done(fl_reduce *reduce, int layer)
{
    while (reduce->started < reduce->n && reduce->lowest_layer[reduce->started] >= layer) {
        FL_TRY(fl_bucket_start(reduce->bucket[reduce->started], FL_ALL_REDUCE,
                               reduce->params->stream));
        reduce->started++;
    }
    return FL_OK;
}

bool fl_reduce_can_capture(const fl_reduce *reduce)
{
    bool all = reduce->n > 0;
    for (int i = 0; i < reduce->n; i++) {
        all = all && fl_bucket_can_capture(reduce->bucket[i]);
    }
    return all;
}

fl_status fl_reduce_capture_layer(fl_reduce *reduce, int layer, int64_t deadline_us)
{
    while (reduce->captured < reduce->n && reduce->lowest_layer[reduce->captured] >= layer) {
        FL_TRY(fl_bucket_capture(reduce->bucket[reduce->captured], reduce->params->stream,
                                 deadline_us));
        reduce->captured++;
    }
    return FL_OK;
}

fl_status fl_reduce_capture_join(fl_reduce *reduce)
{
    int n = reduce->captured;
    reduce->captured = 0;
    for (int i = 0; i < n; i++) {
        FL_TRY(fl_bucket_capture_join(reduce->bucket[i], reduce->params->stream));
    }
    return FL_OK;
}

fl_status fl_reduce_launched(fl_reduce *reduce)
{
    for (; reduce->started < reduce->n; reduce->started++) {
        FL_TRY(fl_bucket_launched(reduce->bucket[reduce->started], reduce->params->stream));
    }
    return FL_OK;
}

fl_status fl_reduce_wait(fl_reduce *reduce, int64_t deadline_us)
{
    for (int i = 0; i < reduce->started; i++) {
        FL_TRY(fl_bucket_wait(reduce->bucket[i], reduce->params->stream, deadline_us));
    }
    reduce->started = 0;
    return FL_OK;
}

/* The sum over the gradients from .. to - 1, if there are any; returns how many sums this is. */
static int add_square(const fl_reduce *reduce, int64_t from, int64_t to, double *out,
                      fl_square_sum *list)
{
    if (from < to) {
        *list = (fl_square_sum){.x = reduce->params->grad + from, .n = to - from, .out = out};
    }
    return from < to;
}

/* The list of this replica's share of each layer, and of each tie whose norm counts here; returns
 * how many have one. */
static int list_squares(const fl_reduce *reduce)
{
    const fl_params *p = reduce->params;
    int64_t replica = reduce->replica, R = reduce->R;
    int64_t all = fl_params_grad_at(p, p->last); /* the ties lie behind */
    int64_t begin = all * replica / R, end = all * (replica + 1) / R;
    int n = 0;
    for (int layer = p->first_trainable; layer < p->last; layer++) {
        int64_t from = fl_params_grad_at(p, layer), to = fl_params_grad_at(p, layer + 1);
        n += add_square(reduce, from > begin ? from : begin, to < end ? to : end,
                        p->squares + (layer - p->first), &p->square_sum[n]);
    }
    for (int i = 0; i < p->n_ties; i++) {
        const fl_params_tie *tie = &p->tie[i];
        int64_t from = tie->at + tie->n * replica / R, to = tie->at + tie->n * (replica + 1) / R;
        if (tie->norm_of >= 0) {
            n += add_square(reduce, from, to, p->squares + (p->last - p->first) + i,
                            &p->square_sum[n]);
        }
    }
    return n;
}

fl_status fl_reduce_norms(fl_reduce *reduce, double *squares)
{
    const fl_params *p = reduce->params;
    const fl_device_ops *ops = p->device->ops;
    size_t n_layers = (size_t)(p->last - p->first), n_ties = (size_t)p->n_ties;
    FL_TRY(ops->fill_zero(p->device, p->stream, p->squares, (n_layers + n_ties) * sizeof *squares));
    FL_TRY(ops->sum_squares_many(p->device, p->stream, p->square_sum, list_squares(reduce)));
    FL_TRY(ops->copy_out(p->device, p->stream, squares, p->squares, n_layers * sizeof *squares));
    FL_TRY(ops->copy_out(p->device, p->stream, p->tie_square, p->squares + n_layers,
                         n_ties * sizeof *squares));
    FL_TRY(ops->sync(p->device, p->stream));
    for (int i = 0; i < p->n_ties; i++) {
        if (p->tie[i].norm_of >= 0) {
            squares[p->tie[i].norm_of - p->first] += p->tie_square[i];
        }
    }
    return FL_OK;
}
