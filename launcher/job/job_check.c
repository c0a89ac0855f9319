/* Checks between fields. Checks that need the model, the data or the machine are in the modules
 * that know those. */
#include "autodp/sampler.h"
#include "control/observe/metrics/metrics_http.h"
#include "device/device.h"
#include "device/errors/failure.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/host_keys.h"

#include <frostline/plan.h>

#include <inttypes.h>
#include <string.h>

enum { LEAST_PORTS = 8 };

/* As many as train.batch may have. */
static const int64_t STEP_SAMPLES_MAX = 1048576;

static fl_status check_fields(const fl_job *job)
{
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        fl_status status = fl_field_check(field, job);
        if (status != FL_OK) {
            return fl_fail_field(status, FL_FIELDS(field->path), "%s", fl_errmsg());
        }
    }
    return FL_OK;
}

/* What a Hugging Face folder's own config.json has. */
static const char *const described[] = {"model.blocks", "model.dim", "model.heads", "model.patch"};

static fl_status refuse_described(const fl_job *job)
{
    fl_job defaults;
    fl_job_defaults(&defaults);
    for (size_t i = 0; i < sizeof described / sizeof *described; i++) {
        const fl_field *field = fl_schema_field(fl_schema_find(described[i]));
        char found[FL_FIELD_VALUE_MAX], initial[FL_FIELD_VALUE_MAX];
        if (strcmp(fl_field_format(field, job, found),
                   fl_field_format(field, &defaults, initial)) != 0) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS(described[i], "model.kind"),
                                 "found %.64s, with model.kind hf allowed: the default, %.64s; the "
                                 "folder's config.json describes the model",
                                 found, initial);
        }
    }
    return FL_OK;
}

static fl_status check_hf(const fl_job *job)
{
    bool has_path = job->model.path[0] != '\0', is_hf = job->model.kind == FL_MODEL_HF;
    if (has_path != is_hf) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("model.path", "model.kind"), "found %s",
                             is_hf ? "none, with model.kind hf allowed: a Hugging Face folder"
                                   : "a path, allowed: only with model.kind hf");
    }
    return is_hf ? refuse_described(job) : FL_OK;
}

static fl_status check_model(const fl_job *job)
{
    FL_TRY(check_hf(job));
    bool has_plugin = job->model.plugin[0] != '\0';
    if (job->model.kind == FL_MODEL_PLUGIN) {
        return has_plugin ? FL_OK
                          : fl_fail_field(FL_EINVAL, FL_FIELDS("model.plugin", "model.kind"),
                                          "found none, with model.kind plugin "
                                          "allowed: the path of a shared object");
    }
    if (has_plugin) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("model.plugin", "model.kind"),
                             "found a path, allowed: only with model.kind plugin");
    }
    if (job->model.dim % job->model.heads != 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("model.heads", "model.dim"),
                             "found %" PRId64 ", allowed: a divisor of model.dim %" PRId64,
                             job->model.heads, job->model.dim);
    }
    return FL_OK;
}

/* The kinds of data that the model can take. */
static fl_status check_pair_of_kinds(const fl_job *job, const char *kind)
{
    if (job->model.kind == FL_MODEL_VIT && job->data.kind != FL_DATA_IDX &&
        job->data.kind != FL_DATA_IMAGES && job->data.kind != FL_DATA_PROGRAM) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.kind", "model.kind"),
                             "found %s, with model.kind vit allowed: idx or images", kind);
    }
    if (job->model.kind == FL_MODEL_GPT2 && job->data.kind != FL_DATA_TEXT) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.kind", "model.kind"),
                             "found %s, with model.kind gpt2 allowed: text", kind);
    }
    return FL_OK;
}

