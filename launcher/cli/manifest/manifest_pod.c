#include "launcher/cli/manifest/manifest_pod.h"

#include "launcher/cli/cli.h"
#include "launcher/job/job.h"

#include <inttypes.h>
#include <string.h>

#define FOLDER "/etc/frostline"
#define KEYS FOLDER "/keys"
#define HEAD_KEY KEYS "/" FL_MANIFEST_HEAD_KEY
#define JOB FOLDER "/job.yaml"

enum {
    WAIT_S = 600, /* as long as the head waits for agents */
    HOST_TEXT = 64,
    WORD_MAX = 2 * (FL_JOB_FILE_MAX + FL_TEXT_MAX), /* twice the longest --set */
    PROBE_S = 10,
    START_PROBES = 180, /* of the head, which waits for all others */
    LIVE_PROBES = 30,   /* it goes back after a loss, and does not answer meanwhile */
};

#define IF_HEAD "[ \"$JOB_COMPLETION_INDEX\" = 0 ]"

void fl_manifest_host(const fl_manifest *m, int i, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, m->plain ? "%s-%d" : "%s-" FL_MANIFEST_HOSTS "-0-%d", m->name, i);
}

void fl_manifest_secret(const fl_manifest *m, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, m->secret == NULL ? "%s-keys" : "%s",
             m->secret == NULL ? m->name : m->secret);
}

/* ---- commands ---- */

/* Kubernetes replaces $(NAME) in commands; $$ stands for $. */
static void put_word(fl_yaml_writer *w, const char *word)
{
    char text[WORD_MAX];
    size_t used = 0;
    for (; *word != '\0' && used + 3 < sizeof text; word++) {
        if (*word == '$' && (word[1] == '(' || word[1] == '$')) {
            text[used++] = '$';
        }
        text[used++] = *word;
    }
    text[used] = '\0';
    fl_yaml_text(w, NULL, text);
}

static void put_words(fl_yaml_writer *w, const char *const *words)
{
    for (; *words != NULL; words++) {
        put_word(w, *words);
    }
}

void fl_manifest_set_hosts(const fl_manifest *m, fl_job *job)
{
    char name[HOST_TEXT];
    memset(job->hosts, 0, sizeof job->hosts);
    job->n_hosts = m->n_hosts;
    for (int i = 0; i < m->n_hosts; i++) {
        fl_job_host *host = &job->hosts[i];
        fl_manifest_host(m, i, name, sizeof name);
        host->sockets = FL_LIST_ABSENT;
        if (m->like != NULL) {
            *host = *m->like;
        }
        host->devices = m->n_devices;
        snprintf(host->name, sizeof host->name, "%s", name);
        snprintf(host->address, sizeof host->address, "%s.%s", name, m->name);
    }
}

/* "hosts=[{name: n-0, address: n-0.n, devices: 2}, ...]" */
static void put_hosts(fl_yaml_writer *w, const fl_manifest *m)
{
    static const char field[] = "hosts";
    char text[sizeof field + FL_FIELD_VALUE_MAX] = "hosts=";
    fl_job job;
    fl_job_defaults(&job);
    fl_manifest_set_hosts(m, &job);
    fl_field_format(fl_schema_field(fl_schema_find(field)), &job, text + sizeof field);
    put_word(w, text);
}

/* Where the head listens: a name that the service resolves. */
static void write_join(const fl_manifest *m, char *text, size_t size_bytes)
{
    char name[HOST_TEXT];
    fl_manifest_host(m, 0, name, sizeof name);
    snprintf(text, size_bytes, "tcp://%s.%s:%d", name, m->name, FL_MANIFEST_PORT);
}

static void put_run(fl_yaml_writer *w, const fl_manifest *m)
{
    static const char job[] = JOB, key[] = HEAD_KEY;
    char listen[2 * HOST_TEXT];
    write_join(m, listen, sizeof listen);
    const char *const words[] = {"run",   job, "--continue", "--run-dir", m->run_dir,
                                 "--key", key, "--listen",   listen,      NULL};
    put_words(w, words);
    for (int i = 0; i < m->n_overrides; i++) {
        put_words(w, (const char *const[]){"--set", m->overrides[i], NULL});
    }
    put_word(w, "--set");
    put_hosts(w, m);
}

