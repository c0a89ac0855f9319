#include "pipe/plan/tuner.h"

#include "device/text/number_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double INDIFFERENT = 0.02; /* of a step: a smaller difference need not be found */
static const double PREDICTED_WITHIN = 0.10;
static const double LEAST_ERROR = 0.002; /* clocks and luck: no two rounds are more alike */
static const double FAR_SLOWER = 1.3;    /* a visit that is, is cut short */
static const double SLOWER = 0.1; /* a candidate that is, in each of two rounds, is dropped */
enum { FEW_STEPS = 4, FEW_ROUNDS = 2, ROUNDS = 3, MOST_M_BY_K = 6 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* ---- candidates ---- */

int fl_tuner_rungs(int K, int *M)
{
    int n = 0;
    for (int rung = K; rung <= MOST_M_BY_K * K && n < FL_TUNER_RUNGS_MAX;) {
        M[n++] = rung;
        int next = (int)lround(rung * 1.3);
        rung = next > rung ? next : rung + 1;
    }
    return n;
}

static int by_prediction(const void *a, const void *b)
{
    const fl_tuner_rung *x = a, *y = b;
    if (x->predicted_us != y->predicted_us) {
        return x->predicted_us < y->predicted_us ? -1 : 1;
    }
    return x->M - y->M;
}

void fl_tuner_init(fl_tuner *t, int own, const fl_tuner_rung *rungs, int n_rungs, double budget_us)
{
    fl_tuner_rung sorted[FL_TUNER_RUNGS_MAX];
    int n = 0;
    for (int i = 0; i < n_rungs; i++) {
        if (rungs[i].fits && rungs[i].M != own) {
            sorted[n++] = rungs[i];
        }
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_prediction);
    *t = (fl_tuner){.n = 1, .of = {{.M = own}}, .budget_us = budget_us};
    for (int i = 0; i < n && t->n < FL_TUNER_CANDIDATES_MAX; i++) {
        if (sorted[i].predicted_us <= (1.0 + PREDICTED_WITHIN) * sorted[0].predicted_us) {
            t->of[t->n++].M = sorted[i].M;
        }
    }
    t->end = t->n == 1 ? FL_TUNER_SETTLED : FL_TUNER_RUNS;
}

int fl_tuner_m(const fl_tuner *t)
{
    return t->of[t->end == FL_TUNER_RUNS ? t->at : t->leader].M;
}

/* ---- statistics ---- */

static int fewer(int a, int b)
{
    return a < b ? a : b;
}

/* The paired differences of two candidates' logarithms; returns how many rounds they share. */
static int differences(const fl_tuner_candidate *c, const fl_tuner_candidate *b, double *d)
{
    int n = fewer(c->n_visits, b->n_visits);
    for (int r = 0; r < n; r++) {
        d[r] = log(c->visit[r].step_us / b->visit[r].step_us);
    }
    return n;
}

/* The median deviation of paired differences from their medians, of all candidates together. Where
 * n is odd, the median is one of them and says nothing of the others' spread. */
static double pooled_deviation(const fl_tuner *t, const fl_tuner_candidate *b)
{
    double all[FL_TUNER_CANDIDATES_MAX * FL_TUNER_ROUNDS_MAX];
    int n_all = 0;
    for (int i = 0; i < t->n; i++) {
        double d[FL_TUNER_ROUNDS_MAX];
        int n = differences(&t->of[i], b, d);
        if (&t->of[i] != b && n >= FEW_ROUNDS) {
            double m = median(d, n), few = sqrt(n / (n - 1.0)); /* d is sorted now */
            for (int r = 0; r < n; r++) {
                if (n % 2 == 0 || r != n / 2) {
                    all[n_all++] = few * fabs(d[r] - m);
                }
            }
        }
    }
    return n_all == 0 ? 0.0 : median(all, n_all);
}

bool fl_tuner_compare(const fl_tuner *t, int i, double *slower, double *error)
{
    const fl_tuner_candidate *b = &t->of[t->leader];
    double d[FL_TUNER_ROUNDS_MAX];
    int n = differences(&t->of[i], b, d);
    if (n < FEW_ROUNDS) {
        return false;
    }
    *slower = median(d, n);
    *error = fmax(2.0 * 1.2533 * 1.4826 * pooled_deviation(t, b) / sqrt(n), LEAST_ERROR);
    return true;
}

/* Of those still in the race, which have all been visited in each complete round. */
static int find_leader(const fl_tuner *t)
{
    double centre[FL_TUNER_ROUNDS_MAX] = {0.0}, least = INFINITY;
    int leader = t->leader;
    for (int r = 0; r < t->round; r++) {
        for (int i = 0; i < t->n; i++) {
            centre[r] += t->of[i].dropped ? 0.0 : log(t->of[i].visit[r].step_us);
        }
    }
    for (int i = 0; i < t->n; i++) {
        double x[FL_TUNER_ROUNDS_MAX];
        int n_in = 0;
        for (int j = 0; j < t->n; j++) {
            n_in += !t->of[j].dropped;
        }
        for (int r = 0; r < t->round; r++) {
            x[r] = log(t->of[i].visit[r].step_us) - centre[r] / n_in;
        }
        double m = t->of[i].dropped ? INFINITY : median(x, t->round);
        leader = m < least ? i : leader;
        least = fmin(m, least);
    }
    return leader;
}

void fl_tuner_forgive(fl_tuner_visit *visit, double us)
{
    double of_stall = fmin(us, visit->stall_us);
    double most = fmax(visit->elapsed_us - (double)visit->n_steps * visit->step_us, 0.0);
    visit->stall_us -= of_stall;
    visit->elapsed_us -= fmin(us - of_stall, most);
}

double fl_tuner_step_us(const fl_tuner *t)
{
    const fl_tuner_candidate *b = &t->of[t->leader];
    double us[FL_TUNER_ROUNDS_MAX];
    for (int r = 0; r < b->n_visits; r++) {
        us[r] = b->visit[r].step_us;
    }
    return b->n_visits == 0 ? 0.0 : median(us, b->n_visits);
}

/* ---- costs ---- */

static double mean_us(const fl_tuner_visit *v)
{
    return v->elapsed_us / (double)v->n_steps;
}

/* What a step with the own M takes in round r, disturbances included. When it has left the race:
 * the leader's step, and by how much the own M was slower. */
static double own_us(const fl_tuner *t, int r)
{
    const fl_tuner_candidate *own = &t->of[0], *b = &t->of[t->leader];
    double slower = 0.0, error;
    if (own->n_visits == 0) {
        return 0.0;
    }
    if (r < own->n_visits || r >= b->n_visits) {
        return mean_us(&own->visit[fewer(r, own->n_visits - 1)]);
    }
    fl_tuner_compare(t, 0, &slower, &error);
    return mean_us(&b->visit[r]) * exp(slower);
}

static double visit_lost_us(const fl_tuner *t, int i, int r)
{
    const fl_tuner_visit *v = &t->of[i].visit[r];
    return v->stall_us + v->elapsed_us - (double)v->n_steps * own_us(t, r);
}

double fl_tuner_lost_us(const fl_tuner *t)
{
    double lost = 0.0;
    for (int i = 0; i < t->n; i++) {
        for (int r = 0; r < t->of[i].n_visits; r++) {
            lost += visit_lost_us(t, i, r);
        }
    }
    return lost;
}

double fl_tuner_cost_us(const fl_tuner *t)
{
    return fmax(fl_tuner_lost_us(t), 0.0);
}

/* What one more round would cost, by the mean round so far of those still in the race: a single
 * round may have been disturbed. */
static double next_round_us(const fl_tuner *t)
{
    double lost = 0.0;
    for (int i = 0; i < t->n; i++) {
        for (int r = 0; !t->of[i].dropped && r < t->round; r++) {
            lost += visit_lost_us(t, i, r) / t->round;
        }
    }
    return fmax(lost, 0.0);
}

/* ---- the race ---- */

static int count_in(const fl_tuner *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        n += !t->of[i].dropped;
    }
    return n;
}

