/* The clocks of the other hosts, from their answers to PING (control/state/hosts/host_clock.h). */
#include "control/agent/gate/gate_state.h"

#include "device/errors/log.h"
#include "device/system/clock.h"

#include <math.h>
#include <stdio.h>

enum {
    ALIVES = 8,        /* in the time after which silence counts as loss */
    CLOCK_US = 250000, /* between two looks at the hosts' clocks, at most */
};

/* By which two times of day may differ before anybody takes notice. */
static const int64_t APART_NS = INT64_C(3000000000);

int64_t fl__gate_between_pings_us(const fl__gate *g)
{
    int64_t us = g->hosts->detect_ms * 1000 / ALIVES;
    for (int i = 1; i < g->hosts->n; i++) {
        const fl__remote_host *r = &g->remote[i];
        if (r->state == FL__HOST_JOINED && r->n_first_pings < FL__GATE_FIRST_PINGS) {
            return 0; /* one a turn; not more of them for an answer that tells no clock */
        }
    }
    return us < CLOCK_US ? us : CLOCK_US;
}

/* "12 s", "3.5 hours", "29.1 years" */
static const char *show_span(double s, char text[32])
{
    static const struct {
        double s;
        const char *name;
    } units[] = {{365.25 * 86400, "years"}, {86400, "days"}, {3600, "hours"}, {60, "minutes"}};
    snprintf(text, 32, "%.0f s", s);
    for (int i = 0; i < 4; i++) {
        if (s >= 2 * units[i].s) {
            snprintf(text, 32, "%.1f %s", s / units[i].s, units[i].name);
            break;
        }
    }
    return text;
}

/* Once. The sample may be wrong by half its round trip. */
static void tell_apart(fl__gate *g, int i, const fl_clock_sample *sample)
{
    char span[32];
    const fl_host *host = &g->hosts->host[i];
    double apart_ns = fabs((double)sample->wall_offset_ns);
    if (g->remote[i].told_clock ||
        apart_ns <= (double)(APART_NS + sample->got_ns - sample->sent_ns)) {
        return;
    }
    g->remote[i].told_clock = true;
    fl_log(FL_LOG_WARN,
           "the time of day of host %s (%s) is %s %s this host's: set the clock that is wrong "
           "(chronyd, systemd-timesyncd); the times in its log lines are not those of this host",
           host->name, host->address, show_span(apart_ns * 1e-9, span),
           sample->wall_offset_ns < 0 ? "behind" : "ahead of");
}

/* a - b, or the nearest number to it. */
static int64_t subtract(int64_t a, int64_t b)
{
    int64_t difference = 0;
    return !__builtin_sub_overflow(a, b, &difference) ? difference : a < 0 ? INT64_MIN : INT64_MAX;
}

void fl__gate_take_time(fl__gate *g, int i, const fl_host_message *pong)
{
    fl__remote_host *r = &g->remote[i];
    int64_t got_ns = fl_now_ns(), middle_ns = (got_ns - pong->clock.sent_ns) / 2;
    int64_t here_ns = subtract(fl_now_wall_ns(), middle_ns); /* when it was read there */
    const fl_clock_sample sample = {.sent_ns = pong->clock.sent_ns,
                                    .got_ns = got_ns,
                                    .there_ns = pong->clock.there_ns,
                                    .wall_offset_ns = subtract(pong->clock.wall_ns, here_ns)};
    fl_host_clock_add(&r->clock, &sample);
    r->owes[FL_HOST_NEWS_CLOCK] = r->clock.n > 0;
    tell_apart(g, i, &sample);
}
