/* The training group over NCCL: state that its files share.
 *
 *   nccl_group.c    open, close, abort; sums of scalars go through the host's group
 *   survey.c        which pairs of members can use NCCL; the others use the host's group
 *   lane.c          a communicator with a stream of its own: opening, closing
 *   parent.c        the communicator of all members, from which lanes are split off
 *   split.c         which lanes are split off together, and the splits
 *   caller.c        the caller thread, which makes every call of NCCL except the aborts
 *   watch.c         the watch thread: deadlines, a broken net; it aborts communicators
 *   nccl_bucket.c, nccl_channel.c, nccl_mover.c   what a lane carries
 *   captured.c      graphs with operations of NCCL, which end before their communicators
 *   registration.c  buffers that NCCL's other ranks reach directly
 *
 * Each channel, each set of owners of buckets, and each member that state goes to has a lane: NCCL
 * runs the operations of one communicator in the order of their calls, so a send that waits for its
 * receiver would hold up whatever follows it on the same communicator.
 *
 * The thread that trains makes no call of NCCL. It queues jobs, which the caller thread begins in
 * the order of their lane; a job whose call is in progress does not hold up other lanes. What the
 * device does is ordered by events, and nobody waits for it here: the watch thread sees when it
 * takes too long.
 *
 *     training thread             caller thread                   watch thread
 *     job: IDLE -> QUEUED   --->  the NCCL call, and its end
 *     ... other work              event behind it: ISSUED   --->  event reached: DONE
 *     stream waits for the event
 *
 * The net of the host's group tells each member that the group is broken: it is broken first, then
 * the communicators are aborted. A device that leaves an aborted operation with wrong sums
 * therefore finds the group broken at the step's commit point. */
#ifndef FL_AUTODP_NCCL_NCCL_GROUP_H
#define FL_AUTODP_NCCL_NCCL_GROUP_H

#include "autodp/group/backend.h"
#include "autodp/nccl/library.h"
#include "autodp/nccl/survey.h"
#include "device/flight/flight.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct nccl_group nccl_group;
typedef struct nccl_lane nccl_lane;
typedef struct nccl_job nccl_job;

/* ---- jobs ---- */

typedef enum nccl_job_state {
    NCCL_IDLE,
    NCCL_QUEUED, /* with the caller thread */
    NCCL_ISSUED, /* its work is in the lane's stream, if it has any */
    NCCL_DONE,   /* and the device has done it */
    NCCL_FAILED  /* the group has the reason */
} nccl_job_state;

struct nccl_job {
    nccl_lane *lane;
    const char *call;     /* names it in messages: "ncclSend" */
    fl_flight_kind opens; /* what a thread that waits for it is in; FL_FLIGHT_NONE: it is in that */
    fl_nccl_result (*begin)(nccl_job *job); /* on the caller thread */
    void (*finish)(nccl_job *job);          /* the same, once the call has ended; NULL */
    fl_event *after;                        /* the lane's stream waits for it first; NULL */
    fl_event *done; /* recorded behind the work; NULL: the call puts none into the stream */
    bool captured;  /* the call is noted in a graph, as is `done`: the device does nothing now */
    void *owner;    /* of whoever made it: a bucket */
    const void *from;
    void *to;
    size_t count; /* bytes, or values of a sum */
    int64_t deadline_us;
    /* Guarded by the group's mutex from here on. */
    nccl_job_state state;
    bool begun;     /* its call is in progress */
    nccl_job *next; /* in the lane's list */
    /* In what operation the training thread had its stream wait for this job; kind FL_FLIGHT_NONE:
     * no stream waits for it. */
    fl_flight_entry awaited;
};

/* ---- lanes ---- */

typedef enum nccl_lane_kind {
    NCCL_MESSAGES, /* from rank 0 to rank 1 */
    NCCL_BUCKETS,  /* it sums */
    NCCL_STATE,    /* of a transition, from rank 0 to rank 1 */
    NCCL_PARENT    /* of all members: it carries nothing, and has no stream */
} nccl_lane_kind;

typedef enum nccl_lane_state {
    NCCL_LANE_NEW,     /* its id is not known here */
    NCCL_LANE_OPENING, /* until its first operation has been done */
    NCCL_LANE_OPEN,
    NCCL_LANE_ABORTING, /* the caller thread leaves it alone */
    NCCL_LANE_CLOSED    /* no communicator */
} nccl_lane_state;

