/* Proves a ledger: counts every sample of every epoch. */
#include "autodp/ledger.h"
#include "autodp/ledger_reader.h"
#include "device/system/alloc.h"

#include <inttypes.h>
#include <string.h>

/* How often each sample of one epoch was used: two bits a sample, 3 means three times or more. */
typedef struct stats {
    int64_t epoch;
    uint8_t *counts; /* [(n_samples + 3) / 4] */
} stats;

typedef struct prover {
    fl__ledger_reader reader;
    fl_ledger_proof proof;
    stats *epoch_stats; /* [proof.n_epochs of stats_capacity], by first record */
    int64_t stats_capacity;
} prover;

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
    FL_TRY(fl_alloc((size_t)(p->reader.n_samples + 3) / 4, &counts));
    *out = &p->epoch_stats[p->proof.n_epochs++];
    **out = (stats){.epoch = epoch, .counts = counts};
    return FL_OK;
}

static int used(const stats *t, int64_t id)
{
    return t->counts[id / 4] >> (2 * (id % 4)) & 3;
}

static fl_status count_record(prover *p, const fl__ledger_record *record)
{
    stats *t = NULL;
    FL_TRY(find_stats(p, record->epoch, &t));
    for (uint32_t i = 0; i < record->n; i++) {
        int64_t id;
        FL_TRY(fl__ledger_reader_id(&p->reader, record, i, &id));
        if (used(t, id) < 3) {
            t->counts[id / 4] = (uint8_t)(t->counts[id / 4] + (1 << (2 * (id % 4))));
        }
    }
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

static fl_status prove(prover *p, const char *path)
{
    fl__ledger_record record;
    bool got = true;
    FL_TRY(fl__ledger_reader_open(&p->reader, path));
    p->proof.n_samples = p->reader.n_samples;
    while (got) {
        FL_TRY(fl__ledger_reader_next(&p->reader, &record, &got));
        FL_TRY(got ? count_record(p, &record) : FL_OK);
    }
    return finish(p);
}

fl_status fl_ledger_prove(const char *path, fl_ledger_proof *out)
{
    prover p = {.proof = {0}};
    fl_status status = prove(&p, path);
    const fl__ledger_reader *r = &p.reader;
    p.proof.seed = r->seed;
    p.proof.n_records = r->n_records;
    p.proof.n_ids = r->n_ids;
    p.proof.whole_bytes = r->whole_bytes;
    p.proof.cut_bytes = r->cut_bytes;
    p.proof.has_end = r->has_end;
    fl__ledger_reader_close(&p.reader);
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
