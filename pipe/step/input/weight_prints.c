#include "pipe/step/input/weight_prints.h"

#include "cache/value.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/* Of a device whose memory the host cannot read, this much is copied at a time. */
enum { CHUNK_BYTES = 4 * 1024 * 1024 };

struct fl_weight_prints {
    int n_layers;
    _Atomic int64_t hashed_bytes;
    _Atomic uint64_t print[]; /* [n_layers]; 0: not known */
};

static size_t mapping_bytes(int n_layers)
{
    return sizeof(fl_weight_prints) + (size_t)n_layers * sizeof(uint64_t);
}

fl_status fl_weight_prints_create(int n_layers, fl_weight_prints **out)
{
    void *mapping = mmap(NULL, mapping_bytes(n_layers), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "hashes of weights: %s", strerror(errno));
    }
    *out = mapping;
    (*out)->n_layers = n_layers;
    return FL_OK;
}

void fl_weight_prints_destroy(fl_weight_prints **prints)
{
    if (*prints != NULL) {
        munmap(*prints, mapping_bytes((*prints)->n_layers));
        *prints = NULL;
    }
}

static fl_status hash_copied(const fl_params *params, const unsigned char *from, size_t size_bytes,
                             unsigned char *chunk, uint64_t *print)
{
    fl_device *d = params->device;
    for (size_t at = 0; at < size_bytes; at += CHUNK_BYTES) {
        size_t n = size_bytes - at < CHUNK_BYTES ? size_bytes - at : CHUNK_BYTES;
        FL_TRY(d->ops->copy_out(d, params->stream, chunk, from + at, n));
        FL_TRY(d->ops->sync(d, params->stream));
        *print = fl_checksum(chunk, n, *print);
    }
    return FL_OK;
}

/* The layer's weights are one piece of memory, padding of zeros included. chunk: NULL where the
 * host reads device memory. */
static fl_status hash_layer(fl_weight_prints *p, const fl_params *params, int layer,
                            unsigned char *chunk, uint64_t *print)
{
    const float *weight = params->weight[layer - params->first];
    size_t size_bytes = (size_t)fl_params_layer_count(params, layer) * sizeof(float);
    *print = (uint64_t)layer;
    if (chunk == NULL) {
        *print = fl_checksum(weight, size_bytes, *print);
    } else {
        FL_TRY(hash_copied(params, (const unsigned char *)weight, size_bytes, chunk, print));
    }
    *print |= 1; /* 0 stands for none */
    atomic_fetch_add(&p->hashed_bytes, (int64_t)size_bytes);
    return FL_OK;
}

static fl_status get_all(fl_weight_prints *p, const fl_params *params, int n_frozen, int begin,
                         unsigned char *chunk, uint64_t *out)
{
    for (int i = 0; i < n_frozen; i++) {
        int layer = (begin + i) % n_frozen;
        out[layer] = atomic_load(&p->print[layer]);
        if (out[layer] == 0) {
            FL_TRY(hash_layer(p, params, layer, chunk, &out[layer]));
            atomic_store(&p->print[layer], out[layer]);
        }
    }
    return FL_OK;
}

fl_status fl_weight_prints_get(fl_weight_prints *p, const fl_params *params, int n_frozen,
                               int reader, int n_readers, uint64_t *out)
{
    void *chunk = NULL;
    int begin = (int)((int64_t)n_frozen * reader / n_readers);
    if (!params->device->ops->host_memory) {
        FL_TRY(fl_alloc(CHUNK_BYTES, &chunk));
    }
    fl_status status = get_all(p, params, n_frozen, begin, chunk, out);
    fl_free(chunk);
    return status;
}

void fl_weight_prints_forget(fl_weight_prints *p, int n_frozen)
{
    for (int layer = n_frozen; p != NULL && layer < p->n_layers; layer++) {
        atomic_store(&p->print[layer], 0);
    }
}

int64_t fl_weight_prints_hashed_bytes(const fl_weight_prints *p)
{
    return atomic_load(&p->hashed_bytes);
}
