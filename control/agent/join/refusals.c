#include "control/agent/join/refusals.h"

#include "device/errors/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { EVERY_US = 60000000 };

static bool is_due(int64_t told_us, int64_t now_us)
{
    return told_us == 0 || now_us - told_us >= EVERY_US;
}

/* The place of this address, or else one that is free, or whose minute is over; -1: all are in use.
 */
static int find_place(const fl_refusals *r, const char *address, int64_t now_us)
{
    int place = -1;
    for (int i = 0; i < FL_REFUSALS_MAX; i++) {
        if (r->of[i].told_us != 0 && strcmp(r->of[i].address, address) == 0) {
            return i;
        }
        if (place < 0 && is_due(r->of[i].told_us, now_us)) {
            place = i;
        }
    }
    return place;
}

static void tell_refusal(const char *host, const char *address, const char *why, int64_t n_silent)
{
    char of[FL_HOST_TEXT + 16] = "", at[FL_HOST_TEXT + 16] = "", before[64] = "";
    if (host[0] != '\0') {
        snprintf(of, sizeof of, " for host %s", host);
    }
    if (address[0] != '\0') {
        snprintf(at, sizeof at, " from %s", address);
    }
    if (n_silent > 0) {
        snprintf(before, sizeof before, " (and %" PRId64 " from there before)", n_silent);
    }
    fl_log(FL_LOG_WARN, "refused an agent%s%s%s: %s", of, at, before, why);
}

void fl_refusals_tell(fl_refusals *r, const char *host, const char *address, const char *why,
                      int64_t now_us)
{
    int i = find_place(r, address, now_us);
    if (i < 0) {
        return;
    }
    bool is_known = r->of[i].told_us != 0 && strcmp(r->of[i].address, address) == 0;
    if (is_known && !is_due(r->of[i].told_us, now_us)) {
        r->of[i].n_silent++;
        return;
    }
    tell_refusal(host, address, why, is_known ? r->of[i].n_silent : 0);
    snprintf(r->of[i].address, sizeof r->of[i].address, "%s", address);
    r->of[i].told_us = now_us;
    r->of[i].n_silent = 0;
}
