#include "autodp/ledger.h"

#include "autodp/ledger_format.h"
#include "autodp/ledger_writer.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { FIRST_CAPACITY_BYTES = 64 * 1024 };

struct fl_ledger {
    int fd;
    int64_t n_samples;
    int64_t n_records, n_used; /* records added, and the samples that they name */
    uint64_t hash;             /* of the record written last */
    int64_t step;              /* of the buffered records */
    uint8_t *buffer;
    size_t used_bytes, capacity_bytes;
    int error; /* errno of the first failure: the file may end in half a record, and is not written
                  any more */
    int64_t failed_step; /* the first step that the file lacks */
};

void fl_ledger_give_up(fl_ledger *l, int64_t step, int error)
{
    if (l->error == 0) {
        l->error = error;
        l->failed_step = step > 0 ? step : 0;
    }
}

int64_t fl_ledger_failed_step(const fl_ledger *l, int *error)
{
    *error = l->error;
    return l->error == 0 ? -1 : l->failed_step;
}

fl_status fl_ledger_flush(fl_ledger *l)
{
    size_t done = 0;
    while (done < l->used_bytes && l->error == 0) {
        ssize_t n = write(l->fd, l->buffer + done, l->used_bytes - done);
        if (n < 0 && errno != EINTR) {
            fl_ledger_give_up(l, l->step, errno);
        } else if (n > 0) {
            done += (size_t)n;
        }
    }
    l->used_bytes = 0;
    return l->error == 0 ? FL_OK : fl_fail(FL_EIO, FL_LEDGER_NAME ": %s", strerror(l->error));
}

/* Make room for `more` bytes after the buffered ones. */
static fl_status reserve(fl_ledger *l, size_t more)
{
    void *memory = l->buffer;
    FL_TRY(fl_alloc_room(&memory, l->used_bytes, more, 1, &l->capacity_bytes));
    l->buffer = memory;
    return FL_OK;
}

static void put_header(fl_ledger *l, uint64_t seed)
{
    uint8_t *to = l->buffer;
    memcpy(to, FL__LEDGER_MAGIC, 8);
    fl__put32(to + 8, FL__LEDGER_VERSION);
    fl__put32(to + 12, 0);
    fl__put64(to + 16, (uint64_t)l->n_samples);
    fl__put64(to + 24, seed);
    l->hash = XXH64(to, FL__LEDGER_HEADER_BYTES - FL__LEDGER_HASH_BYTES, 0);
    fl__put64(to + 32, l->hash);
    l->used_bytes = FL__LEDGER_HEADER_BYTES;
}

static fl_status create_writer(int64_t n_samples, fl_ledger **out)
{
    void *memory = NULL;
    FL_TRY(fl_alloc(sizeof(fl_ledger), &memory));
    *out = memory;
    **out = (fl_ledger){.fd = -1, .n_samples = n_samples, .step = -1};
    return reserve(*out, FIRST_CAPACITY_BYTES);
}

static void drop_writer(fl_ledger **ledger)
{
    if (*ledger != NULL) {
        (*ledger)->used_bytes = 0;
        fl_status closed = fl_ledger_close(ledger);
        (void)closed;
    }
}

static fl_status cut_file(int fd, int64_t at_bytes)
{
    return ftruncate(fd, at_bytes) == 0 && lseek(fd, 0, SEEK_END) == at_bytes && fsync(fd) == 0
               ? FL_OK
               : fl_fail(FL_EIO, FL_LEDGER_NAME ": %s", strerror(errno));
}

fl_status fl__ledger_continue(int dir_fd, const char *name, const fl__ledger_end *end,
                              fl_ledger **out)
{
    fl_ledger *l = NULL;
    fl_status status = create_writer(end->n_samples, &l);
    if (status == FL_OK) {
        l->n_records = end->n_records;
        l->n_used = end->n_used;
        l->hash = end->hash;
        l->fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);
        status = l->fd >= 0 ? cut_file(l->fd, end->at_bytes)
                            : fl_fail(FL_EIO, "%s: %s", name, strerror(errno));
    }
    if (status != FL_OK) {
        drop_writer(&l);
        return status;
    }
    *out = l;
    return FL_OK;
}

fl_status fl__ledger_create_as(int dir_fd, const char *name, int64_t n_samples, uint64_t seed,
                               fl_ledger **out)
{
    if (n_samples < 1 || n_samples > FL__LEDGER_MAX_SAMPLES) {
        return fl_fail(FL_EINVAL, "a ledger of %lld samples found, 1 to %lld allowed",
                       (long long)n_samples, (long long)FL__LEDGER_MAX_SAMPLES);
    }
    fl_ledger *l = NULL;
    fl_status status = create_writer(n_samples, &l);
    if (status == FL_OK) {
        l->fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (l->fd < 0) {
            status = fl_fail(FL_EIO, "%s: %s", name, strerror(errno));
        }
    }
    if (status == FL_OK) {
        put_header(l, seed);
        status = fl_ledger_flush(l);
    }
    if (status != FL_OK) {
        drop_writer(&l);
        return status;
    }
    *out = l;
    return FL_OK;
}

