/* A stand-in for libnccl.so.2, for tests without a GPU: communicators of real processes, whose data
 * goes through shared memory (board.h), on streams of the asynchronous test device. It has NCCL's
 * rules:
 *
 *   - Communicators are non-blocking. A call that needs other ranks returns "in progress", and ends
 *     in later calls of ncclCommGetAsyncError, or never if a rank does not come. Any other call for
 *     the communicator before that is an error.
 *   - The first operation between ranks connects them, and is such a call.
 *   - Operations run on their streams, but those of one communicator in the order of their calls.
 *   - They wait for the other ranks for ever; only the communicator's abort ends them.
 *   - A split needs all ranks of the parent, and nothing outstanding there.
 *   - A shrink needs all ranks but the excluded ones, and nothing outstanding unless its flag
 * aborts that. A revoked communicator can be shrunk, split and aborted, and nothing else.
 *
 * faults.h says what can go wrong on request. Not kept: a send and a receive in one group. */
#include "autodp/nccl/abi.h"
#include "device/async/async.h"
#include "tests/nccl/board.h"
#include "tests/nccl/faults.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 22809, OPS_MAX = 64 };

#define EXPORT __attribute__((visibility("default")))

typedef enum comm_state {
    READY,
    OPENING,
    SPLITTING,
    SHRINKING,
    REVOKING,
    CONNECTING,
    RUNNING, /* only without streams: until its operations are done */
    FINALIZING
} comm_state;
typedef enum op_kind { OP_SEND, OP_RECEIVE, OP_SUM, OP_BROADCAST } op_kind;

typedef struct op {
    struct ncclComm *comm;
    op_kind kind;
    int peer; /* or the root */
    void *to;
    const void *from;
    size_t size_bytes;
    fl_async_native *stream;
    unsigned turn;
    fault fault;
} op;

struct ncclComm {
    board_end end;
    int own_fd;                   /* of the board, in the process that made it; -1 elsewhere */
    atomic_int refs;              /* the caller's, and one for each operation on its way */
    atomic_uint n_ops, n_ops_run; /* turns given, turns done */
    atomic_bool aborted;
    comm_state state;
    fault fault; /* of the call that is in progress */
    int64_t since_us;
    fl_nccl_result error; /* asynchronous */
    bool connected[BOARD_RANKS + 1];
    op deferred[OPS_MAX]; /* until they are connected, or their group ends */
    int n_deferred, n_connecting;
    unsigned n_splits;
    int color, key;
    bool excluded[BOARD_RANKS]; /* from the child that the communicator is shrunk to */
    bool revoked;
    int n_looks;
    struct ncclComm **child;
    struct ncclComm *next_in_group;
};

/* As NCCL's file has it. */
__attribute__((used)) static const char version_text[] = "NCCL version 2.28.9+cuda13.0";

/* Of a thread: the depth of its groups, and the communicators that have operations in them. */
static _Thread_local int group_depth;
static _Thread_local struct ncclComm *in_group;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one call at a time */
static char last_error[256];

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static fl_nccl_result refuse(fl_nccl_result result, const char *why)
{
    snprintf(last_error, sizeof last_error, "%s", why);
    return result;
}

/* ---- life ---- */

static struct ncclComm *create_comm(board *b, int own_fd, int n_ranks, int rank)
{
    struct ncclComm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        abort();
    }
    c->end = (board_end){.b = b, .rank = rank, .n_ranks = n_ranks, .aborted = &c->aborted};
    c->own_fd = own_fd;
    atomic_store(&c->refs, 1);
    c->state = OPENING;
    c->since_us = now_us();
    if (b != NULL) {
        atomic_store(&b->joined[rank], true);
    }
    return c;
}

static void release(struct ncclComm *c)
{
    if (atomic_fetch_sub(&c->refs, 1) == 1) {
        board_close(c->end.b);
        if (c->own_fd >= 0) {
            close(c->own_fd);
        }
        free(c);
    }
}

/* ---- operations ---- */

static bool has_ops(struct ncclComm *c)
{
    return atomic_load(&c->n_ops) != atomic_load(&c->n_ops_run);
}

static bool wait_turn(const op *o)
{
    struct ncclComm *c = o->comm;
    while (!atomic_load(&c->aborted)) {
        unsigned seen = board_seen(c->end.b);
        if (atomic_load(&c->n_ops_run) == o->turn && o->fault.kind != FAULT_STALL) {
            return !atomic_load(&c->aborted);
        }
        if (!atomic_load(&c->aborted)) {
            board_await(c->end.b, seen);
        }
    }
    return false;
}

