#include "launcher/doctor/hosts/host_links.h"

#include "control/agent/measure/own_reach.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"
#include "launcher/job/job.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/machine/open_files.h"

#include <signal.h>
#include <string.h>

enum {
    JOIN_MS = 20000,
    PAIRS_EACH = 15, /* so many are listed one by one */
    TROUBLES_MAX = 24,
};

static const double MUCH = 2.0; /* a link that is so much worse than stated is worth a warning */
static const double LITTLE_US = 50.0; /* a difference of latency that changes no plan */

/* ---- measuring ---- */

static bool has_ssh(const fl_doctor_host *host)
{
    for (int i = 0; i < host->findings.n; i++) {
        const fl_finding *f = &host->findings.of[i];
        bool unasked = strcmp(f->check, "ssh") == 0 || strcmp(f->check, "answer") == 0;
        if (unasked && f->verdict == FL_VERDICT_ERROR) {
            return false;
        }
    }
    return true;
}

/* How many hosts take part, this one included. */
static int leave_out(const fl_doctor_host *asked, fl_hosts *hosts, fl_findings *findings)
{
    int n = 1;
    for (int i = 1; i < hosts->n; i++) {
        hosts->host[i].absent = !has_ssh(&asked[i]);
        n += !hosts->host[i].absent;
        if (hosts->host[i].absent) {
            fl_finding *f =
                fl_finding_add(findings, FL_VERDICT_ERROR, "pair",
                               "host %s (%s) was not measured: ssh could not ask it (see above)",
                               asked[i].name, asked[i].address);
            fl_finding_advise(f, "correct what the checks of host %s say of ssh, and check again",
                              asked[i].name);
        }
    }
    return n;
}

/* The process that measures the links of this host connects to it over the interface lo. A run with
 * stated links needs none. */
static bool reaches_itself(const fl_cluster_file *file, const fl_host *own, const fl_job *job,
                           fl_findings *findings)
{
    fl_own_reach_fault fault;
    uint16_t ports[2];
    bool stated = file->cluster.link[FL_LINK_HOSTS].bytes_per_us > 0.0;
    fl_job_ports(job, ports);
    if (fl_own_reach(own->address, ports, &fault)) {
        return true;
    }
    fl_finding *f = fl_finding_add(findings, stated ? FL_VERDICT_WARNING : FL_VERDICT_ERROR,
                                   "links", "not measured: host %s: %s", own->name, fault.found);
    fl_finding_advise(f, "on host %s: %s%s", own->name, fault.mend,
                      stated ? ""
                             : "; or state links.between_hosts in a file of hosts, and a run "
                               "measures none");
    return false;
}

static fl_status measure_pairs(const fl_cluster_file *file, const fl_hosts_source *source,
                               const fl_job *job, const fl_doctor_host *asked,
                               fl_host_survey *found, fl_findings *findings)
{
    fl_hosts *hosts = NULL;
    int stopped = 0;
    FL_TRY(fl_alloc(sizeof *hosts, (void **)&hosts));
    fl_status status = fl_hosts_make(file, source, job, hosts);
    hosts->by_ssh = hosts->apart = true; /* ssh passes the keys on: no file has them */
    const fl_host_survey_options options = {.hosts = hosts,
                                            .run_dir = "",
                                            .join_ms = JOIN_MS,
                                            .plain = job->autodp.security == FL_SECURITY_NONE,
                                            .links = true,
                                            .partial = true,
                                            .dismiss = true,
                                            .quiet = true};
    if (status == FL_OK) {
        const fl_open_files_use use = {.n_workers = hosts->n, .ports = true};
        status = fl_open_files_allow(&use);
    }
    if (status == FL_OK && leave_out(asked, hosts, findings) > 1 &&
        reaches_itself(file, &hosts->host[0], job, findings)) {
        status = fl_host_survey_run(&options, found, &stopped);
    }
    if (stopped != 0) {
        (void)raise(stopped); /* it waits again */
    }
    explicit_bzero(hosts, sizeof *hosts);
    fl_free(hosts);
    return status;
}

/* ---- what is said of it ---- */

/* Only a host from which nothing has come may be behind a firewall. */
static void advise_missing(const fl_cluster_file *file, int i, const fl_host_survey *found,
                           fl_finding *f)
{
    if (found->host[i].silent) {
        fl_finding_advise(f,
                          "TCP from host %s to %s must get through the firewall: a free port and "
                          "the next one, or those of --listen",
                          file->name[i], file->address[0]);
    } else if (found->host[i].unfit) {
        fl_finding_advise(f,
                          "correct this on host %s, because a run refuses it, too; all hosts need "
                          "the same version of frostline",
                          file->name[i]);
    } else {
        fl_finding_advise(f,
                          "a run starts the agent of host %s in the same way: correct what ended "
                          "it, and check again",
                          file->name[i]);
    }
}

static void judge_hosts(const fl_cluster_file *file, const fl_host_survey *found,
                        fl_findings *findings)
{
    for (int i = 1; i < found->n; i++) {
        if (found->host[i].joined || found->host[i].why[0] == '\0') {
            continue; /* or it was left out */
        }
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "head", "host %s (%s): %s",
                                       file->name[i], file->address[i], found->host[i].why);
        advise_missing(file, i, found, f);
    }
}

static const char *cost_text(const fl_far_link *link, char text[160])
{
    char rate[3][FL_SIZE_TEXT_MAX];
    snprintf(text, 160, "%.0f us, %s/s there, %s/s back, all-reduce %s/s", link->latency_us,
             fl_size_text(link->bytes_per_us[0] * 1e6, rate[0]),
             fl_size_text(link->bytes_per_us[1] * 1e6, rate[1]),
             fl_size_text(link->reduce_bytes_per_us * 1e6, rate[2]));
    return text;
}

