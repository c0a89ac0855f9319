/* What the input behind frozen layers holds: shared by the files that fill and use it.
 *
 *     cached_request.c   a request's memory, and reading it: ② of cached_input.h
 *     cached_input.c     the rest: ①, ③, the decision */
#ifndef FL_PIPE_STEP_INPUT_CACHED_INPUT_STATE_H
#define FL_PIPE_STEP_INPUT_CACHED_INPUT_STATE_H

#include "pipe/step/input/cached_input.h"

/* The beginning of a request's data, n samples; then follow where each begins, what it has behind
 * it, and its values: raw, or those of any layer up to the frost line, whichever is most. */
typedef struct fl_request_head {
    int64_t n;
    uint64_t seed; /* these three as in the request, for a sample that is read again */
    int64_t epoch;
    bool augment;
    int64_t cached_ns, raw_ns; /* processor time of the two ways to read */
    double cached_share;       /* of the time that both took, waiting included; 0 .. 1 */
    int64_t n_found;           /* in the cache */
    size_t place[];            /* [n + 1] from the beginning of the data */
} fl_request_head;

struct fl_cached_input {
    fl_cached_input_options o;
    fl_cache *cache; /* borrowed */
    fl_loader *loader;
    uint64_t *print; /* [n_frozen + 1] */
    fl_cache_prints prints;
    bool begun;
    atomic_bool on;       /* as choice.on, for the loader's thread */
    int64_t max_samples;  /* of a micro-batch */
    fl_cache_want *wants; /* [max_samples] the loader's thread's */
    int32_t *wanted;      /* [max_samples] the sample of each want */
    int32_t *which;       /* [max_samples] of the current group */
    size_t *at; /* [max_samples] where the cached rows of a micro-batch are on the device */
    const void *fetched; /* the request whose rows are there, or on their way; NULL: none */
    bool fetches;        /* rows are fetched ahead */
    int64_t n_samples;   /* of the current request */
    int64_t waited_ns;   /* for it, where a step had been computing while it was read */
    int64_t first_step;  /* of this feed: nothing was read ahead for it */
    bool begun_taking;
    fl_event *fill_begun, *filled; /* of the samples that the device completed last */
    fl_cache_switch choice;
    fl_cached_input_report report;
};

/* ---- cached_request.c ---- */

/* What each sample has behind it, and where its values are. */
fl_cached_row *fl__request_samples(void *data);
unsigned char *fl__request_rows(void *data, int64_t sample);

/* Elements of a cached value that the sample has room for. */
int64_t fl__request_most_elements(const fl_cached_input *f, const void *data, int64_t sample);

int64_t fl__cached_key(const fl_cached_input *f, fl_split split, int64_t id);

/* fl_load_source's functions; their context is the fl_cached_input. */
fl_status fl__request_measure(void *context, const fl_load_request *r,
                              size_t *size_bytes) FL_MUST_CHECK;
fl_status fl__request_read(void *context, const fl_load_request *r, const atomic_bool *stop,
                           void *data) FL_MUST_CHECK;

/* Read sample i once more: a tier has evicted its value since the request was read. */
fl_status fl__request_read_again(fl_cached_input *f, const fl_load_request *what, void *data,
                                 int64_t i) FL_MUST_CHECK;

/* The loader's room for all requests. */
fl_status fl__request_room(const fl_cached_input *f, fl_loader_room *room) FL_MUST_CHECK;

#endif