/* The arguments are the head's. */
static void put_command(fl_yaml_writer *w, const fl_manifest *m)
{
    char script[1024], join[2 * HOST_TEXT];
    write_join(m, join, sizeof join);
    snprintf(script, sizeof script,
             IF_HEAD " && exec frostline \"$@\"; exec frostline agent --join %s --key " KEYS
                     "/" FL_MANIFEST_AGENTS_KEY " --grace %" PRId64 " --wait %d",
             join, m->grace_s, WAIT_S);
    fl_yaml_list(w, "command");
    put_words(w, (const char *const[]){"sh", "-c", script, "frostline", NULL});
    fl_yaml_list_end(w);
    fl_yaml_list(w, "args");
    put_run(w, m);
    fl_yaml_list_end(w);
}

/* ---- probes ---- */

/* The head answers while it trains. An agent ends by itself when it loses the head, and may wait
 * for it long: it is only not to be stopped. As process 1 it is neither a zombie nor dead. */
static void put_probe(fl_yaml_writer *w, const fl_manifest *m, const char *kind, int failures)
{
    static const char script[] =
        IF_HEAD " && exec frostline \"$@\"; read -r pid name state rest </proc/1/stat; "
                "[ \"$state\" != T ] && [ \"$state\" != t ]";
    fl_yaml_map(w, kind);
    fl_yaml_map(w, "exec");
    fl_yaml_list(w, "command");
    put_words(w, (const char *const[]){"sh", "-c", script, "frostline", "ctl", "--timeout", "5",
                                       m->run_dir, "status", NULL});
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
    fl_yaml_integer(w, "periodSeconds", PROBE_S);
    fl_yaml_integer(w, "timeoutSeconds", PROBE_S);
    fl_yaml_integer(w, "failureThreshold", failures);
    fl_yaml_map_end(w);
}

static void put_probes(fl_yaml_writer *w, const fl_manifest *m)
{
    put_probe(w, m, "startupProbe", START_PROBES);
    put_probe(w, m, "readinessProbe", 1);
    put_probe(w, m, "livenessProbe", LIVE_PROBES);
}

/* ---- the container and its files ---- */

static void put_resources(fl_yaml_writer *w, const fl_manifest *m)
{
    char memory[32], cpus[24];
    snprintf(memory, sizeof memory, "%" PRId64 "Mi", (m->memory_bytes + 1048575) / 1048576);
    snprintf(cpus, sizeof cpus, "%" PRId64, m->cpus);
    fl_yaml_map(w, "resources");
    fl_yaml_map(w, "requests");
    fl_yaml_text(w, "cpu", cpus);
    fl_yaml_text(w, "memory", memory);
    fl_yaml_map_end(w);
    if (m->n_gpus > 0) { /* Kubernetes takes the limit of such a resource as the request, too */
        fl_yaml_map(w, "limits");
        fl_yaml_integer(w, "nvidia.com/gpu", m->n_gpus);
        fl_yaml_map_end(w);
    }
    fl_yaml_map_end(w);
}

static void put_ports(fl_yaml_writer *w)
{
    fl_yaml_list(w, "ports");
    for (int i = 0; i < 2; i++) {
        fl_yaml_map(w, NULL);
        fl_yaml_text(w, "name", i == 0 ? "agents" : "links");
        fl_yaml_integer(w, "containerPort", FL_MANIFEST_PORT + i);
        fl_yaml_map_end(w);
    }
    fl_yaml_list_end(w);
}

static void put_mount(fl_yaml_writer *w, const char *name, const char *path, const char *file)
{
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", name);
    fl_yaml_text(w, "mountPath", path);
    if (file != NULL) {
        fl_yaml_text(w, "subPath", file);
    }
    fl_yaml_map_end(w);
}

static void put_container(fl_yaml_writer *w, const fl_manifest *m)
{
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", "frostline");
    fl_yaml_text(w, "image", m->image);
    put_command(w, m);
    fl_yaml_text(w, "workingDir", FL_MANIFEST_WORK);
    put_ports(w);
    put_resources(w, m);
    put_probes(w, m);
    fl_yaml_list(w, "volumeMounts");
    put_mount(w, "work", FL_MANIFEST_WORK, NULL);
    put_mount(w, "job", JOB, "job.yaml");
    put_mount(w, "keys", KEYS, NULL);
    if (m->n_gpus > 0) {
        put_mount(w, "shm", "/dev/shm", NULL);
    }
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
}