/* Fields of one kind of data, in a job of another kind. */
static fl_status check_data_kind(const fl_job *job)
{
    bool tokens = job->data.kind == FL_DATA_TABLE || job->data.kind == FL_DATA_TEXT ||
                  job->data.kind == FL_DATA_SQUAD;
    bool images = job->data.kind == FL_DATA_IMAGES;
    char kind[FL_FIELD_VALUE_MAX];
    fl_field_format(fl_schema_field(fl_schema_find("data.kind")), job, kind);
    FL_TRY(check_pair_of_kinds(job, kind));
    if (tokens && job->data.augment != FL_AUGMENT_NONE) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.augment", "data.kind"),
                             "found augmentation of images, with data.kind %s allowed: none", kind);
    }
    if ((tokens || images) && job->data.n_classes > 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.classes", "data.kind"),
                             "found a list, with data.kind %s allowed: all", kind);
    }
    if (!tokens && !images && job->data.test_path[0] != '\0') {
        return fl_fail_field(
            FL_EINVAL, FL_FIELDS("data.path", "data.kind"),
            "found two files, allowed: only with data.kind table, text, squad or images");
    }
    return FL_OK;
}

/* A column has one use: a text paired with itself, or told from itself, is a mistake. */
static fl_status check_columns(const fl_job *job)
{
    const char *text = job->data.text, *pair = job->data.pair, *label = job->data.label;
    if (job->data.kind != FL_DATA_TABLE) {
        return FL_OK;
    }
    if (strcmp(pair, text) == 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.pair", "data.text"),
                             "found %s, allowed: another column than data.text", pair);
    }
    return strcmp(label, text) != 0 && strcmp(label, pair) != 0
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("data.label", "data.text"),
                               "found %s, allowed: a column that is no text of the samples", label);
}

static fl_status check_data(const fl_job *job)
{
    FL_TRY(check_data_kind(job));
    FL_TRY(check_columns(job));
    if (job->data.augment == FL_AUGMENT_CROP && job->data.crop == 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.crop", "data.augment"),
                             "found 0, with data.augment crop allowed: 1 to 64");
    }
    return FL_OK;
}

static fl_status check_devices(const fl_job *job)
{
    int64_t k = job->pipe.k == FL_JOB_AUTO ? 1 : job->pipe.k;
    int64_t r = job->autodp.r == FL_JOB_AUTO ? 1 : job->autodp.r;
    int64_t count = job->devices.count, max = job->devices.max;
    if (count != FL_JOB_AUTO && max != FL_JOB_AUTO && max < count) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("devices.max", "devices.count"),
                             "found %" PRId64 ", allowed: auto, or at least devices.count %" PRId64,
                             max, count);
    }
    if (count != FL_JOB_AUTO && k > count) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("pipe.k", "devices.count"),
                             "found K = %" PRId64 ", allowed: at most devices.count %" PRId64, k,
                             count);
    }
    if (count != FL_JOB_AUTO && r > count) {
        return fl_fail_field(
            FL_EINVAL, FL_FIELDS("autodp.r", "devices.count"),
            "found R = %" PRId64 ", allowed: auto, or at most devices.count %" PRId64, r, count);
    }
    if (count != FL_JOB_AUTO && k * r > count) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.r", "devices.count"),
                             "found K = %" PRId64 " and R = %" PRId64 ", that is %" PRId64
                             " devices, allowed: at most devices.count %" PRId64,
                             k, r, k * r, count);
    }
    return FL_OK;
}

static fl_status check_precision(const fl_job *job)
{
    if (job->train.precision != FL_PRECISION_TF32 || job->devices.kind == FL_DEVICE_CUDA) {
        return FL_OK;
    }
    return fl_fail_field(FL_EINVAL, FL_FIELDS("train.precision", "devices.kind"),
                         "found tf32, with devices.kind %s allowed: fp32 or bf16",
                         fl_device_kind_name(job->devices.kind));
}

static fl_status check_transport(const fl_job *job)
{
    if (job->autodp.transport != FL_TRANSPORT_NCCL ||
        !fl_device_kind_has_host_memory(job->devices.kind)) {
        return FL_OK;
    }
    return fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.transport", "devices.kind"),
                         "found nccl, with devices.kind %s allowed: auto or host",
                         fl_device_kind_name(job->devices.kind));
}