struct nccl_lane {
    nccl_group *group;
    nccl_lane *next;
    uint32_t id;
    nccl_lane_kind kind;
    bool begun;              /* it opens, or is open: by an id of its own, or by a split */
    int n_members, my_place; /* the communicator's ranks */
    int *members;            /* [n_members] of the group */
    fl_nccl_id unique_id;
    fl_net_buffer **told; /* [n_members]: the id, on its way to them or, at [0], from the first */
    fl_nccl_handle comm;
    fl_stream *stream;
    void *native;  /* the same for NCCL */
    void *scratch; /* device memory for the first operation */
    nccl_job identify, open, adopt, connect, finalize, destroy;
    nccl_job revoke, shrink;   /* of a parent of more members */
    nccl_lane *child;          /* that it is shrunk to */
    int *excluded, n_excluded; /* ranks */
    /* Guarded by the group's mutex. */
    nccl_lane_state state;
    bool abort_wanted;
    nccl_job *queued, *last_queued; /* the first may be under way */
    nccl_job *issued, *last_issued; /* the device does them in this order */
    bool unmarked; /* the device may still do one that has failed: no event tells its end */
};

/* ---- registered buffers ---- */

typedef struct nccl_registration nccl_registration;
struct nccl_registration {
    nccl_lane *lane; /* NULL: it is in no list */
    void *data;      /* device memory, which stays where it is until it is unregistered */
    size_t size_bytes;
    void *handle; /* of NCCL's, which may be NULL */
    bool held;    /* it is registered */
    nccl_job take, give;
    nccl_registration *next; /* in the group's list */
};

/* ---- the group ---- */

/* One split of the parent, which all members make together. */
typedef struct nccl_round {
    nccl_job job;
    nccl_lane *lane;     /* that this member gets; NULL: none */
    fl_nccl_handle none; /* what NCCL writes for a member that gets none */
} nccl_round;

struct nccl_group {
    fl_group base;
    fl_group *host; /* sums, pairs without NCCL, and the connections to all members */
    fl_net *net;    /* of `host` */
    int64_t open_timeout_ms, wait_timeout_ms;
    fl_nccl_survey survey;
    fl_nccl nccl;           /* if the survey says that this member has it */
    fl_comm_keeper *keeper; /* NULL: nothing is kept, or this is done */
    int *workers;           /* [size] the members' ranks in the flight recorder; NULL: unknown */
    bool after_loss;
    nccl_lane *parent; /* while lanes are split off; NULL: lanes open with ids of their own */
    nccl_round *rounds;
    nccl_registration *registrations;
    fl_captured *captured; /* the first of a list. Guarded by the mutex. */

    pthread_mutex_t mutex;
    pthread_cond_t work;    /* for the caller thread */
    pthread_cond_t changed; /* a job's or a lane's state, for those that wait for one */
    pthread_cond_t alarm;   /* for the watch thread */
    nccl_lane *lanes;
    pthread_t caller, watcher;
    bool has_caller, has_watcher, stop, caller_ended, watcher_ended;
    const char *call; /* that the caller thread was in last, and for which lane */
    nccl_lane *call_lane;
    int64_t call_since_us;   /* the caller thread is in a call since then; 0: it is in none */
    int64_t call_until_us;   /* when that must have ended */
    int64_t launch_until_us; /* when a graph's launch must have returned; 0: none is under way */
    int64_t abort_since_us;  /* the watch thread is in an abort since then; 0: it is in none */
    bool stuck;              /* a thread does not come back from NCCL: what it uses stays */
    bool closing;            /* the generation has ended well: no failure concerns the others */
    fl_status failed;        /* the first failure */
    char message[512];

    atomic_int_fast64_t sent_bytes, received_bytes, reduce_wait_us;
};

/* nccl_group.c. Note a failure, and break the net, so that all members leave; a group that closes
 * in order keeps its failure to itself. The first failure stays.
 * `why` may be a code that ends this worker; the others learn that it is lost. With the mutex. */
void fl__nccl_break(nccl_group *g, fl_status why, const char *format, ...) FL_PRINTF(3, 4);

/* The status that a caller learns: the group's first failure is the reason of all others. */
fl_status fl__nccl_result(nccl_group *g, fl_status status) FL_MUST_CHECK;

/* The same for a call of the device: if that failed, the group is broken. */
fl_status fl__nccl_device_result(nccl_group *g, fl_status status) FL_MUST_CHECK;

/* FL_OK, or why the group is broken. */
fl_status fl__nccl_state(nccl_group *g) FL_MUST_CHECK;

