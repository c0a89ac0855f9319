/* Communicators that go from one generation to the next, over a stand-in for NCCL: split off the
 * parent of the same members, shrunk to fewer, fresh ones otherwise; libraries without shrink;
 * calls that fail, never end or never return; members that die. Each generation exchanges and
 * checks data. Catches a wrong rank in a shrunk or split communicator, members that choose
 * different ways, a parent that is used although a member has lost it, and a wait that nobody ends.
 */
#include "autodp/nccl/nccl.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    N_RANKS = 4,
    VICTIM = 1,
    THIRD = 3,
    STEPS = 3,
    N = 1000,
    MOST = 6,
    LONG_MS = 20000,
    SHORT_MS = 1500
};

static const char standin[] = FL_BINARY_DIR "/tests/nccl_standin.so";
static const char old_standin[] = FL_BINARY_DIR "/tests/nccl_standin_old.so";
static const char unrevoking[] = FL_BINARY_DIR "/tests/nccl_standin_unrevoking.so";

typedef enum call_end {
    NOTHING, /* no call goes wrong */
    FAILS,   /* all leave, and all go on with a fresh parent */
    DIES,    /* the victim dies in the call; the others go on without it */
    STOPS,   /* the same, but it stands still */
    BEARS_IT /* the call only takes long */
} call_end;

typedef struct generation {
    const char *members; /* "013": the index of rank 3 is 2 */
    fl_comm_way way;
    bool breaks;      /* the victim's fault happens in its opening: all leave it */
    bool falls;       /* the victim dies in its first step: all leave it */
    bool third_falls; /* the same of rank 3 */
    bool after_loss;  /* it is opened after one that the victim has left by dying */
    bool may_shrink;  /* as the others may have heard of that before they gave up the parent */
    call_end call;    /* what becomes of the victim in a call of its opening */
} generation;

typedef struct script {
    const char *library, *options; /* of the victim's stand-in */
    generation of[MOST];
} script;

typedef struct member {
    const rank_env *env;
    const script *s;
    int index, size;
    int64_t timeout_ms;
    fl_device *d;
    fl_stream *stream;
    fl_group *group;
    fl_bucket *bucket, *pair;
    fl_channel *to, *from;
    void *data, *half, *in;
    float host[N];
    fl_comm_keeper keeper;
} member;

static int index_of(const generation *g, int rank)
{
    const char *at = strchr(g->members, '0' + rank);
    return at == NULL ? -1 : (int)(at - g->members);
}

/* A ring of messages, a bucket of all, and one of each pair of neighbours 2i, 2i + 1. */
static fl_status open_lanes(member *m)
{
    int all[N_RANKS], first = m->index / 2 * 2, both[2] = {first, first + 1};
    int next = (m->index + 1) % m->size, before = (m->index + m->size - 1) % m->size;
    for (int i = 0; i < m->size; i++) {
        all[i] = i;
    }
    const fl_bucket_options bucket = {
        .id = 1, .owners = all, .n_owners = m->size, .data = m->data, .dtype = FL_F32, .n = N};
    const fl_bucket_options pair = {
        .id = 2, .owners = both, .n_owners = 2, .data = m->half, .dtype = FL_F32, .n = N};
    FL_TRY(fl_bucket_create(m->group, &bucket, &m->bucket));
    if (first + 1 < m->size) {
        FL_TRY(fl_bucket_create(m->group, &pair, &m->pair));
    }
    FL_TRY(fl_channel_open(m->group, true, next, (uint32_t)m->index, sizeof m->host, 2, &m->to));
    return fl_channel_open(m->group, false, before, (uint32_t)before, sizeof m->host, 2, &m->from);
}

