#include "pipe/plan/batch/batch_split.h"

#include "autodp/split_work.h"
#include "device/system/alloc.h"

#include <string.h>

fl_status fl_batch_split_init(fl_batch_split *shares, const fl_sample_sizes *sizes,
                              int64_t max_batch, const fl_affinity *affinity, int M, int replica)
{
    fl_batch_split *s = shares;
    int R = affinity->n_replicas;
    size_t most = (size_t)max_batch, dealt = affinity->one ? 0 : most;
    *s = (fl_batch_split){.sizes = sizes, .affinity = affinity, .R = R, .M = M, .replica = replica};
    FL_TRY(fl_alloc_array(most, sizeof *s->work, (void **)&s->work));
    FL_TRY(fl_alloc_array(dealt, sizeof *s->dealt_ids, (void **)&s->dealt_ids));
    FL_TRY(fl_alloc_array(dealt, sizeof *s->dealt_work, (void **)&s->dealt_work));
    FL_TRY(fl_alloc_array(dealt, sizeof *s->dealt_to, (void **)&s->dealt_to));
    FL_TRY(fl_alloc_array((size_t)R, sizeof *s->room, (void **)&s->room));
    FL_TRY(fl_alloc_array((size_t)R + 1, sizeof(int64_t), (void **)&s->replica_first));
    return fl_alloc_array((size_t)M + 1, sizeof(int64_t), (void **)&s->micro_first);
}

void fl_batch_split_fini(fl_batch_split *shares)
{
    fl_free(shares->work);
    fl_free(shares->dealt_ids);
    fl_free(shares->dealt_work);
    fl_free(shares->dealt_to);
    fl_free(shares->room);
    fl_free(shares->replica_first);
    fl_free(shares->micro_first);
}

/* The work that each replica gets in the sampler's order is the room that it has. Afterwards the
 * batch lies in the order of its replicas, and can be split again. */
static void deal(fl_batch_split *s, bool equal)
{
    const fl_global_batch *batch = &s->batch;
    int64_t at = 0;
    for (int r = 0; r < s->R; r++) {
        s->room[r] = 0;
        for (int64_t i = s->replica_first[r]; i < s->replica_first[r + 1]; i++) {
            s->room[r] += equal ? 1 : s->work[i];
        }
    }
    fl_affinity_assign(s->affinity, batch->ids, equal ? NULL : s->work, batch->n, s->room,
                       s->dealt_to);
    for (int r = 0; r < s->R; r++) {
        for (int64_t i = 0; i < batch->n; i++) {
            if (s->dealt_to[i] == r) {
                s->dealt_ids[at] = batch->ids[i];
                s->dealt_work[at++] = s->work[i];
            }
        }
    }
    memcpy(s->work, s->dealt_work, (size_t)batch->n * sizeof *s->work);
    s->batch.ids = s->dealt_ids;
}

void fl_batch_split_turn(fl_batch_split *shares, int replica)
{
    fl_batch_split *s = shares;
    bool equal = true;
    s->replica = replica;
    s->begin = s->replica_first[replica];
    s->n = s->replica_first[replica + 1] - s->begin;
    for (int64_t i = 1; i < s->n && equal; i++) {
        equal = s->work[s->begin + i] == s->work[s->begin];
    }
    fl_split_work(s->n, equal ? NULL : s->work + s->begin, s->M, s->micro_first);
}

void fl_batch_split_run(fl_batch_split *shares, const fl_global_batch *batch)
{
    fl_batch_split *s = shares;
    bool equal = true;
    s->batch = *batch;
    s->n_targets = 0;
    s->n_tokens = 0;
    for (int64_t i = 0; i < batch->n; i++) {
        s->work[i] = (int32_t)fl_sample_work(s->sizes, batch->split, batch->ids[i]);
        s->n_targets += fl_sample_n_targets(s->sizes, batch->split, batch->ids[i]);
        s->n_tokens += s->work[i];
        equal = equal && s->work[i] == s->work[0];
    }
    fl_split_work(batch->n, equal ? NULL : s->work, s->R, s->replica_first);
    if (!s->affinity->one) {
        deal(s, equal);
        fl_split_work(batch->n, equal ? NULL : s->work, s->R, s->replica_first);
    }
    fl_batch_split_turn(s, s->replica);
}

const int64_t *fl_batch_split_mine(const fl_batch_split *shares, int64_t *n)
{
    *n = shares->n;
    return shares->batch.ids + shares->begin;
}

const int64_t *fl_batch_split_of(const fl_batch_split *shares, int replica, int64_t *n)
{
    *n = shares->replica_first[replica + 1] - shares->replica_first[replica];
    return shares->batch.ids + shares->replica_first[replica];
}

const int64_t *fl_batch_split_micro(const fl_batch_split *shares, int micro_batch, int64_t *n)
{
    int64_t first = shares->micro_first[micro_batch];
    *n = shares->micro_first[micro_batch + 1] - first;
    return shares->batch.ids + shares->begin + first;
}
