/* The message group: telling, gathering, and refusing what bears another generation. */
#include "device/system/clock.h"
#include "support/ranks/messages.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000, BEYOND_MS = 600000, MOST_RANKS = 6, GATHER_MAX = 4096 };

static int64_t soon(void)
{
    return fl_deadline_us(PATIENCE_MS);
}

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)((size_t)rank * 89 + i * 3 + 1);
}

static void tell_from_each(const rank_env *env)
{
    static const size_t sizes[] = {0, 1, 1000, FL_MESSAGE_MAX_BYTES};
    static unsigned char data[FL_MESSAGE_MAX_BYTES];
    fl_message_group *group = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int root = 0; root < env->size; root++) {
            size_t size_bytes = env->rank == root ? sizes[s] : 12345;
            for (size_t i = 0; i < sizes[s]; i++) {
                data[i] = env->rank == root ? byte_of(root, i) : 0;
            }
            RANK_OK(fl_message_broadcast(group, root, 3, data, &size_bytes, soon()));
            RANK_CHECK(size_bytes == sizes[s]);
            for (size_t i = 0; i < sizes[s]; i++) {
                RANK_CHECK(data[i] == byte_of(root, i));
            }
        }
    }
    size_t too_large = FL_MESSAGE_MAX_BYTES + 1;
    if (env->rank == 0) {
        RANK_CHECK(fl_message_broadcast(group, 0, 3, data, &too_large, soon()) == FL_EINVAL);
    }
    RANK_CHECK(fl_message_broadcast(group, env->size, 3, data, &too_large, soon()) == FL_EINVAL);
    fl_message_close(&group);
}

static void gather(const rank_env *env)
{
    static const size_t sizes[] = {0, 1, 33, GATHER_MAX};
    static unsigned char mine[GATHER_MAX], all[MOST_RANKS * GATHER_MAX];
    fl_message_group *group = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    for (int round = 0; round < 40; round++) {
        size_t size_bytes = sizes[round % 4];
        for (size_t i = 0; i < size_bytes; i++) {
            mine[i] = byte_of(env->rank + round, i);
        }
        RANK_OK(fl_message_all_gather(group, 3, mine, size_bytes, all, soon()));
        for (int rank = 0; rank < env->size; rank++) {
            for (size_t i = 0; i < size_bytes; i++) {
                RANK_CHECK(all[(size_t)rank * size_bytes + i] == byte_of(rank + round, i));
            }
        }
    }
    RANK_CHECK(fl_message_all_gather(group, 3, mine, GATHER_MAX + 1, all, soon()) == FL_EINVAL);
    fl_message_close(&group);
}

static void test_message__tells_and_gathers(void **state)
{
    (void)state;
    /* Up to four members talk directly, more through member 0. */
    for (int size = 1; size <= MOST_RANKS; size++) {
        assert_int_equal(ranks_run(size, tell_from_each, NULL, 2 * PATIENCE_MS), 0);
        assert_int_equal(ranks_run(size, gather, NULL, 2 * PATIENCE_MS), 0);
    }
}

/* Rank 1 has missed a transition: it is in generation 4 and receives a message of generation 5. */
static void meet_stale(const rank_env *env)
{
    fl_message_group *group = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    static char data[FL_MESSAGE_MAX_BYTES];
    snprintf(data, sizeof data, "%s", env->rank == 0 ? "plan" : "mine");
    size_t size_bytes = 5;
    bool stale = env->rank == 1;
    fl_status status = fl_message_broadcast(group, 0, stale ? 4 : 5, data, &size_bytes, soon());
    RANK_CHECK(status == (stale ? FL_ESTALE : FL_OK));
    RANK_CHECK(strcmp(data, stale ? "mine" : "plan") == 0);

    /* In an all-gather every member learns of it, directly or through member 0. */
    int mine = env->rank, all[MOST_RANKS];
    status = fl_message_all_gather(group, stale ? 4 : 5, &mine, sizeof mine, all, soon());
    RANK_CHECK(status == FL_ESTALE);

    /* A refusal breaks nothing: a member that has caught up takes part again. */
    RANK_OK(fl_message_all_gather(group, 5, &mine, sizeof mine, all, soon()));
    RANK_CHECK(all[1] == 1);
    size_bytes = 5;
    RANK_OK(fl_message_broadcast(group, 0, 5, data, &size_bytes, soon()));
    RANK_CHECK(strcmp(data, "plan") == 0);
    fl_message_close(&group);
}

static void test_message__of_another_generation_is_refused(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, meet_stale, NULL, 2 * PATIENCE_MS), 0);
    assert_int_equal(ranks_run(MOST_RANKS, meet_stale, NULL, 2 * PATIENCE_MS), 0);
}

