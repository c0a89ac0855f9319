#include "pipe/cost/cost_model.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "nn/model.h"
#include "pipe/cost/schedule.h"

#include <math.h>

static double later(double a, double b)
{
    return a > b ? a : b;
}

static bool is_frozen(const fl_plan_input *input, int layer)
{
    return fl_model_block_of(input->model, layer) <= input->F;
}

static double sample_us(const fl_cost_table *t, int layer)
{
    return t->fwd_us[layer + 1] - t->fwd_us[layer] + t->bwd_us[layer + 1] - t->bwd_us[layer];
}

/* Tokens of a sample in the mean; costs of tokens are 0 where all samples have one length. */
static double mean_tokens(const fl_plan_input *input)
{
    return input->ragged == NULL ? 0.0 : input->ragged->sizes->mean_tokens;
}

/* Bytes of a sample behind a layer, in the mean. */
static double out_bytes(const fl_plan_input *input, int layer)
{
    if (input->ragged == NULL) {
        return (double)input->profile->layer[layer].out_bytes;
    }
    const fl_sample_sizes *s = input->ragged->sizes;
    const fl_growth *rows = &s->rows[layer + 1];
    return (rows->per_sample + rows->per_token * s->mean_tokens) * (double)s->row_bytes[layer + 1];
}

/* Costs that were not measured frozen are taken for the same. */
static bool has_frozen(const fl_layer_cost *c)
{
    return c->frozen_call_us + c->frozen_us + c->frozen_token_us > 0.0;
}

/* Where there is a cache, a sample's frozen layers take what reading their output takes; in the
 * share of steps in which it is not there yet, what the layers above the kept ones take, and
 * reading these. Each where that is less. */
static void read_frozen(fl_cost_table *t)
{
    const fl_plan_input *input = t->input;
    int n = 0, kept = 0;
    for (; n < t->n_layers && is_frozen(input, n); n++) {
        kept += fl_model_block_of(input->model, n) <= input->kept;
    }
    if (input->cached_read == NULL || n == 0) {
        return;
    }
    double read_us =
        input->cached_read->call_us + input->cached_read->us_per_byte * out_bytes(input, n - 1);
    double there = 1.0 - input->missing, all_us = t->fwd_us[n], all_call_us = t->fwd_call_us[n];
    double kept_us = kept > 0 ? t->fwd_us[kept] - read_us : 0.0;
    double spared_us = there * (all_us - read_us) + input->missing * later(kept_us, 0.0);
    double spared_call_us = there * all_call_us + input->missing * t->fwd_call_us[kept];
    if (all_us > read_us) {
        for (int i = 1; i <= t->n_layers; i++) {
            t->fwd_us[i] = i < n ? 0.0 : t->fwd_us[i] - spared_us;
            t->fwd_call_us[i] = i < n ? 0.0 : t->fwd_call_us[i] - spared_call_us;
        }
    }
}

static int64_t tied_params(const fl_model *model, int layer)
{
    const fl_param_list *list = fl_model_params(model, layer);
    int64_t n = 0;
    for (int i = 0; i < list->n; i++) {
        n += list->spec[i].tie != 0 ? list->spec[i].rows * list->spec[i].cols : 0;
    }
    return n;
}

void fl_cost_table_init(fl_cost_table *t, const fl_plan_input *input)
{
    double tokens = mean_tokens(input);
    t->input = input;
    t->n_layers = input->profile->n_layers;
    t->heaviest = 0;
    t->fwd_call_us[0] = t->fwd_us[0] = t->bwd_call_us[0] = t->bwd_us[0] = 0.0;
    t->n_trainable[0] = t->n_in_buckets[0] = 0;
    for (int i = 0; i < t->n_layers; i++) {
        const fl_layer_cost *c = &input->profile->layer[i];
        bool trains = !is_frozen(input, i), full = trains || !has_frozen(c);
        t->fwd_call_us[i + 1] = t->fwd_call_us[i] + (full ? c->fwd_call_us : c->frozen_call_us);
        t->fwd_us[i + 1] = t->fwd_us[i] + (full ? c->fwd_us + tokens * c->fwd_token_us
                                                : c->frozen_us + tokens * c->frozen_token_us);
        t->bwd_call_us[i + 1] = t->bwd_call_us[i] + (trains ? c->bwd_call_us : 0.0);
        t->bwd_us[i + 1] = t->bwd_us[i] + (trains ? c->bwd_us + tokens * c->bwd_token_us : 0.0);
        t->n_trainable[i + 1] = t->n_trainable[i] + (trains ? c->n_params : 0);
        t->n_in_buckets[i + 1] =
            t->n_in_buckets[i] + (trains ? c->n_params - tied_params(input->model, i) : 0);
    }
    read_frozen(t);
    for (int i = 0; i < t->n_layers; i++) {
        t->heaviest = sample_us(t, i) > sample_us(t, t->heaviest) ? i : t->heaviest;
    }
}

