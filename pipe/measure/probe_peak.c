/* How fast a device can compute at all: the best that its own product of matrices does. Model FLOPs
 * utilization is measured by it, so it must not depend on the model. The
 * product is of the type of activations that the job has. */
#include "pipe/measure/probe.h"

#include <string.h>

/* Rows, outputs and inputs alike. One of the sizes up to LARGEST_HOST fits a processor's caches
 * best; a device with memory of its own may need larger ones to be busy. */
enum { REPEATS = 8, SMALLEST = 128, LARGEST_HOST = 512, LARGEST_OWN = 4096 };

/* A larger size is tried on such a device after one that took less time. */
static const double LONG_US = 20000.0;

static fl_status best_of(fl_device *d, fl_stream *s, const fl_linear_args *product,
                         double *flops_per_us)
{
    int64_t n = product->m;
    double flops = 2.0 * (double)n * (double)n * (double)n;
    for (int i = 0; i < REPEATS; i++) {
        double begun = fl_probe_now_us();
        FL_TRY(d->ops->linear(d, s, product));
        FL_TRY(d->ops->sync(d, s));
        double rate = flops / (fl_probe_now_us() - begun);
        *flops_per_us = i > 0 && rate > *flops_per_us ? rate : *flops_per_us; /* 0 packs w */
    }
    return FL_OK;
}

/* *flops_per_us is raised if this size is faster. */
static fl_status time_size(const fl_probe_options *o, int64_t n, double *flops_per_us)
{
    fl_device *d = o->device;
    size_t count = (size_t)(n * n), total = 3 * count * sizeof(float);
    float *memory = NULL;
    FL_TRY(fl_device_alloc(d, total, "the profile", (void **)&memory));
    fl_weight w = {.data = memory, .rows = n, .cols = n, .version = 1};
    const fl_linear_args product = {.dtype = fl_job_dtype(o->job),
                                    .in = memory + count,
                                    .w = &w,
                                    .y = memory + 2 * count,
                                    .m = n};
    fl_status status = best_of(d, o->stream, &product, flops_per_us);
    d->ops->weight_release(d, &w);
    fl_device_free(d, memory, total);
    return status;
}

fl_status fl_probe_peak(const fl_probe_options *options, fl_probe *probe)
{
    double best = 0.0;
    bool own = !options->device->ops->host_memory, goes_on = true;
    probe->phase = FL_PROBE_PEAK;
    for (int64_t n = SMALLEST; goes_on && n <= (own ? LARGEST_OWN : LARGEST_HOST); n *= 2) {
        double before = best, begun = fl_probe_now_us();
        FL_TRY(time_size(options, n, &best));
        goes_on = !own || (best > before && fl_probe_now_us() - begun < LONG_US);
    }
    probe->profile.peak_flops_per_us = best;
    return FL_OK;
}
