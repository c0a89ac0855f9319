/* A run's cache of frozen activations: made once on each host, before the workers are forked, from
 * what model, data and job say. One store for all of them, or several among which they are divided.
 */
#ifndef FL_PIPE_STEP_INPUT_ACTIVATIONS_H
#define FL_PIPE_STEP_INPUT_ACTIVATIONS_H

#include "cache/cache.h"
#include "pipe/plan/batch/store_map.h"
#include "pipe/plan/planner.h"
#include "pipe/step/input/next_use.h"
#include "pipe/step/input/weight_prints.h"

#include <frostline/plan.h>

typedef struct fl_activations {
    fl_store_map map;
    int n_stores;                          /* of this host */
    int first_number, n_numbers;           /* that the map has for them: n_stores or more */
    fl_cache *stores[FL_CACHE_STORES_MAX]; /* [n_stores] */
    fl_cache_options values;               /* as of one store: keys, sizes, types, order of uses */
    fl_next_use future;
    int64_t batch; /* samples of a global batch */
    fl_weight_prints *prints;
} fl_activations;

/* A cache for a run of n_steps over the first n_samples training samples. map: of all its workers;
 * first, n: the workers of this host. *out is NULL if the run uses no cache; why [size_bytes] then
 * holds the reason ("" with cache.policy off). With cache.policy on, that reason is an error:
 * FL_EINVAL, FL_EBUDGET or FL_EIO. The caller must not have forked workers yet. */
fl_status fl_activations_create(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                                int64_t n_samples, int64_t n_steps, const fl_store_map *map,
                                int first, int n, fl_activations **out, char *why,
                                size_t size_bytes) FL_MUST_CHECK;
void fl_activations_destroy(fl_activations **activations);

/* The number of the store that a worker reads from, among those of all hosts. NULL: 0. Pure. */
int fl_activations_store_of(const fl_activations *activations, int rank);

/* The store of this host that has this number. Borrowed. */
fl_cache *fl_activations_store(const fl_activations *activations, int number);

/* Of all stores of this host together. */
void fl_activations_stats(const fl_activations *activations, fl_cache_stats *stats);

/* Elements of the longest sample's activation behind the first `level` layers; 0 if they are not
 * of this type. */
int64_t fl_activation_elements(const fl_model *model, const fl_dataset *dataset, fl_dtype dtype,
                               int level);

#endif
