#include "pipe/shares.h"

#include "autodp/sampler.h"
#include "device/alloc.h"
#include "nn/model.h"

fl_status fl_shares_init(fl_shares *shares, const fl_model *model, const fl_dataset *dataset,
                         int64_t max_batch, int R, int M, int replica)
{
    fl_shares *s = shares;
    *s = (fl_shares){.model = model, .dataset = dataset, .R = R, .M = M, .replica = replica};
    FL_TRY(fl_alloc_array((size_t)max_batch, sizeof *s->work, (void **)&s->work));
    FL_TRY(fl_alloc_array((size_t)R + 1, sizeof(int64_t), (void **)&s->replica_first));
    return fl_alloc_array((size_t)M + 1, sizeof(int64_t), (void **)&s->micro_first);
}

void fl_shares_fini(fl_shares *shares)
{
    fl_free(shares->work);
    fl_free(shares->replica_first);
    fl_free(shares->micro_first);
}

/* Rows of one sample behind the first layer: its work, in tokens. */
static fl_status tokens_of(fl_shares *s, const fl_shape *raw, int32_t *tokens)
{
    if (s->token_shape.width != raw->width || s->token_shape.tokens != raw->tokens) {
        fl_shape out;
        FL_TRY(fl_model_shape(s->model, 0, raw, &out));
        s->token_shape = *raw;
        s->token_count = out.tokens;
    }
    *tokens = (int32_t)s->token_count;
    return FL_OK;
}

fl_status fl_shares_split(fl_shares *shares, const fl_global_batch *batch)
{
    fl_shares *s = shares;
    const fl_dataset *d = s->dataset;
    bool equal = true;
    s->batch = *batch;
    s->n_targets = 0;
    s->n_tokens = 0;
    for (int64_t i = 0; i < batch->n; i++) {
        fl_shape raw;
        int64_t n_targets;
        FL_TRY(d->ops->shape(d->self, batch->split, batch->ids[i], &raw, &n_targets));
        FL_TRY(tokens_of(s, &raw, &s->work[i]));
        s->n_targets += n_targets;
        s->n_tokens += s->work[i];
        equal = equal && s->work[i] == s->work[0];
    }
    fl_share(batch->n, equal ? NULL : s->work, s->R, s->replica_first);
    s->begin = s->replica_first[s->replica];
    s->n = s->replica_first[s->replica + 1] - s->begin;
    fl_share(s->n, equal ? NULL : s->work + s->begin, s->M, s->micro_first);
    return FL_OK;
}

const int64_t *fl_shares_micro(const fl_shares *shares, int micro_batch, int64_t *n)
{
    int64_t first = shares->micro_first[micro_batch];
    *n = shares->micro_first[micro_batch + 1] - first;
    return shares->batch.ids + shares->begin + first;
}
