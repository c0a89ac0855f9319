/* The flight recorder: what every thread of a worker is doing and has done last.
 *
 * It lies in memory that the controller maps before it forks its workers, so it can be read at any
 * time, also when a worker is stopped or dead, and nothing has to be cleaned up. Each thread that
 * records has a track of its own, which it alone writes, without lock and without allocation:
 *
 *     open   the operations it is in, the outermost first
 *     ring   those it has left, the newest overwrite the oldest
 *
 * The recorder belongs to the process as the log does: code that does something worth recording
 * names it with fl_flight_enter and fl_flight_leave. A thread that has no track records nothing. An
 * operation that fails is not left: it stays open, and shows where the thread came to. */
#ifndef FL_DEVICE_FLIGHT_FLIGHT_H
#define FL_DEVICE_FLIGHT_FLIGHT_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One line a kind: name, text, category. */
#define FL_FLIGHT_MAP(X)                                                                           \
    X(NONE, "nothing", OTHER)                                                                      \
    X(STEP, "step", PHASE)                                                                         \
    X(EVALUATION, "evaluation", PHASE)                                                             \
    X(PREPARE, "transition: preparing", PHASE)                                                     \
    X(VOTE, "transition: vote", PHASE)                                                             \
    X(MIGRATION, "transition: migration", PHASE)                                                   \
    X(SWITCH, "transition: switch", PHASE)                                                         \
    X(SHARE, "sharing out a batch", CONTROL)                                                       \
    X(REPORT, "report", CONTROL)                                                                   \
    X(CHECKPOINT, "copying a checkpoint", CONTROL)                                                 \
    X(DATA, "data", DATA)                                                                          \
    X(CAPTURE, "capture of a graph", CONTROL)                                                      \
    X(LAUNCH, "launch of a graph", COMPUTE)                                                        \
    X(FORWARD, "forward", COMPUTE)                                                                 \
    X(BACKWARD, "backward", COMPUTE)                                                               \
    X(LOSS, "loss", COMPUTE)                                                                       \
    X(NORMS, "gradient norms", COMPUTE)                                                            \
    X(OPTIMIZER, "optimizer", OPTIMIZER)                                                           \
    X(RECEIVE, "receive of activations", RECEIVE)                                                  \
    X(RECEIVE_GRAD, "receive of gradients", RECEIVE)                                               \
    X(SEND, "send of activations", SEND)                                                           \
    X(SEND_GRAD, "send of gradients", SEND)                                                        \
    X(REDUCE, "all-reduce transfer", REDUCE)                                                       \
    X(REDUCE_WAIT, "all-reduce", REDUCE)                                                           \
    X(SUM, "sum over all workers", WAIT)                                                           \
    X(SEND_COMMAND, "send of a command", WAIT)                                                     \
    X(RECEIVE_COMMAND, "receive of a command", WAIT)                                               \
    X(GATHER, "gathering", WAIT)                                                                   \
    X(STATE_IN, "receive of state", RECEIVE)                                                       \
    X(STATE_OUT, "send of state", SEND)                                                            \
    X(COMM_ID, "ncclGetUniqueId", WAIT)                                                            \
    X(COMM_INIT, "ncclCommInitRankConfig", WAIT)                                                   \
    X(COMM_SPLIT, "ncclCommSplit", WAIT)                                                           \
    X(COMM_SHRINK, "ncclCommShrink", WAIT)                                                         \
    X(COMM_CONNECT, "first operation of a communicator", WAIT)                                     \
    X(COMMAND, "wait for the controller's command", WAIT)                                          \
    X(STANDBY, "standby", WAIT)

typedef enum fl_flight_kind {
#define FL_FLIGHT_ENUM(name, text, category) FL_FLIGHT_##name,
    FL_FLIGHT_MAP(FL_FLIGHT_ENUM)
#undef FL_FLIGHT_ENUM
        FL_FLIGHT_KINDS,
} fl_flight_kind;

/* The category of a kind's time. A phase contains other operations and has no category itself. */
#define FL_FLIGHT_CATEGORIES(X)                                                                    \
    X(OTHER, "other")                                                                              \
    X(PHASE, "phase")                                                                              \
    X(COMPUTE, "compute")                                                                          \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(DATA, "data")                                                                                \
    X(SEND, "send")                                                                                \
    X(RECEIVE, "receive")                                                                          \
    X(REDUCE, "all-reduce")                                                                        \
    X(WAIT, "wait")                                                                                \
    X(CONTROL, "control")

typedef enum fl_flight_category {
#define FL_FLIGHT_ENUM(name, text) FL_FLIGHT_IS_##name,
    FL_FLIGHT_CATEGORIES(FL_FLIGHT_ENUM)
#undef FL_FLIGHT_ENUM
        FL_FLIGHT_N_CATEGORIES,
} fl_flight_category;

/* Whose track it is. */
typedef enum fl_flight_role {
    FL_FLIGHT_NOBODY = 0,
    FL_FLIGHT_MAIN = 1,     /* the thread that trains; always track 0 */
    FL_FLIGHT_REDUCER = 2,  /* a group's communication thread */
    FL_FLIGHT_PREPARER = 3, /* the thread that opens the next generation */
    FL_FLIGHT_DEVICE = 4,   /* no thread: what the worker's device has computed, by its events */
    FL_FLIGHT_AWAITED = 5,  /* no thread: what its device waits for, of other workers */
    FL_FLIGHT_ROLES,
} fl_flight_role;

enum {
    FL_FLIGHT_TRACKS = 7,  /* of a worker */
    FL_FLIGHT_DEPTH = 8,   /* operations within each other */
    FL_FLIGHT_RING = 8192, /* operations that a track remembers */
};

