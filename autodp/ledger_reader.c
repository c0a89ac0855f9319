#include "autodp/ledger_reader.h"

#include "autodp/ledger_format.h"
#include "device/system/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static fl_status read_bytes(fl__ledger_reader *r, uint8_t *to, size_t n)
{
    if (fread(to, 1, n, r->file) != n) {
        return fl_fail(FL_EIO, "%s: byte %" PRId64 ": %s", r->path, r->whole_bytes,
                       ferror(r->file) ? strerror(errno) : "it became shorter while it was read");
    }
    return FL_OK;
}

static fl_status read_header(fl__ledger_reader *r)
{
    uint8_t b[FL__LEDGER_HEADER_BYTES];
    size_t body = sizeof b - FL__LEDGER_HASH_BYTES;
    if (r->file_bytes < (int64_t)sizeof b) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": the end of the file found, a header of %zu bytes "
                       "expected",
                       r->path, r->file_bytes, sizeof b);
    }
    FL_TRY(read_bytes(r, b, sizeof b));
    if (memcmp(b, FL__LEDGER_MAGIC, 8) != 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 0: something else found, \"%s\" expected: not a ledger", r->path,
                       FL__LEDGER_MAGIC);
    }
    if (fl__get32(b + 8) < 1 || fl__get32(b + 8) > FL__LEDGER_VERSION) {
        return fl_fail(FL_EFORMAT, "%s: byte 8: version %" PRIu32 " found, 1 to %d expected",
                       r->path, fl__get32(b + 8), FL__LEDGER_VERSION);
    }
    r->hash = XXH64(b, body, 0);
    if (r->hash != fl__get64(b + body)) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %zu: checksum %016" PRIx64 " found, %016" PRIx64 " expected: the "
                       "header is damaged",
                       r->path, body, fl__get64(b + body), r->hash);
    }
    uint64_t n_samples = fl__get64(b + 16);
    if (n_samples < 1 || n_samples > (uint64_t)FL__LEDGER_MAX_SAMPLES) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 16: %" PRIu64 " samples found, 1 to %" PRId64 " expected", r->path,
                       n_samples, FL__LEDGER_MAX_SAMPLES);
    }
    r->version = fl__get32(b + 8);
    r->n_samples = (int64_t)n_samples;
    r->seed = fl__get64(b + 24);
    r->whole_bytes = (int64_t)sizeof b;
    return FL_OK;
}

/* The end record has the number of records: a ledger that lost some before it is not complete. */
static fl_status read_end(fl__ledger_reader *r, const uint8_t *record)
{
    int64_t n_records = (int64_t)fl__get64(record), n_ids = (int64_t)fl__get64(record + 8);
    if (n_records != r->n_records || n_ids != r->n_ids) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": an end after %" PRId64 " records of %" PRId64
                       " samples found, %" PRId64 " of %" PRId64 " expected",
                       r->path, r->whole_bytes, n_records, n_ids, r->n_records, r->n_ids);
    }
    r->has_end = true;
    return FL_OK;
}

static fl_status reserve_record(fl__ledger_reader *r, size_t size_bytes)
{
    if (size_bytes > r->record_capacity) {
        void *memory = r->record;
        FL_TRY(fl_realloc(&memory, r->record == NULL ? 0 : FL__LEDGER_HEAD_BYTES, 2 * size_bytes));
        r->record = memory;
        r->record_capacity = 2 * size_bytes;
    }
    return FL_OK;
}

/* The first part of a record has its length, and a check of its own. */
static fl_status read_head(fl__ledger_reader *r)
{
    FL_TRY(read_bytes(r, r->record, FL__LEDGER_HEAD_BYTES));
    uint32_t check = (uint32_t)XXH64(r->record, FL__LEDGER_HEAD_BYTES - 4, r->hash);
    if (check != fl__get32(r->record + 28)) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": check %08" PRIx32 " found, %08" PRIx32 " expected: "
                       "record %" PRId64 " is damaged or not in its place",
                       r->path, r->whole_bytes + 28, fl__get32(r->record + 28), check,
                       r->n_records);
    }
    return FL_OK;
}

