/* A communicator of the stand-in for NCCL, and what its files share.
 *
 *     standin.c      the rules; communicators from their opening to their end; faults of calls
 *     operations.c   sends, receives and collectives
 *     splits.c       communicators that are split off another one, or shrunk from it
 *     captures.c     operations in graphs of the stand-in for CUDA
 *     registrations.c  buffers that are registered */
#ifndef FL_TESTS_NCCL_COMM_H
#define FL_TESTS_NCCL_COMM_H

#include "autodp/nccl/abi.h"
#include "device/async/async.h"
#include "tests/nccl/board.h"
#include "tests/nccl/faults.h"

#include <pthread.h>

enum { OPS_MAX = 64 };

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

typedef struct registration registration;

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
    fl_async_native *stream; /* of the last operation */
    atomic_int n_captured;   /* operations that graphs hold, which need the communicator */
    struct ncclComm *next_ending;
    registration *registrations;
};

extern pthread_mutex_t comm_lock; /* one call at a time */

/* Note why for ncclGetLastError. Returns result. */
fl_nccl_result comm_refuse(fl_nccl_result result, const char *why);

/* b NULL: nobody will come. The caller has the first reference. */
struct ncclComm *comm_create(board *b, int own_fd, int n_ranks, int rank);
void comm_release(struct ncclComm *c);

/* A call is in progress from now on. With the lock, as what follows. */
void comm_begin(struct ncclComm *c, comm_state state, fault f);

/* operations.c: whether there are operations on their way; let those go on that were deferred until
 * their ranks are connected: true once they are. */
bool comm_has_ops(struct ncclComm *c);
bool comm_finish_connecting(struct ncclComm *c);

/* splits.c: whether the split or shrink has ended; *child is there then. */
bool comm_finish_split(struct ncclComm *c);

/* registrations.c: at the start of an operation, whether its buffer is registered, for the other
 * ranks; at its end, that theirs are alike. At the end of a communicator: that it has none, or, of
 * one that is aborted, that their memory is still there. */
void comm_note_registered(const op *o);
void comm_check_registered(const op *o);
void comm_end_registrations(struct ncclComm *c, bool aborted);

/* captures.c: whether the operation's stream is captured; it is noted there then. *code: whether
 * that failed. */
bool comm_capture_op(const op *o, fl_nccl_result *result);

/* operations.c: an operation that a graph launches, on the thread that launches it. */
void comm_run_now(const op *captured);

/* Whether this thread is in a group of calls. */
bool comm_in_group(void);

/* standin.c: in the end of the outermost group: free what was aborted in it. */
void comm_end_aborted(void);

#endif
