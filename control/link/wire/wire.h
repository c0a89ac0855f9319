/* The frames between the controller and its workers.
 *
 *     magic u32 | version u16 | type u16 | rank u32 | generation u32 | at_us i64 | size u32 | body
 *
 * Little-endian, versioned, every length checked: a frame either decodes whole or is refused.
 * One part of a message carries one frame or several, one after another. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_H
#define FL_CONTROL_LINK_WIRE_WIRE_H

#include "control/link/wire/messages.h"

#include <stddef.h>

/* Messages between the controller and workers start with a part that holds this text; those to and
 * from the rendezvous store start with "store". */
#define FL_WIRE_TOPIC "link"

/* The identity of a worker's process at the controller's ROUTER socket: rank and incarnation.
 * Frames for a process that has ended reach none of its successors, and those that it has left
 * behind do not count as theirs. */
#define FL_WIRE_IDENTITY "worker-%d.%u"

enum {
    FL_WIRE_HEADER_BYTES = 28,
    FL_WIRE_BODY_MAX = 64 * 1024 * 1024,
    FL_WIRE_TEXT_MAX = 2048,    /* bytes of a failure's message, without the zero */
    FL_WIRE_REFUSAL_MAX = 1023, /* bytes of a refusal's text, without the zero */
    FL_WIRE_CACHE_TEXT_MAX = FL_CACHE_WHY_BYTES - 1,
    FL_WIRE_COMMAND_MAX = 16384, /* bytes of the largest frame from the controller */
    FL_WIRE_OPERATION_MAX = 31,  /* bytes of an operation's name, without the zero */
    FL_WIRE_UNANSWERED_BYTES = 4 + 2 + 1 + 4 + 8,
    FL_WIRE_COUNTS_BYTES = 8 + 8 + 4 + 4 + 1,
    FL_WIRE_HEARTBEAT_MAX =
        5 * 8 + 4 + FL_WIRE_OPERATION_MAX + FL_WIRE_UNANSWERED_BYTES, /* bytes of its body */
};

typedef enum fl_wire_type {
    /* worker to controller */
    FL_WIRE_HELLO = 1,     /* pid */
    FL_WIRE_HEARTBEAT = 2, /* finished steps, memory, operation, a connection without an answer */
    FL_WIRE_READY = 3,     /* memory peak */
    FL_WIRE_STEP = 4,
    FL_WIRE_TIME = 5,
    FL_WIRE_EVAL = 6,
    FL_WIRE_LEDGER = 7,
    FL_WIRE_FAILED = 8,
    FL_WIRE_DONE = 9,
    FL_WIRE_PREPARED = 10,
    FL_WIRE_TRANSITION = 11,
    FL_WIRE_NORMS = 12,
    FL_WIRE_SETTING_DONE = 13,
    FL_WIRE_BROKEN = 14, /* it has left its generation, and where it stands */
    FL_WIRE_CACHE = 20,
    FL_WIRE_NONFINITE = 21,
    FL_WIRE_HASHES_FAILED = 22,
    FL_WIRE_CHECKPOINT_FILE = 23,
    FL_WIRE_CHECKPOINT_PART = 24,
    FL_WIRE_CACHE_TIERS = 25,
    FL_WIRE_SNAPSHOT = 26, /* its part of a snapshot is in memory */
    FL_WIRE_SAVED = 27,    /* the layers that other hosts have written into the model's file */
    FL_WIRE_COMM = 28,
    FL_WIRE_GRAPHS = 29,
    FL_WIRE_PASS = 30,
    FL_WIRE_HASHES = 31,
    /* controller to worker */
    FL_WIRE_ALIVE = 32,    /* steps whose reports have arrived */
    FL_WIRE_STOPPING = 33, /* the user is ending the run */
    FL_WIRE_COMMAND = 34,
    FL_WIRE_ABORT = 35, /* leave every wait and exit */
    FL_WIRE_WAKE = 36,  /* standby: the leader is about to broadcast */
    FL_WIRE_BREAK = 37, /* leave every wait of the generations so far, and report */
    FL_WIRE_REGROUP = 38,
    FL_WIRE_TAKEN = 39, /* its last report, done or failed, has arrived: it may close */
    /* both ways, in front of each message of a link with keys: control/link/resend.h */
    FL_WIRE_COUNTS = 64,
} fl_wire_type;

