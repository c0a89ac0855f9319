/* The control link between the controller and its workers. It is separate from the groups, so that
 * liveness and commands do not depend on a collective that may be stuck.
 *
 * Worker side. A link thread owns the socket: it sends heartbeats and receives commands. Reports
 * are copied into a queue and never make the caller wait. */
#ifndef FL_CONTROL_LINK_LINK_H
#define FL_CONTROL_LINK_LINK_H

#include "autodp/net/net.h"
#include "autodp/net/store/curve.h"
#include "autodp/net/unanswered.h"
#include "control/link/wire/messages.h"

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_link fl_link;

typedef struct fl_link_options {
    const char *endpoint; /* of the controller's ROUTER */
    /* Borrowed while it opens; NULL: the ROUTER asks for none. With keys, no message is lost with a
     * connection (control/link/resend.h). */
    const fl_curve_keys *keys;
    int rank;
    uint32_t incarnation; /* of the process among those of its rank */
    uint32_t generation;  /* that the worker starts in */
    int64_t detect_ms; /* fault.detect: a heartbeat is due in each tenth of it, and each second */
    /* The controller declared the generation dead, or the controller is gone: leave every wait.
     * `why` is a regroup code. Called once, from the link's thread; may be NULL. */
    void (*on_abort)(void *context, uint32_t generation, fl_status why);
    /* Leave every wait of the generations up to `until`. From the link's thread; may be NULL. */
    void (*on_break)(void *context, uint32_t until);
    /* For a heartbeat: which connection to another worker has no answer. From the link's thread;
     * may be NULL. */
    void (*look)(void *context, fl_net_unanswered *worst);
    void *context;
} fl_link_options;

/* Open it early: the controller takes a worker without a link for a silent one. The process that
 * opens the link must be a child of the agent. The kernel or the link thread kills it if the agent
 * is gone and it does not leave by itself. */
fl_status fl_link_open(const fl_link_options *options, fl_link **out) FL_MUST_CHECK;

/* Flush the queued reports (at most 1 s without a connection), wait until the controller has
 * acknowledged the last one (fl_link_done, fl_link_failed) or was silent for fault.detect, then
 * close. *link becomes NULL; NULL is allowed. */
void fl_link_close(fl_link **link);

/* The rendezvous store, through this link's own second socket. Threads: one at a time. */
const fl_kv *fl_link_kv(fl_link *link);

/* Wait until the store has answered, and its connection is open: where a worker begins alone, its
 * first request may come when no process can connect to the control link any more. */
fl_status fl_link_await_store(fl_link *link, int64_t deadline_us) FL_MUST_CHECK;

/* Set the generation that later reports carry. Threads: the training thread. */
void fl_link_generation(fl_link *link, uint32_t generation);

/* The operation of a worker that waits to be woken, which no other worker waits for. */
#define FL_LINK_STANDBY "standby"

/* Set the worker's current operation, for reports of stuck workers: a constant string of at most 31
 * bytes. Costs two stores. Threads: any. */
void fl_link_doing(fl_link *link, const char *operation);

/* Set it for the next heartbeats. Costs four stores. Threads: any. */
void fl_link_memory(fl_link *link, const fl_memory_report *report);

/* Threads: the training thread. None of these waits, with one exception: when the controller has
 * been stopped and the queued reports fill 64 MiB, they wait for the controller. The controller
 * uses the first report of a step or an evaluation that arrives; only the leader should send them.
 * A worker that leaves without fl_link_done counts as lost. */
void fl_link_ready(fl_link *link, int64_t memory_peak_bytes);
void fl_link_step(fl_link *link, const fl_step_report *report);
void fl_link_nonfinite(fl_link *link, const fl_nonfinite_report *report);
void fl_link_time(fl_link *link, const fl_time_report *report);
void fl_link_eval(fl_link *link, const fl_eval_report *report);
void fl_link_pass(fl_link *link, const fl_pass_report *report);
void fl_link_ledger(fl_link *link, int64_t epoch, int64_t step, uint32_t generation, int replica,
                    const int64_t *ids, int64_t n);
