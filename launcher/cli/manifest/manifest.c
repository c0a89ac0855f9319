/* One Indexed Job with a pod for each host, in a JobSet NAME-hosts-0-I, or by itself NAME-I. A
 * shell in each pod chooses by the index:
 *
 *     0         frostline run, with the keys of the Secret, on hosts that it names by --set
 *     others    frostline agent --join NAME-OF-THE-HEAD.NAME, which a headless service resolves
 */
#include "launcher/cli/manifest/manifest.h"

#include "device/system/alloc.h"
#include "launcher/cli/manifest/manifest_pod.h"
#include "launcher/cli/manifest/manifest_yaml.h"
#include "launcher/run/hosts/hosts.h"

#include <string.h>

enum {
    RESTARTS_OF_ONE = 3, /* failures of one pod before it stays away; evictions do not count */
    RESTARTS_OF_ALL = 3,
};

static void put_head(fl_yaml_writer *w, const char *version, const char *kind, const char *name)
{
    fl_yaml_document(w);
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "apiVersion", version);
    fl_yaml_text(w, "kind", kind);
    fl_yaml_map(w, "metadata");
    fl_yaml_text(w, "name", name);
    fl_yaml_map_end(w);
}

static void put_end(fl_yaml_writer *w)
{
    fl_yaml_map_end(w);
    fl_yaml_document_end(w);
}

static void put_label(fl_yaml_writer *w, const char *key, const fl_manifest *m)
{
    fl_yaml_map(w, key);
    fl_yaml_text(w, FL_MANIFEST_LABEL, m->name);
    fl_yaml_map_end(w);
}

/* ---- what pods need ---- */

static void put_config(fl_yaml_writer *w, const fl_manifest *m)
{
    put_head(w, "v1", "ConfigMap", m->name);
    fl_yaml_map(w, "data");
    fl_yaml_lines(w, "job.yaml", m->job);
    fl_yaml_map_end(w);
    put_end(w);
}

static fl_status put_secret(fl_yaml_writer *w, const fl_manifest *m)
{
    char agents[FL_HOSTS_KEYS_TEXT] = "", head[FL_HOSTS_KEYS_TEXT] = "", name[64];
    FL_TRY(fl_hosts_print_keys(agents, head));
    fl_manifest_secret(m, name, sizeof name);
    put_head(w, "v1", "Secret", name);
    fl_yaml_text(w, "type", "Opaque");
    fl_yaml_map(w, "stringData");
    fl_yaml_lines(w, FL_MANIFEST_AGENTS_KEY, agents);
    fl_yaml_lines(w, FL_MANIFEST_HEAD_KEY, head);
    fl_yaml_map_end(w);
    put_end(w);
    explicit_bzero(agents, sizeof agents);
    explicit_bzero(head, sizeof head);
    return FL_OK;
}

/* Names of pods resolve before the pods are ready. A JobSet makes such a service itself. */
static void put_service(fl_yaml_writer *w, const fl_manifest *m)
{
    put_head(w, "v1", "Service", m->name);
    fl_yaml_map(w, "spec");
    fl_yaml_text(w, "clusterIP", "None");
    fl_yaml_boolean(w, "publishNotReadyAddresses", true);
    put_label(w, "selector", m);
    fl_yaml_map_end(w);
    put_end(w);
}

/* One pod at a time: a host that must leave is drained by one transition. */
static void put_budget(fl_yaml_writer *w, const fl_manifest *m)
{
    put_head(w, "policy/v1", "PodDisruptionBudget", m->name);
    fl_yaml_map(w, "spec");
    fl_yaml_integer(w, "minAvailable", m->n_hosts - 1);
    fl_yaml_map(w, "selector");
    put_label(w, "matchLabels", m);
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
    put_end(w);
}

/* ---- jobs ---- */

/* A pod that has ended before the run is made again, under its name and with another address: an
 * agent joins the run, and the head continues it. The Job is done with the head's pod. */
static void put_job_spec(fl_yaml_writer *w, const fl_manifest *m)
{
    fl_yaml_map(w, "spec");
    fl_yaml_text(w, "completionMode", "Indexed");
    fl_yaml_integer(w, "completions", m->n_hosts);
    fl_yaml_integer(w, "parallelism", m->n_hosts);
    fl_yaml_integer(w, "backoffLimitPerIndex", RESTARTS_OF_ONE);
    fl_manifest_put_policies(w);
    fl_yaml_map(w, "template");
    fl_yaml_map(w, "metadata");
    put_label(w, "labels", m);
    fl_yaml_map_end(w);
    fl_manifest_put_pod(w, m);
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
}

static void put_job(fl_yaml_writer *w, const fl_manifest *m)
{
    put_head(w, "batch/v1", "Job", m->name);
    put_job_spec(w, m);
    put_end(w);
}

static void put_replicated(fl_yaml_writer *w, const fl_manifest *m)
{
    fl_yaml_list(w, "replicatedJobs");
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", FL_MANIFEST_HOSTS);
    fl_yaml_integer(w, "replicas", 1);
    fl_yaml_map(w, "template");
    put_job_spec(w, m);
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
    fl_yaml_list_end(w);
}

/* Where the pods of a Job have failed too often, all start again, but not after bad input or a
 * user's stop. */
static void put_restarts(fl_yaml_writer *w)
{
    fl_yaml_map(w, "failurePolicy");
    fl_yaml_integer(w, "maxRestarts", RESTARTS_OF_ALL);
    fl_yaml_list(w, "rules");
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", "noRetry");
    fl_yaml_text(w, "action", "FailJobSet");
    fl_yaml_list(w, "onJobFailureReasons");
    fl_yaml_text(w, NULL, "PodFailurePolicy");
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
}

static void put_job_set(fl_yaml_writer *w, const fl_manifest *m)
{
    put_head(w, "jobset.x-k8s.io/v1alpha2", "JobSet", m->name);
    fl_yaml_map(w, "spec");
    fl_yaml_map(w, "network");
    fl_yaml_boolean(w, "enableDNSHostnames", true);
    fl_yaml_text(w, "subdomain", m->name);
    fl_yaml_boolean(w, "publishNotReadyAddresses", true);
    fl_yaml_map_end(w);
    put_restarts(w);
    put_replicated(w, m);
    fl_yaml_map_end(w);
    put_end(w);
}

fl_status fl_manifest_write(const fl_manifest *m, FILE *stream)
{
    fl_yaml_writer *w = NULL;
    FL_TRY(fl_yaml_writer_create(stream, &w));
    put_config(w, m);
    fl_status status = m->secret == NULL ? put_secret(w, m) : FL_OK;
    put_budget(w, m);
    if (m->plain) {
        put_service(w, m);
        put_job(w, m);
    } else {
        put_job_set(w, m);
    }
    fl_status end = fl_yaml_finish(w);
    fl_yaml_writer_destroy(&w);
    return status == FL_OK ? end : status;
}
