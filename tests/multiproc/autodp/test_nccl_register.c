/* Buffers that are registered with a stand-in for NCCL: on all members, or on none. Catches a
 * buffer that is given back, or a communicator that ends, before it is unregistered; members that
 * choose differently; a step that registers or allocates anything; and a preparation that fails, or
 * hangs, because registration does. */
#include "autodp/nccl/nccl.h"

#include "autodp/nccl/library.h"
#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_RANKS = 3, VICTIM = 1, STEPS = 3, N = 20000, SMALL = 100, WAIT_MS = 20000 };

static const char standin[] = FL_BINARY_DIR "/tests/nccl_standin.so";
static const char old_standin[] = FL_BINARY_DIR "/tests/nccl_standin_old.so";

static atomic_int *n_trained; /* members that have trained; in memory that all share */

typedef struct script {
    const char *library, *options; /* of the victim's stand-in */
    fl_comm_registration found;
    int64_t known_us; /* what the keepers say that it took for a megabyte; 0: nothing */
    bool breaks;      /* the group: in its preparation, or as the victim dies in a step */
    bool dies;
} script;

typedef struct member {
    const rank_env *env;
    const script *s;
    fl_device *d;
    fl_stream *stream;
    fl_group *group;
    fl_bucket *bucket, *small;
    fl_channel *to, *from;
    void *data, *little, *in;
    float host[N];
    fl_comm_keeper keeper;
} member;

static fl_status open_member(member *m, uint32_t generation, int64_t timeout_ms)
{
    static const int all[N_RANKS] = {0, 1, 2};
    int rank = m->env->rank, next = (rank + 1) % N_RANKS, before = (rank + N_RANKS - 1) % N_RANKS;
    const fl_group_options options = {.device = m->d,
                                      .generation = generation,
                                      .index = rank,
                                      .size = N_RANKS,
                                      .kv = m->env->kv,
                                      .open_timeout_ms = timeout_ms,
                                      .wait_timeout_ms = timeout_ms,
                                      .backend = &fl_nccl_group_ops,
                                      .every_pair = true,
                                      .keeper = &m->keeper};
    fl_bucket_options bucket = {
        .id = 1, .owners = all, .n_owners = N_RANKS, .data = m->data, .dtype = FL_F32, .n = N};
    FL_TRY(fl_group_open(&options, &m->group));
    FL_TRY(fl_bucket_create(m->group, &bucket, &m->bucket));
    bucket.id = 2;
    bucket.data = m->little;
    bucket.n = SMALL;
    FL_TRY(fl_bucket_create(m->group, &bucket, &m->small));
    FL_TRY(fl_channel_open(m->group, true, next, (uint32_t)rank, sizeof m->host, 2, &m->to));
    FL_TRY(fl_channel_open(m->group, false, before, (uint32_t)before, sizeof m->host, 2, &m->from));
    return fl_group_connect(m->group, fl_deadline_us(timeout_ms));
}

static void close_member(member *m)
{
    fl_channel_close(&m->to);
    fl_channel_close(&m->from);
    fl_bucket_destroy(&m->bucket);
    fl_bucket_destroy(&m->small);
    fl_group_close(&m->group);
}

/* A step allocates nothing; the first one may still start what it needs. */
static fl_status run_step(member *m)
{
    double one = 1;
    int64_t deadline_us = fl_deadline_us(WAIT_MS);
    FL_TRY(fl_channel_post(m->from, sizeof m->host));
    FL_TRY(fl_channel_send_from(m->to, m->data, sizeof m->host, m->stream, deadline_us));
    FL_TRY(fl_bucket_start(m->bucket, FL_ALL_REDUCE, m->stream));
    FL_TRY(fl_bucket_start(m->small, FL_ALL_REDUCE, m->stream));
    FL_TRY(fl_channel_receive_to(m->from, m->in, sizeof m->host, m->stream, deadline_us));
    FL_TRY(fl_bucket_wait(m->bucket, m->stream, deadline_us));
    FL_TRY(fl_bucket_wait(m->small, m->stream, deadline_us));
    FL_TRY(m->d->ops->sync(m->d, m->stream));
    return fl_group_all_reduce(m->group, &one, 1, deadline_us);
}

static void check_values(member *m, void *memory, int n, float expected)
{
    RANK_OK(m->d->ops->copy_out(m->d, m->stream, m->host, memory, (size_t)n * sizeof(float)));
    RANK_OK(m->d->ops->sync(m->d, m->stream));
    for (int i = 0; i < n; i++) {
        RANK_CHECK(m->host[i] == expected);
    }
}

static void fill(member *m, void *memory, int n)
{
    for (int i = 0; i < n; i++) {
        m->host[i] = (float)(1 + m->env->rank);
    }
    RANK_OK(m->d->ops->copy_in(m->d, m->stream, memory, m->host, (size_t)n * sizeof(float)));
    RANK_OK(m->d->ops->sync(m->d, m->stream));
}

