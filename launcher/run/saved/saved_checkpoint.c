#include "launcher/run/saved/saved_checkpoint.h"

#include "control/checkpoint/manifest/manifest.h"
#include "device/machine/host_limits.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a use of the model reads. */
static void forget_moments(fl_checkpoint *c)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    int n = 0;
    fl_checkpoint_file_name(FL_CHECKPOINT_MOMENTS, 0, name);
    size_t prefix = strcspn(name, "0123456789");
    for (int i = 0; i < c->n_files; i++) {
        if (strncmp(c->file[i].name, name, prefix) != 0) {
            c->file[n++] = c->file[i];
        }
    }
    c->n_files = n;
}

static fl_status check_whole(const char *folder, int64_t *step)
{
    fl_checkpoint *c = NULL;
    FL_TRY(fl_alloc(sizeof *c, (void **)&c));
    fl_status status = fl_checkpoint_read(folder, c);
    if (status == FL_OK) {
        forget_moments(c);
        status = fl_checkpoint_verify(c, folder, fl_host_limits_processors());
    }
    *step = status == FL_OK ? c->step : -1;
    fl_checkpoint_fini(c);
    fl_free(c);
    return status;
}

static bool has_checkpoint_name(const char *folder)
{
    char path[PATH_MAX];
    const char *slash = realpath(folder, path) == NULL ? NULL : strrchr(path, '/');
    return slash != NULL && fl_checkpoint_folder_step(slash + 1) >= 0;
}

bool fl_saved_checkpoint_is_gone(const char *folder)
{
    char manifest[PATH_MAX];
    int n = snprintf(manifest, sizeof manifest, "%s/" FL_CHECKPOINT_MANIFEST, folder);
    return n >= PATH_MAX || access(manifest, F_OK) != 0;
}

fl_status fl_saved_checkpoint_check(const char *folder, int64_t *step)
{
    *step = -1;
    if (!fl_saved_checkpoint_is_gone(folder)) {
        return check_whole(folder, step);
    }
    return has_checkpoint_name(folder)
               ? fl_fail(FL_EFORMAT,
                         "%s: found no " FL_CHECKPOINT_MANIFEST
                         "; without it, a checkpoint is being written, or was abandoned",
                         folder)
               : FL_OK;
}

static void note_damage(char note[FL_SAVED_NOTE_MAX], int64_t step)
{
    size_t n = strlen(note);
    char steps[FL_COUNT_BYTES];
    snprintf(note + n, FL_SAVED_NOTE_MAX - n, "the checkpoint after %s is not used: %s\n",
             fl_count(step, "step", steps), fl_errmsg());
}

/* Whether an older checkpoint may be better. */
static bool is_damage(fl_status status)
{
    return status == FL_EFORMAT || status == FL_EIO || status == FL_ENOTSUP;
}

/* *gone: one of them was deleted while it was read. */
static fl_status choose_folder(const char *checkpoints, const fl_checkpoint_folder *all, int n,
                               char path[PATH_MAX], int64_t *step, char note[FL_SAVED_NOTE_MAX],
                               bool *gone)
{
    for (int i = 0; i < n; i++) {
        if (!all[i].whole ||
            snprintf(path, PATH_MAX, "%s/%s", checkpoints, all[i].name) >= PATH_MAX) {
            continue;
        }
        fl_status status = check_whole(path, step);
        if (!is_damage(status)) {
            return status;
        }
        if (fl_saved_checkpoint_is_gone(path)) {
            *gone = true;
        } else {
            note_damage(note, all[i].step);
        }
    }
    path[0] = '\0';
    return FL_OK;
}

/* One look at them. *gone as above. */
static fl_status find_listed(const char *checkpoints, char path[PATH_MAX], int64_t *step,
                             char note[FL_SAVED_NOTE_MAX], bool *gone)
{
    fl_checkpoint_folder *all = NULL;
    int n = 0;
    *gone = false;
    FL_TRY(fl_checkpoint_list(checkpoints, &all, &n));
    fl_status status = choose_folder(checkpoints, all, n, path, step, note, gone);
    fl_free(all);
    return status;
}

fl_status fl_saved_checkpoint_find(const char *run, char path[PATH_MAX], int64_t *step,
                                   char note[FL_SAVED_NOTE_MAX])
{
    char checkpoints[PATH_MAX];
    size_t noted = strlen(note);
    bool gone = true;
    path[0] = '\0';
    *step = -1;
    if (snprintf(checkpoints, sizeof checkpoints, "%s/" FL_CHECKPOINT_FOLDER, run) >= PATH_MAX) {
        return FL_OK;
    }
    for (int i = 0; path[0] == '\0' && gone && i < FL_SAVED_TRIES_MAX; i++) {
        note[noted] = '\0'; /* of this look alone */
        FL_TRY(find_listed(checkpoints, path, step, note, &gone));
    }
    return FL_OK;
}

/* ---- by name ---- */

/* "10, 20, best"; the newest last. */
static void list_whole(const char *checkpoints, const fl_checkpoint_folder *all, int n, char *text,
                       size_t size_bytes)
{
    enum { LISTED_MAX = 12 };
    char best[PATH_MAX];
    size_t used = 0;
    int first = n > LISTED_MAX ? LISTED_MAX - 1 : n - 1;
    text[0] = '\0';
    for (int i = first; i >= 0 && used < size_bytes; i--) {
        if (all[i].whole) {
            used += (size_t)snprintf(text + used, size_bytes - used, "%s%" PRId64,
                                     used == 0 ? "" : ", ", all[i].step);
        }
    }
    if (snprintf(best, sizeof best, "%s/" FL_CHECKPOINT_BEST, checkpoints) < PATH_MAX &&
        access(best, F_OK) == 0 && used < size_bytes) {
        snprintf(text + used, size_bytes - used, ", " FL_CHECKPOINT_BEST);
    }
}

static fl_status refuse_name(const char *run, const char *checkpoints, const char *name)
{
    char there[256] = "";
    fl_checkpoint_folder *all = NULL;
    int n = 0;
    FL_TRY(fl_checkpoint_list(checkpoints, &all, &n));
    list_whole(checkpoints, all, n, there, sizeof there);
    fl_free(all);
    return fl_fail(FL_EINVAL, "--checkpoint: found '%.64s', %s has: %s", name, run,
                   there[0] == '\0' ? "no checkpoint" : there);
}

fl_status fl_saved_checkpoint_named(const char *run, const char *name, char path[PATH_MAX])
{
    char checkpoints[PATH_MAX], folder[FL_CHECKPOINT_NAME_MAX], *end = NULL;
    bool is_best = strcmp(name, FL_CHECKPOINT_BEST) == 0;
    bool is_number = name[0] >= '0' && name[0] <= '9';
    errno = 0;
    int64_t step = is_number ? strtoll(name, &end, 10) : -1;
    bool is_step = is_number && *end == '\0' && errno == 0;
    if (snprintf(checkpoints, sizeof checkpoints, "%s/" FL_CHECKPOINT_FOLDER, run) >= PATH_MAX) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", run);
    }
    if (!(is_best || is_step)) {
        return refuse_name(run, checkpoints, name);
    }
    const char *below = is_best ? FL_CHECKPOINT_BEST : fl_checkpoint_folder_name(step, folder);
    int n = snprintf(path, PATH_MAX, "%s/%s", checkpoints, below);
    return n < PATH_MAX && access(path, F_OK) == 0 ? FL_OK : refuse_name(run, checkpoints, name);
}
