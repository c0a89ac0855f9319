#include "cache/file.h"
#include "device/errors/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

/* Where the file system cannot create a file without a name, unlink it at once. */
static int open_nameless(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/.frostline-cache-XXXXXX", folder);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) {
        unlink(name);
    }
    return fd;
}

static long long free_bytes(const char *folder)
{
    struct statvfs s;
    return statvfs(folder, &s) == 0 ? (long long)s.f_bavail * (long long)s.f_frsize : -1;
}

fl_status fl_cache_file_open(const char *folder, int64_t size_bytes, int *fd)
{
    *fd = open_nameless(folder);
    if (*fd < 0) {
        return fl_fail_field(FL_EIO, FL_FIELDS("cache.path"), "no file can be made in %s: %s",
                             folder, strerror(errno));
    }
    int error = posix_fallocate(*fd, 0, size_bytes);
    if (error != 0) {
        close(*fd);
        *fd = -1;
        return fl_fail_field(FL_EIO, FL_FIELDS("cache.disk", "cache.path"),
                             "%lld bytes wanted in %s, which has %lld free: %s; lower it, or "
                             "name another folder in cache.path",
                             (long long)size_bytes, folder, free_bytes(folder), strerror(error));
    }
    return FL_OK;
}

bool fl_cache_file_read(int fd, void *to, size_t size_bytes, int64_t at)
{
    unsigned char *bytes = to;
    for (size_t done = 0; done < size_bytes;) {
        ssize_t n = pread(fd, bytes + done, size_bytes - done, at + (int64_t)done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool fl_cache_file_read_cached(int fd, void *to, size_t size_bytes, int64_t at)
{
    const struct iovec all = {.iov_base = to, .iov_len = size_bytes};
    return preadv2(fd, &all, 1, at, RWF_NOWAIT) == (ssize_t)size_bytes;
}

void fl_cache_file_ask(int fd, size_t size_bytes, int64_t at)
{
    (void)posix_fadvise(fd, at, (off_t)size_bytes, POSIX_FADV_WILLNEED);
}

int fl_cache_file_reopen(int fd)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int own = open(name, O_RDWR | O_CLOEXEC);
    if (own >= 0) {
        (void)posix_fadvise(own, 0, 0, POSIX_FADV_RANDOM);
    }
    return own;
}

bool fl_cache_file_write(int fd, const void *from, size_t size_bytes, int64_t at)
{
    const unsigned char *bytes = from;
    for (size_t done = 0; done < size_bytes;) {
        ssize_t n = pwrite(fd, bytes + done, size_bytes - done, at + (int64_t)done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}
