#include "control/controller/faults/break_watch.h"

#include "control/controller/faults/recovery.h"
#include "control/controller/faults/recovery_parts.h"
#include "control/controller/members/host_pairs.h"
#include "control/controller/parts/parts.h"

#include <stdio.h>
#include <string.h>

enum { IDLE_BREAKS_MAX = 3, LONGER_MAX = 6 /* doublings of the patience */, NAMED_MOST = 4 };

static bool has_left(const fl_worker *w)
{
    return fl_worker_is_awaited(w) && w->left_us != 0;
}

int fl_break_watch_first(const fl_controller *controller)
{
    int first = -1;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (has_left(w) && (first < 0 || w->left_us < controller->workers[first].left_us)) {
            first = i;
        }
    }
    return first;
}

int fl_break_watch_behind(const fl_controller *controller)
{
    int last = -1;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (fl_worker_is_awaited(w) && w->place.active &&
            (last < 0 || w->steps < controller->workers[last].steps)) {
            last = i;
        }
    }
    return last < 0 ? 0 : last;
}

/* Whether a worker of this host has left its generation. */
static bool has_reported(const fl_controller *controller, int host)
{
    bool any = false;
    for (int i = 0; i < controller->n_workers; i++) {
        any = any || (has_left(&controller->workers[i]) &&
                      fl_hosts_of(controller->options->hosts, i) == host);
    }
    return any;
}

void fl_break_watch_text(const fl_controller *controller, char *text, size_t size_bytes)
{
    const fl_hosts *hosts = controller->options->hosts;
    int n_hosts = hosts == NULL ? 0 : hosts->n, n = 0;
    snprintf(text, size_bytes, "connections between workers broke");
    for (int i = 0; i < n_hosts && n_hosts > 1 && n < NAMED_MOST; i++) {
        if (has_reported(controller, i)) {
            size_t used = strlen(text);
            snprintf(text + used, size_bytes - used, "%shost %s",
                     n++ == 0 ? " (reported from " : ", ", hosts->host[i].name);
        }
    }
    if (n > 0) {
        size_t used = strlen(text);
        snprintf(text + used, size_bytes - used, ")");
    }
}

/* It grows while to regroup does not help. */
static int64_t patience_of(const fl_controller *controller)
{
    const fl_recovery *r = &controller->recovery;
    bool again = controller->stats.steps == r->idle_step;
    int doublings = !again ? 0 : r->n_idle < LONGER_MAX ? r->n_idle : LONGER_MAX;
    return controller->shutdown.limits.silence_us << doublings;
}

/* The only one that trains may wait in vain for another one in standby, to which it sends a command
 * or its vote; asleep in an operation of its own, it is judged by itself. Once a worker is done,
 * those in standby count, too: they alone may be left, and wait for a message of a worker that has
 * ended. */
static bool all_stand_still(const fl_controller *controller, int64_t patience_us)
{
    bool ends = fl__recovery_is_complete(controller);
    int n = 0, n_waiting = 0;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (!fl_worker_is_awaited(w) || (!w->place.active && !ends)) {
            continue;
        }
        if (w->waits_us <= patience_us && w->asleep_us <= patience_us) {
            return false;
        }
        n_waiting += w->waits_us > patience_us;
        n++;
    }
    return n > 1 || n_waiting > 0;
}

/* Where to regroup does not help, some two workers cannot talk to each other, although their hosts
 * reach each other (host_pairs.h) and both reach the controller. It does not know which two, so
 * that it may take several losses until one of them is gone; the first host, which is the
 * controller's, goes last. */
static int last_active(const fl_controller *controller)
{
    int last = -1;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        last = fl_worker_is_awaited(w) && w->place.active ? i : last;
    }
    return last;
}

static void count_idle(fl_controller *controller)
{
    fl_recovery *r = &controller->recovery;
    bool again = controller->stats.steps == r->idle_step;
    r->n_idle = again ? r->n_idle + 1 : 1;
    r->idle_step = controller->stats.steps;
}

/* Nothing is wrong so far, and a trial takes a while. */
static void try_early(fl_controller *controller, bool can, int64_t now_us)
{
    if (can && all_stand_still(controller, controller->shutdown.limits.trial_us)) {
        (void)fl_host_pairs_check_early(controller, now_us);
    } else {
        fl_host_pairs_forget(controller);
    }
}

bool fl_break_watch_is_due(fl_controller *controller, int64_t now_us, fl_loss_kind *kind, int *who)
{
    fl_recovery *r = &controller->recovery;
    char why[128];
    int first = fl_break_watch_first(controller);
    bool left = first >= 0 && now_us - controller->workers[first].left_us >=
                                  controller->shutdown.limits.settle_us;
    bool can = fl_recovery_regroups(controller, why, sizeof why);
    bool stand = can && all_stand_still(controller, patience_of(controller));
    if (r->state == FL_RECOVERY_COLLECTING) {
        return false;
    }
    if (!left && !stand) {
        try_early(controller, can, now_us);
        return false;
    }
    if (fl_host_pairs_check(controller, now_us)) {
        return false;
    }
    count_idle(controller);
    bool in_vain = !can || r->n_idle > IDLE_BREAKS_MAX;
    *kind = left ? FL_LOSS_REPORTED : FL_LOSS_STUCK;
    *who = !in_vain ? -1 : left ? first : last_active(controller);
    return true;
}
