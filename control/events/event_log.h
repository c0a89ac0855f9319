/* The events of a run, as events.jsonl tells them. */
#ifndef FL_CONTROL_EVENTS_EVENT_LOG_H
#define FL_CONTROL_EVENTS_EVENT_LOG_H

#include "control/elastic/decide.h"
#include "control/events/json.h"
#include "control/state/worker.h"
#include "pipe/plan/learn.h"
#include "pipe/plan/tuner.h"

#include <frostline/run.h>

typedef struct fl_controller fl_controller;

fl_json *fl_event_log_begin(fl_controller *controller, const char *event);
void fl_event_log_end(fl_controller *controller);

void fl_event_log_prepare(fl_controller *controller);
void fl_event_log_cancel(fl_controller *controller, const char *why);
void fl_event_log_transition(fl_controller *controller);
void fl_event_log_measured(fl_controller *controller, double measured_ms, int64_t n_steps);
void fl_event_log_decided(fl_controller *controller, int64_t step, int64_t effect_step);
void fl_event_log_considered(fl_controller *controller);
void fl_event_log_tried(fl_controller *controller, const fl_tuner_visit *visit);
void fl_event_log_tuned(fl_controller *controller);
void fl_event_log_learned(fl_controller *controller, const fl_live_stage *live,
                          const double *predicted_us);

void fl_event_log_cache_opened(fl_controller *controller);
/* Whether workers take from the cache what the plan's frozen blocks put out. */
bool fl_event_log_cache_is_used(const fl_controller *controller);
void fl_event_log_cache(fl_controller *controller, const fl_worker *worker,
                        const fl_cache_report *report);

void fl_event_log_started(fl_controller *controller);
void fl_event_log_costs(fl_controller *controller);
void fl_event_log_plan(fl_controller *controller);
void fl_event_log_ready(fl_controller *controller, const fl_worker *worker);
void fl_event_log_left(fl_controller *controller, const fl_worker *worker);
void fl_event_log_running(fl_controller *controller);
void fl_event_log_epoch(fl_controller *controller);
void fl_event_log_stopping(fl_controller *controller, const char *signal_name);
void fl_event_log_setting_done(fl_controller *controller, const fl_setting *setting,
                               const fl_setting_done_report *report);
void fl_event_log_stalled(fl_controller *controller, int64_t now_us);
void fl_event_log_nonfinite(fl_controller *controller, const fl_nonfinite_report *report,
                            const char *text);
void fl_event_log_lost(fl_controller *controller);
void fl_event_log_survived(fl_controller *controller);
/* missing: what the record of the run lacks; "" if nothing. */
void fl_event_log_over(fl_controller *controller, const fl_run_result *result, const char *missing);

#endif
