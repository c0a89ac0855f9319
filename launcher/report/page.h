/* The page of a run, put together from its sections. */
#ifndef FL_LAUNCHER_REPORT_PAGE_H
#define FL_LAUNCHER_REPORT_PAGE_H

#include "launcher/report/draw/html.h"
#include "launcher/report/read/read.h"

/* The whole page: one file that needs nothing else. made: when, for its foot. */
void fl_page_write(fl_html *html, const fl_report *report, const char *made);

#endif
