/* A worker that joins a run which trains already, as standby: one that was lost and is started
 * again.
 *   ① device and link are open; ready                                  worker_open.c
 *   ② PREPARE, over its own link: it opens the next generation as      transition.c
 *     the members do
 *   ③ CANCEL: it waits for the next PREPARE.                           fl_worker_join
 *     COMMIT: the members have switched, and it is one of them         fl_transition_enter
 *   ④ the leader broadcasts the run's state                            fl_worker_share_state
 * Until ③ the members do not wait for it, and its end disturbs none of them. */
#include "launcher/worker/worker_state.h"

#include "device/errors/log.h"
#include "device/flight/flight.h"
#include "device/system/clock.h"

#include <string.h>

enum { SLICE_MS = 50 };

/* What all members know, whether they train or not. */
typedef struct run_state {
    int64_t step;
    fl_cursor cursor;
    fl_run_position position;
    fl_message_counts counts;
    int32_t parked[FL_MAX_LAYERS];
    int64_t since[FL_MAX_LAYERS];
} run_state;

_Static_assert(sizeof(run_state) <= FL_MESSAGE_MAX_BYTES, "the run's state is one message");

static void put_state(const fl_worker_state *w, run_state *s)
{
    memset(s, 0, sizeof *s);
    s->step = w->step;
    s->cursor = w->cursor;
    s->position = fl_worker_position(w);
    s->counts = fl_message_count(w->messages);
    for (int layer = 0; layer < w->parked.n_layers; layer++) {
        s->parked[layer] = w->parked.rank[layer];
        s->since[layer] = w->parked.since[layer];
    }
}

/* The broadcast that brought the state counts as well. */
static void take_state(fl_worker_state *w, const run_state *s)
{
    fl_message_counts counts = s->counts;
    counts.n_broadcasts++;
    w->step = s->step;
    w->cursor = s->cursor;
    fl_worker_adopt(w, &s->position);
    fl_message_follow(w->messages, &counts);
    for (int layer = 0; layer < w->parked.n_layers; layer++) {
        w->parked.rank[layer] = s->parked[layer];
        w->parked.since[layer] = s->since[layer];
    }
}

static fl_status broadcast_state(fl_worker_state *w, run_state *s)
{
    const fl_plan *plan = &w->now->plan;
    unsigned char message[FL_MESSAGE_MAX_BYTES];
    size_t size_bytes = sizeof *s;
    memcpy(message, s, sizeof *s);
    FL_TRY(fl_message_broadcast(w->messages, fl_plan_leader(plan), plan->generation, message,
                                &size_bytes, fl_deadline_us(w->c->job->fault.deadline_ms)));
    memcpy(s, message, sizeof *s);
    return size_bytes == sizeof *s
               ? FL_OK
               : fl_fail(FL_EINTERNAL, "a state of %zu bytes, %zu expected", size_bytes, sizeof *s);
}

fl_status fl_worker_share_state(fl_worker_state *w)
{
    run_state state;
    if (!w->has_joined) {
        return FL_OK;
    }
    w->has_joined = false;
    put_state(w, &state);
    return broadcast_state(w, &state);
}

/* ---- on the worker that joins ---- */

static fl_status enter_run(fl_worker_state *w)
{
    run_state state;
    if (w->next == NULL) {
        return fl_fail(FL_EINTERNAL, "a commit without a generation that was prepared");
    }
    fl__reach("enter", w);
    FL_TRY(fl_transition_enter(w, w->step));
    w->has_joined = false;
    put_state(w, &state);
    FL_TRY(broadcast_state(w, &state));
    take_state(w, &state);
    fl_worker_checkpoint_follow(w, w->step);
    fl_batch_stream_reset(&w->batches, w->step, w->cursor);
    fl_control_message what = {.step = w->step, .cursor = w->cursor};
    bool switched = false;
    fl_log(FL_LOG_INFO, "has joined with generation %u, before step %lld", w->now->plan.generation,
           (long long)w->step);
    fl__reach("joined", w);
    return fl_control_begin(w, &what, &switched);
}

static fl_status wait_for_order(fl_worker_state *w, fl_command *command)
{
    fl_link_doing(w->link, FL_LINK_STANDBY);
    fl_flight_enter(FL_FLIGHT_STANDBY, -1, -1, 0);
    while (!fl_link_wait_command(w->link, INT64_MAX, SLICE_MS, command)) {
        FL_TRY(fl_worker_check_abort(w));
        fl_flight_beat();
    }
    fl_flight_leave();
    return FL_OK;
}

fl_status fl_worker_join(fl_worker_state *w)
{
    fl_command command;
    while (!w->stop && fl_worker_departs(w)) {
        FL_TRY(wait_for_order(w, &command));
        if (command.kind == FL_COMMAND_PREPARE) {
            fl_transition_prepare(w, &command.plan);
        } else if (command.kind == FL_COMMAND_CANCEL) {
            fl_transition_cancel(w);
        } else if (command.kind == FL_COMMAND_COMMIT) {
            FL_TRY(enter_run(w));
        } else if (command.kind == FL_COMMAND_STOP) {
            w->stop = true;
        }
    }
    return FL_OK;
}
