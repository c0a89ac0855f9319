/* Reads a ledger record by record and verifies every hash on the way. The file is read as a stream:
 * it may be larger than the memory. */
#ifndef FL_AUTODP_LEDGER_READER_H
#define FL_AUTODP_LEDGER_READER_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct fl__ledger_reader {
    const char *path; /* borrowed; for messages */
    FILE *file;
    int64_t file_bytes;
    int64_t whole_bytes; /* header and whole records so far */
    int64_t cut_bytes;   /* of a last record that is incomplete; 0: none */
    uint64_t hash;       /* of the record read last */
    uint32_t version;
    int64_t n_samples;
    uint64_t seed;
    int64_t n_records, n_ids; /* without the end record */
    bool has_end;
    uint8_t *record; /* [record_capacity] */
    size_t record_capacity;
} fl__ledger_reader;

typedef struct fl__ledger_record {
    int64_t epoch, step;
    uint32_t generation, replica, n;
    int64_t at;         /* its first byte in the file */
    const uint8_t *ids; /* [4 n], little-endian; valid until the next call */
} fl__ledger_record;

/* Open the file and read its header. FL_EIO, FL_EFORMAT with the byte position. Call close after a
 * failure, too; of a struct of zeros it does nothing. */
fl_status fl__ledger_reader_open(fl__ledger_reader *reader, const char *path) FL_MUST_CHECK;
void fl__ledger_reader_close(fl__ledger_reader *reader);

/* The next whole record. *got: false at the end of the file, at an incomplete last record
 * (cut_bytes) and at the end record (has_end), which nothing may follow. */
fl_status fl__ledger_reader_next(fl__ledger_reader *reader, fl__ledger_record *record,
                                 bool *got) FL_MUST_CHECK;

/* The i-th sample of a record; FL_EFORMAT if the ledger has no such sample. */
fl_status fl__ledger_reader_id(const fl__ledger_reader *reader, const fl__ledger_record *record,
                               uint32_t i, int64_t *id) FL_MUST_CHECK;

#endif
