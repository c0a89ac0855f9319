/* Would catch: rows that are swapped between rounds or members, data of a stale generation that is
 * accepted, and buffers that grow with the square of the number of members. */
#include "autodp/net/small_all_gather.h"

#include "autodp/net/open/net_open.h"
#include "autodp/net/tag.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_DIRECT = 4, MAX_BYTES = 8192, ROUNDS = 5, MEASURED = 5 };

static int64_t soon(void)
{
    return fl_deadline_us(20000);
}

static fl_net *open_net(const rank_env *env)
{
    fl_net *net = NULL;
    const fl_net_options options = {.transport = test_net_transport(),
                                    .kv = env->kv,
                                    .name = "gather",
                                    .rank = env->rank,
                                    .size = env->size,
                                    .open_timeout_ms = 20000,
                                    .wait_timeout_ms = 20000};
    RANK_OK(fl_net_open(&options, &net));
    return net;
}

static int64_t heap_bytes(void)
{
    struct mallinfo2 now = mallinfo2();
    return (int64_t)(now.uordblks + now.hblkhd);
}

/* Opens the i-th all-gather among all ranks; *grown is the memory that it took. */
static fl_all_gather *open_gather(const rank_env *env, fl_net *net, uint32_t i, int64_t *grown)
{
    fl_all_gather *gather = NULL;
    int64_t before = heap_bytes();
    int root = env->size <= MOST_DIRECT ? FL_ALL_GATHER_DIRECT : env->size / 3;
    RANK_OK(fl_all_gather_create(net, env->rank, env->size, root,
                                 fl_tag(FL_TAG_GROUP_ALL_REDUCE, i), MAX_BYTES, &gather));
    *grown = heap_bytes() - before;
    return gather;
}

static void give_and_check(const rank_env *env, fl_all_gather *gather, unsigned char *all,
                           int round)
{
    size_t n = round % 2 == 0 ? MAX_BYTES : 3;
    unsigned char mine[MAX_BYTES];
    memset(mine, 16 * round + env->rank, n);
    RANK_OK(fl_all_gather_run(gather, 1, mine, n, all, soon()));
    for (int rank = 0; rank < env->size; rank++) {
        for (size_t i = 0; i < n; i++) {
            RANK_CHECK(all[(size_t)rank * n + i] == 16 * round + rank);
        }
    }
}

static void rounds_body(const rank_env *env)
{
    int64_t grown = 0;
    unsigned char *all = NULL;
    fl_net *net = open_net(env);
    fl_all_gather *gather = open_gather(env, net, 0, &grown);
    RANK_OK(fl_alloc((size_t)env->size * MAX_BYTES, (void **)&all));
    for (int round = 0; round < ROUNDS; round++) {
        give_and_check(env, gather, all, round);
    }
    uint32_t other = env->rank == env->size - 1 ? 7 : 1; /* the last member is a generation ahead */
    unsigned char mine = 0;
    fl_status status = fl_all_gather_run(gather, other, &mine, 1, all, soon());
    RANK_CHECK(env->size == 1 ? status == FL_OK : status == FL_ESTALE);
    give_and_check(env, gather, all, ROUNDS);
    fl_free(all);
    fl_all_gather_destroy(&gather);
    fl_net_close(&net);
}

static void test_small_all_gather__brings_every_row_to_every_member(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, MOST_DIRECT, MOST_DIRECT + 1, 9};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(ranks_run(sizes[i], rounds_body, NULL, 60000), 0);
    }
}

/* Two slots of a table and a message to send: what grows with the members is the table. The bound
 * leaves room for Gloo's own objects, and is a quarter of what a row of a table for each member
 * would take. Threads of the transport take and free memory meanwhile, as for a handshake: several
 * all-gathers are measured, and the bounds hold for those that they disturb least. */
static void memory_body(const rank_env *env)
{
    int64_t most = 0, least = INT64_MAX, table_bytes = (int64_t)env->size * MAX_BYTES;
    fl_net *net = open_net(env);
    fl_all_gather *gathers[MEASURED];
    for (uint32_t i = 0; i < MEASURED; i++) {
        int64_t grown = 0;
        gathers[i] = open_gather(env, net, i, &grown);
        most = grown > most ? grown : most;
        least = grown < least ? grown : least;
    }
    if (most <= 0 || least >= 4 * table_bytes) {
        fprintf(stderr, "rank %d of %d: %lld .. %lld bytes\n", env->rank, env->size,
                (long long)least, (long long)most);
    }
    RANK_CHECK(most > 0 && least < 4 * table_bytes);
    for (int i = 0; i < MEASURED; i++) {
        fl_all_gather_destroy(&gathers[i]);
    }
    fl_net_close(&net);
}

static void test_small_all_gather__memory_grows_with_the_members(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(8, memory_body, NULL, 60000), 0);
    assert_int_equal(ranks_run(RANKS_MAX, memory_body, NULL, 60000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_all_gather__brings_every_row_to_every_member),
        cmocka_unit_test(test_small_all_gather__memory_grows_with_the_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
