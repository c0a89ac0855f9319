/* The training group over NCCL, whose stand-in fails, delays or never ends each of its calls, and
 * whose members die or stop. Every case: no sum that is wrong is committed, all members leave
 * within their deadlines, closing does not hang, and those that can go on do so in a new
 * generation. */
#include "autodp/nccl/nccl.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/nap.h"
#include "support/ranks/ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    N_RANKS = 3,
    VICTIM = 1,
    SHORT_MS = 3000,
    LONG_MS = 20000,
    TIMEOUT_MS = 60000,
    STEPS = 6,
    N = 1000
};

typedef enum ending {
    GOES_ON,   /* nothing is noticed */
    CLOSES,    /* the same, though the victim has closed before the others begin to */
    REGROUPS,  /* all leave, and all go on in a new generation */
    LOSES_ONE, /* the victim ends with FL_EIO, the others go on without it */
    FALLS,     /* the same, but it dies */
    STOPS,     /* the same, but it stands still */
    IS_STUCK   /* the same, but its device never ends its work, and it is killed */
} ending;

typedef struct scenario {
    const char *options; /* of the victim's stand-in */
    ending ending;
    int at_step; /* at which it falls */
} scenario;

/* ---- one member ---- */

typedef struct member {
    const rank_env *env;
    uint32_t generation;
    fl_device *d;
    fl_stream *stream;
    fl_group *group;
    fl_bucket *bucket;
    fl_channel *to, *from;
    void *data, *out, *in; /* device memory [N] */
    float host[N];
} member;

/* Of the member of generation `generation` at `index`, at a step. */
static float value_of(int index, int step, int i)
{
    return (float)(index * 100 + step * 10 + i % 7);
}

/* Short only where nothing but a deadline ends a wait. The end of a communicator has a limit of its
 * own. */
static int64_t timeout_ms(const member *m)
{
    const scenario *s = m->env->context;
    bool needs_deadline = strncmp(s->options, "hang", 4) == 0 ||
                          strncmp(s->options, "stall", 5) == 0 || s->ending == STOPS;
    return needs_deadline && s->ending != CLOSES && m->generation == 1 ? SHORT_MS : LONG_MS;
}

/* Of the opening, which calls NCCL, too. On a busy machine it takes longer than a step. */
static int64_t open_timeout_ms(const member *m)
{
    const scenario *s = m->env->context;
    return s->options[0] == '\0' ? LONG_MS : timeout_ms(m);
}

static fl_status open_member(member *m, const rank_env *env, uint32_t generation)
{
    int owners[N_RANKS] = {0, 1, 2};
    m->env = env;
    m->generation = generation;
    const fl_group_options options = {.device = m->d,
                                      .generation = generation,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = env->kv,
                                      .open_timeout_ms = open_timeout_ms(m),
                                      .wait_timeout_ms = timeout_ms(m),
                                      .backend = &fl_nccl_group_ops,
                                      .every_pair = true};
    int next = (env->rank + 1) % env->size, before = (env->rank + env->size - 1) % env->size;
    FL_TRY(fl_group_open(&options, &m->group));
    const fl_bucket_options bucket = {
        .id = 1, .owners = owners, .n_owners = env->size, .data = m->data, .dtype = FL_F32, .n = N};
    FL_TRY(fl_bucket_create(m->group, &bucket, &m->bucket));
    FL_TRY(fl_channel_open(m->group, true, next, (uint32_t)env->rank, sizeof m->host, 2, &m->to));
    FL_TRY(fl_channel_open(m->group, false, before, (uint32_t)before, sizeof m->host, 2, &m->from));
    return fl_group_connect(m->group, fl_deadline_us(options.open_timeout_ms));
}

static void close_member(member *m)
{
    fl_channel_close(&m->to);
    fl_channel_close(&m->from);
    fl_bucket_destroy(&m->bucket);
    fl_group_close(&m->group);
}

