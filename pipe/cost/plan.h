/* What any reader of a plan asks of it. Pure; any thread. */
#ifndef FL_PIPE_COST_PLAN_H
#define FL_PIPE_COST_PLAN_H

#include <frostline/plan.h>

/* How a run is cut up: frozen blocks, stages, replicas, micro-batches a replica and step. */
typedef struct fl_grid {
    int F, K, R, M;
} fl_grid;

fl_grid fl_plan_grid(const fl_plan *plan);
bool fl_grid_is_same(fl_grid a, fl_grid b);

/* "K=2 x R=1 x M=8": for people; FL_GRID_TEXT_MAX bytes are enough. Returns text. */
enum { FL_GRID_TEXT_MAX = 64 };
const char *fl_grid_text(fl_grid grid, char text[FL_GRID_TEXT_MAX]);

/* The rank that has stage `stage` of replica `replica`; how many ranks have a stage, and the i-th
 * of them, replica by replica; the leader: the first. */
int fl_plan_rank(const fl_plan *plan, int replica, int stage);
int fl_plan_n_active(const fl_plan *plan);
int fl_plan_active(const fl_plan *plan, int i);
int fl_plan_leader(const fl_plan *plan);

/* The same K and cuts; the same grid, cuts, places and members. Generations do not count. */
bool fl_plan_has_same_cuts(const fl_plan *a, const fl_plan *b);
bool fl_plan_is_same(const fl_plan *a, const fl_plan *b);

/* Whether a plan is valid: counts in range, every stage has layers, no worker has two places.
 * Returns FL_EINVAL and the first thing that is wrong. */
fl_status fl_plan_check(const fl_plan *plan) FL_MUST_CHECK;

/* "F=0, K=2 x R=1 x M=8, cuts 0 9 18": for people. Returns text. */
const char *fl_plan_text(const fl_plan *plan, char *text, size_t size_bytes);

/* "1f1b" or "gpipe", as in the job. */
const char *fl_schedule_text(fl_schedule schedule);

/* Layers of the model below the frost line when F blocks are frozen. */
int fl_frozen_layers(const fl_model *model, int F);

#endif
