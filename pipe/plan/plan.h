/* What any reader of a plan asks of it. Pure; any thread. */
#ifndef FL_PIPE_PLAN_PLAN_H
#define FL_PIPE_PLAN_PLAN_H

#include <frostline/plan.h>

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