static void fill(member *m, int index, int step)
{
    for (int i = 0; i < N; i++) {
        m->host[i] = value_of(index, step, i);
    }
}

static fl_status exchange(member *m, int step)
{
    const fl_device_ops *ops = m->d->ops;
    int64_t deadline_us = fl_deadline_us(timeout_ms(m));
    FL_TRY(fl_channel_post(m->from, sizeof m->host));
    FL_TRY(ops->sync(m->d, m->stream));
    fill(m, m->env->rank, step);
    FL_TRY(ops->copy_in(m->d, m->stream, m->data, m->host, sizeof m->host));
    FL_TRY(ops->copy_in(m->d, m->stream, m->out, m->host, sizeof m->host));
    FL_TRY(fl_bucket_start(m->bucket, FL_ALL_REDUCE, m->stream));
    FL_TRY(fl_channel_send_from(m->to, m->out, sizeof m->host, m->stream, deadline_us));
    FL_TRY(fl_channel_receive_to(m->from, m->in, sizeof m->host, m->stream, deadline_us));
    FL_TRY(fl_bucket_wait(m->bucket, m->stream, deadline_us));
    FL_TRY(ops->sync(m->d, m->stream));
    double one = 1;
    return fl_group_all_reduce(m->group, &one, 1, deadline_us); /* the commit point */
}

static void check_step(member *m, int step)
{
    int size = m->env->size, before = (m->env->rank + size - 1) % size;
    RANK_OK(m->d->ops->copy_out(m->d, m->stream, m->host, m->in, sizeof m->host));
    RANK_OK(m->d->ops->sync(m->d, m->stream));
    for (int i = 0; i < N; i++) {
        RANK_CHECK(m->host[i] == value_of(before, step, i));
    }
    RANK_OK(m->d->ops->copy_out(m->d, m->stream, m->host, m->data, sizeof m->host));
    RANK_OK(m->d->ops->sync(m->d, m->stream));
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int index = 0; index < size; index++) {
            sum += value_of(index, step, i);
        }
        RANK_CHECK(m->host[i] == sum);
    }
}

static fl_status train(member *m, const scenario *s)
{
    for (int step = 0; step < STEPS; step++) {
        if (s != NULL && m->env->rank == VICTIM && step == s->at_step) {
            (void)(s->ending == FALLS ? raise(SIGKILL) : s->ending == STOPS ? raise(SIGSTOP) : 0);
        }
        FL_TRY(exchange(m, step));
        check_step(m, step);
    }
    fl_status status = fl_channel_flush(m->to, fl_deadline_us(timeout_ms(m)));
    return status;
}

/* A fault of the broken generation, at a call that it did not come to, must not meet the next one.
 */
static void end_faults(void)
{
    void (*end)(void) = NULL;
    void *library = dlopen(getenv("FROSTLINE_NCCL"), RTLD_NOW | RTLD_NOLOAD);
    RANK_CHECK(library != NULL);
    *(void **)&end = dlsym(library, "nccl_standin_end_faults");
    RANK_CHECK(end != NULL);
    end();
    dlclose(library);
}

/* All have flushed; then the victim closes first, and its end is nobody else's failure. */
static void part_in_order(member *m, const scenario *s)
{
    const fl_kv *kv = m->env->kv;
    bool victim = m->env->rank == VICTIM;
    void *data = NULL;
    size_t size_bytes = 0;
    int64_t deadline_us = fl_deadline_us(LONG_MS);
    double one = 1;
    RANK_OK(fl_group_all_reduce(m->group, &one, 1, deadline_us));
    if (s->ending == CLOSES && !victim) {
        RANK_OK(kv->get(kv->self, "closed", deadline_us, &data, &size_bytes));
        RANK_OK(fl_group_state(m->group));
        fl_free(data);
    }
    close_member(m);
    if (s->ending == CLOSES && victim) {
        RANK_OK(kv->set(kv->self, "closed", deadline_us, "", 1));
    }
}

