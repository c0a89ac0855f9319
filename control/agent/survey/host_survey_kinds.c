/* ② of a survey: what layers cost on hosts of other kinds. */
#include "control/agent/survey/host_survey_parts.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <poll.h>
#include <stdio.h>

enum {
    LATE_MS = 5000,      /* after the time of an order, for its answer to come */
    OWN_TIMES = 2,       /* times the time of an order, for this host's own measurement */
    TELL_US = 10000000,  /* between two messages about the progress */
    ALIVE_US = 100000,   /* between two looks at the connections */
    CLOSED_US = 1000000, /* to read what came before, and for another agent to take its place */
};

static const fl_host *host_of(const fl__survey *s, int i)
{
    return &s->o->hosts->host[i];
}

/* ---- orders ---- */

static void order_costs(fl__survey *s, int i)
{
    const fl_host_measuring *o = s->o->measuring;
    fl_host_message m = {.type = FL_HOST_MEASURE,
                         .measure = {.number = s->measure_number,
                                     .host = *host_of(s, i),
                                     .job_bytes = (int64_t)o->job_bytes,
                                     .all_ms = o->all_ms,
                                     .silence_ms = FL_HOST_PATIENCE * s->o->hosts->detect_ms}};
    snprintf(m.measure.run_dir, sizeof m.measure.run_dir, "%s", s->o->run_dir);
    snprintf(m.measure.cwd, sizeof m.measure.cwd, "%s", o->cwd);
    for (size_t at = 0; at < o->job_bytes; at += FL_HOST_JOB_PIECE) {
        size_t left = o->job_bytes - at;
        fl_host_message piece = {
            .type = FL_HOST_JOB,
            .frame = {.bytes = (const unsigned char *)o->job + at,
                      .n = left < FL_HOST_JOB_PIECE ? left : FL_HOST_JOB_PIECE}};
        (void)fl_host_socket_send(&s->socket, &s->host[i].peer, &piece);
    }
    (void)fl_host_socket_send(&s->socket, &s->host[i].peer, &m);
    s->host[i].measures = true;
    s->host[i].heard_us = fl_now_us();
    fl_log(FL_LOG_INFO, "host %s (%s) is of another kind: it measures what layers cost there",
           host_of(s, i)->name, s->host[i].kind.processor);
}

static void order_all(fl__survey *s)
{
    const fl_host_measuring *o = s->o->measuring;
    s->measure_number = (uint64_t)fl_now_ns();
    for (int i = 1; i < s->out->n; i++) {
        if (s->host[i].joined && o->wants(o->context, i, &s->host[i].kind)) {
            order_costs(s, i);
        }
    }
}

/* ---- answers ---- */

static bool is_awaited(const fl__survey_host *h)
{
    return h->measures && h->unmeasured[0] == '\0' && !fl_host_profile_is_whole(&h->profile);
}

void fl__survey_take_profile(fl__survey *s, int i, const fl_host_profile_piece *piece)
{
    fl__survey_host *h = &s->host[i];
    if (!is_awaited(h) || piece->number != s->measure_number) {
        return;
    }
    if (fl_host_profile_add(&h->profile, piece) != FL_OK) {
        snprintf(h->unmeasured, sizeof h->unmeasured, "%s", fl_errmsg());
    }
}

void fl__survey_take_unmeasured(fl__survey *s, int i, uint64_t number, const char *why)
{
    fl__survey_host *h = &s->host[i];
    if (is_awaited(h) && number == s->measure_number) {
        snprintf(h->unmeasured, sizeof h->unmeasured, "%s",
                 why[0] == '\0' ? "it does not say why" : why);
    }
}

/* ---- the wait ---- */

static bool is_own_awaited(const fl__survey *s)
{
    struct pollfd own = {.fd = s->o->measuring->own_fd, .events = POLLIN};
    return own.fd >= 0 && poll(&own, 1, 0) == 0;
}

static int count_awaited(const fl__survey *s)
{
    int n = 0;
    for (int i = 1; i < s->out->n; i++) {
        n += is_awaited(&s->host[i]);
    }
    return n;
}

static void look_at_connections(fl__survey *s, int64_t now_us)
{
    if (now_us - s->alive_us < ALIVE_US) {
        return;
    }
    s->alive_us = now_us;
    for (int i = 1; i < s->out->n; i++) {
        fl__survey_host *h = &s->host[i];
        if (h->joined && h->closed_us == 0 && fl__survey_finds_closed(s, i)) {
            h->closed_us = now_us;
        }
    }
}

