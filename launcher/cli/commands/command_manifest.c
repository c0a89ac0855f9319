/* frostline manifest: a run on several hosts as objects of Kubernetes. */
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/system/files/input_file.h"
#include "device/text/plural.h"
#include "launcher/cli/hosts/agent_join.h"
#include "launcher/cli/hosts/planned_hosts.h"
#include "launcher/cli/job_context.h"
#include "launcher/cli/manifest/manifest.h"
#include "launcher/cli/manifest/manifest_check.h"
#include "launcher/job/job.h"
#include "launcher/job/text/number.h"
#include "launcher/job/text/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROGRAM_BYTES = 512 << 20,
    GPU_HOST_BYTES = 1 << 30,
    NAME_SIZE = FL_MANIFEST_NAME_MAX + 1,
    HOSTS_MAX = 128
};

#define NAME_ALLOWED                                                                               \
    "1 to 24 lower-case letters, digits and '-', the first a letter, the last not '-'"

/* ---- options ---- */

static bool is_name(const char *text, size_t longest)
{
    size_t n = strlen(text);
    return n > 0 && n <= longest && islower((unsigned char)text[0]) && text[n - 1] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

/* "My job" becomes "my-job". */
static void name_of_job(const char *job, char name[NAME_SIZE])
{
    size_t used = 0;
    for (; *job != '\0' && used < NAME_SIZE - 1; job++) {
        int c = tolower((unsigned char)*job);
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (plain || used > 0) {
            name[used++] = plain ? (char)c : '-';
        }
    }
    while (used > 0 && name[used - 1] == '-') {
        used--;
    }
    name[used] = '\0';
}

static fl_status read_name(const fl_args *args, const fl_job *job, char name[NAME_SIZE])
{
    const char *given = fl_args_value(args, "--name");
    if (given == NULL) {
        name_of_job(job->name, name);
    } else {
        snprintf(name, NAME_SIZE, "%s", given);
    }
    char shown[FL_SHOWN_MAX];
    const char *found = given == NULL ? job->name : given;
    if (is_name(given == NULL ? name : given, NAME_SIZE - 1)) {
        return FL_OK;
    }
    fl_shown(found, strlen(found), shown);
    return given == NULL
               ? fl_fail(FL_EINVAL,
                         "the job's name, %s, makes no name of an object; allowed: --name NAME",
                         shown)
               : fl_fail(FL_EINVAL, "--name: found %s, allowed: " NAME_ALLOWED, shown);
}

static fl_status check_object(const fl_args *args, const char *option)
{
    const char *text = fl_args_value(args, option);
    char shown[FL_SHOWN_MAX];
    return text == NULL || fl_manifest_is_object(text)
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "%s: found %s, allowed: the name of an object: 1 to 253 lower-case "
                         "letters, digits, '-' and '.', with a letter or a digit at both ends and "
                         "beside each '.'",
                         option, fl_shown(text, strlen(text), shown));
}

static fl_status check_image(const fl_manifest *m)
{
    char shown[FL_SHOWN_MAX];
    return fl_manifest_is_image(m->image)
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "--image: found %s, allowed: [HOST[:PORT]/]PATH[:TAG][@DIGEST], PATH in "
                         "lower case",
                         fl_shown(m->image, strlen(m->image), shown));
}

static fl_status read_kind(const fl_args *args, bool *plain)
{
    const char *kind = fl_args_value(args, "--kind");
    char shown[FL_SHOWN_MAX];
    *plain = kind != NULL && strcmp(kind, "job") == 0;
    return kind == NULL || *plain || strcmp(kind, "jobset") == 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "--kind: found %s, allowed: jobset, job",
                         fl_shown(kind, strlen(kind), shown));
}

static fl_status read_count(const fl_args *args, const char *option, int least, int most, int *out)
{
    const char *text = fl_args_value(args, option);
    char shown[FL_SHOWN_MAX];
    int64_t value = 0;
    if (text == NULL) {
        return FL_OK;
    }
    if (!fl_read_integer(text, &value) || value < least || value > most) {
        return fl_fail(FL_EINVAL, "%s: found %s, allowed: %d to %d", option,
                       fl_shown(text, strlen(text), shown), least, most);
    }
    *out = (int)value;
    return FL_OK;
}

/* ---- the job ---- */

static bool states_the_same(const fl_job_host *a, const fl_job_host *b)
{
    return a->sockets == b->sockets && a->memory_bytes == b->memory_bytes && a->speed == b->speed &&
           strcmp(a->profile, b->profile) == 0;
}

