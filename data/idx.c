#include "data/idx.h"

#include "device/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK_BYTES = 64 * 1024, TYPE_U8 = 0x08, GZIP_WINDOW = 15 + 16, TEXT_MAX = 128 };

/* No file of ours comes near; what is beyond is taken for damage. */
static const int64_t max_content_bytes = INT64_C(1) << 34;

/* Deflate never packs tighter than this, so a gzip file's size bounds what it can hold. */
static const int64_t max_gzip_ratio = 1032;

/* A file under way: the bytes of the file go in at z.next_in, plain or not, and the content comes
 * out. */
typedef struct reader {
    const char *name;
    int fd;                /* -1: the file lies in memory */
    const uint8_t *memory; /* what of it has not been fed yet */
    size_t memory_bytes;
    uint8_t *chunk; /* [CHUNK_BYTES], with fd */
    int64_t file_bytes;
    int64_t fed_bytes;     /* of the file, given to z so far */
    int64_t content_bytes; /* that came out so far */
    bool gzip;
    bool ended;
    z_stream z;
} reader;

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

/* Where in the file a fault of the packing lies. */
static int64_t file_at(const reader *r)
{
    return r->fed_bytes - (int64_t)r->z.avail_in;
}

/* "of the unpacked data" where byte positions are not those of the file itself. */
static const char *of_what(const reader *r)
{
    return r->gzip ? " of the unpacked data" : "";
}

static fl_status read_chunk(reader *r, size_t *n)
{
    while (*n < CHUNK_BYTES) {
        ssize_t got = read(r->fd, r->chunk + *n, CHUNK_BYTES - *n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fl_fail(FL_EIO, "%s: byte %lld: %s", r->name,
                           (long long)(r->fed_bytes + (int64_t)*n), strerror(errno));
        }
        if (got == 0) {
            break;
        }
        *n += (size_t)got;
    }
    return FL_OK;
}

/* Give z more of the file; it gets nothing only at the file's end. */
static fl_status refill(reader *r)
{
    size_t n = 0;
    const uint8_t *from = r->chunk;
    if (r->fd >= 0) {
        FL_TRY(read_chunk(r, &n));
    } else {
        n = r->memory_bytes < CHUNK_BYTES ? r->memory_bytes : CHUNK_BYTES;
        from = r->memory;
        r->memory += n;
        r->memory_bytes -= n;
    }
    r->z.next_in = (z_const Bytef *)from;
    r->z.avail_in = (uInt)n;
    r->fed_bytes += (int64_t)n;
    return FL_OK;
}

static fl_status unpack(reader *r)
{
    switch (inflate(&r->z, Z_NO_FLUSH)) {
    case Z_OK:
        return FL_OK;
    case Z_STREAM_END:
        r->ended = true;
        return FL_OK;
    case Z_MEM_ERROR:
        return fl_within(FL_ENOMEM, "%s", r->name);
    default:
        return fl_fail(FL_EFORMAT, "%s: byte %lld: damaged gzip data (%s) found, deflate expected",
                       r->name, (long long)file_at(r),
                       r->z.msg == NULL ? "unexpected end" : r->z.msg);
    }
}

static void copy_plain(reader *r)
{
    uInt n = r->z.avail_in < r->z.avail_out ? r->z.avail_in : r->z.avail_out;
    memcpy(r->z.next_out, r->z.next_in, n);
    r->z.next_in += n;
    r->z.avail_in -= n;
    r->z.next_out += n;
    r->z.avail_out -= n;
}

/* The next `want` bytes of content; *got is less only where the content ends. */
static fl_status take(reader *r, uint8_t *to, size_t want, size_t *got)
{
    *got = 0;
    while (*got < want && !r->ended) {
        if (r->z.avail_in == 0) {
            FL_TRY(refill(r));
        }
        if (r->z.avail_in == 0 && r->gzip) {
            return fl_fail(FL_EFORMAT,
                           "%s: byte %lld: the end of the file found, more gzip data expected "
                           "(%lld bytes unpacked so far)",
                           r->name, (long long)r->fed_bytes, (long long)r->content_bytes);
        }
        if (r->z.avail_in == 0) {
            r->ended = true;
            break;
        }
        uInt space = want - *got < CHUNK_BYTES ? (uInt)(want - *got) : CHUNK_BYTES;
        r->z.next_out = to + *got;
        r->z.avail_out = space;
        if (r->gzip) {
            FL_TRY(unpack(r));
        } else {
            copy_plain(r);
        }
        *got += space - r->z.avail_out;
        r->content_bytes += (int64_t)(space - r->z.avail_out);
    }
    return FL_OK;
}

