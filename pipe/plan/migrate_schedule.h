/* Which state goes where when one plan follows another: pure, values to values.
 *
 * A layer's weights come from an owner under the old plan: from the new owner itself if it was one,
 * else from the old owner that has least to send so far. The moments of a layer that trains on come
 * from the same worker. When a layer freezes, the old plan's first replica parks its moments; when
 * it thaws, they come back from there. A worker that departs hands over the moments that it parked,
 * too. A worker that is lost hands over nothing: what it had comes from the other owners, and what
 * it alone had is an orphan. A layer whose parked moments are orphans thaws with fresh ones: zeros,
 * and the optimizer counts the layer's steps from there (fl_migrate_fresh). */
#ifndef FL_PIPE_PLAN_MIGRATE_SCHEDULE_H
#define FL_PIPE_PLAN_MIGRATE_SCHEDULE_H

#include "pipe/cost/cluster.h"

#include <frostline/plan.h>

/* Which parts of a layer a worker need not receive, because it has them already. */
enum { FL_HANDED_WEIGHT = 1, FL_HANDED_MOMENTS = 2 };

/* One layer's state from one worker to another, or (from == to) from its old place to its new. */
typedef struct fl_move {
    int layer;
    int from, to;     /* ranks */
    bool moments;     /* with the weights; false: the layer is frozen in the new plan, or fresh */
    int moments_from; /* a rank; differs from `from` when the layer thaws */
    bool to_parked;   /* the moments of a frozen layer, and nothing else, find a new keeper */
} fl_move;

/* What of a layer no living worker has. */
enum { FL_ORPHAN_WEIGHTS = 1, FL_ORPHAN_MOMENTS = 2 };

/* Which state goes with the workers lost [n_workers], NULL: none is lost. A layer that trains loses
 * both or nothing; one that is frozen may lose its parked moments alone.
 * orphans  [n_layers] out: FL_ORPHAN_*
 * Returns  the number of layers whose weights are orphans
 * Threads  pure; any */
int fl_migrate_orphans(const fl_model *model, const fl_plan *old, const int *parked,
                       const bool *lost, unsigned char *orphans);

/* parked   [n_layers] the rank that keeps a frozen layer's moments, -1: no rank; see below
 * lost     [n_workers] hand over nothing and have no place in the next plan; NULL: none is lost
 * moves    [capacity] out; capacity n_layers * (next->R + 1) always suffices
 * Returns  FL_EPEER when the weights of a layer are orphans
 * Threads  pure; any */
fl_status fl_migrate_schedule(const fl_model *model, const fl_plan *old, const fl_plan *next,
                              const int *parked, const bool *lost, fl_move *moves, int capacity,
                              int *n_moves) FL_MUST_CHECK;

/* Which layers train under the next plan, and not under the old one, while no living worker keeps
 * their moments: they begin with moments of zero.
 * fresh    [n_layers] out
 * Returns  the number of those that have parameters
 * Threads  pure; any */
int fl_migrate_fresh(const fl_model *model, const fl_plan *old, const fl_plan *next,
                     const int *parked, const bool *lost, bool *fresh);

/* Bring `parked` [n_layers] from the old plan to the next: -1 for moments that are lost. Pure. */
void fl_migrate_parked(const fl_model *model, const fl_plan *old, const fl_plan *next,
                       const bool *lost, int *parked);

/* Give the next plan's places to the workers that have most of what belongs there: each place in
 * turn, to the free worker that keeps most bytes, ties to the lowest rank. Pure.
 * barred  [n_workers] workers that must get no place; enough others must be left; NULL: none */
void fl_migrate_place(const fl_model *model, const fl_plan *old, fl_plan *next, int n_moments,
                      const bool *barred);

/* The same where the next plan's places are on a cluster's devices already: a place only goes to
 * another device of its host that has the same speed and budget, so that what the plan costs stays.
 * next->rank_of names devices that are not barred. Pure. */
void fl_migrate_place_near(const fl_model *model, const fl_cluster *cluster, const fl_plan *old,
                           fl_plan *next, int n_moments, const bool *barred);

/* Which parts of each layer worker `rank` need not receive, because it has them already: in its
 * stage of the old plan or, for moments that thaw, parked.
 * handed  [n_layers] out: FL_HANDED_*. Pure. */
void fl_migrate_handed(const fl_model *model, const fl_plan *old, const fl_plan *next,
                       const int *parked, int rank, unsigned char *handed);

/* Bytes of weights and moments that worker `rank` has under a plan, and those that it has under
 * both and keeps where they are. Pure. */
int64_t fl_migrate_state_bytes(const fl_model *model, const fl_plan *plan, int rank, int n_moments);
int64_t fl_migrate_kept_bytes(const fl_model *model, const fl_plan *old, const fl_plan *next,
                              int rank, int n_moments);

/* The most that worker `rank` must hold at once when one plan follows another and everything that
 * can be put off is: weights and moments of both plans, or all that the next one needs. Pure.
 * next_bytes  the worker's total under the next plan; 0: it has no stage there */
int64_t fl_migrate_least_bytes(const fl_model *model, const fl_plan *old, const fl_plan *next,
                               int rank, int n_moments, int64_t next_bytes);

/* Bytes that the moves bring from one worker to another. Pure. */
int64_t fl_migrate_bytes(const fl_model *model, const fl_move *moves, int n, int n_moments);

/* The same by the class of the link: bytes [FL_N_LINKS] out. Pure. */
void fl_migrate_link_bytes(const fl_model *model, const fl_cluster *cluster, const fl_move *moves,
                           int n, int n_moments, int64_t *bytes);

#endif
