#include "data/idx.h"

#include "data/source.h"
#include "device/system/alloc.h"

#include <stdio.h>

enum { TYPE_U8 = 0x08, TEXT_MAX = 128 };

/* Beyond any machine's memory: such dimensions are damage, and must not overflow. */
static const int64_t max_content_bytes = INT64_C(1) << 44;

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

static fl_status read_header(fl_idx_file *file, int rank)
{
    file->idx = (fl_idx){.rank = rank, .packed = file->source.gzip};
    FL_TRY(read_kind(&file->source, rank));
    FL_TRY(read_dims(&file->source, &file->idx));
    return check_size(&file->source, &file->idx);
}

static fl_status read_elements(fl__source *s, fl_idx *idx)
{
    void *bytes = NULL;
    size_t got = 0;
    FL_TRY(fl_alloc_untouched(idx->size_bytes, &bytes));
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

fl_status fl_idx_load(fl_idx_file *file, fl_idx *out)
{
    fl_idx idx = file->idx;
    fl_status status = read_elements(&file->source, &idx);
    if (status == FL_OK) {
        *out = idx;
    } else {
        fl_idx_fini(&idx);
    }
    return status;
}

void fl_idx_close(fl_idx_file *file)
{
    if (file->source.name != NULL) {
        fl__source_fini(&file->source);
    }
}

/* The header of a source that was just opened; it is closed on failure. */
static fl_status begin_array(fl_idx_file *file, int rank)
{
    fl_status status = read_header(file, rank);
    if (status != FL_OK) {
        fl_idx_close(file);
    }
    return status;
}

fl_status fl_idx_open(const char *path, int rank, fl_idx_file *out)
{
    FL_TRY(fl__source_open(path, &out->source));
    return begin_array(out, rank);
}

fl_status fl_idx_open_memory(const char *name, const void *file, size_t file_bytes, int rank,
                             fl_idx_file *out)
{
    FL_TRY(fl__source_open_memory(name, file, file_bytes, &out->source));
    return begin_array(out, rank);
}

void fl_idx_fini(fl_idx *idx)
{
    fl_free(idx->bytes);
    *idx = (fl_idx){0};
}
