/* The price of a step:
 *   1  every pipeline's schedule is played; equal pipelines once        play_pipelines
 *   2  messages between hosts take at least the network's time          fl_routes_crossing_us
 *   3  each stage's gradients are summed over its owners                reduce_stages
 *      hosts send the sums of several stages one after the other        fl_routes_queue
 *   4  then those of tied parameters                                    tie_end_us
 *   5  the commit point, and the slowest optimizer                      fl_cost_model_price
 */
#include "pipe/cost/schedule.h"
#include "pipe/cost/time/cost_model.h"
#include "pipe/cost/time/cost_parts.h"
#include "pipe/cost/time/routes.h"

#include "nn/model.h"

#include <math.h>
#include <string.h>

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* Where a step's time goes. */
typedef struct step_parts {
    const fl_cost_table *table;
    fl_grid grid;
    const int *first;
    double n; /* samples of a micro-batch */
    fl_routes routes;
    double end_us[FL_MAX_STAGES];   /* of the last replica's pipeline, by stage */
    double ready_us[FL_MAX_STAGES]; /* when the stage's gradients are summed */
    double makespan_us;
    double busiest_us, work_us; /* the slowest stage's computing; all stages', of one replica */
    double optimizer_us;        /* the slowest stage's */
} step_parts;

/* ---- 1 ---- */

/* What a pipeline is played with, by stage: a micro-batch, its message, and the optimizer. */
typedef struct pipeline {
    double fwd_us[FL_MAX_STAGES], bwd_us[FL_MAX_STAGES];
    double link_us[FL_MAX_STAGES];
    double optimizer_us[FL_MAX_STAGES];
} pipeline;

static double link_us(const step_parts *p, int replica, int stage)
{
    double size_bytes = p->n * fl__cost_out_bytes(p->table->input, p->first[stage + 1] - 1);
    return fl_routes_message_us(&p->routes, replica, stage, size_bytes);
}

/* Every stage and link at least as slow as here in this replica. */
static void slow_down(const step_parts *p, int replica, pipeline *worst)
{
    const fl_cost_table *t = p->table;
    for (int s = 0; s < p->grid.K; s++) {
        int kind = fl_routes_kind(&p->routes, replica, s), first = p->first[s],
            last = p->first[s + 1];
        bool is_last = s == p->grid.K - 1;
        double slowness = 1.0 / fl_routes_speed(&p->routes, replica, s);
        double fwd = fl__cost_forward_us_of(t, kind, first, last, p->n);
        double bwd = fl__cost_backward_us_of(t, kind, first, last, p->n) +
                     (is_last ? fl__cost_loss_us_of(t, kind, p->n) : 0.0);
        double optimizer = (double)(t->n_trainable[last] - t->n_trainable[first]) *
                           fl__cost_profile(t, kind)->optimizer_us_per_param;
        worst->fwd_us[s] = later(worst->fwd_us[s], fwd * slowness);
        worst->bwd_us[s] = later(worst->bwd_us[s], bwd * slowness);
        worst->optimizer_us[s] = later(worst->optimizer_us[s], optimizer * slowness);
        worst->link_us[s] = later(worst->link_us[s], is_last ? 0.0 : link_us(p, replica, s));
    }
}

static void play_pipeline(step_parts *p, const pipeline *pipe)
{
    int K = p->grid.K;
    double end_us[FL_MAX_STAGES];
    p->work_us = 0.0;
    for (int s = 0; s < K; s++) {
        double busy = p->grid.M * (pipe->fwd_us[s] + pipe->bwd_us[s]);
        p->busiest_us = later(p->busiest_us, busy);
        p->work_us += busy;
        p->optimizer_us = later(p->optimizer_us, pipe->optimizer_us[s]);
    }
    fl_schedule_ends(p->table->input->job->pipe.schedule, K, p->grid.M, pipe->fwd_us, pipe->bwd_us,
                     pipe->link_us, NULL, end_us);
    for (int s = 0; s < K; s++) {
        p->end_us[s] = later(p->end_us[s], end_us[s]);
        p->makespan_us = later(p->makespan_us, end_us[s]);
    }
}

/* Different pipelines that are played one by one; the others together, as one that has the slowest
 * of their devices and links. */
enum { PLAYED_ALONE = 4 };