/* Two rounds cannot tell an odd visit from a slow candidate, unless it is slow in both. */
static bool is_ruled_out(const fl_tuner *t, int i)
{
    double slower, error, d[FL_TUNER_ROUNDS_MAX];
    if (t->round < ROUNDS) {
        int n = differences(&t->of[i], &t->of[t->leader], d);
        median(d, n); /* sorts them */
        return d[0] > SLOWER;
    }
    return fl_tuner_compare(t, i, &slower, &error) && slower - error > -INDIFFERENT;
}

static void drop_ruled_out(fl_tuner *t)
{
    bool out[FL_TUNER_CANDIDATES_MAX] = {false};
    for (int i = 0; i < t->n; i++) {
        out[i] = i != t->leader && !t->of[i].dropped && is_ruled_out(t, i);
    }
    for (int i = 0; i < t->n; i++) {
        t->of[i].dropped |= out[i];
    }
}

static void end_round(fl_tuner *t)
{
    t->round++;
    if (t->round >= FEW_ROUNDS) {
        t->leader = find_leader(t);
        drop_ruled_out(t);
    }
    t->end = count_in(t) == 1                                        ? FL_TUNER_SETTLED
             : t->round == FL_TUNER_ROUNDS_MAX                       ? FL_TUNER_ROUNDS
             : fl_tuner_lost_us(t) + next_round_us(t) > t->budget_us ? FL_TUNER_BUDGET
                                                                     : FL_TUNER_RUNS;
}