/* Samples of a micro-batch on the replica with the largest share, in the mean. */
static double micro_batch(const fl_cost_table *t, fl_grid grid)
{
    return (double)fl_split_work_max(fl_sampler_batch(t->input->job), grid.R) / grid.M;
}

static double forward_us(const fl_cost_table *t, int first, int last, double n)
{
    return t->fwd_call_us[last] - t->fwd_call_us[first] + n * (t->fwd_us[last] - t->fwd_us[first]);
}

static double backward_us(const fl_cost_table *t, int first, int last, double n)
{
    return t->bwd_call_us[last] - t->bwd_call_us[first] + n * (t->bwd_us[last] - t->bwd_us[first]);
}

static double loss_us(const fl_cost_table *t, double n)
{
    return t->input->profile->loss_call_us + n * t->input->profile->loss_us;
}

void fl_cost_model_layers(const fl_cost_table *t, fl_grid grid, double *cost)
{
    double n = micro_batch(t, grid);
    for (int i = 0; i < t->n_layers; i++) {
        cost[i] = forward_us(t, i, i + 1, n) + backward_us(t, i, i + 1, n);
    }
    cost[t->n_layers - 1] += loss_us(t, n);
}

double fl_cost_model_compute(const fl_cost_table *t, fl_grid grid, const int *first, int stage)
{
    double n = micro_batch(t, grid);
    double us = forward_us(t, first[stage], first[stage + 1], n) +
                backward_us(t, first[stage], first[stage + 1], n);
    return grid.M * (us + (stage == grid.K - 1 ? loss_us(t, n) : 0.0));
}

/* ---- communication ---- */

static double message_us(const fl_plan_input *input, double size_bytes)
{
    const fl_profile *p = input->profile;
    return p->link_us + (size_bytes > 0.0 ? size_bytes / p->link_bytes_per_us : 0.0);
}

/* A ring of R sends 2 (R - 1) / R of the bytes from each, in 2 (R - 1) messages. The profile's rate
 * is that of two, for which the factor is 1. */
static double bucket_us(const fl_plan_input *input, int R, int64_t n_params)
{
    const fl_profile *p = input->profile;
    double size_bytes = 4.0 * (double)n_params;
    return 2.0 * (R - 1) * p->link_us + 2.0 * (R - 1) / R * size_bytes / p->reduce_bytes_per_us;
}

/* How long after its last backward a stage has its gradients' sum. Buckets go out from the top down
 * while the last micro-batch's backward runs; they are cut as pipe/step/reduce.c cuts them. What is
 * hidden is not free: the communication thread works on the device's own cores. */
static double reduce_tail_us(const fl_cost_table *t, int R, double n, int first, int last)
{
    const fl_plan_input *input = t->input;
    int64_t bucket = input->job->autodp.bucket_bytes / 4;
    double end = backward_us(t, first, last, n), sent = 0.0, busy = 0.0;
    for (int top = last, low = last - 1; low >= first; low--) {
        int64_t n_params = t->n_in_buckets[top] - t->n_in_buckets[low];
        if (n_params > 0 && (n_params >= bucket || low == first)) {
            double cost = bucket_us(input, R, n_params);
            sent = later(sent, backward_us(t, low, last, n)) + cost;
            busy += cost;
            top = low;
        }
    }
    return later(sent - end,
                 busy * input->profile->reduce_cpu_share / (double)input->job->devices.cores);
}

/* When the tied parameters' gradients are summed, each over the owners of all its uses: after the
 * last of these has summed its layers' buckets. ready_us [K]: when each stage has. */
static double tie_end_us(const fl_cost_table *t, fl_grid grid, const int *first,
                         const double *ready_us)
{
    const fl_model *model = t->input->model;
    double end = 0.0;
    for (int i = 0; i < fl_model_n_ties(model); i++) {
        const fl_tie *tie = fl_model_tie_at(model, i);
        const fl_param_place at = tie->use[0];
        const fl_param_spec *spec = &fl_model_params(model, at.layer)->spec[at.param];
        int n_stages = 0;
        double begin = end;
        for (int s = 0, k = 0; s < grid.K; s++) {
            bool here = false;
            for (; k < tie->n && tie->use[k].layer < first[s + 1]; k++) {
                here = true;
            }
            begin = here ? later(begin, ready_us[s]) : begin;
            n_stages += here;
        }
        if (n_stages * grid.R > 1 && !is_frozen(t->input, at.layer)) {
            end = begin + bucket_us(t->input, n_stages * grid.R, spec->rows * spec->cols);
        }
    }
    return end;
}

