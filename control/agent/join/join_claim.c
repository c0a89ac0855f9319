#include "control/agent/join/join_claim.h"

#include <stdio.h>
#include <string.h>

enum { TURN_US = 2000000 }; /* an agent asks three times a second */

bool fl_join_has_version(const fl_host_join *join, char why[FL_HOST_TEXT_MAX + 1])
{
    bool same = strcmp(join->version, FL_VERSION) == 0;
    if (!same) {
        snprintf(why, FL_HOST_TEXT_MAX + 1, "it has frostline %.60s, and the head %s",
                 join->version, FL_VERSION);
    }
    return same;
}

void fl_join_other_version(char why[FL_HOST_TEXT_MAX + 1])
{
    snprintf(why, FL_HOST_TEXT_MAX + 1, "it has another version of frostline: %.150s", fl_errmsg());
}

bool fl_join_speaks_for(const fl_hosts *hosts, int i, const fl_host_peer *from)
{
    bool is_others = false;
    for (int k = 0; k < hosts->n; k++) {
        bool same = strcmp(hosts->host[k].address, from->address) == 0;
        if (same && k == i) {
            return true;
        }
        is_others = is_others || same;
    }
    return !is_others;
}

bool fl_join_rival_is_refused(fl_join_rival *rival, const fl_host_peer *from, int64_t heard_us,
                              int64_t now_us)
{
    bool has_turn = rival->since_us != 0 && fl_host_peer_is(&rival->peer, from);
    if (!has_turn && rival->since_us != 0 && now_us - rival->asked_us <= TURN_US) {
        return false; /* another one has it */
    }
    if (!has_turn) {
        *rival = (fl_join_rival){.peer = *from, .since_us = now_us};
    }
    rival->asked_us = now_us;
    bool refused = heard_us > rival->since_us;
    if (refused) {
        rival->since_us = 0;
    }
    return refused;
}