static fl_status open_member(member *m, const generation *g)
{
    const fl_group_options options = {.device = m->d,
                                      .generation = (uint32_t)(g - m->s->of) + 1,
                                      .index = m->index,
                                      .size = m->size,
                                      .kv = m->env->kv,
                                      .open_timeout_ms = m->timeout_ms,
                                      .wait_timeout_ms = m->timeout_ms,
                                      .backend = &fl_nccl_group_ops,
                                      .every_pair = true,
                                      .keeper = &m->keeper,
                                      .after_loss = g->after_loss};
    FL_TRY(fl_group_open(&options, &m->group));
    FL_TRY(open_lanes(m));
    return fl_group_connect(m->group, fl_deadline_us(m->timeout_ms));
}

static void close_member(member *m)
{
    fl_channel_close(&m->to);
    fl_channel_close(&m->from);
    fl_bucket_destroy(&m->bucket);
    fl_bucket_destroy(&m->pair);
    fl_group_close(&m->group);
}

static float value_of(int index, int step, int i)
{
    return (float)(index * 100 + step * 10 + i % 7);
}

static fl_status start_step(member *m, int step, int64_t deadline_us)
{
    const fl_device_ops *ops = m->d->ops;
    for (int i = 0; i < N; i++) {
        m->host[i] = value_of(m->index, step, i);
    }
    FL_TRY(ops->copy_in(m->d, m->stream, m->data, m->host, sizeof m->host));
    FL_TRY(ops->copy_in(m->d, m->stream, m->half, m->host, sizeof m->host));
    FL_TRY(ops->sync(m->d, m->stream));
    FL_TRY(fl_channel_send_from(m->to, m->data, sizeof m->host, m->stream, deadline_us));
    FL_TRY(fl_bucket_start(m->bucket, FL_ALL_REDUCE, m->stream));
    return m->pair == NULL ? FL_OK : fl_bucket_start(m->pair, FL_ALL_REDUCE, m->stream);
}

static fl_status end_step(member *m, int64_t deadline_us)
{
    double one = 1;
    FL_TRY(fl_channel_receive_to(m->from, m->in, sizeof m->host, m->stream, deadline_us));
    FL_TRY(fl_bucket_wait(m->bucket, m->stream, deadline_us));
    FL_TRY(m->pair == NULL ? FL_OK : fl_bucket_wait(m->pair, m->stream, deadline_us));
    FL_TRY(m->d->ops->sync(m->d, m->stream));
    return fl_group_all_reduce(m->group, &one, 1, deadline_us);
}

/* What the members `first` and up to `last` sum up to. */
static void check_values(member *m, void *memory, int step, int first, int last)
{
    RANK_OK(m->d->ops->copy_out(m->d, m->stream, m->host, memory, sizeof m->host));
    RANK_OK(m->d->ops->sync(m->d, m->stream));
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int index = first; index <= last; index++) {
            sum += value_of(index, step, i);
        }
        RANK_CHECK(m->host[i] == sum);
    }
}

static fl_status train(member *m)
{
    int before = (m->index + m->size - 1) % m->size, first = m->index / 2 * 2;
    for (int step = 0; step < STEPS; step++) {
        int64_t deadline_us = fl_deadline_us(m->timeout_ms);
        FL_TRY(start_step(m, step, deadline_us));
        FL_TRY(end_step(m, deadline_us));
        check_values(m, m->data, step, 0, m->size - 1);
        check_values(m, m->in, step, before, before);
        if (m->pair != NULL) {
            check_values(m, m->half, step, first, first + 1);
        }
    }
    return FL_OK;
}

/* Others that still connect would lose the parent. */
static void fall_once_all_are_connected(const member *m, const generation *g)
{
    const fl_kv *kv = m->env->kv;
    int64_t deadline_us = fl_deadline_us(LONG_MS);
    char key[16];
    snprintf(key, sizeof key, "open/%d", m->env->rank);
    RANK_OK(kv->set(kv->self, key, deadline_us, "", 1));
    bool falls = m->env->rank == (g->falls ? VICTIM : THIRD);
    for (const char *rank = g->members; falls && *rank != '\0'; rank++) {
        void *data = NULL;
        size_t size_bytes = 0;
        snprintf(key, sizeof key, "open/%c", *rank);
        RANK_OK(kv->get(kv->self, key, deadline_us, &data, &size_bytes));
        fl_free(data);
    }
    if (falls) {
        raise(SIGKILL);
    }
}

