#include "control/checkpoint/snapshots.h"

#include "control/checkpoint/parts.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <string.h>

enum {
    AUTO_LEAST_MS = 5000,
    AUTO_SHARE = 100,    /* of the time: 1 % */
    AUTO_FAR_SHARE = 10, /* while one goes from host to host: 10 % */
    MOST_EARLY = 8,      /* intervals that may be owed for snapshots taken at once */
    AT_ONCE_LEAD = 2,    /* steps */
};

void fl_kept_snapshot_fini(fl_kept_snapshot *kept)
{
    fl__checkpoints_free_one(&kept->checkpoint);
    fl__checkpoints_free_one(&kept->older);
    fl_snapshot_close(&kept->memory);
}

static const char *next_text(const fl_kept_snapshot *kept)
{
    return kept->older != NULL ? "the one before it takes its place" : "there is no other one";
}

/* A run that continues needs whole files up to its state: they prove each sample once. */
static bool is_usable(const fl_kept_snapshot *kept, int64_t recorded)
{
    long long step = (long long)kept->checkpoint->step;
    if (step > recorded) {
        fl_log(FL_LOG_WARN,
               "the snapshot in memory of step %lld is not used: the files of the run lack steps "
               "from step %lld on; %s",
               step, (long long)recorded, next_text(kept));
        return false;
    }
    if (fl_snapshot_check(&kept->memory, kept->slot) != FL_OK) {
        fl_log(FL_LOG_WARN,
               "the snapshot in memory of step %lld is damaged and is not used: %s; %s", step,
               fl_errmsg(), next_text(kept));
        return false;
    }
    return true;
}

void fl_kept_snapshot_check(fl_kept_snapshot *kept, int64_t recorded)
{
    while (kept->checkpoint != NULL && !is_usable(kept, recorded)) {
        fl__checkpoints_free_one(&kept->checkpoint);
        kept->checkpoint = kept->older;
        kept->slot = 1 - kept->slot;
        kept->older = NULL;
    }
}

void fl_snapshots_open(fl_snapshots *s)
{
    const fl_controller_options *o = s->run->options;
    const fl_interval *every = &o->job->fault.snapshot;
    s->kept = o->snapshot == NULL || o->snapshot->memory.slots == NULL ? NULL : o->snapshot;
    s->is_auto = every->ms == 0 && every->steps == 0 && every->epochs == 0;
    s->schedule = (fl_checkpoint_schedule){.every = *every,
                                           .steps_per_epoch = s->run->stats->steps_per_epoch};
    s->last_step = o->resume == NULL ? 0 : o->resume->step;
    if (s->is_auto) {
        s->schedule.every.ms = AUTO_LEAST_MS;
    }
    if (s->kept != NULL) {
        fl_snapshot_want(&s->kept->memory, 0, 0);
    }
}

void fl_snapshots_close(fl_snapshots *s)
{
    fl__checkpoints_free_one(&s->captured);
}

/* From now on no worker writes, so that the slots stay as they are. */
static void end_request(fl_snapshots *s)
{
    s->asked = false;
    fl_snapshot_want(&s->kept->memory, 0, 0);
    fl__checkpoints_free_one(&s->captured);
}

void fl_snapshots_interrupt(fl_snapshots *s)
{
    if (s->asked) {
        end_request(s);
    }
}

/* ---- ① ---- */

/* How much sooner than its interval one would come now. The next one is later by as much, so that
 * in the long run all of them cost no more than the interval allows. */
static int64_t early_us(const fl_snapshots *s, int64_t now_us)
{
    int64_t early = s->last_us + s->schedule.every.ms * 1000 - now_us;
    return s->at_once && s->last_us != 0 && early > 0 ? early : 0;
}

static void ask_workers(fl_snapshots *s, int64_t step, int64_t now_us)
{
    bool any = s->kept->checkpoint != NULL;
    s->asked = true;
    s->target = step;
    s->slot = any ? 1 - s->kept->slot : 0;
    fl__checkpoints_free_one(&s->kept->older); /* it lay there */
    s->asked_us = now_us;
    s->last_us = now_us + early_us(s, now_us);
    s->last_step = step;
    s->n_reports = 0;
    s->failed = s->moves = false;
    s->bytes = s->copy_us = 0;
    memset(s->reported, 0, sizeof s->reported);
    fl_snapshot_want(&s->kept->memory, ++s->serial, s->slot);
    fl_router_command(
        s->router, s->run->plan,
        &(fl_command){.kind = FL_COMMAND_SNAPSHOT, .due_step = step, .serial = s->serial});
}

/* One that is wanted at once comes with the order, as soon as that reaches the leader: workers that
 * are further by then copy the step where they are (③). Where that has failed, the next one is
 * asked for far enough ahead. */
static int64_t choose_lead(const fl_snapshots *s, bool at_once)
{
    int64_t lead =
        fl_checkpoint_lead(fl_measure_step_ms(s->elastic), s->run->options->lead, s->n_late, 0);
    return at_once && s->n_late == 0 && lead > AT_ONCE_LEAD ? AT_ONCE_LEAD : lead;
}

static void look_at_schedule(fl_snapshots *s, int64_t now_us)
{
    const fl_run_stats *stats = s->run->stats;
    int64_t interval_us = s->schedule.every.ms * 1000;
    bool at_once = s->at_once && early_us(s, now_us) < MOST_EARLY * interval_us;
    if (s->last_us == 0 && !at_once) {
        s->last_us = now_us; /* the run has just begun to train */
    }
    fl_checkpoint_moment moment = {.steps = stats->steps,
                                   .end_step = stats->n_steps,
                                   .now_us = now_us,
                                   .last_step = s->last_step,
                                   .last_us = at_once ? now_us - interval_us : s->last_us,
                                   .lead = choose_lead(s, at_once)};
    int64_t step = fl_checkpoint_due(&s->schedule, &moment);
    if (step > 0) {
        ask_workers(s, step, now_us);
    }
}

