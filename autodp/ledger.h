/* The sampler's ledger, a file in the run directory: which replica used which sample in which step;
 * and its proof.
 *
 * ledger.bin: a header, then one record for each replica and step, all little-endian:
 *
 *     header  magic "FLLEDGER", u32 version, u32 0, i64 n_samples, u64 seed | u64 xxh64
 *     record  i64 epoch, i64 step, u32 generation, u32 replica, u32 n | u32 check of these
 *             n x u32 id | u64 xxh64 of the whole record
 *     end     a record with i64 n_records, i64 n_ids in the place of epoch and step, generation 0,
 *             replica 0xFFFFFFFF and n 0: nothing follows it
 *
 * Each hash is seeded with the one before it, so a record that is changed, lost, repeated or moved
 * does not fit. The check (the lower half of an xxh64) protects n, so that a damaged length is not
 * mistaken for a record that was cut. The controller writes the ledger from the reports of the
 * workers that computed the loss, and the end when the run has ended well. A ledger without an end
 * is an incomplete record: its run still trains, was killed, or could not write. (Version 1 had no
 * end.) */
#ifndef FL_AUTODP_LEDGER_H
#define FL_AUTODP_LEDGER_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FL_LEDGER_NAME "ledger.bin"

typedef struct fl_ledger fl_ledger;

/* Create DIR/ledger.bin, or replace it. dir_fd: the open run directory. n_samples: 1 .. 2^32. */
fl_status fl_ledger_create(int dir_fd, int64_t n_samples, uint64_t seed,
                           fl_ledger **out) FL_MUST_CHECK;

/* Append one record; buffered. Records of earlier steps are handed to the system when a record of
 * another step is added: they then survive this process, but not the machine (no sync). ids [n],
 * each 0 .. n_samples - 1. After FL_EIO every later call fails with it. */
fl_status fl_ledger_add(fl_ledger *ledger, int64_t epoch, int64_t step, uint32_t generation,
                        int replica, const int64_t *ids, int64_t n) FL_MUST_CHECK;

/* A record of `step` is lost: write nothing more, so that the ledger ends before the gap. error: an
 * errno that every later call's message names. */
void fl_ledger_give_up(fl_ledger *ledger, int64_t step, int error);

/* The first step that the file lacks after a failure, and its errno; -1 and 0 if nothing failed. */
int64_t fl_ledger_failed_step(const fl_ledger *ledger, int *error);

/* Append the end record and hand everything to the system. The ledger is then a complete record;
 * only fl_ledger_close may follow. */
fl_status fl_ledger_end(fl_ledger *ledger) FL_MUST_CHECK;

/* Hand all buffered records to the system. */
fl_status fl_ledger_flush(fl_ledger *ledger) FL_MUST_CHECK;

/* The same, and from there onto the disk: the records then survive the machine, too. */
fl_status fl_ledger_sync(fl_ledger *ledger) FL_MUST_CHECK;

/* Flush and close; *ledger becomes NULL, also on failure; NULL is fine. */
fl_status fl_ledger_close(fl_ledger **ledger) FL_MUST_CHECK;

/* Where the ledger of an interrupted run continues. */
typedef struct fl_ledger_place {
    int64_t n_samples;
    uint64_t seed;
    int64_t batch; /* samples of a global batch */
    int64_t step;  /* every sample of the steps before this one must be in the ledger */
} fl_ledger_place;

/* Prove that the ledger holds each sample of the steps before place->step exactly once, and no
 * other sample in them. Damage behind the last of their records is only logged. Writes nothing.
 * Returns FL_EIO, FL_EINVAL for another run's ledger, FL_EFORMAT with the byte position or with the
 * first step that lacks samples. */
fl_status fl_ledger_check_place(const char *path, const fl_ledger_place *place) FL_MUST_CHECK;

/* A place in a ledger behind a whole record. */
typedef struct fl__ledger_end {
    int64_t n_samples, n_records, n_used; /* up to there */
    int64_t at_bytes;
    uint64_t hash; /* of the record before */
} fl__ledger_end;