static void play_pipelines(step_parts *p)
{
    int played[PLAYED_ALONE], n = 0;
    pipeline others = {.fwd_us = {0}};
    bool has_others = false;
    for (int r = 0; r < p->grid.R; r++) {
        bool is_new = true;
        for (int i = n - 1; i >= 0 && is_new; i--) {
            is_new = !fl_routes_is_same(&p->routes, played[i], r);
        }
        if (is_new && n < PLAYED_ALONE) {
            pipeline alone = {.fwd_us = {0}};
            slow_down(p, r, &alone);
            play_pipeline(p, &alone);
            played[n++] = r;
        } else if (is_new) {
            slow_down(p, r, &others);
            has_others = true;
        }
    }
    if (has_others) {
        play_pipeline(p, &others);
    }
}

/* ---- 2 ---- */

/* All micro-batches' messages pass the network interface of the busiest host, which waits while
 * the first micro-batch is computed below it, and while the last one is computed above it and
 * below. */
static double crossing_us(const step_parts *p)
{
    const fl_cost_table *t = p->table;
    double size_bytes[FL_MAX_STAGES];
    for (int s = 0; s + 1 < p->grid.K; s++) {
        size_bytes[s] = p->n * fl__cost_out_bytes(t->input, p->first[s + 1] - 1);
    }
    double sent = fl_routes_crossing_us(&p->routes, p->grid.M, size_bytes);
    double once = fl__cost_forward_us(t, 0, t->n_layers, p->n) +
                  fl__cost_backward_us(t, 0, t->n_layers, p->n) + fl__cost_loss_us(t, p->n);
    return sent > 0.0 ? sent + once / t->fastest : 0.0;
}

/* ---- 3 ---- */

/* A stage's buckets go out from the top down while the last micro-batch's backward runs; they are
 * cut as pipe/step/reduce.c cuts them. */
typedef struct sum_times {
    double tail_us;     /* from the end of the backward until the last sum is there */
    double crossing_us; /* in which bytes go between hosts */
} sum_times;

/* What is hidden is not free: the communication thread works on the device's own cores. */
static sum_times sum_stage(const step_parts *p, const fl_ring *ring, double speed, int stage)
{
    const fl_cost_table *t = p->table;
    const fl_plan_input *input = t->input;
    const fl_ring near =
        fl_ring_of_one((fl_link_cost){.latency_us = input->profile->link_us,
                                      .reduce_bytes_per_us = input->profile->reduce_bytes_per_us},
                       p->grid.R);
    int first = p->first[stage], last = p->first[stage + 1];
    int64_t bucket = input->job->autodp.bucket_bytes / 4;
    double end = fl__cost_backward_us(t, first, last, p->n) / speed, sent = 0.0, busy = 0.0;
    sum_times sum = {0};
    for (int top = last, low = last - 1; low >= first; low--) {
        int64_t n_params = t->n_in_buckets[top] - t->n_in_buckets[low];
        if (n_params > 0 && (n_params >= bucket || low == first)) {
            double size_bytes = 4.0 * (double)n_params;
            sent = later(sent, fl__cost_backward_us(t, low, last, p->n) / speed) +
                   fl_ring_us(ring, size_bytes);
            busy += fl_ring_us(&near, size_bytes);
            sum.crossing_us += fl_ring_crossing_us(ring, size_bytes);
            top = low;
        }
    }
    sum.tail_us = later(sent - end, busy * input->profile->reduce_cpu_share /
                                        (double)input->job->devices.cores / speed);
    return sum;
}

/* How fast the slowest owner of a stage runs its backward, relative to the profile's device. */
static double slowest_speed(const step_parts *p, int stage)
{
    int first = p->first[stage], last = p->first[stage + 1];
    double own = fl__cost_backward_us(p->table, first, last, p->n), slowest = INFINITY;
    for (int r = 0; r < (p->routes.cluster == NULL ? 1 : p->grid.R); r++) {
        int kind = fl_routes_kind(&p->routes, r, stage);
        double there = fl__cost_backward_us_of(p->table, kind, first, last, p->n);
        double speed = fl_routes_speed(&p->routes, r, stage) *
                       (kind > 0 && own > 0.0 && there > 0.0 ? own / there : 1.0);
        slowest = speed < slowest ? speed : slowest;
    }
    return slowest;
}