static void live_in(member *m, const generation *g)
{
    m->index = index_of(g, m->env->rank);
    m->size = (int)strlen(g->members);
    m->timeout_ms = g->breaks ? SHORT_MS : LONG_MS;
    if (m->index < 0) {
        return;
    }
    fl_status status = open_member(m, g);
    bool one_falls = g->falls || g->third_falls;
    if (one_falls) {
        RANK_OK(status);
        fall_once_all_are_connected(m, g);
    }
    status = status == FL_OK ? train(m) : status;
    if (g->breaks || one_falls) {
        RANK_CHECK(fl_status_is_regroup(status));
    } else {
        RANK_OK(status);
        fl_comm_way way = fl_group_comm_get(m->group)->way;
        RANK_CHECK(way == g->way || (g->may_shrink && way == FL_COMM_SHRINK));
        RANK_CHECK(fl_group_comm_get(m->group)->us > 0);
        /* As slow as it was: how it is chosen by time is a matter of test_nccl_survey. */
        memset(m->keeper.took_us, 0, sizeof m->keeper.took_us);
    }
    close_member(m);
}

static void create_device(member *m)
{
    const fl_async_options options = {.n_threads = 1,
                                      .budget_bytes = (size_t)1 << 26,
                                      .seed = (uint64_t)m->env->rank,
                                      .max_delay_us = 20};
    RANK_OK(fl_device_async_create(&options, &m->d));
    RANK_OK(m->d->ops->stream_create(m->d, &m->stream));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "bucket", &m->data));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "bucket", &m->half));
    RANK_OK(fl_device_alloc(m->d, sizeof m->host, "message", &m->in));
}

static void destroy_device(member *m)
{
    fl_device_free(m->d, m->data, sizeof m->host);
    fl_device_free(m->d, m->half, sizeof m->host);
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
    create_device(&m);
    for (const generation *g = m.s->of; g->members != NULL; g++) {
        live_in(&m, g);
    }
    fl_comm_keeper_clear(&m.keeper);
    RANK_CHECK(m.keeper.kept == NULL);
    if (!victim || !hangs) { /* what a thread in NCCL uses is still there */
        destroy_device(&m);
    }
}

static int count_wrong(const script *s)
{
    rank_end ends[N_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS, RANK_ENDS};
    for (const generation *g = s->of; g->members != NULL; g++) {
        ends[VICTIM] = g->falls || g->call == DIES ? RANK_KILLED
                       : g->call == STOPS          ? RANK_STOPPED
                                                   : ends[VICTIM];
        ends[THIRD] = g->third_falls ? RANK_KILLED : ends[THIRD];
    }
    return ranks_run_ending(N_RANKS, live, (void *)(uintptr_t)s, ends, 60000);
}

static void play(const script *s)
{
    if (count_wrong(s) != 0) {
        fail_msg("%s with '%s'", s->library, s->options);
    }
}

/* ---- the cases ---- */

static void test_nccl_parent__goes_from_one_generation_to_the_next(void **state)
{
    (void)state;
    static const script s = {standin,
                             "",
                             {{.members = "0123", .way = FL_COMM_REBUILD},
                              {.members = "3120", .way = FL_COMM_SPLIT},
                              {.members = "0123", .way = FL_COMM_SPLIT},
                              {.members = "302", .way = FL_COMM_SHRINK},
                              {.members = "230", .way = FL_COMM_SPLIT}}};
    play(&s);
}

static void test_nccl_parent__is_fresh_where_members_come(void **state)
{
    (void)state;
    static const script s = {standin,
                             "",
                             {{.members = "12", .way = FL_COMM_REBUILD},
                              {.members = "0123", .way = FL_COMM_REBUILD},
                              {.members = "20", .way = FL_COMM_SHRINK},
                              {.members = "13", .way = FL_COMM_SHRINK},
                              {.members = "01", .way = FL_COMM_REBUILD}}};
    play(&s);
}

