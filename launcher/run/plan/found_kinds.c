#include "launcher/run/plan/found_kinds.h"

#include "device/errors/log.h"
#include "launcher/run/plan/resume.h"

#include <stdio.h>
#include <string.h>

static const fl_host *host_of(const fl_preparation *p, int i)
{
    return &p->hosts->host[i];
}

/* ---- whether it matters ---- */

/* K, R and M are given, and there is one stage: no cut, and no place of a stage, is left to
 * choose. */
static bool is_plan_given(const fl_job *job)
{
    return job->pipe.k == 1 && job->autodp.r != FL_JOB_AUTO && job->pipe.m != FL_JOB_AUTO &&
           job->freeze.policy == FL_FREEZE_NONE && job->elastic.n_script == 0;
}

bool fl_found_kinds_are_wanted(const fl_preparation *p)
{
    bool any = false;
    if (p->found == NULL || p->hosts == NULL || p->cluster_file == NULL || p->guesses_costs ||
        fl_resume_goes_back(p) || is_plan_given(p->job)) {
        return false;
    }
    for (int i = 1; i < p->hosts->n && i < p->cluster_file->cluster.n_hosts; i++) {
        any = any || (!host_of(p, i)->absent && !fl_cluster_file_states_costs(p->cluster_file, i));
    }
    return any;
}

/* ---- a kind ---- */

static int count_stated(const fl_cluster_file *file)
{
    int n = 0;
    for (int i = 0; i < file->cluster.n_hosts; i++) {
        bool is_first = file->profile[i][0] != '\0';
        for (int j = 0; j < i && is_first; j++) {
            is_first = strcmp(file->profile[i], file->profile[j]) != 0;
        }
        n += is_first;
    }
    return n;
}

static void read_kept(const fl_preparation *p, fl_found_kind *k)
{
    if (strcmp(p->job->pipe.profile, "none") != 0) {
        fl_costs_cache_path(&k->key, k->path);
    }
    if (k->path[0] == '\0') {
        return;
    }
    fl_status status = fl_profile_read(k->path, &k->key, p->model, &k->profile, &k->about);
    if (status == FL_OK) {
        k->from = "cached";
    } else if (status != FL_EIO) {
        fl_log(FL_LOG_WARN, "%s; the costs of host %s are measured again", fl_errmsg(), k->host);
    }
}

/* The place of this kind plus 1; 0 without room for it. *is_new: it was not there. */
static int find_kind(fl_preparation *p, int host, const char *kind, bool *is_new)
{
    fl_found_kinds *f = p->found;
    *is_new = false;
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->of[i].kind, kind) == 0) {
            return i + 1;
        }
    }
    if (f->n + count_stated(p->cluster_file) >= FL_KINDS_MAX) {
        fl_log(FL_LOG_WARN,
               "host %s (%s): there are more than %d kinds of hosts; plans use the head's profile "
               "for it",
               host_of(p, host)->name, kind, FL_KINDS_MAX);
        return 0;
    }
    fl_found_kind *k = &f->of[f->n++];
    memset(k, 0, sizeof *k);
    snprintf(k->kind, sizeof k->kind, "%s", kind);
    snprintf(k->host, sizeof k->host, "%s", host_of(p, host)->name);
    fl_profile_key_of_kind(&p->costs->key, p->job, kind, host_of(p, host)->n, &k->key);
    *is_new = true;
    return f->n;
}

bool fl_found_kinds_want(fl_preparation *p, int host, const fl_machine_kind *kind)
{
    fl_machine_kind own;
    bool is_new;
    fl_machine_kind_read("", &own);
    const char *text = fl_machine_kind_of(kind, p->job->devices.kind);
    bool is_own = strcmp(text, fl_machine_kind_of(&own, p->job->devices.kind)) == 0;
    if (fl_cluster_file_states_costs(p->cluster_file, host) || is_own) {
        return false;
    }
    int place = find_kind(p, host, text, &is_new);
    p->found->kind_of[host] = place;
    if (!is_new) {
        return false;
    }
    read_kept(p, &p->found->of[place - 1]);
    return p->found->of[place - 1].from == NULL;
}

/* ---- what was measured ---- */

static void keep_profile(const fl_preparation *p, const fl_found_kind *k)
{
    if (k->path[0] != '\0' &&
        fl_profile_write(k->path, &k->key, p->model, &k->profile, &k->about) != FL_OK) {
        fl_log(FL_LOG_WARN, "the costs of host %s are not kept: %s", k->host, fl_errmsg());
    }
}

void fl_found_kinds_take(fl_preparation *p, int host, const char *text, size_t n, const char *why)
{
    fl_found_kind *k = &p->found->of[p->found->kind_of[host] - 1];
    char name[FL_HOST_TEXT + 32];
    snprintf(name, sizeof name, "the profile of host %s", k->host);
    if (text != NULL &&
        fl_profile_parse(name, text, n, NULL, p->model, &k->profile, &k->about) != FL_OK) {
        why = fl_errmsg();
        text = NULL;
    }
    if (text == NULL) {
        fl_log(FL_LOG_WARN,
               "host %s: what layers cost there is not known: %s; plans use the head's profile for "
               "it",
               k->host, why);
        return;
    }
    k->from = "measured";
    fl_costs_tell_time(&k->about); /* by the head's clock */
    keep_profile(p, k);
}

/* ---- links ---- */

static void put_links(fl_profile *profile, const fl_link_cost *links)
{
    profile->hosts_us = links->latency_us;
    profile->hosts_bytes_per_us = links->bytes_per_us;
    profile->hosts_reduce_bytes_per_us = links->reduce_bytes_per_us;
}

void fl_found_kinds_take_links(fl_preparation *p, const fl_link_cost *links)
{
    put_links(p->profile, links);
    if (p->found != NULL) {
        p->found->links = *links;
    }
}

void fl_found_kinds_use_links(fl_preparation *p)
{
    if (p->found != NULL && p->found->links.bytes_per_us > 0.0) {
        put_links(p->profile, &p->found->links);
    }
}