/* Upper stages come first: their pipelines end first. */
static void reduce_stages(step_parts *p)
{
    double free_us[FL_MAX_WORKERS];
    const fl_cluster *cluster = p->routes.cluster;
    if (cluster != NULL) {
        memset(free_us, 0, (size_t)cluster->n_hosts * sizeof *free_us);
    }
    for (int s = p->grid.K - 1; s >= 0; s--) {
        p->ready_us[s] = p->end_us[s];
        if (p->grid.R > 1) {
            fl_ring ring = fl_routes_ring(&p->routes, &s, 1);
            double speed = slowest_speed(p, s);
            sum_times sum = sum_stage(p, &ring, speed, s);
            p->ready_us[s] += sum.tail_us;
            if (sum.crossing_us > 0.0) {
                double last = fl__cost_backward_us(p->table, p->first[s], p->first[s + 1], p->n);
                double sent = fl_routes_queue(&p->routes, s, p->end_us[s] - last / speed,
                                              sum.crossing_us, free_us);
                p->ready_us[s] = later(p->ready_us[s], sent);
            }
        }
    }
}

/* ---- 4 ---- */

/* When the tied parameters' gradients are summed, each over the owners of all its uses: after the
 * last of these has summed its layers' buckets. */
static double tie_end_us(step_parts *p)
{
    const fl_model *model = p->table->input->model;
    double end = 0.0;
    for (int i = 0; i < fl_model_n_ties(model); i++) {
        const fl_tie *tie = fl_model_tie_at(model, i);
        const fl_param_place at = tie->use[0];
        const fl_param_spec *spec = &fl_model_params(model, at.layer)->spec[at.param];
        int stages[FL_MAX_STAGES], n_stages = 0;
        double begin = end;
        for (int s = 0, k = 0; s < p->grid.K; s++) {
            bool here = false;
            for (; k < tie->n && tie->use[k].layer < p->first[s + 1]; k++) {
                here = true;
            }
            if (here) {
                begin = later(begin, p->ready_us[s]);
                stages[n_stages++] = s;
            }
        }
        if (n_stages * p->grid.R > 1 && !fl__cost_is_frozen(p->table->input, at.layer)) {
            fl_ring ring = fl_routes_ring(&p->routes, stages, n_stages);
            end = begin + fl_ring_us(&ring, 4.0 * (double)(spec->rows * spec->cols));
        }
    }
    return end;
}

/* ---- 5 ---- */

/* With more devices than processors, work that would run side by side has to take turns: no
 * schedule does it faster than all processors together. */
static double crowding(const fl_plan_input *input, int n_workers)
{
    double wanted = (double)n_workers * (double)input->job->devices.cores;
    bool shares = input->n_processors > 0 && input->cluster == NULL;
    return shares ? wanted / input->n_processors : 0.0;
}

void fl_cost_model_price(const fl_cost_table *t, fl_grid grid, const int *first,
                         const int *device_of, fl_candidate *out)
{
    int K = grid.K, R = grid.R;
    step_parts p;
    double crowd = crowding(t->input, K * R), reduced = 0.0;
    p.table = t;
    p.grid = grid;
    p.first = first;
    p.n = fl__cost_micro_batch(t, grid);
    p.makespan_us = p.busiest_us = p.work_us = p.optimizer_us = 0.0;
    memset(p.end_us, 0, (size_t)K * sizeof *p.end_us);
    fl_routes_init(&p.routes, t->input->cluster, t->input->profile, K, R, device_of);
    play_pipelines(&p);
    reduce_stages(&p);
    for (int s = 0; s < K; s++) {
        reduced = later(reduced, p.ready_us[s]);
    }
    reduced = later(reduced, tie_end_us(&p));
    double reduce = reduced - p.makespan_us;
    double makespan = later(later(p.makespan_us, p.work_us / K * crowd), crossing_us(&p));
    *out = (fl_candidate){.grid = grid, .reduce_us = reduce, .why_not = FL_OK};
    out->step_us =
        makespan + reduce + fl_routes_commit_us(&p.routes) + p.optimizer_us * later(1.0, crowd);
    out->bubble =
        out->step_us > 0.0 ? (makespan - p.busiest_us * later(1.0, crowd)) / out->step_us : 0.0;
    out->bubble = later(out->bubble, 0.0);
}