void fl_link_cache(fl_link *link, const fl_cache_report *report);
void fl_link_graphs(fl_link *link, const fl_graphs_report *report);
void fl_link_comm(fl_link *link, const fl_comm_report *report);
void fl_link_cache_tiers(fl_link *link, const fl_cache_tiers_report *report);
void fl_link_hashes(fl_link *link, const fl_hashes_report *report);
void fl_link_saved(fl_link *link, const fl_hashes_report *report);
void fl_link_hashes_failed(fl_link *link, const fl_hashes_failed_report *report);
void fl_link_failed(fl_link *link, fl_status status, const char *message);
void fl_link_done(fl_link *link);

/* Steps whose reports the controller has received. Threads: any. */
int64_t fl_link_counted(fl_link *link);

/* After a break. Threads: the training thread. */
void fl_link_broken(fl_link *link, const fl_broken_report *report);

/* The serial number of the last order to break; 0: none has arrived. */
uint32_t fl_link_break_serial(fl_link *link);

/* Wait for the order to regroup that follows the order to break `serial`. obeyed: the last one that
 * this worker has obeyed. False after timeout_ms, and as soon as another order to break has come.
 * Commands that came before an order to regroup are dropped. */
bool fl_link_wait_regroup(fl_link *link, uint32_t serial, uint32_t obeyed, int64_t timeout_ms,
                          fl_regroup_order *out);

/* Transitions. Threads: any for the first, the training thread for the second. */
void fl_link_prepared(fl_link *link, const fl_prepared_report *report);
void fl_link_transition(fl_link *link, const fl_transition_parts *parts);

/* The leader reports that a setting has taken effect. Threads: the training thread. */
void fl_link_setting_done(fl_link *link, const fl_setting_done_report *report);

/* Parts of checkpoints: pipe/state/checkpoint/checkpoint_files.h. Threads: any. */
void fl_link_checkpoint_file(fl_link *link, const fl_checkpoint_file_report *report);
void fl_link_checkpoint_part(fl_link *link, const fl_checkpoint_part_report *report);

/* Its part of a snapshot is copied, or not. Threads: any. */
void fl_link_snapshot(fl_link *link, const fl_snapshot_report *report);

/* squared [n]: the squared gradient norms, input of the freeze policy; 0 for a frozen block. n is 0
 * for a skipped step. */
void fl_link_norms(fl_link *link, int64_t step, uint32_t generation, const double *squared, int n);

/* For standby workers. True when the controller has announced that the leader is about to broadcast
 * (once for each announcement); false after timeout_ms or when the generation was ended. */
bool fl_link_wait_wake(fl_link *link, int64_t timeout_ms);

/* Take the next command for the control point of `step` (finished steps): one to save that is due
 * there or was due before, else the oldest command that is not one to save later; false if
 * there is none. FL_COMMAND_STOP overtakes all others and is the last command. */
bool fl_link_take_command(fl_link *link, int64_t step, fl_command *out);

/* The same, but waits for a command; false after timeout_ms. */
bool fl_link_wait_command(fl_link *link, int64_t step, int64_t timeout_ms, fl_command *out);

/* A wait for the controller that is made of many short ones; zero at its start. */
typedef struct fl_link_patience {
    int64_t looked_us, counted_us;
} fl_link_patience;

/* Whether the controller has had timeout_ms to answer. Called at least every 100 ms. Time does not
 * count while the controller is silent, because it was stopped, nor while this process did not run
 * itself. */
bool fl_link_is_late(fl_link *link, fl_link_patience *patience, int64_t timeout_ms);

/* A test program that defines this function is called at each turn of the link thread, before it
 * sends, and may delay it; in any other program it is absent. */
void fl__link_turn(int rank) __attribute__((weak));

#endif
