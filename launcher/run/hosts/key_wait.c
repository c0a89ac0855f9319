#include "launcher/run/hosts/key_wait.h"

#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/text/shown_text.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 200 };

static bool is_missing(const char *path)
{
    return access(path, F_OK) != 0 && errno == ENOENT;
}

fl_status fl_host_key_await(const char *path, int64_t timeout_ms)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    char shown[FL_SHOWN_PATH_BYTES];
    fl_text_shown(path, shown, sizeof shown);
    int64_t until_us = fl_deadline_us(timeout_ms);
    for (bool told = false; is_missing(path); told = true) {
        if (fl_left_ms(until_us) == 0) {
            return fl_fail(FL_EDEADLINE,
                           "%s: no such file in %lld s; the head writes it when its run begins",
                           shown, (long long)timeout_ms / 1000);
        }
        if (!told) {
            fl_log(FL_LOG_INFO, "waits up to %lld s for the head to write %s (Ctrl-C ends it)",
                   (long long)timeout_ms / 1000, shown);
        }
        (void)nanosleep(&pause, NULL);
    }
    return FL_OK;
}
