/* What the members of a training group that live on one host tell each other without a message:
 * each has a board in memory that the others can look into. An entry on it says where some data of
 * its owner lies, and has a count that the owner moves on and others wait for.
 *
 * Waiting for an entry notices what a message would: a broken net, a member that died or left, the
 * deadline. */
#ifndef FL_AUTODP_GROUP_SHM_SEGMENT_H
#define FL_AUTODP_GROUP_SHM_SEGMENT_H

#include "autodp/net/small_all_gather.h"
#include "device/shared.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct fl_shm_segment fl_shm_segment;

typedef enum fl_entry_kind {
    FL_ENTRY_NONE,
    FL_ENTRY_OUT,    /* a channel's sending end; counts messages sent */
    FL_ENTRY_IN,     /* its receiving end; counts messages read */
    FL_ENTRY_BUCKET, /* counts the stages of its all-reduces */
} fl_entry_kind;

/* What an entry is: no two on a board have the same name. */
typedef struct fl_entry_name {
    uint32_t kind;
    int32_t peer; /* whom it is for; -1: everybody */
    uint32_t id;
} fl_entry_name;

typedef struct fl_entry_data {
    fl_shared_key key;     /* of the file that the data lies in; id 0: in none */
    uint64_t offset_bytes; /* there */
} fl_entry_data;

/* One cache line, in memory that other processes look into. A name keeps its entry, and the count
 * goes on when it is published again: somebody may not have seen the last of the time before. */
typedef struct fl_entry {
    _Alignas(64) atomic_uint count; /* goes round */
    atomic_uint times;              /* published so often; set after what is below */
    uint32_t begin;                 /* the count then */
    fl_entry_name name;
    fl_entry_data data;
} fl_entry;

/* Another member's entry as it was published. */
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
    int64_t wait_timeout_ms; /* the longest any wait may last, whatever its deadline */
    size_t extra_bytes;      /* of memory that all see as long as they have the board */
} fl_shm_segment_options;

/* By all members at once. Who cannot make a board is near to nobody; that is no failure. */
fl_status fl_shm_segment_open(const fl_shm_segment_options *options, int64_t deadline_us,
                              fl_shm_segment **out) FL_MUST_CHECK;

/* Nobody uses an entry any more. What it showed stays for those who have not closed theirs. *board
 * becomes NULL; NULL is fine. */
void fl_shm_segment_close(fl_shm_segment **segment);

/* Whether these two see each other's boards. All members agree on it. NULL: nobody does. */
bool fl_shm_segment_is_shared(const fl_shm_segment *segment, int a, int b);

/* The extra memory of a member who is near, on a cache line; only its owner writes it. */
void *fl_shm_segment_extra(const fl_shm_segment *segment, int member);

/* ---- my entries ---- */

/* The entry is the board's. A name may be published again once its earlier use is over, if that is
 * so for the member at its other end. FL_ENOMEM when the board is full. Threads: any. */
fl_status fl_shm_segment_publish(fl_shm_segment *segment, const fl_entry_name *name,
                                 const fl_entry_data *data, fl_entry **out) FL_MUST_CHECK;

/* One more: wakes who waits for it. What was written before is seen by who has seen the count. */
void fl_entry_ring(fl_entry *entry);

/* ---- the others' ---- */

/* How to wait: who computes on its processor may stay awake for a while, which spares it the time
 * that falling asleep and waking takes; who helps beside it must not. */
typedef enum fl_waiting { FL_WAIT_AWAKE, FL_WAIT_ASLEEP } fl_waiting;

/* The entry of that name of a member who is near; waits until it has been published as often as
 * mine. */
fl_status fl_shm_segment_find(fl_shm_segment *segment, int member, const fl_entry_name *name,
                              const fl_entry *mine, int64_t deadline_us,
                              fl_look *out) FL_MUST_CHECK;

/* size_bytes from where that entry's data begins. FL_EPEER, and the net is broken, when its owner
 * has gone. */
fl_status fl_shm_segment_view(fl_shm_segment *segment, const fl_look *look, size_t size_bytes,
                              fl_shared_view *out) FL_MUST_CHECK;

/* Wait until it was rung n times since it was published, or up to 2^31 times more. */
fl_status fl_shm_segment_wait(fl_shm_segment *segment, const fl_look *look, uint32_t n,
                              fl_waiting how, int64_t deadline_us) FL_MUST_CHECK;

#endif
