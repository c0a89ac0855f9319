/* The shared-memory segments of a training group. Each member has a segment that the members on the
 * same host can read. An entry in it says where some data of its owner lies, and has a count that
 * the owner raises and others wait for.
 *
 * A wait for an entry ends as a wait for a message does: when the net is broken, when the member
 * has died or left, and at the deadline. */
#ifndef FL_AUTODP_GROUP_SHM_SEGMENT_H
#define FL_AUTODP_GROUP_SHM_SEGMENT_H

#include "autodp/net/small_all_gather.h"
#include "device/device.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct fl_shm_segment fl_shm_segment;

typedef enum fl_entry_kind {
    FL_ENTRY_NONE,
    FL_ENTRY_OUT,    /* a channel's sending end; counts messages sent */
    FL_ENTRY_IN,     /* its receiving end; counts messages read */
    FL_ENTRY_BUCKET, /* counts the stages of its all-reduces */
} fl_entry_kind;

/* No two entries of a segment have the same name. */
typedef struct fl_entry_name {
    uint32_t kind;
    int32_t peer; /* the member that it is for; -1: all */
    uint32_t id;
} fl_entry_name;

typedef struct fl_entry_data {
    fl_shared_key key;     /* of the file that holds the data; id 0: none */
    uint64_t offset_bytes; /* within the file */
} fl_entry_data;

/* One cache line in memory that other processes map. A name keeps its entry, and the count
 * continues when the name is published again: a member may not have read the last count of the
 * earlier use. */
typedef struct fl_entry {
    _Alignas(64) atomic_uint count; /* wraps around */
    atomic_uint times;              /* how often it was published; written after the fields below */
    uint32_t begin;                 /* the count at that time */
    fl_entry_name name;
    fl_entry_data data;
} fl_entry;

/* Another member's entry, as it was published. */
typedef struct fl_look {
    const fl_entry *entry; /* NULL: not found yet */
    int member;
    uint32_t begin;
} fl_look;

typedef struct fl_shm_segment_options {
    fl_net *net;
    fl_all_gather *exchange; /* over the net; used only while opening */
    int index, size;
    uint32_t generation;
    const char *host;        /* as in fl_net_options: other addresses are other hosts */
    int64_t wait_timeout_ms; /* upper limit of every wait, whatever its deadline */
    size_t extra_bytes;      /* more memory of each segment, for the caller */
    fl_device *device;       /* whose exported memory other members may read */
} fl_shm_segment_options;

/* All members call it. A member that cannot create shared memory shares with nobody, and uses
 * sockets instead: this is not an error. */
fl_status fl_shm_segment_open(const fl_shm_segment_options *options, int64_t deadline_us,
                              fl_shm_segment **out) FL_MUST_CHECK;

/* The caller has finished with all entries. Other members still read the segment until they close
 * theirs. *segment becomes NULL; NULL is fine. */
void fl_shm_segment_close(fl_shm_segment **segment);

/* Whether these two members read each other's segments; the same answer on every member. A NULL
 * segment is shared by nobody. */
bool fl_shm_segment_is_shared(const fl_shm_segment *segment, int a, int b);

/* Whether the devices of these two members read each other's exported memory; the same answer on
 * every member. Then their segments are shared too. */
bool fl_shm_segment_reads_device(const fl_shm_segment *segment, int a, int b);

/* The extra memory of a member that shares its segment, on a cache line; only its owner writes it.
 */
void *fl_shm_segment_extra(const fl_shm_segment *segment, int member);

/* ---- my entries ---- */

/* The entry belongs to the segment. A name may be published again once both ends have finished with
 * its earlier use. FL_ENOMEM when the segment is full. Threads: any. */
fl_status fl_shm_segment_publish(fl_shm_segment *segment, const fl_entry_name *name,
                                 const fl_entry_data *data, fl_entry **out) FL_MUST_CHECK;

/* Raise the count by one and wake the threads that wait for it. A thread that has seen the count
 * also sees what was written before. */
void fl_entry_ring(fl_entry *entry);

/* ---- other members' entries ---- */

/* How to wait: a thread that computes may spin for a short while, which saves the time to fall
 * asleep and wake up; a helper thread beside it must sleep at once. */
typedef enum fl_waiting { FL_WAIT_AWAKE, FL_WAIT_ASLEEP } fl_waiting;

/* The entry of that name of a member that shares its segment; waits until it has been published as
 * often as mine. */
fl_status fl_shm_segment_find(fl_shm_segment *segment, int member, const fl_entry_name *name,
                              const fl_entry *mine, int64_t deadline_us,
                              fl_look *out) FL_MUST_CHECK;

/* Map size_bytes from the start of that entry's data; on_device: which is exported memory, at
 * offset 0, and the device's view_close closes the view. FL_EPEER, and the net is broken, if its
 * owner is gone. */
fl_status fl_shm_segment_view(fl_shm_segment *segment, const fl_look *look, size_t size_bytes,
                              bool on_device, fl_shared_view *out) FL_MUST_CHECK;

/* Wait until the entry was rung n times since it was published, or up to 2^31 times more. */
fl_status fl_shm_segment_wait(fl_shm_segment *segment, const fl_look *look, uint32_t n,
                              fl_waiting how, int64_t deadline_us) FL_MUST_CHECK;

#endif
