#include "launcher/run/run_links.h"

#include "control/agent/host_survey.h"
#include "device/alloc.h"
#include "launcher/run/resume.h"

#include <string.h>

enum { JOIN_MS = 600000 }; /* as long as the gate waits */

bool fl_run_links_are_wanted(const fl_preparation *p)
{
    return p->hosts != NULL && p->cluster != NULL && !p->guesses_costs &&
           p->cluster->link[FL_LINK_HOSTS].bytes_per_us == 0.0 && !fl_resume_goes_back(p);
}

static fl_status keep_links(fl_preparation *p, const fl_host_survey *found)
{
    fl_link_cost worst;
    void *links = NULL;
    if (!fl_host_survey_worst(found, &worst)) {
        return FL_OK; /* all other hosts are absent */
    }
    FL_TRY(fl_alloc_array((size_t)found->n_pairs, sizeof *p->links, &links));
    p->links = links;
    p->n_links = found->n_pairs;
    memcpy(links, found->pair, (size_t)found->n_pairs * sizeof *p->links);
    p->profile->hosts_us = worst.latency_us;
    p->profile->hosts_bytes_per_us = worst.bytes_per_us;
    p->profile->hosts_reduce_bytes_per_us = worst.reduce_bytes_per_us;
    return FL_OK;
}

fl_status fl_run_links_measure(fl_preparation *p, const char *run_dir, int *stopped)
{
    fl_host_survey *found = NULL;
    const fl_host_survey_options options = {.hosts = p->hosts,
                                            .run_dir = run_dir,
                                            .join_ms = JOIN_MS,
                                            .plain = p->job->autodp.security == FL_SECURITY_NONE};
    FL_TRY(fl_alloc(sizeof *found, (void **)&found));
    fl_status status = fl_host_survey_run(&options, found, stopped);
    status = status == FL_OK ? keep_links(p, found) : status;
    fl_free(found);
    return status;
}
