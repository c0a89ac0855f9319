#include "control/controller/faults/silence.h"

#include "control/controller/parts/parts.h"
#include "device/errors/log.h"

/* The members of which more is to come; 0 if one of them has answered. While they are held,
 * heard_us tells nothing: what is forgiven and excused (shutdown.c, standstill.h) moves it on. */
static int count_held(const fl_controller *controller)
{
    int n = 0;
    for (int i = 0; i < controller->n_workers; i++) {
        n += fl_worker_is_awaited(&controller->workers[i]);
    }
    return controller->silence.answered ? 0 : n;
}

/* The same before they are held; 0 if one of them was heard lately or has no link yet. */
static int count_silent(const fl_controller *controller, int64_t now_us)
{
    int n = 0;
    for (int i = 0; i < controller->n_workers; i++) {
        const fl_worker *w = &controller->workers[i];
        if (!fl_worker_is_awaited(w)) {
            continue;
        }
        if (!w->linked || now_us - w->heard_us <= controller->shutdown.limits.silence_us / 2) {
            return 0;
        }
        n++;
    }
    return n;
}

/* ② */
static void release_workers(fl_controller *controller, int64_t now_us)
{
    const fl_silence *s = &controller->silence;
    if (s->told && s->answered) { /* the process of one may have ended instead */
        fl_log(FL_LOG_WARN, "the workers answer again, after %.1f s; the run goes on",
               (double)(now_us - s->since_us) * 1e-6);
    }
    for (int i = 0; i < controller->n_workers; i++) {
        controller->workers[i].heard_us = now_us;
    }
}

/* ① A busy machine may be silent for as long as that: only then it is worth a line. */
static void tell_hold(fl_controller *controller, int n, int64_t now_us)
{
    fl_silence *s = &controller->silence;
    int64_t silence_us = controller->shutdown.limits.silence_us;
    if (!s->told && now_us - s->since_us > silence_us / 2) {
        s->told = true;
        fl_log(FL_LOG_WARN,
               "all %d workers fell silent in the same moment: something has stopped them "
               "together; the run waits for them, for at most %.0f s (fault.deadline)",
               n, (double)controller->shutdown.limits.circle_us * 1e-6);
    }
}

void fl_silence_heard(fl_controller *controller, const fl_worker *worker)
{
    controller->silence.answered = controller->silence.answered || fl_worker_is_awaited(worker);
}

bool fl_silence_holds(fl_controller *controller, int64_t now_us)
{
    fl_silence *s = &controller->silence;
    fl_phase_state state = controller->shutdown.phase.state;
    bool trains = state == FL_CONTROLLER_STARTING || state == FL_CONTROLLER_RUNNING;
    int n = s->since_us != 0 ? count_held(controller) : count_silent(controller, now_us);
    n = trains ? n : 0;
    if (n >= 2 && s->since_us == 0) {
        *s = (fl_silence){.since_us = now_us};
    }
    bool over = now_us - s->since_us > controller->shutdown.limits.circle_us; /* ③ */
    if (n < 2 && s->since_us != 0 && !over) {
        release_workers(controller, now_us);
    }
    if (n < 2) {
        *s = (fl_silence){0};
    }
    if (n < 2 || over) {
        return false;
    }
    tell_hold(controller, n, now_us);
    return true;
}
