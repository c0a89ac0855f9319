#include "pipe/step/input/activations.h"

#include "autodp/sampler.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

enum { PROBED_SAMPLES = 16, PROBED_EPOCHS = 3, SHAPES_LOOKED_AT = 1024 };

int64_t fl_activation_elements(const fl_model *model, const fl_dataset *dataset, fl_dtype dtype,
                               int level)
{
    fl_shape raw, out;
    int64_t n_targets;
    if (dataset->ops->max_shape(dataset->self, &raw, &n_targets) != FL_OK ||
        fl_model_shape(model, level - 1, &raw, &out) != FL_OK || out.dtype != dtype) {
        return 0;
    }
    return out.tokens * out.width;
}

/* ---- data that is another in each epoch ---- */

static fl_status read_at(const fl_dataset *d, const fl_job *job, int64_t id, int64_t epoch,
                         void *out)
{
    fl_sample_key key = {.seed = job->train.seed, .epoch = epoch, .id = id, .augment = true};
    return d->ops->read(d->self, FL_TRAIN, &key, out);
}

/* buffer [2 samples]; *changes: the data set draws something by epoch. */
static fl_status look_for_change(const fl_dataset *d, const fl_job *job, int64_t n_samples,
                                 unsigned char *buffer, size_t size_bytes, bool *changes)
{
    unsigned char *other = buffer + size_bytes;
    for (int64_t i = 0; i < PROBED_SAMPLES && i < n_samples; i++) {
        fl_shape shape;
        int64_t n_targets,
            id = i * (n_samples / PROBED_SAMPLES > 0 ? n_samples / PROBED_SAMPLES : 1);
        FL_TRY(d->ops->shape(d->self, FL_TRAIN, id, &shape, &n_targets));
        size_t bytes = (size_t)(shape.tokens * shape.width) * fl_dtype_size(shape.dtype);
        FL_TRY(read_at(d, job, id, 0, buffer));
        for (int epoch = 1; epoch < PROBED_EPOCHS; epoch++) {
            FL_TRY(read_at(d, job, id, epoch, other));
            *changes = *changes || memcmp(buffer, other, bytes) != 0;
        }
    }
    return FL_OK;
}

static fl_status changes_by_epoch(const fl_dataset *d, const fl_job *job, int64_t n_samples,
                                  bool *changes)
{
    fl_shape shape;
    int64_t n_targets;
    void *buffer = NULL;
    *changes = false;
    FL_TRY(d->ops->max_shape(d->self, &shape, &n_targets));
    size_t bytes = (size_t)(shape.tokens * shape.width) * fl_dtype_size(shape.dtype);
    FL_TRY(fl_alloc_array(2, bytes, &buffer));
    fl_status status = look_for_change(d, job, n_samples, buffer, bytes, changes);
    fl_free(buffer);
    return status;
}

static fl_status check_data(const fl_dataset *d, const fl_job *job, int64_t n_samples)
{
    bool changes = false;
    if (job->cache.augment != FL_CACHE_AUGMENT_REFUSE) {
        return FL_OK;
    }
    FL_TRY(changes_by_epoch(d, job, n_samples, &changes));
    if (changes) {
        return fl_fail_field(
            FL_EINVAL, FL_FIELDS("cache.augment", "data.augment", "cache.policy"),
            "the data set (%s) augments each sample differently in every epoch "
            "(data.augment), so nothing can be kept; allowed: freeze, which augments "
            "it the same way once blocks are frozen, stop, which does not augment it "
            "then, or cache.policy off",
            d->ops->kind);
    }
    return FL_OK;
}

/* ---- sizes ---- */

static bool have_one_shape(const fl_dataset *d, int64_t n_samples)
{
    fl_shape first, other;
    int64_t n_targets;
    if (d->ops->max_shape(d->self, &first, &n_targets) != FL_OK) {
        return false;
    }
    for (int64_t i = 0; i < n_samples && i < SHAPES_LOOKED_AT; i++) {
        if (d->ops->shape(d->self, FL_TRAIN, i, &other, &n_targets) != FL_OK ||
            other.tokens != first.tokens) {
            return false;
        }
    }
    return true;
}

/* The last block may end with less than the others, and it hardly ever freezes: unless it is the
 * only one, sizes are those of the others. */
static bool ends_block(const fl_model *model, int level)
{
    int block = fl_model_block_of(model, level - 1), next = fl_model_block_of(model, level);
    return block != next && (next != FL_BLOCK_HEAD || block == 1);
}

/* Values behind every block that may freeze. When all have one size, that is a unit's; otherwise
 * one takes several, so that short ones leave little unused. */
