/* Curves, bands and columns as inline SVG; how they look is the page's style sheet's business. */
#ifndef FL_LAUNCHER_REPORT_DRAW_CHART_H
#define FL_LAUNCHER_REPORT_DRAW_CHART_H

#include "launcher/report/draw/html.h"
#include "launcher/report/draw/scale.h"

/* A plot within a drawing, both in units of the drawing. What lies beyond the axes is drawn at
 * their ends. */
typedef struct fl_chart {
    fl_html *html;
    double left, right, top, bottom; /* of the plot */
    fl_axis x, y;
} fl_chart;

/* A drawing of this size, scaled by the page to the width it has; label tells what it shows to who
 * does not see it. */
void fl_drawing_open(fl_html *html, int width, int height, const char *label);
void fl_drawing_close(fl_html *html);

/* Lines and numbers of an axis; unit: what stands at its end, "" nothing. */
void fl_chart_x_axis(const fl_chart *c, const char *unit);
void fl_chart_y_axis(const fl_chart *c, const char *unit);

/* The text at the plot's upper left corner. */
void fl_chart_name(const fl_chart *c, const char *name);

/* In each: look is a class of the style sheet, a literal. */
void fl_chart_band(const fl_chart *c, const char *look, const fl_bin *bins, int n);
void fl_chart_line(const fl_chart *c, const char *look, const fl_bin *bins, int n);
void fl_chart_dot(const fl_chart *c, const char *look, double x, double y, const char *tip);
void fl_chart_mark(const fl_chart *c, const char *look, double x, const char *tip);

/* From (x0, y0) to (x1, y1); tip: shown when it is pointed at, NULL: none. */
void fl_chart_box(const fl_chart *c, const char *look, double x0, double x1, double y0, double y1,
                  const char *tip);

#endif
