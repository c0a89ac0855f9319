/* How long a read from the cache's memory takes. Decisions compare it with what frozen layers take,
 * so it belongs to the profile: measured in every run, it would make equal runs decide differently.
 */
#include "pipe/measure/probe.h"

#include "cache/cache.h"
#include "device/system/alloc.h"
#include "pipe/measure/quantile.h"

enum { VALUES_MAX = 64, VALUES_MIN = 4, REPEATS = 9, MEMORY_BYTES = 16 << 20 };

/* All values fit, so the cache never chooses one to evict. */
static int64_t next_use(const void *context, int64_t key, int64_t now)
{
    (void)context, (void)key, (void)now;
    return INT64_MAX;
}

static int64_t key_at(const void *context, int64_t time)
{
    (void)context, (void)time;
    return 0;
}

/* The median time of a read of n elements, microseconds. */
static double time_reads(fl_cache *cache, void *values, int64_t n, int64_t n_values)
{
    const uint64_t print[2] = {0, 1};
    fl_cache_prints prints = {.n_levels = 2, .print = print};
    double us[REPEATS];
    int64_t got;
    int level;
    for (int64_t key = 0; key < n_values; key++) {
        (void)fl_cache_put(cache, key, 1, print[1], values, n, 0);
    }
    for (int i = 0; i < REPEATS; i++) {
        double begun = fl_probe_now_us();
        for (int64_t key = 0; key < n_values; key++) {
            (void)fl_cache_get(cache, &prints, key, values, n, &level, &got);
        }
        us[i] = (fl_probe_now_us() - begun) / (double)n_values;
    }
    prints.n_levels = 0;
    fl_cache_keep(cache, &prints);
    return fl_quantile_median(us, REPEATS);
}

static int64_t largest_elements(const fl_profile *profile, int64_t element_bytes)
{
    int64_t most = 2;
    for (int i = 0; i < profile->n_layers; i++) {
        int64_t n = profile->layer[i].out_bytes / element_bytes;
        most = n > most ? n : most;
    }
    return most;
}

fl_status fl_probe_read(const fl_probe_options *options, fl_probe *probe)
{
    int64_t element_bytes = (int64_t)fl_dtype_size(fl_job_dtype(options->job));
    int64_t n = largest_elements(&probe->profile, element_bytes), n_bytes = n * element_bytes;
    int64_t n_values = MEMORY_BYTES / n_bytes;
    n_values = n_values > VALUES_MAX ? VALUES_MAX : n_values < VALUES_MIN ? VALUES_MIN : n_values;
    fl_cache_options o = {.n_keys = n_values,
                          .unit_elements = n,
                          .value_elements = n,
                          .values = fl_job_dtype(options->job),
                          .dtype = fl_job_cache_dtype(options->job),
                          .future = {.context = options, .next_use = next_use, .key_at = key_at}};
    fl_cache *cache = NULL;
    void *values = NULL;
    probe->phase = FL_PROBE_READ;
    o.memory_bytes = n_values * fl_cache_least_bytes(&o);
    FL_TRY(fl_alloc_array((size_t)n, (size_t)element_bytes, &values));
    fl_status status = fl_cache_create(&o, &cache);
    if (status == FL_OK) {
        double small = time_reads(cache, values, 1, n_values);
        double large = time_reads(cache, values, n, n_values);
        probe->profile.read.call_us = small;
        probe->profile.read.us_per_byte = large > small ? (large - small) / (double)n_bytes : 0.0;
    }
    fl_cache_destroy(&cache);
    fl_free(values);
    return status;
}
