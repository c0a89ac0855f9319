#include "launcher/run/joined/joined_open.h"

#include "control/agent/wire/agent_socket.h"
#include "control/state/hosts/run_proof.h"
#include "device/system/alloc.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/hosts/key_read.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

fl_status fl_joined_read_job(int job_fd, int64_t job_bytes, fl_job *job)
{
    size_t n = (size_t)job_bytes;
    char *text = NULL;
    FL_TRY(fl_alloc(n + 1, (void **)&text));
    fl_status status = pread(job_fd, text, n, 0) == (ssize_t)n
                           ? fl_job_parse("job.yaml of the head", text, n, NULL, 0, job)
                           : fl_fail(FL_EIO, "the job of the head: %s", strerror(errno));
    fl_free(text);
    return status;
}

fl_status fl_joined_enter(const char *who, const char *cwd)
{
    return chdir(cwd) == 0 ? FL_OK
                           : fl_fail(FL_EINVAL,
                                     "%s: the head runs in %.300s, to which the job's paths are "
                                     "relative: %s",
                                     who, cwd, strerror(errno));
}

/* Whether this user may not read it: the run's keys are for the user of the head alone. */
static bool is_denied(const char *path)
{
    return faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0 && errno == EACCES;
}

/* The keys tell the run's own directory from another one of the same path, and the file from a
 * copy. */
fl_status fl_joined_open_shared(const char *run_dir, const char *proof, const char *cwd,
                                const fl_curve_keys *keys, int *dir_fd)
{
    char path[PATH_MAX + sizeof FL_HOSTS_KEY_FILE + 1];
    fl_curve_keys there;
    snprintf(path, sizeof path, "%s/" FL_HOSTS_KEY_FILE, run_dir);
    *dir_fd = open(run_dir, O_RDONLY | O_DIRECTORY);
    if (is_denied(path)) {
        return fl_fail(FL_EINVAL,
                       "--join: %s: Permission denied; allowed: an agent of the user that runs the "
                       "head, or run.shared false",
                       path);
    }
    if (*dir_fd < 0 || fl_hosts_read_key(path, &there) != FL_OK ||
        strcmp(there.server, keys->server) != 0 ||
        (proof != NULL && !fl_run_proof_await(run_dir, proof))) {
        return fl_fail(FL_EINVAL,
                       "--join: %s is not the head's run directory here; allowed: a run.dir on a "
                       "file system that all hosts share, or run.shared false",
                       run_dir);
    }
    return fl_joined_enter("--join", cwd);
}

fl_status fl_joined_answer(const fl_host_welcome *welcome, int socket)
{
    int error = fl_run_proof_answer(welcome->run_dir, welcome->proof);
    if (error != 0) {
        return fl_fail(FL_EINVAL,
                       "--join: %.150s cannot be written here: %s; allowed: a run.dir that all "
                       "hosts share and may write to, or run.shared false",
                       welcome->run_dir, strerror(error));
    }
    const fl_agent_frame shares = {.type = FL_AGENT_SHARES, .rank = welcome->host.first};
    return fl_agent_socket_send(socket, &shares)
               ? FL_OK
               : fl_fail(FL_EIO, "cannot tell the head that its run directory is shared");
}