typedef struct fall_case {
    int signal;
    bool telling;
    int64_t wait_ms;
} fall_case;

static void lose_root(const rank_env *env)
{
    const fall_case *c = env->context;
    fl_message_group *group = rank_messages(env, PATIENCE_MS, c->wait_ms);
    char mine = 'x', all[MOST_RANKS];
    int64_t deadline_us = fl_deadline_us(BEYOND_MS);
    /* The root may fall before its last answer is out. */
    fl_status status = fl_message_all_gather(group, 1, &mine, 1, all, deadline_us);
    if (env->rank == 0) {
        raise(c->signal);
    }
    static char data[FL_MESSAGE_MAX_BYTES];
    size_t size_bytes = 1;
    if (status == FL_OK) {
        status = c->telling ? fl_message_broadcast(group, 0, 1, data, &size_bytes, deadline_us)
                            : fl_message_all_gather(group, 1, &mine, 1, all, deadline_us);
    }
    RANK_CHECK(fl_status_is_regroup(status));
    RANK_CHECK(fl_status_is_regroup(fl_message_all_gather(group, 1, &mine, 1, all, deadline_us)));
    fl_message_close(&group);
}

/* A killed member is noticed without a deadline's help, a stopped one by the wait's time-out. */
static void test_message__ends_when_the_root_falls(void **state)
{
    (void)state;
    for (int size = 3; size <= 5; size += 2) {
        for (int telling = 0; telling < 2; telling++) {
            fall_case killed = {SIGKILL, telling, BEYOND_MS};
            fall_case stopped = {SIGSTOP, telling, 2000};
            rank_end ends[MOST_RANKS] = {RANK_KILLED};
            assert_int_equal(ranks_run_ending(size, lose_root, &killed, ends, PATIENCE_MS), 0);
            ends[0] = RANK_STOPPED;
            assert_int_equal(ranks_run_ending(size, lose_root, &stopped, ends, PATIENCE_MS), 0);
        }
    }
}

/* The last rank falls, and can be spared. */
typedef struct spare_case {
    int signal;
    bool in_gather; /* lost while the others wait for its row, else while none of them waits */
} spare_case;

static void lose_spare(const rank_env *env)
{
    const spare_case *c = env->context;
    const int n_stay = env->size < 2 ? 1 : env->size - 1, last = n_stay;
    bool spare[MOST_RANKS] = {false}, nobody[MOST_RANKS] = {false};
    fl_message_group *group = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    int mine = env->rank + 1, all[MOST_RANKS];
    spare[last] = true;
    RANK_OK(fl_message_release(group, spare));
    RANK_OK(fl_message_all_gather(group, 1, &mine, sizeof mine, all, soon()));
    if (env->rank == last) {
        raise(c->signal);
    }
    while (!c->in_gather && !fl_message_lost(group, last)) {
        sched_yield();
    }
    for (int round = 0; round < 20; round++) {
        RANK_OK(fl_message_all_gather(group, 1, &mine, sizeof mine, all, soon()));
        for (int rank = 0; rank < env->size; rank++) {
            RANK_CHECK(all[rank] == (rank == last ? 0 : rank + 1));
        }
        static char data[FL_MESSAGE_MAX_BYTES];
        size_t size_bytes = 5;
        snprintf(data, sizeof data, "%s", env->rank == round % n_stay ? "plan" : "mine");
        RANK_OK(fl_message_broadcast(group, round % n_stay, 1, data, &size_bytes, soon()));
        RANK_CHECK(strcmp(data, "plan") == 0);
    }
    RANK_CHECK(fl_message_lost(group, last));
    RANK_CHECK(!fl_message_lost(group, 0));
    RANK_CHECK(fl_message_release(group, nobody) == FL_EPEER);
    fl_message_close(&group);
}

/* Would catch: a group that breaks because it lost a member that it does not need; a result that
 * still has that member's row; a wait for that member. */
static void test_message__goes_on_without_a_spare_member(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST_RANKS; size++) {
        for (int in_gather = 0; in_gather < 2; in_gather++) {
            spare_case c = {SIGKILL, in_gather};
            rank_end ends[MOST_RANKS] = {RANK_ENDS};
            ends[size - 1] = RANK_KILLED;
            assert_int_equal(ranks_run_ending(size, lose_spare, &c, ends, 2 * PATIENCE_MS), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message__tells_and_gathers),
        cmocka_unit_test(test_message__of_another_generation_is_refused),
        cmocka_unit_test(test_message__ends_when_the_root_falls),
        cmocka_unit_test(test_message__goes_on_without_a_spare_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
