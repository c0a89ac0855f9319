/* ③ and ⑤ of a survey: the links between hosts. */
#include "control/agent/survey/host_survey_parts.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    PAIR_MS = 400,
    LATE_MS = 10000,  /* after the time of an order, for its answers to come */
    REASON_MS = 2000, /* a closed connection is one after a second */
    ATTEMPTS = 3,
    STOOD_US = 2000000, /* it spoils rates as well */
};

static const fl_host *host_of(const fl__survey *s, int i)
{
    return &s->o->hosts->host[i];
}

/* Whether host i is measured, once orders have been given. */
static bool has_part(const fl__survey *s, int i)
{
    return i == 0 || !s->order.absent[i];
}

static int count_parts(const fl__survey *s)
{
    int n = 0;
    for (int i = 0; i < s->out->n; i++) {
        n += has_part(s, i);
    }
    return n;
}

/* ---- orders ---- */

static void order_one(fl__survey *s, int i)
{
    fl_host_message message = {.type = FL_HOST_PROBE};
    s->order.index = i;
    snprintf(s->order.address, sizeof s->order.address, "%s",
             i == 0 ? host_of(s, 0)->address : s->host[i].address);
    message.order = s->order;
    if (i == 0) {
        (void)send(s->own, &s->order, sizeof s->order, MSG_NOSIGNAL);
    } else {
        (void)fl_host_socket_send(&s->socket, &s->host[i].peer, &message);
    }
}

static void order_all(fl__survey *s)
{
    fl_host_probe_order *o = &s->order;
    o->n = s->out->n;
    o->plain = s->o->plain;
    o->number = (uint64_t)fl_now_ns();
    o->pair_ms = PAIR_MS;
    o->all_ms = fl_host_probe_ms(fl_host_probe_rounds(o->n), PAIR_MS);
    o->silence_ms = FL_HOST_PATIENCE * s->o->hosts->detect_ms;
    snprintf(o->links, sizeof o->links, "%s", s->o->hosts->links);
    memcpy(o->ports, s->o->hosts->ports, sizeof o->ports);
    memcpy(s->out->ports, o->ports, sizeof o->ports);
    for (int i = 1; i < o->n; i++) {
        o->absent[i] = !s->host[i].joined;
    }
    for (int i = 0; i < o->n; i++) {
        if (has_part(s, i)) {
            order_one(s, i);
        }
    }
}

/* ---- answers ---- */

/* The result of the pair a < b; NULL until it has come. */
static const fl_host_link *find_pair(const fl__survey *s, int a, int b)
{
    for (int i = 0; i < s->out->n_pairs; i++) {
        if (s->out->pair[i].a == a && s->out->pair[i].b == b) {
            return &s->out->pair[i];
        }
    }
    return NULL;
}

/* What one of the two has seen of a failure stands; of a measured pair there is one result. */
void fl__survey_take_link(fl__survey *s, int i, const fl_host_link *result)
{
    bool is_own = result->a == i || (result->b == i && !result->reached);
    if (!is_own || result->order != s->order.number || result->b >= s->out->n ||
        find_pair(s, result->a, result->b) != NULL) {
        return;
    }
    fl_host_link *pair = &s->out->pair[s->out->n_pairs++];
    *pair = *result;
    if (result->stage == FL_HOST_LINK_UNMET) {
        snprintf(pair->why, sizeof pair->why, "the process that measures the links of host %s: %s",
                 host_of(s, result->a == i ? result->b : result->a)->name, result->why);
    }
}

void fl__survey_take_unlinked(fl__survey *s, int i, uint64_t number, const char *why)
{
    if (s->order.number != 0 && number == s->order.number && s->host[i].unlinked[0] == '\0') {
        snprintf(s->host[i].unlinked, sizeof s->host[i].unlinked, "%s",
                 why[0] == '\0' ? "it does not say why" : why);
    }
}

/* A pair of which nothing is heard is not reached. */
static void add_lost(fl__survey *s, int a, int b, const char *host, const char *why)
{
    fl_host_link lost = {.a = a < b ? a : b, .b = a < b ? b : a};
    if (a != b && has_part(s, a) && has_part(s, b) && find_pair(s, lost.a, lost.b) == NULL) {
        snprintf(lost.why, sizeof lost.why, "%s%s%s%s", host[0] == '\0' ? "" : "host ", host,
                 host[0] == '\0' ? "" : ": ", why);
        s->out->pair[s->out->n_pairs++] = lost;
    }
}

static void fill_missing(fl__survey *s)
{
    for (int a = 0; a < s->out->n; a++) {
        for (int b = a + 1; b < s->out->n; b++) {
            add_lost(s, a, b, "", "no answer in time");
        }
    }
}

/* A host that measures no more is no reason for the others to wait, or to say nothing. */
static void fill_lost_hosts(fl__survey *s)
{
    for (int i = 0; i < s->out->n; i++) {
        const char *why = s->host[i].gone ? s->out->host[i].why : s->host[i].unlinked;
        for (int other = 0; why[0] != '\0' && other < s->out->n; other++) {
            add_lost(s, i, other, host_of(s, i)->name, why);
        }
    }
}

