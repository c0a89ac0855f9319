/* The training group where somebody dies, stops, or does not come. Every case: all survivors leave
 * with a code that means "regroup", later calls fail at once, closing does not hang, and the
 * survivors go on in a new generation.
 *
 * Where the failure must be noticed without a deadline's help, the deadlines are beyond the time
 * that the test is given. All of it over the transport that FL_TEST_TRANSPORT names. */
#include "autodp/group/group.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/group_data.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_RANKS = 3, VICTIM = 1, SHORT_MS = 2000, PATIENCE_MS = 60000, BEYOND_MS = 600000 };
enum { BUCKET_N = 8 * 1000 * 1000, BIG_BYTES = 48 << 20, UNDER_WAY_BYTES = 2 << 20 };

typedef enum fault { KILL, STOP } fault;
typedef enum notice { BY_ITSELF, BY_ABORT } notice;

typedef struct scenario {
    const char *operation;
    /* Returns with the first failure. The victim calls `fall` in the middle of it. */
    fl_status (*run)(const rank_env *env, fl_group *group);
    fault fault;
    notice notice;
    bool sockets_only;
} scenario;

static fl_status open_group(const rank_env *env, const fl_kv *kv, uint32_t generation,
                            int64_t open_ms, int64_t wait_ms, fl_group **out)
{
    const scenario *s = env->context;
    const fl_group_options options = {.transport = test_net_transport(),
                                      .device = the_device(),
                                      .generation = generation,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = kv,
                                      .open_timeout_ms = open_ms,
                                      .wait_timeout_ms = wait_ms,
                                      .sockets_only = s != NULL && s->sockets_only,
                                      .backend = test_backend(),
                                      .every_pair = test_backend() != NULL};
    return fl_group_open(&options, out);
}

/* ---- what the ranks are in when it happens ---- */

static _Noreturn void fall(const rank_env *env)
{
    const scenario *s = env->context;
    raise(s->fault == KILL ? SIGKILL : SIGSTOP);
    pause();
    abort();
}

static bool is_victim(const rank_env *env)
{
    return env->rank == VICTIM;
}

static int64_t received(fl_group *group)
{
    fl_group_stats stats;
    fl_group_stats_get(group, &stats);
    return stats.received_bytes;
}

static fl_status run_bucket(const rank_env *env, fl_group *group)
{
    int owners[] = {0, 1, 2};
    fl_shared *shared = NULL;
    fl_bucket *bucket = NULL;
    void *data = NULL;
    RANK_OK(fl_device_share(the_device(), BUCKET_N * sizeof(float), &data, &shared));
    const fl_bucket_options options = {.id = 1,
                                       .owners = owners,
                                       .n_owners = 3,
                                       .data = data,
                                       .dtype = FL_F32,
                                       .n = BUCKET_N,
                                       .shared = shared};
    RANK_OK(fl_bucket_create(group, &options, &bucket));
    fl_status status = fl_group_connect(group, fl_deadline_us(PATIENCE_MS));
    while (status == FL_OK) {
        status = fl_bucket_start(bucket, FL_ALL_REDUCE, NULL);
        if (is_victim(env)) {
            while (received(group) < UNDER_WAY_BYTES && fl_group_state(group) == FL_OK) {
                sched_yield();
            }
            RANK_OK(fl_group_state(group));
            fall(env);
        }
        if (status == FL_OK) {
            status = fl_bucket_wait(bucket, NULL, fl_deadline_us(BEYOND_MS));
        }
    }
    fl_bucket_destroy(&bucket);
    fl_device_unshare(the_device(), data, BUCKET_N * sizeof(float), &shared);
    return status;
}

static fl_status run_sum(const rank_env *env, fl_group *group)
{
    fl_status status = FL_OK;
    for (int round = 0; status == FL_OK; round++) {
        if (is_victim(env) && round == 10) {
            fall(env);
        }
        double value = 1.0;
        status = fl_group_all_reduce(group, &value, 1, fl_deadline_us(BEYOND_MS));
    }
    return status;
}