/* What fl_sampler_batch counts, for a message. */
static const char *step_name(const fl_job *job)
{
    return job->train.accumulate == 1 ? "train.batch" : "train.accumulate x train.batch";
}

static fl_status check_batch(const fl_job *job)
{
    int64_t step = fl_sampler_batch(job);
    int64_t r = job->autodp.r == FL_JOB_AUTO ? 1 : job->autodp.r;
    if (job->autodp.r != FL_JOB_AUTO && r > job->train.batch) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.r", "train.batch"),
                             "found %" PRId64 ", allowed: at most train.batch %" PRId64
                             ", a sample for each replica",
                             r, job->train.batch);
    }
    if (job->pipe.m * r > step) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("pipe.m", "train.batch"),
                             "found %" PRId64 ", allowed: at most %" PRId64
                             ", a replica's share of %s %" PRId64,
                             job->pipe.m, step / r, step_name(job), step);
    }
    return FL_OK;
}

/* Each batch that a step accumulates is at least one micro-batch, and its activations are gone
 * before those of the batch behind it come. GPipe keeps those of the whole step. */
static fl_status check_accumulate(const fl_job *job)
{
    int64_t n = job->train.accumulate;
    if (n == 1) {
        return FL_OK;
    }
    if (n > STEP_SAMPLES_MAX / job->train.batch) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("train.accumulate", "train.batch"),
                             "found %" PRId64 ", allowed: at most %d with train.batch %" PRId64
                             ", so that a step has at most %d samples",
                             n, (int)(STEP_SAMPLES_MAX / job->train.batch), job->train.batch,
                             (int)STEP_SAMPLES_MAX);
    }
    if (job->pipe.schedule == FL_GPIPE) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("train.accumulate", "pipe.schedule"),
                             "found %" PRId64 ", allowed: 1 with pipe.schedule gpipe, which keeps "
                             "the activations of a whole step; 1f1b does not",
                             n);
    }
    if (job->pipe.m != FL_JOB_AUTO && job->pipe.m < n) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("pipe.m", "train.accumulate"),
                             "found %" PRId64 ", allowed: auto, or at least train.accumulate "
                             "%" PRId64 ", a micro-batch for each batch of a step",
                             job->pipe.m, n);
    }
    return FL_OK;
}

/* How many a host needs depends on its devices: launcher/run/hosts/hosts.c. */
static fl_status check_ports(const fl_job *job)
{
    const int *p = job->autodp.ports;
    char found[FL_FIELD_VALUE_MAX];
    if (job->autodp.n_ports == 0) {
        return FL_OK;
    }
    fl_field_format(fl_schema_field(fl_schema_find("autodp.ports")), job, found);
    if (job->autodp.n_ports != FL_JOB_PORTS || p[1] < p[0] + LEAST_PORTS - 1) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.ports"),
                             "found %.64s, allowed: any, or the first and the last port of %d or "
                             "more, as [20000, 20099]",
                             found, LEAST_PORTS);
    }
    if (job->autodp.security == FL_SECURITY_NONE) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.ports", "autodp.security"),
                             "found %.64s, with autodp.security none allowed: any", found);
    }
    return FL_OK;
}

static fl_status check_stop(const fl_job *job)
{
    const fl_period *after = &job->train.stop_after, *every = &job->train.evaluate_every;
    bool stops = after->steps > 0 || after->share > 0 || after->epochs > 0;
    bool never = every->steps == 0 && every->share <= 0 && every->epochs <= 0;
    char found[FL_FIELD_VALUE_MAX];
    if (job->train.metric[0] != '\0' && !job->train.evaluate) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("train.metric", "train.evaluate"),
                             "found %.64s, allowed: none, with train.evaluate false",
                             job->train.metric);
    }
    if (!stops || (job->train.evaluate && !never)) {
        return FL_OK;
    }
    fl_field_format(fl_schema_field(fl_schema_find("train.stop_after")), job, found);
    return fl_fail_field(
        FL_EINVAL,
        FL_FIELDS("train.stop_after",
                  job->train.evaluate ? "train.evaluate_every" : "train.evaluate"),
        "found %s, allowed: none, with %s, since it is decided after evaluations "
        "during the run",
        found, job->train.evaluate ? "train.evaluate_every none" : "train.evaluate false");
}

