/* The file that keeps cuBLASLt's answers, so that the next process does not ask again.
 *
 *     # frostline: cuBLASLt algorithms for NVIDIA H100 80GB HBM3, compute capability 9.0
 *     VERSION KEY ALGORITHM HASH      a line for each, as fl_cuda_algorithms_save has it; its hash
 *
 * It is read when a device is opened. When the device is destroyed, its answers and those that
 * other processes have written since are put together, under a lock on the file. A file for another
 * GPU is replaced; a file that is something else is left alone. A line whose hash is wrong, as one
 * that a killed process has written half, is skipped: the library would believe a broken algorithm
 * and compute nonsense with it. A run needs none of this: no failure here is an error. */
#include "device/cuda/parts.h"
#include "device/errors/log.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MARK "# frostline: cuBLASLt algorithms for "

enum {
    FILE_BYTES_MAX = 1 << 20,
    HEAD_BYTES = sizeof MARK + FL_CUDA_NAME_BYTES + 64,
    HASH_BYTES = 17, /* " 0123456789abcdef" */
    LOCK_TRIES = 50,
    LOCK_PAUSE_MS = 10
};

/* The first line of this device's file; "" if the device cannot be described. */
static void write_head(const fl__cuda *c, char head[HEAD_BYTES])
{
    fl_cuda_facts facts = {0};
    head[0] = '\0';
    if (c->plugin->describe_device(c->number, &facts) != FL_CUDA_OK) {
        return;
    }
    for (char *at = facts.name; *at != '\0'; at++) {
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
    }
    snprintf(head, HEAD_BYTES, MARK "%s, compute capability %d.%d\n", facts.name,
             facts.capability[0], facts.capability[1]);
}

/* All of an open file as text; NULL if it is too large, or there is no memory. */
static char *read_text(int fd)
{
    void *memory = NULL;
    struct stat what;
    if (fstat(fd, &what) != 0 || what.st_size > FILE_BYTES_MAX ||
        fl_alloc((size_t)what.st_size + 1, &memory) != FL_OK) {
        return NULL;
    }
    char *text = memory;
    ssize_t n = pread(fd, text, (size_t)what.st_size, 0);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static void write_hash(const char *line, size_t n, char out[HASH_BYTES + 1])
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) {
        hash = fl_mix64(hash, (unsigned char)line[i]);
    }
    snprintf(out, HASH_BYTES + 1, " %016" PRIx64, hash);
}

/* Let a text keep those lines whose hash is right, without it. */
static void check_lines(char *text)
{
    char *to = text;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        char hash[HASH_BYTES + 1];
        size_t n = end - line < HASH_BYTES ? 0 : (size_t)(end - line) - HASH_BYTES;
        write_hash(line, n, hash);
        if (n > 0 && memcmp(line + n, hash, HASH_BYTES) == 0) {
            memmove(to, line, n);
            to += n;
            *to++ = '\n';
        }
    }
    *to = '\0';
}

/* Give the answers in a file's text to the library, if they are for this GPU. The text becomes what
 * fl_cuda_algorithms_save would have given. */
static void take_answers(fl__cuda *c, const char *head, char *text)
{
    int n_taken = 0;
    size_t n = strlen(text), n_head = strlen(head);
    size_t skipped = strncmp(text, head, n_head) == 0 ? n_head : n;
    memmove(text, text + skipped, n - skipped + 1);
    check_lines(text);
    if (fl_cuda_algorithms_load(&c->base, text, &n_taken) != FL_OK) {
        fl_log(FL_LOG_WARN, "%s: %s", c->algorithms, fl_errmsg());
    }
}

void fl__cuda_algorithms_open(fl__cuda *c, const char *path)
{
    char head[HEAD_BYTES];
    const char *why = "";
    size_t n = path == NULL ? 0 : strlen(path);
    if (n == 0 || c->library == NULL || fl_alloc(n + 1, (void **)&c->algorithms) != FL_OK) {
        return;
    }
    memcpy(c->algorithms, path, n);
    write_head(c, head);
    int fd = fl_regular_file_open(AT_FDCWD, path, &why);
    if (fd < 0) {
        return; /* a new file, or one that fl__cuda_algorithms_close warns about */
    }
    char *text = head[0] == '\0' ? NULL : read_text(fd);
    if (text != NULL) {
        take_answers(c, head, text);
    }
    fl_free(text);
    close(fd);
}

/* ---- writing ---- */

static bool lock_file(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        nanosleep(&pause, NULL);
    }
    errno = EBUSY;
    return false;
}

static bool write_all(int fd, const char *text, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t written = pwrite(fd, text, n, at);
        if (written <= 0) {
            return false;
        }
        text += written;
        at += written;
        n -= (size_t)written;
    }
    return true;
}

static const char *replace_content(int fd, const char *head, const char *lines)
{
    off_t at = (off_t)strlen(head);
    bool good = ftruncate(fd, 0) == 0 && write_all(fd, head, (size_t)at, 0);
    for (const char *line = lines, *end; good && (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        size_t n = (size_t)(end - line);
        char hash[HASH_BYTES + 1];
        write_hash(line, n, hash);
        good = write_all(fd, line, n, at) && write_all(fd, hash, HASH_BYTES, at + (off_t)n) &&
               write_all(fd, "\n", 1, at + (off_t)n + HASH_BYTES);
        at += (off_t)n + HASH_BYTES + 1;
    }
    return good ? NULL : strerror(errno);
}

/* The device's answers and those of the file. Returns what went wrong, or NULL. */
static const char *merge_into(fl__cuda *c, int fd, const char *head)
{
    char *lines = NULL, *text = read_text(fd);
    const char *why = NULL;
    if (text == NULL || (text[0] != '\0' && strncmp(text, MARK, strlen(MARK)) != 0)) {
        fl_free(text);
        return "it is no file of cuBLASLt's algorithms; it is left as it is";
    }
    take_answers(c, head, text);
    if (fl_cuda_algorithms_save(&c->base, &lines) != FL_OK) {
        why = fl_errmsg();
    } else if (strcmp(text, lines) != 0) {
        why = replace_content(fd, head, lines);
    }
    fl_free(lines);
    fl_free(text);
    return why;
}

static const char *keep_answers(fl__cuda *c)
{
    char head[HEAD_BYTES];
    struct stat what;
    write_head(c, head);
    if (head[0] == '\0') {
        return NULL; /* a device that fails has said so */
    }
    int fd = open(c->algorithms, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return strerror(errno);
    }
    const char *why = fstat(fd, &what) != 0 || !S_ISREG(what.st_mode) ? "not a regular file"
                      : !lock_file(fd)                                ? strerror(errno)
                                                                      : merge_into(c, fd, head);
    close(fd);
    return why;
}

void fl__cuda_algorithms_close(fl__cuda *c)
{
    if (c->algorithms == NULL) {
        return;
    }
    const char *why = keep_answers(c);
    if (why != NULL) {
        fl_log(FL_LOG_WARN, "cuBLASLt's algorithms are not kept: %s: %s", c->algorithms, why);
    }
    fl_free(c->algorithms);
    c->algorithms = NULL;
}