static void move_data(const op *o, void *to, const void *from)
{
    board_end *e = &o->comm->end;
    switch (o->kind) {
    case OP_SEND:
        board_send(e, o->peer, from, o->size_bytes);
        return;
    case OP_RECEIVE:
        board_receive(e, o->peer, to, o->size_bytes);
        return;
    case OP_SUM:
        board_sum(e, from, to, o->size_bytes / sizeof(float));
        return;
    case OP_BROADCAST:
        board_broadcast(e, o->peer, from, to, o->size_bytes);
        return;
    }
}

/* On the stream's thread. */
static void run_op(void *call, void *to, const void *from)
{
    op *o = call;
    if (o->fault.kind == FAULT_LATE) {
        usleep((useconds_t)o->fault.value);
    }
    if (wait_turn(o)) {
        move_data(o, to, from);
    }
    atomic_fetch_add(&o->comm->n_ops_run, 1);
    board_change(o->comm->end.b);
    release(o->comm);
    free(o);
}

static void *run_beside(void *call)
{
    op *o = call;
    run_op(o, o->to, o->from);
    return NULL;
}

/* Whether it will run. */
static bool queue_op(op *o)
{
    pthread_t thread;
    if (!fault_without_streams()) {
        return o->stream->queue(o->stream, o->to, o->from, o->size_bytes, run_op, o) == 0;
    }
    if (pthread_create(&thread, NULL, run_beside, o) != 0) {
        return false;
    }
    pthread_detach(thread);
    return true;
}

static void launch(const op *wanted)
{
    struct ncclComm *c = wanted->comm;
    op *o = malloc(sizeof *o);
    if (o == NULL) {
        abort();
    }
    *o = *wanted;
    o->turn = atomic_fetch_add(&c->n_ops, 1);
    atomic_fetch_add(&c->refs, 1);
    if (o->fault.kind == FAULT_ERROR) {
        c->error = (fl_nccl_result)o->fault.value;
    }
    if (!queue_op(o)) {
        c->error = FL_NCCL_UNHANDLED_CUDA_ERROR;
        atomic_fetch_sub(&c->n_ops, 1);
        release(c);
        free(o);
    }
}

static int connection_of(const op *o)
{
    return o->kind == OP_SEND || o->kind == OP_RECEIVE ? 1 + o->peer : 0;
}

static bool is_connected(struct ncclComm *c, const op *o)
{
    board *b = c->end.b;
    int mine = connection_of(o);
    if (mine > 0) {
        return atomic_load(&b->wants[o->peer][1 + c->end.rank]);
    }
    for (int rank = 0; rank < c->end.n_ranks; rank++) {
        if (!atomic_load(&b->wants[rank][0])) {
            return false;
        }
    }
    return true;
}

/* Begin what was deferred. */
static fl_nccl_result start_deferred(struct ncclComm *c)
{
    bool all = true;
    for (int i = 0; i < c->n_deferred; i++) {
        int connection = connection_of(&c->deferred[i]);
        atomic_store(&c->end.b->wants[c->end.rank][connection], true);
        all = all && c->connected[connection];
    }
    if (!all) {
        c->state = CONNECTING;
        c->n_connecting = 0;
        return FL_NCCL_IN_PROGRESS;
    }
    for (int i = 0; i < c->n_deferred; i++) {
        launch(&c->deferred[i]);
    }
    c->n_deferred = 0;
    c->state = fault_without_streams() ? RUNNING : c->state;
    return fault_without_streams() ? FL_NCCL_IN_PROGRESS : FL_NCCL_SUCCESS;
}