/* ---- the wait ---- */

static fl_status check_hosts(fl__survey *s)
{
    for (int i = 0; i < s->out->n; i++) {
        if (s->host[i].unlinked[0] != '\0') {
            return fl_fail(FL_EPEER, "host %s (%s): %s", host_of(s, i)->name,
                           host_of(s, i)->address, s->host[i].unlinked);
        }
    }
    return fl__survey_check_presence(s);
}

/* Pairs that fail to connect do so within seconds, and the wait goes on for all of them. A process
 * that did not come for one pair does not come for the next one either. */
static bool goes_on(const fl__survey *s)
{
    bool unmet = false;
    int n = count_parts(s);
    for (int i = 0; i < s->out->n_pairs; i++) {
        unmet = unmet || s->out->pair[i].stage == FL_HOST_LINK_UNMET;
    }
    return s->stopped == 0 && s->out->n_pairs < n * (n - 1) / 2 && (s->o->partial || !unmet);
}

static int compare_pairs(const void *a, const void *b)
{
    const fl_host_link *x = a, *y = b;
    return x->a != y->a ? x->a - y->a : x->b - y->b;
}

static fl_status refuse_pair(const fl__survey *s, const fl_host_link *p)
{
    const fl_host *a = host_of(s, p->a), *b = host_of(s, p->b);
    char ports[FL_HOSTS_PORTS_TEXT];
    if (p->stage == FL_HOST_LINK_UNCONNECTED) {
        return fl_fail(FL_EPEER,
                       "hosts %s (%s) and %s (%s) cannot talk to each other: %s; workers "
                       "connect to %s of the other host: let TCP between them through "
                       "the firewall (frostline doctor --hosts checks all pairs)",
                       a->name, a->address, b->name, b->address, p->why,
                       fl_hosts_ports_text(s->o->hosts->ports, ports));
    }
    return fl_fail(FL_EPEER, "the link between hosts %s (%s) and %s (%s) was not measured: %s%s",
                   a->name, a->address, b->name, b->address, p->why,
                   p->stage == FL_HOST_LINK_NO_PORT ? "; end them, or choose other ports" : "");
}

/* A pair explains more than others if it did not connect, and most if it could not try. */
static int explains(const fl_host_link *p)
{
    return p->stage == FL_HOST_LINK_NO_PORT ? 2 : p->stage == FL_HOST_LINK_UNCONNECTED;
}

static fl_status check_pairs(const fl__survey *s)
{
    const fl_host_link *worst = NULL;
    for (int i = 0; i < s->out->n_pairs; i++) {
        const fl_host_link *p = &s->out->pair[i];
        if (!p->reached && (worst == NULL || explains(p) > explains(worst))) {
            worst = p;
        }
    }
    return worst == NULL ? FL_OK : refuse_pair(s, worst);
}

/* A pair may have failed because the process of one host has ended, which is told a moment later.
 */
static fl_status await_reason(fl__survey *s)
{
    int64_t until_us = fl_deadline_us(REASON_MS);
    while (s->stopped == 0 && fl_left_ms(until_us) > 0) {
        fl__survey_turn(s);
        FL_TRY(check_hosts(s));
    }
    return FL_OK;
}

/* One order, and its answers. FL_EPEER: a host has no part any more. */
static fl_status measure_once(fl__survey *s)
{
    s->out->n_pairs = 0;
    s->stood_us = 0;
    order_all(s);
    int64_t until_us = fl_deadline_us(s->order.all_ms + LATE_MS);
    while (goes_on(s) && fl_left_ms(until_us) > 0) {
        fl__survey_turn(s);
        if (s->o->partial) {
            fill_lost_hosts(s);
        } else {
            FL_TRY(check_hosts(s));
        }
    }
    if (goes_on(s)) {
        fill_missing(s);
    }
    qsort(s->out->pair, (size_t)s->out->n_pairs, sizeof *s->out->pair, compare_pairs);
    return FL_OK;
}

/* Machines that stood still all together, as those of one owner: deadlines have passed that nobody
 * has missed, and rates are those of the standstill. A short standstill that
 * made no pair fail does not count.
 */
static bool wants_again(const fl__survey *s, int n_so_far)
{
    bool failed = check_pairs(s) != FL_OK;
    return s->stopped == 0 && n_so_far < ATTEMPTS && s->stood_us > (failed ? 0 : STOOD_US);
}

fl_status fl__survey_measure_links(fl__survey *s)
{
    for (int n = 1;; n++) {
        FL_TRY(measure_once(s));
        if (!s->o->partial && check_pairs(s) != FL_OK) {
            FL_TRY(await_reason(s));
        }
        if (!wants_again(s, n)) {
            return s->o->partial ? FL_OK : check_pairs(s);
        }
        if (!s->o->quiet) {
            fl_log(FL_LOG_WARN,
                   "this process stood still for %.1f s while links were measured: measures them "
                   "again",
                   (double)s->stood_us * 1e-6);
        }
    }
}
