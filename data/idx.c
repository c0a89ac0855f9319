#include "data/idx.h"

#include "data/source.h"
#include "device/alloc.h"

#include <stdio.h>

enum { TYPE_U8 = 0x08, TEXT_MAX = 128 };

/* No file of ours comes near; what is beyond is taken for damage. */
static const int64_t max_content_bytes = INT64_C(1) << 34;

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

static fl_status take_header(fl__source *s, uint8_t *to, size_t want, int rank)
{
    size_t got = 0;
    FL_TRY(fl__source_take(s, to, want, &got));
    if (got < want) {
        return fl_fail(FL_EFORMAT, "%s: byte %lld%s: the end found, a header of %d bytes expected",
                       s->name, (long long)s->content_bytes, fl__source_of(s), 4 + 4 * rank);
    }
    return FL_OK;
}

static fl_status read_kind(fl__source *s, int rank)
{
    uint8_t b[4];
    FL_TRY(take_header(s, b, sizeof b, rank));
    if (b[0] != 0 || b[1] != 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 0%s: 0x%02x 0x%02x found, 0x00 0x00 expected: not an idx file",
                       s->name, fl__source_of(s), b[0], b[1]);
    }
    if (b[2] != TYPE_U8) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 2%s: type 0x%02x%s found, 0x08 (unsigned byte) expected", s->name,
                       fl__source_of(s), b[2], type_name(b[2]));
    }
    if (b[3] != rank) {
        return fl_fail(FL_EFORMAT, "%s: byte 3%s: rank %d%s found, %d%s expected", s->name,
                       fl__source_of(s), b[3], rank_name(b[3]), rank, rank_name(rank));
    }
    return FL_OK;
}

static fl_status read_dims(fl__source *s, fl_idx *idx)
{
    uint8_t b[4 * FL_IDX_MAX_RANK];
    FL_TRY(take_header(s, b, 4 * (size_t)idx->rank, idx->rank));
    for (int i = 0; i < idx->rank; i++) {
        const uint8_t *d = b + 4 * i;
        idx->dims[i] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
        if (idx->dims[i] == 0) {
            return fl_fail(FL_EFORMAT, "%s: byte %d%s: dimension %d is 0, at least 1 expected",
                           s->name, 4 + 4 * i, fl__source_of(s), i);
        }
    }
    return FL_OK;
}

/* The dimensions against what the file can hold, before memory is asked for. */
static fl_status check_size(const fl__source *s, fl_idx *idx)
{
    char text[TEXT_MAX];
    int64_t total = 1;
    for (int i = 0; i < idx->rank; i++) {
        if (total > max_content_bytes / idx->dims[i]) {
            return fl_fail(
                FL_EFORMAT, "%s: byte 4%s: dimensions %s found, at most %lld bytes in all expected",
                s->name, fl__source_of(s), dims_text(idx, text), (long long)max_content_bytes);
        }
        total *= idx->dims[i];
    }
    int64_t room = fl__source_room(s);
    if (total > room) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 4%s: dimensions %s (%lld bytes) found, at most %lld bytes "
                       "expected in a file of %lld",
                       s->name, fl__source_of(s), dims_text(idx, text), (long long)total,
                       (long long)room, (long long)s->file_bytes);
    }
    idx->size_bytes = (size_t)total;
    return FL_OK;
}

static fl_status read_elements(fl__source *s, fl_idx *idx)
{
    void *bytes = NULL;
    size_t got = 0;
    FL_TRY(fl_alloc(idx->size_bytes, &bytes));
    idx->bytes = bytes;
    FL_TRY(fl__source_take(s, idx->bytes, idx->size_bytes, &got));
    if (got < idx->size_bytes) {
        char text[TEXT_MAX];
        return fl_fail(FL_EFORMAT,
                       "%s: byte %lld%s: the end found, %zu more bytes expected (dimensions %s)",
                       s->name, (long long)s->content_bytes, fl__source_of(s),
                       idx->size_bytes - got, dims_text(idx, text));
    }
    return fl__source_expect_end(s);
}

static fl_status decode(fl__source *s, int rank, fl_idx *out)
{
    fl_idx idx = {.rank = rank, .packed = s->gzip};
    fl_status status = read_kind(s, rank);
    if (status == FL_OK) {
        status = read_dims(s, &idx);
    }
    if (status == FL_OK) {
        status = check_size(s, &idx);
    }
    if (status == FL_OK) {
        status = read_elements(s, &idx);
    }
    if (status == FL_OK) {
        *out = idx;
    } else {
        fl_idx_fini(&idx);
    }
    fl__source_fini(s);
    return status;
}

fl_status fl_idx_decode(const char *name, const void *file, size_t file_bytes, int rank,
                        fl_idx *out)
{
    fl__source source;
    FL_TRY(fl__source_open_memory(name, file, file_bytes, &source));
    return decode(&source, rank, out);
}

fl_status fl_idx_read(const char *path, int rank, fl_idx *out)
{
    fl__source source;
    FL_TRY(fl__source_open(path, &source));
    return decode(&source, rank, out);
}

void fl_idx_fini(fl_idx *idx)
{
    fl_free(idx->bytes);
    *idx = (fl_idx){0};
}