static void go_on(member *m, const scenario *s)
{
    end_faults();
    rank_env next = *m->env;
    bool all = s->ending == REGROUPS;
    next.size = all ? N_RANKS : N_RANKS - 1;
    next.rank = all || next.rank < VICTIM ? next.rank : next.rank - 1;
    RANK_OK(open_member(m, &next, 2));
    RANK_OK(train(m, NULL));
    close_member(m);
}

static void create_device(member *m, const rank_env *env)
{
    const fl_async_options options = {.n_threads = 1,
                                      .budget_bytes = (size_t)1 << 26,
                                      .seed = (uint64_t)env->rank,
                                      .max_delay_us = 20};
    RANK_OK(fl_device_async_create(&options, &m->d));
    RANK_OK(m->d->ops->stream_create(m->d, &m->stream));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "bucket", &m->data));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "message", &m->out));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "message", &m->in));
}

static void destroy_device(member *m)
{
    fl_device_free(m->d, m->data, sizeof m->host);
    fl_device_free(m->d, m->out, sizeof m->host);
    fl_device_free(m->d, m->in, sizeof m->host);
    m->d->ops->stream_destroy(m->d, &m->stream);
    fl_device_destroy(&m->d);
}

/* What the controller does to a worker that hangs. */
static void *kill_stuck(void *argument)
{
    const member *m = argument;
    while (fl_group_state(m->group) != FL_EIO) {
        nap(1000);
    }
    raise(SIGKILL);
    return NULL;
}

static void live(const rank_env *env)
{
    const scenario *s = env->context;
    bool victim = env->rank == VICTIM, hangs = strncmp(s->options, "hang", 4) == 0;
    static member m;
    setenv("FROSTLINE_NCCL", FL_BINARY_DIR "/tests/nccl_standin.so", 1);
    setenv("FROSTLINE_NCCL_STANDIN", victim ? s->options : "", 1);
    create_device(&m, env);
    fl_status status = open_member(&m, env, 1);
    pthread_t killer;
    RANK_CHECK(!victim || s->ending != IS_STUCK ||
               pthread_create(&killer, NULL, kill_stuck, &m) == 0);
    status = status == FL_OK ? train(&m, s) : status;
    if (s->ending == GOES_ON || s->ending == CLOSES) {
        RANK_OK(status);
        part_in_order(&m, s);
    } else if (victim && s->ending == LOSES_ONE) {
        RANK_CHECK(status == FL_EIO);
        close_member(&m);
    } else {
        RANK_CHECK(fl_status_is_regroup(status));
        close_member(&m);
        go_on(&m, s);
    }
    if (!victim || !hangs) { /* what a thread in NCCL uses is still there */
        destroy_device(&m);
    }
}

static int play(const scenario *s)
{
    rank_end ends[N_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS};
    ends[VICTIM] = s->ending == FALLS || s->ending == IS_STUCK ? RANK_KILLED
                   : s->ending == STOPS                        ? RANK_STOPPED
                                                               : RANK_ENDS;
    int64_t start_us = fl_now_us();
    int n_wrong = ranks_run_ending(N_RANKS, live, (void *)(uintptr_t)s, ends, TIMEOUT_MS);
    if (n_wrong != 0) {
        fprintf(stderr, "'%s', ending %d\n", s->options, (int)s->ending);
    }
    if (getenv("FL_TEST_TIMES") != NULL) {
        printf("%8lld ms  %s\n", (long long)(fl_now_us() - start_us) / 1000, s->options);
    }
    return n_wrong;
}