/* A host asks to join three times a second, whatever its processors compute. */
static void look_at_host(fl__survey *s, int i, int64_t now_us)
{
    const fl__survey_host *h = &s->host[i];
    int64_t silence_us = s->o->hosts->detect_ms * 1000;
    if (h->joined && h->closed_us != 0 && now_us - h->closed_us > CLOSED_US) {
        fl__survey_note_gone(s, i, false, "the connection of its agent was closed");
    } else if (h->joined && now_us - h->heard_us > silence_us) {
        char why[64];
        snprintf(why, sizeof why, "it has been silent for %.1f s", (double)silence_us * 1e-6);
        fl__survey_note_gone(s, i, false, why);
    }
}

fl_status fl__survey_check_presence(fl__survey *s)
{
    int64_t now_us = fl_now_us();
    look_at_connections(s, now_us);
    for (int i = 1; i < s->out->n; i++) {
        const fl__survey_host *h = &s->host[i];
        look_at_host(s, i, now_us);
        if (h->gone) {
            return fl_fail(fl__survey_loss_of(s, i), "host %s (%s) was lost %s: %s",
                           host_of(s, i)->name, host_of(s, i)->address,
                           s->order.number != 0 ? "while links were measured"
                           : h->measures        ? "while it measured what layers cost"
                                                : "before the run began",
                           s->out->host[i].why);
        }
    }
    return FL_OK;
}

static void tell_progress(const fl__survey *s, int64_t since_us, int64_t *told_us)
{
    int64_t now_us = fl_now_us();
    if (now_us - *told_us < TELL_US) {
        return;
    }
    *told_us = now_us;
    for (int i = 1; i < s->out->n; i++) {
        if (is_awaited(&s->host[i])) {
            fl_log(FL_LOG_INFO, "host %s has been measuring for %.0f s, of %.0f s at most",
                   host_of(s, i)->name, (double)(now_us - since_us) * 1e-6,
                   (double)s->o->measuring->all_ms * 1e-3);
        }
    }
}

static void give_up(fl__survey *s)
{
    for (int i = 1; i < s->out->n; i++) {
        fl__survey_host *h = &s->host[i];
        if (is_awaited(h)) {
            snprintf(h->unmeasured, sizeof h->unmeasured, "no profile has come in %.0f s",
                     (double)s->o->measuring->all_ms * 1e-3);
        }
    }
}

/* This host's own measurement has deadlines of its own, but a process that was stopped heeds none.
 */
static fl_status refuse_own(const fl__survey *s)
{
    return fl_fail(FL_EDEADLINE,
                   "this host has been measuring what layers cost for %.0f s: the process that "
                   "measures is stopped, or its processors are too busy; try again",
                   (double)(OWN_TIMES * s->o->measuring->all_ms) * 1e-3);
}

static fl_status await_profiles(fl__survey *s)
{
    int64_t since_us = fl_now_us(), told_us = since_us;
    int64_t until_us = fl_deadline_us(s->o->measuring->all_ms + LATE_MS);
    int64_t own_until_us = fl_deadline_us(OWN_TIMES * s->o->measuring->all_ms);
    while (s->stopped == 0 && (count_awaited(s) > 0 || is_own_awaited(s))) {
        fl__survey_turn(s);
        FL_TRY(fl__survey_check_presence(s));
        tell_progress(s, since_us, &told_us);
        if (fl_left_ms(until_us) == 0) {
            give_up(s);
        }
        if (fl_left_ms(own_until_us) == 0 && is_own_awaited(s)) {
            return refuse_own(s);
        }
    }
    return FL_OK;
}

fl_status fl__survey_measure_costs(fl__survey *s)
{
    const fl_host_measuring *o = s->o->measuring;
    order_all(s);
    FL_TRY(await_profiles(s));
    for (int i = 1; i < s->out->n && s->stopped == 0; i++) {
        const fl__survey_host *h = &s->host[i];
        if (h->measures && h->unmeasured[0] != '\0') {
            o->take(o->context, i, NULL, 0, h->unmeasured);
        } else if (h->measures) {
            o->take(o->context, i, h->profile.text, (size_t)h->profile.n, NULL);
        }
    }
    return FL_OK;
}