static void *take_payload(void)
{
    void *payload = NULL;
    RANK_OK(fl_device_reserve(the_device(), BIG_BYTES, &payload));
    return payload;
}

static fl_status send_payload(fl_channel *to, const void *payload)
{
    const void *place = fl_channel_place(to);
    return fl_channel_send_from(to, place != NULL ? place : payload, BIG_BYTES, NULL,
                                fl_deadline_us(BEYOND_MS));
}

/* The victim falls with most of a message to each neighbour still to be sent. */
static fl_status run_channel(const rank_env *env, fl_group *group)
{
    void *payload = take_payload();
    fl_channel *to[N_RANKS] = {NULL}, *from[N_RANKS] = {NULL};
    for (int peer = 0; peer < N_RANKS; peer++) {
        if (peer != env->rank) {
            uint32_t out = (uint32_t)(10 * env->rank + peer),
                     in = (uint32_t)(10 * peer + env->rank);
            RANK_OK(fl_channel_open(group, true, peer, out, BIG_BYTES, 1, &to[peer]));
            RANK_OK(fl_channel_open(group, false, peer, in, BIG_BYTES, 1, &from[peer]));
        }
    }
    fl_status status = fl_group_connect(group, fl_deadline_us(PATIENCE_MS));
    for (int peer = 0; peer < N_RANKS && status == FL_OK; peer++) {
        status = peer == env->rank ? FL_OK : fl_channel_post(from[peer], BIG_BYTES);
    }
    for (int peer = 0; peer < N_RANKS && status == FL_OK; peer++) {
        status = peer == env->rank ? FL_OK : send_payload(to[peer], payload);
    }
    if (is_victim(env)) {
        fall(env);
    }
    /* On a slow machine message 0 is through before the victim falls; the next never comes. */
    while (status == FL_OK) {
        status = fl_channel_receive_to(from[VICTIM], payload, BIG_BYTES, NULL,
                                       fl_deadline_us(BEYOND_MS));
    }
    for (int peer = 0; peer < N_RANKS; peer++) {
        fl_channel_close(&to[peer]);
        fl_channel_close(&from[peer]);
    }
    fl_device_drop(the_device(), payload, BIG_BYTES);
    return status;
}

/* The victim takes nothing of what it is sent. Nothing is connected before that. */
static fl_status run_send(const rank_env *env, fl_group *group)
{
    fl_channel *to = NULL;
    void *payload = take_payload();
    if (!is_victim(env)) {
        RANK_OK(fl_channel_open(group, true, VICTIM, (uint32_t)env->rank, BIG_BYTES, 1, &to));
    }
    double value = 0;
    fl_status status = fl_group_all_reduce(group, &value, 1, fl_deadline_us(PATIENCE_MS));
    if (is_victim(env)) {
        fall(env);
    }
    while (status == FL_OK) {
        status = send_payload(to, payload);
    }
    fl_channel_close(&to);
    fl_device_drop(the_device(), payload, BIG_BYTES);
    return status;
}

/* ---- a survivor's course ---- */

/* The control link's part: sees the victim stand still, and aborts. */
typedef struct watcher {
    fl_group *group;
    pid_t victim;
    atomic_bool aborted;
} watcher;

static char state_of(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 'X';
    }
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    const char *after_name = strrchr(text, ')');
    return after_name == NULL ? 'X' : after_name[2];
}

static void *watch(void *argument)
{
    watcher *w = argument;
    while (strchr("TXZ", state_of(w->victim)) == NULL) {
        sched_yield();
    }
    atomic_store(&w->aborted, true);
    fl_group_abort(w->group, FL_ESTALE);
    return NULL;
}