/* When a wait that may last until then must end: as fl_net_wait_limit. */
int64_t fl__nccl_limit(const nccl_group *g, int64_t deadline_us);

/* The same for a wait of the training thread in a step, which also wait_timeout_ms limits: a lane
 * that still opens then may take longer than that. */
int64_t fl__nccl_wait_limit(const nccl_group *g, int64_t deadline_us);

/* ---- caller.c ---- */

fl_status fl__nccl_threads_start(nccl_group *g) FL_MUST_CHECK;

/* End both threads. false: one of them does not come back, and uses the group. */
bool fl__nccl_threads_stop(nccl_group *g);

/* The thread begins to wait for the lane to open, in such an operation. */
void fl__nccl_enter(const nccl_lane *lane, fl_flight_kind kind);

/* Give an idle job to the caller thread. timeout_ms: for its call and its work together. */
fl_status fl__nccl_job_queue(nccl_job *job, int64_t timeout_ms) FL_MUST_CHECK;

/* Its work has been queued otherwise, with job->done recorded behind it. */
fl_status fl__nccl_job_note_issued(nccl_job *job, int64_t timeout_ms) FL_MUST_CHECK;

/* Wait until its call has ended: what is recorded behind it can be waited for by streams. */
fl_status fl__nccl_job_issued(nccl_job *job, int64_t deadline_us) FL_MUST_CHECK;

/* The caller's stream is about to wait for the job, in the operation that this thread is in. */
void fl__nccl_job_await(nccl_job *job);

/* Wait until the device has done it. A job that was never queued is done. */
fl_status fl__nccl_job_done(nccl_job *job, int64_t deadline_us) FL_MUST_CHECK;

/* Wait until the job is not with the caller thread any more. false: it still is at the deadline.
 * With the mutex. */
bool fl__nccl_job_left(nccl_job *job, int64_t deadline_us);

/* Look how far the device has come. With the mutex. */
void fl__nccl_lane_look(nccl_lane *lane);

/* The group breaks because this lane takes too long; the message names the operation that holds it
 * up. Nothing happens if none is under way. With the mutex. */
void fl__nccl_lane_late(nccl_lane *lane);

/* ---- watch.c ---- */

void *fl__nccl_watch(void *group);

/* Have the lane's communicator aborted, and wait until it is, and until the caller thread has left
 * its jobs. false: NCCL does not come back; the group is stuck. */
bool fl__nccl_lane_abort(nccl_lane *lane);

/* An abort that does not return loses the device: the group's failure becomes FL_EIO. With the
 * mutex. */
void fl__nccl_look_at_abort(nccl_group *g);

/* ---- lane.c ---- */

/* A lane of these members, this one among them. Its first member tells the others its id; nothing
 * is waited for. id: as of the channel or bucket that it is for. */
fl_status fl__nccl_lane_create(nccl_group *g, uint32_t id, nccl_lane_kind kind, const int *members,
                               int n_members, nccl_lane **out) FL_MUST_CHECK;

/* Begin to open the lane, if that has not begun: jobs may be queued afterwards. Waits for the id.
 */
fl_status fl__nccl_lane_begin(nccl_lane *lane, int64_t deadline_us) FL_MUST_CHECK;

/* Wait until its first operation is done. */
fl_status fl__nccl_lane_connected(nccl_lane *lane, int64_t deadline_us) FL_MUST_CHECK;

/* Nothing of the lane is under way afterwards: what is still under way is aborted. false: NCCL does
 * not come back, and what the lane uses must stay. */
bool fl__nccl_lane_quiet(nccl_lane *lane);

/* End an open lane that is quiet, without waiting: the caller thread does it once its peers do the
 * same. */
void fl__nccl_lane_leave(nccl_lane *lane);

/* End all communicators together, by force if the group is broken, or if that takes longer than a
 * second. false as above. */
bool fl__nccl_lanes_end(nccl_group *g);
void fl__nccl_lanes_free(nccl_group *g);

/* "bucket 3 of stage 0", for messages. Returns text. */
enum { NCCL_LANE_TEXT = 48 };
const char *fl__nccl_lane_text(const nccl_lane *lane, char text[NCCL_LANE_TEXT]);

/* A lane of all members, which the group has from here on. */
fl_status fl__nccl_lane_create_parent(nccl_group *g, nccl_lane **out) FL_MUST_CHECK;

/* Begin to open a lane by an id, which its first member tells the others. */
fl_status fl__nccl_lane_open_by_id(nccl_lane *lane) FL_MUST_CHECK;