static fl_status check_freeze(const fl_job *job)
{
    bool by_norms =
        job->freeze.policy == FL_FREEZE_GRADNORM || job->freeze.policy == FL_FREEZE_STABILITY;
    if (by_norms && job->freeze.n_list > 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("freeze.list", "freeze.policy"),
                             "found a list, allowed: only with freeze.policy "
                             "schedule");
    }
    return FL_OK;
}

/* The tiers of a worker whose device has memory of its own. */
static fl_status check_cache_tier(const fl_job *job, const char *field, int64_t size_bytes)
{
    if (size_bytes == 0) {
        return FL_OK;
    }
    if (fl_device_kind_has_host_memory(job->devices.kind)) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS(field, "devices.kind"),
                             "found %" PRId64 " bytes, with devices.kind %s allowed: 0, since its "
                             "workers compute in host memory; cache.memory is theirs",
                             size_bytes, fl_device_kind_name(job->devices.kind));
    }
    if (job->cache.policy == FL_CACHE_OFF) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS(field, "cache.policy"),
                             "found %" PRId64 " bytes, with cache.policy off allowed: 0",
                             size_bytes);
    }
    return FL_OK;
}

static fl_status check_cache_tiers(const fl_job *job)
{
    FL_TRY(check_cache_tier(job, "cache.pinned", job->cache.pinned_bytes));
    FL_TRY(check_cache_tier(job, "cache.device", job->cache.device_bytes));
    if (job->cache.device_bytes >= job->devices.memory_bytes) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("cache.device", "devices.memory"),
                             "found %" PRId64 " bytes, allowed: less than devices.memory, %" PRId64
                             " bytes, of which it is a part",
                             job->cache.device_bytes, job->devices.memory_bytes);
    }
    return FL_OK;
}

static fl_status check_cache(const fl_job *job)
{
    FL_TRY(check_cache_tiers(job));
    if (job->cache.policy == FL_CACHE_ON && job->data.augment != FL_AUGMENT_NONE &&
        job->cache.augment == FL_CACHE_AUGMENT_REFUSE) {
        return fl_fail_field(
            FL_EINVAL, FL_FIELDS("cache.policy", "data.augment", "cache.augment"),
            "found on, but data.augment draws each sample again in every "
            "epoch; allowed: with data.augment none, or with cache.augment freeze or stop");
    }
    return FL_OK;
}

/* *other: the field that the entry was compared with. */
static fl_status check_entry(const fl_job *job, int entry, const fl_script_entry *e,
                             const char **other)
{
    int64_t k = e->k < 1 ? 1 : e->k, r = e->r < 1 ? 1 : e->r;
    int64_t count = job->devices.count, batch = job->train.batch, step = fl_sampler_batch(job);
    if (count != FL_JOB_AUTO && k * r > count) {
        *other = "devices.count";
        return fl_fail(FL_EINVAL,
                       "entry %d: found K = %" PRId64 " and R = %" PRId64 ", that is %" PRId64
                       " devices, allowed: at most devices.count %" PRId64,
                       entry, k, r, k * r, count);
    }
    if (r > batch) {
        *other = "train.batch";
        return fl_fail(FL_EINVAL,
                       "entry %d, r: found %" PRId64 ", allowed: at most train.batch %" PRId64
                       ", a sample for each replica",
                       entry, r, batch);
    }
    if (e->m * r > step) {
        *other = "train.batch";
        return fl_fail(FL_EINVAL,
                       "entry %d, m: found %d, allowed: at most %" PRId64
                       ", a replica's share of %s %" PRId64,
                       entry, e->m, step / r, step_name(job), step);
    }
    if (e->m > 0 && e->m < job->train.accumulate) {
        *other = "train.accumulate";
        return fl_fail(FL_EINVAL,
                       "entry %d, m: found %d, allowed: auto, or at least train.accumulate "
                       "%" PRId64,
                       entry, e->m, job->train.accumulate);
    }
    return FL_OK;
}

