/* From the bytes of a manifest to a checkpoint:
 *   ① the file, its length and its hash     read_manifest, check_hash
 *   ② format and version                     check_version, complete
 *   ③ each member: its type and its range    fl_struct_json_read
 *   ④ what members say of each other         check_files, check_agreement */
#include "control/checkpoint/manifest/manifest.h"
#include "control/checkpoint/manifest/manifest_members.h"

#include "device/system/alloc.h"
#include "pipe/cost/plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { BYTES_MAX = 64 * 1024 * 1024, VERSION_SHOWN = 40 };

/* ---- ① ---- */

static fl_status fail_to_read(const char *path, int error)
{
    return fl_fail(FL_EIO, "%s: %s", path, strerror(error));
}

static fl_status read_bytes(int fd, const char *path, char *text, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, text + done, n - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? fail_to_read(path, errno)
                           : fl_fail(FL_EIO, "%s: became shorter while it was read", path);
        }
        done += (size_t)got;
    }
    return FL_OK;
}

static fl_status read_open(int fd, const char *path, char **text, size_t *n)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return fail_to_read(path, errno);
    }
    if (!S_ISREG(st.st_mode) || st.st_size > BYTES_MAX) {
        return fl_fail(FL_EFORMAT, "%s: found %s, allowed: a regular file of at most 64 MiB", path,
                       S_ISREG(st.st_mode) ? "a larger file" : "something else than a file");
    }
    *n = (size_t)st.st_size;
    FL_TRY(fl_alloc(*n + 1, (void **)text));
    return read_bytes(fd, path, *text, *n);
}

static fl_status read_manifest(const char *path, char **text, size_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail_to_read(path, errno);
    }
    fl_status status = read_open(fd, path, text, n);
    close(fd);
    return status;
}

static fl_status check_hash(const char *where, const char *text, size_t n)
{
    char expected[FL__CHECKPOINT_TRAILER_BYTES + 1];
    size_t covered = n - FL__CHECKPOINT_TRAILER_BYTES;
    if (n < FL__CHECKPOINT_TRAILER_BYTES) {
        return fl_fail(FL_EFORMAT, "%s: %zu bytes are no manifest; it was cut", where, n);
    }
    snprintf(expected, sizeof expected, FL__CHECKPOINT_TRAILER,
             (unsigned long long)XXH64(text, covered, 0));
    if (memcmp(text + covered, expected, FL__CHECKPOINT_TRAILER_BYTES) != 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: damaged: its last member is not the hash of the %zu bytes before it",
                       where, covered);
    }
    return FL_OK;
}

/* ---- ② ---- */

static fl_status check_version(const char *where, const json_t *object)
{
    const char *format = json_string_value(json_object_get(object, "format"));
    const json_t *version = json_object_get(object, "version");
    if (format == NULL || strcmp(format, FL__CHECKPOINT_FORMAT) != 0) {
        return fl_fail(FL_EFORMAT, "%s: format: found %.40s, allowed: %s", where,
                       format == NULL ? "nothing" : format, FL__CHECKPOINT_FORMAT);
    }
    if (!json_is_integer(version)) {
        return fl_fail(FL_EFORMAT, "%s: version: found no integer", where);
    }
    if (json_integer_value(version) < FL_CHECKPOINT_VERSION_OLDEST ||
        json_integer_value(version) > FL_CHECKPOINT_VERSION) {
        return fl_fail(FL_ENOTSUP,
                       "%s: version %" JSON_INTEGER_FORMAT
                       " of the format; this program (frostline %s) reads versions %d to %d",
                       where, json_integer_value(version), FL_VERSION, FL_CHECKPOINT_VERSION_OLDEST,
                       FL_CHECKPOINT_VERSION);
    }
    return FL_OK;
}

/* Version 2 has neither the K and R that the run is to have, nor how many workers it had. */
static bool complete_version_2(json_t *controller)
{
    return json_object_set_new(controller, "wanted_k", json_integer(-1)) == 0 &&
           json_object_set_new(controller, "wanted_r", json_integer(-1)) == 0 &&
           json_object_set_new(controller, "n_started", json_integer(0)) == 0;
}

/* Version 3 does not have what losses have cost. */
static bool complete_version_3(json_t *controller)
{
    json_t *none = json_pack("{si si si si si}", "n_losses", 0, "n_recoveries", 0, "n_returns", 0,
                             "n_repeated", 0, "lost_us", 0);
    return json_object_set_new(controller, "losses", none) == 0;
}

static fl_status complete(json_t *object)
{
    json_t *controller = json_object_get(object, "controller");
    json_int_t version = json_integer_value(json_object_get(object, "version"));
    if (!json_is_object(controller)) {
        return FL_OK;
    }
    bool done = (version > 2 || complete_version_2(controller)) &&
                (version > 3 || complete_version_3(controller));
    return done ? FL_OK : fl_fail(FL_ENOMEM, "no memory to read a manifest");
}

/* ---- ④ ---- */

/* A name in the manifest is never a way out of the folder. */
static bool is_plain_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
    return name[0] != '\0' && name[0] != '.' && name[strspn(name, allowed)] == '\0';
}

static fl_status check_files(const char *where, const fl_checkpoint *c)
{
    for (int i = 0; i < c->n_files; i++) {
        const char *name = c->file[i].name;
        if (!is_plain_name(name) || strcmp(name, FL_CHECKPOINT_MANIFEST) == 0) {
            return fl_fail(FL_EFORMAT, "%s: file[%d].name: found \"%s\", allowed: a file beside it",
                           where, i, name);
        }
        if (fl_checkpoint_find(c, name) != &c->file[i]) {
            return fl_fail(FL_EFORMAT, "%s: the file %s is listed twice", where, name);
        }
    }
    return fl_checkpoint_find(c, FL_CHECKPOINT_INDEX) != NULL
               ? FL_OK
               : fl_fail(FL_EFORMAT, "%s: the file %s is not listed", where, FL_CHECKPOINT_INDEX);
}

