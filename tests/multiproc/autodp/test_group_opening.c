/* The training group while it is opened or left: somebody dies, stops or does not come, another
 * generation is aborted, a member is done before the others. Where the failure must be noticed
 * without a deadline's help, the deadlines are beyond the time that the test is given. */
#include "autodp/group/group.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/group_data.h"
#include "support/ranks/group_falls.h"
#include "support/ranks/transport.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- opening ---- */

/* A store client whose owner falls as soon as its address is published. */
typedef struct falling_kv {
    const fl_kv *inner;
    const rank_env *env;
} falling_kv;

static fl_status set_and_fall(void *self, const char *key, int64_t deadline_us, const void *data,
                              size_t size_bytes)
{
    const falling_kv *kv = self;
    RANK_OK(kv->inner->set(kv->inner->self, key, deadline_us, data, size_bytes));
    fall_here(kv->env);
}

/* The same as soon as it has the first value of another member: over shared memory, only the first
 * member publishes one. */
static fl_status get_and_fall(void *self, const char *key, int64_t deadline_us, void **data,
                              size_t *size_bytes)
{
    const falling_kv *kv = self;
    RANK_OK(
        kv->inner->get(kv->inner->self, key, fl_deadline_us(FALL_PATIENCE_MS), data, size_bytes));
    (void)deadline_us;
    fall_here(kv->env);
}

static void open_with_absent(const rank_env *env)
{
    fl_group *group = NULL;
    if (!fall_is_victim(env)) {
        RANK_CHECK(fall_open_group(env, env->kv, 1, FALL_SHORT_MS, FALL_BEYOND_MS, &group) ==
                   FL_EDEADLINE);
        RANK_CHECK(group == NULL);
        fall_go_on_without_victim(env);
    }
}

static void test_group_open__ends_when_somebody_does_not_come(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        fall_scenario s = {"open", NULL, FALL_KILL, FALL_BY_ITSELF, way == 1};
        assert_int_equal(ranks_run(FALL_RANKS, open_with_absent, &s, FALL_PATIENCE_MS), 0);
    }
}

static void open_with_falling(const rank_env *env)
{
    fl_group *group = NULL;
    if (fall_is_victim(env)) {
        falling_kv falling = {env->kv, env};
        const fl_kv kv = {&falling, set_and_fall, get_and_fall};
        RANK_OK(fall_open_group(env, &kv, 1, FALL_PATIENCE_MS, FALL_BEYOND_MS, &group));
    }
    RANK_CHECK(fl_status_is_regroup(
        fall_open_group(env, env->kv, 1, FALL_SHORT_MS, FALL_BEYOND_MS, &group)));
    RANK_CHECK(group == NULL);
    fall_go_on_without_victim(env);
}

/* Catches Gloo's own five time-outs a peer when somebody falls after publishing its address. */
static void test_group_open__ends_when_somebody_falls_in_it(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        fall_fault f = i % 2 == 0 ? FALL_KILL : FALL_STOP;
        fall_scenario s = {"open", NULL, f, FALL_BY_ITSELF, i >= 2};
        rank_end ends[FALL_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS};
        ends[FALL_VICTIM] = f == FALL_KILL ? RANK_KILLED : RANK_STOPPED;
        assert_int_equal(
            ranks_run_ending(FALL_RANKS, open_with_falling, &s, ends, FALL_PATIENCE_MS), 0);
    }
}

static fl_status open_in_set(const rank_env *env, fl_abort_set *set, int index, int size,
                             uint32_t generation, fl_group **out)
{
    const fall_scenario *s = env->context;
    const fl_group_options options = {.transport = test_net_transport(),
                                      .device = the_device(),
                                      .generation = generation,
                                      .index = index,
                                      .size = size,
                                      .kv = env->kv,
                                      .open_timeout_ms = FALL_BEYOND_MS,
                                      .wait_timeout_ms = FALL_BEYOND_MS,
                                      .abort_set = set,
                                      .sockets_only = s != NULL && s->sockets_only};
    return fl_group_open(&options, out);
}

typedef struct opening {
    fl_abort_set set;
    atomic_bool is_over;
} opening;

/* The control link's part: aborts generation 1 while it is being opened. */
static void *abort_opening(void *context)
{
    opening *o = context;
    pthread_mutex_lock(&o->set.lock);
    while (o->set.first == NULL && !atomic_load(&o->is_over)) {
        pthread_mutex_unlock(&o->set.lock);
        sched_yield();
        pthread_mutex_lock(&o->set.lock);
    }
    pthread_mutex_unlock(&o->set.lock);
    fl_abort_set_abort(&o->set, 1, FL_ESTALE);
    return NULL;
}

static fl_status open_and_abort(const rank_env *env)
{
    opening o = {.set = FL_ABORT_SET_INIT};
    fl_group *group = NULL;
    pthread_t thread;
    RANK_CHECK(pthread_create(&thread, NULL, abort_opening, &o) == 0);
    fl_status status = open_in_set(env, &o.set, env->rank, env->size, 1, &group);
    atomic_store(&o.is_over, true); /* if the other members gave up first */
    pthread_join(thread, NULL);
    RANK_CHECK(group == NULL && o.set.first == NULL);
    return status;
}