/* A lane whose communicator has come from a split or a shrink: wait for that, and connect it. */
fl_status fl__nccl_lane_adopt(nccl_lane *lane) FL_MUST_CHECK;

/* ---- parent.c ---- */

/* What this member has kept, for the survey. */
fl_nccl_kept_facts fl__nccl_kept(const nccl_group *g);

/* Open the parent, in the way that the survey decides, if all pairs can use NCCL and the group
 * keeps anything. Waits for the other members. */
fl_status fl__nccl_parent_open(nccl_group *g, int64_t deadline_us) FL_MUST_CHECK;

/* Lanes have been split off: a later group may take the parent. */
fl_status fl__nccl_parent_keep(nccl_group *g) FL_MUST_CHECK;

/* ---- split.c ---- */

/* number [n] of all members, each added up. All members call it. */
fl_status fl__nccl_sum(nccl_group *g, double *number, int64_t n, int64_t deadline_us) FL_MUST_CHECK;

/* Open all lanes that have not begun to open, by splits of the parent. All members call it.
 * *begun_us: when all had come, and the splits began. */
fl_status fl__nccl_split_lanes(nccl_group *g, int64_t *begun_us, int64_t deadline_us) FL_MUST_CHECK;

/* ---- captured.c ---- */

fl_status fl__nccl_captured_create(fl_group *group, fl_graph *graph, fl_captured **out);
void fl__nccl_captured_destroy(fl_captured *captured);
fl_status fl__nccl_captured_launch(fl_captured *captured, fl_stream *stream);

/* The flags of all communicators are raised: a graph that is at work ends. Destroy all graphs. */
void fl__nccl_captured_drop(nccl_group *g);

/* ---- registration.c ---- */

/* A buffer that operations of the lane use: fl__nccl_register_all looks at it, until it is
 * unregistered. Small ones are left out: NCCL copies those in any case. */
void fl__nccl_register_note(nccl_registration *r, nccl_lane *lane, void *data, size_t size_bytes);

/* Register the buffers of all members, or of none: where all libraries and devices can, and where
 * it takes no longer than it can save. All members call it, with connected lanes. */
fl_status fl__nccl_register_all(nccl_group *g, int64_t deadline_us) FL_MUST_CHECK;

/* Before the buffer is given back; nothing of the lane uses it any more. Where NCCL's call fails,
 * the communicator is aborted. false: NCCL does not come back, and the buffer must stay. */
bool fl__nccl_unregister(nccl_registration *r);

/* ---- the entries of the table ---- */

fl_status fl__nccl_channel_open(const fl_channel *common, fl_channel **out);
void fl__nccl_channel_close(fl_channel *channel);
fl_status fl__nccl_channel_send_from(fl_channel *channel, const void *from, size_t size_bytes,
                                     fl_stream *stream, int64_t deadline_us);
void *fl__nccl_channel_place(fl_channel *channel);
fl_status fl__nccl_channel_flush(fl_channel *channel, int64_t deadline_us);
fl_status fl__nccl_channel_post(fl_channel *channel, size_t size_bytes);
fl_status fl__nccl_channel_receive_to(fl_channel *channel, void *to, size_t size_bytes,
                                      fl_stream *stream, int64_t deadline_us);

fl_status fl__nccl_mover_open(const fl_mover *common, fl_mover **out);
void fl__nccl_mover_close(fl_mover *mover);
fl_status fl__nccl_mover_start(fl_mover *mover, void *data, size_t size_bytes);
fl_status fl__nccl_mover_wait(fl_mover *mover, int64_t deadline_us);

fl_status fl__nccl_bucket_create(fl_group *group, const fl_bucket_options *options,
                                 fl_bucket **out);
void fl__nccl_bucket_destroy(fl_bucket *bucket);
void fl__nccl_bucket_part(const fl_bucket *bucket, int place, int64_t *first, int64_t *n);
fl_status fl__nccl_bucket_start(fl_bucket *bucket, fl_bucket_op op, fl_stream *stream);
fl_status fl__nccl_bucket_wait(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us);

bool fl__nccl_bucket_can_capture(const fl_bucket *bucket);
fl_status fl__nccl_bucket_capture(fl_bucket *bucket, fl_stream *stream, int64_t deadline_us);
fl_status fl__nccl_bucket_capture_join(fl_bucket *bucket, fl_stream *stream);
fl_status fl__nccl_bucket_launched(fl_bucket *bucket, fl_stream *stream);

#endif
