#include "control/state/hosts/run_proof.h"

#include "device/system/clock.h"
#include "device/text/plain_name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_SUFFIX "-seen"

enum { LOOK_MS = 100 };

/* Returns 0, or an errno. */
static int make_file(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return errno;
    }
    close(fd);
    return 0;
}

fl_status fl_run_proof_write(int dir_fd, char name[FL_RUN_PROOF_TEXT])
{
    uint64_t random[2];
    name[0] = '\0';
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return fl_fail(FL_EIO, "getrandom: %s", strerror(errno));
    }
    char made[FL_RUN_PROOF_TEXT];
    snprintf(made, sizeof made, FL_RUN_PROOF_PREFIX "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    int error = make_file(dir_fd, made);
    if (error != 0) {
        return fl_fail(FL_EIO, "cannot write %s to the run directory: %s", made, strerror(error));
    }
    snprintf(name, FL_RUN_PROOF_TEXT, "%s", made);
    return FL_OK;
}

/* Opening the directory makes a client of NFS ask the server whether it has changed. */
static bool is_there(const char *run_dir, const char *name)
{
    int fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool found = fd >= 0 && faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return found;
}

/* Returns whether it is there at the end. */
static bool look_until(bool wanted, const char *run_dir, const char *name, int64_t wait_ms)
{
    int64_t until_us = fl_deadline_us(wait_ms);
    bool found = is_there(run_dir, name);
    while (found != wanted && fl_left_ms(until_us) > 0) {
        nanosleep(&(struct timespec){0, LOOK_MS * 1000000L}, NULL);
        found = is_there(run_dir, name);
    }
    return found;
}

bool fl_run_proof_await(const char *dir, const char *name)
{
    return look_until(true, dir, name, FL_RUN_PROOF_SHOW_MS);
}

bool fl_run_proof_is_name(const char *text)
{
    return strncmp(text, FL_RUN_PROOF_PREFIX, strlen(FL_RUN_PROOF_PREFIX)) == 0 &&
           fl_name_is_plain(text, FL_RUN_PROOF_TEXT - sizeof ANSWER_SUFFIX);
}

static void name_answer(const char *proof, char name[FL_RUN_PROOF_TEXT])
{
    snprintf(name, FL_RUN_PROOF_TEXT, "%.*s" ANSWER_SUFFIX,
             (int)(FL_RUN_PROOF_TEXT - sizeof ANSWER_SUFFIX), proof);
}

int fl_run_proof_answer(const char *dir, const char *proof)
{
    char name[FL_RUN_PROOF_TEXT];
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    name_answer(proof, name);
    if (error == 0) {
        error = make_file(fd, name);
    }
    if (fd >= 0) {
        close(fd);
    }
    return error;
}

void fl_run_proof_withdraw(const char *dir, const char *proof, int64_t wait_ms)
{
    char name[FL_RUN_PROOF_TEXT];
    name_answer(proof, name);
    int fd =
        look_until(false, dir, name, wait_ms) ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)unlinkat(fd, name, 0);
        close(fd);
    }
}

bool fl_run_proof_take_answer(const char *dir, const char *proof)
{
    char name[FL_RUN_PROOF_TEXT];
    name_answer(proof, name);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool taken = fd >= 0 && (unlinkat(fd, name, 0) == 0 || errno == EACCES || errno == EPERM);
    if (fd >= 0) {
        close(fd);
    }
    return taken;
}

/* The proof goes first: a host that sees none writes no answer. */
void fl_run_proof_remove(int dir_fd, char name[FL_RUN_PROOF_TEXT])
{
    char answer[FL_RUN_PROOF_TEXT];
    if (name[0] != '\0') {
        name_answer(name, answer);
        (void)unlinkat(dir_fd, name, 0);
        (void)unlinkat(dir_fd, answer, 0);
        name[0] = '\0';
    }
}

void fl_run_proof_sweep(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        size_t n = strlen(FL_RUN_PROOF_PREFIX);
        if (strncmp(entry->d_name, FL_RUN_PROOF_PREFIX, n) == 0) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    closedir(dir);
}
