/* Operations of the stand-in for NCCL: each waits in its group, then until the ranks are connected,
 * then for its stream, and then for those of the same communicator that were called before it. */
#include "tests/nccl/comm.h"

#include <stdlib.h>
#include <unistd.h>

/* Of a thread: the depth of its groups, and the communicators that have operations in them. */
static _Thread_local int group_depth;
static _Thread_local struct ncclComm *in_group;

bool comm_has_ops(struct ncclComm *c)
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

/* Whether all of it was moved. */
static bool move_data(const op *o, void *to, const void *from)
{
    board_end *e = &o->comm->end;
    switch (o->kind) {
    case OP_SEND:
        return board_send(e, o->peer, from, o->size_bytes);
    case OP_RECEIVE:
        return board_receive(e, o->peer, to, o->size_bytes);
    case OP_SUM:
        return board_sum(e, from, to, o->size_bytes / sizeof(float));
    case OP_BROADCAST:
        return board_broadcast(e, o->peer, from, to, o->size_bytes);
    }
    return false;
}

static void run_wherever(const op *o, void *to, const void *from)
{
    if (o->fault.kind == FAULT_LATE) {
        usleep((useconds_t)o->fault.value);
    }
    comm_note_registered(o);
    if (wait_turn(o) && move_data(o, to, from)) {
        comm_check_registered(o);
    }
    atomic_fetch_add(&o->comm->n_ops_run, 1);
    board_change(o->comm->end.b);
    comm_release(o->comm);
}

/* On the stream's thread. */
static void run_op(void *call, void *to, const void *from)
{
    run_wherever(call, to, from);
    free(call);
}

void comm_run_now(const op *captured)
{
    op o = *captured;
    pthread_mutex_lock(&comm_lock);
    o.turn = atomic_fetch_add(&o.comm->n_ops, 1);
    atomic_fetch_add(&o.comm->refs, 1);
    pthread_mutex_unlock(&comm_lock);
    run_wherever(&o, o.to, o.from);
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
        comm_release(c);
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
    pthread_mutex_lock(&comm_lock);
    if (o.fault.kind == FAULT_FAIL) {
        result = comm_refuse((fl_nccl_result)o.fault.value, "it failed on request");
    } else if (c->revoked) {
        result = comm_refuse(FL_NCCL_INVALID_USAGE, "the communicator is revoked");
    } else if (c->state != READY || c->n_deferred == OPS_MAX) {
        result = comm_refuse(FL_NCCL_INVALID_ARGUMENT, "the call before it is still in progress");
    } else if (c->connected[connection_of(&o)] && comm_capture_op(&o, &result)) {
        /* it runs when its graph is launched */
    } else {
        if (c->n_deferred == 0 && group_depth > 0) {
            c->next_in_group = in_group;
            in_group = c;
        }
        c->deferred[c->n_deferred++] = o;
        c->stream = o.stream;
        result = group_depth > 0 ? FL_NCCL_SUCCESS : start_deferred(c);
    }
    pthread_mutex_unlock(&comm_lock);
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
        return comm_refuse(FL_NCCL_INVALID_ARGUMENT, "the stand-in adds fp32 values only");
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

bool comm_in_group(void)
{
    return group_depth > 0;
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
    pthread_mutex_lock(&comm_lock);
    while (--group_depth == 0 && in_group != NULL) {
        struct ncclComm *c = in_group;
        in_group = c->next_in_group;
        group_depth = 1;
        fl_nccl_result started = start_deferred(c);
        result = started == FL_NCCL_SUCCESS ? result : started;
    }
    pthread_mutex_unlock(&comm_lock);
    if (group_depth == 0) {
        comm_end_aborted();
    }
    return f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : result;
}

bool comm_finish_connecting(struct ncclComm *c)
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
