/* Dropout, split over the compute threads by samples: the mask depends on the sample alone. */
#include "device/cpu/wide.h"

#include "device/random/philox.h"

#include <string.h>

void fl__mask_key(const fl_mask *mask, uint32_t key[2])
{
    uint64_t epoch_key = mask->epoch_key_device != NULL ? *mask->epoch_key_device
                                                        : fl__epoch_key64(mask->seed, mask->epoch);
    uint64_t mixed = fl__mask_key64(epoch_key, mask->layer, mask->stream);
    key[0] = (uint32_t)mixed;
    key[1] = (uint32_t)(mixed >> 32);
}

static void drop_sample(const fl__cpu *cpu, const fl_dropout_args *a, const uint32_t key[2],
                        int64_t i, float *wide)
{
    int64_t begin = a->offsets.host[i] * a->width, n = a->offsets.host[i + 1] * a->width - begin;
    int64_t sample = a->mask.sample_ids[i];
    if (a->dtype == FL_F32) {
        cpu->isa->dropout((const float *)a->in + begin, key, sample, a->mask.p,
                          (float *)a->y + begin, n);
        return;
    }
    cpu->isa->widen((const uint16_t *)a->in + begin, wide, n);
    cpu->isa->dropout(wide, key, sample, a->mask.p, wide, n);
    cpu->isa->narrow(wide, (uint16_t *)a->y + begin, n);
}

fl_status fl__cpu_dropout(fl_device *d, FL__UNUSED fl_stream *s, const fl_dropout_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    const fl_offsets *o = &a->offsets;
    if (a->mask.p <= 0.0f) {
        if (a->y != a->in) {
            memcpy(a->y, a->in,
                   (size_t)(o->host[o->n_samples] * a->width) * fl_dtype_size(a->dtype));
        }
        return FL_OK;
    }
    if (a->dtype == FL_BF16) {
        FL_TRY(fl__cpu_reserve(cpu, (size_t)(fl__longest_sample(o) * a->width) * sizeof(float)));
    }
    uint32_t key[2];
    fl__mask_key(&a->mask, key);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(o->n_samples, 1, d->n_threads, t);
        for (int64_t i = r.begin; i < r.end; i++) {
            drop_sample(cpu, a, key, i, fl__cpu_scratch(cpu, t));
        }
    }
    return FL_OK;
}
