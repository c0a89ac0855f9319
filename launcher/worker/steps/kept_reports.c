#include "launcher/worker/steps/kept_reports.h"

#include "device/system/alloc.h"

#include <string.h>

enum { USUALLY = 64 };

static size_t count_words(int R, int64_t n_ids, int n_norms)
{
    return (size_t)R + 1 + (size_t)n_ids + (size_t)n_norms;
}

static fl_status make_memory(size_t n_words, fl_kept_report **out)
{
    FL_TRY(fl_alloc(sizeof **out + n_words * sizeof(int64_t), (void **)out));
    (*out)->n_words = n_words;
    return FL_OK;
}

fl_status fl_kept_reports_init(fl_kept_reports *kept, int R, int64_t n_ids, int n_norms)
{
    for (int i = 0; i < USUALLY; i++) {
        fl_kept_report *report = NULL;
        FL_TRY(make_memory(count_words(R, n_ids, n_norms), &report));
        report->next = kept->spare;
        kept->spare = report;
    }
    return FL_OK;
}

void fl_kept_reports_drop(fl_kept_reports *kept, int64_t n_counted)
{
    while (kept->first != NULL && kept->first->step.step < n_counted) {
        fl_kept_report *report = kept->first;
        kept->first = report->next;
        report->next = kept->spare;
        kept->spare = report;
    }
    kept->last = kept->first == NULL ? NULL : kept->last;
}

void fl_kept_reports_fini(fl_kept_reports *kept)
{
    fl_kept_reports_drop(kept, INT64_MAX);
    while (kept->spare != NULL) {
        fl_kept_report *report = kept->spare;
        kept->spare = report->next;
        fl_free(report);
    }
}

static int64_t count_samples(const fl_pipeline *pipeline, int R)
{
    int64_t sum = 0, n = 0;
    for (int r = 0; r < R; r++) {
        fl_pipeline_samples_of(pipeline, r, &n);
        sum += n;
    }
    return sum;
}

/* The memory of a forgotten report if it is large enough. One that is not has been made for a
 * smaller plan, and goes. */
static fl_status take_memory(fl_kept_reports *kept, size_t n_words, fl_kept_report **out)
{
    fl_kept_report *report = kept->spare;
    if (report != NULL) {
        kept->spare = report->next;
    }
    if (report != NULL && report->n_words < n_words) {
        fl_free(report);
        report = NULL;
    }
    *out = report;
    return report == NULL ? make_memory(n_words, out) : FL_OK;
}

static fl_status make_report(fl_kept_reports *kept, int R, int64_t n_ids, int n_norms,
                             fl_kept_report **out)
{
    fl_kept_report *report = NULL;
    FL_TRY(take_memory(kept, count_words(R, n_ids, n_norms), &report));
    report->next = NULL;
    report->first = (int64_t *)(void *)(report + 1);
    report->ids = report->first + R + 1;
    report->norms = (double *)(void *)(report->ids + n_ids);
    report->R = R;
    report->n_norms = n_norms;
    *out = report;
    return FL_OK;
}

static void copy_samples(fl_kept_report *report, const fl_pipeline *pipeline)
{
    report->first[0] = 0;
    for (int r = 0; r < report->R; r++) {
        int64_t n = 0;
        const int64_t *ids = fl_pipeline_samples_of(pipeline, r, &n);
        memcpy(report->ids + report->first[r], ids, (size_t)n * sizeof *ids);
        report->first[r + 1] = report->first[r] + n;
    }
}

fl_status fl_kept_reports_add(fl_kept_reports *kept, const fl_step_report *step,
                              const double *norms, int n_norms, const fl_pipeline *pipeline,
                              const fl_kept_report **out)
{
    fl_kept_report *report = NULL;
    FL_TRY(make_report(kept, step->r, count_samples(pipeline, step->r), n_norms, &report));
    report->step = *step;
    report->has_norms = norms != NULL;
    if (norms != NULL) {
        memcpy(report->norms, norms, (size_t)n_norms * sizeof *norms);
    }
    copy_samples(report, pipeline);
    if (kept->last == NULL) {
        kept->first = report;
    } else {
        kept->last->next = report;
    }
    kept->last = report;
    *out = report;
    return FL_OK;
}

/* The step itself comes last: with it, all of it has arrived. */
void fl_kept_report_send(const fl_kept_report *r, fl_link *link)
{
    const fl_step_report *s = &r->step;
    if (r->has_norms) {
        fl_link_norms(link, s->step, s->generation, r->norms, r->n_norms);
    }
    for (int replica = 0; replica < r->R; replica++) {
        fl_link_ledger(link, s->epoch, s->step, s->generation, replica, r->ids + r->first[replica],
                       r->first[replica + 1] - r->first[replica]);
    }
    fl_link_step(link, s);
}

void fl_kept_reports_send(const fl_kept_reports *kept, fl_link *link)
{
    for (const fl_kept_report *r = kept->first; r != NULL; r = r->next) {
        fl_kept_report_send(r, link);
    }
}
