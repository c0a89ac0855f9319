#include "launcher/run/plan/loopback.h"

#include "control/agent/measure/own_reach.h"
#include "device/text/plural.h"
#include "launcher/job/job.h"
#include "launcher/run/plan/run_survey.h"

#include <stdio.h>

/* What fails without loopback; NULL: nothing does. */
static const char *find_need(const fl_preparation *p, const fl_host *host,
                             char text[2 * FL_COUNT_BYTES])
{
    char workers[FL_COUNT_BYTES];
    int n = host == NULL ? p->n_ranks : host->n;
    if (n > 1) {
        fl_count_range(host == NULL ? 0 : host->first, n, "worker", workers);
        snprintf(text, 2 * FL_COUNT_BYTES, "%s cannot reach each other", workers);
        return text;
    }
    return fl_run_survey_measures_links(p) ? "its links cannot be measured" : NULL;
}

fl_status fl_loopback_check(const fl_preparation *p)
{
    const fl_host *host = fl_preparation_own_host(p);
    const char *address = host == NULL ? "127.0.0.1" : host->address;
    char text[2 * FL_COUNT_BYTES], why[FL_REACH_WHY_MAX + 1];
    const char *need = find_need(p, host, text);
    uint16_t ports[2] = {0, 0};
    if (host != NULL) {
        fl_job_ports(p->job, ports);
    }
    if (need == NULL || fl_own_reach(address, ports, why)) {
        return FL_OK;
    }
    return fl_fail(FL_ENOTSUP,
                   "%s%s%s%s: loopback is filtered: %s over the interface lo, %s; allowed: a "
                   "firewall that accepts what goes over lo (`frostline doctor`%s%s checks it)",
                   host == NULL ? "" : "host ", host == NULL ? "" : host->name,
                   host == NULL ? "" : ": ", need, address, why, host == NULL ? "" : " on host ",
                   host == NULL ? "" : host->name);
}
