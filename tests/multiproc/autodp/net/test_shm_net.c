/* Nets through shared memory. Would catch: messages that overtake or block each other, one that is
 * larger than a lane and loses bytes, a receive that overflows, and members that do not notice the
 * end of another one while they wait for nothing of its own. */
#include "autodp/net/open/net_open.h"
#include "autodp/net/shm/shm_board.h"
#include "autodp/net/tag.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000, BEYOND_MS = 600000, LARGE = 5 * 1000 * 1000, N_SIZES = 6 };

static const size_t sizes[N_SIZES] = {0, 1, 24, FL_SHM_LANE_BYTES, FL_SHM_LANE_BYTES + 1, LARGE};

static int64_t patience(void)
{
    return fl_deadline_us(PATIENCE_MS);
}

static fl_status open_net(const rank_env *env, fl_net **net)
{
    const fl_net_options options = {.transport = fl_net_shared_memory(),
                                    .kv = env->kv,
                                    .name = "net",
                                    .rank = env->rank,
                                    .size = env->size,
                                    .open_timeout_ms = PATIENCE_MS,
                                    .wait_timeout_ms = BEYOND_MS};
    return fl_net_open(&options, net);
}

static unsigned char byte_of(int rank, size_t size, size_t i)
{
    return (unsigned char)(i * 31 + size + (size_t)rank * 7);
}

/* ---- messages ---- */

static fl_net_buffer *buffer_of(fl_net *net, void *data, size_t size)
{
    fl_net_buffer *b = NULL;
    RANK_OK(fl_net_buffer_create(net, data, size, &b));
    return b;
}

/* Each sends all sizes to the other, in order; it receives them in the opposite order. */
static void swap_order(const rank_env *env)
{
    fl_net *net = NULL;
    unsigned char *in[N_SIZES], *out[N_SIZES];
    fl_net_buffer *from[N_SIZES], *to[N_SIZES];
    int peer = 1 - env->rank;
    RANK_OK(open_net(env, &net));
    for (int i = 0; i < N_SIZES; i++) {
        RANK_OK(fl_alloc(sizes[i] + 1, (void **)&in[i]));
        RANK_OK(fl_alloc(sizes[i] + 1, (void **)&out[i]));
        for (size_t j = 0; j < sizes[i]; j++) {
            out[i][j] = byte_of(env->rank, sizes[i], j);
        }
        to[i] = buffer_of(net, out[i], sizes[i]);
        from[i] = buffer_of(net, in[i], sizes[i]);
        RANK_OK(fl_net_send(to[i], peer, fl_tag(FL_TAG_CHANNEL, (uint32_t)i), 0, sizes[i]));
    }
    for (int i = N_SIZES - 1; i >= 0; i--) {
        RANK_OK(fl_net_recv(from[i], peer, fl_tag(FL_TAG_CHANNEL, (uint32_t)i), 0, sizes[i]));
        RANK_OK(fl_net_wait_recv(from[i], patience()));
        for (size_t j = 0; j < sizes[i]; j++) {
            RANK_CHECK(in[i][j] == byte_of(peer, sizes[i], j));
        }
        RANK_CHECK(in[i][sizes[i]] == 0);
    }
    for (int i = 0; i < N_SIZES; i++) {
        RANK_OK(fl_net_wait_send(to[i], patience()));
        fl_net_buffer_destroy(&to[i]);
        fl_net_buffer_destroy(&from[i]);
        fl_free(in[i]);
        fl_free(out[i]);
    }
    fl_net_close(&net);
}

static void test_shm_net__messages_do_not_wait_for_those_of_other_tags(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, swap_order, NULL, PATIENCE_MS), 0);
}

/* Messages of one tag, with several receives posted ahead, each larger than its message. */
static void keep_order(const rank_env *env)
{
    enum { N = 1000, AHEAD = 4 };
    fl_net *net = NULL;
    int64_t value[AHEAD][2] = {{0}};
    fl_net_buffer *b[AHEAD];
    int peer = 1 - env->rank;
    bool sends = env->rank == 0;
    RANK_OK(open_net(env, &net));
    for (int i = 0; i < AHEAD; i++) {
        b[i] = buffer_of(net, value[i], sizeof value[i]);
    }
    for (int n = 0; n < N; n++) {
        int i = n % AHEAD;
        if (sends && n >= AHEAD) {
            RANK_OK(fl_net_wait_send(b[i], patience()));
        }
        if (sends) {
            value[i][0] = n;
            RANK_OK(fl_net_send(b[i], peer, 7, 0, sizeof value[i][0]));
        } else {
            for (int ahead = n == 0 ? 0 : n + AHEAD - 1; ahead < n + AHEAD && ahead < N; ahead++) {
                RANK_OK(fl_net_recv(b[ahead % AHEAD], peer, 7, 0, sizeof value[0]));
            }
            RANK_OK(fl_net_wait_recv(b[i], patience()));
            RANK_CHECK(value[i][0] == n && value[i][1] == 0);
        }
    }
    for (int i = 0; i < AHEAD; i++) {
        if (sends) {
            RANK_OK(fl_net_wait_send(b[i], patience()));
        }
        fl_net_buffer_destroy(&b[i]);
    }
    fl_net_close(&net);
}

static void test_shm_net__messages_of_one_tag_keep_their_order(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, keep_order, NULL, PATIENCE_MS), 0);
}

