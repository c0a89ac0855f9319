/* Finds workers whose training thread stands still while their links answer, and tells them from
 * workers that are slow.
 *
 * The flight recorder shows the operation that a training thread is in, and counts its changes.
 * While the count does not move, the controller looks at the process, and adds the time up:
 *
 *     the operation waits for other workers         waits: not this worker's fault
 *     the process computes, waits for a processor   busy, by the processor time that it gets: on an
 *       or for pages from the disk                    overloaded machine this clock stands
 *     none of its threads wants a processor         asleep, by the clock on the wall
 *
 * In an operation that only computes, a worker that is asleep for longer than `silence` stands
 * still; but eight times as long as the longest such operation before may always pass, for devices
 * that compute while their host sleeps. In every other operation, and for one that is busy,
 * fault.deadline is the limit, or twice that where the worker has the deadline itself.
 *
 * When a worker is lost, the others are told to leave all their waits, also those for the
 * controller and in standby, and to report where they stand. From then on what was a wait is an
 * operation of the worker's own, and one that is asleep in any operation for longer than `silence`
 * stands still.
 *
 * The same holds for one that has been woken from standby, and has not received a command that the
 * leader has sent: nothing keeps it there. The members go on without it where its connections to
 * them are broken, too, and so never wait for it; yet it answers no order, and each change of the
 * plan would wait for it in vain. And it holds for the waits for the controller and in standby, in
 * which a thread shows many times a second that it runs (fl_flight_beat).
 *
 * Before a worker is ready, its flight recorder shows little, and it may wait for others that are
 * not ready either. Once no other one is on its way, or for one that joins and waits for nobody,
 * all of its start counts as one operation (fl_watch_limits.opening_us).
 *
 * Waits between workers have no deadline of their own (fl_abort_set.limits_waits): a slow worker
 * ends none. This file gives the limit: when all workers wait for each other for longer than
 * fault.deadline, fl_watch_judge names one. Time during which the controller did not run (it was
 * stopped, or the machine slept) does not count. */
#ifndef FL_CONTROL_CONTROLLER_JUDGE_STANDSTILL_H
#define FL_CONTROL_CONTROLLER_JUDGE_STANDSTILL_H

#include "control/agent/measure/process_look.h"
#include "control/state/worker.h"
#include "device/flight/flight.h"

typedef struct fl_standstill_limits {
    int64_t silence_us, deadline_us;
} fl_standstill_limits;

/* One worker at one moment. */
typedef struct fl_standstill_look {
    uint64_t n_changes;  /* of its training thread's operations, and finished steps */
    fl_flight_kind kind; /* the innermost; FL_FLIGHT_NONE: between operations */
    bool is_alone;       /* nothing keeps it any more: waits are broken, it has been passed over, or
                            its wait is one that it looks up from */
    bool is_known;       /* `process` could be read */
    fl_process_look process;
} fl_standstill_look;

/* One worker since its training thread last entered or left an operation. */
typedef struct fl_standstill {
    fl_standstill_look last;
    int64_t looked_us;
    int64_t waits_us, busy_us, asleep_us;
    int64_t longest_us; /* of the finished operations of this kind; 0: none has finished */
} fl_standstill;

/* Since when the training of the workers [n_workers] has stood still: the last of them began to
 * wait then, or left its generation. now_us if one still works; trained_us, when the run is last
 * known to have trained, if no worker shows it. Pure. */
int64_t fl_standstill_since(const fl_worker *workers, int n_workers, int64_t trained_us,
                            int64_t now_us);

/* Whether the kind of operation waits for other workers or for the controller. */
bool fl_standstill_waits(fl_flight_kind kind);

/* Add what was seen at now_us. True if the training thread has moved: longest_us is then to be
 * set anew. Pure. */
bool fl_standstill_add(fl_standstill *s, const fl_standstill_look *look, int64_t now_us);

/* Pure. */
bool fl_standstill_is_hung(const fl_standstill *s, const fl_standstill_limits *limits);

/* One worker, from look to look. */
typedef struct fl_standstill_worker {
    fl_standstill training;
    fl_thread_look link;
    bool takes_part;         /* others may wait for it: it trains, and is not done */
    int n_unanswered;        /* looks in a row, in this silence */
    int64_t unanswered_us;   /* of this silence, excused for that */
    uint64_t passed_over_at; /* fl_flight_view.n_changes as it waited for a command that the others
                                have got; 0: it never did */
} fl_standstill_worker;

/* Look at a worker's process: *out is its state now or a moment ago. Returns false if that is not
 * known. */
typedef bool fl_standstill_looker(void *context, const fl_worker *worker, fl_process_look *out);

/* All workers, at most ten times a second: sets waits_us, asleep_us, still_us and hung of workers
 * [n_workers], and moves heard_us on while a link wants a processor or pages from the disk and gets
 * none; also, by at most `silence`, while `look` gets no answer. waits_us of all begins anew as
 * soon as a worker takes part no more. */
typedef struct fl_standstill_watch {
    fl_standstill_worker *of; /* [n_workers] */
    bool trains;
    bool waits_are_broken; /* the controller sets it */
    int n_opening;         /* members that are on their way to be ready */
    bool holds; /* the controller sets it: no time counts, because all workers are stopped */
    fl_standstill_limits limits;
    int64_t looked_us;
    fl_standstill_looker *look; /* called at most once for each worker and look */
    void *context;              /* of `look` */
} fl_standstill_watch;

/* trains: else only the links are watched. `look` must be set before the first look. */
fl_status fl_standstill_watch_init(fl_standstill_watch *watch, int n_workers, bool trains,
                                   const fl_standstill_limits *limits) FL_MUST_CHECK;
void fl_standstill_watch_fini(fl_standstill_watch *watch);
void fl_standstill_watch_look(fl_standstill_watch *watch, const fl_flight *flight,
                              fl_worker *workers, int n_workers, int64_t now_us);

#endif
