#include "data/source.h"

#include "device/system/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 64 * 1024, GZIP_WINDOW = 15 + 16, GZIP_MAGIC_0 = 0x1f, GZIP_MAGIC_1 = 0x8b };

/* Deflate never packs tighter than this, so a gzip file's size bounds what it can hold. */
static const int64_t max_gzip_ratio = 1032;

static void *zlib_alloc(void *unused, uInt count, uInt size)
{
    (void)unused;
    void *memory = NULL;
    return fl_alloc_array(count, size, &memory) == FL_OK ? memory : NULL;
}

static void zlib_free(void *unused, void *memory)
{
    (void)unused;
    fl_free(memory);
}

const char *fl__source_of(const fl__source *s)
{
    return s->gzip ? " of the unpacked data" : "";
}

int64_t fl__source_room(const fl__source *s)
{
    return s->gzip ? s->file_bytes * max_gzip_ratio : s->file_bytes - s->content_bytes;
}

/* Where in the file a fault of the packing lies. */
static long long file_at(const fl__source *s)
{
    return (long long)s->fed_bytes - s->z.avail_in;
}

/* Up to `want` bytes of the file, fewer only at its end. */
static fl_status read_file(fl__source *s, uint8_t *to, size_t want, size_t *n)
{
    while (*n < want) {
        ssize_t got = read(s->fd, to + *n, want - *n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fl_fail(FL_EIO, "%s: byte %lld: %s", s->name,
                           (long long)s->fed_bytes + (long long)*n, strerror(errno));
        }
        if (got == 0) {
            break;
        }
        *n += (size_t)got;
    }
    return FL_OK;
}

/* Give z more of the file; it gets nothing only at the file's end. */
static fl_status refill(fl__source *s)
{
    size_t n = 0;
    const uint8_t *from = s->chunk;
    if (s->fd >= 0) {
        FL_TRY(read_file(s, s->chunk, CHUNK_BYTES, &n));
    } else {
        n = s->memory_bytes < CHUNK_BYTES ? s->memory_bytes : CHUNK_BYTES;
        from = s->memory;
        s->memory += n;
        s->memory_bytes -= n;
    }
    s->z.next_in = (z_const Bytef *)from;
    s->z.avail_in = (uInt)n;
    s->fed_bytes += (int64_t)n;
    return FL_OK;
}

/* A gzip file is one member or several, one after another (RFC 1952, section 2.2); their contents
 * are joined. What follows a member and does not begin like another is left for expect_end. */
static fl_status end_member(fl__source *s)
{
    if (s->z.avail_in == 0) {
        FL_TRY(refill(s));
    }
    s->ended = s->z.avail_in == 0 || s->z.next_in[0] != GZIP_MAGIC_0;
    return s->ended || inflateReset(&s->z) == Z_OK
               ? FL_OK
               : fl_fail(FL_EINTERNAL, "%s: zlib cannot begin another gzip member", s->name);
}

static fl_status unpack(fl__source *s)
{
    switch (inflate(&s->z, Z_NO_FLUSH)) {
    case Z_OK:
        return FL_OK;
    case Z_STREAM_END:
        return end_member(s);
    case Z_MEM_ERROR:
        return fl_within(FL_ENOMEM, "%s", s->name);
    default:
        return fl_fail(FL_EFORMAT, "%s: byte %lld: damaged gzip data found (%s)", s->name,
                       file_at(s), s->z.msg == NULL ? "no reason given" : s->z.msg);
    }
}

static void copy_plain(fl__source *s)
{
    uInt n = s->z.avail_in < s->z.avail_out ? s->z.avail_in : s->z.avail_out;
    memcpy(s->z.next_out, s->z.next_in, n);
    s->z.next_in += n;
    s->z.avail_in -= n;
    s->z.next_out += n;
    s->z.avail_out -= n;
}

/* At the end of the file: the end of plain content, and too early for gzip data. */
static fl_status end_of_file(fl__source *s)
{
    if (s->gzip) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %lld: the end of the file found, more gzip data expected (%lld "
                       "bytes unpacked so far)",
                       s->name, (long long)s->fed_bytes, (long long)s->content_bytes);
    }
    s->ended = true;
    return FL_OK;
}

/* Large parts of a plain file go to their place at once. */
static fl_status take_directly(fl__source *s, uint8_t *to, size_t want, size_t *got)
{
    size_t n = 0;
    FL_TRY(read_file(s, to, want, &n));
    s->fed_bytes += (int64_t)n;
    s->content_bytes += (int64_t)n;
    s->ended = n < want;
    *got += n;
    return FL_OK;
}

