/* Finds the fastest M during training: the candidates run in turn. M does not change the
 * mathematics, so the comparison costs only time, and that time is bounded.
 *
 *     round 1   A B C D
 *     round 2   D C B A
 *     round 3   A B . D     C was dropped
 *     round 4   D . B A
 *
 * Each visit runs one M for some steps. The lower quartile of their times counts, because longer
 * times are mostly caused by other work on the processor. Rounds alternate in direction, so that no
 * candidate gains from a machine that becomes slower or faster, and the first visit of a round
 * needs no transition.
 *
 * Statistics. Let x(c, r) be the logarithm of candidate c's step time in round r. The leader b is
 * the candidate with the smallest median over r of x(c, r) - mean over c of x(c, r). For each other
 * candidate the differences d(r) = x(c, r) - x(b, r) are paired by round; their median is m, and
 *     e = 2 * 1.2533 * 1.4826 * median |d - m| * sqrt(n / (n - 1)) / sqrt(n)
 * two standard errors of it. The deviations of all candidates are pooled, since few rounds say
 * little about each one's own, but for the d that is m itself. At the end of each round from the
 * third on, a candidate is dropped if m - e > -2 %, that is, if it cannot be 2 % faster than the
 * leader. After two rounds it is dropped if it was 10 % slower in both. The last remaining
 * candidate wins; if rounds, steps or budget run out before, the leader wins.
 *
 * Pure: values to values; any thread. */
#ifndef FL_PIPE_PLAN_TUNER_H
#define FL_PIPE_PLAN_TUNER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FL_TUNER_CANDIDATES_MAX = 7,
    FL_TUNER_ROUNDS_MAX = 12,
    FL_TUNER_RUNGS_MAX = 16,
    FL_TUNER_WHY_MAX = 256
};

/* Why a race is over. */
typedef enum fl_tuner_end {
    FL_TUNER_RUNS,
    FL_TUNER_SETTLED, /* all but one are ruled out */
    FL_TUNER_ROUNDS,  /* FL_TUNER_ROUNDS_MAX were run */
    FL_TUNER_BUDGET,  /* another round would cost more than is allowed */
    FL_TUNER_STEPS,   /* too few steps are left, or the plan changed for another reason */
} fl_tuner_end;

/* One M on some live steps. */
typedef struct fl_tuner_visit {
    double step_us;    /* the lower quartile of the steps that were measured */
    int64_t n_steps;   /* all steps since the visit before: prepare, warm-up, measured; >= 1 */
    double elapsed_us; /* what they took */
    double stall_us;   /* the time without training of the transition to this M */
} fl_tuner_visit;

/* Take out of the visit's stall_us and elapsed_us the time `us`, >= 0, in which the machine or the
 * process that manages the run did not run: no M is the cause of it. Neither becomes less than what
 * its steps take at step_us. */
void fl_tuner_forgive(fl_tuner_visit *visit, double us);

typedef struct fl_tuner_candidate {
    int M;
    bool dropped;
    int n_visits; /* one a round */
    fl_tuner_visit visit[FL_TUNER_ROUNDS_MAX];
} fl_tuner_candidate;

typedef struct fl_tuner {
    int n;
    fl_tuner_candidate of[FL_TUNER_CANDIDATES_MAX]; /* of[0]: the M that the plan came with */
    double budget_us; /* the most that fl_tuner_lost_us may be, but for one visit */
    int round;        /* complete ones */
    int leader;       /* 0 before two rounds are complete */
    int at;           /* the candidate whose visit is due */
    fl_tuner_end end;
} fl_tuner;

/* An M that could be a candidate. */
typedef struct fl_tuner_rung {
    int M;
    double predicted_us;
    bool fits; /* into memory, and a replica's share of the batch */
} fl_tuner_rung;

/* The rungs M between K and 6 K, each a third above the one below: M [FL_TUNER_RUNGS_MAX] out.
 * Returns how many. Source of the range: PipeTransformer, arXiv 2102.03161, section 3.2. */
int fl_tuner_rungs(int K, int *M);

/* Begin a race between own M and the rungs that fit and are predicted within 10 % of the fastest
 * one, which is the prediction's error; at most FL_TUNER_CANDIDATES_MAX, the fastest of them. */
void fl_tuner_init(fl_tuner *tuner, int own, const fl_tuner_rung *rungs, int n_rungs,
                   double budget_us);

/* The M to be run now: the one whose visit is due; the winner when the race is over. */
int fl_tuner_m(const fl_tuner *tuner);

/* Whether n measured steps with this median are enough for the visit that is due: `wanted` of them,
 * or 4 when they are 1.3 times as slow as the leader. */
bool fl_tuner_has_enough(const fl_tuner *tuner, double step_us, int n, int wanted);

/* The visit that was due is made; or its M cannot be run. */
void fl_tuner_add(fl_tuner *tuner, const fl_tuner_visit *visit);
void fl_tuner_refuse(fl_tuner *tuner);

/* End the race now: FL_TUNER_STEPS. */
void fl_tuner_stop(fl_tuner *tuner);

/* How much slower than the leader candidate i is, as the logarithm of the ratio of their step times
 * (negative: faster), and two standard errors of that; false before both have two visits. */
bool fl_tuner_compare(const fl_tuner *tuner, int i, double *slower, double *error);

/* The median of the leader's visits, microseconds; 0 before it has one. */
double fl_tuner_step_us(const fl_tuner *tuner);

/* What the race has cost so far, microseconds: the time of all its visits beyond what the own M
 * would have taken for as many steps, by its own visit in the same round. Negative: a gain, because
 * the other candidates were faster than the own M. */
double fl_tuner_lost_us(const fl_tuner *tuner);

/* The same for people and events: 0 for a gain. */
double fl_tuner_cost_us(const fl_tuner *tuner);

/* "no other M is more than 2 % faster": for people. */
const char *fl_tuner_end_text(fl_tuner_end end);

/* Why the plan gets fl_tuner_m, in words: its visit is due, or the race is over. Only a settled
 * race has a winner. text [FL_TUNER_WHY_MAX]. Returns text. */
const char *fl_tuner_reason(const fl_tuner *tuner, char *text);

/* How it ended, in words: text [FL_TUNER_WHY_MAX]. The own M is compared with the leader by how
 * much longer its step takes, and within which limits, m - e to m + e. Returns text. */
const char *fl_tuner_explain(const fl_tuner *tuner, char *text);

#endif