static fl_status begin(reader *r)
{
    static const uint8_t gzip_magic[2] = {0x1f, 0x8b};
    FL_TRY(refill(r));
    const uint8_t *b = r->z.next_in;
    r->gzip = r->z.avail_in >= 2 && memcmp(b, gzip_magic, 2) == 0;
    size_t length = strlen(r->name);
    if (!r->gzip && length > 3 && strcmp(r->name + length - 3, ".gz") == 0) {
        return r->z.avail_in < 2
                   ? fl_fail(FL_EFORMAT,
                             "%s: byte %u: the end of the file found, gzip's 0x1f 0x8b "
                             "expected",
                             r->name, r->z.avail_in)
                   : fl_fail(FL_EFORMAT,
                             "%s: byte 0: 0x%02x 0x%02x found, gzip's 0x1f 0x8b "
                             "expected",
                             r->name, b[0], b[1]);
    }
    if (r->gzip) {
        r->z.zalloc = zlib_alloc;
        r->z.zfree = zlib_free;
        if (inflateInit2(&r->z, GZIP_WINDOW) != Z_OK) {
            r->gzip = false;
            return fl_within(FL_ENOMEM, "%s", r->name);
        }
    }
    return FL_OK;
}

static const char *type_name(int type)
{
    switch (type) {
    case 0x09:
        return " (signed byte)";
    case 0x0B:
        return " (16-bit integer)";
    case 0x0C:
        return " (32-bit integer)";
    case 0x0D:
        return " (float)";
    case 0x0E:
        return " (double)";
    default:
        return "";
    }
}

static const char *rank_name(int rank)
{
    return rank == 1 ? " (labels)" : rank == 3 ? " (images x height x width)" : "";
}

static const char *dims_text(const fl_idx *idx, char text[TEXT_MAX])
{
    size_t n = 0;
    for (int i = 0; i < idx->rank; i++) {
        n += (size_t)snprintf(text + n, TEXT_MAX - n, i == 0 ? "%lld" : " x %lld",
                              (long long)idx->dims[i]);
    }
    return text;
}

static fl_status read_header_bytes(reader *r, uint8_t *to, size_t want, int rank)
{
    size_t got = 0;
    FL_TRY(take(r, to, want, &got));
    if (got < want) {
        return fl_fail(FL_EFORMAT, "%s: byte %lld%s: the end found, a header of %d bytes expected",
                       r->name, (long long)r->content_bytes, of_what(r), 4 + 4 * rank);
    }
    return FL_OK;
}

static fl_status read_kind(reader *r, int rank)
{
    uint8_t b[4];
    FL_TRY(read_header_bytes(r, b, sizeof b, rank));
    if (b[0] != 0 || b[1] != 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 0%s: 0x%02x 0x%02x found, 0x00 0x00 expected: not an idx file",
                       r->name, of_what(r), b[0], b[1]);
    }
    if (b[2] != TYPE_U8) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 2%s: type 0x%02x%s found, 0x08 (unsigned byte) expected", r->name,
                       of_what(r), b[2], type_name(b[2]));
    }
    if (b[3] != rank) {
        return fl_fail(FL_EFORMAT, "%s: byte 3%s: rank %d%s found, %d%s expected", r->name,
                       of_what(r), b[3], rank_name(b[3]), rank, rank_name(rank));
    }
    return FL_OK;
}

static fl_status read_dims(reader *r, fl_idx *idx)
{
    uint8_t b[4 * FL_IDX_MAX_RANK];
    FL_TRY(read_header_bytes(r, b, 4 * (size_t)idx->rank, idx->rank));
    for (int i = 0; i < idx->rank; i++) {
        const uint8_t *d = b + 4 * i;
        idx->dims[i] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
        if (idx->dims[i] == 0) {
            return fl_fail(FL_EFORMAT, "%s: byte %d%s: dimension %d is 0, at least 1 expected",
                           r->name, 4 + 4 * i, of_what(r), i);
        }
    }
    return FL_OK;
}

