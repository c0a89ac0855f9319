#include "pipe/cost/time/cost_model.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "nn/model.h"
#include "pipe/cost/time/cost_parts.h"

#include <math.h>

static double later(double a, double b)
{
    return a > b ? a : b;
}

bool fl__cost_is_frozen(const fl_plan_input *input, int layer)
{
    return fl_model_block_of(input->model, layer) <= input->F;
}

static double sample_us(const fl_cost_table *t, int layer)
{
    const fl_layer_sums *s = &t->of[0];
    return s->fwd_us[layer + 1] - s->fwd_us[layer] + s->bwd_us[layer + 1] - s->bwd_us[layer];
}

const fl_profile *fl__cost_profile(const fl_cost_table *t, int kind)
{
    return kind == 0 ? t->input->profile : t->input->cluster->kind[kind - 1];
}

/* Tokens of a sample in the mean; costs of tokens are 0 where all samples have one length. */
static double mean_tokens(const fl_plan_input *input)
{
    return input->ragged == NULL ? 0.0 : input->ragged->sizes->mean_tokens;
}

double fl__cost_out_bytes(const fl_plan_input *input, int layer)
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
static void read_frozen(const fl_plan_input *input, const fl_profile *profile, fl_layer_sums *s)
{
    int n = 0, kept = 0, n_layers = profile->n_layers;
    for (; n < n_layers && fl__cost_is_frozen(input, n); n++) {
        kept += fl_model_block_of(input->model, n) <= input->kept;
    }
    if (input->cached_read == NULL || n == 0) {
        return;
    }
    const fl_read_cost *read = profile == input->profile ? input->cached_read : &profile->read;
    double read_us = read->call_us + read->us_per_byte * fl__cost_out_bytes(input, n - 1);
    double there = 1.0 - input->missing, all_us = s->fwd_us[n], all_call_us = s->fwd_call_us[n];
    double kept_us = kept > 0 ? s->fwd_us[kept] - read_us : 0.0;
    double spared_us = there * (all_us - read_us) + input->missing * later(kept_us, 0.0);
    double spared_call_us = there * all_call_us + input->missing * s->fwd_call_us[kept];
    if (all_us > read_us) {
        for (int i = 1; i <= n_layers; i++) {
            s->fwd_us[i] = i < n ? 0.0 : s->fwd_us[i] - spared_us;
            s->fwd_call_us[i] = i < n ? 0.0 : s->fwd_call_us[i] - spared_call_us;
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

/* No layer runs faster on this kind than by this factor. */
static double fastest_ratio(const fl_cost_table *t, int kind)
{
    const fl_layer_sums *own = &t->of[0], *s = &t->of[kind];
    const double *const sums[2][4] = {
        {own->fwd_call_us, own->fwd_us, own->bwd_call_us, own->bwd_us},
        {s->fwd_call_us, s->fwd_us, s->bwd_call_us, s->bwd_us}};
    const fl_profile *a = t->input->profile, *b = fl__cost_profile(t, kind);
    const double more[3][2] = {{a->loss_call_us, b->loss_call_us},
                               {a->loss_us, b->loss_us},
                               {a->optimizer_us_per_param, b->optimizer_us_per_param}};
    double ratio = 0.0;
    for (int i = 0; i < 3; i++) {
        ratio = more[i][0] > 0.0 ? later(ratio, more[i][0] / more[i][1]) : ratio;
    }
    for (int i = 0; i < t->n_layers; i++) {
        for (int k = 0; k < 4; k++) {
            double mine = sums[0][k][i + 1] - sums[0][k][i];
            ratio = mine > 0.0 ? later(ratio, mine / (sums[1][k][i + 1] - sums[1][k][i])) : ratio;
        }
    }
    return ratio;
}

/* What bounds need of the devices. */
static void init_devices(fl_cost_table *t)
{
    const fl_cluster *c = t->input->cluster;
    const fl_profile *profile = t->input->profile;
    int n_on[FL_MAX_WORKERS] = {0};
    double ratio[1 + FL_KINDS_MAX] = {1.0};
    t->fastest = 1.0;
    t->thinnest = 0.0;
    t->widest = FL_MAX_WORKERS;
    t->nearest = t->between = (fl_link_cost){.latency_us = profile->link_us};
    if (c == NULL) {
        return;
    }
    for (int i = 1; i <= c->n_kinds; i++) {
        ratio[i] = fastest_ratio(t, i);
    }
    t->widest = 0;
    t->fastest = c->speed[0] * ratio[c->kind_of[0]];
    for (int d = 0; d < c->n_devices; d++) {
        int n = ++n_on[c->host_of[d]];
        t->widest = n > t->widest ? n : t->widest;
        t->fastest = later(t->fastest, c->speed[d] * ratio[c->kind_of[d]]);
    }
    t->thinnest = fl__cost_out_bytes(t->input, 0);
    for (int i = 1; i + 1 < t->n_layers; i++) {
        double size_bytes = fl__cost_out_bytes(t->input, i);
        t->thinnest = size_bytes < t->thinnest ? size_bytes : t->thinnest;
    }
    t->between = fl_cluster_link(c, profile, FL_LINK_HOSTS);
    t->nearest = fl_cluster_link(c, profile, FL_LINK_SOCKET);
    for (int i = FL_LINK_HOST; i < (c->n_hosts > 1 ? FL_N_LINKS : FL_LINK_HOSTS); i++) {
        fl_link_cost link = fl_cluster_link(c, profile, (fl_link_class)i);
        t->nearest = link.latency_us < t->nearest.latency_us ? link : t->nearest;
    }
}

static void sum_layers(const fl_plan_input *input, const fl_profile *profile, fl_layer_sums *s)
{
    double tokens = mean_tokens(input);
    s->fwd_call_us[0] = s->fwd_us[0] = s->bwd_call_us[0] = s->bwd_us[0] = 0.0;
    for (int i = 0; i < profile->n_layers; i++) {
        const fl_layer_cost *c = &profile->layer[i];
        bool trains = !fl__cost_is_frozen(input, i), full = trains || !has_frozen(c);
        s->fwd_call_us[i + 1] = s->fwd_call_us[i] + (full ? c->fwd_call_us : c->frozen_call_us);
        s->fwd_us[i + 1] = s->fwd_us[i] + (full ? c->fwd_us + tokens * c->fwd_token_us
                                                : c->frozen_us + tokens * c->frozen_token_us);
        s->bwd_call_us[i + 1] = s->bwd_call_us[i] + (trains ? c->bwd_call_us : 0.0);
        s->bwd_us[i + 1] = s->bwd_us[i] + (trains ? c->bwd_us + tokens * c->bwd_token_us : 0.0);
    }
    read_frozen(input, profile, s);
}

void fl_cost_table_init(fl_cost_table *t, const fl_plan_input *input)
{
    t->input = input;
    t->n_layers = input->profile->n_layers;
    t->heaviest = 0;
    t->n_trainable[0] = t->n_in_buckets[0] = 0;
    for (int i = 0; i < t->n_layers; i++) {
        int64_t n_params = input->profile->layer[i].n_params;
        bool trains = !fl__cost_is_frozen(input, i);
        t->n_trainable[i + 1] = t->n_trainable[i] + (trains ? n_params : 0);
        t->n_in_buckets[i + 1] =
            t->n_in_buckets[i] + (trains ? n_params - tied_params(input->model, i) : 0);
    }
    for (int kind = 0; kind <= (input->cluster == NULL ? 0 : input->cluster->n_kinds); kind++) {
        sum_layers(input, fl__cost_profile(t, kind), &t->of[kind]);
    }
    init_devices(t);
    for (int i = 0; i < t->n_layers; i++) {
        t->heaviest = sample_us(t, i) > sample_us(t, t->heaviest) ? i : t->heaviest;
    }
}

double fl__cost_micro_batch(const fl_cost_table *t, fl_grid grid)
{
    return (double)fl_split_work_max(fl_sampler_batch(t->input->job), grid.R) / grid.M;
}

double fl__cost_forward_us_of(const fl_cost_table *t, int kind, int first, int last, double n)
{
    const fl_layer_sums *s = &t->of[kind];
    return s->fwd_call_us[last] - s->fwd_call_us[first] + n * (s->fwd_us[last] - s->fwd_us[first]);
}

double fl__cost_backward_us_of(const fl_cost_table *t, int kind, int first, int last, double n)
{
    const fl_layer_sums *s = &t->of[kind];
    return s->bwd_call_us[last] - s->bwd_call_us[first] + n * (s->bwd_us[last] - s->bwd_us[first]);
}

double fl__cost_loss_us_of(const fl_cost_table *t, int kind, double n)
{
    const fl_profile *profile = fl__cost_profile(t, kind);
    return profile->loss_call_us + n * profile->loss_us;
}

double fl__cost_forward_us(const fl_cost_table *t, int first, int last, double n)
{
    return fl__cost_forward_us_of(t, 0, first, last, n);
}

double fl__cost_backward_us(const fl_cost_table *t, int first, int last, double n)
{
    return fl__cost_backward_us_of(t, 0, first, last, n);
}

double fl__cost_loss_us(const fl_cost_table *t, double n)
{
    return fl__cost_loss_us_of(t, 0, n);
}

void fl_cost_model_layers_of(const fl_cost_table *t, int kind, fl_grid grid, double *cost)
{
    double n = fl__cost_micro_batch(t, grid);
    for (int i = 0; i < t->n_layers; i++) {
        cost[i] = fl__cost_forward_us_of(t, kind, i, i + 1, n) +
                  fl__cost_backward_us_of(t, kind, i, i + 1, n);
    }
    cost[t->n_layers - 1] += fl__cost_loss_us_of(t, kind, n);
}

void fl_cost_model_layers(const fl_cost_table *t, fl_grid grid, double *cost)
{
    fl_cost_model_layers_of(t, 0, grid, cost);
}

double fl_cost_model_compute(const fl_cost_table *t, fl_grid grid, const int *first, int stage)
{
    double n = fl__cost_micro_batch(t, grid);
    double us = fl__cost_forward_us(t, first[stage], first[stage + 1], n) +
                fl__cost_backward_us(t, first[stage], first[stage + 1], n);
    return grid.M * (us + (stage == grid.K - 1 ? fl__cost_loss_us(t, n) : 0.0));
}

/* Gradients that must go between hosts, because a host has fewer devices than there are replicas.
 * A stage sends its gradients while its last micro-batch's backward runs, or later, so the stages
 * take at least their mean of computing before that, and sending. All that the hosts send goes
 * through their network interfaces. */
static double crossing_bound_us(const fl_cost_table *t, fl_grid grid, double work, double backward)
{
    const fl_cluster *c = t->input->cluster;
    if (c == NULL || grid.R <= t->widest) {
        return 0.0;
    }
    int n_hosts = (grid.R + t->widest - 1) / t->widest;
    double size_bytes = 4.0 * (double)t->n_in_buckets[t->n_layers];
    double sum = 2.0 * (n_hosts - 1) / n_hosts * size_bytes / t->between.reduce_bytes_per_us;
    return later((grid.M * work - backward + sum) / grid.K, sum * n_hosts / c->n_hosts);
}

/* At least one message each way for each doubling of the number of workers, and between hosts. */
static double commit_bound_us(const fl_cost_table *t, int n_workers)
{
    int n_hosts = (n_workers + t->widest - 1) / t->widest;
    if (n_workers == 1) {
        return 0.0;
    }
    return later(2.0 * ceil(log2(n_workers)) * t->nearest.latency_us,
                 2.0 * ceil(log2(n_hosts)) * t->between.latency_us);
}

/* Stage s cannot begin before the stages below it have passed a micro-batch up, nor can they end
 * before it has passed one down: the pipeline takes at least what lies below plus M times the stage
 * itself. Splitting the work W so that this is the same for every stage makes the largest of them
 * smallest, at W / (1 - (1 - 1 / M)^K). Some stage has the heaviest layer, and some stage at least
 * 1 / K of the parameters. No device is faster than the fastest. */
double fl_cost_model_bound(const fl_cost_table *t, fl_grid grid)
{
    int K = grid.K, M = grid.M;
    const fl_plan_input *input = t->input;
    double n = fl__cost_micro_batch(t, grid);
    int end = t->n_layers, h = t->heaviest;
    double backward = fl__cost_backward_us(t, 0, end, n);
    double work =
        (fl__cost_forward_us(t, 0, end, n) + backward + fl__cost_loss_us(t, n)) / t->fastest;
    double spread = work / (1.0 - pow(1.0 - 1.0 / M, K));
    double alone = M *
                   (fl__cost_forward_us(t, h, h + 1, n) + fl__cost_backward_us(t, h, h + 1, n)) /
                   t->fastest;
    double crossing = crossing_bound_us(t, grid, work, backward / t->fastest);
    double optimizer =
        (double)t->n_trainable[end] / K * input->profile->optimizer_us_per_param / t->fastest;
    return later(later(spread, alone), crossing) + commit_bound_us(t, K * grid.R) + optimizer;
}

/* In hosts that are filled in blocks of b stages of one replica. */
static double block_us(const fl_cost_table *t, fl_grid grid, int b, double bound_us)
{
    int width = t->widest, on_host = b < width ? b : width;
    int beside = width / b < 1 ? 1 : (width / b < grid.R ? width / b : grid.R);
    int n_hosts = (grid.R + beside - 1) / beside;
    double n = fl__cost_micro_batch(t, grid), grads = 4.0 * (double)t->n_in_buckets[t->n_layers];
    double summed = n_hosts == 1 ? 0.0
                                 : 2.0 * (n_hosts - 1) / n_hosts * grads * on_host / grid.K /
                                       t->between.reduce_bytes_per_us;
    double hidden = fl__cost_backward_us(t, 0, t->n_layers, n) / grid.K * on_host / t->fastest;
    int n_parts = (grid.K + on_host - 1) / on_host, n_sides = n_parts > 2 ? 2 : n_parts - 1;
    double passed = n_sides * beside * grid.M * n * t->thinnest / t->between.bytes_per_us;
    return later(bound_us, passed) + later(0.0, summed - hidden);
}

double fl_cost_model_estimate(const fl_cost_table *t, fl_grid grid)
{
    double bound = fl_cost_model_bound(t, grid), least = INFINITY;
    if (t->input->cluster == NULL) {
        return bound;
    }
    for (int b = grid.K; b > 0; b /= 2) {
        double us = block_us(t, grid, b, bound);
        least = us < least ? us : least;
    }
    return least;
}
