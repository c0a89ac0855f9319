#include "launcher/run/runs/runs.h"

#include "control/agent/join/wait_record.h"
#include "device/system/alloc.h"
#include "device/text/shell_text.h"
#include "device/text/shown_text.h"
#include "launcher/run/runs/returning.h"
#include "launcher/run/runs/run_again.h"

#include <frostline/job.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- all runs ---- */

static int newest_first(const void *a, const void *b)
{
    const fl_run_entry *left = a, *right = b;
    int order = strcmp(right->started, left->started);
    return order != 0 ? order : strcmp(left->name, right->name);
}

static fl_status add_entry(fl_run_entry **entries, int *n, const fl_run_entry *entry)
{
    size_t size = sizeof *entry, count = (size_t)*n;
    void *larger = *entries;
    FL_TRY(fl_realloc(&larger, count * size, (count + 1) * size));
    *entries = larger;
    (*entries)[(*n)++] = *entry;
    return FL_OK;
}

fl_status fl_runs_list(const char *dir, fl_run_entry **entries, int *n)
{
    char shown[FL_SHOWN_PATH_BYTES];
    DIR *stream = opendir(dir);
    fl_status status = FL_OK;
    fl_run_entry entry;
    *entries = NULL;
    *n = 0;
    fl_text_shown(dir, shown, sizeof shown);
    if (stream == NULL && errno == ENOENT) {
        return fl_fail(FL_EIO, "no runs here: there is no folder %s", shown);
    }
    if (stream == NULL) {
        return fl_fail(FL_EIO, "%s: %s", shown, strerror(errno));
    }
    for (struct dirent *d = readdir(stream); d != NULL && status == FL_OK; d = readdir(stream)) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", dir, d->d_name);
        if (d->d_name[0] != '.' && length > 0 && (size_t)length < sizeof path &&
            fl_run_look(path, &entry) == FL_OK) {
            status = add_entry(entries, n, &entry);
        }
    }
    closedir(stream);
    if (status != FL_OK) {
        fl_free(*entries);
        *entries = NULL;
        *n = 0;
    } else if (*n > 1) {
        qsort(*entries, (size_t)*n, sizeof **entries, newest_first);
    }
    return status;
}

/* ---- the run that the user means ---- */

static bool is_meant(const fl_run_entry *entry, const char *name)
{
    return name == NULL || strcmp(entry->name, name) == 0 ||
           (!entry->untrained && strcmp(entry->job, name) == 0);
}

fl_status fl_run_fail_recovering(const char *path, const char *name)
{
    char known[FL_RETURNING_TEXT], waits[FL_WAIT_TEXT], shown[FL_SHOWN_PATH_BYTES];
    fl_run_returning(path, known);
    fl_wait_record_text(path, waits);
    return fl_fail(FL_EBUSY,
                   "%s: recovering: the run goes back after a loss%s%s; it %s%sanswers once its "
                   "hosts have joined again and its workers start; try again later",
                   fl_text_shown(name, shown, sizeof shown), known[0] == '\0' ? "" : ", ", known,
                   waits, waits[0] == '\0' ? "" : ", and ");
}

fl_status fl_run_fail_starting(const char *path, const char *name)
{
    char waits[FL_WAIT_TEXT], shown[FL_SHOWN_PATH_BYTES], word[FL_SHELL_PATH_BYTES];
    fl_text_shown(name, shown, sizeof shown);
    if (fl_wait_record_text(path, waits)[0] == '\0') {
        return fl_fail(FL_EBUSY, "%s: the run is starting and does not answer yet; try again later",
                       shown);
    }
    fl_shell_shown(name, word, sizeof word);
    return fl_fail(FL_EBUSY,
                   "%s: starting: the run %s; it takes requests once its workers start; until "
                   "then, `frostline ctl %s stop` ends it",
                   shown, waits, word);
}

fl_status fl_run_fail_untrained(const char *path, const char *name)
{
    char again[FL_RUN_AGAIN_TEXT], shown[FL_SHOWN_PATH_BYTES];
    return fl_fail(FL_EINVAL, "%s: the run was lost before it trained: %s",
                   fl_text_shown(name, shown, sizeof shown), fl_run_again_look(path, again));
}