static fl_nccl_result add_op(op o, const char *name)
{
    struct ncclComm *c = o.comm;
    fl_nccl_result result = FL_NCCL_SUCCESS;
    o.fault = fault_of(name);
    pthread_mutex_lock(&lock);
    if (o.fault.kind == FAULT_FAIL) {
        result = refuse((fl_nccl_result)o.fault.value, "it failed on request");
    } else if (c->revoked) {
        result = refuse(FL_NCCL_INVALID_USAGE, "the communicator is revoked");
    } else if (c->state != READY || c->n_deferred == OPS_MAX) {
        result = refuse(FL_NCCL_INVALID_ARGUMENT, "the call before it is still in progress");
    } else {
        if (c->n_deferred == 0 && group_depth > 0) {
            c->next_in_group = in_group;
            in_group = c;
        }
        c->deferred[c->n_deferred++] = o;
        result = group_depth > 0 ? FL_NCCL_SUCCESS : start_deferred(c);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static size_t bytes_of(int type, size_t count)
{
    return type == FL_NCCL_FLOAT32 ? count * sizeof(float) : count;
}

EXPORT fl_nccl_result ncclSend(const void *from, size_t count, int type, int peer,
                               struct ncclComm *c, void *stream)
{
    return add_op((op){.comm = c,
                       .kind = OP_SEND,
                       .peer = peer,
                       .from = from,
                       .size_bytes = bytes_of(type, count),
                       .stream = stream},
                  "Send");
}

EXPORT fl_nccl_result ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *c,
                               void *stream)
{
    return add_op((op){.comm = c,
                       .kind = OP_RECEIVE,
                       .peer = peer,
                       .to = to,
                       .size_bytes = bytes_of(type, count),
                       .stream = stream},
                  "Recv");
}

EXPORT fl_nccl_result ncclAllReduce(const void *from, void *to, size_t count, int type,
                                    int operation, struct ncclComm *c, void *stream)
{
    if (type != FL_NCCL_FLOAT32 || operation != FL_NCCL_SUM) {
        return refuse(FL_NCCL_INVALID_ARGUMENT, "the stand-in adds fp32 values only");
    }
    return add_op((op){.comm = c,
                       .kind = OP_SUM,
                       .from = from,
                       .to = to,
                       .size_bytes = bytes_of(type, count),
                       .stream = stream},
                  "AllReduce");
}

EXPORT fl_nccl_result ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                                    struct ncclComm *c, void *stream)
{
    return add_op((op){.comm = c,
                       .kind = OP_BROADCAST,
                       .peer = root,
                       .from = from,
                       .to = to,
                       .size_bytes = bytes_of(type, count),
                       .stream = stream},
                  "Broadcast");
}

EXPORT fl_nccl_result ncclGroupStart(void)
{
    group_depth++;
    return fault_of("GroupStart").kind == FAULT_FAIL ? FL_NCCL_INTERNAL_ERROR : FL_NCCL_SUCCESS;
}

EXPORT fl_nccl_result ncclGroupEnd(void)
{
    fl_nccl_result result = FL_NCCL_SUCCESS;
    fault f = fault_of("GroupEnd");
    pthread_mutex_lock(&lock);
    while (--group_depth == 0 && in_group != NULL) {
        struct ncclComm *c = in_group;
        in_group = c->next_in_group;
        group_depth = 1;
        fl_nccl_result started = start_deferred(c);
        result = started == FL_NCCL_SUCCESS ? result : started;
    }
    pthread_mutex_unlock(&lock);
    return f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : result;
}

/* ---- what goes on in the background ---- */

static bool all_have(const atomic_bool *flags, int n)
{
    for (int rank = 0; rank < n; rank++) {
        if (!atomic_load(&flags[rank])) {
            return false;
        }
    }
    return true;
}

/* The rank among those of its color, and the first and the number of them. */
static int place_in_color(struct ncclComm *c, const board_split *s, int *first, int *n)
{
    int before = 0;
    *first = -1;
    *n = 0;
    for (int rank = 0; rank < c->end.n_ranks; rank++) {
        if (s->rank[rank].color == c->color) {
            int key = s->rank[rank].key;
            before += key < c->key || (key == c->key && rank < c->end.rank);
            *first = *first < 0 ? rank : *first;
            ++*n;
        }
    }
    return before;
}

static board_split *split_of(const struct ncclComm *c)
{
    return c->state == SHRINKING ? &c->end.b->shrink : &c->end.b->split[c->n_splits % BOARD_SPLITS];
}

/* Once all ranks have come: the first of each color makes the board of the child. */
static bool finish_split(struct ncclComm *c)
{
    board_split *s = split_of(c);
    unsigned number = c->state == SHRINKING ? 1 : c->n_splits;
    int first, n, rank = place_in_color(c, s, &first, &n);
    int own_fd = -1;
    if (c->color == FL_NCCL_NO_COLOR) {
        *c->child = NULL;
        return true;
    }
    if (first == c->end.rank) {
        if (!board_create(&s->rank[first].place)) {
            abort();
        }
        own_fd = (int)s->rank[first].place.fd;
        atomic_store(&s->rank[first].made, number);
    }
    if (atomic_load(&s->rank[first].made) != number) {
        return false;
    }
    board *b = board_open(&s->rank[first].place);
    *c->child = create_comm(b, own_fd, n, rank);
    return true;
}

