/* The content of a file, plain or gzip, as a stream that knows where it is: for decoders that name
 * the byte at fault. */
#ifndef FL_DATA_SOURCE_H
#define FL_DATA_SOURCE_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

/* The bytes of the file go in at z.next_in, plain or not; the content comes out of take. */
typedef struct fl__source {
    const char *name;      /* borrowed */
    int fd;                /* -1: the file lies in memory */
    const uint8_t *memory; /* the part that was not fed yet */
    size_t memory_bytes;
    uint8_t *chunk; /* owned, with fd */
    int64_t file_bytes;
    int64_t fed_bytes;     /* of the file, given to z so far */
    int64_t content_bytes; /* that came out so far: the position for messages */
    bool gzip;
    bool ended;
    z_stream z;
} fl__source;

/* Open a file; what begins like gzip is unpacked, of whatever number of members, and a name that
 * ends in .gz must be gzip.
 * FL_EIO or FL_EFORMAT; nothing is held on failure. fl__source_fini closes it. */
fl_status fl__source_open(const char *path, fl__source *out) FL_MUST_CHECK;

/* The same over memory, borrowed. */
fl_status fl__source_open_memory(const char *name, const void *file, size_t file_bytes,
                                 fl__source *out) FL_MUST_CHECK;

void fl__source_fini(fl__source *s);

/* The next `want` bytes of content; *got is less only where the content ends. */
fl_status fl__source_take(fl__source *s, uint8_t *to, size_t want, size_t *got) FL_MUST_CHECK;

/* Nothing may follow, and the checksum of gzip data must be right. */
fl_status fl__source_expect_end(fl__source *s) FL_MUST_CHECK;

/* " of the unpacked data" where content_bytes is not a position in the file itself, or "". */
const char *fl__source_of(const fl__source *s);

/* The most content that this file can still hold, bytes: before anything is allocated for it. */
int64_t fl__source_room(const fl__source *s);

#endif