static fl_status check_worker(const char *where, const fl_checkpoint_worker *worker, int64_t step)
{
    if (!(worker->lr_factor > 0.0 && isfinite(worker->lr_factor))) {
        return fl_fail(FL_EFORMAT, "%s: worker.lr_factor: found %g, allowed: a number above 0",
                       where, worker->lr_factor);
    }
    if (worker->end_step < step) {
        return fl_fail(FL_EFORMAT, "%s: worker.end_step: found %" PRId64 ", the step is %" PRId64,
                       where, worker->end_step, step);
    }
    return FL_OK;
}

static fl_status check_agreement(const char *where, const fl_checkpoint *c)
{
    char inner[PATH_MAX + 32];
    const fl_controller_state *state = &c->controller;
    if (fl_plan_check(&c->plan) != FL_OK) {
        return fl_within(FL_EFORMAT, "%s: plan", where);
    }
    if (c->plan.n_layers != c->model.n_layers || state->n_workers != c->plan.n_workers ||
        (state->n_layers != 0 && state->n_layers != c->model.n_layers)) {
        return fl_fail(FL_EFORMAT, "%s: model, plan and controller name other layers or workers",
                       where);
    }
    if (state->stats.steps != c->step) {
        return fl_fail(FL_EFORMAT,
                       "%s: controller.stats.steps: found %" PRId64 ", the step is %" PRId64, where,
                       state->stats.steps, c->step);
    }
    FL_TRY(check_worker(where, &c->worker, c->step));
    snprintf(inner, sizeof inner, "%s: controller", where);
    return fl_controller_state_check(state, inner);
}

/* ---- the whole ---- */

static fl_status read_members(const char *where, json_t *object, fl_checkpoint *out)
{
    char prefix[PATH_MAX + 8];
    FL_TRY(check_version(where, object));
    FL_TRY(complete(object));
    json_object_del(object, "format");
    json_object_del(object, "version");
    json_object_del(object, "xxh64");
    snprintf(prefix, sizeof prefix, "%s: ", where);
    FL_TRY(fl_struct_json_read(object, fl__checkpoint_members, prefix, out));
    FL_TRY(check_files(where, out));
    return check_agreement(where, out);
}

fl_status fl_checkpoint_parse(const char *where, const char *text, size_t n, fl_checkpoint *out)
{
    json_error_t error;
    memset(out, 0, sizeof *out);
    FL_TRY(check_hash(where, text, n));
    json_t *object = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL) {
        return fl_fail(FL_EFORMAT, "%s: no valid JSON: %s, byte %d", where, error.text,
                       error.position);
    }
    fl_status status = read_members(where, object, out);
    json_decref(object);
    return status;
}

fl_status fl_checkpoint_read(const char *folder, fl_checkpoint *out)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t n = 0;
    memset(out, 0, sizeof *out);
    if (snprintf(path, sizeof path, "%s/" FL_CHECKPOINT_MANIFEST, folder) >= (int)sizeof path) {
        return fl_fail(FL_EINVAL, "%.64s...: the path is too long", folder);
    }
    fl_status status = read_manifest(path, &text, &n);
    if (status == FL_OK) {
        status = fl_checkpoint_parse(path, text, n, out);
    }
    fl_free(text);
    return status;
}

/* ---- folders ---- */

static int compare_folders(const void *a, const void *b)
{
    int64_t left = ((const fl_checkpoint_folder *)a)->step;
    int64_t right = ((const fl_checkpoint_folder *)b)->step;
    return left < right ? 1 : left > right ? -1 : 0;
}

static fl_status add_folder(DIR *dir, const char *name, void **folders, size_t *n, size_t *capacity)
{
    char manifest[FL_CHECKPOINT_NAME_MAX + sizeof FL_CHECKPOINT_MANIFEST + 1];
    int64_t step = fl_checkpoint_folder_step(name);
    if (step < 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_room(folders, *n, 1, sizeof(fl_checkpoint_folder), capacity));
    fl_checkpoint_folder *folder = (fl_checkpoint_folder *)*folders + (*n)++;
    *folder = (fl_checkpoint_folder){.step = step};
    fl_checkpoint_folder_name(step, folder->name);
    snprintf(manifest, sizeof manifest, "%s/" FL_CHECKPOINT_MANIFEST, folder->name);
    folder->whole = faccessat(dirfd(dir), manifest, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    return FL_OK;
}

fl_status fl_checkpoint_list(const char *path, fl_checkpoint_folder **folders, int *n)
{
    void *found = NULL;
    size_t n_found = 0, capacity = 0;
    fl_status status = FL_OK;
    DIR *dir = opendir(path);
    *folders = NULL;
    *n = 0;
    if (dir == NULL) {
        return errno == ENOENT ? FL_OK : fail_to_read(path, errno);
    }
    const struct dirent *entry;
    while (status == FL_OK && (entry = readdir(dir)) != NULL) {
        status = add_folder(dir, entry->d_name, &found, &n_found, &capacity);
    }
    closedir(dir);
    if (status != FL_OK) {
        fl_free(found);
        return status;
    }
    if (n_found > 1) {
        qsort(found, n_found, sizeof **folders, compare_folders);
    }
    *folders = found;
    *n = (int)n_found;
    return FL_OK;
}
