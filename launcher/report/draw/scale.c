#include "launcher/report/draw/scale.h"

#include <math.h>
#include <stdio.h>

/* Far enough from the ends of double that no difference or product of two leaves it. */
static const double LARGEST = 1e100;

/* ---- ticks ---- */

static double within_reach(double value)
{
    bool nothing = !isfinite(value) || fabs(value) < 1 / LARGEST;
    return nothing ? 0 : value > LARGEST ? LARGEST : value < -LARGEST ? -LARGEST : value;
}

/* The least of 1, 2, 5 x 10^n that is not below `least`. */
static double round_step(double least)
{
    double power = pow(10, floor(log10(least)));
    double times = least / power;
    /* A quotient that is 2 but for rounding is 2. */
    return power * (times <= 1.0000001 ? 1 : times <= 2.0000001 ? 2 : times <= 5.0000001 ? 5 : 10);
}

fl_axis fl_axis_fit(double low, double high, int n_ticks, bool round, bool whole)
{
    fl_axis axis = {.low = within_reach(low), .high = within_reach(high)};
    if (axis.low > axis.high) {
        axis.low = within_reach(high);
        axis.high = within_reach(low);
    }
    /* Where double has no numbers between the two there is nothing to tell apart. */
    double least = fmax(fabs(axis.low), fabs(axis.high)) * 1e-9;
    if (axis.high - axis.low <= least) {
        double around = axis.low == 0 ? 1 : fabs(axis.low) / 2;
        axis.low -= axis.low == 0 ? 0 : around;
        axis.high += around;
    }
    axis.step = round_step((axis.high - axis.low) / n_ticks);
    axis.step = whole && axis.step < 1 ? 1 : axis.step;
    if (round) {
        axis.low = floor(axis.low / axis.step + 1e-6) * axis.step;
        axis.high = ceil(axis.high / axis.step - 1e-6) * axis.step;
    }
    axis.high =
        axis.high > axis.low ? axis.high : axis.low + axis.step; /* a whole step holds all */
    int digits = (int)ceil(-log10(axis.step) - 1e-6);
    axis.digits = digits < 0 ? 0 : digits;
    return axis;
}

static double first_tick(const fl_axis *axis)
{
    return ceil(axis->low / axis->step - 1e-6);
}

int fl_axis_n_ticks(const fl_axis *axis)
{
    double n = floor(axis->high / axis->step + 1e-6) - first_tick(axis) + 1;
    return n < 1 ? 0 : n > 100 ? 100 : (int)n;
}

double fl_axis_tick(const fl_axis *axis, int i)
{
    return (first_tick(axis) + i) * axis->step;
}

double fl_axis_at(const fl_axis *axis, double value, double from, double to)
{
    double share = (value - axis->low) / (axis->high - axis->low);
    return from + (to - from) * (!(share > 0) ? 0 : share > 1 ? 1 : share);
}

const char *fl_axis_text(const fl_axis *axis, double value, char text[FL_NUMBER_BYTES])
{
    value = fabs(value) < axis->step / 2 ? 0 : value; /* no "-0" */
    if (axis->digits > 6 || fabs(value) >= 1e9) {
        snprintf(text, FL_NUMBER_BYTES, "%.3g", value);
        return text;
    }
    return fl_html_number(value, axis->digits, text);
}

/* ---- bins ---- */

typedef struct growing {
    fl_bin bin;
    double weight, weighted, n, plain, x_sum;
} growing;

static void grow(growing *g, const fl_point *p)
{
    g->bin.low = g->n == 0 || p->y < g->bin.low ? p->y : g->bin.low;
    g->bin.high = g->n == 0 || p->y > g->bin.high ? p->y : g->bin.high;
    g->weight += p->weight;
    g->weighted += p->weight * p->y;
    g->plain += p->y;
    g->x_sum += p->x;
    g->n++;
}

static fl_bin finished(const growing *g)
{
    fl_bin bin = g->bin;
    bin.mean = g->weight > 0 ? g->weighted / g->weight : g->plain / g->n;
    bin.x = g->x_sum / g->n;
    return bin;
}

static bool counts(const fl_point *p, double first, double last)
{
    return p->x >= first && p->x <= last && fabs(p->y) <= LARGEST && p->weight >= 0 &&
           p->weight <= LARGEST;
}

int fl_bins_make(fl_point_at *at, const void *context, int64_t n, double first, double last,
                 int n_bins, fl_bin *bins)
{
    growing now = {.n = 0};
    double width = (last - first) / n_bins;
    int before = -1, n_out = 0;
    for (int64_t i = 0; i < n; i++) {
        fl_point p = at(context, i);
        if (!counts(&p, first, last)) {
            continue;
        }
        int bin = width > 0 ? (int)fmin((p.x - first) / width, n_bins - 1) : 0;
        if (bin != before && now.n > 0 && n_out < n_bins) {
            bins[n_out++] = finished(&now);
            now = (growing){.n = 0};
        }
        before = bin;
        grow(&now, &p);
    }
    if (now.n > 0 && n_out < n_bins) {
        bins[n_out++] = finished(&now);
    }
    return n_out;
}

bool fl_bins_range(const fl_bin *bins, int n, double *low, double *high)
{
    if (n == 0) {
        return false;
    }
    double mean_low = bins[0].mean, mean_high = mean_low, least = bins[0].low, most = bins[0].high;
    for (int i = 1; i < n; i++) {
        mean_low = fmin(mean_low, bins[i].mean);
        mean_high = fmax(mean_high, bins[i].mean);
        least = fmin(least, bins[i].low);
        most = fmax(most, bins[i].high);
    }
    double spread = fmax(mean_high - mean_low, fabs(mean_high) / 4);
    *low = fmax(least, mean_low - spread / 2);
    *high = fmin(most, mean_high + spread / 2);
    return true;
}
