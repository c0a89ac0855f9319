#include "launcher/report/draw/chart.h"

#include <math.h>
#include <string.h>

static double at_x(const fl_chart *c, double value)
{
    return fl_axis_at(&c->x, value, c->left, c->right);
}

static double at_y(const fl_chart *c, double value)
{
    return fl_axis_at(&c->y, value, c->bottom, c->top);
}

void fl_drawing_open(fl_html *html, int width, int height, const char *label)
{
    fl_html_add(html, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", width, height,
                label);
}

void fl_drawing_close(fl_html *html)
{
    fl_html_add(html, "</svg>\n");
}

/* ---- axes ---- */

void fl_chart_x_axis(const fl_chart *c, const char *unit)
{
    char text[FL_NUMBER_BYTES];
    int n = fl_axis_n_ticks(&c->x);
    double free_to = c->right - 7.5 * (double)strlen(unit) - 8; /* where the unit stands */
    for (int i = 0; i < n; i++) {
        double value = fl_axis_tick(&c->x, i), x = at_x(c, value);
        fl_html_add(c->html,
                    "<line class=\"tick\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x,
                    c->bottom, c->bottom + 4);
        if (x <= free_to) {
            fl_html_add(c->html, "<text class=\"tx\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x,
                        c->bottom + 18, fl_axis_text(&c->x, value, text));
        }
    }
    fl_html_add(c->html, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                c->left, c->right, c->bottom, c->bottom);
    fl_html_add(c->html, "<text class=\"ty unit\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", c->right,
                c->bottom + 18, unit);
}

void fl_chart_y_axis(const fl_chart *c, const char *unit)
{
    char text[FL_NUMBER_BYTES];
    int n = fl_axis_n_ticks(&c->y);
    for (int i = 0; i < n; i++) {
        double value = fl_axis_tick(&c->y, i), y = at_y(c, value);
        fl_html_add(c->html,
                    "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                    c->left, c->right, y, y);
        fl_html_add(c->html, "<text class=\"ty\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", c->left - 6,
                    y + 4, fl_axis_text(&c->y, value, text));
    }
    if (unit[0] != '\0') {
        fl_html_add(c->html, "<text class=\"unit\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", 0.0,
                    c->top - 10, unit);
    }
}

void fl_chart_name(const fl_chart *c, const char *name)
{
    fl_html_add(c->html, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", c->left,
                c->top - 6, name);
}

/* ---- what is shown ---- */

void fl_chart_band(const fl_chart *c, const char *look, const fl_bin *bins, int n)
{
    if (n < 2) {
        return;
    }
    fl_html_add(c->html, "<path class=\"%s\" d=\"", look);
    for (int i = 0; i < n; i++) {
        fl_html_add(c->html, i == 0 ? "M%.1f %.1f" : "L%.1f %.1f", at_x(c, bins[i].x),
                    at_y(c, bins[i].high));
    }
    for (int i = n - 1; i >= 0; i--) {
        fl_html_add(c->html, "L%.1f %.1f", at_x(c, bins[i].x), at_y(c, bins[i].low));
    }
    fl_html_add(c->html, "Z\"/>\n");
}

void fl_chart_line(const fl_chart *c, const char *look, const fl_bin *bins, int n)
{
    if (n == 1) { /* a line of no length is not seen */
        fl_chart_dot(c, look, bins[0].x, bins[0].mean, NULL);
        return;
    }
    fl_html_add(c->html, "<path class=\"%s\" d=\"", look);
    for (int i = 0; i < n; i++) {
        fl_html_add(c->html, i == 0 ? "M%.1f %.1f" : "L%.1f %.1f", at_x(c, bins[i].x),
                    at_y(c, bins[i].mean));
    }
    fl_html_add(c->html, n == 0 ? "M0 0\"/>\n" : "\"/>\n");
}

static void close_with_tip(const fl_chart *c, const char *element, const char *tip)
{
    if (tip == NULL) {
        fl_html_add(c->html, "/>\n");
    } else {
        fl_html_add(c->html, "><title>%s</title></%s>\n", tip, element);
    }
}

void fl_chart_dot(const fl_chart *c, const char *look, double x, double y, const char *tip)
{
    fl_html_add(c->html, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"", look, at_x(c, x),
                at_y(c, y));
    close_with_tip(c, "circle", tip);
}

void fl_chart_mark(const fl_chart *c, const char *look, double x, const char *tip)
{
    fl_html_add(c->html, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"", look,
                at_x(c, x), at_x(c, x), c->top, c->bottom);
    close_with_tip(c, "line", tip);
}

void fl_chart_box(const fl_chart *c, const char *look, double x0, double x1, double y0, double y1,
                  const char *tip)
{
    double left = at_x(c, x0), right = at_x(c, x1), bottom = at_y(c, y0), top = at_y(c, y1);
    fl_html_add(c->html, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
                look, left, top, fmax(right - left, 0), fmax(bottom - top, 0));
    close_with_tip(c, "rect", tip);
}
