/* Continues the ledger of an interrupted run:
 *
 *     ledger.bin ①  read, every hash checked
 *         ├─ records of steps before `step` ②  counted
 *         └─ all others, and the end ③          to be dropped, wherever they stand
 *     every sample of those steps is there ④
 *         ├─ in front of all others ──> the file is cut behind them ⑤
 *         └─ else ──> read again, and copied into ledger.bin.part ⑥, fsync, rename
 *     the run appends to the file
 *
 * Records of neighbouring steps may alternate, since several workers send them. A ledger of one
 * replica, whose run goes back when it loses a worker, can always be cut: this takes no space on a
 * disk that is full. */
#include "autodp/ledger.h"

#include "autodp/ledger_format.h"
#include "autodp/ledger_reader.h"
#include "autodp/ledger_writer.h"
#include "autodp/sampler.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PART_NAME FL_LEDGER_NAME ".part"

/* The samples of an epoch that records have named so far. */
typedef struct epoch_bits {
    int64_t epoch, n_used;
    uint8_t *bits; /* [(n_samples + 7) / 8]; NULL: all were used */
} epoch_bits;

typedef struct keeper {
    const fl_ledger_place *place;
    fl__ledger_reader reader;
    int64_t per_epoch;  /* steps */
    fl_cursor cursor;   /* after the kept steps */
    int64_t n_kept;     /* samples of kept records */
    fl__ledger_end end; /* behind the last kept record */
    bool any_dropped;
    bool alternates;    /* a dropped record stands before a kept one */
    int64_t *step_ids;  /* [place->step] samples of each kept step */
    epoch_bits *epochs; /* [n_epochs] those that kept steps belong to */
    int64_t n_epochs;
    fl_permutation order; /* of the epoch that the run continues with */
    int64_t *ids;         /* [ids_capacity] of a record */
    size_t ids_capacity;
    fl_ledger *out; /* NULL: only look */
} keeper;

static int64_t n_expected(const keeper *k, int64_t step)
{
    int64_t first = step % k->per_epoch * k->place->batch;
    int64_t left = k->place->n_samples - first;
    return left < k->place->batch ? left : k->place->batch;
}

static fl_status open_keeper(keeper *k, const char *path)
{
    const fl_ledger_place *p = k->place;
    FL_TRY(fl__ledger_reader_open(&k->reader, path));
    if (k->reader.n_samples != p->n_samples || k->reader.seed != p->seed) {
        return fl_fail(FL_EINVAL,
                       "%s: %" PRId64 " samples and seed %" PRIu64 " found, %" PRId64
                       " and %" PRIu64 " expected: the ledger of another run",
                       path, k->reader.n_samples, k->reader.seed, p->n_samples, p->seed);
    }
    k->end = (fl__ledger_end){
        .n_samples = p->n_samples, .at_bytes = k->reader.whole_bytes, .hash = k->reader.hash};
    k->per_epoch = fl_sampler_steps_per_epoch(p->n_samples, p->batch);
    k->cursor.epoch = p->step / k->per_epoch;
    k->cursor.position = p->step % k->per_epoch * p->batch;
    k->n_epochs = k->cursor.epoch + (k->cursor.position > 0);
    fl_permutation_init(&k->order, p->n_samples, p->seed, k->cursor.epoch);
    FL_TRY(fl_alloc_array((size_t)p->step + 1, sizeof *k->step_ids, (void **)&k->step_ids));
    return fl_alloc_array((size_t)k->n_epochs + 1, sizeof *k->epochs, (void **)&k->epochs);
}

static void close_keeper(keeper *k)
{
    fl__ledger_reader_close(&k->reader);
    for (int64_t i = 0; k->epochs != NULL && i < k->n_epochs; i++) {
        fl_free(k->epochs[i].bits);
    }
    fl_free(k->epochs);
    fl_free(k->step_ids);
    fl_free(k->ids);
}

/* ---- ② ---- */

static fl_status refuse_record(const keeper *k, const fl__ledger_record *record, const char *what)
{
    return fl_fail(FL_EFORMAT, "%s: byte %" PRId64 ": %s", k->reader.path, record->at, what);
}