/* All scenarios that spend their time in waiting for deadlines play together. */
static void play_all(const scenario *s, size_t n, bool together)
{
    enum { MOST = 16 };
    pid_t players[MOST];
    int n_wrong = 0;
    assert_true(n <= MOST);
    fflush(NULL);
    for (size_t i = 0; i < n; i++) {
        if (!together) {
            n_wrong += play(&s[i]);
        } else if ((players[i] = fork()) == 0) {
            int wrong = play(&s[i]);
            fflush(NULL);
            _exit(wrong);
        }
    }
    for (size_t i = 0; together && i < n; i++) {
        int status = 0;
        assert_int_equal(waitpid(players[i], &status, 0), players[i]);
        n_wrong += status == 0 ? 0 : 1;
    }
    assert_int_equal(n_wrong, 0);
}

#define PLAY_ALL(list) play_all(list, sizeof(list) / sizeof *(list), false)
#define PLAY_TOGETHER(list) play_all(list, sizeof(list) / sizeof *(list), true)

/* ---- the cases ---- */

static void test_nccl__trains_where_nothing_fails(void **state)
{
    (void)state;
    static const scenario list[] = {{"", GOES_ON, 0}};
    PLAY_ALL(list);
}

/* Catches a deadline where none has passed, and operations that overtake each other. */
static void test_nccl__bears_calls_that_take_long(void **state)
{
    (void)state;
    static const scenario list[] = {{"late=CommInitRankConfig:1:100000", GOES_ON, 0},
                                    {"late=CommInitRankConfig:2:100000", GOES_ON, 0},
                                    {"late=AllReduce:1:100000", GOES_ON, 0},
                                    {"late=AllReduce:4:100000", GOES_ON, 0},
                                    {"late=Send:3:100000,late=Recv:5:100000", GOES_ON, 0},
                                    {"late=CommFinalize:2:100000", GOES_ON, 0}};
    PLAY_ALL(list);
}

/* A communicator's end cannot fail a generation that has ended well. */
static void test_nccl__ends_although_its_communicators_do_not(void **state)
{
    (void)state;
    static const scenario list[] = {
        {"fail=CommFinalize:1:3", CLOSES, 0},      {"stall=CommFinalize:1", CLOSES, 0},
        {"hang=CommFinalize:1", CLOSES, 0},        {"fail=CommDestroy:2:3", CLOSES, 0},
        {"late=CommDestroy:2:2100000", CLOSES, 0}, {"hang=CommDestroy:1", CLOSES, 0}};
    PLAY_TOGETHER(list);
}

/* Code 6 is what NCCL returns where the network or a peer has failed, 1 where the device has. */
static void test_nccl__leaves_when_a_call_fails(void **state)
{
    (void)state;
    static const scenario list[] = {{"fail=CommInitRankConfig:1:6", REGROUPS, 0},
                                    {"fail=CommInitRankConfig:2:1", LOSES_ONE, 0},
                                    {"fail=CommInitRankConfig:1:5", LOSES_ONE, 0},
                                    {"fail=GetUniqueId:1:2", REGROUPS, 0},
                                    {"fail=AllReduce:1:6", REGROUPS, 0},
                                    {"fail=AllReduce:4:6", REGROUPS, 0},
                                    {"fail=AllReduce:3:1", LOSES_ONE, 0},
                                    {"fail=Send:1:6", REGROUPS, 0},
                                    {"fail=Send:3:1", LOSES_ONE, 0},
                                    {"fail=Recv:1:2", REGROUPS, 0},
                                    {"fail=Recv:4:6", REGROUPS, 0},
                                    {"fail=CommGetAsyncError:1:6", REGROUPS, 0},
                                    {"fail=CommGetAsyncError:9:1", LOSES_ONE, 0}};
    PLAY_ALL(list);
}

static void test_nccl__leaves_at_an_asynchronous_error(void **state)
{
    (void)state;
    static const scenario list[] = {{"error=CommInitRankConfig:1:6", REGROUPS, 0},
                                    {"error=CommInitRankConfig:1:1", LOSES_ONE, 0},
                                    {"error=AllReduce:3:6,stall=AllReduce:4", REGROUPS, 0},
                                    {"error=AllReduce:3:1,stall=AllReduce:4", LOSES_ONE, 0},
                                    {"error=Send:2:6,stall=AllReduce:2", REGROUPS, 0},
                                    {"error=Recv:2:2,stall=AllReduce:2", REGROUPS, 0}};
    PLAY_ALL(list);
}