static void train(member *m)
{
    int before = (m->env->rank + N_RANKS - 1) % N_RANKS;
    for (int step = 0; step < STEPS; step++) {
        fill(m, m->data, N);
        fill(m, m->little, SMALL);
        uint64_t allocations = fl_alloc_count();
        RANK_OK(run_step(m));
        RANK_CHECK(step == 0 || fl_alloc_count() == allocations);
        check_values(m, m->data, N, 6);
        check_values(m, m->little, SMALL, 6);
        check_values(m, m->in, N, (float)(1 + before));
    }
}

static void await_all_trained(void)
{
    int64_t deadline_us = fl_deadline_us(WAIT_MS);
    while (atomic_load(n_trained) < N_RANKS) {
        RANK_CHECK(fl_left_ms(deadline_us) > 0);
        sched_yield();
    }
}

static void live_in(member *m, uint32_t generation)
{
    const script *s = m->s;
    m->keeper.register_us = s->known_us;
    m->keeper.registered_bytes = s->known_us == 0 ? 0 : 1000000;
    RANK_OK(open_member(m, generation, WAIT_MS));
    const fl_group_comm *comm = fl_group_comm_get(m->group);
    RANK_CHECK(comm->registration == s->found);
    bool used = s->found == FL_REGISTERED_ALL;
    RANK_CHECK(comm->n_registered == (used ? 3 : 0)); /* the bucket, two channels */
    RANK_CHECK(!used || comm->registered_bytes > 5 * (int64_t)sizeof m->host - 1);
    RANK_CHECK(!used || m->keeper.registered_bytes == comm->registered_bytes);
    train(m);
    (void)atomic_fetch_add(n_trained, 1);
    if (s->dies && m->env->rank == VICTIM) {
        await_all_trained(); /* what it has sent last may be lost with it */
        raise(SIGKILL);
    }
    RANK_CHECK(!s->dies || fl_status_is_regroup(run_step(m)));
    close_member(m);
}

static void create_device(member *m, uint64_t seed)
{
    const fl_async_options options = {
        .n_threads = 1, .budget_bytes = (size_t)1 << 26, .seed = seed, .max_delay_us = 20};
    RANK_OK(fl_device_async_create(&options, &m->d));
    RANK_OK(m->d->ops->stream_create(m->d, &m->stream));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "bucket", &m->data));
    RANK_OK(fl_device_alloc(m->d, SMALL * sizeof(float), "bucket", &m->little));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "message", &m->in));
}

static void destroy_device(member *m)
{
    fl_device_free(m->d, m->data, sizeof m->host);
    fl_device_free(m->d, m->little, SMALL * sizeof(float));
    fl_device_free(m->d, m->in, sizeof m->host);
    m->d->ops->stream_destroy(m->d, &m->stream);
    fl_device_destroy(&m->d);
}

static void live(const rank_env *env)
{
    static member m;
    m.env = env;
    m.s = env->context;
    bool victim = env->rank == VICTIM, hangs = strncmp(m.s->options, "hang", 4) == 0;
    setenv("FROSTLINE_NCCL", m.s->library, 1);
    setenv("FROSTLINE_NCCL_STANDIN", victim ? m.s->options : "", 1);
    create_device(&m, (uint64_t)env->rank);
    if (m.s->breaks) {
        enum { SHORT_MS = 1500 };
        RANK_CHECK(fl_status_is_regroup(open_member(&m, 1, SHORT_MS)));
        close_member(&m);
    } else {
        live_in(&m, 1);
        if (!m.s->dies && m.s->options[0] == '\0') {
            live_in(&m, 2); /* by a split: what the first registered is gone */
        }
    }
    fl_comm_keeper_clear(&m.keeper);
    if (!victim || !hangs) { /* what a thread in NCCL uses is still there */
        destroy_device(&m);
    }
}

static void play(const script *s)
{
    rank_end ends[N_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS};
    ends[VICTIM] = s->dies ? RANK_KILLED : RANK_ENDS;
    atomic_store(n_trained, 0);
    if (ranks_run_ending(N_RANKS, live, (void *)(uintptr_t)s, ends, 60000) != 0) {
        fail_msg("%s with '%s'", s->library, s->options);
    }
}

/* ---- the cases ---- */

static void test_nccl_register__serves_all_members(void **state)
{
    (void)state;
    static const script s = {.library = standin, .options = "", .found = FL_REGISTERED_ALL};
    play(&s);
}

static void test_nccl_register__is_left_out_where_it_does_not_help(void **state)
{
    (void)state;
    static const script list[] = {
        {.library = old_standin, .options = "", .found = FL_REGISTERED_NO_LIBRARY},
        {.library = standin,
         .options = "",
         .found = FL_REGISTERED_TOO_DEAR,
         .known_us = 1001}, /* a megabyte earns a microsecond in each of 1,000 steps */
    };
    play(&list[0]);
    play(&list[1]);
}

/* The stand-in ends a process whose peers have registered theirs. */
static void test_nccl_register__is_undone_on_all_if_one_fails(void **state)
{
    (void)state;
    static const script s = {
        .library = standin, .options = "fail=CommRegister:2:3", .found = FL_REGISTERED_FAILED};
    play(&s);
}

