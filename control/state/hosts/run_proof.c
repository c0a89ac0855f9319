#include "control/state/hosts/run_proof.h"

#include "device/errors/io_status.h"
#include "device/system/clock.h"
#include "device/text/plain_name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_SUFFIX "-seen"
#define NOTE_PREFIX FL_RUN_PROOF_PREFIX "made-"

enum { LOOK_MS = 100, RANDOM_DIGITS = 32 };

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
        return fl_fail(fl_io_status(error), "cannot write %s to the run directory: %s", made,
                       strerror(error));
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

/* Read the directory anew. NULL: it cannot be read. */
static DIR *list_files(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL && fd >= 0) {
        close(fd);
    }
    return dir;
}

static bool has_prefix(const char *name)
{
    return strncmp(name, FL_RUN_PROOF_PREFIX, strlen(FL_RUN_PROOF_PREFIX)) == 0;
}

void fl_run_proof_sweep(int dir_fd)
{
    DIR *dir = list_files(dir_fd);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (has_prefix(entry->d_name)) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* ---- what was left in the directory of all runs ---- */

int fl_run_proof_hold(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool is_note(const char *name)
{
    return strncmp(name, NOTE_PREFIX, strlen(NOTE_PREFIX)) == 0;
}

/* The name of a proof or an answer, and not that of a user's own file. */
static bool is_random_name(const char *name)
{
    if (!has_prefix(name)) {
        return false;
    }
    const char *rest = name + strlen(FL_RUN_PROOF_PREFIX);
    size_t n = strspn(rest, "0123456789abcdef");
    return n == RANDOM_DIGITS && (rest[n] == '\0' || strcmp(rest + n, ANSWER_SUFFIX) == 0);
}

/* Another user's file is taken for one that is held. */
static bool is_held(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool held = fd < 0 || (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    if (fd >= 0) {
        close(fd);
    }
    return held;
}

static void remove_old(int dir_fd, const char *name, int64_t now_s)
{
    struct stat s;
    bool old = fstatat(dir_fd, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode) &&
               s.st_size == 0 && (int64_t)s.st_mtime < now_s - FL_RUN_PROOF_OLD_S;
    if (old && !is_held(dir_fd, name)) {
        (void)unlinkat(dir_fd, name, 0);
    }
}

void fl_run_proof_sweep_old(int dir_fd, int64_t now_s)
{
    DIR *dir = list_files(dir_fd);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (is_random_name(entry->d_name)) {
            remove_old(dirfd(dir), entry->d_name, now_s);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* ---- a directory of all runs that a doctor has made ---- */

int fl_run_proof_note_made(int dir_fd, int n_made)
{
    char name[FL_RUN_PROOF_TEXT];
    snprintf(name, sizeof name, NOTE_PREFIX "%d", n_made);
    int error = make_file(dir_fd, name);
    return error == EEXIST ? 0 : error;
}

/* Returns how many files there are beside the notes of doctors; *proofs: of these, how many are
 * files of doctors that are at work, or were killed. *n_made: the most that is noted. */
static int look_into(DIR *dir, int *n_proofs, int *n_made)
{
    const struct dirent *entry;
    int n = 0;
    *n_proofs = *n_made = 0;
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        int noted = is_note(name) ? atoi(name + strlen(NOTE_PREFIX)) : 0;
        *n_made = noted > *n_made ? noted : *n_made;
        n += !is_note(name) && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
        *n_proofs += is_random_name(name);
    }
    return n;
}

static void remove_notes(DIR *dir)
{
    const struct dirent *entry;
    rewinddir(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (is_note(entry->d_name)) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
}

int fl_run_proof_take_made(int dir_fd)
{
    DIR *dir = list_files(dir_fd);
    if (dir == NULL) {
        return 0;
    }
    int n_proofs, n_made, n = look_into(dir, &n_proofs, &n_made);
    if (n_made > 0 && (n == 0 || n > n_proofs)) {
        remove_notes(dir);
    }
    closedir(dir);
    return n == 0 ? n_made : 0;
}
