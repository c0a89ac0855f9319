#include "launcher/run/checks/loopback.h"

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

bool fl_loopback_works(const fl_preparation *p, fl_loopback_fault *fault)
{
    const fl_host *host = fl_preparation_own_host(p);
    char text[2 * FL_COUNT_BYTES];
    const char *need = find_need(p, host, text);
    fl_own_reach_fault reach;
    uint16_t ports[2] = {0, 0};
    if (host != NULL) {
        fl_job_ports(p->job, ports);
    }
    if (need == NULL || fl_own_reach(host == NULL ? "127.0.0.1" : host->address, ports, &reach)) {
        return true;
    }
    fault->allowed = reach.allowed;
    fault->mend = reach.mend;
    snprintf(fault->found, sizeof fault->found, "%s: %s", need, reach.found);
    return false;
}

fl_status fl_loopback_check(const fl_preparation *p)
{
    const fl_host *host = fl_preparation_own_host(p);
    fl_loopback_fault fault;
    if (fl_loopback_works(p, &fault)) {
        return FL_OK;
    }
    bool named = host != NULL && p->joined == NULL; /* the head names a host that joins */
    return fl_fail(FL_ENOTSUP, "%s%s%s%s; allowed: %s (`frostline doctor`%s%s checks it)",
                   named ? "host " : "", named ? host->name : "", named ? ": " : "", fault.found,
                   fault.allowed, host == NULL ? "" : " on host ", host == NULL ? "" : host->name);
}
