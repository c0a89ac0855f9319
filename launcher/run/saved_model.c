/* Finds the parts of a saved model:
 *
 *     a folder of weights       DIR/model.safetensors or its index, DIR/config.json
 *     a checkpoint              the same, or config.json and job.yaml of the run above it
 *     a run                     RUN/model, else the newest of RUN/checkpoints */
#include "launcher/run/saved_model.h"

#include "launcher/run/runs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_FILE FL_MODEL_FILE ".index.json"
#define CHECKPOINTS_FOLDER "checkpoints"
#define CHECKPOINT_NAME "step-"
#define MANIFEST_FILE "manifest.json"

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

/* The run above a folder of weights, if there is one: RUN/model or RUN/checkpoints/NAME. A job file
 * alone makes no run. */
static void find_run_above(const char *folder, fl_saved_model *out)
{
    static const char *const above[] = {"..", "../.."};
    char run[PATH_MAX], events[PATH_MAX];
    for (int i = 0; i < 2 && out->job[0] == '\0'; i++) {
        int n = snprintf(run, sizeof run, "%s/%s", folder, above[i]);
        bool is_run = n < PATH_MAX && find_below(events, run, "events.jsonl") &&
                      find_below(out->job, run, "job.yaml");
        if (is_run && out->config[0] == '\0') {
            (void)find_below(out->config, run, FL_MODEL_FOLDER "/" FL_MODEL_CONFIG_FILE);
        }
    }
}

static void take_folder(const char *folder, fl_saved_model *out)
{
    snprintf(out->weights, sizeof out->weights, "%s", folder);
    (void)find_below(out->config, folder, FL_MODEL_CONFIG_FILE);
    find_run_above(folder, out);
}

/* The newest checkpoint of the run that is complete. */
static bool find_checkpoint(const char *run, char path[PATH_MAX])
{
    char folder[PATH_MAX], name[512], best[256] = "";
    DIR *dir = find_below(folder, run, CHECKPOINTS_FOLDER) ? opendir(folder) : NULL;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        snprintf(name, sizeof name, "%s/" MANIFEST_FILE, e->d_name);
        bool is_later = strlen(e->d_name) > strlen(best) ||
                        (strlen(e->d_name) == strlen(best) && strcmp(e->d_name, best) > 0);
        if (strncmp(e->d_name, CHECKPOINT_NAME, strlen(CHECKPOINT_NAME)) == 0 && is_later &&
            find_below(path, folder, name)) {
            snprintf(best, sizeof best, "%s", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return best[0] != '\0' && find_below(path, folder, best);
}

static fl_status take_run(const char *run, fl_saved_model *out)
{
    char path[PATH_MAX];
    bool left = find_below(path, run, FL_MODEL_FOLDER) && holds_weights(path);
    if (!left && !find_checkpoint(run, path)) {
        return fl_fail(FL_EINVAL, "%s: this run has left no model and no checkpoint", run);
    }
    take_folder(path, out);
    (void)find_below(out->job, run, "job.yaml");
    return FL_OK;
}

static fl_status take_file(const char *path, fl_saved_model *out)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path),
             slash == NULL ? "." : path);
    take_folder(folder, out);
    snprintf(out->weights, sizeof out->weights, "%s", path);
    return FL_OK;
}

fl_status fl_saved_model_find(const char *name, fl_saved_model *out)
{
    char path[PATH_MAX];
    fl_run_entry run;
    fl_job defaults;
    *out = (fl_saved_model){0};
    if (strlen(name) >= PATH_MAX) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", name);
    }
    if (is_folder(name) && holds_weights(name)) {
        take_folder(name, out);
        return FL_OK;
    }
    if (is_folder(name) && find_below(path, name, "job.yaml")) {
        return take_run(name, out);
    }
    if (is_folder(name)) {
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
        return fl_fail(FL_EINVAL,
                       "%s: not found; allowed: a folder or file of weights, a checkpoint, a run "
                       "directory, or the name of a run in %s",
                       name, defaults.run.dir);
    }
    return take_run(run.path, out);
}
