#include "launcher/doctor/hosts/shared_runs.h"

#include "launcher/doctor/checks/doctor.h"
#include "launcher/doctor/hosts/stops.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ANSWER_MS = 10000, /* for the answer to be seen by the head, which may be busy */
    TRIES = 5,
};

/* ---- on the head ---- */

static void remove_proofs(fl_shared_runs *s)
{
    for (int i = 1; i < s->n && s->folder.dir_fd >= 0; i++) {
        fl_run_proof_remove(s->folder.dir_fd, s->proof[i]);
        if (s->held[i] >= 0) {
            close(s->held[i]);
            s->held[i] = -1;
        }
    }
}

/* The clock of a file server is that of the file which was made just now. */
static void sweep_old(const fl_shared_runs *s)
{
    struct stat now;
    if (s->n > 1 && fstatat(s->folder.dir_fd, s->proof[1], &now, 0) == 0) {
        fl_run_proof_sweep_old(s->folder.dir_fd, now.st_mtime);
    }
}

static fl_status write_proofs(fl_shared_runs *s)
{
    for (int i = 1; i < s->n; i++) {
        FL_TRY(fl_run_proof_write(s->folder.dir_fd, s->proof[i]));
        s->held[i] = fl_run_proof_hold(s->folder.dir_fd, s->proof[i]);
    }
    sweep_old(s);
    return FL_OK;
}

/* Until no other doctor removes the folder in between. */
static fl_status begin_folder(const char *path, fl_shared_runs *s)
{
    fl_status status = FL_EIO;
    for (int i = 0; i < TRIES; i++) {
        FL_TRY(fl_runs_folder_open(path, &s->folder));
        status = write_proofs(s);
        if (status == FL_OK || !fl_runs_folder_is_gone(&s->folder)) {
            return status;
        }
        remove_proofs(s);
        fl_runs_folder_close(&s->folder);
    }
    return status;
}

fl_status fl_shared_runs_begin(const char *path, int n_hosts, fl_shared_runs *s)
{
    *s = (fl_shared_runs){.folder = {.dir_fd = -1}, .n = n_hosts};
    memset(s->held, -1, sizeof s->held);
    fl_doctor_hold_stops(&s->mask_before);
    fl_status status = begin_folder(path, s);
    if (status != FL_OK) {
        fl_shared_runs_end(s);
    }
    return status;
}

void fl_shared_runs_look(fl_shared_runs *s)
{
    for (int i = 1; i < s->n; i++) {
        s->answered[i] = s->answered[i] || fl_run_proof_take_answer(s->folder.path, s->proof[i]);
    }
}

void fl_shared_runs_end(fl_shared_runs *s)
{
    remove_proofs(s);
    fl_runs_folder_close(&s->folder);
    fl_doctor_release_stops(&s->mask_before);
}

/* ---- on the host ---- */

static int look_here(const char *path, const char *proof, bool *found)
{
    *found = fl_run_proof_await(path, proof);
    if (*found) {
        int error = fl_run_proof_answer(path, proof);
        if (error == 0) {
            fl_run_proof_withdraw(path, proof, ANSWER_MS);
        }
        return error;
    }
    return access(path, R_OK | X_OK) == 0 ? 0 : errno;
}

void fl_shared_runs_answer(const char *path, const char *proof, fl_json *json)
{
    char full[PATH_MAX];
    sigset_t before;
    bool found;
    fl_doctor_absolute(path, full);
    fl_doctor_hold_stops(&before);
    int error = look_here(full, proof, &found);
    fl_doctor_release_stops(&before);
    fl_json_object(json, "proof");
    fl_json_bool(json, "found", found);
    fl_json_text(json, "error", error == 0 ? "" : strerror(error));
    fl_json_close(json, '}');
}

/* ---- what is said of it ---- */

#define OR_APART "; or set run.shared: false, and the hosts share no directory"

static void judge_host(const char *path, const char *head, bool answered, fl_doctor_host *host)
{
    const json_t *proof = json_object_get(host->answer, "proof");
    const char *error = json_string_value(json_object_get(proof, "error"));
    bool found = json_is_true(json_object_get(proof, "found"));
    bool failed = error != NULL && error[0] != '\0';
    fl_finding *f;
    if (found && !failed && answered) {
        fl_finding_add(&host->findings, FL_VERDICT_OK, "shared",
                       "%.300s: hosts %s and %s see what the other one writes there", path, head,
                       host->name);
    } else if (found && failed) {
        f = fl_finding_add(&host->findings, FL_VERDICT_ERROR, "shared",
                           "%.300s is the directory of host %s, but host %s cannot write there: %s",
                           path, head, host->name, error);
        fl_finding_advise(f,
                          "mount it on host %s for writing, and give this user the right to write "
                          "there" OR_APART,
                          host->name);
    } else if (found) {
        f = fl_finding_add(
            &host->findings, FL_VERDICT_ERROR, "shared",
            "%.300s: host %s sees what host %s writes there, but host %s does not see "
            "what host %s writes: an overlay, or a copy in one direction",
            path, host->name, head, head, host->name);
        fl_finding_advise(f, "mount the file system itself on host %s, by the same path" OR_APART,
                          host->name);
    } else {
        f = fl_finding_add(&host->findings, FL_VERDICT_ERROR, "shared",
                           "%.300s: host %s does not see what host %s writes there: %s", path,
                           host->name, head, failed ? error : "another directory, or a copy");
        fl_finding_advise(f,
                          "mount the file system of %.300s of host %s on host %s, by the same "
                          "path" OR_APART,
                          path, head, host->name);
    }
}

void fl_shared_runs_judge(const fl_shared_runs *s, fl_doctor_host *hosts)
{
    for (int i = 1; i < s->n; i++) {
        if (json_is_object(json_object_get(hosts[i].answer, "proof"))) {
            judge_host(s->folder.path, hosts[0].name, s->answered[i], &hosts[i]);
        }
    }
}