/* One small all-reduce over all workers: up and down a tree, twice. */
static double commit_us(const fl_plan_input *input, int n_workers)
{
    return n_workers == 1 ? 0.0 : 2.0 * ceil(log2(n_workers)) * input->profile->link_us;
}

/* Stage s cannot begin before the stages below it have passed a micro-batch up, nor can they end
 * before it has passed one down: the pipeline takes at least what lies below plus M times the stage
 * itself. Splitting the work W so that this is the same for every stage makes the largest of them
 * smallest, at W / (1 - (1 - 1 / M)^K). Some stage has the heaviest layer, and some stage at least
 * 1 / K of the parameters. */
double fl_cost_model_bound(const fl_cost_table *t, fl_grid grid)
{
    int K = grid.K, M = grid.M;
    const fl_plan_input *input = t->input;
    double n = micro_batch(t, grid);
    int end = t->n_layers, h = t->heaviest;
    double work = forward_us(t, 0, end, n) + backward_us(t, 0, end, n) + loss_us(t, n);
    double spread = work / (1.0 - pow(1.0 - 1.0 / M, K));
    double alone = M * (forward_us(t, h, h + 1, n) + backward_us(t, h, h + 1, n));
    double optimizer = (double)t->n_trainable[end] / K * input->profile->optimizer_us_per_param;
    return later(spread, alone) + commit_us(input, K * grid.R) + optimizer;
}

/* ---- the step ---- */

/* Where a step's time goes, of one replica. */
typedef struct parts {
    double fwd_us[FL_MAX_STAGES], bwd_us[FL_MAX_STAGES], link_us[FL_MAX_STAGES];
    double end_us[FL_MAX_STAGES]; /* of the pipeline, by stage */
    double busiest_us, work_us;   /* the slowest stage's computing, and all stages' */
    double optimizer_us;          /* the slowest stage's */
} parts;

static void cost_stages(const fl_cost_table *t, fl_grid grid, const int *first, parts *p)
{
    int K = grid.K;
    const fl_profile *profile = t->input->profile;
    double n = micro_batch(t, grid);
    p->busiest_us = p->work_us = p->optimizer_us = 0.0;
    for (int s = 0; s < K; s++) {
        p->fwd_us[s] = forward_us(t, first[s], first[s + 1], n);
        p->bwd_us[s] = backward_us(t, first[s], first[s + 1], n);
        p->bwd_us[s] += s == K - 1 ? loss_us(t, n) : 0.0;
        p->link_us[s] =
            s == K - 1 ? 0.0 : message_us(t->input, n * out_bytes(t->input, first[s + 1] - 1));
        double busy = grid.M * (p->fwd_us[s] + p->bwd_us[s]);
        int64_t n_params = t->n_trainable[first[s + 1]] - t->n_trainable[first[s]];
        p->busiest_us = later(p->busiest_us, busy);
        p->work_us += busy;
        p->optimizer_us =
            later(p->optimizer_us, (double)n_params * profile->optimizer_us_per_param);
    }
}

/* With more devices than processors, work that would run side by side has to take turns: no
 * schedule does it faster than all processors together. */
static double crowding(const fl_plan_input *input, int n_workers)
{
    double wanted = (double)n_workers * (double)input->job->devices.cores;
    return input->n_processors > 0 ? wanted / input->n_processors : 0.0;
}

void fl_cost_model_price(const fl_cost_table *t, fl_grid grid, const int *first, fl_candidate *out)
{
    int K = grid.K, R = grid.R;
    parts p = {0};
    double n = micro_batch(t, grid), crowd = crowding(t->input, K * R);
    double makespan = 0.0, reduced = 0.0, ready_us[FL_MAX_STAGES];
    cost_stages(t, grid, first, &p);
    fl_schedule_ends(t->input->job->pipe.schedule, K, grid.M, p.fwd_us, p.bwd_us, p.link_us, NULL,
                     p.end_us);
    for (int s = 0; s < K; s++) {
        double tail = R == 1 ? 0.0 : reduce_tail_us(t, R, n, first[s], first[s + 1]);
        makespan = later(makespan, p.end_us[s]);
        ready_us[s] = p.end_us[s] + tail;
        reduced = later(reduced, ready_us[s]);
    }
    reduced = later(reduced, tie_end_us(t, grid, first, ready_us));
    double reduce = reduced - makespan;
    makespan = later(makespan, p.work_us / K * crowd);
    *out = (fl_candidate){.grid = grid, .reduce_us = reduce, .why_not = FL_OK};
    out->step_us =
        makespan + reduce + commit_us(t->input, K * R) + p.optimizer_us * later(1.0, crowd);
    out->bubble =
        out->step_us > 0.0 ? (makespan - p.busiest_us * later(1.0, crowd)) / out->step_us : 0.0;
    out->bubble = later(out->bubble, 0.0);
}