/* The next one in the race after `at` in the direction of this round; -1: the round is complete. */
static int next_in_round(const fl_tuner *t, int at)
{
    int step = t->round % 2 == 0 ? 1 : -1;
    for (int i = at + step; i >= 0 && i < t->n; i += step) {
        if (!t->of[i].dropped) {
            return i;
        }
    }
    return -1;
}

static void go_on(fl_tuner *t)
{
    int next = next_in_round(t, t->at);
    if (next < 0) {
        end_round(t);
        next = next_in_round(t, t->round % 2 == 0 ? -1 : t->n);
    } else if (fl_tuner_lost_us(t) > t->budget_us) {
        t->end = FL_TUNER_BUDGET;
    }
    t->at = next;
}

bool fl_tuner_has_enough(const fl_tuner *t, double step_us, int n, int wanted)
{
    const fl_tuner_candidate *b = &t->of[t->leader];
    double best = b->n_visits == 0 ? 0.0 : b->visit[fewer(t->round, b->n_visits - 1)].step_us;
    return n >= wanted || (n >= FEW_STEPS && best > 0.0 && step_us > FAR_SLOWER * best);
}

void fl_tuner_add(fl_tuner *t, const fl_tuner_visit *visit)
{
    fl_tuner_candidate *c = &t->of[t->at];
    c->visit[c->n_visits++] = *visit;
    go_on(t);
}

void fl_tuner_refuse(fl_tuner *t)
{
    t->of[t->at].dropped = true;
    if (t->at == t->leader) {
        fl_tuner_stop(t);
    } else {
        go_on(t);
    }
}

void fl_tuner_stop(fl_tuner *t)
{
    t->end = FL_TUNER_STEPS;
}

/* ---- in words ---- */

const char *fl_tuner_end_text(fl_tuner_end end)
{
    static const char *const text[] = {"undecided", "no other M is more than 2 % faster",
                                       "another M may be faster: undecided after the last round",
                                       "another M may be faster: more rounds would cost too much",
                                       "another M may be faster: the comparison had to end early"};
    return text[end];
}

static const char *explain_visit(const fl_tuner *t, char *text)
{
    int M = t->of[t->at].M, leader = t->of[t->leader].M;
    if (M == leader) {
        snprintf(text, FL_TUNER_WHY_MAX, "comparing M = %d once more, round %d", M, t->round + 1);
    } else {
        snprintf(text, FL_TUNER_WHY_MAX, "comparing M = %d with M = %d, round %d", M, leader,
                 t->round + 1);
    }
    return text;
}

const char *fl_tuner_reason(const fl_tuner *t, char *text)
{
    int M = t->of[t->leader].M;
    if (t->end == FL_TUNER_RUNS) {
        return explain_visit(t, text);
    }
    if (t->end == FL_TUNER_SETTLED) {
        snprintf(text, FL_TUNER_WHY_MAX, "M = %d won the comparison", M);
    } else {
        snprintf(text, FL_TUNER_WHY_MAX, "M = %d %s; %s", M,
                 t->round < FEW_ROUNDS ? "as before the comparison" : "was the fastest so far",
                 fl_tuner_end_text(t->end));
    }
    return text;
}

const char *fl_tuner_explain(const fl_tuner *t, char *text)
{
    double slower, error;
    const fl_tuner_candidate *b = &t->of[t->leader];
    char takes[FL_NUMBER_TEXT_MAX + 32] = "", than[96] = "", ms[FL_NUMBER_TEXT_MAX];
    if (b->n_visits > 0) {
        snprintf(takes, sizeof takes, " takes %s ms a step",
                 fl_number_text(fl_tuner_step_us(t) * 1e-3, 4, ms));
    }
    if (t->leader != 0 && fl_tuner_compare(t, 0, &slower, &error)) {
        snprintf(than, sizeof than,
                 "; M = %d takes %.1f %% longer (%.1f %% to %.1f %%, two standard errors)",
                 t->of[0].M, 100.0 * expm1(slower), 100.0 * expm1(slower - error),
                 100.0 * expm1(slower + error));
    }
    snprintf(text, FL_TUNER_WHY_MAX, "M = %d%s%s; %s", b->M, takes, than,
             fl_tuner_end_text(t->end));
    return text;
}
