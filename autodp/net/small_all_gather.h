/* A small all-gather: every member gives a few bytes, and every member receives those of all. The
 * scalar sums of a training group and the all-gathers of the message group are built on it. Buffers
 * are allocated once, and receives are posted one round ahead, so a round costs one message each
 * way.
 *
 * A few members send to each other directly. More members exchange through one of them, the root,
 * because N (N - 1) messages cost more than the second hop. */
#ifndef FL_AUTODP_NET_SMALL_ALL_GATHER_H
#define FL_AUTODP_NET_SMALL_ALL_GATHER_H

#include "autodp/net/net.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_all_gather fl_all_gather;

enum { FL_ALL_GATHER_DIRECT = -1 };

/* root       the member through which all exchange; FL_ALL_GATHER_DIRECT: none
 * tag        not used by anything else on this net
 * max_bytes  the most that one member may give
 * Memory grows with size times max_bytes. */
fl_status fl_all_gather_create(fl_net *net, int rank, int size, int root, uint64_t tag,
                               size_t max_bytes, fl_all_gather **out) FL_MUST_CHECK;
void fl_all_gather_destroy(fl_all_gather **gather);

/* mine [size_bytes], the same size everywhere, into all [size][size_bytes] of every member.
 *
 * The row of an expendable peer that was lost (fl_net_set_expendable) is zeros. If a peer dies
 * during the call, only some members may get its row; all or none, if they exchange through a root.
 * The root must not be expendable.
 * Returns  FL_ESTALE when a member gave another generation, FL_EINTERNAL when it gave another
 *          size; the object stays usable then
 * Threads  one at a time */
fl_status fl_all_gather_run(fl_all_gather *x, uint32_t generation, const void *mine,
                            size_t size_bytes, void *all, int64_t deadline_us) FL_MUST_CHECK;

/* Whether the latest round that returned FL_OK has no row of this member, because it was lost. The
 * root's table carries this to all members. Threads: as fl_all_gather_run. */
bool fl_all_gather_lacks(const fl_all_gather *x, int member);

#endif