/* A later epoch position would be used again after the run has continued. */
static bool is_ahead(const keeper *k, int64_t epoch, int64_t id)
{
    return epoch == k->cursor.epoch && fl_permutation_index(&k->order, id) >= k->cursor.position;
}

static fl_status count_id(keeper *k, const fl__ledger_record *record, epoch_bits *e, int64_t id)
{
    char what[160];
    if (e->bits == NULL || (e->bits[id / 8] >> (id % 8) & 1) != 0) {
        snprintf(what, sizeof what, "sample %" PRId64 " comes twice in epoch %" PRId64, id,
                 record->epoch + 1);
        return refuse_record(k, record, what);
    }
    if (is_ahead(k, record->epoch, id)) {
        snprintf(what, sizeof what,
                 "sample %" PRId64 " found in step %" PRId64 ", whose order has it later", id,
                 record->step);
        return refuse_record(k, record, what);
    }
    e->bits[id / 8] = (uint8_t)(e->bits[id / 8] | 1 << (id % 8));
    e->n_used++;
    return FL_OK;
}

static fl_status find_bits(keeper *k, const fl__ledger_record *record, epoch_bits **out)
{
    epoch_bits *e = &k->epochs[record->epoch];
    *out = e;
    return e->bits != NULL || e->n_used > 0
               ? FL_OK
               : fl_alloc((size_t)(k->place->n_samples + 7) / 8, (void **)&e->bits);
}

static fl_status count_ids(keeper *k, const fl__ledger_record *record)
{
    epoch_bits *e;
    FL_TRY(find_bits(k, record, &e));
    for (uint32_t i = 0; i < record->n; i++) {
        FL_TRY(fl__ledger_reader_id(&k->reader, record, i, &k->ids[i]));
        FL_TRY(count_id(k, record, e, k->ids[i]));
    }
    if (e->n_used == k->place->n_samples) {
        fl_free(e->bits); /* one or two epochs at a time need memory */
        e->bits = NULL;
    }
    k->step_ids[record->step] += record->n;
    k->n_kept += record->n;
    return FL_OK;
}

static fl_status reserve_ids(keeper *k, uint32_t n)
{
    void *ids = k->ids;
    FL_TRY(fl_alloc_room(&ids, 0, n, sizeof *k->ids, &k->ids_capacity));
    k->ids = ids;
    return FL_OK;
}

static fl_status keep_record(keeper *k, const fl__ledger_record *record)
{
    char what[160];
    if (record->step < 0 || record->step >= k->place->step) {
        k->any_dropped = true; /* ③ */
        return FL_OK;
    }
    if (record->epoch != record->step / k->per_epoch) {
        snprintf(what, sizeof what,
                 "step %" PRId64 " in epoch %" PRId64 " found, epoch %" PRId64 " expected",
                 record->step, record->epoch, record->step / k->per_epoch);
        return refuse_record(k, record, what);
    }
    FL_TRY(reserve_ids(k, record->n));
    FL_TRY(count_ids(k, record));
    k->alternates = k->alternates || k->any_dropped;
    k->end.n_records++;
    k->end.n_used += record->n;
    k->end.at_bytes = k->reader.whole_bytes;
    k->end.hash = k->reader.hash;
    return k->out == NULL ? FL_OK
                          : fl_ledger_add(k->out, record->epoch, record->step, record->generation,
                                          (int)record->replica, k->ids, record->n);
}

/* ---- ④ ---- */

static int64_t n_needed(const keeper *k)
{
    return k->cursor.epoch * k->place->n_samples + k->cursor.position;
}

/* The first step that lacks samples; -1: none does. */
static int64_t first_gap(const keeper *k)
{
    for (int64_t step = 0; step < k->place->step; step++) {
        if (k->step_ids[step] != n_expected(k, step)) {
            return step;
        }
    }
    return -1;
}