static fl_status check_script(const fl_job *job)
{
    for (int i = 0; i < job->elastic.n_script; i++) {
        const char *other = NULL;
        if (check_entry(job, i + 1, &job->elastic.script[i], &other) != FL_OK) {
            return fl_job_refuse_entry(job, i, other);
        }
    }
    return FL_OK;
}

/* A run would make a folder or a file of that name. */
static fl_status check_written(const fl_job *job)
{
    const struct {
        const char *field, *path, *what;
    } written[] = {
        {"run.dir", job->run.dir, "folder"},
        {"checkpoint.dir", job->checkpoint.dir, "folder"},
        {"cache.path", job->cache.path, "folder"},
        {"pipe.profile", job->pipe.profile, "file"},
    };
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        if (strcmp(written[i].path, "-") == 0) {
            return fl_fail_field(FL_EINVAL, FL_FIELDS(written[i].field),
                                 "found -, allowed: the path of a %s (./- for that name)",
                                 written[i].what);
        }
    }
    return FL_OK;
}

static fl_status check_fault(const fl_job *job)
{
    char detect[FL_FIELD_VALUE_MAX], deadline[FL_FIELD_VALUE_MAX];
    if (job->fault.deadline_ms >= job->fault.detect_ms) {
        return FL_OK;
    }
    fl_field_format(fl_schema_field(fl_schema_find("fault.detect")), job, detect);
    fl_field_format(fl_schema_field(fl_schema_find("fault.deadline")), job, deadline);
    return fl_fail_field(FL_EINVAL, FL_FIELDS("fault.deadline", "fault.detect"),
                         "found %s, allowed: at least fault.detect %s", deadline, detect);
}

static fl_status check_hosts(const fl_job *job)
{
    fl__hosts_before before = {.name = job->hosts[0].name,
                               .address = job->hosts[0].address,
                               .name_stride = sizeof job->hosts[0],
                               .address_stride = sizeof job->hosts[0]};
    for (; before.n < job->n_hosts; before.n++) {
        if (fl__host_check(&job->hosts[before.n], &before) != FL_OK) {
            return fl_job_refuse_host(job, before.n);
        }
        before.n_devices += job->hosts[before.n].devices;
    }
    int near = 0;
    return fl__hosts_check_near(&before, &near) == FL_OK ? FL_OK : fl_job_refuse_host(job, near);
}

/* All other fields have their default values, with which these checks agree. */
fl_status fl_job_check_parts(const fl_job *job)
{
    FL_TRY(check_fields(job));
    FL_TRY(check_hosts(job));
    FL_TRY(check_ports(job));
    return check_written(job);
}

fl_status fl_job_check(const fl_job *job)
{
    FL_TRY(check_fields(job));
    FL_TRY(check_hosts(job));
    FL_TRY(check_model(job));
    FL_TRY(check_data(job));
    FL_TRY(check_devices(job));
    FL_TRY(check_precision(job));
    FL_TRY(check_transport(job));
    FL_TRY(check_ports(job));
    FL_TRY(check_accumulate(job));
    FL_TRY(check_batch(job));
    FL_TRY(check_stop(job));
    FL_TRY(check_freeze(job));
    FL_TRY(check_cache(job));
    FL_TRY(check_script(job));
    FL_TRY(check_written(job));
    FL_TRY(job->control.metrics[0] == 0 ? FL_OK : fl_metrics_check(job->control.metrics));
    return check_fault(job);
}

void fl_job_ports(const fl_job *job, uint16_t ports[2])
{
    for (int i = 0; i < 2; i++) {
        ports[i] = (uint16_t)(job->autodp.n_ports == FL_JOB_PORTS ? job->autodp.ports[i] : 0);
    }
}
