/* Finds the parts of a saved model:
 *
 *     a folder of weights       DIR/model.safetensors or its index, DIR/config.json
 *     a checkpoint              the same, or config.json and job.yaml of the run above it
 *     a run                     RUN/model if it has ended, else the newest of RUN/checkpoints
 *                               whose weights are whole */
#include "launcher/run/saved/saved_model.h"

#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "device/text/shown_text.h"
#include "launcher/run/runs/checkpoint_folder.h"
#include "launcher/run/runs/runs.h"
#include "pipe/state/weights/model_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_FILE FL_MODEL_FILE ".index.json"

/* path = folder/name; false if it is too long or nothing is there. */
static bool find_below(char path[PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    bool found = n > 0 && n < PATH_MAX && access(path, F_OK) == 0;
    if (!found) {
        path[0] = '\0';
    }
    return found;
}

static bool holds_weights(const char *folder)
{
    char path[PATH_MAX];
    return find_below(path, folder, FL_MODEL_FILE) || find_below(path, folder, INDEX_FILE);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The model of a run that has ended is that of its last step. */
static bool has_ended(fl_run_state state)
{
    return state == FL_RUN_FINISHED || state == FL_RUN_STOPPED;
}

/* After how many steps the run left its model; -1: unknown. */
static int64_t find_last_step(const char *run)
{
    fl_run_entry *entry = NULL;
    int64_t step = -1;
    if (fl_alloc(sizeof *entry, (void **)&entry) == FL_OK) {
        bool known = fl_run_look(run, entry) == FL_OK && has_ended(entry->state);
        step = known ? entry->steps : -1;
        fl_free(entry);
    }
    return step;
}

static bool is_model_of(const char *run, const char *folder)
{
    char model[PATH_MAX];
    struct stat a, b;
    return find_below(model, run, FL_MODEL_FOLDER) && stat(model, &a) == 0 &&
           stat(folder, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* A job file alone makes no run. */
static void take_run_above(const char *run, const char *folder, fl_saved_model *out)
{
    char events[PATH_MAX];
    if (out->job[0] != '\0' || !find_below(events, run, "events.jsonl") ||
        !find_below(out->job, run, "job.yaml")) {
        return;
    }
    if (out->step < 0 && is_model_of(run, folder)) {
        out->step = find_last_step(run);
    }
    if (out->config[0] == '\0') {
        (void)find_below(out->config, run, FL_MODEL_FOLDER "/" FL_MODEL_CONFIG_FILE);
    }
}

/* Cut the last name off a path: "" if there is none. */
static void cut_name(char *path)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') {
        n--;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    path[n] = '\0';
}

/* The run above a folder of weights, if there is one: RUN/model or RUN/checkpoints/NAME. Where
 * RUN/checkpoints is a link, only the path has it. */
static void find_run_above(const char *folder, fl_saved_model *out)
{
    static const char *const above[] = {"..", "../.."};
    char run[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        if (snprintf(run, sizeof run, "%s/%s", folder, above[i]) < PATH_MAX) {
            take_run_above(run, folder, out);
        }
    }
    snprintf(run, sizeof run, "%s", folder);
    for (int i = 0; i < 2; i++) {
        cut_name(run);
    }
    take_run_above(run[0] == '\0' ? "." : run, folder, out);
}

static void take_folder(const char *folder, fl_saved_model *out)
{
    snprintf(out->weights, sizeof out->weights, "%s", folder);
    (void)find_below(out->config, folder, FL_MODEL_CONFIG_FILE);
    find_run_above(folder, out);
}

static const char *describe_state(fl_run_state state)
{
    switch (state) {
    case FL_RUN_LIVE:
        return "still trains";
    case FL_RUN_STARTING:
        return "is starting";
    case FL_RUN_RECOVERING:
        return "goes back after a loss";
    case FL_RUN_FAILED:
        return "failed";
    case FL_RUN_LOST:
        return "was lost";
    case FL_RUN_ELSEWHERE:
        return "was started on another machine";
    case FL_RUN_FINISHED:
    case FL_RUN_STOPPED:
        break;
    }
    return "left no model";
}

/* A model that is there, but that this user may not look at, is not passed over. */
static fl_status check_reachable(const char *run)
{
    char path[PATH_MAX];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/" FL_MODEL_FOLDER "/" FL_MODEL_FILE, run);
    return n >= PATH_MAX || stat(path, &st) == 0 || errno == ENOENT || errno == ENOTDIR
               ? FL_OK
               : fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
}

static fl_status refuse_empty(const char *run, fl_run_state state, const char *note)
{
    char target[PATH_MAX];
    fl_checkpoint_folder_missing(run, target);
    if (target[0] != '\0') {
        return fl_fail(FL_EINVAL,
                       "%s%s: this run has left no model, and its checkpoints are in %s, which is "
                       "not there",
                       note, run, target);
    }
    return fl_run_state_lives(state)
               ? fl_fail(FL_EINVAL, "%s%s: this run %s and has no checkpoint yet", note, run,
                         describe_state(state))
               : fl_fail(FL_EINVAL, "%s%s: this run has left no model and no checkpoint", note,
                         run);
}

static fl_status choose_weights(const char *run, fl_run_state state, char path[PATH_MAX],
                                fl_saved_model *out)
{
    char model[PATH_MAX];
    FL_TRY(check_reachable(run));
    bool left = find_below(model, run, FL_MODEL_FOLDER) && holds_weights(model);
    path[0] = '\0';
    if (!left || !has_ended(state)) {
        FL_TRY(fl_saved_checkpoint_find(run, path, &out->step, out->note));
    }
    if (!left && path[0] == '\0') {
        return refuse_empty(run, state, out->note);
    }
    if (path[0] == '\0') {
        snprintf(path, PATH_MAX, "%s", model);
    }
    if (!left || !has_ended(state)) {
        size_t n = strlen(out->note);
        snprintf(out->note + n, sizeof out->note - n, "the run %s; using %s\n",
                 describe_state(state), path);
    }
    return FL_OK;
}

static fl_status take_run(const char *run, fl_saved_model *out)
{
    char path[PATH_MAX];
    fl_run_entry *entry = NULL;
    FL_TRY(fl_alloc(sizeof *entry, (void **)&entry));
    /* without events, it is a model that somebody put beside a job */
    fl_run_state state = fl_run_look(run, entry) == FL_OK ? entry->state : FL_RUN_FINISHED;
    fl_free(entry);
    FL_TRY(choose_weights(run, state, path, out));
    take_folder(path, out);
    (void)find_below(out->job, run, "job.yaml");
    return FL_OK;
}

static fl_status take_file(const char *path, fl_saved_model *out)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    if (dot != NULL && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0)) {
        return fl_fail(FL_EINVAL,
                       "%s: a job file; allowed: a folder or file of weights, a checkpoint or a "
                       "run, and after it a job file",
                       path);
    }
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path),
             slash == NULL ? "." : path);
    FL_TRY(fl_saved_checkpoint_check(folder, &out->step));
    take_folder(folder, out);
    snprintf(out->weights, sizeof out->weights, "%s", path);
    return FL_OK;
}