static bool all_have_split(const struct ncclComm *c)
{
    const board_split *s = split_of(c);
    unsigned number = c->state == SHRINKING ? 1 : c->n_splits;
    for (int rank = 0; rank < c->end.n_ranks; rank++) {
        bool counts = c->state == SPLITTING || !c->excluded[rank];
        if (counts && atomic_load(&s->rank[rank].posted) != number) {
            return false;
        }
    }
    return true;
}

static bool finish_connecting(struct ncclComm *c)
{
    for (int i = 0; i < c->n_deferred; i++) {
        if (!is_connected(c, &c->deferred[i])) {
            return false;
        }
    }
    /* In progress for at least one more look. */
    if (c->n_connecting++ == 0) {
        return false;
    }
    for (int i = 0; i < c->n_deferred; i++) {
        c->connected[connection_of(&c->deferred[i])] = true;
    }
    return start_deferred(c) == FL_NCCL_SUCCESS;
}

static bool is_finished(struct ncclComm *c)
{
    int n = c->end.n_ranks;
    if (c->end.b == NULL || c->fault.kind == FAULT_STALL ||
        (c->fault.kind == FAULT_LATE && now_us() < c->since_us + c->fault.value)) {
        return false;
    }
    switch (c->state) {
    case READY:
        return true;
    case OPENING:
        return all_have(c->end.b->joined, n);
    case SPLITTING:
    case SHRINKING:
        return all_have_split(c) && finish_split(c);
    case REVOKING:
        return c->n_looks++ > 0; /* in progress for at least one look */
    case CONNECTING:
        return finish_connecting(c);
    case RUNNING:
        return !has_ops(c);
    case FINALIZING:
        return atomic_load(&c->n_ops) == atomic_load(&c->n_ops_run) &&
               all_have(c->end.b->finalized, n);
    }
    return false;
}

static void begin(struct ncclComm *c, comm_state state, fault f)
{
    c->state = state;
    c->fault = f;
    c->since_us = now_us();
    if (f.kind == FAULT_ERROR) {
        c->error = (fl_nccl_result)f.value;
    }
}

EXPORT fl_nccl_result ncclCommGetAsyncError(struct ncclComm *c, fl_nccl_result *error)
{
    fault f = fault_of("CommGetAsyncError");
    if (f.kind == FAULT_FAIL) {
        return refuse((fl_nccl_result)f.value, "it failed on request");
    }
    pthread_mutex_lock(&lock);
    if (c->error != FL_NCCL_SUCCESS) {
        *error = c->error;
    } else if (is_finished(c)) {
        c->state = READY;
        *error = FL_NCCL_SUCCESS;
    } else {
        *error = FL_NCCL_IN_PROGRESS;
    }
    pthread_mutex_unlock(&lock);
    return FL_NCCL_SUCCESS;
}

/* ---- communicators ---- */

EXPORT fl_nccl_result ncclGetVersion(int *version)
{
    *version = fault_version(VERSION);
    return fault_of("GetVersion").kind == FAULT_FAIL ? FL_NCCL_INTERNAL_ERROR : FL_NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(fl_nccl_result result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result <= FL_NCCL_IN_PROGRESS ? texts[result] : "unknown result code";
}

EXPORT const char *ncclGetLastError(struct ncclComm *c)
{
    (void)c;
    return last_error;
}

EXPORT fl_nccl_result ncclGetUniqueId(fl_nccl_id *id)
{
    board_place place;
    fault f = fault_of("GetUniqueId");
    if (f.kind == FAULT_FAIL || !board_create(&place)) {
        return refuse((fl_nccl_result)f.value, "it failed on request");
    }
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &place, sizeof place);
    return FL_NCCL_SUCCESS;
}

EXPORT fl_nccl_result ncclCommInitRankConfig(struct ncclComm **out, int n_ranks, fl_nccl_id id,
                                             int rank, fl_nccl_config *config)
{
    board_place place;
    fault f = fault_of("CommInitRankConfig");
    memcpy(&place, id.internal, sizeof place);
    if (f.kind == FAULT_FAIL) {
        return refuse((fl_nccl_result)f.value, "it failed on request");
    }
    if (n_ranks > BOARD_RANKS || rank < 0 || rank >= n_ranks ||
        config->magic != FL_NCCL_CONFIG_MAGIC ||
        config->size < offsetof(fl_nccl_config, blocking) || config->blocking != 0) {
        return refuse(FL_NCCL_INVALID_ARGUMENT, "communicators here are non-blocking, of at most "
                                                "16 ranks");
    }
    *out =
        create_comm(board_open(&place), place.pid == getpid() ? (int)place.fd : -1, n_ranks, rank);
    begin(*out, OPENING, f);
    return FL_NCCL_IN_PROGRESS;
}