static void check_broken(fl_group *group)
{
    enum { N = 4 };
    double value = 0;
    group_data data = group_data_take(N * sizeof(float));
    int owners[] = {0, 1, 2};
    fl_bucket *bucket = NULL;
    RANK_CHECK(fl_status_is_regroup(fl_group_state(group)));
    RANK_CHECK(
        fl_status_is_regroup(fl_group_all_reduce(group, &value, 1, fl_deadline_us(BEYOND_MS))));
    const fl_bucket_options options = {
        .id = 99, .owners = owners, .n_owners = 3, .data = data.device, .dtype = FL_F32, .n = N};
    fl_status status = fl_bucket_create(group, &options, &bucket);
    RANK_CHECK(status == FL_OK || test_backend() != NULL); /* it asks the others for an id */
    status = status == FL_OK ? fl_bucket_start(bucket, FL_ALL_REDUCE, NULL) : status;
    RANK_CHECK(fl_status_is_regroup(status));
    fl_bucket_destroy(&bucket);
    group_data_give(&data);
}

static void go_on_without_victim(const rank_env *env)
{
    rank_env survivor = *env;
    survivor.rank = env->rank > VICTIM ? env->rank - 1 : env->rank;
    survivor.size = N_RANKS - 1;
    fl_group *group = NULL;
    RANK_OK(open_group(&survivor, env->kv, 2, PATIENCE_MS, PATIENCE_MS, &group));
    double value = 1.0;
    RANK_OK(fl_group_all_reduce(group, &value, 1, fl_deadline_us(PATIENCE_MS)));
    RANK_CHECK(value == N_RANKS - 1);
    fl_group_close(&group);
}

static void say(const rank_env *env, const char *what)
{
    char key[32];
    snprintf(key, sizeof key, "%s/%d", what, env->rank);
    RANK_OK(env->kv->set(env->kv->self, key, fl_deadline_us(PATIENCE_MS), "", 1));
}

/* Until all have said it, or all but the victim. */
static void await_all(const rank_env *env, const char *what, bool victim)
{
    char key[32];
    for (int rank = 0; rank < env->size; rank++) {
        void *data = NULL;
        size_t size_bytes = 0;
        if (rank == VICTIM && !victim) {
            continue;
        }
        snprintf(key, sizeof key, "%s/%d", what, rank);
        RANK_OK(env->kv->get(env->kv->self, key, fl_deadline_us(PATIENCE_MS), &data, &size_bytes));
        fl_free(data);
    }
}

/* The victim falls once all members have opened the group: a member that is lost while others still
 * open it is another test's. */
static void wait_opened(const rank_env *env)
{
    say(env, "opened");
    if (is_victim(env)) {
        await_all(env, "opened", true);
    }
}

static void play(const rank_env *env)
{
    const scenario *s = env->context;
    bool needs_deadline = s->fault == STOP && s->notice == BY_ITSELF;
    fl_group *group = NULL;
    RANK_OK(
        open_group(env, env->kv, 1, PATIENCE_MS, needs_deadline ? SHORT_MS : BEYOND_MS, &group));
    pid_t mine = getpid(), *victim = NULL;
    size_t size_bytes = 0;
    if (is_victim(env)) {
        RANK_OK(
            env->kv->set(env->kv->self, "victim", fl_deadline_us(PATIENCE_MS), &mine, sizeof mine));
    } else {
        RANK_OK(env->kv->get(env->kv->self, "victim", fl_deadline_us(PATIENCE_MS), (void **)&victim,
                             &size_bytes));
    }
    wait_opened(env);
    watcher w = {.group = group};
    pthread_t thread = 0;
    if (s->notice == BY_ABORT && !is_victim(env)) {
        w.victim = *victim;
        pthread_create(&thread, NULL, watch, &w);
    }
    fl_status status = s->run(env, group);
    RANK_CHECK(!is_victim(env)); /* the machine is too slow for SHORT_MS */
    RANK_CHECK(fl_status_is_regroup(status));
    if (needs_deadline) {
        RANK_CHECK(status == FL_EDEADLINE || status == FL_EPEER);
    } else if (s->fault == STOP) {
        RANK_CHECK(atomic_load(&w.aborted));
    }
    check_broken(group);
    if (s->notice == BY_ABORT) {
        pthread_join(thread, NULL);
        say(env, "aborted"); /* a member that closes a broken group is missed by the others */
        await_all(env, "aborted", false);
    }
    fl_group_close(&group);
    fl_free(victim);
    go_on_without_victim(env);
}