/* One operation. Times are of the host's monotonic clock, nanoseconds.
 * item     a layer, a bucket, or the number of a round; -1: none. Of the device's forward or
 *          backward: the lowest layer; it goes up to the stage's last one
 * peer     the other worker's rank; -1: none, or several
 * left_ns  0: still inside */
typedef struct fl_flight_entry {
    fl_flight_kind kind;
    int depth; /* operations around it */
    uint32_t generation;
    int64_t step;
    int32_t micro_batch; /* -1: none */
    int32_t item, peer;
    int64_t bytes;
    int64_t entered_ns, left_ns;
} fl_flight_entry;

const char *fl_flight_text(fl_flight_kind kind);
fl_flight_category fl_flight_category_of(fl_flight_kind kind);
const char *fl_flight_category_text(fl_flight_category category);

/* ---- what a worker does ---- */

/* Threads: each for itself, on its own track; nothing happens on a thread that has none. */
void fl_flight_enter(fl_flight_kind kind, int peer, int item, int64_t bytes);
void fl_flight_leave(void);

/* This thread is in a wait that it looks up from at times, and has just done so: n_changes grows,
 * and nothing else. */
void fl_flight_beat(void);

/* Leave every operation that this thread is in: after a failure that the thread survives. */
void fl_flight_unwind(void);

/* The step and micro-batch of this thread's operations from now on; micro_batch -1: none. */
void fl_flight_micro_batch(int micro_batch);
void fl_flight_generation(uint32_t generation);

/* The step that operations of every thread of this process bear from now on. */
void fl_flight_step(int64_t step);

/* Fill in the generation, step and micro-batch that this thread's operations bear now. */
void fl_flight_stamp(fl_flight_entry *entry);

/* What this thread's device has computed, as its events tell later: onto a track of its own, which
 * the thread takes with the first one. Nothing happens on a thread that has no track. */
void fl_flight_computed(const fl_flight_entry *entry);

/* This thread's innermost operation; kind FL_FLIGHT_NONE: it is in none, or has no track. */
void fl_flight_innermost(fl_flight_entry *out);

/* Show on this thread's track what the worker's device waits for; NULL: for nothing. It is not
 * remembered once that has changed. */
void fl_flight_awaits(const fl_flight_entry *entry);

/* A thread beside the main one: take a free track, or none, and give it back. */
void fl_flight_thread(fl_flight_role role, uint32_t generation);
void fl_flight_thread_end(void);

/* ---- what the controller does ---- */

typedef struct fl_flight fl_flight;

/* Memory for n_workers, shared with every process forked from here on. */
fl_status fl_flight_create(int n_workers, fl_flight **out) FL_MUST_CHECK;
void fl_flight_destroy(fl_flight **flight);

/* Close what the last process of this rank has left open when it ended; what it has finished stays.
 * No process may record as `rank` meanwhile. */
void fl_flight_clear(fl_flight *flight, int rank);

/* In a forked worker: record as `rank` from now on; this thread is its main thread. The other
 * workers' memory is out of reach afterwards. */
void fl_flight_join(fl_flight *flight, int rank);

/* The content of a track at this moment.
 * open  [depth], the outermost first
 * last  the operation that was left last; kind FL_FLIGHT_NONE: none yet */
typedef struct fl_flight_view {
    fl_flight_role role;
    int depth;
    fl_flight_entry open[FL_FLIGHT_DEPTH];
    fl_flight_entry last;
    uint64_t n_changes; /* how often an operation has been entered or left on this track, or its
                           thread has looked up from a wait (fl_flight_beat), twofold */
    bool whole; /* false: at every try its writer was in the middle of a change, or died there */
} fl_flight_view;

void fl_flight_look(const fl_flight *flight, int rank, int track, fl_flight_view *out);

/* Track 0 as it is to be judged. A thread that only computes, and whose device waits for another
 * worker meanwhile, waits for that worker, too: that operation is then the innermost one. */
void fl_flight_look_training(const fl_flight *flight, int rank, fl_flight_view *out);

/* Show a track of a worker on another host, of which this memory is a copy: its open operations,
 * and how often it has changed. Nothing else writes the track. */
void fl_flight_show(fl_flight *flight, int rank, int track, const fl_flight_view *view);

/* Add operations [n] that such a worker has left on a track, the oldest first; and show its step.
 */
void fl_flight_append(fl_flight *flight, int rank, int track, const fl_flight_entry *entry, int n);
void fl_flight_show_step(fl_flight *flight, int rank, int64_t step);

/* The step that a worker is at. */
int64_t fl_flight_step_of(const fl_flight *flight, int rank);

/* How many operations have ever been left on a track. */
uint64_t fl_flight_written(const fl_flight *flight, int rank, int track);

/* Operations that have been left on a track since *cursor (0: since the beginning), oldest first:
 * out [capacity]; *cursor goes on. *n_lost counts those that were overwritten before they could be
 * read. Returns how many came. */
int fl_flight_read(const fl_flight *flight, int rank, int track, uint64_t *cursor,
                   fl_flight_entry *out, int capacity, uint64_t *n_lost);

/* The newest operation of a kind that was left and is still remembered; false: none. */
bool fl_flight_newest(const fl_flight *flight, int rank, int track, fl_flight_kind kind,
                      fl_flight_entry *out);

/* Where a test may stop a worker: a test program that defines this function is called whenever an
 * operation has been entered; in any other program it is absent and nothing happens. */
void fl__flight_point(fl_flight_kind kind, int rank, int64_t step) __attribute__((weak));

#endif
