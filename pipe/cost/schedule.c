/* Both schedules are one shape: a stage runs `warm` forwards, then alternates one forward and one
 * backward while there are forwards left, then runs the remaining backwards. GPipe warms with all
 * M; 1F1B with just as many as keep the stages behind it busy. */
#include "pipe/cost/schedule.h"

#include <assert.h>

static int warm_count(fl_schedule schedule, int K, int M, int stage)
{
    int behind = K - stage - 1;
    return schedule == FL_GPIPE || behind > M ? M : behind;
}

int fl_schedule_in_flight(fl_schedule schedule, int K, int M, int stage)
{
    int warm = warm_count(schedule, K, M, stage);
    return warm < M ? warm + 1 : M;
}

void fl_schedule_ops(fl_schedule schedule, int K, int M, int stage, fl_op *ops)
{
    int warm = warm_count(schedule, K, M, stage);
    int n = 0;
    for (int m = 0; m < warm; m++) {
        ops[n++] = (fl_op){FL_OP_FORWARD, m};
    }
    for (int m = 0; m < M; m++) {
        if (warm + m < M) {
            ops[n++] = (fl_op){FL_OP_FORWARD, warm + m};
        }
        ops[n++] = (fl_op){FL_OP_BACKWARD, m};
    }
}

/* The state of each stage while the schedule is played: O(K) memory, independent of M. */
typedef struct play {
    int K, M;
    const double *fwd_us, *bwd_us, *link_us;
    fl_tick *ticks;
    double free_at[FL_MAX_STAGES];      /* when the stage has done all it did so far */
    double forward_end[FL_MAX_STAGES];  /* of its newest forward */
    double backward_end[FL_MAX_STAGES]; /* of its newest backward */
    int n_done[FL_MAX_STAGES];
} play;

static double later(double a, double b)
{
    return a > b ? a : b;
}

static double run(play *p, int stage, double ready, double cost_us)
{
    double begin = later(ready, p->free_at[stage]);
    double end = begin + cost_us;
    p->free_at[stage] = end;
    if (p->ticks != NULL) {
        p->ticks[(size_t)stage * 2 * (size_t)p->M + (size_t)p->n_done[stage]] =
            (fl_tick){begin, end};
    }
    p->n_done[stage]++;
    return end;
}

static void forward(play *p, int stage)
{
    double ready = stage == 0 ? 0.0 : p->forward_end[stage - 1] + p->link_us[stage - 1];
    p->forward_end[stage] = run(p, stage, ready, p->fwd_us[stage]);
}

static void backward(play *p, int stage)
{
    double ready =
        stage == p->K - 1 ? p->forward_end[stage] : p->backward_end[stage + 1] + p->link_us[stage];
    p->backward_end[stage] = run(p, stage, ready, p->bwd_us[stage]);
}

void fl_schedule_ends(fl_schedule schedule, int K, int M, const double *fwd_us,
                      const double *bwd_us, const double *link_us, fl_tick *ticks, double *end_us)
{
    assert(K >= 1 && K <= FL_MAX_STAGES && M >= 1);
    play p = {
        .K = K, .M = M, .fwd_us = fwd_us, .bwd_us = bwd_us, .link_us = link_us, .ticks = ticks};
    int warm[FL_MAX_STAGES] = {0}; /* with NDEBUG, the compiler does not know that K >= 1 */
    for (int s = 0; s < K; s++) {
        warm[s] = warm_count(schedule, K, M, s);
    }
    /* Micro-batch m goes down the stages that warm up with it; warm never rises with the stage. */
    for (int m = 0; m < warm[0]; m++) {
        for (int s = 0; s < K && m < warm[s]; s++) {
            forward(&p, s);
        }
    }
    /* Wave m: forward warm + m and backward m of every stage. The stage before, which warms with
     * one more, made this forward's input in the last wave: hence from the last stage up. */
    for (int m = 0; m < M; m++) {
        for (int s = K - 1; s >= 0; s--) {
            if (warm[s] + m < M) {
                forward(&p, s);
            }
        }
        for (int s = K - 1; s >= 0; s--) {
            backward(&p, s);
        }
    }
    for (int s = 0; s < K; s++) {
        end_us[s] = p.free_at[s];
    }
}

double fl_schedule_play(fl_schedule schedule, int K, int M, const double *fwd_us,
                        const double *bwd_us, const double *link_us, fl_tick *ticks)
{
    double end_us[FL_MAX_STAGES] = {0};
    double makespan = 0.0;
    fl_schedule_ends(schedule, K, M, fwd_us, bwd_us, link_us, ticks, end_us);
    for (int s = 0; s < K; s++) {
        makespan = later(makespan, end_us[s]);
    }
    return makespan;
}
