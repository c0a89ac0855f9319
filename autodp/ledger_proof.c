/* Reads a ledger back: verifies the hash of every byte, and counts every sample of every epoch. The
 * file is read as a stream: it may be larger than the memory. */
#include "autodp/ledger.h"
#include "autodp/ledger_format.h"
#include "device/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* How often each sample of one epoch was used: two bits a sample, 3 means three times or more. */
typedef struct stats {
    int64_t epoch;
    uint8_t *counts; /* [(n_samples + 3) / 4] */
} stats;

typedef struct prover {
    const char *path;
    FILE *file;
    int64_t file_bytes;
    uint64_t hash;
    fl_ledger_proof proof;
    uint8_t *record; /* [record_capacity] */
    size_t record_capacity;
    stats *epoch_stats; /* [proof.n_epochs of stats_capacity], by first record */
    int64_t stats_capacity;
} prover;

static fl_status read_bytes(prover *p, uint8_t *to, size_t n)
{
    if (fread(to, 1, n, p->file) != n) {
        return fl_fail(FL_EIO, "%s: byte %" PRId64 ": %s", p->path, p->proof.whole_bytes,
                       ferror(p->file) ? strerror(errno) : "it became shorter while it was read");
    }
    return FL_OK;
}

static fl_status read_header(prover *p)
{
    uint8_t b[FL__LEDGER_HEADER_BYTES];
    size_t body = sizeof b - FL__LEDGER_HASH_BYTES;
    if (p->file_bytes < (int64_t)sizeof b) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": the end of the file found, a header of %zu bytes "
                       "expected",
                       p->path, p->file_bytes, sizeof b);
    }
    FL_TRY(read_bytes(p, b, sizeof b));
    if (memcmp(b, FL__LEDGER_MAGIC, 8) != 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 0: something else found, \"%s\" expected: not a ledger", p->path,
                       FL__LEDGER_MAGIC);
    }
    if (fl__get32(b + 8) < 1 || fl__get32(b + 8) > FL__LEDGER_VERSION) {
        return fl_fail(FL_EFORMAT, "%s: byte 8: version %" PRIu32 " found, 1 to %d expected",
                       p->path, fl__get32(b + 8), FL__LEDGER_VERSION);
    }
    p->hash = XXH64(b, body, 0);
    if (p->hash != fl__get64(b + body)) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %zu: checksum %016" PRIx64 " found, %016" PRIx64 " expected: the "
                       "header is damaged",
                       p->path, body, fl__get64(b + body), p->hash);
    }
    uint64_t n_samples = fl__get64(b + 16);
    if (n_samples < 1 || n_samples > (uint64_t)FL__LEDGER_MAX_SAMPLES) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte 16: %" PRIu64 " samples found, 1 to %" PRId64 " expected", p->path,
                       n_samples, FL__LEDGER_MAX_SAMPLES);
    }
    p->proof.n_samples = (int64_t)n_samples;
    p->proof.seed = fl__get64(b + 24);
    p->proof.whole_bytes = (int64_t)sizeof b;
    return FL_OK;
}

/* Room for one more; both arrays grow together. */
static fl_status reserve_epoch(prover *p)
{
    int64_t n = p->proof.n_epochs;
    if (n < p->stats_capacity) {
        return FL_OK;
    }
    int64_t capacity = n == 0 ? 16 : 2 * n;
    void *memory = p->epoch_stats;
    FL_TRY(fl_realloc(&memory, (size_t)n * sizeof *p->epoch_stats,
                      (size_t)capacity * sizeof *p->epoch_stats));
    p->epoch_stats = memory;
    p->stats_capacity = capacity;
    return FL_OK;
}

/* The counts of `epoch`, created if it is new. Records of neighbouring epochs may alternate where
 * one epoch ends and the next starts, so the search starts with the newest. */
static fl_status find_stats(prover *p, int64_t epoch, stats **out)
{
    for (int64_t i = p->proof.n_epochs - 1; i >= 0; i--) {
        if (p->epoch_stats[i].epoch == epoch) {
            *out = &p->epoch_stats[i];
            return FL_OK;
        }
    }
    FL_TRY(reserve_epoch(p));
    void *counts = NULL;
    FL_TRY(fl_alloc((size_t)(p->proof.n_samples + 3) / 4, &counts));
    *out = &p->epoch_stats[p->proof.n_epochs++];
    **out = (stats){.epoch = epoch, .counts = counts};
    return FL_OK;
}

