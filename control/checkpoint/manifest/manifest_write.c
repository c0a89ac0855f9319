#include "control/checkpoint/manifest/manifest.h"
#include "control/checkpoint/manifest/manifest_members.h"

#include "control/events/json.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/state/weights/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define PART FL_CHECKPOINT_MANIFEST ".part"

/* ---- the value ---- */

void fl_checkpoint_fini(fl_checkpoint *checkpoint)
{
    fl_free(checkpoint->job);
    checkpoint->job = NULL;
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = fl_mix64(hash, (unsigned char)*text);
    }
    return fl_mix64(hash, 0x100);
}

static uint64_t mix_layer(uint64_t hash, const fl_model *model, int layer)
{
    const fl_param_list *params = fl_model_params(model, layer);
    hash = mix_text(hash, fl_model_layer_name(model, layer));
    hash = mix_text(hash, fl_model_layer_kind(model, layer));
    hash = fl_mix64(hash, (uint64_t)fl_model_block_of(model, layer));
    for (int i = 0; i < params->n; i++) {
        const fl_param_spec *spec = &params->spec[i];
        hash = mix_text(hash, spec->name);
        hash = fl_mix64(hash, (uint64_t)spec->rows);
        hash = fl_mix64(hash, (uint64_t)spec->cols);
        hash = fl_mix64(hash, (uint64_t)spec->tie);
    }
    return hash;
}

void fl_checkpoint_model_of(const fl_model *model, fl_checkpoint_model *out)
{
    *out = (fl_checkpoint_model){.n_layers = fl_model_n_layers(model)};
    snprintf(out->name, sizeof out->name, "%s", fl_model_name(model));
    for (int i = 0; i < out->n_layers; i++) {
        fl_checkpoint_layer *layer = &out->layer[i];
        snprintf(layer->name, sizeof layer->name, "%s", fl_model_layer_name(model, i));
        layer->block = fl_model_block_of(model, i);
        layer->n_params = fl_model_layer_n_params(model, i);
        out->fingerprint = mix_layer(out->fingerprint, model, i);
    }
}

const fl_checkpoint_entry *fl_checkpoint_find(const fl_checkpoint *checkpoint, const char *name)
{
    for (int i = 0; i < checkpoint->n_files; i++) {
        if (strcmp(checkpoint->file[i].name, name) == 0) {
            return &checkpoint->file[i];
        }
    }
    return NULL;
}

int64_t fl_checkpoint_end_step(const fl_checkpoint *checkpoint, int64_t n_steps)
{
    int64_t end_step = checkpoint->worker.end_step;
    bool cut_short = end_step < checkpoint->worker.planned_steps;
    return cut_short && end_step > checkpoint->step && end_step < n_steps ? end_step : n_steps;
}

/* ---- files ---- */

static fl_status fail_to_write(const char *name)
{
    return fl_fail(FL_EIO, "cannot write %s: %s", name, strerror(errno));
}

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

/* The bytes are on the disk on return; the file's name may not be. */
static fl_status write_file(int folder_fd, const char *name, const char *bytes, size_t n)
{
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail_to_write(name);
    }
    fl_status status = write_all(fd, bytes, n) && fsync(fd) == 0 ? FL_OK : fail_to_write(name);
    if (close(fd) != 0 && status == FL_OK) {
        status = fail_to_write(name);
    }
    if (status != FL_OK) {
        unlinkat(folder_fd, name, 0);
    }
    return status;
}

/* ---- the index, config.json ---- */

/* Write a file and add it to those of the checkpoint. */
static fl_status write_own_file(fl_checkpoint *checkpoint, int folder_fd, const char *name,
                                const char *text, size_t n)
{
    FL_TRY(write_file(folder_fd, name, text, n));
    fl_checkpoint_entry *entry = &checkpoint->file[checkpoint->n_files++];
    *entry = (fl_checkpoint_entry){.bytes = (int64_t)n, .xxh64 = XXH64(text, n, 0)};
    snprintf(entry->name, sizeof entry->name, "%s", name);
    return FL_OK;
}

static void put_layer(fl_json *j, const fl_checkpoint *checkpoint, const fl_model *model, int layer)
{
    char file[FL_CHECKPOINT_NAME_MAX], name[FL_LAYER_NAME_MAX + FL_PARAM_NAME_MAX];
    const fl_param_list *params = fl_model_params(model, layer);
    fl_checkpoint_file_name(FL_CHECKPOINT_WEIGHTS, layer, file);
    for (int i = 0; i < params->n && fl_checkpoint_find(checkpoint, file) != NULL; i++) {
        snprintf(name, sizeof name, "%s.%s", fl_model_layer_name(model, layer),
                 params->spec[i].name);
        fl_json_text(j, name, file);
    }
}

