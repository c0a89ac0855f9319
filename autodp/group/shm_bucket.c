/* A bucket between members of one host: all its owners are one team. */
#include "autodp/group/shm_team.h"

typedef struct shm_bucket {
    host_bucket base;
    fl__shm_team team;
} shm_bucket;

static fl_status open_bucket(host_bucket *bucket, const int *owners)
{
    int n = bucket->base.n_owners;
    return fl__shm_team_open(&((shm_bucket *)bucket)->team, bucket, owners, n,
                             bucket->base.my_place, n);
}

static void close_bucket(host_bucket *bucket)
{
    fl__shm_team_close(&((shm_bucket *)bucket)->team);
}

static fl_status run_in_memory(host_bucket *bucket)
{
    fl__shm_team *team = &((shm_bucket *)bucket)->team;
    FL_TRY(fl__shm_team_find(team));
    FL_TRY(bucket->op == FL_ALL_GATHER ? FL_OK : fl__shm_team_reduce(team));
    FL_TRY(bucket->op == FL_REDUCE_SCATTER ? FL_OK : fl__shm_team_gather(team));
    return fl__shm_team_leave(team);
}

static span part_of(const host_bucket *bucket, int place)
{
    return fl__span_part((span){0, bucket->base.n}, place, bucket->base.n_owners);
}

const host_bucket_ops fl__shm_buckets = {.size_bytes = sizeof(shm_bucket),
                                         .shares_data = true,
                                         .part = part_of,
                                         .open = open_bucket,
                                         .close = close_bucket,
                                         .run = run_in_memory};
