/* Files that the user names to be read from begin to end, such as a job file: what may be read, how
 * long a pipe may keep the command waiting, and how much of a pipe is read.
 *
 * Allowed: a regular file; a pipe, as a shell's <(...) or a named one; a terminal. A folder, a
 * socket and any other device is refused. Files of a folder that the program itself wrote are
 * always regular: fl_regular_file_open reads those. */
#ifndef FL_DEVICE_SYSTEM_FILES_INPUT_FILE_H
#define FL_DEVICE_SYSTEM_FILES_INPUT_FILE_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of what is not a regular file. docs/commands.md states these numbers. */
enum {
    FL_INPUT_WRITER_MS = 5000,              /* until a program has opened a named pipe to write */
    FL_INPUT_WHOLE_MS = 60000,              /* until all has been read */
    FL_INPUT_PIPE_BYTES = 256 * 1024 * 1024 /* at most */
};

/* A file that is open. Members are private. */
typedef struct fl_input {
    const char *path;
    int fd;
    bool is_regular, has_writer;
    int whole_ms;
    int64_t n_bytes, writer_us, until_us;
} fl_input;

/* Open a file without waiting. Returns FL_EIO with "path: ..." if it cannot be opened or is nothing
 * that may be read; fl_input_close is then not needed.
 *   path   borrowed until fl_input_close */
fl_status fl_input_open(const char *path, fl_input *in) FL_MUST_CHECK;

/* The same with other waits than the ones above, for tests. */
fl_status fl__input_open_within(const char *path, int writer_ms, int whole_ms,
                                fl_input *in) FL_MUST_CHECK;

/* Read at most `capacity` bytes; *n = 0: the end. Waits as long as the limits above permit. FL_EIO
 * with "path: ...". */
fl_status fl_input_read(fl_input *in, void *buffer, size_t capacity, size_t *n) FL_MUST_CHECK;

/* The next `capacity` bytes, or all that are left. text [capacity], *length out. */
fl_status fl_input_fill(fl_input *in, void *text, size_t capacity, size_t *length) FL_MUST_CHECK;

void fl_input_close(fl_input *in);

/* Open a file, fill `text` from its begin, and close it. */
fl_status fl_input_load(const char *path, void *text, size_t capacity,
                        size_t *length) FL_MUST_CHECK;

#endif