/* The dimensions against what the file can hold, before memory is asked for. */
static fl_status check_size(const reader *r, fl_idx *idx)
{
    char text[TEXT_MAX];
    int64_t header_bytes = 4 + 4 * (int64_t)idx->rank;
    int64_t total = 1;
    for (int i = 0; i < idx->rank; i++) {
        if (total > max_content_bytes / idx->dims[i]) {
            return fl_fail(FL_EFORMAT,
                           "%s: byte 4%s: dimensions %s found, at most %lld bytes in all expected",
                           r->name, of_what(r), dims_text(idx, text), (long long)max_content_bytes);
        }
        total *= idx->dims[i];
    }
    int64_t room = r->gzip ? r->file_bytes * max_gzip_ratio : r->file_bytes - header_bytes;
    if (total > room) {
        return fl_fail(
            FL_EFORMAT,
            "%s: byte 4%s: dimensions %s (%lld bytes) found, at most %lld bytes expected "
            "in a file of %lld",
            r->name, of_what(r), dims_text(idx, text), (long long)total, (long long)room,
            (long long)r->file_bytes);
    }
    idx->size_bytes = (size_t)total;
    return FL_OK;
}

/* Nothing may follow. This also runs gzip data to its checksum. */
static fl_status check_end(reader *r)
{
    uint8_t extra;
    size_t got = 0;
    int64_t end = r->content_bytes;
    FL_TRY(take(r, &extra, 1, &got));
    if (got != 0) {
        return fl_fail(FL_EFORMAT, "%s: byte %lld%s: trailing data found, the end expected",
                       r->name, (long long)end, of_what(r));
    }
    if (r->gzip && r->z.avail_in == 0) {
        FL_TRY(refill(r));
    }
    if (r->z.avail_in != 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %lld: trailing bytes found after the gzip data, the end of the "
                       "file expected",
                       r->name, (long long)file_at(r));
    }
    return FL_OK;
}

static fl_status read_content(reader *r, fl_idx *idx)
{
    FL_TRY(read_kind(r, idx->rank));
    FL_TRY(read_dims(r, idx));
    FL_TRY(check_size(r, idx));
    void *bytes = NULL;
    FL_TRY(fl_alloc(idx->size_bytes, &bytes));
    idx->bytes = bytes;
    size_t got = 0;
    FL_TRY(take(r, idx->bytes, idx->size_bytes, &got));
    if (got < idx->size_bytes) {
        char text[TEXT_MAX];
        return fl_fail(FL_EFORMAT, "%s: byte %lld%s: the end found, %zu more bytes expected (%s)",
                       r->name, (long long)r->content_bytes, of_what(r), idx->size_bytes - got,
                       dims_text(idx, text));
    }
    return check_end(r);
}

static fl_status decode(reader *r, int rank, fl_idx *out)
{
    fl_idx idx = {.rank = rank};
    fl_status status = begin(r);
    if (status == FL_OK) {
        status = read_content(r, &idx);
    }
    if (r->gzip) {
        inflateEnd(&r->z);
    }
    if (status != FL_OK) {
        fl_idx_fini(&idx);
        return status;
    }
    *out = idx;
    return FL_OK;
}

fl_status fl_idx_decode(const char *name, const void *file, size_t file_bytes, int rank,
                        fl_idx *out)
{
    reader r = {.name = name,
                .fd = -1,
                .memory = file,
                .memory_bytes = file_bytes,
                .file_bytes = (int64_t)file_bytes};
    return decode(&r, rank, out);
}

static fl_status open_file(const char *path, reader *r)
{
    /* Without O_NONBLOCK, a named pipe in the file's place would make open itself wait. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return fl_fail(FL_EIO, "%s: %s found, a file expected", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "something that is not a file");
    }
    *r = (reader){.name = path, .fd = fd, .file_bytes = st.st_size};
    return FL_OK;
}

fl_status fl_idx_read(const char *path, int rank, fl_idx *out)
{
    reader r;
    void *chunk = NULL;
    FL_TRY(open_file(path, &r));
    fl_status status = fl_alloc(CHUNK_BYTES, &chunk);
    if (status == FL_OK) {
        r.chunk = chunk;
        status = decode(&r, rank, out);
    }
    fl_free(chunk);
    close(r.fd);
    return status;
}

void fl_idx_fini(fl_idx *idx)
{
    fl_free(idx->bytes);
    *idx = (fl_idx){0};
}
