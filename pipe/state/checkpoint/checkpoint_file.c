#include "pipe/state/checkpoint/checkpoint_file.h"

#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* a hash that is computed in pieces, without memory of its own */
#include <xxhash.h>

/* A file on its way to the disk. */
typedef struct output {
    int fd;
    const char *name;
    bool direct; /* past the page cache */
    int64_t at;  /* bytes written */
    XXH64_state_t hash;
} output;

/* FL_EBUSY: another checkpoint of this step has the file. */
static fl_status status_of(int error)
{
    return error == EEXIST ? FL_EBUSY : FL_EIO;
}

/* The room, where the file system can take it ahead: then it is also in one piece. */
static fl_status take_room(const output *f, int64_t bytes)
{
    if (bytes == 0 || fallocate(f->fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP ||
        errno == ENOSYS) {
        return FL_OK;
    }
    return fl_fail(FL_EIO, "%s: no room for %lld bytes: %s", f->name, (long long)bytes,
                   strerror(errno));
}

static void stop_direct(output *f)
{
    f->direct = false;
    (void)fcntl(f->fd, F_SETFL, fcntl(f->fd, F_GETFL) & ~O_DIRECT); /* else the write fails */
}

static fl_status open_output(int folder_fd, const char *name, int64_t bytes, bool direct, output *f)
{
    *f = (output){.name = name};
    XXH64_reset(&f->hash, 0);
    f->fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    f->direct =
        direct && f->fd >= 0 && fcntl(f->fd, F_SETFL, fcntl(f->fd, F_GETFL) | O_DIRECT) == 0;
    if (f->fd < 0) {
        return fl_fail(status_of(errno), "cannot make %s: %s", name, strerror(errno));
    }
    return take_room(f, bytes);
}

static fl_status write_all(output *f, const char *from, size_t n)
{
    while (n > 0) {
        size_t whole = n / FL_CHECKPOINT_ALIGNMENT * FL_CHECKPOINT_ALIGNMENT;
        if (f->direct && (whole == 0 || f->at % FL_CHECKPOINT_ALIGNMENT != 0)) {
            stop_direct(f); /* the last bytes do not fill a block */
        }
        ssize_t got = pwrite(f->fd, from, f->direct ? whole : n, (off_t)f->at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 && errno == EINVAL && f->direct) {
            stop_direct(f); /* this file system has larger blocks, or does not write so */
            continue;
        }
        if (got < 0) {
            return fl_fail(FL_EIO, "%s: cannot write %zu bytes at %lld: %s", f->name, n,
                           (long long)f->at, strerror(errno));
        }
        from += got;
        f->at += got;
        n -= (size_t)got;
    }
    return FL_OK;
}

/* The disk begins with the piece while the next one is hashed. */
static fl_status put_piece(output *f, const char *piece, size_t n, const atomic_bool *cancelled)
{
    int64_t at = f->at;
    if (cancelled != NULL && atomic_load(cancelled)) {
        return fl_fail(FL_ESTOPPED, "%s: the worker ends before it is written", f->name);
    }
    XXH64_update(&f->hash, piece, n);
    FL_TRY(write_all(f, piece, n));
    if (!f->direct) {
        (void)sync_file_range(f->fd, (off_t)at, (off_t)n, SYNC_FILE_RANGE_WRITE); /* only earlier */
    }
    return FL_OK;
}

static fl_status give_output(output *f, fl_status status, fl_checkpoint_file *out)
{
    if (status == FL_OK) {
        *out = (fl_checkpoint_file){.fd = f->fd, .bytes = f->at, .xxh64 = XXH64_digest(&f->hash)};
    } else if (f->fd >= 0) {
        close(f->fd);
    }
    return status;
}

fl_status fl_checkpoint_file_write(int folder_fd, const char *name, const char *image,
                                   int64_t bytes, const atomic_bool *cancelled,
                                   fl_checkpoint_file *out)
{
    output f;
    out->fd = -1;
    fl_status status = open_output(folder_fd, name, bytes, true, &f);
    while (status == FL_OK && f.at < bytes) {
        int64_t left = bytes - f.at;
        size_t n = (size_t)(left < FL_CHECKPOINT_PIECE_BYTES ? left : FL_CHECKPOINT_PIECE_BYTES);
        status = put_piece(&f, image + f.at, n, cancelled);
    }
    return give_output(&f, status, out);
}

fl_status fl_checkpoint_file_link(int old_fd, int folder_fd, const char *name, bool *refused)
{
    *refused = false;
    if (linkat(old_fd, name, folder_fd, name, 0) == 0) {
        return FL_OK;
    }
    if (errno == EEXIST || errno == ENOSPC || errno == EDQUOT || errno == EIO) {
        return fl_fail(status_of(errno), "cannot link %s to the newest checkpoint's: %s", name,
                       strerror(errno));
    }
    *refused = true;
    return FL_OK;
}

static fl_status read_piece(int fd, const char *name, char *piece, int64_t at, size_t n)
{
    while (n > 0) {
        ssize_t got = pread(fd, piece, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fl_fail(got == 0 ? FL_EFORMAT : FL_EIO,
                           "%s of the newest checkpoint: cannot read %zu bytes at %lld: %s", name,
                           n, (long long)at, got == 0 ? "it ends before" : strerror(errno));
        }
        piece += got;
        at += got;
        n -= (size_t)got;
    }
    return FL_OK;
}

static fl_status copy_bytes(int from_fd, int64_t bytes, output *f, const atomic_bool *cancelled)
{
    char *piece = NULL;
    FL_TRY(fl_alloc(FL_CHECKPOINT_PIECE_BYTES, (void **)&piece));
    fl_status status = FL_OK;
    while (status == FL_OK && f->at < bytes) {
        int64_t left = bytes - f->at;
        size_t n = (size_t)(left < FL_CHECKPOINT_PIECE_BYTES ? left : FL_CHECKPOINT_PIECE_BYTES);
        status = read_piece(from_fd, f->name, piece, f->at, n);
        if (status == FL_OK) {
            status = put_piece(f, piece, n, cancelled);
        }
    }
    fl_free(piece);
    return status;
}

static fl_status hash_file(int fd, const char *name, int64_t bytes, const atomic_bool *cancelled,
                           uint64_t *xxh64)
{
    char *piece = NULL;
    XXH64_state_t hash;
    fl_status status = FL_OK;
    FL_TRY(fl_alloc(FL_CHECKPOINT_PIECE_BYTES, (void **)&piece));
    XXH64_reset(&hash, 0);
    for (int64_t at = 0; status == FL_OK && at < bytes;) {
        int64_t left = bytes - at;
        size_t n = (size_t)(left < FL_CHECKPOINT_PIECE_BYTES ? left : FL_CHECKPOINT_PIECE_BYTES);
        status = cancelled != NULL && atomic_load(cancelled)
                     ? fl_fail(FL_ESTOPPED, "%s: the worker ends before it is compared", name)
                     : read_piece(fd, name, piece, at, n);
        if (status == FL_OK) {
            XXH64_update(&hash, piece, n);
            at += (int64_t)n;
        }
    }
    fl_free(piece);
    *xxh64 = XXH64_digest(&hash);
    return status;
}

static fl_status check_contents(int fd, const char *name, int64_t bytes, uint64_t xxh64,
                                const atomic_bool *cancelled)
{
    struct stat st;
    uint64_t found = 0;
    if (fstat(fd, &st) != 0 || st.st_size != bytes) {
        return fl_fail(FL_EFORMAT, "%s of the newest checkpoint is damaged: it has another size",
                       name);
    }
    FL_TRY(hash_file(fd, name, bytes, cancelled, &found));
    return found == xxh64 ? FL_OK
                          : fl_fail(FL_EFORMAT,
                                    "%s of the newest checkpoint is damaged: its hash is "
                                    "%016llx, its manifest has %016llx",
                                    name, (unsigned long long)found, (unsigned long long)xxh64);
}

fl_status fl_checkpoint_file_check(int folder_fd, const char *name, int64_t bytes, uint64_t xxh64,
                                   const atomic_bool *cancelled, int *file_fd)
{
    const char *why = NULL;
    int fd = fl_regular_file_open(folder_fd, name, &why);
    *file_fd = -1;
    if (fd < 0) {
        return fl_fail(FL_EFORMAT, "%s of the newest checkpoint: %s", name, why);
    }
    fl_status status = check_contents(fd, name, bytes, xxh64, cancelled);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (status == FL_OK) {
        *file_fd = fd;
    } else {
        close(fd);
    }
    return status;
}

fl_status fl_checkpoint_file_copy(int from_fd, int64_t bytes, int folder_fd, const char *name,
                                  const atomic_bool *cancelled, fl_checkpoint_file *out)
{
    output f = {.fd = -1};
    out->fd = -1;
    fl_status status = open_output(folder_fd, name, bytes, false, &f);
    if (status == FL_OK) {
        status = copy_bytes(from_fd, bytes, &f, cancelled);
    }
    return give_output(&f, status, out);
}

fl_status fl_checkpoint_file_finish(fl_checkpoint_file *file, const char *name)
{
    int fd = file->fd, error = fsync(fd) == 0 ? 0 : errno;
    file->fd = -1;
    if (close(fd) != 0 && error == 0 && errno != EINTR) {
        error = errno;
    }
    return error == 0
               ? FL_OK
               : fl_fail(FL_EIO, "%s: cannot get it onto the disk: %s", name, strerror(error));
}

void fl_checkpoint_file_abandon(fl_checkpoint_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
}