/* Whether the file promises much more than was measured. */
static bool is_worse(const fl_link_cost *stated, const fl_far_link *link)
{
    fl_link_cost cost = fl_far_link_cost(link);
    return stated->bytes_per_us > 0.0 &&
           (cost.latency_us > MUCH * stated->latency_us + LITTLE_US ||
            cost.bytes_per_us * MUCH < stated->bytes_per_us ||
            cost.reduce_bytes_per_us * MUCH < stated->reduce_bytes_per_us);
}

static void refuse_pair(const fl_cluster_file *file, const fl_host_link *pair,
                        const uint16_t ports[2], fl_security security, fl_findings *findings)
{
    char text[FL_HOSTS_PORTS_TEXT];
    fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "pair", "%s (%s) and %s (%s): %s",
                                   file->name[pair->a], file->address[pair->a], file->name[pair->b],
                                   file->address[pair->b], pair->why);
    if (pair->stage == FL_HOST_LINK_UNCONNECTED) {
        fl_finding_advise(f,
                          "workers connect to %s of the other host, in both directions: let TCP "
                          "between the two addresses through the firewall%s, or give addresses at "
                          "which they reach each other",
                          fl_hosts_ports_text(ports, text),
                          ports[0] == 0 && security != FL_SECURITY_NONE
                              ? ", or set autodp.ports to those that it lets through"
                              : "");
    } else if (pair->stage == FL_HOST_LINK_NO_PORT) {
        fl_finding_advise(f, "ss -ltnp shows there which processes have them: end those, or set "
                             "autodp.ports to other ports");
    }
}

static void judge_pair(const fl_cluster_file *file, const fl_host_link *pair, bool lists,
                       fl_findings *findings)
{
    const fl_link_cost *stated = &file->cluster.link[FL_LINK_HOSTS];
    bool worse = is_worse(stated, &pair->link);
    char text[160], rate[FL_SIZE_TEXT_MAX];
    if (!worse && !lists) {
        return;
    }
    fl_finding *f =
        fl_finding_add(findings, worse ? FL_VERDICT_WARNING : FL_VERDICT_OK, "pair", "%s to %s: %s",
                       file->name[pair->a], file->name[pair->b], cost_text(&pair->link, text));
    if (worse) {
        fl_finding_advise(f,
                          "the file states %.0f us and %s/s (links.between_hosts), for which plans "
                          "are made: correct it, or leave it out, and each run measures it",
                          stated->latency_us, fl_size_text(stated->bytes_per_us * 1e6, rate));
    }
}

static void sum_up(const fl_host_survey *found, fl_findings *findings)
{
    fl_link_cost worst;
    int n = 0;
    for (int i = 0; i < found->n_pairs; i++) {
        n += found->pair[i].reached;
    }
    char pairs[FL_COUNT_BYTES], rate[2][FL_SIZE_TEXT_MAX];
    if (fl_host_survey_worst(found, &worst)) {
        fl_finding_add(findings, FL_VERDICT_OK, "links",
                       "%s measured; the worst of each: %.0f us, %s/s, all-reduce %s/s",
                       fl_count(n, "pair", pairs), worst.latency_us,
                       fl_size_text(worst.bytes_per_us * 1e6, rate[0]),
                       fl_size_text(worst.reduce_bytes_per_us * 1e6, rate[1]));
    }
}

void fl_doctor_judge_links(const fl_cluster_file *file, const fl_host_survey *found,
                           fl_security security, fl_findings *findings)
{
    judge_hosts(file, found, findings);
    for (int i = 0; i < found->n_pairs && findings->n < TROUBLES_MAX; i++) {
        if (found->pair[i].reached) {
            judge_pair(file, &found->pair[i], found->n_pairs <= PAIRS_EACH, findings);
        } else {
            refuse_pair(file, &found->pair[i], found->ports, security, findings);
        }
    }
    sum_up(found, findings);
}

void fl_doctor_look_at_host_links(const fl_cluster_file *file, const char *source,
                                  const char *listen, const fl_job *job,
                                  const fl_doctor_host *hosts, fl_host_survey *found,
                                  fl_findings *findings)
{
    const fl_hosts_source from = {.name = source, .listen = listen};
    fl_status status = measure_pairs(file, &from, job, hosts, found, findings);
    if (status != FL_OK) {
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "links", "%s", fl_errmsg());
        fl_finding_advise(f, "nothing was measured between hosts; a run ends in the same way");
        return;
    }
    fl_doctor_judge_links(file, found, job->autodp.security, findings);
}

void fl_doctor_pair_fields(const fl_cluster_file *file, const fl_host_survey *found, fl_json *j)
{
    fl_json_array(j, "pairs");
    for (int i = 0; i < found->n_pairs; i++) {
        const fl_host_link *pair = &found->pair[i];
        fl_json_object(j, NULL);
        fl_json_text(j, "a", file->name[pair->a]);
        fl_json_text(j, "b", file->name[pair->b]);
        fl_json_bool(j, "reached", pair->reached);
        if (pair->reached) {
            fl_json_rounded(j, "latency_us", pair->link.latency_us, 1);
            fl_json_rounded(j, "bytes_per_s", pair->link.bytes_per_us[0] * 1e6, 0);
            fl_json_rounded(j, "back_bytes_per_s", pair->link.bytes_per_us[1] * 1e6, 0);
            fl_json_rounded(j, "reduce_bytes_per_s", pair->link.reduce_bytes_per_us * 1e6, 0);
        }
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}
