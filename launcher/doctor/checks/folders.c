/* Folders that a run writes to. */
#include "launcher/doctor/checks/doctor.h"

#include "device/system/files/folders.h"
#include "device/text/size_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

static const double FREE_LEAST = 1024.0 * 1024.0 * 1024.0;

void fl_doctor_find_existing(const char *path, char found[PATH_MAX])
{
    snprintf(found, PATH_MAX, "%s", path);
    while (faccessat(AT_FDCWD, found, F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
           (errno == ENOENT || errno == ENOTDIR)) {
        char *slash = strrchr(found, '/');
        if (slash == NULL) {
            snprintf(found, PATH_MAX, ".");
        } else {
            slash[slash == found] = '\0';
        }
        if (slash == found) {
            return;
        }
    }
}

const char *fl_doctor_fault(const char *found, int error, char text[FL_DOCTOR_FAULT_TEXT])
{
    char to[FL_DOCTOR_FAULT_TEXT / 2];
    ssize_t n = readlink(found, to, sizeof to - 1);
    if (n < 0 || access(found, F_OK) == 0 || errno != ENOENT) {
        snprintf(text, FL_DOCTOR_FAULT_TEXT, "%s", strerror(error));
        return text;
    }
    to[n] = '\0';
    snprintf(text, FL_DOCTOR_FAULT_TEXT, "a symbolic link to %s, which does not exist", to);
    return text;
}

/* A file without a name is written, so nothing is left. Where the file system has no such files, a
 * file is made and removed. Returns 0 or an errno. */
static int try_file(const char *folder)
{
    char path[PATH_MAX + 64];
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        snprintf(path, sizeof path, "%s/.frostline-doctor-%d", folder, (int)getpid());
        fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        unlink(path);
    }
    if (fd < 0) {
        return errno;
    }
    int error = write(fd, "x", 1) == 1 ? 0 : errno;
    close(fd);
    return error;
}

/* The control socket lies in the run directory, which may be on a network's file system. */
static int try_socket(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = at < 0 || fd < 0 ? errno : 0;
    if (error == 0) {
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/.frostline-%d", at,
                 (int)getpid());
        error = bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ? errno : 0;
        unlink(address.sun_path);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (at >= 0) {
        close(at);
    }
    return error;
}

const char *fl_doctor_here(char here[PATH_MAX])
{
    if (getcwd(here, PATH_MAX) == NULL) {
        snprintf(here, PATH_MAX, "a folder that was removed");
    }
    return here;
}

void fl_doctor_absolute(const char *path, char full[PATH_MAX])
{
    char here[PATH_MAX];
    const char *rest = path;
    while (strncmp(rest, "./", 2) == 0) {
        rest += 2;
    }
    if (path[0] == '/' || getcwd(here, sizeof here) == NULL) {
        snprintf(full, PATH_MAX, "%s", path);
    } else if (strcmp(rest, ".") == 0 || rest[0] == '\0') {
        snprintf(full, PATH_MAX, "%s", here);
    } else {
        snprintf(full, PATH_MAX, "%.2000s/%.2000s", strcmp(here, "/") == 0 ? "" : here, rest);
    }
}

static void look_at_runs(const char *path, fl_findings *findings)
{
    char runs[PATH_MAX], folder[PATH_MAX], left[FL_SIZE_TEXT_MAX], fault[FL_DOCTOR_FAULT_TEXT];
    struct statvfs fs;
    fl_doctor_absolute(path, runs);
    fl_doctor_find_existing(runs, folder);
    int error = try_file(folder);
    bool is_socket = error == 0;
    error = error == 0 ? try_socket(folder) : error;
    if (error != 0) {
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "runs", "%s: %s%s", folder,
                                       is_socket ? "a socket cannot be made: " : "",
                                       fl_doctor_fault(folder, error, fault));
        fl_finding_advise(f,
                          "runs are written to %s: give this user the right to write there, or "
                          "name another folder (run.dir, or frostline run --run-dir)",
                          runs);
        return;
    }
    double bytes = statvfs(folder, &fs) == 0 ? (double)fs.f_bavail * (double)fs.f_frsize : -1.0;
    bool full = bytes >= 0.0 && bytes < FREE_LEAST;
    fl_finding *f = fl_finding_add(
        findings, full ? FL_VERDICT_WARNING : FL_VERDICT_OK, "runs", "%s can be %s, %s are free",
        runs, strcmp(runs, folder) == 0 ? "written" : "made", fl_size_text(bytes, left));
    if (full) {
        fl_finding_advise(f,
                          "make room, at least %s: checkpoints, the model and logs are written "
                          "there",
                          fl_size_text(FREE_LEAST, left));
    }
}

static void look_at_cache(fl_findings *findings)
{
    char cache[PATH_MAX], folder[PATH_MAX], fault[FL_DOCTOR_FAULT_TEXT];
    fl_finding *f;
    if (!fl_folders_cache(cache)) {
        f = fl_finding_add(findings, FL_VERDICT_WARNING, "profiles",
                           "the environment names no folder for what can be computed again");
        fl_finding_advise(f, "set HOME or XDG_CACHE_HOME: without it, each run measures its layers "
                             "anew");
        return;
    }
    fl_doctor_find_existing(cache, folder);
    int error = try_file(folder);
    if (error == 0) {
        fl_finding_add(findings, FL_VERDICT_OK, "profiles", "kept in %s", cache);
        return;
    }
    f = fl_finding_add(findings, FL_VERDICT_WARNING, "profiles", "%s: %s", folder,
                       fl_doctor_fault(folder, error, fault));
    fl_finding_advise(f,
                      "each run measures its layers anew, until %s can be written or "
                      "XDG_CACHE_HOME names another folder",
                      cache);
}

void fl_doctor_say_unknown_runs(fl_findings *findings)
{
    int n = 0;
    for (int i = 0; i < findings->n; i++) {
        if (strcmp(findings->of[i].check, "runs") != 0) {
            findings->of[n++] = findings->of[i];
        }
    }
    findings->n = n;
    fl_finding *f = fl_finding_add(findings, FL_VERDICT_WARNING, "runs",
                                   "not checked: the field run of the job cannot be read");
    fl_finding_advise(f, "correct the job, or name the folder of runs by --runs");
}

void fl_doctor_look_at_folders(const char *runs, fl_findings *findings)
{
    if (runs == NULL) {
        fl_doctor_say_unknown_runs(findings);
    } else {
        look_at_runs(runs, findings);
    }
    look_at_cache(findings);
}