fl_status fl_ledger_create(int dir_fd, int64_t n_samples, uint64_t seed, fl_ledger **out)
{
    return fl__ledger_create_as(dir_fd, FL_LEDGER_NAME, n_samples, seed, out);
}

static fl_status check_record(const fl_ledger *l, int64_t epoch, int64_t step, int replica,
                              const int64_t *ids, int64_t n)
{
    if (epoch < 0 || step < 0 || replica < 0 || n < 0 || n > UINT32_MAX) {
        return fl_fail(FL_EINVAL,
                       "a ledger record of epoch %lld, step %lld, replica %d and %lld samples: "
                       "none may be below 0",
                       (long long)epoch, (long long)step, replica, (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= l->n_samples) {
            return fl_fail(FL_EINVAL, "sample %lld in step %lld of the ledger: 0 to %lld allowed",
                           (long long)ids[i], (long long)step, (long long)(l->n_samples - 1));
        }
    }
    return FL_OK;
}

/* Append the bytes of one record to the buffer; in the end record, its first two numbers have
 * another meaning. */
static fl_status put_record(fl_ledger *l, int64_t first, int64_t second, uint32_t generation,
                            uint32_t replica, const int64_t *ids, int64_t n)
{
    size_t body_bytes = FL__LEDGER_HEAD_BYTES + 4 * (size_t)n;
    FL_TRY(reserve(l, body_bytes + FL__LEDGER_HASH_BYTES));
    uint8_t *to = l->buffer + l->used_bytes;
    fl__put64(to, (uint64_t)first);
    fl__put64(to + 8, (uint64_t)second);
    fl__put32(to + 16, generation);
    fl__put32(to + 20, replica);
    fl__put32(to + 24, (uint32_t)n);
    fl__put32(to + 28, (uint32_t)XXH64(to, FL__LEDGER_HEAD_BYTES - 4, l->hash));
    for (int64_t i = 0; i < n; i++) {
        fl__put32(to + FL__LEDGER_HEAD_BYTES + 4 * i, (uint32_t)ids[i]);
    }
    l->hash = XXH64(to, body_bytes, l->hash);
    fl__put64(to + body_bytes, l->hash);
    l->used_bytes += body_bytes + FL__LEDGER_HASH_BYTES;
    return FL_OK;
}

fl_status fl_ledger_add(fl_ledger *l, int64_t epoch, int64_t step, uint32_t generation, int replica,
                        const int64_t *ids, int64_t n)
{
    FL_TRY(check_record(l, epoch, step, replica, ids, n));
    if (step != l->step || l->error != 0) {
        FL_TRY(fl_ledger_flush(l));
    }
    fl_status status = put_record(l, epoch, step, generation, (uint32_t)replica, ids, n);
    if (status != FL_OK) {
        fl_ledger_give_up(l, step, ENOMEM); /* records after a gap would look like a defect */
        return status;
    }
    l->step = step;
    l->n_records++;
    l->n_used += n;
    return FL_OK;
}

fl_status fl_ledger_end(fl_ledger *l)
{
    FL_TRY(fl_ledger_flush(l));
    FL_TRY(put_record(l, l->n_records, l->n_used, 0, FL__LEDGER_END, NULL, 0));
    return fl_ledger_flush(l);
}

fl_status fl_ledger_sync(fl_ledger *l)
{
    FL_TRY(fl_ledger_flush(l));
    if (fdatasync(l->fd) != 0) {
        fl_ledger_give_up(l, l->step, errno);
        return fl_fail(FL_EIO, FL_LEDGER_NAME ": %s", strerror(errno));
    }
    return FL_OK;
}

void fl__ledger_drop(int dir_fd, const char *name, fl_ledger **ledger)
{
    fl_failure failure;
    fl_failure_keep(&failure, FL_EIO);
    drop_writer(ledger);
    unlinkat(dir_fd, name, 0); /* also one that could not get its header */
    fl_status raised = fl_failure_raise(&failure);
    (void)raised;
}

fl_status fl_ledger_close(fl_ledger **ledger)
{
    fl_ledger *l = *ledger;
    if (l == NULL) {
        return FL_OK;
    }
    fl_status status = fl_ledger_flush(l);
    if (l->fd >= 0 && close(l->fd) != 0 && status == FL_OK) {
        status = fl_fail(FL_EIO, FL_LEDGER_NAME ": %s", strerror(errno));
    }
    fl_free(l->buffer);
    fl_free(l);
    *ledger = NULL;
    return status;
}
