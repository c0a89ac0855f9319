#include "control/agent/join/awaited.h"

#include "device/errors/log.h"

#include <stdio.h>
#include <string.h>

enum {
    NAMED_MOST = 4,
    FIRST_US = 10 * 1000 * 1000,
    PAUSE_MOST_US = 60 * 1000 * 1000,
    LOOK_US = 500 * 1000,
};

const char *fl_awaited_names(const fl_hosts *hosts, const bool *awaited, char text[FL_AWAITED_TEXT])
{
    int n = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < hosts->n; i++) {
        if (awaited[i] && n++ < NAMED_MOST) {
            used +=
                (size_t)snprintf(text + used, FL_AWAITED_TEXT - used, "%s%s (%s)",
                                 n == 1 ? "" : ", ", hosts->host[i].name, hosts->host[i].address);
        }
    }
    if (n > NAMED_MOST) {
        snprintf(text + used, FL_AWAITED_TEXT - used, " and %d more", n - NAMED_MOST);
    }
    return text;
}

void fl_awaited_begin(fl_awaited_clock *clock, int64_t now_us)
{
    *clock =
        (fl_awaited_clock){.begun_us = now_us, .due_us = now_us + FIRST_US, .pause_us = FIRST_US};
}

bool fl_awaited_is_due(fl_awaited_clock *clock, int64_t now_us)
{
    if (clock->begun_us == 0 || now_us < clock->due_us) {
        return false;
    }
    clock->pause_us = 2 * clock->pause_us < PAUSE_MOST_US ? 2 * clock->pause_us : PAUSE_MOST_US;
    clock->due_us = now_us + clock->pause_us;
    return true;
}

void fl_awaited_tell(fl_awaited_clock *clock, const fl_hosts *hosts, const bool *awaited,
                     int64_t limit_ms, int64_t now_us)
{
    char names[FL_AWAITED_TEXT];
    if (memchr(awaited, 1, (size_t)hosts->n) != NULL && fl_awaited_is_due(clock, now_us)) {
        fl_log(FL_LOG_INFO, "still waits for the agent of %s, for %lld s at most (Ctrl-C ends it)",
               fl_awaited_names(hosts, awaited, names),
               (long long)(limit_ms - (now_us - clock->begun_us) / 1000) / 1000);
    }
}

bool fl_awaited_looks_at_tasks(const fl_hosts *hosts, int64_t now_us, int64_t *looked_us)
{
    bool due = hosts->meeting[0] != '\0' && now_us - *looked_us > LOOK_US;
    *looked_us = due ? now_us : *looked_us;
    return due;
}