static fl_status fail_elsewhere(const fl_run_entry *entry, const char *name)
{
    char shown[FL_SHOWN_PATH_BYTES], host[4 * sizeof entry->hostname];
    return fl_fail(
        FL_EINVAL,
        "%s: the run was started on host %s, and takes requests only there: try the same "
        "command on that host; or give the job control.listen, to reach it over the "
        "network",
        fl_text_shown(name, shown, sizeof shown),
        fl_text_shown(entry->hostname, host, sizeof host));
}

fl_status fl_run_fail_lost(fl_status status, const char *path, const char *name)
{
    char shown[FL_SHOWN_PATH_BYTES], resume[FL_RUN_AGAIN_TEXT];
    return fl_fail(status,
                   "%s: the run is lost: its process ended before the run did; %s from its newest "
                   "checkpoint, if it has one",
                   fl_text_shown(name, shown, sizeof shown), fl_run_resume_look(path, resume));
}

static fl_status check_live(const fl_run_entry *entry, const char *name)
{
    char shown[FL_SHOWN_PATH_BYTES], unreachable[FL_UNREACHABLE_TEXT];
    if (entry->unreachable) {
        return fl_fail(FL_EFAILED, "%s: the run %s", fl_text_shown(name, shown, sizeof shown),
                       fl_run_unreachable_text(entry, unreachable));
    }
    if (entry->state == FL_RUN_STARTING) {
        return fl_run_fail_starting(entry->path, name);
    }
    if (entry->state == FL_RUN_RECOVERING) {
        return fl_run_fail_recovering(entry->path, name);
    }
    if (entry->state == FL_RUN_ELSEWHERE) {
        return fail_elsewhere(entry, name);
    }
    if (entry->untrained) {
        return fl_run_fail_untrained(entry->path, name);
    }
    if (entry->state == FL_RUN_LOST) {
        return fl_run_fail_lost(FL_EINVAL, entry->path, name);
    }
    return entry->state == FL_RUN_LIVE
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: the run is over (%s)",
                         fl_text_shown(name, shown, sizeof shown), fl_run_state_text(entry->state));
}

/* What was found among the runs of a directory. */
typedef struct below {
    bool any;           /* a run that matches was found */
    int n, n_live;      /* of all runs */
    bool any_over;      /* a run matches, but has ended: */
    fl_run_entry ended; /* the newest such run */
} below;

static fl_status look_below(const char *dir, const char *name, bool live, fl_run_entry *entry,
                            below *found)
{
    fl_run_entry *all = NULL;
    *found = (below){.any = false};
    FL_TRY(fl_runs_list(dir, &all, &found->n));
    for (int i = 0; i < found->n; i++) {
        bool is_live = all[i].state == FL_RUN_LIVE && !all[i].unreachable;
        bool meant = is_meant(&all[i], name);
        found->n_live += is_live;
        if (!found->any && meant && (!live || is_live)) {
            *entry = all[i];
            found->any = true;
        } else if (!found->any_over && meant && !is_live) {
            found->ended = all[i];
            found->any_over = true;
        }
    }
    fl_free(all);
    return FL_OK;
}

/* A directory with contents that this user may not read: another user's run. */
static bool is_forbidden(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? S_ISDIR(info.st_mode) && access(path, R_OK | X_OK) != 0
                                  : errno == EACCES;
}

/* Whether `name` is itself a directory, or a path below dir. */
static fl_status check_allowed(const char *dir, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.2000s/%.2000s", dir, name);
    const char *which = is_forbidden(name) ? name : is_forbidden(path) ? path : NULL;
    return which == NULL ? FL_OK
                         : fl_fail(FL_EINVAL,
                                   "%s: permission denied: the run belongs to another user", which);
}