static void post_split(struct ncclComm *c, unsigned number, int color, int key,
                       struct ncclComm **child)
{
    board_split *s = split_of(c);
    c->color = s->rank[c->end.rank].color = color;
    c->key = s->rank[c->end.rank].key = key;
    c->child = child;
    atomic_store(&s->rank[c->end.rank].posted, number);
}

EXPORT fl_nccl_result ncclCommSplit(struct ncclComm *c, int color, int key, struct ncclComm **child,
                                    fl_nccl_config *config)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommSplit");
    (void)config;
    pthread_mutex_lock(&lock);
    if (f.kind == FAULT_FAIL) {
        result = refuse((fl_nccl_result)f.value, "it failed on request");
    } else if (c->state != READY || has_ops(c)) {
        result = refuse(FL_NCCL_INVALID_USAGE, "something of the parent is outstanding");
    } else {
        c->n_splits++;
        begin(c, SPLITTING, f);
        post_split(c, c->n_splits, color, key, child);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#ifndef STANDIN_WITHOUT_SHRINK
EXPORT fl_nccl_result ncclCommShrink(struct ncclComm *c, int *excluded, int n_excluded,
                                     struct ncclComm **child, fl_nccl_config *config, int flags)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommShrink");
    (void)config;
    pthread_mutex_lock(&lock);
    memset(c->excluded, 0, sizeof c->excluded);
    for (int i = 0; i < n_excluded; i++) {
        if (excluded[i] < 0 || excluded[i] >= c->end.n_ranks || excluded[i] == c->end.rank) {
            result = refuse(FL_NCCL_INVALID_ARGUMENT, "a rank that cannot be excluded");
        } else {
            c->excluded[excluded[i]] = true;
        }
    }
    if (f.kind == FAULT_FAIL) {
        result = refuse((fl_nccl_result)f.value, "it failed on request");
    } else if (n_excluded < 1) {
        result = refuse(FL_NCCL_INVALID_ARGUMENT, "no rank is excluded");
    } else if (c->state != READY || (flags == FL_NCCL_SHRINK_DEFAULT && has_ops(c))) {
        result = refuse(FL_NCCL_INVALID_USAGE, "something of the parent is outstanding");
    } else if (result == FL_NCCL_IN_PROGRESS) {
        int first = 0; /* other ranks may shrink the same communicator to another one */
        while (c->excluded[first]) {
            first++;
        }
        begin(c, SHRINKING, f);
        post_split(c, 1, 1 + first, c->end.rank, child);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT fl_nccl_result ncclCommRevoke(struct ncclComm *c, int flags)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommRevoke");
    pthread_mutex_lock(&lock);
    if (f.kind == FAULT_FAIL || flags != FL_NCCL_REVOKE_DEFAULT || c->revoked) {
        result = refuse(f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_INVALID_ARGUMENT,
                        "it failed on request, or the communicator is revoked");
    } else {
        c->revoked = true;
        c->n_looks = 0;
        begin(c, REVOKING, f);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
#endif

EXPORT fl_nccl_result ncclCommFinalize(struct ncclComm *c)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommFinalize");
    pthread_mutex_lock(&lock);
    if (f.kind == FAULT_FAIL || c->state != READY || c->revoked) {
        result = refuse(f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_INVALID_ARGUMENT,
                        "it failed on request, or another call is in progress");
    } else {
        atomic_store(&c->end.b->finalized[c->end.rank], true);
        begin(c, FINALIZING, f);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT fl_nccl_result ncclCommDestroy(struct ncclComm *c)
{
    fault f = fault_of("CommDestroy");
    if (c->state != READY || atomic_load(&c->n_ops) != atomic_load(&c->n_ops_run)) {
        fprintf(stderr, "stand-in for NCCL: a communicator is destroyed before it is finalized\n");
        abort();
    }
    release(c);
    return f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_SUCCESS;
}

/* Operations that run leave; those that have not begun never will. */
EXPORT fl_nccl_result ncclCommAbort(struct ncclComm *c)
{
    fault f = fault_of("CommAbort");
    atomic_store(&c->aborted, true);
    if (c->end.b != NULL) {
        board_change(c->end.b);
    }
    while (fault_without_streams() && has_ops(c)) { /* no stream can be waited for */
        unsigned seen = board_seen(c->end.b);
        if (has_ops(c)) {
            board_await(c->end.b, seen);
        }
    }
    release(c);
    return f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_SUCCESS;
}