static void test_group__is_left_when_a_member_falls(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        fl_status (*run)(const rank_env *, fl_group *);
        bool sockets_only;
    } operations[] = {{"bucket", run_bucket, false},
                      {"bucket, sockets", run_bucket, true},
                      {"sum", run_sum, false},
                      {"sum, sockets", run_sum, true},
                      {"channel wait", run_channel, false},
                      {"channel wait, sockets", run_channel, true},
                      {"channel send", run_send, false},
                      {"channel send, sockets", run_send, true}};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (operations[i].sockets_only && test_backend() != NULL) {
            continue; /* its data takes no such way */
        }
        if (test_net_transport() != NULL && !operations[i].sockets_only) {
            continue; /* through shared memory, whatever the net's transport */
        }
        for (int f = KILL; f <= STOP; f++) {
            for (int n = BY_ITSELF; n <= BY_ABORT; n++) {
                scenario s = {operations[i].name, operations[i].run, (fault)f, (notice)n,
                              operations[i].sockets_only};
                rank_end ends[N_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS};
                ends[VICTIM] = f == KILL ? RANK_KILLED : RANK_STOPPED;
                int n_wrong = ranks_run_ending(N_RANKS, play, &s, ends, PATIENCE_MS);
                if (n_wrong > 0) {
                    print_error("%s, member %s, noticed %s\n", s.operation,
                                f == KILL ? "killed" : "stopped",
                                n == BY_ABORT ? "by abort" : "by itself");
                }
                assert_int_equal(n_wrong, 0);
            }
        }
    }
}

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
    fall(kv->env);
}

/* The same as soon as it has the first value of another member: over shared memory, only the first
 * member publishes one. */
static fl_status get_and_fall(void *self, const char *key, int64_t deadline_us, void **data,
                              size_t *size_bytes)
{
    const falling_kv *kv = self;
    RANK_OK(kv->inner->get(kv->inner->self, key, fl_deadline_us(PATIENCE_MS), data, size_bytes));
    (void)deadline_us;
    fall(kv->env);
}

static void open_with_absent(const rank_env *env)
{
    fl_group *group = NULL;
    if (!is_victim(env)) {
        RANK_CHECK(open_group(env, env->kv, 1, SHORT_MS, BEYOND_MS, &group) == FL_EDEADLINE);
        RANK_CHECK(group == NULL);
        go_on_without_victim(env);
    }
}

static void test_group_open__ends_when_somebody_does_not_come(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        scenario s = {"open", NULL, KILL, BY_ITSELF, way == 1};
        assert_int_equal(ranks_run(N_RANKS, open_with_absent, &s, PATIENCE_MS), 0);
    }
}

static void open_with_falling(const rank_env *env)
{
    fl_group *group = NULL;
    if (is_victim(env)) {
        falling_kv falling = {env->kv, env};
        const fl_kv kv = {&falling, set_and_fall, get_and_fall};
        RANK_OK(open_group(env, &kv, 1, PATIENCE_MS, BEYOND_MS, &group));
    }
    RANK_CHECK(fl_status_is_regroup(open_group(env, env->kv, 1, SHORT_MS, BEYOND_MS, &group)));
    RANK_CHECK(group == NULL);
    go_on_without_victim(env);
}

/* Catches Gloo's own five time-outs a peer when somebody falls after publishing its address. */
static void test_group_open__ends_when_somebody_falls_in_it(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        fault f = i % 2 == 0 ? KILL : STOP;
        scenario s = {"open", NULL, f, BY_ITSELF, i >= 2};
        rank_end ends[N_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS};
        ends[VICTIM] = f == KILL ? RANK_KILLED : RANK_STOPPED;
        assert_int_equal(ranks_run_ending(N_RANKS, open_with_falling, &s, ends, PATIENCE_MS), 0);
    }
}

