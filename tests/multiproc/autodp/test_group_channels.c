/* Channels of the training group where nothing fails; over the transport that FL_TEST_TRANSPORT
 * names. */
#include "device/system/alloc.h"
#include "support/ranks/group_data.h"
#include "support/ranks/group_open.h"
#include "support/ranks/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N_MESSAGES = 60, MESSAGE_MAX = 300 * 1024 };

static size_t message_size(int64_t n)
{
    return n % 5 == 0 ? MESSAGE_MAX : (size_t)(n * 977 % 5000); /* 0 bytes too */
}

static unsigned char message_byte(int sender, int64_t n, size_t i)
{
    return (unsigned char)(i + (size_t)n * 3 + (size_t)sender * 101);
}

/* Both neighbours at once, as a stage does that sends activations up and gradients down. */
static void talk_both_ways(const rank_env *env)
{
    int depth = *(const int *)env->context;
    fl_group *group = group_open(env, 1);
    int peer = 1 - env->rank;
    fl_channel *to = NULL, *from = NULL;
    RANK_OK(fl_channel_open(group, true, peer, (uint32_t)env->rank, MESSAGE_MAX, depth, &to));
    RANK_OK(fl_channel_open(group, false, peer, (uint32_t)peer, MESSAGE_MAX, depth, &from));
    group_data mine = group_data_take(MESSAGE_MAX), in = group_data_take(MESSAGE_MAX);
    uint64_t allocations = fl_alloc_count();
    for (int64_t n = 0; n < depth; n++) {
        RANK_OK(fl_channel_post(from, message_size(n)));
    }
    for (int64_t n = 0; n < N_MESSAGES; n++) {
        unsigned char *place = fl_channel_place(to);
        bool from_place = n % 3 != 0 && the_device()->ops->host_memory;
        unsigned char *out = from_place ? place : mine.host;
        RANK_CHECK((place != NULL) == the_device()->ops->host_memory);
        for (size_t i = 0; i < message_size(n); i++) {
            out[i] = message_byte(env->rank, n, i);
        }
        group_data_put(&mine);
        RANK_OK(fl_channel_send_from(to, from_place ? place : mine.device, message_size(n), NULL,
                                     group_soon()));
        memset(mine.host, 0xff, mine.size_bytes);
        group_data_put(&mine);
        RANK_OK(fl_channel_receive_to(from, in.device, message_size(n), NULL, group_soon()));
        group_data_get(&in);
        for (size_t i = 0; i < message_size(n); i++) {
            RANK_CHECK(((unsigned char *)in.host)[i] == message_byte(peer, n, i));
        }
        if (n + depth < N_MESSAGES && n < N_MESSAGES / 2) {
            RANK_OK(fl_channel_post(from, message_size(n + depth)));
        } else if (n >= N_MESSAGES / 2 + depth) {
            RANK_CHECK(n == N_MESSAGES - 1 || fl_channel_post(from, MESSAGE_MAX + 1) == FL_EINVAL);
        }
    }
    RANK_OK(fl_channel_flush(to, group_soon()));
    group_check_allocations(allocations);
    fl_channel_close(&to);
    fl_channel_close(&from);
    fl_group_close(&group);
    group_data_give(&mine);
    group_data_give(&in);
}

/* Messages from the place in the channel and from elsewhere, posted ahead and not. Catches a
 * deadlock when both ends send first, and buffers overwritten while under way. */
static void test_channel__carries_messages_both_ways_at_once(void **state)
{
    (void)state;
    for (int way = 0; way < group_n_ways(2); way++) {
        group_way.sockets_only = way == 1;
        for (int depth = 1; depth <= 4; depth++) {
            assert_int_equal(ranks_run(2, talk_both_ways, &depth, 2 * GROUP_MS), 0);
        }
    }
    group_way.sockets_only = false;
}

/* Closed and opened again under the same id, with nothing that keeps the two ends in step but the
 * messages themselves. */
static void talk_again(const rank_env *env)
{
    fl_group *group = group_open(env, 1);
    bool sending = env->rank == 0;
    int64_t n_times = test_backend() == NULL ? 200 : 20; /* each opens a communicator */
    group_data there = group_data_take(sizeof(int64_t));
    int64_t *value = there.host;
    for (int64_t time = 0; time < n_times; time++) {
        fl_channel *c = NULL;
        RANK_OK(fl_channel_open(group, sending, 1 - env->rank, 7, sizeof time, 1, &c));
        for (int64_t n = 0; n < 3; n++) {
            *value = sending ? 3 * time + n : -1;
            group_data_put(&there);
            if (sending) {
                RANK_OK(fl_channel_send_from(c, there.device, sizeof *value, NULL, group_soon()));
            } else {
                RANK_OK(fl_channel_receive_to(c, there.device, sizeof *value, NULL, group_soon()));
                group_data_get(&there);
                RANK_CHECK(*value == 3 * time + n);
            }
        }
        if (sending) {
            RANK_OK(fl_channel_flush(c, group_soon()));
        }
        fl_channel_close(&c);
    }
    fl_group_close(&group);
    group_data_give(&there);
}

/* Catches an end that takes the other's earlier channel for the present one. */
static void test_channel__can_be_opened_again(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, talk_again, NULL, 2 * GROUP_MS), 0);
}

static void misuse_channel(const rank_env *env)
{
    fl_group *group = group_open(env, 1);
    fl_channel *c = NULL;
    RANK_CHECK(fl_channel_open(group, true, env->rank, 1, 8, 1, &c) == FL_EINVAL);
    RANK_CHECK(fl_channel_open(group, true, 2, 1, 8, 1, &c) == FL_EINVAL);
    RANK_CHECK(fl_channel_open(group, true, 1 - env->rank, 1, 8, 0, &c) == FL_EINVAL);
    bool sending = env->rank == 0;
    RANK_OK(fl_channel_open(group, sending, 1 - env->rank, 1, 8, 1, &c));
    group_data there = group_data_take(9);
    void *data = there.device;
    if (sending) {
        RANK_CHECK(fl_channel_send_from(c, data, 9, NULL, group_soon()) == FL_EINVAL);
        RANK_CHECK(fl_channel_post(c, 8) == FL_EINVAL);
        RANK_CHECK(fl_channel_receive_to(c, data, 8, NULL, group_soon()) == FL_EINVAL);
        RANK_OK(fl_channel_send_from(c, data, 8, NULL, group_soon()));
        RANK_OK(fl_channel_flush(c, group_soon()));
    } else {
        RANK_CHECK(fl_channel_place(c) == NULL);
        RANK_CHECK(fl_channel_send_from(c, data, 8, NULL, group_soon()) == FL_EINVAL);
        RANK_CHECK(fl_channel_flush(c, group_soon()) == FL_EINVAL);
        RANK_OK(fl_channel_post(c, 8));
        RANK_CHECK(fl_channel_post(c, 8) == FL_EINVAL);
        RANK_CHECK(fl_channel_receive_to(c, data, 7, NULL, group_soon()) == FL_EINVAL);
        RANK_OK(fl_channel_receive_to(c, data, 8, NULL, group_soon()));
        group_data_get(&there);
    }
    fl_channel_close(&c);
    fl_group_close(&group);
    group_data_give(&there);
}

static void test_channel__refuses_what_it_was_not_opened_for(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, misuse_channel, NULL, 2 * GROUP_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channel__carries_messages_both_ways_at_once),
        cmocka_unit_test(test_channel__can_be_opened_again),
        cmocka_unit_test(test_channel__refuses_what_it_was_not_opened_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