/* Only a deadline ends these. */
static void test_nccl__leaves_what_never_ends(void **state)
{
    (void)state;
    static const scenario list[] = {{"stall=CommInitRankConfig:1", REGROUPS, 0},
                                    {"stall=AllReduce:1", REGROUPS, 0},
                                    {"stall=AllReduce:3", REGROUPS, 0},
                                    {"stall=Send:2", REGROUPS, 0},
                                    {"stall=Recv:4", REGROUPS, 0}};
    PLAY_TOGETHER(list);
}

/* The call itself does not return: its thread is left behind. */
static void test_nccl__leaves_calls_that_do_not_return(void **state)
{
    (void)state;
    static const scenario list[] = {{"hang=GetUniqueId:1", REGROUPS, 0},
                                    {"hang=CommInitRankConfig:1", REGROUPS, 0},
                                    {"hang=CommInitRankConfig:3", REGROUPS, 0},
                                    {"hang=AllReduce:1", REGROUPS, 0},
                                    {"hang=AllReduce:3", REGROUPS, 0},
                                    {"hang=Send:2", REGROUPS, 0},
                                    {"hang=Recv:2", REGROUPS, 0},
                                    {"hang=CommGetAsyncError:3", REGROUPS, 0}};
    PLAY_TOGETHER(list);
}

/* A device that an abort does not free is lost: the group says so, though its thread that trains
 * waits for the device. */
static void test_nccl__notices_an_abort_that_does_not_return(void **state)
{
    (void)state;
    static const scenario list[] = {{"hang=CommAbort:1,stall=AllReduce:3", IS_STUCK, 0}};
    PLAY_ALL(list);
}

static void test_nccl__is_left_when_a_member_falls(void **state)
{
    (void)state;
    static const scenario list[] = {{"", FALLS, 0}, {"", FALLS, 3}, {"", STOPS, 0}, {"", STOPS, 3}};
    PLAY_TOGETHER(list);
}

/* A peer that dies or stops inside of a call, and not between two of them. */
static void test_nccl__is_left_when_a_member_falls_in_a_call(void **state)
{
    (void)state;
    enum { NEVER = -1 };
    static const scenario list[] = {{"kill=AllReduce:1", FALLS, NEVER},
                                    {"kill=AllReduce:4", FALLS, NEVER},
                                    {"kill=Send:3", FALLS, NEVER},
                                    {"kill=Recv:3", FALLS, NEVER},
                                    {"kill=CommInitRankConfig:2", FALLS, NEVER},
                                    {"kill=CommGetAsyncError:5", FALLS, NEVER},
                                    {"stop=AllReduce:3", STOPS, NEVER},
                                    {"stop=Send:1", STOPS, NEVER},
                                    {"stop=Recv:4", STOPS, NEVER},
                                    {"stop=CommInitRankConfig:1", STOPS, NEVER}};
    PLAY_TOGETHER(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl__trains_where_nothing_fails),
        cmocka_unit_test(test_nccl__bears_calls_that_take_long),
        cmocka_unit_test(test_nccl__ends_although_its_communicators_do_not),
        cmocka_unit_test(test_nccl__leaves_when_a_call_fails),
        cmocka_unit_test(test_nccl__leaves_at_an_asynchronous_error),
        cmocka_unit_test(test_nccl__leaves_what_never_ends),
        cmocka_unit_test(test_nccl__leaves_calls_that_do_not_return),
        cmocka_unit_test(test_nccl__notices_an_abort_that_does_not_return),
        cmocka_unit_test(test_nccl__is_left_when_a_member_falls),
        cmocka_unit_test(test_nccl__is_left_when_a_member_falls_in_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