static void put_key_item(fl_yaml_writer *w, const char *key)
{
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "key", key);
    fl_yaml_text(w, "path", key);
    fl_yaml_map_end(w);
}

/* For the user of the container alone. */
static void put_keys(fl_yaml_writer *w, const fl_manifest *m)
{
    char name[256];
    fl_manifest_secret(m, name, sizeof name);
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", "keys");
    fl_yaml_map(w, "secret");
    fl_yaml_text(w, "secretName", name);
    fl_yaml_integer(w, "defaultMode", 0400);
    fl_yaml_list(w, "items");
    put_key_item(w, FL_MANIFEST_AGENTS_KEY);
    put_key_item(w, FL_MANIFEST_HEAD_KEY);
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
}

/* NCCL exchanges data through /dev/shm, of which a container has 64 MiB otherwise. */
static void put_shared_memory(fl_yaml_writer *w)
{
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", "shm");
    fl_yaml_map(w, "emptyDir");
    fl_yaml_text(w, "medium", "Memory");
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
}

static void put_volumes(fl_yaml_writer *w, const fl_manifest *m)
{
    fl_yaml_list(w, "volumes");
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", "work");
    fl_yaml_map(w, m->claim == NULL ? "emptyDir" : "persistentVolumeClaim");
    if (m->claim != NULL) {
        fl_yaml_text(w, "claimName", m->claim);
    }
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "name", "job");
    fl_yaml_map(w, "configMap");
    fl_yaml_text(w, "name", m->name);
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
    put_keys(w, m);
    if (m->n_gpus > 0) {
        put_shared_memory(w);
    }
    fl_yaml_list_end(w);
}

void fl_manifest_put_pod(fl_yaml_writer *w, const fl_manifest *m)
{
    fl_yaml_map(w, "spec");
    if (m->plain) { /* a JobSet sets it */
        fl_yaml_text(w, "subdomain", m->name);
    }
    fl_yaml_text(w, "restartPolicy", "Never");
    fl_yaml_integer(w, "terminationGracePeriodSeconds", m->grace_s + FL_MANIFEST_KILL_S);
    fl_yaml_boolean(w, "automountServiceAccountToken", false);
    fl_yaml_boolean(w, "enableServiceLinks", false);
    fl_yaml_list(w, "containers");
    put_container(w, m);
    fl_yaml_list_end(w);
    put_volumes(w, m);
    fl_yaml_map_end(w);
}

/* ---- of a Job ---- */

static void put_codes(fl_yaml_writer *w, const char *action, const int *codes, int n)
{
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "action", action);
    fl_yaml_map(w, "onExitCodes");
    fl_yaml_text(w, "operator", "In");
    fl_yaml_list(w, "values");
    for (int i = 0; i < n; i++) {
        fl_yaml_integer(w, NULL, codes[i]);
    }
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
    fl_yaml_map_end(w);
}

/* Evicted, preempted, or its node has gone: another pod takes its place, and that is no failure. */
static void put_disruption(fl_yaml_writer *w)
{
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "action", "Ignore");
    fl_yaml_list(w, "onPodConditions");
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "type", "DisruptionTarget");
    fl_yaml_text(w, "status", "True");
    fl_yaml_map_end(w);
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
}

/* The first rule that holds counts. Bad input, and a run that a user stopped, end all pods; the
 * pod of a host that a user drained stays away. What no rule is for counts as a failure of the
 * pod's index. */
static void put_failure(fl_yaml_writer *w)
{
    fl_yaml_map(w, "podFailurePolicy");
    fl_yaml_list(w, "rules");
    put_codes(w, "FailJob", (const int[]){FL_EXIT_BAD_INPUT, FL_EXIT_STOPPED}, 2);
    put_disruption(w);
    put_codes(w, "FailIndex", (const int[]){FL_EXIT_DRAINED}, 1);
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
}

static void put_success(fl_yaml_writer *w)
{
    fl_yaml_map(w, "successPolicy");
    fl_yaml_list(w, "rules");
    fl_yaml_map(w, NULL);
    fl_yaml_text(w, "succeededIndexes", "0");
    fl_yaml_map_end(w);
    fl_yaml_list_end(w);
    fl_yaml_map_end(w);
}

void fl_manifest_put_policies(fl_yaml_writer *w)
{
    put_failure(w);
    put_success(w);
}
