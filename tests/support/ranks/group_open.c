#include "support/ranks/group_open.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/group_data.h"
#include "support/ranks/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

group_ways group_way;

int64_t group_soon(void)
{
    return fl_deadline_us(GROUP_MS);
}

/* The addresses of this machine are hosts to a group. */
static const char *address_of(int rank)
{
    static const char *const address[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    return group_way.hosts ? address[rank / 2] : NULL;
}

int group_n_ways(int through_host)
{
    return test_backend() == NULL ? through_host : 1;
}

void group_check_allocations(uint64_t before)
{
    RANK_CHECK(test_backend() != NULL || fl_alloc_count() == before);
}

fl_group *group_open(const rank_env *env, uint32_t generation)
{
    const fl_group_options options = {.transport = test_net_transport(),
                                      .device = the_device(),
                                      .generation = generation,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = env->kv,
                                      .host = address_of(env->rank),
                                      .open_timeout_ms = GROUP_MS,
                                      .wait_timeout_ms = GROUP_MS,
                                      .sockets_only = group_way.sockets_only,
                                      .backend = test_backend(),
                                      .every_pair = test_backend() != NULL};
    fl_group *group = NULL;
    RANK_OK(fl_group_open(&options, &group));
    return group;
}

void group_for_sizes(rank_body *body, void *context)
{
    for (int size = 1; size <= GROUP_RANKS; size++) {
        assert_int_equal(ranks_run(size, body, context, 3 * GROUP_MS), 0);
    }
}

float group_value(int rank, int64_t i)
{
    return (float)((i * 7 + rank * 13 + 1) % 1000);
}

fl_bucket *group_bucket(fl_group *group, uint32_t id, const int *owners, int n_owners,
                        const group_data *data, int64_t n)
{
    const fl_bucket_options options = {.id = id,
                                       .owners = owners,
                                       .n_owners = n_owners,
                                       .data = data->device,
                                       .dtype = FL_F32,
                                       .n = n};
    fl_bucket *bucket = NULL;
    RANK_OK(fl_bucket_create(group, &options, &bucket));
    return bucket;
}
