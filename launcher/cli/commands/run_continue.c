#include "launcher/cli/commands/run_continue.h"

#include "control/state/hosts/run_proof.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/runs/run_hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ASIDE_MAX = 1000 };

static fl_status check_options(const fl_args *args)
{
    static const char *const others[] = {"--resume", "--replay"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (fl_args_has(args, others[i])) {
            return fl_fail(FL_EINVAL, "--continue: %s is given, too; allowed: one of them",
                           others[i]);
        }
    }
    return !fl_args_has(args, "--run-dir") ? fl_fail(FL_EINVAL, "--continue: --run-dir DIR is "
                                                                "missing, the run to continue")
           : args->operand == NULL         ? fl_fail(FL_EINVAL, "--continue: JOB.yaml is missing, "
                                                                        "for a run that has not begun")
                                           : FL_OK;
}

/* Keys and proofs of a head that was killed: the run does not continue in this folder. */
static void forget_hosts(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fl_hosts_remove_key(fd);
        fl_run_proof_sweep(fd);
        close(fd);
    }
}

/* Whether the job of the command line is that of the run, as in the command that begins again a run
 * of which nothing was kept. */
static bool is_own_job(const char *dir, const char *job)
{
    char path[PATH_MAX];
    struct stat own, given;
    return snprintf(path, sizeof path, "%s/job.yaml", dir) < (int)sizeof path &&
           stat(path, &own) == 0 && stat(job, &given) == 0 && own.st_dev == given.st_dev &&
           own.st_ino == given.st_ino;
}

/* Under DIR-1, DIR-2, ...
 * job   in: "" ; out: DIR-1/job.yaml if the job `given` goes with the directory */
static fl_status move_aside(const char *dir, const char *given, char job[PATH_MAX])
{
    char aside[PATH_MAX - 16];
    bool goes = is_own_job(dir, given);
    for (int i = 1; i < ASIDE_MAX; i++) {
        int n = snprintf(aside, sizeof aside, "%s-%d", dir, i);
        if (n >= (int)sizeof aside) {
            return fl_fail(FL_EINVAL, "--run-dir: the path is longer than %zu bytes", sizeof aside);
        }
        if (access(aside, F_OK) != 0 && rename(dir, aside) == 0) {
            forget_hosts(aside);
            if (goes) {
                snprintf(job, PATH_MAX, "%s/job.yaml", aside);
            }
            fl_log(FL_LOG_WARN,
                   "--continue: the run in %s has no checkpoint: it is now %s, and the "
                   "run begins again",
                   dir, aside);
            return FL_OK;
        }
    }
    return fl_fail(FL_EIO, "--continue: the run in %s has no checkpoint, and cannot be renamed: %s",
                   dir, strerror(errno));
}

static bool has_checkpoint(const char *dir)
{
    char path[PATH_MAX];
    fl_checkpoint_folder *all = NULL;
    int n = 0, n_whole = 0;
    int length = snprintf(path, sizeof path, "%s/" FL_CHECKPOINT_FOLDER, dir);
    if (length >= (int)sizeof path || fl_checkpoint_list(path, &all, &n) != FL_OK) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        n_whole += all[i].whole;
    }
    fl_free(all);
    return n_whole > 0;
}

/* It was killed before its first event, or begins just now. */
static bool has_events(const char *dir)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/events.jsonl", dir) >= (int)sizeof path ||
           access(path, F_OK) == 0;
}

/* A run that lives is refused by --resume, which says how to end it. */
static fl_status look_at_run(const char *dir, const char *given, fl_run_begin *out,
                             char job[PATH_MAX])
{
    fl_run_entry *entry = NULL;
    if (!has_events(dir) && !fl_run_is_held(dir)) {
        *out = FL_RUN_BEGIN_NEW;
        return move_aside(dir, given, job);
    }
    if (!has_events(dir)) {
        return fl_fail(FL_EBUSY, "--continue: another process starts the run in %s", dir);
    }
    FL_TRY(fl_alloc(sizeof *entry, (void **)&entry));
    fl_status status = fl_run_look(dir, entry);
    fl_run_state state = entry->state;
    fl_free(entry);
    FL_TRY(status);
    bool lives = fl_run_state_lives(state) || fl_run_is_held(dir);
    *out = state == FL_RUN_FINISHED       ? FL_RUN_BEGIN_OVER
           : lives || has_checkpoint(dir) ? FL_RUN_BEGIN_RESUME
                                          : FL_RUN_BEGIN_NEW;
    return *out == FL_RUN_BEGIN_NEW ? move_aside(dir, given, job) : FL_OK;
}

fl_status fl_run_continue_look(const fl_args *args, fl_run_begin *out, char job[PATH_MAX])
{
    char own[PATH_MAX];
    job[0] = '\0';
    FL_TRY(check_options(args));
    const char *dir = fl_args_value(args, "--run-dir");
    int n = snprintf(own, sizeof own, "%s/job.yaml", dir);
    *out = FL_RUN_BEGIN_NEW;
    return n < (int)sizeof own && access(own, F_OK) == 0 ? look_at_run(dir, args->operand, out, job)
                                                         : FL_OK;
}

void fl_run_continue_args(const fl_args *args, const fl_cli_option *resume, fl_args *out)
{
    *out = *args;
    out->operand = NULL;
    out->n_operands = 0;
    out->n_given = 0;
    for (int i = 0; i < args->n_given; i++) {
        const char *name = args->given[i].option->name;
        if (strcmp(name, "--continue") != 0) {
            out->given[out->n_given] = args->given[i];
            out->given[out->n_given].option =
                strcmp(name, "--run-dir") == 0 ? resume : args->given[i].option;
            out->n_given++;
        }
    }
}
