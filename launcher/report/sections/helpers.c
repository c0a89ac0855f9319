/* What several sections of the page use. */
#include "launcher/report/sections/sections.h"

#include <math.h>
#include <stdio.h>

void fl_page_section(fl_html *html, const char *title)
{
    fl_html_add(html, "<section>\n<h2>%s</h2>\n", title);
}

void fl_page_section_end(fl_html *html)
{
    fl_html_add(html, "</section>\n");
}

bool fl_page_is_return(const json_t *event)
{
    return fl_report_is(event, "run.resumed") && json_object_get(event, "why") != NULL;
}

static void open_figure(fl_html *html, const char *title, const char *note)
{
    fl_html_add(html, "<figure>\n<figcaption>%s<span>%s</span></figcaption>\n", title, note);
    fl_html_add(html, "<div class=\"wide\">");
}

static void open_narrow(fl_html *html)
{
    fl_html_add(html, "</div>\n<div class=\"narrow\">");
}

static void close_figure(fl_html *html)
{
    fl_html_add(html, "</div>\n</figure>\n");
}

void fl_page_figure(fl_html *html, const fl_report *report, const char *title, const char *note,
                    fl_page_drawing *draw)
{
    open_figure(html, title, note);
    draw(html, report, FL_PAGE_WIDE);
    open_narrow(html);
    draw(html, report, FL_PAGE_NARROW);
    close_figure(html);
}

void fl_page_metric_figure(fl_html *html, const fl_report *report, int metric, const char *title,
                           const char *note, fl_page_metric_drawing *draw)
{
    open_figure(html, title, note);
    draw(html, report, metric, FL_PAGE_WIDE);
    open_narrow(html);
    draw(html, report, metric, FL_PAGE_NARROW);
    close_figure(html);
}

void fl_page_keys(fl_html *html, const fl_page_key *keys, int n)
{
    fl_html_add(html, "<ul class=\"keys\">");
    for (int i = 0; i < n; i++) {
        fl_html_add(html,
                    "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect class=\"%s\" "
                    "width=\"12\" height=\"12\" rx=\"2\"/></svg>%s</li>",
                    keys[i].look, keys[i].text);
    }
    fl_html_add(html, "</ul>\n");
}

void fl_page_cell(fl_html *html, const char *text)
{
    fl_html_add(html, "<td class=\"text\">%s</td>", text);
}

void fl_page_number(fl_html *html, double value, int digits)
{
    char text[FL_NUMBER_BYTES];
    fl_html_add(html, "<td>%s</td>", fl_html_number(value, digits, text));
}

const char *fl_page_plan(fl_grid plan, char text[FL_PLAN_BYTES])
{
    snprintf(text, FL_PLAN_BYTES, "F=%d, K=%d \xC3\x97 R=%d \xC3\x97 M=%d", plan.F, plan.K, plan.R,
             plan.M);
    return text;
}

fl_chart fl_page_plot(fl_html *html, int width, int height)
{
    return (fl_chart){
        .html = html, .left = 46, .right = width - 8, .top = 26, .bottom = height - 26};
}

fl_page_clock fl_page_clock_of(double seconds)
{
    return seconds >= 2 * 3600 ? (fl_page_clock){3600, "hours"}
           : seconds >= 3 * 60 ? (fl_page_clock){60, "minutes"}
                               : (fl_page_clock){1, "seconds"};
}

/* ---- columns ---- */

fl_columns fl_columns_of(int64_t first, int64_t last, int n_parts)
{
    return (fl_columns){.first = first, .last = last < first ? first : last, .n_parts = n_parts};
}

static int64_t epochs_a_column(const fl_columns *columns)
{
    return (columns->last - columns->first) / FL_COLUMNS_MAX + 1;
}

const char *fl_columns_note(const fl_columns *columns, const char *what, char text[FL_COLUMNS_NOTE])
{
    long long n = (long long)epochs_a_column(columns);
    if (n == 1) {
        snprintf(text, FL_COLUMNS_NOTE, "One column per epoch.");
    } else {
        snprintf(text, FL_COLUMNS_NOTE, "Each column is the %s of %lld epochs.", what, n);
    }
    return text;
}

int fl_columns_find(const fl_columns *columns, int64_t epoch)
{
    bool within = epoch >= columns->first && epoch <= columns->last;
    return within ? (int)((epoch - columns->first) / epochs_a_column(columns)) : -1;
}

static double mean_of(const fl_columns *columns, int column, int part)
{
    double n = columns->n[column];
    return n > 0 ? columns->part[column][part] / n : 0;
}

double fl_columns_highest(const fl_columns *columns)
{
    double highest = 0;
    for (int i = 0; i < FL_COLUMNS_MAX; i++) {
        double sum = 0;
        for (int p = 0; p < columns->n_parts; p++) {
            sum += mean_of(columns, i, p);
        }
        highest = fmax(highest, sum);
    }
    return highest;
}

static const char *tip_of(const fl_columns *columns, int column, const char *const *names,
                          const char *unit, char *text, size_t size)
{
    int64_t width = epochs_a_column(columns), from = columns->first + column * width + 1;
    size_t n = (size_t)snprintf(text, size, width == 1 ? "epoch %lld" : "epochs %lld to %lld, mean",
                                (long long)from, (long long)(from + width - 1));
    for (int p = 0; p < columns->n_parts && n < size; p++) {
        char number[FL_NUMBER_BYTES];
        double mean = mean_of(columns, column, p);
        n += (size_t)snprintf(text + n, size - n, "%s %s %s%s", p == 0 ? ":" : ",", names[p],
                              fl_html_number(mean, unit[0] == '\0' ? 0 : 2, number), unit);
    }
    return text;
}

void fl_columns_draw(const fl_chart *c, const fl_columns *columns, const char *const *looks,
                     const char *const *names, const char *unit)
{
    int64_t width = epochs_a_column(columns);
    for (int i = 0; i < FL_COLUMNS_MAX; i++) {
        double from = (double)(columns->first + i * width) + 0.5, sum = 0;
        char tip[512];
        if (columns->n[i] <= 0) {
            continue;
        }
        tip_of(columns, i, names, unit, tip, sizeof tip);
        for (int p = 0; p < columns->n_parts; p++) {
            double mean = mean_of(columns, i, p);
            if (mean > 0) {
                fl_chart_box(c, looks[p], from + 0.08 * (double)width, from + 0.92 * (double)width,
                             sum, sum + mean, tip);
            }
            sum += mean;
        }
    }
}