static void put_index(fl_json *j, const fl_checkpoint *checkpoint, const fl_model *model)
{
    int64_t n_elements = 0;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        n_elements += fl_model_layer_n_params(model, layer);
    }
    fl_json_object(j, NULL);
    fl_json_object(j, "metadata");
    fl_json_integer(j, "total_size", n_elements * (int64_t)sizeof(float));
    fl_json_close(j, '}');
    fl_json_object(j, "weight_map");
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        put_layer(j, checkpoint, model, layer);
    }
    fl_json_close(j, '}');
    fl_json_close(j, '}');
    fl_json_newline(j);
}

fl_status fl_checkpoint_write_index(fl_checkpoint *checkpoint, const fl_model *model, int folder_fd)
{
    fl_json j = {0};
    put_index(&j, checkpoint, model);
    fl_status status =
        j.broken ? fl_fail(FL_ENOMEM, "no memory for " FL_CHECKPOINT_INDEX)
                 : write_own_file(checkpoint, folder_fd, FL_CHECKPOINT_INDEX, j.text, j.n);
    fl_json_fini(&j);
    return status;
}

fl_status fl_checkpoint_write_config(fl_checkpoint *checkpoint, const char *config, int folder_fd)
{
    return write_own_file(checkpoint, folder_fd, FL_MODEL_CONFIG_FILE, config, strlen(config));
}

/* ---- the manifest ---- */

/* One line for each member: people read it, too. */
static bool put_members(FILE *out, json_t *object)
{
    const char *name;
    json_t *value;
    bool good = fprintf(out, "{\n  \"format\": \"%s\",\n  \"version\": %d,\n",
                        FL__CHECKPOINT_FORMAT, FL_CHECKPOINT_VERSION) > 0;
    json_object_foreach(object, name, value)
    {
        good = good && fprintf(out, "  \"%s\": ", name) > 0 &&
               json_dumpf(value, out, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) == 0 &&
               fputs(",\n", out) >= 0;
    }
    return good;
}

/* The trailer's bytes are counted without its zero. */
static fl_status finish_text(char *members, size_t n, char **text, size_t *n_text)
{
    char trailer[FL__CHECKPOINT_TRAILER_BYTES + 1];
    snprintf(trailer, sizeof trailer, FL__CHECKPOINT_TRAILER,
             (unsigned long long)XXH64(members, n, 0));
    *n_text = n + FL__CHECKPOINT_TRAILER_BYTES;
    FL_TRY(fl_alloc(*n_text + 1, (void **)text));
    memcpy(*text, members, n);
    memcpy(*text + n, trailer, sizeof trailer);
    return FL_OK;
}

fl_status fl_checkpoint_format(const fl_checkpoint *checkpoint, char **text, size_t *n)
{
    char *members = NULL;
    size_t n_members = 0;
    json_t *object = fl_struct_json_write(fl__checkpoint_members, checkpoint);
    FILE *out = object == NULL ? NULL : open_memstream(&members, &n_members);
    bool good = out != NULL && put_members(out, object);
    good = out != NULL && fclose(out) == 0 && good;
    json_decref(object);
    fl_status status = good ? finish_text(members, n_members, text, n)
                            : fl_fail(FL_ENOMEM, "no memory for " FL_CHECKPOINT_MANIFEST);
    free(members);
    return status;
}

/* The new name is on the disk when its folder is; the folder's own name, when the parent is. */
static fl_status publish_manifest(int folder_fd)
{
    int parent_fd = openat(folder_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool renamed = parent_fd >= 0 && fsync(folder_fd) == 0 &&
                   renameat(folder_fd, PART, folder_fd, FL_CHECKPOINT_MANIFEST) == 0;
    bool good = renamed && fsync(folder_fd) == 0 && fsync(parent_fd) == 0;
    fl_status status = good ? FL_OK : fail_to_write(FL_CHECKPOINT_MANIFEST);
    if (parent_fd >= 0) {
        close(parent_fd);
    }
    if (!good) {
        unlinkat(folder_fd, renamed ? FL_CHECKPOINT_MANIFEST : PART, 0);
    }
    return status;
}

fl_status fl_checkpoint_write(const fl_checkpoint *checkpoint, int folder_fd)
{
    char *text = NULL;
    size_t n = 0;
    FL_TRY(fl_checkpoint_format(checkpoint, &text, &n));
    fl_status status = write_file(folder_fd, PART, text, n);
    fl_free(text);
    return status == FL_OK ? publish_manifest(folder_fd) : status;
}
