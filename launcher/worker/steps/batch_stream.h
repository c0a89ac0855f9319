/* The run's global batches in their order, drawn as far ahead as the caller asks. Pure except for
 * its memory; one thread. */
#ifndef FL_LAUNCHER_WORKER_STEPS_BATCH_STREAM_H
#define FL_LAUNCHER_WORKER_STEPS_BATCH_STREAM_H

#include "autodp/sampler.h"
#include "pipe/plan/batch/batch_split.h"

#include <stdbool.h>

/* How many batches may be drawn and not taken: the current one and the next. */
enum { FL_BATCH_STREAM_AHEAD = 2 };

typedef struct fl_stream_batch {
    fl_global_batch batch; /* its ids are in memory of the stream */
    fl_cursor after;       /* from which the batch after it is drawn */
} fl_stream_batch;

typedef struct fl_batch_stream {
    uint64_t seed;
    int64_t n_samples;  /* of the split */
    int64_t batch_size; /* the last batch of an epoch may have fewer samples */
    int64_t *ids[FL_BATCH_STREAM_AHEAD];
    fl_stream_batch drawn[FL_BATCH_STREAM_AHEAD];
    int n_drawn;
    int64_t step;     /* of the first batch that is not drawn yet */
    fl_cursor cursor; /* from which it will be drawn */
} fl_batch_stream;

/* Start at step 0. Call fini after a failure, too. */
fl_status fl_batch_stream_init(fl_batch_stream *stream, uint64_t seed, int64_t n_samples,
                               int64_t batch_size) FL_MUST_CHECK;
void fl_batch_stream_fini(fl_batch_stream *stream);

/* Get the next batch to be taken (ahead 0), or the one after it (ahead 1, once the next is drawn).
 * *out stays valid until take or reset. Returns whether this call drew the batch: the caller then
 * prefetches it. */
bool fl_batch_stream_peek(fl_batch_stream *stream, int ahead, const fl_stream_batch **out);

/* Drop the next batch: it has been used. It must have been drawn. */
void fl_batch_stream_take(fl_batch_stream *stream);

/* Drop all drawn batches; the next batch is that of `step`, drawn from `cursor`. */
void fl_batch_stream_reset(fl_batch_stream *stream, int64_t step, fl_cursor cursor);

#endif
