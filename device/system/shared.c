#include "device/system/shared.h"

#include "device/system/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct fl_shared {
    void *data;
    size_t size_bytes;
    int fd;
    uint64_t id;
};

static fl_status map_file(fl_shared *s)
{
    struct stat file;
    if (ftruncate(s->fd, (off_t)s->size_bytes) != 0 || fstat(s->fd, &file) != 0) {
        return fl_fail(FL_ENOMEM, "a file of %zu bytes in memory: %s", s->size_bytes,
                       strerror(errno));
    }
    void *data = mmap(NULL, s->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (data == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "mapping %zu bytes: %s", s->size_bytes, strerror(errno));
    }
    s->data = data;
    s->id = (uint64_t)file.st_ino;
    return FL_OK;
}

fl_status fl_shared_create(size_t size_bytes, fl_shared **out)
{
    fl_shared *s = NULL;
    FL_TRY(fl_alloc(sizeof *s, (void **)&s));
    s->size_bytes = size_bytes;
    s->fd = memfd_create("frostline", MFD_CLOEXEC);
    fl_status status =
        s->fd < 0 ? fl_fail(FL_ENOTSUP, "no files in memory: %s", strerror(errno)) : map_file(s);
    if (status != FL_OK) {
        fl_shared_destroy(&s);
        return status;
    }
    *out = s;
    return FL_OK;
}

void fl_shared_destroy(fl_shared **shared)
{
    fl_shared *s = *shared;
    if (s != NULL && s->data != NULL) {
        /* Not truncated: a process that reads beyond the end of a file is killed. What cannot be
         * punched out goes with the last view. */
        (void)!fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                         (off_t)s->size_bytes);
    }
    fl_shared_let_go(shared);
}

void fl_shared_let_go(fl_shared **shared)
{
    fl_shared *s = *shared;
    if (s == NULL) {
        return;
    }
    *shared = NULL;
    if (s->data != NULL) {
        munmap(s->data, s->size_bytes);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    fl_free(s);
}

void *fl_shared_data(const fl_shared *shared)
{
    return shared->data;
}

fl_shared_key fl_shared_key_of(const fl_shared *shared)
{
    return (fl_shared_key){shared->fd, shared->id};
}

/* The number may name another file by now. */
static fl_status check_file(int fd, const fl_shared_key *key, size_t end_bytes)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || (uint64_t)file.st_ino != key->id ||
        (uint64_t)file.st_size < end_bytes) {
        return fl_fail(FL_EIO, "file %" PRId64 " of the process is not the one that was meant",
                       key->fd);
    }
    return FL_OK;
}

/* The file of process `pid`; *fd is the caller's to close. */
static fl_status open_file(int64_t pid, const fl_shared_key *key, size_t end_bytes, int flags,
                           int *fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, pid, key->fd);
    *fd = open(path, flags | O_CLOEXEC);
    if (*fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    fl_status status = check_file(*fd, key, end_bytes);
    if (status != FL_OK) {
        close(*fd);
    }
    return status;
}

fl_status fl_shared_join(int64_t pid, const fl_shared_key *key, size_t size_bytes, fl_shared **out)
{
    fl_shared *s = NULL;
    FL_TRY(fl_alloc(sizeof *s, (void **)&s));
    s->size_bytes = size_bytes;
    s->id = key->id;
    fl_status status = open_file(pid, key, size_bytes, O_RDWR, &s->fd);
    if (status != FL_OK) {
        fl_free(s);
        return status;
    }
    void *data = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (data == MAP_FAILED) {
        status = fl_fail(FL_EIO, "mapping %zu bytes: %s", size_bytes, strerror(errno));
        fl_shared_let_go(&s);
        return status;
    }
    s->data = data;
    *out = s;
    return FL_OK;
}

static fl_status map_view(int fd, size_t offset_bytes, size_t size_bytes, fl_shared_view *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), in_page = offset_bytes % page;
    size_t map_bytes = in_page + size_bytes;
    void *map = mmap(NULL, map_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd,
                     (off_t)(offset_bytes - in_page));
    if (map == MAP_FAILED) {
        return fl_fail(FL_EIO, "mapping %zu bytes: %s", size_bytes, strerror(errno));
    }
    *out = (fl_shared_view){(const char *)map + in_page, map, map_bytes};
    return FL_OK;
}

fl_status fl_shared_view_open(int64_t pid, const fl_shared_key *key, size_t offset_bytes,
                              size_t size_bytes, fl_shared_view *out)
{
    int fd = -1;
    FL_TRY(open_file(pid, key, offset_bytes + size_bytes, O_RDONLY, &fd));
    fl_status status = map_view(fd, offset_bytes, size_bytes, out);
    close(fd);
    return status;
}

void fl_shared_view_close(fl_shared_view *view)
{
    if (view->map != NULL) {
        munmap(view->map, view->map_bytes);
    }
    *view = (fl_shared_view){0};
}