static fl_status read_ids(fl__ledger_reader *r, size_t body)
{
    FL_TRY(reserve_record(r, body + FL__LEDGER_HASH_BYTES));
    FL_TRY(read_bytes(r, r->record + FL__LEDGER_HEAD_BYTES,
                      body + FL__LEDGER_HASH_BYTES - FL__LEDGER_HEAD_BYTES));
    r->hash = XXH64(r->record, body, r->hash);
    if (r->hash != fl__get64(r->record + body)) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": checksum %016" PRIx64 " found, %016" PRIx64
                       " expected: record %" PRId64 " is damaged",
                       r->path, r->whole_bytes + (int64_t)body, fl__get64(r->record + body),
                       r->hash, r->n_records);
    }
    return FL_OK;
}

fl_status fl__ledger_reader_next(fl__ledger_reader *r, fl__ledger_record *record, bool *got)
{
    int64_t at = r->whole_bytes, left = r->file_bytes - at;
    *got = false;
    if (left > 0 && r->has_end) {
        return fl_fail(FL_EFORMAT, "%s: byte %" PRId64 ": %" PRId64 " bytes found behind the end",
                       r->path, at, left);
    }
    if (left < FL__LEDGER_HEAD_BYTES) {
        r->cut_bytes = left;
        return FL_OK;
    }
    FL_TRY(read_head(r));
    uint32_t n = fl__get32(r->record + 24);
    size_t body = FL__LEDGER_HEAD_BYTES + 4 * (size_t)n;
    if ((int64_t)body + FL__LEDGER_HASH_BYTES > left) {
        r->cut_bytes = left;
        return FL_OK;
    }
    FL_TRY(read_ids(r, body));
    bool is_end = n == 0 && fl__get32(r->record + 20) == FL__LEDGER_END;
    if (is_end) {
        FL_TRY(read_end(r, r->record));
    }
    r->whole_bytes += (int64_t)body + FL__LEDGER_HASH_BYTES;
    if (is_end) {
        return fl__ledger_reader_next(r, record, got); /* nothing may follow */
    }
    r->n_records++;
    r->n_ids += n;
    *record = (fl__ledger_record){.epoch = (int64_t)fl__get64(r->record),
                                  .step = (int64_t)fl__get64(r->record + 8),
                                  .generation = fl__get32(r->record + 16),
                                  .replica = fl__get32(r->record + 20),
                                  .n = n,
                                  .at = at,
                                  .ids = r->record + FL__LEDGER_HEAD_BYTES};
    *got = true;
    return FL_OK;
}

fl_status fl__ledger_reader_id(const fl__ledger_reader *r, const fl__ledger_record *record,
                               uint32_t i, int64_t *id)
{
    *id = fl__get32(record->ids + 4 * (size_t)i);
    if (*id >= r->n_samples) {
        return fl_fail(
            FL_EFORMAT,
            "%s: byte %" PRId64 ": sample %" PRId64 " found, at most %" PRId64 " expected", r->path,
            record->at + FL__LEDGER_HEAD_BYTES + 4 * (int64_t)i, *id, r->n_samples - 1);
    }
    return FL_OK;
}

fl_status fl__ledger_reader_open(fl__ledger_reader *r, const char *path)
{
    struct stat st;
    *r = (fl__ledger_reader){.path = path};
    /* Without O_NONBLOCK, a named pipe in the file's place would make open itself wait. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    r->file = fd < 0 ? NULL : fdopen(fd, "rb");
    if (r->file == NULL) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    if (fstat(fd, &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return fl_fail(FL_EIO, "%s: something that is not a file found", path);
    }
    r->file_bytes = st.st_size;
    FL_TRY(reserve_record(r, 4096));
    return read_header(r);
}

void fl__ledger_reader_close(fl__ledger_reader *r)
{
    if (r->file != NULL) {
        fclose(r->file);
    }
    fl_free(r->record);
    *r = (fl__ledger_reader){0};
}