static fl_status open_in_set(const rank_env *env, fl_abort_set *set, int index, int size,
                             uint32_t generation, fl_group **out)
{
    const scenario *s = env->context;
    const fl_group_options options = {.transport = test_net_transport(),
                                      .device = the_device(),
                                      .generation = generation,
                                      .index = index,
                                      .size = size,
                                      .kv = env->kv,
                                      .open_timeout_ms = BEYOND_MS,
                                      .wait_timeout_ms = BEYOND_MS,
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
    if (!is_victim(env)) {
        RANK_CHECK(fl_status_is_regroup(open_and_abort(env)));
        go_on_without_victim(env);
    }
}

static void abort_waiting_for_stopped(const rank_env *env)
{
    fl_group *group = NULL;
    if (is_victim(env)) {
        falling_kv falling = {env->kv, env};
        const fl_kv kv = {&falling, set_and_fall, get_and_fall};
        RANK_OK(open_group(env, &kv, 1, PATIENCE_MS, BEYOND_MS, &group));
    }
    RANK_CHECK(fl_status_is_regroup(open_and_abort(env)));
    go_on_without_victim(env);
}

static void test_group_open__can_be_aborted(void **state)
{
    (void)state;
    rank_end ends[N_RANKS] = {RANK_ENDS, RANK_STOPPED, RANK_ENDS};
    for (int way = 0; way < 2; way++) {
        scenario s = {"open", NULL, STOP, BY_ABORT, way == 1};
        assert_int_equal(ranks_run(N_RANKS, abort_waiting_for_absent, &s, PATIENCE_MS), 0);
        assert_int_equal(
            ranks_run_ending(N_RANKS, abort_waiting_for_stopped, &s, ends, PATIENCE_MS), 0);
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
    RANK_OK(fl_group_all_reduce(now, &value, 1, fl_deadline_us(BEYOND_MS)));
    RANK_CHECK(value == N_RANKS);
    fl_group_close(&next);
    RANK_OK(fl_group_all_reduce(now, &value, 1, fl_deadline_us(BEYOND_MS)));
    say(env, "summed"); /* a member that aborts takes the sum from those that still wait for it */
    await_all(env, "summed", true);
    fl_abort_set_abort_all(&set, FL_EPEER);
    RANK_CHECK(fl_group_state(now) != FL_OK);
    fl_group_close(&now);
    RANK_CHECK(set.first == NULL);
}

/* Would catch: a transition's cancellation that breaks the generation which goes on. */
static void test_abort_set__ends_one_generation_and_leaves_the_other(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(N_RANKS, abort_one_of_two, NULL, PATIENCE_MS), 0);
}

/* ---- leaving ---- */

static void leave_early(const rank_env *env)
{
    fl_group *group = NULL;
    RANK_OK(open_group(env, env->kv, 1, PATIENCE_MS, PATIENCE_MS, &group));
    if (env->rank != 0) {
        fl_channel *c = NULL;
        bool sending = env->rank == 1;
        RANK_OK(fl_channel_open(group, sending, sending ? 2 : 1, 1, 64, 1, &c));
        /* Rank 0 has left by the time of the later messages. */
        group_data data = group_data_take(64);
        group_data_put(&data);
        for (int n = 0; n < 2000; n++) {
            int64_t deadline_us = fl_deadline_us(PATIENCE_MS);
            RANK_OK(
                sending
                    ? fl_channel_send_from(c, data.device, data.size_bytes, NULL, deadline_us)
                    : fl_channel_receive_to(c, data.device, data.size_bytes, NULL, deadline_us));
        }
        group_data_get(&data);
        if (sending) {
            RANK_OK(fl_channel_flush(c, fl_deadline_us(PATIENCE_MS)));
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
        assert_int_equal(ranks_run(N_RANKS, leave_early, NULL, 2 * PATIENCE_MS), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group__is_left_when_a_member_falls),
        cmocka_unit_test(test_group_open__ends_when_somebody_does_not_come),
        cmocka_unit_test(test_group_open__ends_when_somebody_falls_in_it),
        cmocka_unit_test(test_group_open__can_be_aborted),
        cmocka_unit_test(test_abort_set__ends_one_generation_and_leaves_the_other),
        cmocka_unit_test(test_group_close__does_not_disturb_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
