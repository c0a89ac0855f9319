#include "launcher/run/costs/costs.h"

#include "control/agent/measure/own_reach.h"
#include "device/errors/log.h"
#include "device/system/files/folders.h"
#include "pipe/measure/profile.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PROFILE_TIMEOUT_MS = 60000 };

static bool is_kept(const fl_costs *costs)
{
    return costs->path[0] != '\0';
}

void fl_costs_cache_path(const fl_profile_key *key, char path[FL_COSTS_PATH_MAX])
{
    char folder[PATH_MAX];
    path[0] = '\0';
    if (fl_folders_cache(folder)) {
        int n =
            snprintf(path, FL_COSTS_PATH_MAX, "%s/profile-%016" PRIx64 ".yaml", folder, key->hash);
        path[0] = n < 0 || n >= FL_COSTS_PATH_MAX ? '\0' : path[0];
    }
}

static void find_path(const fl_costs_options *o, fl_costs *costs)
{
    const char *given = o->job->pipe.profile;
    if (strcmp(given, "none") == 0) {
        return;
    }
    if (given[0] != '\0') {
        snprintf(costs->path, sizeof costs->path, "%s", given);
    } else {
        fl_costs_cache_path(&costs->key, costs->path);
    }
}

static void find_algorithms(const fl_costs_options *o, fl_costs *costs)
{
    if (is_kept(costs) && o->job->devices.kind == FL_DEVICE_CUDA) {
        snprintf(costs->algorithms, sizeof costs->algorithms, "%s.algorithms", costs->path);
    }
}