/* FL_EINVAL if `name` is a directory of runs instead of a run. */
static fl_status check_not_parent(const char *name)
{
    fl_run_entry *all = NULL;
    char path[PATH_MAX], shown[FL_SHOWN_PATH_BYTES], example[FL_SHELL_PATH_BYTES];
    int n = 0;
    if (fl_runs_list(name, &all, &n) == FL_OK && n > 0) {
        snprintf(path, sizeof path, "%.2000s/%s", name, all[0].name);
        fl_shell_shown(path, example, sizeof example);
    }
    fl_free(all);
    return n == 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: a directory of %d run%s; name one of them, as in %s",
                         fl_text_shown(name, shown, sizeof shown), n, n == 1 ? "" : "s", example);
}

/* FL_EINVAL for the directory of a run that lost its events. */
static fl_status check_has_events(const char *name)
{
    char job[PATH_MAX], events[PATH_MAX], shown[FL_SHOWN_PATH_BYTES];
    snprintf(job, sizeof job, "%.2000s/job.yaml", name);
    snprintf(events, sizeof events, "%.2000s/events.jsonl", name);
    bool has_job = access(job, F_OK) == 0;
    return !has_job || access(events, F_OK) == 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: the run's events.jsonl is missing",
                         fl_text_shown(name, shown, sizeof shown));
}

fl_status fl_run_find(const char *dir, const char *name, fl_run_entry *entry)
{
    below found;
    char shown[FL_SHOWN_PATH_BYTES];
    if (name != NULL && fl_run_look(name, entry) == FL_OK) {
        return check_live(entry, name);
    }
    fl_status status = look_below(dir, name, true, entry, &found);
    if (found.any) {
        return FL_OK;
    }
    if (name != NULL) {
        FL_TRY(check_allowed(dir, name));
        FL_TRY(check_not_parent(name));
        FL_TRY(check_has_events(name));
    }
    bool starts = found.any_over && fl_run_state_lives(found.ended.state);
    if (status == FL_OK && (starts || (name != NULL && found.any_over))) {
        *entry = found.ended;
        return check_live(entry, name == NULL ? entry->name : name);
    }
    if (name == NULL) {
        return fl_fail(FL_EINVAL, "no live run in %s; name a run directory", dir);
    }
    fl_text_shown(name, shown, sizeof shown);
    if (status != FL_OK) {
        return fl_fail(FL_EINVAL, "%s: not a run directory, and there is no live run in %s", shown,
                       dir);
    }
    return fl_fail(FL_EINVAL,
                   "%s: not a run directory, nor the name of one of the %d live runs in %s", shown,
                   found.n_live, dir);
}

fl_status fl_run_find_any(const char *dir, const char *name, fl_run_entry *entry)
{
    below found;
    char shown[FL_SHOWN_PATH_BYTES];
    if (fl_run_look(name, entry) == FL_OK) {
        return FL_OK;
    }
    fl_status status = look_below(dir, name, false, entry, &found);
    if (status == FL_OK && found.any) {
        return FL_OK;
    }
    FL_TRY(check_allowed(dir, name));
    FL_TRY(check_not_parent(name));
    FL_TRY(check_has_events(name));
    return fl_fail(FL_EINVAL, "%s: not a run directory, nor the name of one of the %d runs in %s",
                   fl_text_shown(name, shown, sizeof shown), found.n, dir);
}

fl_status fl_run_find_dir(const char *name, char path[PATH_MAX])
{
    fl_run_entry run;
    fl_job job;
    struct stat info;
    fl_job_defaults(&job);
    fl_status status = fl_run_find_any(job.run.dir, name, &run);
    bool is_directory = stat(name, &info) == 0 && S_ISDIR(info.st_mode);
    if (status != FL_OK && is_directory) {
        FL_TRY(check_not_parent(name)); /* a run that lost its events keeps its other files */
    } else {
        FL_TRY(status);
    }
    /* Messages name a directory as the user wrote it. */
    bool by_path = is_directory && (status != FL_OK || fl_run_look(name, &run) == FL_OK);
    if (snprintf(path, PATH_MAX, "%s", by_path ? name : run.path) >= PATH_MAX) {
        return fl_fail(FL_EINVAL, "%.64s...: a path of more than %d bytes", name, PATH_MAX - 1);
    }
    return FL_OK;
}
