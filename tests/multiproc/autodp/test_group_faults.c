/* The training group where somebody dies or stops in the middle of its work. Every case: all
 * survivors leave with a code that means "regroup", later calls fail at once, closing does not
 * hang, and the survivors go on in a new generation.
 *
 * Where the failure must be noticed without a deadline's help, the deadlines are beyond the time
 * that the test is given. All of it over the transport that FL_TEST_TRANSPORT names. */
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
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BUCKET_N = 8 * 1000 * 1000, BIG_BYTES = 48 << 20, UNDER_WAY_BYTES = 2 << 20 };

/* ---- what the ranks are in when it happens ---- */

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
    fl_status status = fl_group_connect(group, fl_deadline_us(FALL_PATIENCE_MS));
    while (status == FL_OK) {
        status = fl_bucket_start(bucket, FL_ALL_REDUCE, NULL);
        if (fall_is_victim(env)) {
            while (received(group) < UNDER_WAY_BYTES && fl_group_state(group) == FL_OK) {
                sched_yield();
            }
            RANK_OK(fl_group_state(group));
            fall_here(env);
        }
        if (status == FL_OK) {
            status = fl_bucket_wait(bucket, NULL, fl_deadline_us(FALL_BEYOND_MS));
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
        if (fall_is_victim(env) && round == 10) {
            fall_here(env);
        }
        double value = 1.0;
        status = fl_group_all_reduce(group, &value, 1, fl_deadline_us(FALL_BEYOND_MS));
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
                                fl_deadline_us(FALL_BEYOND_MS));
}

/* The victim falls with most of a message to each neighbour still to be sent. */
static fl_status run_channel(const rank_env *env, fl_group *group)
{
    void *payload = take_payload();
    fl_channel *to[FALL_RANKS] = {NULL}, *from[FALL_RANKS] = {NULL};
    for (int peer = 0; peer < FALL_RANKS; peer++) {
        if (peer != env->rank) {
            uint32_t out = (uint32_t)(10 * env->rank + peer),
                     in = (uint32_t)(10 * peer + env->rank);
            RANK_OK(fl_channel_open(group, true, peer, out, BIG_BYTES, 1, &to[peer]));
            RANK_OK(fl_channel_open(group, false, peer, in, BIG_BYTES, 1, &from[peer]));
        }
    }
    fl_status status = fl_group_connect(group, fl_deadline_us(FALL_PATIENCE_MS));
    for (int peer = 0; peer < FALL_RANKS && status == FL_OK; peer++) {
        status = peer == env->rank ? FL_OK : fl_channel_post(from[peer], BIG_BYTES);
    }
    for (int peer = 0; peer < FALL_RANKS && status == FL_OK; peer++) {
        status = peer == env->rank ? FL_OK : send_payload(to[peer], payload);
    }
    if (fall_is_victim(env)) {
        fall_here(env);
    }
    /* On a slow machine message 0 is through before the victim falls; the next never comes. */
    while (status == FL_OK) {
        status = fl_channel_receive_to(from[FALL_VICTIM], payload, BIG_BYTES, NULL,
                                       fl_deadline_us(FALL_BEYOND_MS));
    }
    for (int peer = 0; peer < FALL_RANKS; peer++) {
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
    if (!fall_is_victim(env)) {
        RANK_OK(fl_channel_open(group, true, FALL_VICTIM, (uint32_t)env->rank, BIG_BYTES, 1, &to));
    }
    double value = 0;
    fl_status status = fl_group_all_reduce(group, &value, 1, fl_deadline_us(FALL_PATIENCE_MS));
    if (fall_is_victim(env)) {
        fall_here(env);
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
    RANK_CHECK(fl_status_is_regroup(
        fl_group_all_reduce(group, &value, 1, fl_deadline_us(FALL_BEYOND_MS))));
    const fl_bucket_options options = {
        .id = 99, .owners = owners, .n_owners = 3, .data = data.device, .dtype = FL_F32, .n = N};
    fl_status status = fl_bucket_create(group, &options, &bucket);
    RANK_CHECK(status == FL_OK || test_backend() != NULL); /* it asks the others for an id */
    status = status == FL_OK ? fl_bucket_start(bucket, FL_ALL_REDUCE, NULL) : status;
    RANK_CHECK(fl_status_is_regroup(status));
    fl_bucket_destroy(&bucket);
    group_data_give(&data);
}

/* The victim falls once all members have opened the group: a member that is lost while others still
 * open it is another test's. */
static void wait_opened(const rank_env *env)
{
    fall_say(env, "opened");
    if (fall_is_victim(env)) {
        fall_await_all(env, "opened", true);
    }
}

static void play(const rank_env *env)
{
    const fall_scenario *s = env->context;
    bool needs_deadline = s->fault == FALL_STOP && s->notice == FALL_BY_ITSELF;
    fl_group *group = NULL;
    RANK_OK(fall_open_group(env, env->kv, 1, FALL_PATIENCE_MS,
                            needs_deadline ? FALL_SHORT_MS : FALL_BEYOND_MS, &group));
    pid_t mine = getpid(), *victim = NULL;
    size_t size_bytes = 0;
    if (fall_is_victim(env)) {
        RANK_OK(env->kv->set(env->kv->self, "victim", fl_deadline_us(FALL_PATIENCE_MS), &mine,
                             sizeof mine));
    } else {
        RANK_OK(env->kv->get(env->kv->self, "victim", fl_deadline_us(FALL_PATIENCE_MS),
                             (void **)&victim, &size_bytes));
    }
    wait_opened(env);
    watcher w = {.group = group};
    pthread_t thread = 0;
    if (s->notice == FALL_BY_ABORT && !fall_is_victim(env)) {
        w.victim = *victim;
        pthread_create(&thread, NULL, watch, &w);
    }
    fl_status status = s->run(env, group);
    RANK_CHECK(!fall_is_victim(env)); /* the machine is too slow for SHORT_MS */
    RANK_CHECK(fl_status_is_regroup(status));
    if (needs_deadline) {
        RANK_CHECK(status == FL_EDEADLINE || status == FL_EPEER);
    } else if (s->fault == FALL_STOP) {
        RANK_CHECK(atomic_load(&w.aborted));
    }
    check_broken(group);
    if (s->notice == FALL_BY_ABORT) {
        pthread_join(thread, NULL);
        fall_say(env, "aborted"); /* a member that closes a broken group is missed by the others */
        fall_await_all(env, "aborted", false);
    }
    fl_group_close(&group);
    fl_free(victim);
    fall_go_on_without_victim(env);
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
        for (int f = FALL_KILL; f <= FALL_STOP; f++) {
            for (int n = FALL_BY_ITSELF; n <= FALL_BY_ABORT; n++) {
                fall_scenario s = {operations[i].name, operations[i].run, (fall_fault)f,
                                   (fall_notice)n, operations[i].sockets_only};
                rank_end ends[FALL_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS};
                ends[FALL_VICTIM] = f == FALL_KILL ? RANK_KILLED : RANK_STOPPED;
                int n_wrong = ranks_run_ending(FALL_RANKS, play, &s, ends, FALL_PATIENCE_MS);
                if (n_wrong > 0) {
                    print_error("%s, member %s, noticed %s\n", s.operation,
                                f == FALL_KILL ? "killed" : "stopped",
                                n == FALL_BY_ABORT ? "by abort" : "by itself");
                }
                assert_int_equal(n_wrong, 0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group__is_left_when_a_member_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