static void test_nccl_parent__is_not_shrunk_by_a_library_that_cannot(void **state)
{
    (void)state;
    static const script s = {old_standin,
                             "",
                             {{.members = "0123", .way = FL_COMM_REBUILD},
                              {.members = "2310", .way = FL_COMM_SPLIT},
                              {.members = "023", .way = FL_COMM_REBUILD}}};
    play(&s);
}

static void test_nccl_parent__survives_a_member(void **state)
{
    (void)state;
    static const script list[] = {
        {standin,
         "",
         {{.members = "0123", .way = FL_COMM_REBUILD},
          {.members = "2310", .way = FL_COMM_SPLIT, .falls = true},
          {.members = "023", .way = FL_COMM_SHRINK, .after_loss = true}}},
        {unrevoking,
         "",
         {{.members = "0123", .way = FL_COMM_REBUILD, .falls = true},
          {.members = "302", .way = FL_COMM_SHRINK, .after_loss = true}}},
        {old_standin,
         "",
         {{.members = "0123", .way = FL_COMM_REBUILD, .falls = true},
          {.members = "023", .way = FL_COMM_REBUILD, .after_loss = true}}}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        play(&list[i]);
    }
}

/* ---- each call of the state machine, and each way for it to go wrong ---- */

typedef struct call_fault {
    const char *options;
    call_end end;
} call_fault;

/* In the opening of the first generation, whose parent is fresh. */
static const call_fault split_faults[] = {
    {"fail=GetUniqueId:1:2", FAILS},
    {"hang=GetUniqueId:1", FAILS},
    {"fail=CommInitRankConfig:1:6", FAILS},
    {"error=CommInitRankConfig:1:2", FAILS},
    {"stall=CommInitRankConfig:1", FAILS},
    {"hang=CommInitRankConfig:1", FAILS},
    {"late=CommInitRankConfig:1:300000", BEARS_IT},
    {"kill=CommInitRankConfig:1", DIES},
    {"stop=CommInitRankConfig:1", STOPS},
    {"fail=CommSplit:1:6", FAILS},
    {"error=CommSplit:2:2", FAILS},
    {"stall=CommSplit:1", FAILS},
    {"hang=CommSplit:2", FAILS},
    {"late=CommSplit:1:300000,late=CommSplit:2:300000", BEARS_IT},
    {"kill=CommSplit:1", DIES},
    {"kill=CommSplit:3", DIES},
    {"stop=CommSplit:2", STOPS},
    {"fail=AllReduce:1:6", FAILS},
    {"stall=AllReduce:1", FAILS},
    {"kill=Send:1", DIES},
    {"stop=Recv:1", STOPS},
    {"fail=CommGetAsyncError:3:6", FAILS},
    {"hang=CommGetAsyncError:3", FAILS},
    {"kill=CommGetAsyncError:3", DIES},
    {"stop=CommGetAsyncError:3", STOPS},
    {"stall=CommSplit:1,fail=CommAbort:1:3", FAILS},
};

/* In the second one, for which the parent of four is shrunk to three. */
static const call_fault shrink_faults[] = {
    {"fail=CommShrink:1:6", FAILS},         {"error=CommShrink:1:2", FAILS},
    {"stall=CommShrink:1", FAILS},          {"hang=CommShrink:1", FAILS},
    {"late=CommShrink:1:300000", BEARS_IT}, {"kill=CommShrink:1", DIES},
    {"stop=CommShrink:1", STOPS},
};

/* In the third one, after rank 3 was lost in the second. */
static const call_fault revoke_faults[] = {
    {"fail=CommRevoke:1:6", FAILS}, {"stall=CommRevoke:1", FAILS},
    {"hang=CommRevoke:1", FAILS},   {"late=CommRevoke:1:300000", BEARS_IT},
    {"kill=CommRevoke:1", DIES},    {"stop=CommRevoke:1", STOPS},
    {"fail=CommShrink:1:2", FAILS}, {"kill=CommShrink:1", DIES},
};