fl_status fl_saved_model_find(const char *name, fl_saved_model *out)
{
    char path[PATH_MAX];
    fl_run_entry run;
    fl_job defaults;
    *out = (fl_saved_model){.step = -1};
    if (strlen(name) >= PATH_MAX) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", name);
    }
    if (is_folder(name) && access(name, X_OK) != 0) {
        return fl_fail(FL_EINVAL, "%s: %s", name, strerror(errno));
    }
    if (is_folder(name) && holds_weights(name)) {
        FL_TRY(fl_saved_checkpoint_check(name, &out->step));
        take_folder(name, out);
        return FL_OK;
    }
    if (is_folder(name) && find_below(path, name, "job.yaml")) {
        return take_run(name, out);
    }
    if (is_folder(name)) {
        FL_TRY(fl_saved_checkpoint_check(name, &out->step)); /* one that lost its index */
        return fl_fail(
            FL_EINVAL,
            "%s: found neither " FL_MODEL_FILE " nor " INDEX_FILE
            " nor job.yaml, allowed: a folder of weights, a checkpoint or a run directory",
            name);
    }
    if (access(name, F_OK) == 0) {
        return take_file(name, out);
    }
    fl_job_defaults(&defaults);
    if (strchr(name, '/') != NULL || fl_run_find_any(defaults.run.dir, name, &run) != FL_OK) {
        char shown[FL_SHOWN_PATH_BYTES];
        return fl_fail(FL_EINVAL,
                       "%s: not found; allowed: a folder or file of weights, a checkpoint, a run "
                       "directory, or the name of a run in %s",
                       fl_text_shown(name, shown, sizeof shown), defaults.run.dir);
    }
    return take_run(run.path, out);
}

