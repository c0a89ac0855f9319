/* The file, in the machine's own byte order (a file of another machine has another magic):
 *
 *     header | part 0 | part 1 | ...
 *
 * The hash in the header covers the header's other fields and all that follows. */
#include "data/tokens/kept.h"

#include "device/system/alloc.h"
#include "device/system/files/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { VERSION = 2 };

static const uint64_t magic = UINT64_C(0x464C5F544F4B454E); /* "FL_TOKEN" */

/* Fields of 8 bytes each, so that there is no gap. */
typedef struct kept_header {
    uint64_t magic, version;
    uint64_t hash; /* of the bytes from here to the end of the file */
    fl_kept_key key;
    int64_t n_parts;
    int64_t part_bytes[FL_KEPT_PARTS_MAX];
} kept_header;

enum { HASHED_FROM = offsetof(kept_header, key) };

/* ---- keys ---- */

void fl__kept_key_mix(fl_kept_key *key, const void *bytes, size_t n_bytes)
{
    const uint64_t length = n_bytes;
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t hash = XXH64(&length, sizeof length, key->hash[i] + i);
        key->hash[i] = XXH64(bytes, n_bytes, hash);
    }
}

void fl__kept_key_mix_text(fl_kept_key *key, const char *text)
{
    fl__kept_key_mix(key, text == NULL ? "" : text, text == NULL ? 0 : strlen(text) + 1);
}

bool fl__kept_path(const char *folder, const fl_kept_key *key, char *path)
{
    int n = snprintf(path, PATH_MAX, "%s/tokens-%016" PRIx64 "%016" PRIx64 ".bin", folder,
                     key->hash[0], key->hash[1]);
    return n > 0 && n < PATH_MAX;
}

static uint64_t hash_content(const kept_header *h, const fl_kept_part *parts)
{
    uint64_t hash = XXH64((const char *)h + HASHED_FROM, sizeof *h - HASHED_FROM, 0);
    for (int64_t i = 0; i < h->n_parts; i++) {
        hash = XXH64(parts[i].bytes, parts[i].n_bytes, hash);
    }
    return hash;
}

/* ---- reading ---- */

fl_status fl__kept_refuse(const char *path, const char *reason)
{
    return fl_fail(FL_EFORMAT, "%s: %s", path, reason);
}

static fl_status read_bytes(const char *path, int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)to + done, n - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fl_fail(FL_EIO, "%s: %s", path,
                           got == 0 ? "it became shorter" : strerror(errno));
        }
        done += (size_t)got;
    }
    return FL_OK;
}

/* Every part fits the file, so that nothing is allocated for a size that is damaged. */
static bool sizes_fit(const kept_header *h, int64_t file_bytes)
{
    int64_t left = file_bytes - (int64_t)sizeof *h;
    for (int i = 0; i < FL_KEPT_PARTS_MAX; i++) {
        int64_t n = h->part_bytes[i];
        if (n < 0 || n > left || (i >= h->n_parts && n != 0)) {
            return false;
        }
        left -= n;
    }
    return left == 0;
}

static fl_status read_header(const char *path, int fd, const fl_kept_key *key, int n_parts,
                             kept_header *h)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof *h) {
        return fl__kept_refuse(path, "too small for kept tokens, or no file");
    }
    FL_TRY(read_bytes(path, fd, h, sizeof *h));
    if (h->magic != magic || h->version != VERSION) {
        return fl__kept_refuse(path, "no kept tokens of this version");
    }
    if (memcmp(&h->key, key, sizeof *key) != 0 || h->n_parts != n_parts) {
        return fl__kept_refuse(path, "the kept tokens of other data");
    }
    return sizes_fit(h, st.st_size) ? FL_OK
                                    : fl__kept_refuse(path, "its size is not that of its parts");
}

static fl_status read_parts(const char *path, int fd, const fl_kept_key *key, fl_kept_part *parts,
                            int n_parts)
{
    kept_header h;
    FL_TRY(read_header(path, fd, key, n_parts, &h));
    for (int i = 0; i < n_parts; i++) {
        parts[i].n_bytes = (size_t)h.part_bytes[i];
        if (parts[i].n_bytes > 0) {
            FL_TRY(fl_alloc(parts[i].n_bytes, &parts[i].bytes));
            FL_TRY(read_bytes(path, fd, parts[i].bytes, parts[i].n_bytes));
        }
    }
    return hash_content(&h, parts) == h.hash
               ? FL_OK
               : fl__kept_refuse(path, "its hash is not that of its content");
}

fl_status fl__kept_read(const char *path, const fl_kept_key *key, fl_kept_part *parts, int n_parts,
                        bool *found)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *found = fd >= 0;
    memset(parts, 0, (size_t)n_parts * sizeof *parts);
    if (fd < 0) {
        return errno == ENOENT ? FL_OK : fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    fl_status status = read_parts(path, fd, key, parts, n_parts);
    close(fd);
    if (status != FL_OK) {
        fl__kept_parts_free(parts, n_parts);
    }
    return status;
}

void fl__kept_parts_free(fl_kept_part *parts, int n_parts)
{
    for (int i = 0; i < n_parts; i++) {
        fl_free(parts[i].bytes);
        parts[i] = (fl_kept_part){0};
    }
}

/* ---- arrays ---- */

void fl__kept_arrays_list(const fl_kept_array *arrays, int n, fl_kept_part *parts)
{
    for (int i = 0; i < n; i++) {
        parts[i] = (fl_kept_part){*arrays[i].memory, arrays[i].n_bytes};
    }
}

bool fl__kept_arrays_take(const fl_kept_array *arrays, int n, fl_kept_part *parts)
{
    for (int i = 0; i < n; i++) {
        if (parts[i].n_bytes != arrays[i].n_bytes) {
            return false;
        }
        *arrays[i].memory = parts[i].bytes;
        parts[i].bytes = NULL;
    }
    return true;
}

/* ---- writing ---- */

static bool put_file(FILE *file, const fl_kept_key *key, const fl_kept_part *parts, int n_parts)
{
    kept_header h = {.magic = magic, .version = VERSION, .key = *key, .n_parts = n_parts};
    for (int i = 0; i < n_parts; i++) {
        h.part_bytes[i] = (int64_t)parts[i].n_bytes;
    }
    h.hash = hash_content(&h, parts);
    bool good = fwrite(&h, sizeof h, 1, file) == 1;
    for (int i = 0; i < n_parts && good; i++) {
        size_t n = parts[i].n_bytes;
        good = n == 0 || fwrite(parts[i].bytes, 1, n, file) == n;
    }
    return good;
}

static fl_status make_folder_of(const char *path)
{
    char folder[PATH_MAX], failed[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    errno = fl_folders_make(folder, failed);
    return errno == 0 ? FL_OK : fl_fail(FL_EIO, "cannot make %s: %s", failed, strerror(errno));
}

/* Without fsync: what a loss of power leaves has another hash, and is made again. */
fl_status fl__kept_write(const char *path, const fl_kept_key *key, const fl_kept_part *parts,
                         int n_parts)
{
    char beside[PATH_MAX];
    int n = snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof beside) {
        return fl_fail(FL_EIO, "the path %.64s... is too long", path);
    }
    FL_TRY(make_folder_of(path));
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", beside, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    bool good = put_file(file, key, parts, n_parts);
    good = fclose(file) == 0 && good;
    if (!good || rename(beside, path) != 0) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
        unlink(beside);
        return status;
    }
    return FL_OK;
}