/* The generation with the fault, after those before it, and the one in which all go on. */
static script script_of(const call_fault *f, const generation *before, int n_before,
                        const char *members, fl_comm_way way)
{
    bool stays = f->end == FAILS || f->end == BEARS_IT, after_loss = n_before > 1;
    script s = {.library = standin, .options = f->options};
    for (int i = 0; i < n_before; i++) {
        s.of[i] = before[i];
    }
    s.of[n_before] = (generation){.members = members,
                                  .way = way,
                                  .breaks = f->end != BEARS_IT,
                                  .call = f->end,
                                  .after_loss = after_loss};
    s.of[n_before + 1] = (generation){.members = stays                  ? members
                                                 : after_loss           ? "02"
                                                 : strlen(members) == 4 ? "302"
                                                                        : "30",
                                      .way = f->end == BEARS_IT ? FL_COMM_SPLIT : FL_COMM_REBUILD,
                                      .after_loss = !stays,
                                      .may_shrink = !stays && n_before > 0};
    return s;
}

/* Cases play beside each other: most of their time is a wait for a deadline. */
static void play_each(const call_fault *faults, size_t n, const generation *before, int n_before,
                      const char *members, fl_comm_way way)
{
    enum { AT_ONCE = 9 };
    int n_wrong = 0;
    fflush(NULL);
    for (size_t first = 0; first < n; first += AT_ONCE) {
        pid_t players[AT_ONCE];
        size_t some = n - first < AT_ONCE ? n - first : AT_ONCE;
        for (size_t i = 0; i < some; i++) {
            if ((players[i] = fork()) == 0) {
                const script s = script_of(&faults[first + i], before, n_before, members, way);
                _exit(count_wrong(&s));
            }
        }
        for (size_t i = 0; i < some; i++) {
            int status = 0;
            assert_int_equal(waitpid(players[i], &status, 0), players[i]);
            if (status != 0) {
                print_error("'%s'\n", faults[first + i].options);
                n_wrong++;
            }
        }
    }
    assert_int_equal(n_wrong, 0);
}

#define N_OF(list) (sizeof(list) / sizeof *(list))

/* Catches a call of the opening that somebody waits for without an end. */
static void test_nccl_parent__is_left_whichever_call_goes_wrong(void **state)
{
    (void)state;
    play_each(split_faults, N_OF(split_faults), NULL, 0, "1023", FL_COMM_REBUILD);
}

static void test_nccl_parent__is_left_when_it_cannot_be_shrunk(void **state)
{
    (void)state;
    static const generation before[] = {{.members = "0123", .way = FL_COMM_REBUILD}};
    play_each(shrink_faults, N_OF(shrink_faults), before, 1, "013", FL_COMM_SHRINK);
}

static void test_nccl_parent__is_left_when_it_cannot_be_revoked(void **state)
{
    (void)state;
    static const generation before[] = {
        {.members = "0123", .way = FL_COMM_REBUILD},
        {.members = "3210", .way = FL_COMM_SPLIT, .third_falls = true}};
    play_each(revoke_faults, N_OF(revoke_faults), before, 2, "012", FL_COMM_SHRINK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_parent__goes_from_one_generation_to_the_next),
        cmocka_unit_test(test_nccl_parent__is_fresh_where_members_come),
        cmocka_unit_test(test_nccl_parent__is_not_shrunk_by_a_library_that_cannot),
        cmocka_unit_test(test_nccl_parent__survives_a_member),
        cmocka_unit_test(test_nccl_parent__is_left_whichever_call_goes_wrong),
        cmocka_unit_test(test_nccl_parent__is_left_when_it_cannot_be_shrunk),
        cmocka_unit_test(test_nccl_parent__is_left_when_it_cannot_be_revoked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
