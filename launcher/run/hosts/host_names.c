#include "launcher/run/hosts/host_names.h"

#include "device/errors/log.h"
#include "device/system/clock.h"
#include "launcher/run/hosts/host_address.h"

#include <time.h>

enum { LOOK_MS = 500, SHOW_MS = 10000 };

/* The first name from `i` on that has no address; n: all have one. */
static int find_missing(const char *const *names, int i, int n)
{
    char address[FL_ADDRESS_TEXT];
    while (i < n && fl_host_address(names[i], address) == FL_OK) {
        i++;
    }
    return i;
}

fl_status fl_host_names_await(const char *const *names, int n, int64_t timeout_ms)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    int64_t until_us = fl_deadline_us(timeout_ms), show_us = 0;
    int missing = 0;
    while ((missing = find_missing(names, missing, n)) < n) {
        if (fl_left_ms(until_us) == 0) {
            return fl_fail(FL_EDEADLINE, "%s: no IPv4 address in %lld s", names[missing],
                           (long long)timeout_ms / 1000);
        }
        if (fl_left_ms(show_us) == 0) {
            fl_log(FL_LOG_INFO,
                   "waits for the address of %s (host %d of %d), for %lld s at most (Ctrl-C ends "
                   "it)",
                   names[missing], missing + 1, n, (long long)(fl_left_ms(until_us) + 999) / 1000);
            show_us = fl_deadline_us(SHOW_MS);
        }
        (void)nanosleep(&pause, NULL);
    }
    return FL_OK;
}

void fl_host_names_warn(const fl_job *job)
{
    char address[FL_ADDRESS_TEXT];
    for (int64_t i = 0; i < job->n_hosts; i++) {
        if (fl_host_address(job->hosts[i].address, address) != FL_OK) {
            fl_log(FL_LOG_WARN,
                   "host %s: %s; a plan does not need the address of a host, and a run does",
                   job->hosts[i].name, fl_errmsg());
            return;
        }
    }
}