/* All pods are alike. Options come first. */
static fl_status check_alike(const fl_args *args, const fl_job *job)
{
    const fl_job_host *first = &job->hosts[0];
    char devices[FL_COUNT_BYTES];
    for (int64_t i = 1; i < job->n_hosts; i++) {
        const fl_job_host *host = &job->hosts[i];
        if (host->devices != first->devices && !fl_args_has(args, "--devices")) {
            return fl_fail_field(
                FL_EINVAL, FL_FIELDS("hosts"),
                "host %s has %s, and host %s %d; allowed: as many on each host, or "
                "--devices N",
                first->name, fl_count(first->devices, "device", devices), host->name,
                host->devices);
        }
        if (!states_the_same(first, host)) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS("hosts"),
                                 "host %s has other sockets, memory, speed or profile than host "
                                 "%s, but all pods are alike; allowed: the same of each host, or "
                                 "--set hosts=none with --hosts N",
                                 host->name, first->name);
        }
    }
    return FL_OK;
}

static fl_status read_hosts(const fl_args *args, const fl_job *job, fl_manifest *m)
{
    FL_TRY(check_alike(args, job));
    m->n_hosts = (int)job->n_hosts;
    m->n_devices = job->n_hosts > 0 ? job->hosts[0].devices : 0;
    FL_TRY(read_count(args, "--hosts", 2, HOSTS_MAX, &m->n_hosts));
    FL_TRY(read_count(args, "--devices", 1, FL_MAX_WORKERS, &m->n_devices));
    if (m->n_hosts < 2) {
        return fl_fail(FL_EINVAL,
                       "--hosts: found nothing, and the job has %d hosts; allowed: "
                       "--hosts N, 2 or more",
                       m->n_hosts);
    }
    if (m->n_devices == 0) {
        m->n_devices = job->devices.count > m->n_hosts && job->devices.count % m->n_hosts == 0
                           ? (int)job->devices.count / m->n_hosts
                           : 1;
    }
    return FL_OK;
}

static fl_status check_job(const fl_job *job, const fl_manifest *m)
{
    int64_t n = (int64_t)m->n_hosts * m->n_devices;
    if (n > FL_MAX_WORKERS) {
        return fl_fail(FL_EINVAL, "--hosts: found %d hosts of %d devices, allowed: %d devices",
                       m->n_hosts, m->n_devices, FL_MAX_WORKERS);
    }
    if (job->devices.count != FL_JOB_AUTO && job->devices.count != n) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("devices.count"),
                             "found %lld, but %d hosts of %d have %lld; allowed: auto, %lld",
                             (long long)job->devices.count, m->n_hosts, m->n_devices, (long long)n,
                             (long long)n);
    }
    if (m->claim == NULL && job->run.shared) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("run.shared"),
                             "found true, but without --claim pods share no files; allowed: "
                             "--claim NAME, or false");
    }
    return fl_manifest_check_job(m, job);
}

/* What the head would refuse: the job becomes one of the hosts that the pods are. */
static fl_status check_run(const fl_manifest *m, fl_job *job)
{
    fl_planned_hosts *planned = NULL;
    fl_manifest_set_hosts(m, job);
    FL_TRY(fl_job_locate(job, fl_job_check(job)));
    FL_TRY(fl_planned_hosts_make(NULL, job, &planned));
    fl_free(planned);
    return FL_OK;
}

static void count_resources(const fl_job *job, fl_manifest *m)
{
    bool own = job->devices.kind == FL_DEVICE_CUDA; /* a GPU's memory is not the pod's */
    m->n_gpus = own ? m->n_devices : 0;
    m->cpus = m->n_devices * job->devices.cores;
    m->memory_bytes =
        m->n_devices * (own ? GPU_HOST_BYTES : job->devices.memory_bytes) + PROGRAM_BYTES;
    if (job->cache.policy != FL_CACHE_OFF) {
        m->memory_bytes += job->cache.memory_bytes;
    }
}

/* ---- the file ---- */

/* One byte more than a job may have detects a longer one. */
static fl_status read_text(const char *path, char text[FL_JOB_FILE_MAX + 2], size_t *n)
{
    FL_TRY(fl_input_load(path, text, FL_JOB_FILE_MAX + 1, n));
    text[*n] = '\0';
    return FL_OK;
}

