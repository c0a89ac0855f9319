#include "launcher/run/costs/profile_key.h"

#include "autodp/nccl/library.h"
#include "device/device.h"
#include "device/machine/islands.h"
#include "device/random/random.h"
#include "device/system/program.h"
#include "launcher/job/job.h"
#include "launcher/job/schema/schema.h"
#include "nn/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = fl_mix64(hash, (unsigned char)*text);
    }
    return fl_mix64(hash, 0x100);
}

static uint64_t mix_integer(uint64_t hash, int64_t value)
{
    return fl_mix64(hash, (uint64_t)value);
}

/* Another build of the same version may compute faster or slower. */
static void put_program(char *text, size_t size_bytes)
{
    snprintf(text, size_bytes, "frostline %s, build %016" PRIx64, FL_VERSION, fl_program_build());
}

static uint64_t mix_layer(uint64_t hash, const fl_model *model, const fl_layer_memory *memory,
                          int layer)
{
    const fl_param_list *params = fl_model_params(model, layer);
    hash = mix_text(hash, fl_model_layer_kind(model, layer));
    hash = mix_integer(hash, fl_model_block_of(model, layer));
    for (int i = 0; i < params->n; i++) {
        hash = mix_integer(hash, params->spec[i].rows);
        hash = mix_integer(hash, params->spec[i].cols);
    }
    hash = mix_integer(hash, memory[layer].kept_bytes);
    hash = mix_integer(hash, memory[layer].scratch_bytes);
    hash = mix_integer(hash, memory[layer].in_bytes);
    return mix_integer(hash, memory[layer].out_bytes);
}

static void put_model(const fl_model *model, const fl_job *job, const fl_layer_memory *memory,
                      char *text, size_t size_bytes)
{
    uint64_t hash = mix_integer(0, job->model.heads);
    hash = mix_integer(hash, (int64_t)fl_model_fingerprint(model));
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        hash = mix_layer(hash, model, memory, i);
    }
    snprintf(text, size_bytes, "%.64s, %d layers, %" PRId64 " parameters, fingerprint %016" PRIx64,
             fl_model_name(model), fl_model_n_layers(model), fl_model_n_params(model), hash);
}

/* Costs of tokens are measured at the lengths of the data set. */
static void put_lengths(const fl_sample_sizes *sizes, char *text, size_t size_bytes)
{
    size_t n = strlen(text);
    if (sizes != NULL) {
        snprintf(text + n, size_bytes - n, ", %" PRId64 " to %" PRId64 " tokens, %.1f in the mean",
                 sizes->shortest, sizes->longest.tokens, sizes->mean_tokens);
    }
}

/* What the links were measured over, where a job can choose. */
static void put_transport(const fl_job *job, const fl_nccl_trial *nccl, char *text,
                          size_t size_bytes)
{
    char version[FL_NCCL_VERSION_TEXT];
    size_t n = strlen(text);
    bool chooses = !fl_device_kind_has_host_memory(job->devices.kind);
    if (job->autodp.transport == FL_TRANSPORT_HOST || (chooses && !fl_nccl_is_usable(nccl))) {
        snprintf(text + n, size_bytes - n, " through host memory");
    } else if (chooses) {
        snprintf(text + n, size_bytes - n, " over NCCL %s",
                 fl_nccl_version_text(nccl->version, version));
    }
}

/* Which pairs of devices the links were measured between. */
static void put_islands(const fl_device_survey *devices, char *text, size_t size_bytes)
{
    fl_islands islands;
    char line[FL_ISLANDS_TEXT];
    size_t n = strlen(text);
    fl_islands_find(devices, &islands);
    if (islands.n > 1) {
        snprintf(text + n, size_bytes - n, ", %.200s",
                 fl_islands_text(&islands, fl_islands_n_devices(devices), line));
    }
}

void fl_profile_key_plain(char *text)
{
    for (; *text != '\0'; text++) {
        bool plain = *text >= ' ' && *text <= '~' && *text != '"' && *text != '\\';
        *text = plain ? *text : '?';
    }
}

static void put_devices(const fl_job *job, const char *devices, int n_workers, char *text)
{
    snprintf(text, FL_PROFILE_KEY_TEXT_MAX, "%s, %.200s, %" PRId64 " cores each, %d at once",
             fl_device_kind_name(job->devices.kind), devices, job->devices.cores, n_workers);
}

static void finish_key(fl_profile_key *key)
{
    key->hash = 0;
    for (int i = 0; i < FL_PROFILE_KEY_PARTS; i++) {
        fl_profile_key_plain(key->text[i]);
        key->hash = mix_text(key->hash, key->text[i]);
    }
}

void fl_profile_key_of_kind(const fl_profile_key *own, const fl_job *job, const char *devices,
                            int n_workers, fl_profile_key *key)
{
    *key = *own;
    put_devices(job, devices, n_workers, key->text[FL_PROFILE_KEY_DEVICE]);
    finish_key(key);
}

void fl_profile_key_of(const fl_model *model, const fl_job *job, const fl_layer_memory *memory_one,
                       const fl_sample_sizes *sizes, const fl_device_survey *devices,
                       const fl_nccl_trial *nccl, int n_workers, fl_profile_key *key)
{
    static const char *const names[FL_PROFILE_KEY_PARTS] = {"program", "model", "device",
                                                            "precision", "training"};
    const size_t size = FL_PROFILE_KEY_TEXT_MAX;
    char text[FL_SURVEY_TEXT_BYTES], precision[FL_FIELD_VALUE_MAX];
    *key = (fl_profile_key){0};
    put_program(key->text[0], size);
    put_model(model, job, memory_one, key->text[1], size);
    put_lengths(sizes, key->text[1], size);
    put_devices(job, fl_device_survey_text(devices, text), n_workers,
                key->text[FL_PROFILE_KEY_DEVICE]);
    put_islands(devices, key->text[FL_PROFILE_KEY_DEVICE], size);
    fl_field_format(fl_schema_field(fl_schema_find("train.precision")), job, precision);
    snprintf(key->text[3], size, "%.16s, cached as %s", precision,
             fl_dtype_name(fl_job_cache_dtype(job)));
    snprintf(key->text[4], size, "%s, dropout %g, buckets of %" PRId64 " bytes",
             job->train.optimizer == FL_SGD ? "sgd" : "adamw", fl_job_dropout(job),
             job->autodp.bucket_bytes);
    put_transport(job, nccl, key->text[4], size);
    memcpy(key->name, names, sizeof names);
    finish_key(key);
}
