/* What the two threads of a worker's link share. Only control/link/link.c and
 * control/link/link_thread.c see it. */
#ifndef FL_CONTROL_LINK_LINK_THREAD_H
#define FL_CONTROL_LINK_LINK_THREAD_H

#include "autodp/net/store.h"
#include "control/link/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum {
    FL_LINK_SLICE_MS = 20,   /* what a killed worker may have left unsaid */
    FL_LINK_FLUSH_MS = 1000, /* for what is queued when the link closes */
    FL_LINK_COMMANDS = 8,    /* that may wait to be taken */
};

struct fl_link {
    int rank;
    int64_t heartbeat_us, slice_ms;
    void (*on_abort)(void *context, uint32_t generation, fl_status why);
    void *context;
    pid_t controller;
    void *zmq, *socket;
    int wake_fd, signal_fd;
    pthread_t thread;
    fl_queue queue;
    fl_store_client *store;
    fl_kv kv;

    /* from the training thread */
    _Atomic uint32_t generation;
    _Atomic int64_t steps, memory_used_bytes, memory_peak_bytes;
    _Atomic(const char *) operation;
    atomic_bool closing;
    /* to it, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    fl_command command[FL_LINK_COMMANDS]; /* [n_verdicts], the oldest first */
    atomic_int n_commands;                /* looked at first, so that a step takes no lock */
    int n_wakes;                          /* not yet taken by fl_link_wait_wake */

    /* the link thread's own */
    const unsigned char *unsent; /* taken from the queue, not yet accepted by the socket */
    size_t n_unsent;
    int64_t heartbeat_sent_us, heard_us;
    int64_t orphaned_us,
        terminated_us; /* when the controller died, when a SIGTERM came; 0: not yet */
    bool aborted, run_is_stopping, told_of_silence;
};

/* A frame of this worker, made now. */
fl_wire_message fl_link_frame(const fl_link *link, fl_wire_type type);

/* The link thread, until link->closing. argument: fl_link. */
void *fl_link_main(void *argument);

#endif