/* All or nothing goes to standard output. */
static fl_status print_manifest(const fl_manifest *m)
{
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    if (stream == NULL) {
        return fl_fail(FL_ENOMEM, "out of memory");
    }
    fl_status status = fl_manifest_write(m, stream);
    if (fclose(stream) != 0 && status == FL_OK) {
        status = fl_fail(FL_ENOMEM, "out of memory");
    }
    if (status == FL_OK && (fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0)) {
        status = fl_fail(FL_EIO, "standard output: %s", strerror(errno));
    }
    if (text != NULL) {
        explicit_bzero(text, n);
    }
    free(text);
    return status;
}

/* No option of a command begins like it. */
static void name_run_dir(const fl_job *job, const char *name, char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, "%s%s/%s", job->run.dir[0] == '-' ? "./" : "", job->run.dir, name);
}

static fl_status make_manifest(const fl_args *args, fl_job *job, char *text)
{
    const char *overrides[FL_ARGS_MAX];
    char name[NAME_SIZE], run_dir[FL_TEXT_MAX + NAME_SIZE + 4];
    const char *image = fl_args_value(args, "--image");
    int64_t grace_ms = 0;
    size_t n_text = 0;
    fl_job_host like;
    fl_manifest m = {.name = name, .job = text, .overrides = overrides, .run_dir = run_dir};
    m.n_overrides = fl_job_context_overrides(args, overrides);
    m.image = image == NULL ? "frostline" : image;
    m.claim = fl_args_value(args, "--claim");
    m.secret = fl_args_value(args, "--secret");
    FL_TRY(read_text(args->operand, text, &n_text));
    FL_TRY(fl_job_parse(args->operand, text, n_text, overrides, m.n_overrides, job));
    FL_TRY(read_kind(args, &m.plain));
    FL_TRY(read_name(args, job, name));
    FL_TRY(check_object(args, "--claim"));
    FL_TRY(check_object(args, "--secret"));
    FL_TRY(check_image(&m));
    FL_TRY(fl_agent_read_grace(args, &grace_ms));
    m.grace_s = grace_ms / 1000;
    FL_TRY(fl_job_locate(job, read_hosts(args, job, &m)));
    like = job->hosts[0];
    m.like = job->n_hosts > 0 ? &like : NULL;
    FL_TRY(fl_job_locate(job, check_job(job, &m)));
    FL_TRY(check_run(&m, job));
    name_run_dir(job, name, run_dir, sizeof run_dir);
    count_resources(job, &m);
    return print_manifest(&m);
}

static int run_manifest(const fl_args *args)
{
    fl_job *job = NULL;
    char *text = NULL;
    fl_status status =
        args->operand == NULL
            ? fl_fail(FL_EINVAL, "frostline manifest: JOB.yaml is missing; see frostline manifest "
                                 "--help")
            : fl_alloc(sizeof *job, (void **)&job);
    if (status == FL_OK) {
        status = fl_alloc(FL_JOB_FILE_MAX + 2, (void **)&text);
    }
    if (status == FL_OK) {
        status = make_manifest(args, job, text);
    }
    fl_free(text);
    fl_free(job);
    return fl_job_context_finish(status);
}

const fl_cli_command fl_cli_command_manifest = {
    .name = "manifest",
    .operand = "JOB.yaml",
    .summary = "Write a run on several hosts as objects of Kubernetes.",
    .details = "Prints a JobSet, or with --kind job an Indexed Job and a headless service, with\n"
               "the job as a ConfigMap, a PodDisruptionBudget, and a Secret with new keys; each\n"
               "pod is a host. `frostline manifest job.yaml ... | kubectl apply -f -` starts the\n"
               "run. Anyone who can read the output can join it.\n"
               "The working directory of the pods is the volume of --claim, or an empty one.\n",
    .options = {{"--kind", 0, "jobset|job", "which objects; default: jobset"},
                {"--hosts", 0, "N", "pods; default: as many as the job has hosts"},
                {"--devices", 0, "N", "of each pod; default: those of the job, or 1"},
                {"--name", 0, "NAME", "of the objects; default: that of the job"},
                {"--image", 0, "IMAGE", "of the containers; default: frostline"},
                {"--claim", 0, "NAME", "a PersistentVolumeClaim that all pods mount"},
                {"--secret", 0, "NAME", "one from an earlier manifest; default: write a new one"},
                {"--grace", 0, "SECONDS", "after SIGTERM, to leave the run; default: 25"},
                {"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"}},
    .run = run_manifest,
};
