#include "pipe/step/reduce.h"

#include "device/alloc.h"

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

static fl_status fill(fl_reduce *r, fl_group *group, const int *owners, int64_t bucket_bytes,
                      uint32_t id_base)
{
    const fl_params *p = r->params;
    size_t most = (size_t)(p->last - p->first_trainable);
    FL_TRY(fl_alloc_array(most, sizeof(fl_bucket *), (void **)&r->bucket));
    FL_TRY(fl_alloc_array(most, sizeof(int), (void **)&r->lowest_layer));
    int end = p->last;
    while (end > p->first_trainable) {
        int begin = bucket_begin(p, end, bucket_bytes / (int64_t)sizeof(float));
        int64_t at = fl_params_grad_at(p, begin);
        int64_t n = fl_params_grad_at(p, end) - at;
        if (n > 0) {
            const fl_bucket_options bucket = {.id = id_base + (uint32_t)r->n,
                                              .owners = owners,
                                              .n_owners = r->R,
                                              .data = p->grad + at,
                                              .dtype = FL_F32,
                                              .n = n,
                                              .shared = p->grad_shared,
                                              .offset_bytes = (size_t)at * sizeof(float)};
            FL_TRY(fl_bucket_create(group, &bucket, &r->bucket[r->n]));
            r->lowest_layer[r->n] = begin;
            r->n++;
        }
        end = begin;
    }
    return FL_OK;
}

fl_status fl_reduce_init(fl_reduce *reduce, fl_params *params, fl_group *group, const int *owners,
                         int R, int replica, int64_t bucket_bytes, uint32_t id_base)
{
    *reduce = (fl_reduce){.params = params, .replica = replica, .R = R};
    if (R == 1) {
        return FL_OK;
    }
    fl_status status = fill(reduce, group, owners, bucket_bytes, id_base);
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

fl_status fl_reduce_layer_done(fl_reduce *reduce, fl_stream *stream, int layer)
{
    while (reduce->started < reduce->n && reduce->lowest_layer[reduce->started] >= layer) {
        FL_TRY(fl_bucket_start(reduce->bucket[reduce->started], FL_ALL_REDUCE, stream));
        reduce->started++;
    }
    return FL_OK;
}

fl_status fl_reduce_wait(fl_reduce *reduce, fl_stream *stream, int64_t deadline_us)
{
    for (int i = 0; i < reduce->started; i++) {
        FL_TRY(fl_bucket_wait(reduce->bucket[i], stream, deadline_us));
    }
    reduce->started = 0;
    return FL_OK;
}

/* The list of this replica's share of each layer; returns how many layers have one. */
static int list_squares(const fl_reduce *reduce)
{
    const fl_params *p = reduce->params;
    int64_t begin = p->n_trainable * reduce->replica / reduce->R;
    int64_t end = p->n_trainable * (reduce->replica + 1) / reduce->R;
    int n = 0;
    for (int layer = p->first_trainable; layer < p->last; layer++) {
        int64_t from = fl_params_grad_at(p, layer), to = fl_params_grad_at(p, layer + 1);
        from = from > begin ? from : begin;
        to = to < end ? to : end;
        if (from < to) {
            p->square_sum[n++] = (fl_square_sum){
                .x = p->grad + from, .n = to - from, .out = p->squares + (layer - p->first)};
        }
    }
    return n;
}

fl_status fl_reduce_norms(fl_reduce *reduce, fl_stream *stream, double *squares)
{
    const fl_params *p = reduce->params;
    const fl_device_ops *ops = p->device->ops;
    size_t size_bytes = (size_t)(p->last - p->first) * sizeof *squares;
    FL_TRY(ops->fill_zero(p->device, stream, p->squares, size_bytes));
    FL_TRY(ops->sum_squares_many(p->device, stream, p->square_sum, list_squares(reduce)));
    FL_TRY(ops->copy_out(p->device, stream, squares, p->squares, size_bytes));
    return ops->sync(p->device, stream);
}