static void test_nccl_register__does_not_hang(void **state)
{
    (void)state;
    static const script s = {.library = standin, .options = "hang=CommRegister:2", .breaks = true};
    play(&s);
}

static void test_nccl_register__ends_with_a_lost_member(void **state)
{
    (void)state;
    static const script s = {
        .library = standin, .options = "", .found = FL_REGISTERED_ALL, .dies = true};
    play(&s);
}

/* ---- what the stand-in itself refuses ---- */

typedef struct lone {
    fl_device *d;
    fl_stream *stream;
    fl_nccl nccl;
    fl_nccl_handle comm;
    void *memory, *handle;
} lone;

static void poll_to_end(const lone *l)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    while (result == FL_NCCL_IN_PROGRESS) {
        RANK_CHECK(l->nccl.CommGetAsyncError(l->comm, &result) == FL_NCCL_SUCCESS);
    }
}

static void open_lone(lone *l)
{
    const fl_async_options options = {.n_threads = 1, .budget_bytes = (size_t)1 << 20};
    fl_nccl_config config = FL_NCCL_CONFIG_INIT;
    fl_native native;
    fl_nccl_id id;
    setenv("FROSTLINE_NCCL", standin, 1);
    setenv("FROSTLINE_NCCL_STANDIN", "", 1);
    RANK_OK(fl_device_async_create(&options, &l->d));
    RANK_OK(l->d->ops->stream_create(l->d, &l->stream));
    RANK_OK(l->d->ops->stream_native(l->d, l->stream, &native));
    RANK_CHECK(native.registers);
    RANK_OK(l->d->ops->memory_take(l->d, 4096, &l->memory));
    RANK_OK(fl_nccl_load(&l->nccl));
    RANK_CHECK(l->nccl.GetUniqueId(&id) == FL_NCCL_SUCCESS);
    RANK_CHECK(l->nccl.CommInitRankConfig(&l->comm, 1, id, 0, &config) == FL_NCCL_IN_PROGRESS);
    poll_to_end(l);
    (void)l->nccl.AllReduce(l->memory, l->memory, 8, FL_NCCL_FLOAT32, FL_NCCL_SUM, l->comm,
                            native.stream);
    poll_to_end(l);
    RANK_OK(l->d->ops->sync(l->d, l->stream));
    RANK_CHECK(l->nccl.CommRegister(l->comm, l->memory, 4096, &l->handle) == FL_NCCL_SUCCESS);
}

static void free_early(lone *l)
{
    l->d->ops->memory_give(l->d, l->memory, 4096);
    (void)l->nccl.CommDeregister(l->comm, l->handle);
}

static void free_early_and_abort(lone *l)
{
    l->d->ops->memory_give(l->d, l->memory, 4096);
    (void)l->nccl.CommAbort(l->comm);
}

static void use_a_handle_after(lone *l)
{
    (void)l->nccl.CommDeregister(l->comm, l->handle);
    (void)l->nccl.CommDeregister(l->comm, l->handle);
}

static void register_twice(lone *l)
{
    (void)l->nccl.CommRegister(l->comm, (char *)l->memory + 1024, 64, &l->handle);
}

static void destroy_registered(lone *l)
{
    (void)l->nccl.CommFinalize(l->comm);
    poll_to_end(l);
    (void)l->nccl.CommDestroy(l->comm);
}

static void end_in_order(lone *l)
{
    (void)l->nccl.CommDeregister(l->comm, l->handle);
    l->d->ops->memory_give(l->d, l->memory, 4096);
    destroy_registered(l);
}

/* The signal that ends a process which does this; 0: none. */
static int signal_of(void (*what)(lone *l))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        lone l = {0};
        if (freopen("/dev/null", "w", stderr) == NULL) {
            _exit(1);
        }
        open_lone(&l);
        what(&l);
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) == 0 ? 0 : -1;
}

static void test_nccl_register__mistakes_are_found_by_the_standin(void **state)
{
    (void)state;
    assert_int_equal(signal_of(end_in_order), 0);
    assert_int_equal(signal_of(free_early), SIGABRT);
    assert_int_equal(signal_of(free_early_and_abort), SIGABRT);
    assert_int_equal(signal_of(use_a_handle_after), SIGABRT);
    assert_int_equal(signal_of(register_twice), SIGABRT);
    assert_int_equal(signal_of(destroy_registered), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_register__serves_all_members),
        cmocka_unit_test(test_nccl_register__is_left_out_where_it_does_not_help),
        cmocka_unit_test(test_nccl_register__is_undone_on_all_if_one_fails),
        cmocka_unit_test(test_nccl_register__does_not_hang),
        cmocka_unit_test(test_nccl_register__ends_with_a_lost_member),
        cmocka_unit_test(test_nccl_register__mistakes_are_found_by_the_standin),
    };
    n_trained =
        mmap(NULL, sizeof *n_trained, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return n_trained == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
