/* The sampler's ledger: who used which sample when, in the run directory; and its proof.
 *
 * ledger.bin: a header, then one record a replica and step, little-endian, each with its xxhash:
 * magic, version, n_samples, seed | epoch, step, generation, replica, n, ids[n] (u32), xxh64.
 * The controller writes it from what the workers that computed the loss report. */
#ifndef FL_AUTODP_LEDGER_H
#define FL_AUTODP_LEDGER_H

#include <frostline/status.h>

#include <stdint.h>
#include <stdio.h>

typedef struct fl_ledger fl_ledger;

/* Create DIR/ledger.bin anew. dir_fd: the open run directory. */
fl_status fl_ledger_create(int dir_fd, int64_t n_samples, uint64_t seed,
                           fl_ledger **out) FL_MUST_CHECK;

/* Append one record; buffered. ids [n]. */
fl_status fl_ledger_add(fl_ledger *ledger, int64_t epoch, int64_t step, uint32_t generation,
                        int replica, const int64_t *ids, int64_t n) FL_MUST_CHECK;

/* Flush and close; *ledger becomes NULL; NULL is fine. */
fl_status fl_ledger_close(fl_ledger **ledger) FL_MUST_CHECK;

/* One epoch as the ledger shows it. */
typedef struct fl_ledger_epoch {
    int64_t epoch, n_samples;
    int64_t once, never, more; /* samples used exactly once, not at all, more often */
} fl_ledger_epoch;

/* Read a ledger file, check every record, and count. epochs: fl_alloc'd array, the caller frees it.
 * Returns FL_EFORMAT with the byte position when a record is damaged or cut. */
fl_status fl_ledger_read(const char *path, fl_ledger_epoch **epochs, int64_t *n) FL_MUST_CHECK;

#endif