static void abort_waiting_for_absent(const rank_env *env)
{
    if (!fall_is_victim(env)) {
        RANK_CHECK(fl_status_is_regroup(open_and_abort(env)));
        fall_go_on_without_victim(env);
    }
}

static void abort_waiting_for_stopped(const rank_env *env)
{
    fl_group *group = NULL;
    if (fall_is_victim(env)) {
        falling_kv falling = {env->kv, env};
        const fl_kv kv = {&falling, set_and_fall, get_and_fall};
        RANK_OK(fall_open_group(env, &kv, 1, FALL_PATIENCE_MS, FALL_BEYOND_MS, &group));
    }
    RANK_CHECK(fl_status_is_regroup(open_and_abort(env)));
    fall_go_on_without_victim(env);
}

static void test_group_open__can_be_aborted(void **state)
{
    (void)state;
    rank_end ends[FALL_RANKS] = {RANK_ENDS, RANK_STOPPED, RANK_ENDS};
    for (int way = 0; way < 2; way++) {
        fall_scenario s = {"open", NULL, FALL_STOP, FALL_BY_ABORT, way == 1};
        assert_int_equal(ranks_run(FALL_RANKS, abort_waiting_for_absent, &s, FALL_PATIENCE_MS), 0);
        assert_int_equal(
            ranks_run_ending(FALL_RANKS, abort_waiting_for_stopped, &s, ends, FALL_PATIENCE_MS), 0);
    }
}

/* Two generations are open at once, as during a transition. */
static void abort_one_of_two(const rank_env *env)
{
    fl_abort_set set = FL_ABORT_SET_INIT;
    fl_group *now = NULL, *next = NULL, *late = NULL;
    double value = 1.0;
    RANK_OK(open_in_set(env, &set, env->rank, env->size, 1, &now));
    RANK_OK(open_in_set(env, &set, env->rank, env->size, 2, &next));
    fl_abort_set_abort(&set, 2, FL_ESTALE);
    RANK_CHECK(fl_group_state(next) == FL_ESTALE);
    RANK_CHECK(open_in_set(env, &set, env->rank, env->size, 2, &late) == FL_ESTALE);
    RANK_OK(fl_group_all_reduce(now, &value, 1, fl_deadline_us(FALL_BEYOND_MS)));
    RANK_CHECK(value == FALL_RANKS);
    fl_group_close(&next);
    RANK_OK(fl_group_all_reduce(now, &value, 1, fl_deadline_us(FALL_BEYOND_MS)));
    fall_say(env,
             "summed"); /* a member that aborts takes the sum from those that still wait for it */
    fall_await_all(env, "summed", true);
    fl_abort_set_abort_all(&set, FL_EPEER);
    RANK_CHECK(fl_group_state(now) != FL_OK);
    fl_group_close(&now);
    RANK_CHECK(set.first == NULL);
}

/* Would catch: a transition's cancellation that breaks the generation which goes on. */
static void test_abort_set__ends_one_generation_and_leaves_the_other(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(FALL_RANKS, abort_one_of_two, NULL, FALL_PATIENCE_MS), 0);
}

/* ---- leaving ---- */

static void leave_early(const rank_env *env)
{
    fl_group *group = NULL;
    RANK_OK(fall_open_group(env, env->kv, 1, FALL_PATIENCE_MS, FALL_PATIENCE_MS, &group));
    if (env->rank != 0) {
        fl_channel *c = NULL;
        bool sending = env->rank == 1;
        RANK_OK(fl_channel_open(group, sending, sending ? 2 : 1, 1, 64, 1, &c));
        /* Rank 0 has left by the time of the later messages. */
        group_data data = group_data_take(64);
        group_data_put(&data);
        for (int n = 0; n < 2000; n++) {
            int64_t deadline_us = fl_deadline_us(FALL_PATIENCE_MS);
            RANK_OK(
                sending
                    ? fl_channel_send_from(c, data.device, data.size_bytes, NULL, deadline_us)
                    : fl_channel_receive_to(c, data.device, data.size_bytes, NULL, deadline_us));
        }
        group_data_get(&data);
        if (sending) {
            RANK_OK(fl_channel_flush(c, fl_deadline_us(FALL_PATIENCE_MS)));
        }
        fl_channel_close(&c);
        group_data_give(&data);
    }
    fl_group_close(&group);
}

/* Would catch: a member that leaves in order counts as dead for members that are still busy. */
static void test_group_close__does_not_disturb_the_others(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ranks_run(FALL_RANKS, leave_early, NULL, 2 * FALL_PATIENCE_MS), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_open__ends_when_somebody_does_not_come),
        cmocka_unit_test(test_group_open__ends_when_somebody_falls_in_it),
        cmocka_unit_test(test_group_open__can_be_aborted),
        cmocka_unit_test(test_abort_set__ends_one_generation_and_leaves_the_other),
        cmocka_unit_test(test_group_close__does_not_disturb_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
