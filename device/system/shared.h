/* Host memory that other processes of this machine can look into: it lies in a file without a
 * name, which goes with the last process that has it open. */
#ifndef FL_DEVICE_SYSTEM_SHARED_H
#define FL_DEVICE_SYSTEM_SHARED_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct fl_shared fl_shared;

/* With the owner's process id, this identifies the memory to another process. */
typedef struct fl_shared_key {
    int64_t fd;  /* in the owner */
    uint64_t id; /* of the file: no other file of this machine has it; never 0 */
} fl_shared_key;

/* size_bytes > 0, cleared, on a page boundary; a page is held from when it is first touched.
 * Returns FL_ENOTSUP where the system has no such files, FL_ENOMEM. */
fl_status fl_shared_create(size_t size_bytes, fl_shared **out) FL_MUST_CHECK;

/* The pages are freed at once. A process that still has a view of them sees zeros from then on.
 * *shared becomes NULL; NULL is fine. */
void fl_shared_destroy(fl_shared **shared);

/* The same, but a process that still has a view of the pages keeps them as they are. */
void fl_shared_let_go(fl_shared **shared);

void *fl_shared_data(const fl_shared *shared);
fl_shared_key fl_shared_key_of(const fl_shared *shared);

/* The whole memory that `key` names in process `pid`, of the size that it was created with, for
 * reading and writing; fl_shared_let_go ends it. FL_EIO says why not. */
fl_status fl_shared_join(int64_t pid, const fl_shared_key *key, size_t size_bytes,
                         fl_shared **out) FL_MUST_CHECK;

/* A look into another process's memory. All zero: none. */
typedef struct fl_shared_view {
    const void *data;
    void *map; /* the whole pages */
    size_t map_bytes;
} fl_shared_view;

/* size_bytes > 0 from offset_bytes on of what `key` names in process `pid`. FL_EIO says why not. */
fl_status fl_shared_view_open(int64_t pid, const fl_shared_key *key, size_t offset_bytes,
                              size_t size_bytes, fl_shared_view *out) FL_MUST_CHECK;
void fl_shared_view_close(fl_shared_view *view);

#endif
