/* The input of the first layer above the frost line: read from the cache, or computed and then
 * stored.
 *
 *     fl_cached_input_request ①  names the samples of a micro-batch, one step ahead
 *     the reader's thread ②      reads what the cache has, and decodes the other samples
 *     fl_cached_input_take ③     runs the frozen layers for samples that lack some of them, stores
 *                                the result, puts all rows into the stage's input
 *
 * A device with memory of its own gets cached rows one micro-batch ahead, and may have tiers for
 * them (cache_tiers.h): ② leaves their values to them, and ③ copies the next micro-batch's rows.
 *
 * A value that was stored when fewer layers were frozen enters behind those layers. Whether the
 * cache is used at all depends on what reading and computing take (cache_switch.h). Threads: one,
 * and its own reader. */
#ifndef FL_PIPE_STEP_INPUT_CACHED_INPUT_H
#define FL_PIPE_STEP_INPUT_CACHED_INPUT_H

#include "autodp/affinity.h"
#include "data/loader.h"
#include "pipe/step/input/activations.h"
#include "pipe/step/input/cache_switch.h"
#include "pipe/step/input/cache_tiers.h"
#include "pipe/step/stage/stage.h"

typedef struct fl_cached_input fl_cached_input;

typedef struct fl_cached_input_options {
    const fl_activations *activations; /* borrowed, as everything here */
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    fl_device *device;
    fl_stream *stream;           /* whose work the input is for */
    fl_stage *stage;             /* begins at layer 0; the frost line lies inside */
    int reader, n_readers;       /* this worker among those that read the cache */
    int store;                   /* the one this worker reads from and keeps in ... */
    const fl_affinity *affinity; /* ... the samples that belong to this store */
    int n_frozen;                /* layers */
    const fl_sample_sizes *sizes;
    const fl_capacity *capacity; /* needed only while creating */
    int depth;                   /* requests ahead */
    fl_cache_tiers *tiers;       /* NULL: none */
    size_t window_bytes;         /* of the largest micro-batch's cached rows */
} fl_cached_input_options;

fl_status fl_cached_input_create(const fl_cached_input_options *options,
                                 fl_cached_input **out) FL_MUST_CHECK;
void fl_cached_input_destroy(fl_cached_input **feed);

/* The weights are those of this generation from the first request on. */
fl_status fl_cached_input_request(fl_cached_input *feed,
                                  const fl_load_request *request) FL_MUST_CHECK;

/* The oldest request's samples into the input of the micro-batch that fl_stage_begin has begun in
 * `slot`. what: as it was requested, but with the epoch in which it is used. */
fl_status fl_cached_input_take(fl_cached_input *feed, int slot, const fl_load_request *what,
                               int64_t step, const fl_tensor *input,
                               int64_t timeout_ms) FL_MUST_CHECK;

/* Since the last report, but for the last line. */
typedef struct fl_cached_input_report {
    int64_t n_hits;     /* nothing was computed */
    int64_t n_device;   /* of these, found in the device's tier */
    int64_t n_pinned;   /* in that of pinned host memory */
    int64_t n_upgrades; /* only the blocks that were frozen since */
    int64_t n_misses;
    bool on;           /* the cache is used */
    bool changed;      /* a decision was taken */
    double read_us;    /* of a sample, from the cache; 0: not measured */
    double compute_us; /* of a sample, from raw data through all frozen layers; 0: not measured */
} fl_cached_input_report;

/* False if no decision was taken since, unless `always` and there is something to tell. */
bool fl_cached_input_report_take(fl_cached_input *feed, bool always,
                                 fl_cached_input_report *report);

#endif