static fl_status check_complete(const keeper *k)
{
    int64_t step = first_gap(k);
    return step < 0 ? FL_OK
                    : fl_fail(FL_EFORMAT,
                              "%s: step %" PRId64 " has %" PRId64 " samples, %" PRId64
                              " expected: the %" PRId64 " steps before the checkpoint are not all "
                              "recorded",
                              k->reader.path, step, k->step_ids[step], n_expected(k, step),
                              k->place->step);
}

/* A machine that went down may leave anything at the end of a file. It does no harm once all
 * records that are kept have been read. */
static fl_status forgive_tail(const keeper *k, fl_status status)
{
    if (status != FL_EFORMAT || k->n_kept != n_needed(k) || first_gap(k) >= 0) {
        return status;
    }
    fl_log(FL_LOG_WARN, "%s; everything from there on is after the checkpoint, and is dropped",
           fl_errmsg());
    return FL_OK;
}

static fl_status read_all(keeper *k)
{
    fl__ledger_record record;
    bool got = true;
    while (got) {
        fl_status status = fl__ledger_reader_next(&k->reader, &record, &got);
        if (status != FL_OK) {
            return forgive_tail(k, status);
        }
        FL_TRY(got ? keep_record(k, &record) : FL_OK);
    }
    return check_complete(k);
}

fl_status fl_ledger_check_place(const char *path, const fl_ledger_place *place)
{
    keeper k = {.place = place};
    fl_status status = open_keeper(&k, path);
    if (status == FL_OK) {
        status = read_all(&k);
    }
    close_keeper(&k);
    return status;
}

/* ---- ⑤ and ⑥ ---- */

static fl_status write_part(const char *path, const fl_ledger_place *place, fl_ledger_proved *out)
{
    keeper k = {.place = place};
    fl_status status = open_keeper(&k, path);
    if (status == FL_OK) {
        status =
            fl__ledger_create_as(out->dir_fd, PART_NAME, place->n_samples, place->seed, &k.out);
    }
    if (status == FL_OK) {
        status = read_all(&k);
    }
    if (status == FL_OK) {
        status = fl_ledger_sync(k.out);
    }
    close_keeper(&k);
    if (status != FL_OK) {
        fl__ledger_drop(out->dir_fd, PART_NAME, &k.out);
        return status;
    }
    out->part = k.out;
    return FL_OK;
}

fl_status fl_ledger_prove_place(int dir_fd, const fl_ledger_place *place, fl_ledger_proved *out)
{
    char path[64];
    keeper k = {.place = place};
    *out = (fl_ledger_proved){.dir_fd = dir_fd};
    snprintf(path, sizeof path, "/proc/self/fd/%d/" FL_LEDGER_NAME, dir_fd);
    fl_status status = open_keeper(&k, path);
    if (status == FL_OK) {
        status = read_all(&k);
    }
    bool may_cut = !k.alternates && k.reader.version == FL__LEDGER_VERSION;
    out->end = k.end;
    close_keeper(&k);
    FL_TRY(status);
    return may_cut ? FL_OK : write_part(path, place, out);
}

void fl_ledger_leave(fl_ledger_proved *proved)
{
    if (proved->part != NULL) {
        fl__ledger_drop(proved->dir_fd, PART_NAME, &proved->part);
    }
}

fl_status fl_ledger_continue(fl_ledger_proved *proved, fl_ledger **out)
{
    int dir_fd = proved->dir_fd;
    if (proved->part == NULL) {
        return fl__ledger_continue(dir_fd, FL_LEDGER_NAME, &proved->end, out);
    }
    if (renameat(dir_fd, PART_NAME, dir_fd, FL_LEDGER_NAME) != 0 || fsync(dir_fd) != 0) {
        fl_status status = fl_fail(FL_EIO, FL_LEDGER_NAME ": %s", strerror(errno));
        fl_ledger_leave(proved);
        return status;
    }
    *out = proved->part;
    proved->part = NULL;
    return FL_OK;
}

fl_status fl_ledger_resume(int dir_fd, const fl_ledger_place *place, fl_ledger **out)
{
    fl_ledger_proved proved;
    FL_TRY(fl_ledger_prove_place(dir_fd, place, &proved));
    return fl_ledger_continue(&proved, out);
}
