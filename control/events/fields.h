/* Plans, candidates and times as JSON fields, with the same names in events, replies, traces and
 * the output of commands. Each function adds to the object that is open. */
#ifndef FL_CONTROL_EVENTS_FIELDS_H
#define FL_CONTROL_EVENTS_FIELDS_H

#include "control/events/json.h"
#include "control/state/run_view.h"
#include "pipe/plan/planner.h"

/* f, k, r, m, first. */
void fl_fields_grid(fl_json *json, fl_grid grid);
void fl_fields_plan(fl_json *json, const fl_plan *plan);

/* ranks: of the stages of replica 0, then of replica 1, ...; departed: workers that have left. */
void fl_fields_places(fl_json *json, const fl_plan *plan);

/* k, r, m, step_ms (the predicted one times `ratio`), bubble, memory_bytes. */
void fl_fields_candidate(fl_json *json, const fl_candidate *candidate, double ratio);

/* step_flops, peak_flops, mfu; null if unknown. */
void fl_fields_mfu(fl_json *json, const fl_mfu *mfu);

/* A field for each metric of the model's loss, as in train_accuracy.
 * samples  on which they were measured: "train", "validation" or "test" */
void fl_fields_metrics(fl_json *json, const char *samples, const fl_metric_list *metrics,
                       const fl_metric_means *means);

/* compute_s, wait_s, reduce_wait_s, optimizer_s, data_s. */
void fl_fields_times(fl_json *json, const fl_time_sums *sums);

/* "host": the name of the host of this rank; nothing in a run on one host (hosts NULL). */
void fl_fields_host(fl_json *json, const fl_hosts *hosts, int rank);

/* speed: of a device of this host, relative to the profile by which plans are chosen; memory_bytes:
 * of a device, for which plans are made; profile: where its costs are from. null for a host that
 * plans do not know yet. */
void fl_fields_host_costs(fl_json *json, const fl_controller_options *options, const fl_host *host);

/* "gpu", "gpu_name": the number of the worker's GPU on its host, and its name; nothing without. */
void fl_fields_gpu(fl_json *json, const fl_worker *worker);

#endif
