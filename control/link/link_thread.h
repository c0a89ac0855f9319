/* State that the two threads of a worker's link share. Only control/link/link.c,
 * control/link/link_reports.c and control/link/link_thread.c include it. */
#ifndef FL_CONTROL_LINK_LINK_THREAD_H
#define FL_CONTROL_LINK_LINK_THREAD_H

#include "autodp/net/store/store.h"
#include "control/link/link.h"
#include "control/link/queue.h"
#include "control/link/resend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum {
    FL_LINK_SLICE_MS = 20,   /* a killed worker loses at most the reports of one slice */
    FL_LINK_FLUSH_MS = 1000, /* time for queued reports when the link closes unconnected */
    FL_LINK_COMMANDS = 8,    /* capacity of the list of commands that were not taken yet */
    FL_LINK_LIMIT_BYTES =
        64 * 1024 * 1024, /* of queued reports; with keys, of those that are kept, too */
};

struct fl_link {
    int rank;
    uint32_t incarnation;
    int64_t heartbeat_us, slice_ms;
    int64_t patience_us; /* with a silent controller: fault.detect */
    void (*on_abort)(void *context, uint32_t generation, fl_status why);
    void (*on_break)(void *context, uint32_t until);
    void (*look)(void *context, fl_net_unanswered *worst);
    void *context;
    pid_t agent; /* the parent of this process */
    void *zmq, *socket;
    void *events; /* tells whether `socket` is connected */
    int wake_fd, signal_fd;
    int64_t n_dropped; /* orders; the link thread's own */
    pthread_t thread;
    fl_queue queue;
    fl_store_client *store;
    fl_kv kv;

    /* written by the training thread */
    _Atomic uint32_t generation;
    _Atomic int64_t steps, memory_used_bytes, memory_peak_bytes;
    _Atomic int64_t memory_parked_bytes, memory_workspace_bytes;
    _Atomic(const char *) operation;
    atomic_bool closing;
    atomic_bool owes_last; /* a report that the controller has not acknowledged yet; the link's
                              thread clears it */
    /* written for the training thread, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    fl_command command[FL_LINK_COMMANDS]; /* [n_commands], the oldest first */
    atomic_int n_commands;    /* read without the lock first, so that a step takes no lock */
    int n_wakes;              /* announcements not yet taken by fl_link_wait_wake */
    uint32_t break_serial;    /* of the last order to break */
    fl_regroup_order regroup; /* the last order to regroup; serial 0: none */

    /* the link thread alone uses these */
    const unsigned char *unsent; /* taken from the queue; neither accepted by the socket nor kept
                                    to be sent */
    size_t n_unsent;
    bool has_keys;    /* messages have counts in front */
    fl_resend resend; /* if has_keys */
    int64_t heartbeat_sent_us;
    int64_t orphaned_us, terminated_us; /* when the agent died, when a SIGTERM came; 0: not yet */
    atomic_bool connected;              /* written by the link's thread */
    _Atomic int64_t heard_us;  /* the controller's last message; written by the link's thread */
    _Atomic int64_t n_counted; /* as fl_link_counted gives it */
    bool aborted, run_is_stopping, told_of_silence;
};

/* Make a frame of this worker, with the present time. */
fl_wire_message fl_link_frame(const fl_link *link, fl_wire_type type);

/* Have the link thread send what is queued at once, and not at the end of its slice. */
void fl_link_wake(fl_link *link);

/* The body of the link thread; returns once link->closing is set. argument: fl_link. */
void *fl_link_main(void *argument);

#endif
