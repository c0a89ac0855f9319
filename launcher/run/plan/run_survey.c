#include "launcher/run/plan/run_survey.h"

#include "control/agent/join/awaited.h"
#include "control/agent/join/host_start.h"
#include "control/agent/survey/host_survey.h"
#include "control/agent/wire/host_wire.h"
#include "device/system/alloc.h"
#include "launcher/run/plan/found_kinds.h"
#include "launcher/run/plan/own_costs.h"
#include "launcher/run/plan/resume.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MEASURE_MS = 180000, /* for a host to open its data and to measure */
};

bool fl_run_survey_measures_links(const fl_preparation *p)
{
    return p->hosts != NULL && p->cluster != NULL && !p->guesses_costs &&
           p->cluster->link[FL_LINK_HOSTS].bytes_per_us == 0.0 && !fl_resume_goes_back(p);
}

bool fl_run_survey_is_wanted(const fl_preparation *p)
{
    return fl_run_survey_measures_links(p) || fl_found_kinds_are_wanted(p);
}

/* ---- kinds ---- */

static bool wants_costs(void *context, int host, const fl_machine_kind *kind)
{
    return fl_found_kinds_want(context, host, kind);
}

static void take_costs(void *context, int host, const char *text, size_t n, const char *why)
{
    fl_found_kinds_take(context, host, text, n, why);
}

/* ---- links ---- */

static fl_status keep_links(fl_preparation *p, const fl_host_survey *found)
{
    fl_link_cost worst;
    void *links = NULL;
    if (!fl_host_survey_worst(found, &worst)) {
        return FL_OK; /* all other hosts are absent, or links are stated */
    }
    FL_TRY(fl_alloc_array((size_t)found->n_pairs, sizeof *p->links, &links));
    p->links = links;
    p->n_links = found->n_pairs;
    memcpy(links, found->pair, (size_t)found->n_pairs * sizeof *p->links);
    fl_found_kinds_take_links(p, &worst);
    return FL_OK;
}

/* ---- both ---- */

static fl_status check_own(const void *own)
{
    return fl_own_costs_check(own);
}

typedef struct survey_parts {
    char cwd[PATH_MAX];
    fl_host_survey found;
} survey_parts;

static fl_status survey_with(fl_preparation *p, const char *run_dir, const char *job,
                             fl_own_costs *own, survey_parts *s, int *stopped)
{
    bool kinds = fl_found_kinds_are_wanted(p);
    if (getcwd(s->cwd, sizeof s->cwd) == NULL) {
        return fl_fail(FL_EIO, "the working directory: %s", strerror(errno));
    }
    if (p->own_costs_unknown) {
        FL_TRY(fl_own_costs_start(p, own));
    }
    const fl_host_measuring measuring = {.job = job,
                                         .job_bytes = strlen(job),
                                         .cwd = s->cwd,
                                         .all_ms = MEASURE_MS,
                                         .own_fd = own->fd,
                                         .own = own,
                                         .check_own = check_own,
                                         .context = p,
                                         .wants = wants_costs,
                                         .take = take_costs};
    const fl_host_survey_options options = {.hosts = p->hosts,
                                            .starters = p->starters,
                                            .held_ports = p->held_ports,
                                            .n_ranks = p->n_ranks,
                                            .run_dir = run_dir,
                                            .recorded = true,
                                            .join_ms = FL_AWAITED_JOIN_MS,
                                            .links = fl_run_survey_measures_links(p),
                                            .measuring = kinds ? &measuring : NULL,
                                            .plain = p->job->autodp.security == FL_SECURITY_NONE};
    FL_TRY(fl_host_survey_run(&options, &s->found, stopped));
    p->hosts_measured = true;
    FL_TRY(fl_own_costs_take(own, p));
    return keep_links(p, &s->found);
}

fl_status fl_run_survey(fl_preparation *p, const char *run_dir, const char *job, int *stopped)
{
    survey_parts *s = NULL;
    fl_own_costs own = {.fd = -1};
    FL_TRY(fl_alloc(sizeof *s, (void **)&s));
    fl_status status = survey_with(p, run_dir, job, &own, s, stopped);
    fl_own_costs_end(&own);
    fl_free(s);
    return status;
}

fl_status fl_run_start_agents(const fl_preparation *p, const char *run_dir)
{
    const fl_hosts *hosts = p->hosts;
    for (int i = 1; hosts != NULL && hosts->by_ssh && i < hosts->n; i++) {
        bool is_there = hosts->host[i].absent || p->starters[i].pid > 0;
        if (!is_there && !fl_host_start(hosts, i, run_dir, &p->starters[i])) {
            return fl_fail(FL_EIO, "host %s: cannot start ssh: %s", hosts->host[i].name,
                           strerror(errno));
        }
    }
    return FL_OK;
}