void fl_costs_tell_time(fl_profile_about *about)
{
    struct tm utc;
    time_t now = time(NULL);
    strftime(about->measured, sizeof about->measured, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}

/* Whether the file had usable costs. A problem with the file is reported, unless it does not exist.
 */
static bool read_kept(const fl_costs_options *o, fl_costs *costs, fl_profile *profile)
{
    fl_status status = fl_profile_read(costs->path, &costs->key, o->model, profile, &costs->about);
    if (status != FL_OK && status != FL_EIO) {
        snprintf(costs->note, sizeof costs->note, "%s", fl_errmsg());
        fl_log(FL_LOG_WARN, "pipe.profile: %s; the costs are measured again", costs->note);
    }
    return status == FL_OK;
}

void fl_costs_keep(const fl_costs_options *o, const fl_costs *costs, const fl_profile *profile)
{
    if (is_kept(costs) && o->only == NULL &&
        fl_profile_write(costs->path, &costs->key, o->model, profile, &costs->about) != FL_OK) {
        fl_log(FL_LOG_WARN, "pipe.profile: the costs are not kept: %s", fl_errmsg());
    }
}

static fl_status read_only_one(const fl_costs_options *o, fl_costs *costs, fl_profile *profile)
{
    snprintf(costs->path, sizeof costs->path, "%s", o->only);
    costs->origin.from = "file";
    fl_status status = fl_profile_read(o->only, NULL, o->model, profile, &costs->about);
    return status == FL_OK ? FL_OK : fl_fail(FL_EINVAL, "--profile: %s", fl_errmsg());
}

void fl_costs_keep_in(const char *run_dir, const fl_costs_options *o, const fl_costs *costs,
                      const fl_profile *profile)
{
    char path[FL_COSTS_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/" FL_COSTS_RUN_FILE, run_dir);
    if (fl_profile_write(path, &costs->key, o->model, profile, &costs->about) != FL_OK) {
        fl_log(FL_LOG_WARN, "the costs are not kept for --resume: %s", fl_errmsg());
    }
}

/* Another build of the program does not matter: the run shall decide as it did before. Its costs
 * are then not kept as those of the new build. */
static bool read_of_run(const fl_costs_options *o, fl_costs *costs, fl_profile *profile)
{
    char path[FL_COSTS_PATH_MAX + 16];
    fl_profile_key any_build = costs->key;
    snprintf(path, sizeof path, "%s/" FL_COSTS_RUN_FILE, o->run_dir);
    if (fl_profile_read(path, &costs->key, o->model, profile, &costs->about) == FL_OK) {
        return true;
    }
    any_build.name[FL_PROFILE_KEY_PROGRAM] = NULL;
    if (fl_profile_read(path, &any_build, o->model, profile, &costs->about) == FL_OK) {
        costs->path[0] = '\0';
        return true;
    }
    snprintf(costs->note, sizeof costs->note, "%s", fl_errmsg());
    fl_log(FL_LOG_WARN,
           "--resume: %s; later decisions may differ from those of the run without the "
           "interruption",
           costs->note);
    return false;
}

/* From the run that continues, or from the file. */
static bool read_known(const fl_costs_options *o, fl_costs *costs, fl_profile *profile)
{
    if (o->run_dir != NULL && read_of_run(o, costs, profile)) {
        costs->origin.from = "run";
        return true;
    }
    if (is_kept(costs) && read_kept(o, costs, profile)) {
        costs->origin.from = "file";
        return true;
    }
    return false;
}

void fl_costs_find(const fl_costs_options *o, fl_costs *costs)
{
    *costs = (fl_costs){.nccl = *o->nccl};
    fl_profile_key_of(o->model, o->job, o->memory_one, o->sizes, o->devices, o->nccl, o->n_workers,
                      &costs->key);
    if (o->only == NULL) {
        find_path(o, costs);
        find_algorithms(o, costs);
    }
}

/* What the event tells. */
static void note_origin(fl_costs *costs, const fl_profile *profile)
{
    costs->origin.path = is_kept(costs) ? costs->path : NULL;
    costs->origin.measured = costs->about.measured;
    costs->origin.live_steps = profile->live_steps;
    costs->origin.note = costs->note[0] == '\0' ? NULL : costs->note;
}

bool fl_costs_look(const fl_costs_options *o, fl_costs *costs, fl_profile *profile)
{
    fl_costs_find(o, costs);
    bool known = read_known(o, costs, profile);
    note_origin(costs, profile);
    return known;
}

/* Two processes of this host measure their link at this address, also where workers have another.
 */
static fl_status check_loopback(const fl_costs_options *o)
{
    const uint16_t any[2] = {0, 0};
    fl_own_reach_fault fault;
    if (!fl_profile_has_link(o->job, o->devices, o->n_workers) ||
        fl_own_reach("127.0.0.1", any, &fault)) {
        return FL_OK;
    }
    return fl_fail(FL_ENOTSUP,
                   "the link between two workers of this host cannot be measured: %s; allowed: %s "
                   "(`frostline doctor` checks it)",
                   fault.found, fault.allowed);
}

fl_status fl_costs_measure(const fl_costs_options *o, fl_costs *costs, fl_profile *profile)
{
    costs->origin.from = "measured";
    FL_TRY(check_loopback(o));
    FL_TRY(fl_profile_measure(o->model, o->dataset, o->job, o->devices, o->n_workers, &costs->nccl,
                              PROFILE_TIMEOUT_MS, profile));
    fl_costs_tell_time(&costs->about);
    if (fl_nccl_is_usable(o->nccl) && !fl_nccl_is_usable(&costs->nccl)) {
        if (o->job->autodp.transport == FL_TRANSPORT_AUTO) { /* else the run does not start */
            fl_log(FL_LOG_WARN, "%s; workers exchange data without it", costs->nccl.reason);
        }
        costs->path[0] = '\0'; /* NCCL may work the next time: these costs are not kept */
    }
    return FL_OK;
}

void fl_costs_take(const fl_costs_options *o, fl_costs *costs, const fl_profile *profile)
{
    fl_costs_keep(o, costs, profile);
    note_origin(costs, profile);
}

fl_status fl_costs_get(const fl_costs_options *options, fl_costs *costs, fl_profile *profile)
{
    if (options->only != NULL) {
        fl_costs_find(options, costs);
        FL_TRY(read_only_one(options, costs, profile));
    } else if (!fl_costs_look(options, costs, profile)) {
        FL_TRY(fl_costs_measure(options, costs, profile));
        fl_costs_keep(options, costs, profile);
    }
    note_origin(costs, profile);
    return FL_OK;
}
