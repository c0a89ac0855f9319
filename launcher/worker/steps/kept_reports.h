/* Reports of finished steps that the controller has not acknowledged yet. Every worker that trains
 * keeps them, and the leader sends them: if it is lost before they have arrived, another worker
 * sends them again, and no finished step is missing from the run's record. */
#ifndef FL_LAUNCHER_WORKER_STEPS_KEPT_REPORTS_H
#define FL_LAUNCHER_WORKER_STEPS_KEPT_REPORTS_H

#include "control/link/link.h"
#include "pipe/step/pipeline.h"

/* One step. */
typedef struct fl_kept_report {
    struct fl_kept_report *next; /* of a later step */
    fl_step_report step;
    bool has_norms;
    int n_norms;
    double *norms;  /* [n_norms], behind ids */
    int R;          /* replicas of the step */
    int64_t *first; /* [R + 1] replica r has ids[first[r]] .. ids[first[r + 1] - 1] */
    int64_t *ids;
    size_t n_words; /* of 8 bytes, of the memory behind this struct */
} fl_kept_report;

typedef struct fl_kept_reports {
    fl_kept_report *first, *last; /* in the order of the steps */
    fl_kept_report *spare;        /* memory for more, also that of forgotten ones */
} fl_kept_reports;

/* Take memory for as many steps as are usually waiting, of plans with up to R replicas, n_ids
 * samples a step and n_norms blocks: then a step allocates none. Call fini after a failure, too. */
fl_status fl_kept_reports_init(fl_kept_reports *kept, int R, int64_t n_ids,
                               int n_norms) FL_MUST_CHECK;
void fl_kept_reports_fini(fl_kept_reports *kept);

/* Keep a report of the pipeline's last step. norms [n_norms]: as fl_link_norms takes them; NULL:
 * nobody asks for them. *out is borrowed until the controller has acknowledged the step. */
fl_status fl_kept_reports_add(fl_kept_reports *kept, const fl_step_report *step,
                              const double *norms, int n_norms, const fl_pipeline *pipeline,
                              const fl_kept_report **out) FL_MUST_CHECK;

/* Forget the steps before n_counted. */
void fl_kept_reports_drop(fl_kept_reports *kept, int64_t n_counted);

void fl_kept_report_send(const fl_kept_report *report, fl_link *link);

/* Send all that are kept. */
void fl_kept_reports_send(const fl_kept_reports *kept, fl_link *link);

#endif
