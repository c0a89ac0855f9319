/* The affinity of samples to stores of kept activations: which store a sample belongs to, and so
 * which replica takes it, the one whose first stage reads from that store. Pure: every worker finds
 * the same without a message.
 *
 * A sample's store depends on its number alone. A store is drawn in proportion to its replicas, so
 * the samples of a batch divide over the stores about as the replicas' equal shares do. When
 * replicas come or go, samples move only to stores that gain in share, and no more than that gain.
 * The store with the largest replicas / -log(u) has the sample, u in (0, 1) drawn by both: the
 * logarithmic method of Schindelhauer and Schomaker, "Weighted distributed hash tables", SPAA 2005.
 * All in integers, so that no two machines can differ. */
#ifndef FL_AUTODP_AFFINITY_H
#define FL_AUTODP_AFFINITY_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_affinity {
    int n_replicas;
    bool one;          /* all replicas read from the same store */
    int *store;        /* [n_replicas] the store of each replica's first stage */
    uint32_t *in_same; /* [n_replicas] for the first replica of each store: how many share it; for
                          others 0 */
} fl_affinity;

/* store [n_replicas], numbers of any kind; copied. FL_ENOMEM: fl_affinity_fini is still allowed. */
fl_status fl_affinity_init(fl_affinity *affinity, const int *store, int n_replicas) FL_MUST_CHECK;
void fl_affinity_fini(fl_affinity *affinity);

/* The store in which the sample is kept. */
int fl_affinity_store_of(const fl_affinity *affinity, int64_t id);

/* Deal n samples to the replicas: each to one that reads from its store, as long as that has room.
 * room [n_replicas] is the work each replica is to get; it is used up. A sample that finds no room
 * there goes where room is left. work [n], NULL: 1 each. replica [n] out. Time: n times the
 * replicas. */
void fl_affinity_assign(const fl_affinity *affinity, const int64_t *ids, const int32_t *work,
                        int64_t n, int64_t *room, int *replica);

#endif
