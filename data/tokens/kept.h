/* Arrays in a file of the user's cache, so that the next run of a job need not compute them again.
 * The file is found by a key, a hash of all that decides what the arrays hold. */
#ifndef FL_DATA_TOKENS_KEPT_H
#define FL_DATA_TOKENS_KEPT_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_kept_key {
    uint64_t hash[2];
} fl_kept_key;

/* Mix bytes, or a text that may be NULL, into a key. Each is told from its neighbours. */
void fl__kept_key_mix(fl_kept_key *key, const void *bytes, size_t n_bytes);
void fl__kept_key_mix_text(fl_kept_key *key, const char *text);

/* One array. n_bytes 0: bytes is NULL. */
typedef struct fl_kept_part {
    void *bytes;
    size_t n_bytes;
} fl_kept_part;

enum { FL_KEPT_PARTS_MAX = 40 };

/* The file of a key. path [PATH_MAX] out; false if the path is too long. */
bool fl__kept_path(const char *folder, const fl_kept_key *key, char *path);

/* Read the file and check that it is what was written.
 * parts    [n_parts] out: owned by the caller, to be freed with fl__kept_parts_free
 * *found   out: false where there is no such file, which is no failure
 * Returns  FL_EIO, FL_EFORMAT with the path and the reason, FL_ENOMEM; nothing is held then */
fl_status fl__kept_read(const char *path, const fl_kept_key *key, fl_kept_part *parts, int n_parts,
                        bool *found) FL_MUST_CHECK;
void fl__kept_parts_free(fl_kept_part *parts, int n_parts);

/* Write the file beside its place, then rename it: a reader sees all of it or nothing. The folder
 * is made. FL_EIO; nothing is left behind then. */
fl_status fl__kept_write(const char *path, const fl_kept_key *key, const fl_kept_part *parts,
                         int n_parts) FL_MUST_CHECK;

/* An array as its owner has it, and its size: the same list serves writing and reading. */
typedef struct fl_kept_array {
    void **memory;
    size_t n_bytes;
} fl_kept_array;

/* The parts that hold the arrays, which stay the owner's. */
void fl__kept_arrays_list(const fl_kept_array *arrays, int n, fl_kept_part *parts);

/* Move the parts to the owner. false where a part has another size than its array: those before it
 * are the owner's then. */
bool fl__kept_arrays_take(const fl_kept_array *arrays, int n, fl_kept_part *parts);

/* FL_EFORMAT: the file's parts do not fit together. */
fl_status fl__kept_refuse(const char *path, const char *reason) FL_MUST_CHECK;

#endif