/* ---- one checkpoint of a run ---- */

static fl_status find_run(const char *name, char path[PATH_MAX])
{
    char job[PATH_MAX];
    fl_run_entry run;
    fl_job defaults;
    fl_job_defaults(&defaults);
    if (is_folder(name) && find_below(job, name, "job.yaml")) {
        snprintf(path, PATH_MAX, "%s", name);
        return FL_OK;
    }
    if (is_folder(name) || strchr(name, '/') != NULL ||
        fl_run_find_any(defaults.run.dir, name, &run) != FL_OK) {
        return fl_fail(FL_EINVAL,
                       "--checkpoint: %s is no run; allowed: a run directory, or the name of a run "
                       "in %s",
                       name, defaults.run.dir);
    }
    snprintf(path, PATH_MAX, "%s", run.path);
    return FL_OK;
}

fl_status fl_saved_model_find_checkpoint(const char *name, const char *checkpoint,
                                         fl_saved_model *out)
{
    char run[PATH_MAX], path[PATH_MAX];
    *out = (fl_saved_model){.step = -1};
    if (strlen(name) >= PATH_MAX) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", name);
    }
    FL_TRY(find_run(name, run));
    FL_TRY(fl_saved_checkpoint_named(run, checkpoint, path));
    FL_TRY(fl_saved_checkpoint_check(path, &out->step));
    take_folder(path, out);
    (void)find_below(out->job, run, "job.yaml");
    return FL_OK;
}

fl_status fl_saved_model_open(const char *name, const char *checkpoint, fl_saved_model *out,
                              fl_safetensors **weights)
{
    fl_status status = FL_OK;
    int n_tries = 0;
    do {
        FL_TRY(checkpoint == NULL ? fl_saved_model_find(name, out)
                                  : fl_saved_model_find_checkpoint(name, checkpoint, out));
        status = fl_safetensors_open(out->weights, weights);
    } while (status == FL_EIO && fl_saved_checkpoint_is_gone(out->weights) &&
             ++n_tries < FL_SAVED_TRIES_MAX);
    return status;
}

const char *fl_saved_model_origin(const fl_saved_model *saved, char text[FL_SAVED_ORIGIN_MAX])
{
    char weights[FL_SHELL_PATH_BYTES];
    fl_shell_shown(saved->weights, weights, sizeof weights);
    if (saved->step < 0) {
        snprintf(text, FL_SAVED_ORIGIN_MAX, "%s", weights);
    } else {
        snprintf(text, FL_SAVED_ORIGIN_MAX, "%s after %" PRId64 " step%s", weights, saved->step,
                 fl_plural_ending(saved->step, "step"));
    }
    return text;
}

/* Each line of the note, as a warning. */
static void log_note(const char *field, const char *note)
{
    for (const char *line = note, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        fl_log(FL_LOG_WARN, "%s: %.*s", field, (int)(end - line), line);
    }
}

fl_status fl_saved_model_open_init(const char *init, char path[PATH_MAX], fl_safetensors **weights)
{
    char inside[PATH_MAX];
    fl_saved_model *saved = NULL;
    if (is_folder(init) && !holds_weights(init) && find_below(inside, init, FL_MODEL_FOLDER) &&
        !find_below(inside, init, "job.yaml")) { /* of a run, without its job */
        snprintf(path, PATH_MAX, "%s", init);
        return fl_model_file_open(path, weights);
    }
    FL_TRY(fl_alloc(sizeof *saved, (void **)&saved));
    fl_status status = fl_saved_model_open(init, NULL, saved, weights);
    log_note("model.init", saved->note);
    snprintf(path, PATH_MAX, "%s", saved->weights);
    fl_free(saved);
    return status;
}