/* ---- ② ---- */

static bool is_captured(const fl_snapshots *s)
{
    return s->captured != NULL && s->captured->step == s->target;
}

/* Without memory there is no capture, and then no snapshot. */
static void capture(fl_snapshots *s)
{
    fl__checkpoints_free_one(&s->captured);
    if (fl_alloc(sizeof *s->captured, (void **)&s->captured) != FL_OK ||
        fl_checkpoints_capture(s->checkpoints, s->captured) != FL_OK) {
        fl__checkpoints_free_one(&s->captured);
    }
}

void fl_snapshots_counted(fl_snapshots *s)
{
    if (s->asked && s->run->stats->steps == s->target && !is_captured(s)) {
        capture(s);
    }
}

/* ---- ③ ---- */

/* Workers that are further than the command's step copy the state of the step where they are. */
static void take_first(fl_snapshots *s, const fl_snapshot_report *report)
{
    int64_t steps = s->run->stats->steps;
    s->n_late = report->step > s->target ? s->n_late + 1 : 0;
    s->target = report->step;
    s->generation = report->generation;
    if (!is_captured(s) && steps == s->target) {
        capture(s);
    }
    s->failed = !is_captured(s) && steps >= s->target;
}

void fl_snapshots_reported(fl_snapshots *s, int rank, const fl_snapshot_report *report)
{
    if (!s->asked || report->serial != s->serial) {
        return; /* of one that was dropped */
    }
    if (s->n_reports++ == 0) {
        take_first(s, report);
    }
    s->failed = s->failed || report->status != FL_OK || report->step != s->target ||
                report->generation != s->generation;
    s->copy_us = report->copy_us > s->copy_us ? report->copy_us : s->copy_us;
    s->moves = s->moves || report->moves;
    s->reported[rank] = !report->moves;
    s->bytes += report->moves ? 0 : report->bytes;
}

static bool is_complete(const fl_snapshots *s)
{
    for (int rank = 0; rank < s->run->n_workers; rank++) {
        if (!s->reported[rank] && !s->run->plan->departed[rank]) {
            return false;
        }
    }
    return is_captured(s) && s->run->stats->steps >= s->target;
}

/* ---- ④ ---- */

static void tell_taken(const fl_snapshots *s)
{
    fl_json *j = fl_event_log_begin(s->log, "snapshot.taken");
    fl_json_integer(j, "step", s->target);
    fl_json_integer(j, "bytes", s->bytes);
    fl_json_rounded(j, "copy_ms", (double)s->copy_us * 1e-3, 3);
    fl_event_log_end(s->log);
}

/* auto: from one to the next, after this one. What goes from host to host in the background takes a
 * share of the link, and of the processors. */
static int64_t choose_interval_ms(const fl_snapshots *s, int64_t now_us)
{
    int64_t copies_ms = s->copy_us * AUTO_SHARE / 1000;
    int64_t whole_ms = (now_us - s->asked_us) * AUTO_FAR_SHARE / 1000;
    int64_t ms = copies_ms > whole_ms ? copies_ms : whole_ms;
    return ms > AUTO_LEAST_MS ? ms : AUTO_LEAST_MS;
}

static void keep_copy(fl_snapshots *s, int64_t now_us)
{
    s->kept->older = s->kept->checkpoint;
    s->kept->checkpoint = s->captured;
    s->kept->slot = s->slot;
    s->captured = NULL;
    s->n_taken++;
    s->n_late = s->at_once ? 0 : s->n_late; /* it was asked for as if it were late */
    s->at_once = false;
    if (s->is_auto) {
        s->schedule.every.ms = choose_interval_ms(s, now_us);
    }
    tell_taken(s);
}

/* A request that no worker answers is given up. The time counts from the step asked for. What goes
 * between hosts may take longer: it ends by itself, or with the loss of a worker. */
static void settle_request(fl_snapshots *s, int64_t now_us)
{
    bool ahead = s->n_reports == 0 && s->run->stats->steps < s->target;
    bool late = !s->moves && now_us - s->asked_us > s->run->options->job->fault.deadline_ms * 1000;
    s->asked_us = ahead ? now_us : s->asked_us;
    if (!s->failed && is_complete(s) && s->captured->plan.generation == s->generation) {
        keep_copy(s, now_us);
        end_request(s);
    } else if (s->failed || is_complete(s) || (late && !ahead)) {
        end_request(s);
    }
}

int64_t fl_snapshots_step(const fl_snapshots *s)
{
    return s->kept == NULL || s->kept->checkpoint == NULL ? -1 : s->kept->checkpoint->step;
}

/* From the moment on in which a layer has no other owner, a loss costs all steps since the newest
 * state. */
static void note_replicas(fl_snapshots *s)
{
    bool has_replicas = s->run->plan->R > 1;
    s->at_once = !has_replicas && (s->at_once || s->had_replicas);
    s->had_replicas = has_replicas;
}

void fl_snapshots_watch(fl_snapshots *s, bool paused, int64_t now_us)
{
    if (s->kept == NULL) {
        return;
    }
    if (s->is_auto) {
        note_replicas(s);
    }
    if (s->asked) {
        settle_request(s, now_us);
    } else if (!paused && s->run->phase->state == FL_CONTROLLER_RUNNING &&
               !fl__run_is_ending(s->run) && s->elastic->transition.state == FL_ELASTIC_IDLE &&
               !(s->is_auto && s->run->plan->R > 1)) {
        look_at_schedule(s, now_us);
    }
}
