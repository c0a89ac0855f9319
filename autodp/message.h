/* The message group: a static Gloo context over all members of the run, standby ones too. It
 * distributes the controller's commands. Every message carries a generation. Members are known by
 * their ranks in the run, also when others have left. */
#ifndef FL_AUTODP_MESSAGE_H
#define FL_AUTODP_MESSAGE_H

#include "autodp/net/net.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_message_group fl_message_group;

enum { FL_MESSAGE_MAX_BYTES = 64 * 1024 };

typedef struct fl_message_options {
    uint32_t membership; /* the generation from which the group is used; part of the store's keys */
    int rank, size;
    const int *ranks; /* [size] of the members, ascending, rank among them; NULL: 0 .. size - 1 */
    const fl_kv *kv;
    const char *host;
    int64_t open_timeout_ms;
    int64_t wait_timeout_ms;
    fl_abort_set *abort_set; /* as in fl_net_options, with `membership` as its generation */
    const fl_net_transport *transport; /* as in fl_net_options */
} fl_message_options;

fl_status fl_message_open(const fl_message_options *options, fl_message_group **out) FL_MUST_CHECK;
void fl_message_close(fl_message_group **group);
void fl_message_abort(fl_message_group *group, fl_status why); /* threads: any */
fl_status fl_message_state(fl_message_group *group);           /* FL_OK, or why it is broken */

/* The rank of the index-th member, whose values are row `index` of an all-gather. */
int fl_message_rank(const fl_message_group *group, int index);

/* How many operations of a group this member has begun. */
typedef struct fl_message_counts {
    int n_broadcasts, n_gathers;
} fl_message_counts;

/* `group` takes the place of one whose operations were counted so far: it continues to count, so
 * that the wait graph can compare how far members have come. */
fl_message_counts fl_message_count(const fl_message_group *group);
void fl_message_follow(fl_message_group *group, const fl_message_counts *before);

/* spare [ranks of the run]: the members that are expendable from now on. When such a member dies,
 * a broadcast reaches the others, and its row of an all-gather is zeros; transfers from it or to it
 * (autodp/transfer.h) fail with FL_EPEER. When any other member dies, the group is broken.
 * FL_EPEER: a member that is not expendable was lost before. Threads: any. */
fl_status fl_message_release(fl_message_group *group, const bool *spare) FL_MUST_CHECK;

/* Where members connect late and are many, all-gathers go through one of them (message.c), which is
 * never expendable: from now on through this one, at first through the first member. All members
 * must call it between the same two all-gathers, with the same rank. It changes nothing where
 * members exchange directly. Threads: that of the all-gathers. */
fl_status fl_message_gather_through(fl_message_group *group, int rank) FL_MUST_CHECK;

/* Whether the latest all-gather that returned FL_OK has no row of this member, because it was lost.
 * Where all-gathers go through one member, that one tells all others, and all members have the same
 * answer; where they are direct, members may differ if the loss comes during the call. Threads:
 * that of the all-gathers. */
bool fl_message_lost(const fl_message_group *group, int rank);

/* Rank `root` sends `data` [*size_bytes] to all others, which receive it into data
 * [FL_MESSAGE_MAX_BYTES] with its size. All call with their own generation; the receiver refuses a
 * message of another one with FL_ESTALE. */
fl_status fl_message_broadcast(fl_message_group *group, int root, uint32_t generation, void *data,
                               size_t *size_bytes, int64_t deadline_us) FL_MUST_CHECK;

/* All-gather: every member's `mine` [size_bytes, the same everywhere, at most 4096] into all
 * [size][size_bytes], in the order of their ranks, on every member. Also the barrier. */
fl_status fl_message_all_gather(fl_message_group *group, uint32_t generation, const void *mine,
                                size_t size_bytes, void *all, int64_t deadline_us) FL_MUST_CHECK;

/* For transfer.c and message_pieces.c: the group's net, and the index of a member in it; -1: not a
 * member. */
fl_net *fl__message_net(const fl_message_group *group);
int fl__message_index(const fl_message_group *group, int rank);

#endif