/* Samples that one replica used in one step.
 * ids   [n] to encode, borrowed
 * wire  [n * 8] bytes in the decoded message, borrowed; fl_wire_ids reads them */
typedef struct fl_wire_ledger {
    int64_t epoch, step;
    int32_t replica;
    uint32_t n;
    const int64_t *ids;
    const unsigned char *wire;
} fl_wire_ledger;

/* Squared gradient norms of the blocks 1 .. n in one step; 0 for a frozen block. n is 0 for a
 * skipped step, which has no norms. */
typedef struct fl_wire_norms {
    int64_t step;
    int n;
    double squared[FL_MAX_LAYERS];
} fl_wire_norms;

/* Numbers of messages that are not lost with a connection. */
typedef struct fl_wire_counts {
    int64_t n_sent;  /* messages with a number, up to this one */
    int64_t n_taken; /* of the other end, in their order */
    uint32_t round;  /* one more than how often this end went back to send again */
    uint32_t lacks;  /* the other end's round in which a message is missing; 0: none is */
    bool numbered;   /* this message has the number n_sent: its next part is taken in turn, once */
} fl_wire_counts;

typedef struct fl_wire_heartbeat {
    int64_t steps; /* finished steps */
    fl_memory_report memory;
    char operation[FL_WIRE_OPERATION_MAX + 1];
    fl_net_unanswered unanswered; /* zeros, or all but `error` are above 0 */
} fl_wire_heartbeat;

/* One frame. `type` determines which member of the union is valid.
 * at_us  the sender's monotonic clock when the frame was made */
typedef struct fl_wire_message {
    fl_wire_type type;
    int32_t rank;
    uint32_t generation;
    int64_t at_us;
    union {
        int64_t pid;
        fl_wire_heartbeat heartbeat;
        int64_t memory_peak_bytes;
        fl_step_report step;
        fl_time_report time;
        fl_eval_report eval;
        fl_pass_report pass;
        fl_wire_ledger ledger;
        struct {
            fl_status status;
            char text[FL_WIRE_TEXT_MAX + 1];
        } failed;
        fl_prepared_report prepared;
        fl_transition_parts transition;
        fl_wire_norms norms;
        fl_setting_done_report setting_done;
        fl_cache_report cache;
        fl_graphs_report graphs;
        fl_comm_report comm;
        fl_cache_tiers_report cache_tiers;
        fl_nonfinite_report nonfinite;
        fl_hashes_report hashes; /* HASHES, SAVED */
        fl_hashes_failed_report hashes_failed;
        fl_checkpoint_file_report checkpoint_file;
        fl_checkpoint_part_report checkpoint_part;
        fl_snapshot_report snapshot;
        fl_broken_report broken;
        fl_command command;
        fl_break_order break_order;
        fl_regroup_order regroup;
        int64_t n_counted; /* steps whose reports have arrived */
        fl_wire_counts counts;
        fl_status why; /* of an abort */
    };
} fl_wire_message;

struct fl_reader;

/* Whether this is a status code of FL_STATUS_MAP. */
bool fl_wire_get_status(struct fl_reader *r, fl_status *status);

/* The number of bytes that fl_wire_put will write. Texts that are too long are cut. Threads: pure;
 * any. */
size_t fl_wire_size(const fl_wire_message *frame);

/* Write the frame to out [fl_wire_size(frame)]. */
void fl_wire_put(const fl_wire_message *frame, unsigned char *out);

/* Read the frame at *at, with *left bytes to the message's end, and move both past it.
 * Returns FL_EFORMAT, with what is wrong, for anything that fl_wire_put did not write; *at and
 * *left are then unchanged, and the caller drops the rest of the message. Threads: pure; any. */
fl_status fl_wire_next(const unsigned char **at, size_t *left, fl_wire_message *out) FL_MUST_CHECK;

/* Read a part of a message that is one frame of counts: FL_EFORMAT for anything else. Threads:
 * pure; any. */
fl_status fl_wire_read_counts(const unsigned char *bytes, size_t n,
                              fl_wire_counts *out) FL_MUST_CHECK;

/* The ids [n] of a decoded ledger frame. */
void fl_wire_ids(const fl_wire_message *frame, int64_t *ids);

/* "step", "heartbeat", ...: for messages. */
const char *fl_wire_type_text(fl_wire_type type);

#endif
