/* Onto the disk: one file of a checkpoint, written from memory, linked to that of an older
 * checkpoint, or copied from it. Nothing is overwritten. Files are written past the page cache
 * where the file system can: a checkpoint does not evict the data that training reads, and the
 * processor does not copy it once more. */
#ifndef FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_FILE_H
#define FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_FILE_H

#include <frostline/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FL_CHECKPOINT_PIECE_BYTES = 4 * 1024 * 1024, /* hashed and written at once */
    FL_CHECKPOINT_ALIGNMENT = 4096,              /* of memory that is written past the page cache */
};

/* A file that was written, but is perhaps not on the disk yet. */
typedef struct fl_checkpoint_file {
    int fd; /* -1: not open */
    int64_t bytes;
    uint64_t xxh64;
} fl_checkpoint_file;

/* Make the file `name` in the folder, with its room taken first, so that a full disk shows at once.
 * image      [bytes], on FL_CHECKPOINT_ALIGNMENT
 * cancelled  checked between two pieces: FL_ESTOPPED; NULL: never
 * Returns    FL_EIO with the file's name and the reason; FL_EBUSY if the folder has a file of that
 *            name. After a failure nothing is open. */
fl_status fl_checkpoint_file_write(int folder_fd, const char *name, const char *image,
                                   int64_t bytes, const atomic_bool *cancelled,
                                   fl_checkpoint_file *out) FL_MUST_CHECK;

/* Read the file `name` in the folder, and compare its size and hash. FL_EFORMAT: it is damaged, or
 * is not there; FL_EIO, FL_ENOMEM. Takes memory for a piece, and leaves nothing in the page cache.
 * *file_fd: the file, open, so that it can be copied whatever becomes of its name; the caller
 * closes it; -1 after a failure. */
fl_status fl_checkpoint_file_check(int folder_fd, const char *name, int64_t bytes, uint64_t xxh64,
                                   const atomic_bool *cancelled, int *file_fd) FL_MUST_CHECK;

/* Make `name` in the folder a second name of the same file in the folder old_fd. *refused: the file
 * system does not link it, or a user has deleted it there: it can be copied. FL_EIO, or FL_EBUSY as
 * above. */
fl_status fl_checkpoint_file_link(int old_fd, int folder_fd, const char *name,
                                  bool *refused) FL_MUST_CHECK;

/* Make `name` in the folder a copy of the open file's first `bytes`; otherwise as
 * fl_checkpoint_file_write. Takes memory for a piece. */
fl_status fl_checkpoint_file_copy(int from_fd, int64_t bytes, int folder_fd, const char *name,
                                  const atomic_bool *cancelled,
                                  fl_checkpoint_file *out) FL_MUST_CHECK;

/* Wait until it is on the disk, and close it. FL_EIO; then it is closed, too. */
fl_status fl_checkpoint_file_finish(fl_checkpoint_file *file, const char *name) FL_MUST_CHECK;

/* Close it after a failure elsewhere. */
void fl_checkpoint_file_abandon(fl_checkpoint_file *file);

#endif
