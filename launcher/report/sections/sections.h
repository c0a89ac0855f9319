/* The sections of the page of a run, and what several of them use. */
#ifndef FL_LAUNCHER_REPORT_SECTIONS_SECTIONS_H
#define FL_LAUNCHER_REPORT_SECTIONS_SECTIONS_H

#include "launcher/report/draw/chart.h"
#include "launcher/report/read/read.h"

/* In the order of the page; a section that has nothing to tell leaves itself out. */
void fl_page_head(fl_html *html, const fl_report *report);
void fl_page_curves(fl_html *html, const fl_report *report);
void fl_page_plans(fl_html *html, const fl_report *report);
void fl_page_time(fl_html *html, const fl_report *report);
void fl_page_changes(fl_html *html, const fl_report *report);
void fl_page_cache(fl_html *html, const fl_report *report);
void fl_page_transports(fl_html *html, const fl_report *report);
void fl_page_graphs(fl_html *html, const fl_report *report);
void fl_page_checkpoints(fl_html *html, const fl_report *report);
void fl_page_hosts(fl_html *html, const fl_report *report);
void fl_page_losses(fl_html *html, const fl_report *report);
void fl_page_workers(fl_html *html, const fl_report *report);
void fl_page_decisions(fl_html *html, const fl_report *report);
void fl_page_raw(fl_html *html, const fl_report *report);

/* ---- what several sections use ---- */

void fl_page_section(fl_html *html, const char *title);
void fl_page_section_end(fl_html *html);

/* A drawing for a page's width and one for a phone's; the page shows the one that fits. */
enum { FL_PAGE_WIDE = 820, FL_PAGE_NARROW = 360 };
typedef void fl_page_drawing(fl_html *html, const fl_report *report, int width);
void fl_page_figure(fl_html *html, const fl_report *report, const char *title, const char *note,
                    fl_page_drawing *draw);

/* The same for one of the metrics of the loss. */
typedef void fl_page_metric_drawing(fl_html *html, const fl_report *report, int metric, int width);
void fl_page_metric_figure(fl_html *html, const fl_report *report, int metric, const char *title,
                           const char *note, fl_page_metric_drawing *draw);

/* What a colour of a figure means; look is a class, a literal. Between the figure's own calls. */
typedef struct fl_page_key {
    const char *look, *text;
} fl_page_key;
void fl_page_keys(fl_html *html, const fl_page_key *keys, int n);

/* <td>s of a row: text; a number, with "-" for none. */
void fl_page_cell(fl_html *html, const char *text);
void fl_page_number(fl_html *html, double value, int digits);

/* Whether the run goes back with this event because of a loss. A run that was resumed after it had
 * ended names no loss. */
bool fl_page_is_return(const json_t *event);

/* "F=2, K=1 × R=2 × M=6" */
enum { FL_PLAN_BYTES = 80 };
const char *fl_page_plan(fl_grid plan, char text[FL_PLAN_BYTES]);

/* The plot of a drawing of this width, its axes still to be set. */
fl_chart fl_page_plot(fl_html *html, int width, int height);

/* Time in training, in the unit that suits a run of this length. */
typedef struct fl_page_clock {
    double unit_s;
    const char *name; /* "minutes" */
} fl_page_clock;
fl_page_clock fl_page_clock_of(double seconds);

/* Columns of up to FL_PARTS_MAX parts, one an epoch; neighbouring epochs are taken together where
 * there are more than FL_COLUMNS_MAX. */
enum { FL_COLUMNS_MAX = 60, FL_PARTS_MAX = 6 };
typedef struct fl_columns {
    int64_t first, last;      /* epochs, from 0 */
    double n[FL_COLUMNS_MAX]; /* epochs in a column that have a value */
    double part[FL_COLUMNS_MAX][FL_PARTS_MAX];
    int n_parts;
} fl_columns;

/* For epochs first .. last. */
fl_columns fl_columns_of(int64_t first, int64_t last, int n_parts);

/* "One column per epoch.", or of how many epochs a column is what: "mean", "sum". Returns text. */
enum { FL_COLUMNS_NOTE = 80 };
const char *fl_columns_note(const fl_columns *columns, const char *what,
                            char text[FL_COLUMNS_NOTE]);

/* The column of an epoch, -1: none. */
int fl_columns_find(const fl_columns *columns, int64_t epoch);

/* The highest column. */
double fl_columns_highest(const fl_columns *columns);

/* Draw the means of the columns, parts upon each other. looks, names [n_parts]; unit of a tip. */
void fl_columns_draw(const fl_chart *c, const fl_columns *columns, const char *const *looks,
                     const char *const *names, const char *unit);

#endif
