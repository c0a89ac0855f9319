/* Which of several stores of kept activations each sample belongs to, and which replica takes it
 * therefore: the one whose first stage reads from that store. Pure: everybody finds the same,
 * without a message.
 *
 * A sample's home is drawn by its number alone, each store as likely as it has replicas, so that
 * the samples of a batch divide over the stores about as the replicas' equal shares do. When
 * replicas come or go, only so many samples move as stores gain in share, and to those stores. The
 * store with the largest replicas / -log(u) has the sample, u in (0, 1) drawn by both: the
 * logarithmic method of Schindelhauer and Schomaker, "Weighted distributed hash tables", SPAA 2005.
 * All in integers, so that no two machines can differ. */
#ifndef FL_AUTODP_AFFINITY_H
#define FL_AUTODP_AFFINITY_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_affinity {
    int n_replicas;
    bool one;          /* all read from the same store */
    int *store;        /* [n_replicas] the store of each replica's first stage */
    uint32_t *in_same; /* [n_replicas] replicas with this store, if it is its first; 0: it is not */
} fl_affinity;

/* store [n_replicas], numbers of any kind; copied. FL_ENOMEM: it can be ended all the same. */
fl_status fl_affinity_init(fl_affinity *homes, const int *store, int n_replicas) FL_MUST_CHECK;
void fl_affinity_fini(fl_affinity *homes);

/* The store in which the sample is kept. */
int fl_affinity_store_of(const fl_affinity *homes, int64_t id);

/* Deal n samples to the replicas: each to one of its home, as long as that has room. room
 * [n_replicas] is the work each replica is to get; it is used up. What finds none at home goes
 * where room is left. work [n], NULL: 1 each. replica [n] out. Time: n times the replicas. */
void fl_affinity_assign(const fl_affinity *homes, const int64_t *ids, const int32_t *work,
                        int64_t n, int64_t *room, int *replica);

#endif
