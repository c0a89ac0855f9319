#include "support/ranks/nccl_members.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_RANKS = 4, VICTIM = 1, THIRD = 3, STEPS = 3, N = 1000, LONG_MS = 20000, SHORT_MS = 1500 };

typedef struct member {
    const rank_env *env;
    const nccl_script *s;
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

static int index_of(const nccl_generation *g, int rank)
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

static fl_status open_member(member *m, const nccl_generation *g)
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
static void fall_once_all_are_connected(const member *m, const nccl_generation *g)
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

static void live_in(member *m, const nccl_generation *g)
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
    for (const nccl_generation *g = m.s->of; g->members != NULL; g++) {
        live_in(&m, g);
    }
    fl_comm_keeper_clear(&m.keeper);
    RANK_CHECK(m.keeper.kept == NULL);
    if (!victim || !hangs) { /* what a thread in NCCL uses is still there */
        destroy_device(&m);
    }
}

int nccl_script_count_wrong(const nccl_script *s)
{
    rank_end ends[N_RANKS] = {RANK_ENDS, RANK_ENDS, RANK_ENDS, RANK_ENDS};
    for (const nccl_generation *g = s->of; g->members != NULL; g++) {
        ends[VICTIM] = g->falls || g->call == NCCL_CALL_DIES ? RANK_KILLED
                       : g->call == NCCL_CALL_STOPS          ? RANK_STOPPED
                                                             : ends[VICTIM];
        ends[THIRD] = g->third_falls ? RANK_KILLED : ends[THIRD];
    }
    return ranks_run_ending(N_RANKS, live, (void *)(uintptr_t)s, ends, 60000);
}
