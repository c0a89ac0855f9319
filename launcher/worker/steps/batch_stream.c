#include "launcher/worker/steps/batch_stream.h"

#include "device/system/alloc.h"

#include <assert.h>
#include <stddef.h>

fl_status fl_batch_stream_init(fl_batch_stream *s, uint64_t seed, int64_t n_samples,
                               int64_t batch_size)
{
    *s = (fl_batch_stream){.seed = seed, .n_samples = n_samples, .batch_size = batch_size};
    for (int i = 0; i < FL_BATCH_STREAM_AHEAD; i++) {
        FL_TRY(fl_alloc_array((size_t)batch_size, sizeof *s->ids[i], (void **)&s->ids[i]));
    }
    return FL_OK;
}

void fl_batch_stream_fini(fl_batch_stream *s)
{
    for (int i = 0; i < FL_BATCH_STREAM_AHEAD; i++) {
        fl_free(s->ids[i]);
        s->ids[i] = NULL;
    }
    s->n_drawn = 0;
}

static void draw_batch(fl_batch_stream *s)
{
    fl_stream_batch *next = &s->drawn[s->n_drawn++];
    int64_t *ids = s->ids[s->step % FL_BATCH_STREAM_AHEAD];
    next->batch =
        (fl_global_batch){.split = FL_TRAIN, .step = s->step, .epoch = s->cursor.epoch, .ids = ids};
    fl_sampler_next(s->seed, s->n_samples, s->batch_size, &s->cursor, ids, &next->batch.n);
    next->after = s->cursor;
    s->step++;
}

bool fl_batch_stream_peek(fl_batch_stream *s, int ahead, const fl_stream_batch **out)
{
    assert(ahead >= 0 && ahead < FL_BATCH_STREAM_AHEAD && ahead <= s->n_drawn);
    bool is_new = s->n_drawn == ahead;
    if (is_new) {
        draw_batch(s);
    }
    *out = &s->drawn[ahead];
    return is_new;
}

void fl_batch_stream_take(fl_batch_stream *s)
{
    assert(s->n_drawn > 0);
    s->n_drawn--;
    for (int i = 0; i < s->n_drawn; i++) {
        s->drawn[i] = s->drawn[i + 1];
    }
}

void fl_batch_stream_reset(fl_batch_stream *s, int64_t step, fl_cursor cursor)
{
    s->n_drawn = 0;
    s->step = step;
    s->cursor = cursor;
}
