#include "control/controller/judge/standstill.h"

#include "device/system/alloc.h"

enum {
    PERIOD_US = 100 * 1000,
    COUNTED_US = 250 * 1000, /* what one look adds at most: the controller may have been away */
    IDLE_PART = 20,          /* asleep: less than 1 / IDLE_PART of a processor */
    LONGER_TIMES = 8,
    CHUNK = 64,
};

/* ---- one worker: pure ---- */

bool fl_standstill_waits(fl_flight_kind kind)
{
    fl_flight_category category = fl_flight_category_of(kind);
    return category == FL_FLIGHT_IS_SEND || category == FL_FLIGHT_IS_RECEIVE ||
           category == FL_FLIGHT_IS_REDUCE || category == FL_FLIGHT_IS_WAIT;
}

/* An operation that waits for nothing but its own computation. */
static bool computes(fl_flight_kind kind)
{
    fl_flight_category category = fl_flight_category_of(kind);
    return category == FL_FLIGHT_IS_COMPUTE || category == FL_FLIGHT_IS_OPTIMIZER;
}

/* What waits for a disk has fault.deadline itself, and then knows better what was late: a read of
 * samples; outside of operations, the last checkpoint and the trained weights. */
static bool has_own_deadline(fl_flight_kind kind)
{
    return kind == FL_FLIGHT_DATA || kind == FL_FLIGHT_NONE;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Whether threads compute, or want a processor or pages from the disk. */
static bool wants(const fl_thread_look *now, const fl_thread_look *before)
{
    return now->is_runnable || now->n_major_faults > before->n_major_faults;
}

/* Two looks at the process: asleep or busy in between. */
static void add_own_time(fl_standstill *s, const fl_standstill_look *look, int64_t passed_us)
{
    const fl_process_look *before = &s->last.process, *now = &look->process;
    if (!look->is_known) {
        s->busy_us += passed_us;
        return;
    }
    if (!s->last.is_known) {
        return; /* the first look: nothing to compare it with */
    }
    int64_t used_us = now->cpu_us - before->cpu_us;
    if (wants(&now->work, &before->work) || used_us > passed_us / IDLE_PART) {
        s->busy_us += smaller(used_us, passed_us);
    } else {
        s->asleep_us += passed_us;
    }
}

bool fl_standstill_add(fl_standstill *s, const fl_standstill_look *look, int64_t now_us)
{
    int64_t passed_us = smaller(now_us - s->looked_us, COUNTED_US);
    bool moved = s->looked_us == 0 || look->n_changes != s->last.n_changes;
    if (moved) {
        *s = (fl_standstill){.longest_us = 0};
    } else if (fl_standstill_waits(look->kind) && !look->is_alone) {
        s->waits_us += passed_us;
    } else {
        add_own_time(s, look, passed_us);
    }
    s->last = *look;
    s->looked_us = now_us;
    return moved;
}

bool fl_standstill_is_hung(const fl_standstill *s, const fl_standstill_limits *limits)
{
    int64_t usual_us = LONGER_TIMES * s->longest_us;
    int64_t patience_us = larger(limits->deadline_us, usual_us);
    if (has_own_deadline(s->last.kind)) {
        patience_us *= 2;
    }
    if (s->last.is_alone && !has_own_deadline(s->last.kind) &&
        s->asleep_us > larger(limits->silence_us, computes(s->last.kind) ? usual_us : 0)) {
        return true;
    }
    if (computes(s->last.kind) && s->longest_us > 0 &&
        s->asleep_us > larger(limits->silence_us, usual_us)) {
        return true;
    }
    return s->asleep_us + s->busy_us > patience_us;
}

/* ---- all workers ---- */

int64_t fl_standstill_since(const fl_worker *workers, int n_workers, int64_t trained_us,
                            int64_t now_us)
{
    int64_t since_us = 0, left_us = now_us;
    for (int i = 0; i < n_workers; i++) {
        const fl_worker *w = &workers[i];
        if (!fl_worker_is_awaited(w) || !w->place.active || w->failed_us != 0) {
            continue;
        }
        if (w->left_us != 0) {
            since_us = larger(since_us, w->left_us - w->left_waited_us);
            left_us = smaller(left_us, w->left_us);
        } else {
            since_us = larger(since_us, now_us - larger(w->waits_us, w->asleep_us));
        }
    }
    return since_us == 0 ? trained_us : smaller(since_us, left_us);
}

fl_status fl_standstill_watch_init(fl_standstill_watch *watch, int n_workers, bool trains,
                                   const fl_standstill_limits *limits)
{
    *watch = (fl_standstill_watch){.limits = *limits, .trains = trains};
    return fl_alloc_array((size_t)n_workers, sizeof *watch->of, (void **)&watch->of);
}

void fl_standstill_watch_fini(fl_standstill_watch *watch)
{
    fl_free(watch->of);
    watch->of = NULL;
}

static int64_t find_longest(const fl_flight *flight, int rank, fl_flight_kind kind)
{
    fl_flight_entry entries[CHUNK];
    uint64_t cursor = 0, n_lost = 0;
    int64_t longest_ns = 0;
    int n;
    while ((n = fl_flight_read(flight, rank, 0, &cursor, entries, CHUNK, &n_lost)) > 0) {
        for (int i = 0; i < n; i++) {
            if (entries[i].kind == kind) {
                longest_ns = larger(longest_ns, entries[i].left_ns - entries[i].entered_ns);
            }
        }
    }
    return longest_ns / 1000;
}

/* A wait for the controller, or in standby, is no part of a circle of waits. Its thread looks up
 * from it many times a second, so that each look finds a change: a thread in which none is found
 * hangs, whether the controller has sent something or not. */
static bool looks_up(fl_flight_kind kind)
{
    return kind == FL_FLIGHT_COMMAND || kind == FL_FLIGHT_STANDBY;
}

/* From then on it leaves every wait at once. One that joins has no such waits: it obeys the
 * controller alone. */
static bool must_leave(const fl_standstill_watch *watch, const fl_worker *w)
{
    return watch->waits_are_broken && !w->departed;
}

/* Whether the leader has sent, in an operation that began after since_ns, the command that
 * `awaited` waits for, or a later one. */
static bool has_sent(const fl_flight *flight, const fl_flight_entry *awaited, int64_t since_ns)
{
    fl_flight_entry entries[CHUNK];
    uint64_t cursor = 0, n_lost = 0;
    int n;
    while ((n = fl_flight_read(flight, awaited->peer, 0, &cursor, entries, CHUNK, &n_lost)) > 0) {
        for (int i = 0; i < n; i++) {
            if (entries[i].kind == FL_FLIGHT_SEND_COMMAND && entries[i].item >= awaited->item &&
                entries[i].entered_ns > since_ns) {
                return true;
            }
        }
    }
    return false;
}

/* In standby, a worker that has been woken receives the leader's next commands. Its connections may
 * be broken, so that the leader went on without it; then its receive has failed, and nothing keeps
 * it there. The leader may have sent the command before the worker began to receive it, so commands
 * are told apart by their numbers. These begin anew after a loss: one sent before the worker stood
 * by is not meant. */
static bool is_passed_over(fl_standstill_worker *of, const fl_flight *flight, const fl_worker *w,
                           const fl_flight_view *view)
{
    const fl_flight_entry *at = view->depth > 0 ? &view->open[view->depth - 1] : NULL;
    fl_flight_entry standby;
    if (w->place.active || w->departed || at == NULL || !view->whole ||
        at->kind != FL_FLIGHT_RECEIVE_COMMAND || at->peer < 0) {
        return false;
    }
    if (of->passed_over_at != view->n_changes &&
        fl_flight_newest(flight, w->rank, 0, FL_FLIGHT_STANDBY, &standby) &&
        has_sent(flight, at, standby.entered_ns)) {
        of->passed_over_at = view->n_changes;
    }
    return of->passed_over_at == view->n_changes;
}

/* What the flight recorder shows of the training thread. */
static fl_standstill_look look_at_thread(fl_standstill_watch *watch, const fl_flight *flight,
                                         const fl_worker *w)
{
    fl_flight_view view;
    fl_flight_look_training(flight, w->rank, &view);
    fl_standstill_look look = {.n_changes = view.n_changes + (uint64_t)w->steps,
                               .kind = FL_FLIGHT_NONE};
    if (view.depth > 0) {
        look.kind = view.open[view.depth - 1].kind;
    }
    look.is_alone = looks_up(look.kind) || must_leave(watch, w) ||
                    is_passed_over(&watch->of[w->rank], flight, w, &view);
    return look;
}

static bool stands_still(const fl_standstill *s, const fl_standstill_look *look)
{
    return s->looked_us != 0 && look->n_changes == s->last.n_changes;
}

/* look: NULL for a worker that does not train. */
static void add_thread(fl_standstill_watch *watch, const fl_flight *flight, fl_worker *w,
                       const fl_standstill_look *look, int64_t now_us)
{
    fl_standstill *s = &watch->of[w->rank].training;
    if (look == NULL) {
        *s = (fl_standstill){.looked_us = 0};
    } else {
        if (stands_still(s, look) && s->busy_us + s->asleep_us == 0) {
            s->longest_us = find_longest(flight, w->rank, look->kind);
        }
        if (look->is_alone != s->last.is_alone) {
            s->looked_us = 0; /* counts from here on */
        }
        fl_standstill_add(s, look, now_us);
    }
    w->asleep_us = has_own_deadline(s->last.kind) ? 0 : s->asleep_us;
    w->waits_us = looks_up(s->last.kind) ? 0 : s->waits_us;
    w->still_us = s->busy_us + s->asleep_us;
    w->hung = w->ready && s->looked_us != 0 && fl_standstill_is_hung(s, &watch->limits);
}

/* ---- until it is ready ---- */

static bool is_opening(const fl_worker *w)
{
    return !w->ready && !w->done && w->exited_us == 0 && w->failed_us == 0;
}

static int count_opening(const fl_worker *workers, int n_workers)
{
    int n = 0;
    for (int i = 0; i < n_workers; i++) {
        n += is_opening(&workers[i]) && !workers[i].departed;
    }
    return n;
}

/* Whether it opens what it needs, and waits for no other worker. */
static bool opens_alone(const fl_standstill_watch *watch, const fl_worker *w)
{
    bool alone = w->joins || (!w->departed && watch->n_opening == 1);
    return watch->trains && !watch->holds && w->linked && is_opening(w) && alone;
}

/* All of it is one operation. */
static const fl_standstill_look opening = {.n_changes = UINT64_MAX, .kind = FL_FLIGHT_NONE};

static bool is_quiet(const fl_standstill_watch *watch, const fl_worker *w, int64_t now_us)
{
    return w->linked && !w->done && !w->departed && w->exited_us == 0 &&
           now_us - w->heard_us > watch->limits.silence_us / 2;
}

/* Silence does not count while the link wants to run and cannot. */
static void excuse_link(fl_thread_look *before, fl_worker *w, const fl_process_look *look,
                        int64_t passed_us)
{
    w->heard_us += wants(&look->link, before) ? passed_us : 0;
    *before = look->link;
}

/* The agent gets no processor either, or is stopped: then nobody knows why the worker is silent.
 * The first look of a silence asks, and only the next one can have an answer. */
static void excuse_unanswered(fl_standstill_worker *of, fl_worker *w, int64_t passed_us,
                              int64_t most_us)
{
    of->n_unanswered++;
    if (of->n_unanswered > 1 && of->unanswered_us < most_us) {
        w->heard_us += passed_us;
        of->unanswered_us += passed_us;
    }
}

static void watch_silence(fl_standstill_worker *of, fl_worker *w, const fl_process_look *look,
                          int64_t passed_us, int64_t most_us)
{
    if (look == NULL) {
        excuse_unanswered(of, w, passed_us, most_us);
        return;
    }
    of->n_unanswered = 0;
    excuse_link(&of->link, w, look, passed_us);
}

static void watch_worker(fl_standstill_watch *watch, const fl_flight *flight, fl_worker *w,
                         int64_t passed_us, int64_t now_us)
{
    fl_standstill_worker *of = &watch->of[w->rank];
    fl_standstill_look look = {.n_changes = 0};
    fl_process_look process;
    bool has_left = w->departed && !w->joins;
    bool trains =
        watch->trains && !watch->holds && w->ready && !w->done && !has_left && w->exited_us == 0;
    bool quiet = is_quiet(watch, w, now_us), acts = false, opens = opens_alone(watch, w);
    if (trains) {
        look = look_at_thread(watch, flight, w);
        acts = stands_still(&of->training, &look) &&
               (look.is_alone || !fl_standstill_waits(look.kind));
    } else if (opens) {
        look = opening;
        acts = stands_still(&of->training, &look);
    }
    bool known = (quiet || acts) && watch->look(watch->context, w, &process);
    if (quiet) {
        watch_silence(of, w, known ? &process : NULL, passed_us, watch->limits.silence_us);
    } else {
        of->n_unanswered = 0;
        of->unanswered_us = 0;
    }
    if (acts && known) {
        look.is_known = true;
        look.process = process;
    }
    if (watch->trains) {
        add_thread(watch, flight, w, trains || opens ? &look : NULL, now_us);
    }
}

/* A worker is done, has departed, or trains no more. The others have waited for it so far, and the
 * last look is older than this news: how long they wait for each other counts from now on. */
static void restart_waits(fl_standstill_watch *watch, fl_worker *workers, int n_workers)
{
    bool any_left = false;
    for (int i = 0; i < n_workers; i++) {
        const fl_worker *w = &workers[i];
        bool takes_part = w->place.active && !w->done && !w->departed;
        any_left = any_left || (watch->of[i].takes_part && !takes_part);
        watch->of[i].takes_part = takes_part;
    }
    for (int i = 0; any_left && i < n_workers; i++) {
        watch->of[i].training.waits_us = workers[i].waits_us = 0;
    }
}

void fl_standstill_watch_look(fl_standstill_watch *watch, const fl_flight *flight,
                              fl_worker *workers, int n_workers, int64_t now_us)
{
    int64_t passed_us = now_us - watch->looked_us;
    restart_waits(watch, workers, n_workers);
    if (passed_us < PERIOD_US) {
        return;
    }
    watch->looked_us = now_us;
    watch->n_opening = count_opening(workers, n_workers);
    for (int i = 0; i < n_workers; i++) {
        watch_worker(watch, flight, &workers[i], smaller(passed_us, COUNTED_US), now_us);
    }
}