static int used(const stats *t, int64_t id)
{
    return t->counts[id / 4] >> (2 * (id % 4)) & 3;
}

/* The end record has the number of records: a ledger that lost some before it is not complete. */
static fl_status read_end(prover *p, const uint8_t *record)
{
    int64_t n_records = (int64_t)fl__get64(record), n_ids = (int64_t)fl__get64(record + 8);
    if (n_records != p->proof.n_records || n_ids != p->proof.n_ids) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": an end after %" PRId64 " records of %" PRId64
                       " samples found, %" PRId64 " of %" PRId64 " expected",
                       p->path, p->proof.whole_bytes, n_records, n_ids, p->proof.n_records,
                       p->proof.n_ids);
    }
    p->proof.has_end = true;
    return FL_OK;
}

static fl_status count_record(prover *p, const uint8_t *ids, uint32_t n, int64_t epoch)
{
    stats *t = NULL;
    FL_TRY(find_stats(p, epoch, &t));
    for (uint32_t i = 0; i < n; i++) {
        int64_t id = fl__get32(ids + 4 * (size_t)i);
        if (id >= p->proof.n_samples) {
            return fl_fail(FL_EFORMAT,
                           "%s: byte %" PRId64 ": sample %" PRId64 " found, at most %" PRId64
                           " expected",
                           p->path, p->proof.whole_bytes + FL__LEDGER_HEAD_BYTES + 4 * (int64_t)i,
                           id, p->proof.n_samples - 1);
        }
        if (used(t, id) < 3) {
            t->counts[id / 4] = (uint8_t)(t->counts[id / 4] + (1 << (2 * (id % 4))));
        }
    }
    return FL_OK;
}

static fl_status reserve_record(prover *p, size_t size_bytes)
{
    if (size_bytes > p->record_capacity) {
        void *memory = p->record;
        FL_TRY(fl_realloc(&memory, FL__LEDGER_HEAD_BYTES, 2 * size_bytes));
        p->record = memory;
        p->record_capacity = 2 * size_bytes;
    }
    return FL_OK;
}

/* Read the next record if it is whole; otherwise the rest of the file is `cut_bytes`. */
static fl_status read_record(prover *p)
{
    int64_t at = p->proof.whole_bytes, left = p->file_bytes - at;
    if (left < FL__LEDGER_HEAD_BYTES) {
        p->proof.cut_bytes = left;
        return FL_OK;
    }
    FL_TRY(read_bytes(p, p->record, FL__LEDGER_HEAD_BYTES));
    uint32_t check = (uint32_t)XXH64(p->record, FL__LEDGER_HEAD_BYTES - 4, p->hash);
    if (check != fl__get32(p->record + 28)) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": check %08" PRIx32 " found, %08" PRIx32 " expected: "
                       "record %" PRId64 " is damaged or not in its place",
                       p->path, at + 28, fl__get32(p->record + 28), check, p->proof.n_records);
    }
    uint32_t n = fl__get32(p->record + 24);
    size_t body = FL__LEDGER_HEAD_BYTES + 4 * (size_t)n;
    if ((int64_t)body + FL__LEDGER_HASH_BYTES > left) {
        p->proof.cut_bytes = left;
        return FL_OK;
    }
    FL_TRY(reserve_record(p, body + FL__LEDGER_HASH_BYTES));
    FL_TRY(read_bytes(p, p->record + FL__LEDGER_HEAD_BYTES,
                      body + FL__LEDGER_HASH_BYTES - FL__LEDGER_HEAD_BYTES));
    p->hash = XXH64(p->record, body, p->hash);
    if (p->hash != fl__get64(p->record + body)) {
        return fl_fail(FL_EFORMAT,
                       "%s: byte %" PRId64 ": checksum %016" PRIx64 " found, %016" PRIx64
                       " expected: record %" PRId64 " is damaged",
                       p->path, at + (int64_t)body, fl__get64(p->record + body), p->hash,
                       p->proof.n_records);
    }
    if (n == 0 && fl__get32(p->record + 20) == FL__LEDGER_END) {
        FL_TRY(read_end(p, p->record));
    } else {
        FL_TRY(
            count_record(p, p->record + FL__LEDGER_HEAD_BYTES, n, (int64_t)fl__get64(p->record)));
        p->proof.n_records++;
        p->proof.n_ids += n;
    }
    p->proof.whole_bytes += (int64_t)body + FL__LEDGER_HASH_BYTES;
    return FL_OK;
}