static void overflow(const rank_env *env)
{
    fl_net *net = NULL;
    char data[64] = "";
    RANK_OK(open_net(env, &net));
    fl_net_buffer *b = buffer_of(net, data, sizeof data);
    if (env->rank == 0) {
        RANK_OK(fl_net_send(b, 1, 1, 0, 64));
        RANK_CHECK(fl_net_wait_send(b, patience()) == FL_EINTERNAL);
    } else {
        RANK_OK(fl_net_recv(b, 0, 1, 0, 63));
        RANK_CHECK(fl_net_wait_recv(b, patience()) != FL_OK);
    }
    fl_net_buffer_destroy(&b);
    fl_net_close(&net);
}

static void test_shm_net__a_message_that_is_too_long_is_refused(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, overflow, NULL, PATIENCE_MS), 0);
}

/* All to all, with as many members as ranks.h has. */
static void talk_to_all(const rank_env *env)
{
    fl_net *net = NULL;
    int in[RANKS_MAX], mine = env->rank;
    fl_net_buffer *from[RANKS_MAX], *to[RANKS_MAX];
    RANK_OK(open_net(env, &net));
    for (int peer = 0; peer < env->size; peer++) {
        from[peer] = to[peer] = NULL;
        if (peer != env->rank) {
            from[peer] = buffer_of(net, &in[peer], sizeof in[peer]);
            to[peer] = buffer_of(net, &mine, sizeof mine);
            RANK_OK(fl_net_recv(from[peer], peer, 1, 0, sizeof mine));
            RANK_OK(fl_net_send(to[peer], peer, 1, 0, sizeof mine));
        }
    }
    for (int peer = 0; peer < env->size; peer++) {
        if (peer != env->rank) {
            RANK_OK(fl_net_wait_recv(from[peer], patience()));
            RANK_OK(fl_net_wait_send(to[peer], patience()));
            RANK_CHECK(in[peer] == peer);
        }
        fl_net_buffer_destroy(&from[peer]);
        fl_net_buffer_destroy(&to[peer]);
    }
    RANK_CHECK(count_threads() <= 3); /* the program's, and those of the store's client */
    fl_net_close(&net);
}

static void test_shm_net__all_talk_to_all_without_a_thread(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(RANKS_MAX, talk_to_all, NULL, PATIENCE_MS), 0);
}

/* Would catch: members that wait for memory which they may not see. net.c uses sockets then. */
static void open_without_memory(const rank_env *env)
{
    fl_net *net = NULL;
    RANK_CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    RANK_CHECK(open_net(env, &net) == FL_ENOTSUP);
}

static void test_shm_net__is_refused_where_no_memory_is_shared(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(3, open_without_memory, NULL, PATIENCE_MS), 0);
}

/* ---- members that end ---- */

/* Rank 1 ends once the others have opened the net: it has heard of both. */
static void end_opened(fl_net *net)
{
    for (int peer = 0; peer <= 2; peer += 2) {
        char data = 0;
        fl_net_buffer *b = buffer_of(net, &data, 1);
        RANK_OK(fl_net_recv(b, peer, 2, 0, 1));
        RANK_OK(fl_net_wait_recv(b, patience()));
    }
    raise(SIGKILL);
}

/* The others wait for each other, who are fine. */
static void outlive_rank_1(const rank_env *env)
{
    fl_net *net = NULL;
    char data = 0, sent = 1;
    RANK_OK(open_net(env, &net));
    if (env->rank == 1) {
        end_opened(net);
    }
    int other = 2 - env->rank;
    fl_net_buffer *b = buffer_of(net, &data, 1), *hello = buffer_of(net, &sent, 1);
    RANK_OK(fl_net_recv(b, other, 1, 0, 1));
    RANK_OK(fl_net_send(hello, 1, 2, 0, 1));
    RANK_CHECK(fl_net_wait_recv(b, fl_deadline_us(BEYOND_MS)) == FL_EPEER);
    fl_net_buffer_destroy(&hello);
    fl_net_buffer_destroy(&b);
    fl_net_close(&net);
}

static void test_shm_net__a_dead_member_breaks_it(void **state)
{
    (void)state;
    const rank_end ends[3] = {RANK_ENDS, RANK_KILLED, RANK_ENDS};
    assert_int_equal(ranks_run_ending(3, outlive_rank_1, NULL, ends, PATIENCE_MS), 0);
}

/* Rank 1 ends after it has joined, before rank 2 comes, which never does. */
static void end_in_opening(const rank_env *env)
{
    fl_net *net = NULL;
    if (env->rank == 1) {
        fl_shm_board board = {.rank = 1};
        fl_shm_board_key *key = NULL;
        size_t size_bytes = 0;
        RANK_OK(env->kv->get(env->kv->self, "net/board", patience(), (void **)&key, &size_bytes));
        RANK_OK(fl_shm_board_join(&board, env->size, key));
        fl_shm_board_arrive(&board);
        raise(SIGKILL);
    }
    if (env->rank == 0) {
        RANK_CHECK(open_net(env, &net) == FL_EPEER);
    }
}

static void test_shm_net__a_member_that_dies_in_the_opening_ends_it(void **state)
{
    (void)state;
    const rank_end ends[3] = {RANK_ENDS, RANK_KILLED, RANK_ENDS};
    assert_int_equal(ranks_run_ending(3, end_in_opening, NULL, ends, PATIENCE_MS / 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_net__messages_do_not_wait_for_those_of_other_tags),
        cmocka_unit_test(test_shm_net__messages_of_one_tag_keep_their_order),
        cmocka_unit_test(test_shm_net__a_message_that_is_too_long_is_refused),
        cmocka_unit_test(test_shm_net__all_talk_to_all_without_a_thread),
        cmocka_unit_test(test_shm_net__is_refused_where_no_memory_is_shared),
        cmocka_unit_test(test_shm_net__a_dead_member_breaks_it),
        cmocka_unit_test(test_shm_net__a_member_that_dies_in_the_opening_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
