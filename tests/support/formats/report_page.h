/* The report page of the run directory `root` (support/runs/runs.h), and a run to show. */
#ifndef FL_TESTS_SUPPORT_FORMATS_REPORT_PAGE_H
#define FL_TESTS_SUPPORT_FORMATS_REPORT_PAGE_H

#include "launcher/report/page.h"

enum { REPORT_EPOCHS = 4, REPORT_EPOCH_STEPS = 25 };

/* The events of a run up to its last epochs. */
extern const char *const report_events;

/* Write a file of the run directory, with fopen's mode; all files of a run that has finished. */
void report_put(const char *name, const char *mode, const char *text);
void report_put_whole(void);

/* Read the run and make its page, which must be valid; the caller frees it. */
char *report_page(fl_report *report);

/* The page has this text. */
void report_expect(const char *page, const char *text);

#endif
