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
 *     aborts that. A revoked communicator can be shrunk, split and aborted, and nothing else.
 *   - A captured operation runs at each launch of its graph. An abort raises its flag at the call,
 * and ends, at the end of the outermost group of calls, only once no graph has operations of the
 *     communicator; so does its destruction.
 *   - A buffer is registered once, and unregistered before its memory is given back and before the
 *     communicator is destroyed. Of one operation all ranks' buffers are registered, or none. A
 *     program that breaks a rule of these dies.
 *
 * faults.h says what can go wrong on request. Not kept: a send and a receive in one group. */
#include "autodp/nccl/abi.h"
#include "tests/nccl/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 22809 };

/* As NCCL's file has it. */
__attribute__((used)) static const char version_text[] = "NCCL version 2.28.9+cuda13.0";

pthread_mutex_t comm_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[256];

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

fl_nccl_result comm_refuse(fl_nccl_result result, const char *why)
{
    snprintf(last_error, sizeof last_error, "%s", why);
    return result;
}

/* ---- life ---- */

struct ncclComm *comm_create(board *b, int own_fd, int n_ranks, int rank)
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

void comm_release(struct ncclComm *c)
{
    if (atomic_fetch_sub(&c->refs, 1) == 1) {
        board_close(c->end.b);
        if (c->own_fd >= 0) {
            close(c->own_fd);
        }
        free(c);
    }
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
        return comm_finish_split(c);
    case REVOKING:
        return c->n_looks++ > 0; /* in progress for at least one look */
    case CONNECTING:
        return comm_finish_connecting(c);
    case RUNNING:
        return !comm_has_ops(c);
    case FINALIZING:
        return atomic_load(&c->n_ops) == atomic_load(&c->n_ops_run) &&
               all_have(c->end.b->finalized, n);
    }
    return false;
}

void comm_begin(struct ncclComm *c, comm_state state, fault f)
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
        return comm_refuse((fl_nccl_result)f.value, "it failed on request");
    }
    pthread_mutex_lock(&comm_lock);
    if (c->error != FL_NCCL_SUCCESS) {
        *error = c->error;
    } else if (is_finished(c)) {
        c->state = READY;
        *error = FL_NCCL_SUCCESS;
    } else {
        *error = FL_NCCL_IN_PROGRESS;
    }
    pthread_mutex_unlock(&comm_lock);
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
        return comm_refuse((fl_nccl_result)f.value, "it failed on request");
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
        return comm_refuse((fl_nccl_result)f.value, "it failed on request");
    }
    if (n_ranks > BOARD_RANKS || rank < 0 || rank >= n_ranks ||
        config->magic != FL_NCCL_CONFIG_MAGIC ||
        config->size < offsetof(fl_nccl_config, blocking) || config->blocking != 0) {
        return comm_refuse(FL_NCCL_INVALID_ARGUMENT,
                           "communicators here are non-blocking, of at most "
                           "16 ranks");
    }
    *out =
        comm_create(board_open(&place), place.pid == getpid() ? (int)place.fd : -1, n_ranks, rank);
    comm_begin(*out, OPENING, f);
    return FL_NCCL_IN_PROGRESS;
}

#ifndef STANDIN_WITHOUT_REVOKE

EXPORT fl_nccl_result ncclCommRevoke(struct ncclComm *c, int flags)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommRevoke");
    pthread_mutex_lock(&comm_lock);
    if (f.kind == FAULT_FAIL || flags != FL_NCCL_REVOKE_DEFAULT || c->revoked) {
        result =
            comm_refuse(f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_INVALID_ARGUMENT,
                        "it failed on request, or the communicator is revoked");
    } else {
        c->revoked = true;
        c->n_looks = 0;
        comm_begin(c, REVOKING, f);
    }
    pthread_mutex_unlock(&comm_lock);
    return result;
}
#endif

EXPORT fl_nccl_result ncclCommFinalize(struct ncclComm *c)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommFinalize");
    pthread_mutex_lock(&comm_lock);
    if (f.kind == FAULT_FAIL || c->state != READY || c->revoked) {
        result =
            comm_refuse(f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_INVALID_ARGUMENT,
                        "it failed on request, or another call is in progress");
    } else {
        atomic_store(&c->end.b->finalized[c->end.rank], true);
        comm_begin(c, FINALIZING, f);
    }
    pthread_mutex_unlock(&comm_lock);
    return result;
}

/* It waits for ever for graphs that hold operations of the communicator. */
static void wait_for_graphs(struct ncclComm *c)
{
    while (c->end.b != NULL && atomic_load(&c->n_captured) > 0) {
        unsigned seen = board_seen(c->end.b);
        if (atomic_load(&c->n_captured) > 0) {
            board_await(c->end.b, seen);
        }
    }
}

EXPORT fl_nccl_result ncclCommDestroy(struct ncclComm *c)
{
    fault f = fault_of("CommDestroy");
    if (f.kind == FAULT_LATE) {
        usleep((useconds_t)f.value);
    }
    if (c->state != READY || atomic_load(&c->n_ops) != atomic_load(&c->n_ops_run)) {
        fprintf(stderr, "stand-in for NCCL: a communicator is destroyed before it is finalized\n");
        abort();
    }
    wait_for_graphs(c);
    comm_end_registrations(c, false);
    comm_release(c);
    return f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_SUCCESS;
}

/* ---- abort ---- */

static _Thread_local struct ncclComm *ending; /* what was aborted in this thread's group of calls */

static void end_aborted(struct ncclComm *c)
{
    while (fault_without_streams() && comm_has_ops(c)) { /* no stream can be waited for */
        unsigned seen = board_seen(c->end.b);
        if (comm_has_ops(c)) {
            board_await(c->end.b, seen);
        }
    }
    wait_for_graphs(c);
    comm_end_registrations(c, true);
    comm_release(c);
}

void comm_end_aborted(void)
{
    while (ending != NULL) {
        struct ncclComm *c = ending;
        ending = c->next_ending;
        end_aborted(c);
    }
}

/* Operations that run leave; those that have not begun never will. */
EXPORT fl_nccl_result ncclCommAbort(struct ncclComm *c)
{
    fault f = fault_of("CommAbort");
    atomic_store(&c->aborted, true);
    if (c->end.b != NULL) {
        board_change(c->end.b);
    }
    if (comm_in_group()) {
        c->next_ending = ending;
        ending = c;
    } else {
        end_aborted(c);
    }
    return f.kind == FAULT_FAIL ? (fl_nccl_result)f.value : FL_NCCL_SUCCESS;
}