static fl_ledger_epoch sum_up(const stats *t, int64_t n_samples)
{
    fl_ledger_epoch e = {.epoch = t->epoch, .n_samples = n_samples};
    for (int64_t id = 0; id < n_samples; id++) {
        int n = used(t, id);
        e.never += n == 0;
        e.once += n == 1;
        e.more += n > 1;
    }
    return e;
}

/* Sort the epochs, whatever the order of their first records. */
static fl_status finish(prover *p)
{
    void *memory = NULL;
    FL_TRY(fl_alloc_array((size_t)p->proof.n_epochs, sizeof(fl_ledger_epoch), &memory));
    fl_ledger_epoch *epochs = memory;
    for (int64_t i = 0; i < p->proof.n_epochs; i++) {
        fl_ledger_epoch e = sum_up(&p->epoch_stats[i], p->proof.n_samples);
        int64_t at = i;
        for (; at > 0 && epochs[at - 1].epoch > e.epoch; at--) {
            epochs[at] = epochs[at - 1];
        }
        epochs[at] = e;
    }
    p->proof.epochs = epochs;
    return FL_OK;
}

static fl_status prove(prover *p)
{
    struct stat st;
    if (fstat(fileno(p->file), &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", p->path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return fl_fail(FL_EIO, "%s: something that is not a file found", p->path);
    }
    p->file_bytes = st.st_size;
    FL_TRY(reserve_record(p, 4096));
    FL_TRY(read_header(p));
    while (p->proof.whole_bytes < p->file_bytes && p->proof.cut_bytes == 0) {
        if (p->proof.has_end) {
            return fl_fail(FL_EFORMAT,
                           "%s: byte %" PRId64 ": %" PRId64 " bytes found behind the end", p->path,
                           p->proof.whole_bytes, p->file_bytes - p->proof.whole_bytes);
        }
        FL_TRY(read_record(p));
    }
    return finish(p);
}

fl_status fl_ledger_prove(const char *path, fl_ledger_proof *out)
{
    /* Without O_NONBLOCK, a named pipe in the file's place would make open itself wait. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    prover p = {.path = path, .file = fd < 0 ? NULL : fdopen(fd, "rb")};
    if (p.file == NULL) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    fl_status status = prove(&p);
    fclose(p.file);
    fl_free(p.record);
    for (int64_t i = 0; i < p.proof.n_epochs; i++) {
        fl_free(p.epoch_stats[i].counts);
    }
    fl_free(p.epoch_stats);
    if (status == FL_OK) {
        *out = p.proof;
    }
    return status;
}

void fl_ledger_proof_fini(fl_ledger_proof *proof)
{
    fl_free(proof->epochs);
    *proof = (fl_ledger_proof){0};
}

bool fl_ledger_is_exact(const fl_ledger_proof *proof)
{
    for (int64_t i = 0; i < proof->n_epochs; i++) {
        const fl_ledger_epoch *e = &proof->epochs[i];
        bool last = i + 1 == proof->n_epochs;
        if (e->more > 0 || (e->never > 0 && !last) || e->epoch != proof->epochs[0].epoch + i) {
            return false;
        }
    }
    return proof->n_epochs > 0;
}

/* The number of epochs of which every record must be there: all but the last if the ledger has its
 * end. Without one, the records of the last steps may be missing, since a worker that is killed
 * takes its unsent records with it. A whole epoch shows that all records before it have arrived. */
static int64_t n_settled(const fl_ledger_proof *proof)
{
    int64_t n = proof->n_epochs - 1;
    while (!proof->has_end && n > 0 && proof->epochs[n].never > 0) {
        n--;
    }
    return n;
}

static bool is_broken(const fl_ledger_proof *proof)
{
    int64_t settled = n_settled(proof);
    for (int64_t i = 0; i < proof->n_epochs; i++) {
        const fl_ledger_epoch *e = &proof->epochs[i];
        if (e->more > 0 || (i < settled && e->never > 0) ||
            (i <= settled && e->epoch != proof->epochs[0].epoch + i)) {
            return true;
        }
    }
    return false;
}

fl_ledger_result fl_ledger_judge(const fl_ledger_proof *proof)
{
    if (is_broken(proof)) {
        return FL_LEDGER_BROKEN;
    }
    return proof->n_epochs > 0 && proof->has_end ? FL_LEDGER_COMPLETE : FL_LEDGER_INCOMPLETE;
}

const char *fl_ledger_result_text(fl_ledger_result result)
{
    static const char *const text[] = {"complete", "incomplete record", "broken"};
    return text[result];
}

static void print_epochs(const fl_ledger_proof *proof, FILE *out)
{
    fprintf(out, "%8s %12s %12s %12s\n", "epoch", "once", "never", "more");
    for (int64_t i = 0; i < proof->n_epochs; i++) {
        const fl_ledger_epoch *e = &proof->epochs[i];
        bool last = i + 1 == proof->n_epochs, cut = e->never > 0 && e->more == 0;
        const char *note = !cut                    ? ""
                           : last                  ? "  (ends within this epoch)"
                           : i >= n_settled(proof) ? "  (records are missing)"
                                                   : "";
        fprintf(out, "%8" PRId64 " %12" PRId64 " %12" PRId64 " %12" PRId64 "%s\n", e->epoch + 1,
                e->once, e->never, e->more, note);
    }
}

static void print_result(const fl_ledger_proof *proof, bool alive, FILE *out)
{
    fl_ledger_result result = fl_ledger_judge(proof);
    if (result == FL_LEDGER_BROKEN) {
        fprintf(out, "broken: NOT exactly once; see the columns epoch, never and more\n");
    } else if (result == FL_LEDGER_COMPLETE) {
        fprintf(out, "complete: exactly once; no sample was used twice, and none was left out of a "
                     "whole epoch\n");
    } else if (alive) {
        fprintf(out, "so far %s: the run still trains\n",
                proof->n_epochs == 0 || fl_ledger_is_exact(proof)
                    ? "exactly once"
                    : "no sample was used twice, but records of the last steps are not there yet");
    } else {
        fprintf(out,
                "incomplete record: the ledger has no end, since its run failed, was killed or "
                "could not write;\n%s\n",
                proof->n_epochs == 0 ? "no step was recorded, so nothing is proven"
                : fl_ledger_is_exact(proof)
                    ? "what it records was used exactly once, what the run used afterwards is not "
                      "known"
                    : "no sample that it records was used twice; records of the last steps are "
                      "missing");
    }
}

void fl_ledger_print(const fl_ledger_proof *proof, bool alive, FILE *out)
{
    fprintf(out,
            "%" PRId64 " samples, seed %" PRIu64 ", %" PRId64 " records, every checksum right\n",
            proof->n_samples, proof->seed, proof->n_records);
    if (proof->cut_bytes > 0) {
        fprintf(out,
                "the last record was never finished: %" PRId64 " bytes from byte %" PRId64
                " on are left out\n",
                proof->cut_bytes, proof->whole_bytes);
    }
    print_epochs(proof, out);
    print_result(proof, alive, out);
}

fl_status fl_ledger_read(const char *path, fl_ledger_epoch **epochs, int64_t *n)
{
    fl_ledger_proof proof = {0};
    FL_TRY(fl_ledger_prove(path, &proof));
    if (proof.cut_bytes > 0) {
        fl_status status = fl_fail(
            FL_EFORMAT, "%s: byte %" PRId64 ": the end of the file found within record %" PRId64,
            path, proof.whole_bytes + proof.cut_bytes, proof.n_records);
        fl_ledger_proof_fini(&proof);
        return status;
    }
    *epochs = proof.epochs;
    *n = proof.n_epochs;
    return FL_OK;
}