static fl_status set_sizes(const fl_model *model, const fl_dataset *d, int64_t n_samples,
                           fl_cache_options *o)
{
    int64_t least = INT64_MAX, most = 0;
    for (int level = 1; level < fl_model_n_layers(model); level++) {
        if (ends_block(model, level)) {
            int64_t n = fl_activation_elements(model, d, o->values, level);
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
    }
    if (most == 0 || least == 0) {
        return fl_fail_field(FL_ENOTSUP, FL_FIELDS("cache.policy"),
                             "the model has no block whose output could be "
                             "kept: it takes %s activations, and at least two blocks",
                             fl_dtype_name(o->values));
    }
    bool one_size = least == most && have_one_shape(d, n_samples);
    o->value_elements = most;
    o->unit_elements = one_size || most < 256 ? most : (most + 15) / 16;
    return FL_OK;
}

/* ---- creation ---- */

/* Each gets its part of the budgets; o: those of all. */
static fl_status open_stores(fl_activations *a, int n, fl_cache_options *o)
{
    o->memory_bytes /= n;
    o->disk_bytes /= n;
    a->values = *o;
    a->values.path = NULL; /* used at creation only */
    for (; a->n_stores < n; a->n_stores++) {
        FL_TRY(fl_cache_create(o, &a->stores[a->n_stores]));
    }
    return FL_OK;
}

/* n_stores: of this host. */
static fl_status fill(fl_activations *a, const fl_model *model, const fl_dataset *d,
                      const fl_job *job, int64_t n_samples, int64_t n_steps, int n_stores)
{
    int64_t n_test = job->train.evaluate ? d->ops->count(d->self, FL_TEST) : 0;
    fl_cache_options o = {.n_keys = n_samples + n_test,
                          .values = fl_job_dtype(job),
                          .dtype = fl_job_cache_dtype(job),
                          .memory_bytes = job->cache.memory_bytes,
                          .disk_bytes = job->cache.disk_bytes,
                          .path = job->cache.path,
                          .future = {.context = &a->future,
                                     .next_use = fl_next_use_of,
                                     .key_at = fl_next_use_key_at}};
    FL_TRY(check_data(d, job, n_samples));
    FL_TRY(set_sizes(model, d, n_samples, &o));
    a->batch = fl_sampler_batch(job);
    FL_TRY(fl_weight_prints_create(fl_model_n_layers(model), &a->prints));
    fl_next_use_init(&a->future, job->train.seed, n_samples, n_test, fl_sampler_batch(job),
                     n_steps);
    return open_stores(a, n_stores, &o);
}

fl_status fl_activations_create(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                                int64_t n_samples, int64_t n_steps, const fl_store_map *map,
                                int first, int n, fl_activations **out, char *why,
                                size_t size_bytes)
{
    fl_activations *a = NULL;
    int n_stores = job->cache.stores < n ? (int)job->cache.stores : n; /* each has readers */
    *out = NULL;
    why[0] = 0;
    if (job->cache.policy == FL_CACHE_OFF) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *a, (void **)&a));
    a->map = *map;
    a->map.n_stores = (int)job->cache.stores;
    a->first_number = fl_store_map_of(&a->map, first);
    a->n_numbers = fl_store_map_of(&a->map, first + n - 1) + 1 - a->first_number;
    fl_status status = fill(a, model, dataset, job, n_samples, n_steps, n_stores);
    if (status == FL_OK) {
        *out = a;
        return FL_OK;
    }
    fl_activations_destroy(&a);
    if (job->cache.policy == FL_CACHE_AUTO && status != FL_ENOMEM) {
        snprintf(why, size_bytes, "%s", fl_errmsg());
        return FL_OK;
    }
    return status;
}

void fl_activations_destroy(fl_activations **activations)
{
    fl_activations *a = *activations;
    if (a == NULL) {
        return;
    }
    for (int i = 0; i < a->n_stores; i++) {
        fl_cache_destroy(&a->stores[i]);
    }
    fl_weight_prints_destroy(&a->prints);
    fl_free(a);
    *activations = NULL;
}

int fl_activations_store_of(const fl_activations *a, int rank)
{
    return a == NULL ? 0 : fl_store_map_of(&a->map, rank);
}

fl_cache *fl_activations_store(const fl_activations *a, int number)
{
    return a->stores[(number - a->first_number) * a->n_stores / a->n_numbers];
}

void fl_activations_stats(const fl_activations *a, fl_cache_stats *stats)
{
    *stats = (fl_cache_stats){0};
    for (int i = 0; i < a->n_stores; i++) {
        fl_cache_stats s;
        fl_cache_get_stats(a->stores[i], &s);
        stats->n_values += s.n_values;
        stats->used_bytes += s.used_bytes;
        stats->memory_bytes += s.memory_bytes;
        stats->disk_bytes += s.disk_bytes;
        stats->n_put += s.n_put;
        stats->n_evicted += s.n_evicted;
        stats->n_refused += s.n_refused;
        stats->n_damaged += s.n_damaged;
        stats->n_recovered += s.n_recovered;
        stats->n_disk_errors += s.n_disk_errors;
    }
}
