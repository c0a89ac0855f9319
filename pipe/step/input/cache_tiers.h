/* What a worker whose device has memory of its own does so that cached values are on the device
 * when a step wants them:
 *
 *     the device's tier    values in device memory (cache.device)
 *     the pinned tier      values in pinned host memory (cache.pinned)
 *     the window           device memory for the cached rows of one micro-batch; those of the next
 *                          one are copied there, in a stream of their own, while the device
 * computes
 *
 *     copy stream     fetch i+1 ──────┐         ┌── fetch i+2
 *     the stage's     take i, compute │ take i+1┘
 *
 * A tier serves the worker alone; the store (cache/cache.h), which all workers share, stays behind
 * both. They live as long as the worker, across plans: a value is found under the fingerprint of
 * the layers that computed it.
 * Memory is taken when the first plan with frozen layers asks for it. What cannot be had is done
 * without: then values come from the store, and a report says why.
 * Threads: one, and any where a function says so. */
#ifndef FL_PIPE_STEP_INPUT_CACHE_TIERS_H
#define FL_PIPE_STEP_INPUT_CACHE_TIERS_H

#include "cache/tier.h"
#include "pipe/step/input/activations.h"

typedef struct fl_cache_tiers fl_cache_tiers;

/* Where a sample's value is. */
typedef enum fl_cache_place {
    FL_CACHE_PLACE_NONE = 0, /* not kept behind all frozen layers */
    FL_CACHE_PLACE_STORE,    /* read from the store into host memory */
    FL_CACHE_PLACE_PINNED,
    FL_CACHE_PLACE_DEVICE
} fl_cache_place;

/* A sample of a micro-batch. */
typedef struct fl_cached_row {
    int64_t key;
    int64_t n;     /* elements that the store had; 0: none */
    int32_t level; /* layers that it has behind it; 0: raw */
    fl_cache_place place;
} fl_cached_row;

/* The samples of a micro-batch whose values are fetched: rows [n], and their host memory. */
typedef struct fl_cached_rows {
    fl_cached_row *row;
    int64_t n;
    const unsigned char *host; /* the value of row i, if it is in the store, at host + place[i] */
    const size_t *place;       /* [n] */
} fl_cached_rows;

/* *out is NULL where the device computes in host memory, or the run has no cache. All arguments are
 * borrowed. */
fl_status fl_cache_tiers_create(const fl_job *job, fl_device *device,
                                const fl_activations *activations,
                                fl_cache_tiers **out) FL_MUST_CHECK;
void fl_cache_tiers_destroy(fl_cache_tiers **tiers);

/* Before the first fetch of a plan: take what memory is missing, and drop values of another
 * fingerprint than `print`, that of all frozen layers. window_bytes: of the largest micro-batch.
 * Returns whether the window is there; false for NULL. */
bool fl_cache_tiers_begin(fl_cache_tiers *tiers, uint64_t print, size_t window_bytes);

/* Between two plans, when no work of the first is left: give the window back, and the tiers, too,
 * unless the next plan has room for them. NULL is fine. */
void fl_cache_tiers_fit(fl_cache_tiers *tiers, bool keep);

/* Which tier has the value, if one does. Threads: any. */
fl_cache_place fl_cache_tiers_find(fl_cache_tiers *tiers, int64_t key, uint64_t print);

/* Queue the copies of all rows that have a place into the window, in the copy stream, behind what
 * fl_cache_tiers_leave was told; at[i] is where row i lies in it. A row that its tier has lost
 * meanwhile has no place afterwards. */
fl_status fl_cache_tiers_fetch(fl_cache_tiers *tiers, const fl_cached_rows *rows,
                               size_t *at) FL_MUST_CHECK;

/* Work of `stream` from now on waits for what was fetched, and finds it at the pointer. */
fl_status fl_cache_tiers_arrive(fl_cache_tiers *tiers, fl_stream *stream,
                                unsigned char **window) FL_MUST_CHECK;

/* Offer a value [n], device memory that work of `stream` has written, to the tiers. now: as for
 * fl_cache_put */
fl_status fl_cache_tiers_offer(fl_cache_tiers *tiers, fl_stream *stream, int64_t key,
                               const void *from, int64_t n, int64_t now) FL_MUST_CHECK;

/* The window was read, and what was offered was kept, by work that `stream` has so far. */
fl_status fl_cache_tiers_leave(fl_cache_tiers *tiers, fl_stream *stream) FL_MUST_CHECK;

/* Wait for all fetches: before host memory that they read is given back. A failure is logged only.
 * NULL is fine. */
void fl_cache_tiers_settle(fl_cache_tiers *tiers);

enum { FL_CACHE_WHY_BYTES = 256 };

/* What the tiers have. */
typedef struct fl_cache_tiers_report {
    int64_t pinned_bytes, device_bytes; /* room for values */
    char why_not[FL_CACHE_WHY_BYTES];   /* why one of them, or the window, has no memory; "" */
} fl_cache_tiers_report;

/* True once, after the memory was taken, or could not be. */
bool fl_cache_tiers_report_take(fl_cache_tiers *tiers, fl_cache_tiers_report *report);

/* Device memory of the tier, which stays taken when plans change. NULL: 0. Threads: any. */
int64_t fl_cache_tiers_device_bytes(const fl_cache_tiers *tiers);

#endif