fl_status fl__source_take(fl__source *s, uint8_t *to, size_t want, size_t *got)
{
    *got = 0;
    while (*got < want && !s->ended) {
        if (s->z.avail_in == 0 && !s->gzip && s->fd >= 0 && want - *got >= CHUNK_BYTES) {
            return take_directly(s, to + *got, want - *got, got);
        }
        if (s->z.avail_in == 0) {
            FL_TRY(refill(s));
        }
        if (s->z.avail_in == 0) {
            FL_TRY(end_of_file(s));
            break;
        }
        uInt space = want - *got < CHUNK_BYTES ? (uInt)(want - *got) : CHUNK_BYTES;
        s->z.next_out = to + *got;
        s->z.avail_out = space;
        if (s->gzip) {
            FL_TRY(unpack(s));
        } else {
            copy_plain(s);
        }
        *got += space - s->z.avail_out;
        s->content_bytes += (int64_t)(space - s->z.avail_out);
    }
    return FL_OK;
}

fl_status fl__source_expect_end(fl__source *s)
{
    uint8_t extra;
    size_t got = 0;
    long long end = (long long)s->content_bytes;
    FL_TRY(fl__source_take(s, &extra, 1, &got));
    if (got != 0) {
        return fl_fail(FL_EFORMAT, "%s: byte %lld%s: trailing data found, the end expected",
                       s->name, end, fl__source_of(s));
    }
    if (s->gzip && s->z.avail_in == 0) {
        FL_TRY(refill(s));
    }
    if (s->z.avail_in != 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %lld: trailing bytes found after the gzip data, the end of the "
                       "file expected",
                       s->name, file_at(s));
    }
    return FL_OK;
}

static bool ends_in_gz(const char *name)
{
    size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, ".gz") == 0;
}

static fl_status find_packing(fl__source *s)
{
    FL_TRY(refill(s));
    const uint8_t *b = s->z.next_in;
    bool gzip = s->z.avail_in >= 2 && b[0] == GZIP_MAGIC_0 && b[1] == GZIP_MAGIC_1;
    if (!gzip && ends_in_gz(s->name)) {
        return s->z.avail_in < 2
                   ? fl_fail(FL_EFORMAT,
                             "%s: byte %u: the end of the file found, gzip's 0x1f 0x8b expected",
                             s->name, s->z.avail_in)
                   : fl_fail(FL_EFORMAT,
                             "%s: byte 0: 0x%02x 0x%02x found, gzip's 0x1f 0x8b expected", s->name,
                             b[0], b[1]);
    }
    if (gzip) {
        s->z.zalloc = zlib_alloc;
        s->z.zfree = zlib_free;
        if (inflateInit2(&s->z, GZIP_WINDOW) != Z_OK) {
            return fl_within(FL_ENOMEM, "%s", s->name);
        }
        s->gzip = true;
    }
    return FL_OK;
}

/* Turn the file that was just opened into a source; on failure `s` still has to be finished. */
static fl_status begin_file(fl__source *s)
{
    struct stat st;
    void *chunk = NULL;
    if (fstat(s->fd, &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", s->name, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return fl_fail(FL_EIO, "%s: %s found, a file expected", s->name,
                       S_ISDIR(st.st_mode) ? "a folder" : "something that is not a file");
    }
    s->file_bytes = st.st_size;
    FL_TRY(fl_alloc(CHUNK_BYTES, &chunk));
    s->chunk = chunk;
    return find_packing(s);
}

fl_status fl__source_open(const char *path, fl__source *out)
{
    /* Without O_NONBLOCK, a named pipe in the file's place would make open itself wait. */
    *out = (fl__source){.name = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (out->fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    fl_status status = begin_file(out);
    if (status != FL_OK) {
        fl__source_fini(out);
    }
    return status;
}

fl_status fl__source_open_memory(const char *name, const void *file, size_t file_bytes,
                                 fl__source *out)
{
    *out = (fl__source){.name = name,
                        .fd = -1,
                        .memory = file,
                        .memory_bytes = file_bytes,
                        .file_bytes = (int64_t)file_bytes};
    return find_packing(out);
}

void fl__source_fini(fl__source *s)
{
    if (s->gzip) {
        inflateEnd(&s->z);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    fl_free(s->chunk);
    *s = (fl__source){.fd = -1};
}
