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

enum { PATIENCE_MS = 60000, BEYOND_MS = 600000, GATHER_MAX = 4096 };

/* Over TLS, all-gathers among more than 8 members go through one of them. */
enum { FEW_RANKS = 6, MOST_RANKS = 10 };
static const int sizes[] = {1, 2, 3, 4, 5, FEW_RANKS, MOST_RANKS};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static bool gathers_through_one(const rank_env *env)
{
    return env->size > 8 && test_transport_is("tls");
}

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
    static const size_t bytes[] = {0, 1, 1000, FL_MESSAGE_MAX_BYTES};
    static unsigned char data[FL_MESSAGE_MAX_BYTES];
    fl_message_group *group = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    for (size_t s = 0; s < sizeof bytes / sizeof *bytes; s++) {
        for (int root = 0; root < env->size; root++) {
            size_t size_bytes = env->rank == root ? bytes[s] : 12345;
            for (size_t i = 0; i < bytes[s]; i++) {
                data[i] = env->rank == root ? byte_of(root, i) : 0;
            }
            RANK_OK(fl_message_broadcast(group, root, 3, data, &size_bytes, soon()));
            RANK_CHECK(size_bytes == bytes[s]);
            for (size_t i = 0; i < bytes[s]; i++) {
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
    static const size_t bytes[] = {0, 1, 33, GATHER_MAX};
    static unsigned char mine[GATHER_MAX], all[MOST_RANKS * GATHER_MAX];
    fl_message_group *group = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    for (int round = 0; round < 40; round++) {
        size_t size_bytes = bytes[round % 4];
        /* Through another member every few rounds, and again through one of before. */
        RANK_OK(fl_message_gather_through(group, round / 3 % (env->size < 3 ? env->size : 3)));
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
    RANK_CHECK(fl_message_gather_through(group, env->size) == FL_EINVAL);
    fl_message_close(&group);
}

static void test_message__tells_and_gathers(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        assert_int_equal(ranks_run(sizes[i], tell_from_each, NULL, 2 * PATIENCE_MS), 0);
        assert_int_equal(ranks_run(sizes[i], gather, NULL, 2 * PATIENCE_MS), 0);
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

    /* In an all-gather every member learns of it, directly or through another member. */
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
    assert_int_equal(ranks_run(FEW_RANKS, meet_stale, NULL, 2 * PATIENCE_MS), 0);
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

/* The last ranks fall, or the first one, and can be spared. */
typedef struct spare_case {
    bool in_gather; /* lost while the others wait for its row, else while none of them waits */
    int n_lost;     /* of the last ranks; 0: it is the first one */
} spare_case;

static bool falls(const spare_case *c, int size, int rank)
{
    return c->n_lost == 0 ? rank == 0 : rank >= size - c->n_lost;
}

static int first_that_stays(const spare_case *c)
{
    return c->n_lost == 0;
}

/* Where all-gathers go through one member, the others have no connection to a lost one. */
static void await_losses(const rank_env *env, fl_message_group *group)
{
    const spare_case *c = env->context;
    bool learns = !gathers_through_one(env) || env->rank == first_that_stays(c);
    for (int rank = 0; !c->in_gather && learns && rank < env->size; rank++) {
        while (falls(c, env->size, rank) && !fl_net_lost(fl__message_net(group), rank)) {
            sched_yield();
        }
    }
}

typedef struct spare_row {
    int value;
    bool lost[MOST_RANKS]; /* whom the member has found to be lost by the all-gather before */
} spare_row;

static void gather_without_lost(const rank_env *env, fl_message_group *group, spare_row *mine)
{
    const spare_case *c = env->context;
    spare_row all[MOST_RANKS];
    mine->value = 0; /* rows of zeros are not what tells a loss */
    RANK_OK(fl_message_all_gather(group, 1, mine, sizeof *mine, all, soon()));
    for (int rank = 0; rank < env->size; rank++) {
        RANK_CHECK(fl_message_lost(group, rank) == falls(c, env->size, rank));
        RANK_CHECK(fl_message_lost(group, rank) || !gathers_through_one(env) ||
                   memcmp(all[rank].lost, mine->lost, sizeof mine->lost) == 0);
    }
    for (int rank = 0; rank < env->size; rank++) {
        mine->lost[rank] = fl_message_lost(group, rank);
    }
}

static void broadcast_without_lost(const rank_env *env, fl_message_group *group, int root)
{
    static char data[FL_MESSAGE_MAX_BYTES];
    size_t size_bytes = 5;
    snprintf(data, sizeof data, "%s", env->rank == root ? "plan" : "mine");
    RANK_OK(fl_message_broadcast(group, root, 1, data, &size_bytes, soon()));
    RANK_CHECK(strcmp(data, "plan") == 0);
}

static void lose_spare(const rank_env *env)
{
    const spare_case *c = env->context;
    bool spare[MOST_RANKS] = {false}, nobody[MOST_RANKS] = {false};
    fl_message_group *group = rank_messages(env, PATIENCE_MS, PATIENCE_MS);
    spare_row mine = {.value = 0}, all[MOST_RANKS];
    int first = first_that_stays(c), n_stay = env->size - (c->n_lost == 0 ? 1 : c->n_lost);
    for (int rank = 0; rank < env->size; rank++) {
        spare[rank] = falls(c, env->size, rank);
        RANK_CHECK(!fl_message_lost(group, rank));
    }
    RANK_OK(fl_message_gather_through(group, first));
    RANK_OK(fl_message_release(group, spare));
    RANK_OK(fl_message_all_gather(group, 1, &mine, sizeof mine, all, soon()));
    if (falls(c, env->size, env->rank)) {
        raise(SIGKILL);
    }
    await_losses(env, group);
    for (int round = 0; round < 20; round++) {
        gather_without_lost(env, group, &mine);
        broadcast_without_lost(env, group, first + round % (n_stay < 1 ? 1 : n_stay));
    }
    RANK_CHECK(fl_message_release(group, nobody) == FL_EPEER);
    fl_message_close(&group);
}

static void run_spare_case(int size, spare_case c)
{
    rank_end ends[MOST_RANKS];
    for (int rank = 0; rank < size; rank++) {
        ends[rank] = falls(&c, size, rank) ? RANK_KILLED : RANK_ENDS;
    }
    assert_int_equal(ranks_run_ending(size, lose_spare, &c, ends, 2 * PATIENCE_MS), 0);
}

/* Would catch: a group that breaks because it lost a member that it does not need; a result that
 * still has that member's row; a wait for that member; members that do not agree on who is lost; a
 * first member that all-gathers go through although it may be lost. */
static void test_message__goes_on_without_a_spare_member(void **state)
{
    (void)state;
    for (int i = 1; i < N_SIZES; i++) {
        for (int n_lost = 0; n_lost <= 2 && n_lost < sizes[i]; n_lost++) {
            run_spare_case(sizes[i], (spare_case){.in_gather = false, .n_lost = n_lost});
            run_spare_case(sizes[i], (spare_case){.in_gather = true, .n_lost = n_lost});
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