/* A ledger that was proved, and that a run is about to continue. */
typedef struct fl_ledger_proved {
    int dir_fd;         /* borrowed */
    fl__ledger_end end; /* where it is to be cut; or */
    fl_ledger *part;    /* the file beside it that is to replace it; NULL: it can be cut */
} fl_ledger_proved;

/* Prove the same, and find out how DIR/ledger.bin can continue, which stays as it is: it can be
 * cut, or has to be replaced, by a file that is written now, where records of later steps stand
 * between the others. Only that takes space on the disk. Then call one of the next two. */
fl_status fl_ledger_prove_place(int dir_fd, const fl_ledger_place *place,
                                fl_ledger_proved *out) FL_MUST_CHECK;

/* Cut or replace it, atomically and durably: it has no records of later steps then, and no end. On
 * failure it is as it was. */
fl_status fl_ledger_continue(fl_ledger_proved *proved, fl_ledger **out) FL_MUST_CHECK;

/* It stays as it is. */
void fl_ledger_leave(fl_ledger_proved *proved);

/* Prove and continue at once. */
fl_status fl_ledger_resume(int dir_fd, const fl_ledger_place *place, fl_ledger **out) FL_MUST_CHECK;

/* One epoch in the ledger. */
typedef struct fl_ledger_epoch {
    int64_t epoch, n_samples;
    int64_t once, never, more; /* samples used exactly once, not at all, more often */
} fl_ledger_epoch;

/* The summary of a whole ledger. */
typedef struct fl_ledger_proof {
    int64_t n_samples;
    uint64_t seed;
    int64_t n_records;
    int64_t whole_bytes;     /* header and whole records */
    int64_t cut_bytes;       /* of a last record that is incomplete; 0: none */
    int64_t n_ids;           /* samples named by all records */
    bool has_end;            /* the writer ended the ledger: nothing is missing */
    fl_ledger_epoch *epochs; /* [n_epochs], in their order */
    int64_t n_epochs;
} fl_ledger_proof;

/* Read a ledger, check every record, and count. A last record that a killed controller left
 * unfinished is not damage: it is left out, and cut_bytes is its length.
 * Returns FL_EIO, or FL_EFORMAT with the byte position, what was found and what was expected.
 * *out is unchanged on failure; else fl_ledger_proof_fini frees it. */
fl_status fl_ledger_prove(const char *path, fl_ledger_proof *out) FL_MUST_CHECK;
void fl_ledger_proof_fini(fl_ledger_proof *proof);

/* True if no epoch used a sample twice, no epoch but the last left one out (a run may stop within
 * the last), no epoch is missing, and there is at least one. */
bool fl_ledger_is_exact(const fl_ledger_proof *proof);

typedef enum fl_ledger_result {
    FL_LEDGER_COMPLETE,   /* exact, from the first step to the end of the run */
    FL_LEDGER_INCOMPLETE, /* no sample came twice, but the end is missing, perhaps with records of
                             the last steps */
    FL_LEDGER_BROKEN,     /* an epoch used a sample twice, or a finished epoch left one out */
} fl_ledger_result;

/* "complete", "incomplete record", "broken". */
const char *fl_ledger_result_text(fl_ledger_result result);

/* A ledger without any step proves nothing, so it counts as an incomplete record. */
fl_ledger_result fl_ledger_judge(const fl_ledger_proof *proof);

/* Write the proof for people, epochs counted from 1: the output of `frostline ledger RUN_DIR`.
 * alive: the run still trains, so no end is expected yet. */
void fl_ledger_print(const fl_ledger_proof *proof, bool alive, FILE *out);

/* Read the epochs alone, from a closed ledger. epochs: fl_alloc'd array, the caller frees it.
 * Returns FL_EFORMAT with the byte position when a record is damaged or cut. */
fl_status fl_ledger_read(const char *path, fl_ledger_epoch **epochs, int64_t *n) FL_MUST_CHECK;

#endif
