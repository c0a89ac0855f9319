/* A bucket through sockets: one ring of all its owners. */
#include "autodp/group/ring.h"

typedef struct gloo_bucket {
    host_bucket base;
    fl__ring ring;
} gloo_bucket;

static fl_status open_bucket(host_bucket *bucket, const int *owners)
{
    return fl__ring_open(&((gloo_bucket *)bucket)->ring, bucket, (span){0, bucket->base.n}, owners,
                         bucket->base.n_owners, bucket->base.my_place);
}

static void close_bucket(host_bucket *bucket)
{
    fl__ring_close(&((gloo_bucket *)bucket)->ring);
}

static fl_status run_ring(host_bucket *bucket)
{
    return fl__ring_run(&((gloo_bucket *)bucket)->ring, bucket->op);
}

static span part_of(const host_bucket *bucket, int place)
{
    return fl__ring_part((span){0, bucket->base.n}, bucket->base.n_owners, place);
}

const host_bucket_ops fl__gloo_buckets = {.size_bytes = sizeof(gloo_bucket),
                                          .shares_data = false,
                                          .part = part_of,
                                          .open = open_bucket,
                                          .close = close_bucket,
                                          .run = run_ring};
