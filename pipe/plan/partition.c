#include "pipe/plan/partition.h"

#include "device/system/alloc.h"

#include <math.h>
#include <string.h>

static fl_status check_counts(int n_layers, int n_stages)
{
    if (n_stages < 1 || n_stages > n_layers) {
        return fl_fail(FL_EINVAL, "%d stages of %d layers; allowed: 1 .. %d", n_stages, n_layers,
                       n_layers);
    }
    return FL_OK;
}

/* The table of the dynamic program. slowest[k][i] is the time of the slowest stage when layers
 * 0 .. i - 1 make stages 0 .. k - 1 in the best way; cut[k][i] is where stage k - 1 begins then. */
typedef struct table {
    int n_layers, n_stages;
    double *before;  /* [n_kinds][n_layers + 1]: cost of the layers below */
    double *slowest; /* [n_stages + 1][n_layers + 1] */
    int *cut;        /* [n_stages + 1][n_layers + 1] */
    const fl_stage_costs *costs;
    fl_stage_fits *fits;
    void *context;
} table;

static size_t cell(const table *t, int k, int i)
{
    return (size_t)k * (size_t)(t->n_layers + 1) + (size_t)i;
}

static fl_status table_init(table *t)
{
    size_t n = (size_t)t->n_layers + 1;
    size_t n_cells = n * ((size_t)t->n_stages + 1);
    size_t n_kinds = (size_t)t->costs->n_kinds;
    FL_TRY(fl_alloc_array(n * n_kinds, sizeof *t->before, (void **)&t->before));
    FL_TRY(fl_alloc_array(n_cells, sizeof *t->slowest, (void **)&t->slowest));
    FL_TRY(fl_alloc_array(n_cells, sizeof *t->cut, (void **)&t->cut));
    for (int i = 0; i < t->n_layers; i++) {
        t->slowest[i + 1] = INFINITY;
    }
    for (size_t kind = 0; kind < n_kinds; kind++) {
        double *before = t->before + kind * n;
        const double *cost = t->costs->cost + kind * (n - 1);
        for (int i = 0; i < t->n_layers; i++) {
            before[i + 1] = before[i] + cost[i];
        }
    }
    return FL_OK;
}

static void table_fini(table *t)
{
    fl_free(t->before);
    fl_free(t->slowest);
    fl_free(t->cut);
}

/* Where stage k - 1 had best begin when it ends before layer i. Its time only grows as it begins
 * earlier, so the search ends where it alone is no better than the best found: a few steps around
 * an even share, which makes the whole about O(L^2 log K). */
static void best_cut(table *t, int k, int i)
{
    const fl_stage_costs *c = t->costs;
    const double *before = t->before + (c->kind == NULL ? 0 : cell(t, c->kind[k - 1], 0));
    double best = INFINITY, slowness = c->slowness == NULL ? 1.0 : c->slowness[k - 1];
    int at = -1;
    for (int j = i - 1; j >= k - 1; j--) {
        double mine = slowness * (before[i] - before[j]);
        if (mine >= best) {
            break;
        }
        double below = t->slowest[cell(t, k - 1, j)];
        double both = below > mine ? below : mine;
        if (both < best && (t->fits == NULL || t->fits(t->context, k - 1, j, i))) {
            best = both;
            at = j;
        }
    }
    t->slowest[cell(t, k, i)] = best;
    t->cut[cell(t, k, i)] = at;
}

static fl_status solve(table *t, int *first)
{
    FL_TRY(table_init(t));
    for (int k = 1; k <= t->n_stages; k++) {
        /* The last stage ends with the last layer; the others leave a layer for each after them. */
        int to = t->n_layers - (t->n_stages - k);
        for (int i = k == t->n_stages ? to : k; i <= to; i++) {
            best_cut(t, k, i);
        }
    }
    if (t->slowest[cell(t, t->n_stages, t->n_layers)] == INFINITY) {
        return fl_fail(FL_EBUDGET, "no split of %d layers into %d stages fits", t->n_layers,
                       t->n_stages);
    }
    int end = t->n_layers;
    first[t->n_stages] = end;
    for (int k = t->n_stages; k > 0; k--) {
        end = t->cut[cell(t, k, end)];
        first[k - 1] = end;
    }
    return FL_OK;
}

fl_status fl_partition_on(const fl_stage_costs *costs, int n_stages, fl_stage_fits *fits,
                          void *context, int *first)
{
    FL_TRY(check_counts(costs->n_layers, n_stages));
    table t = {.n_layers = costs->n_layers,
               .n_stages = n_stages,
               .costs = costs,
               .fits = fits,
               .context = context};
    fl_status status = solve(&t, first);
    table_fini(&t);
    return status;
}

fl_status fl_partition_optimal(const double *cost, int n_layers, int n_stages, fl_stage_fits *fits,
                               void *context, int *first)
{
    const fl_stage_costs costs = {.n_layers = n_layers, .n_kinds = 1, .cost = cost};
    return fl_partition_on(&costs, n_stages, fits, context, first);
}

/* ---- the paper's Algorithm 1 ---- */

static const double LAMBDA_FROZEN = 1.0 / 6.0;
static const double SIZE_UNIT = 1e6; /* sizes are in millions: the variance depends on the unit */

/* Mean and variance of size[from .. n - 1], over n_stages stages that share them. */
static double share_of_rest(const double *size, int from, int n, int n_stages)
{
    double sum = 0.0, squares = 0.0;
    for (int i = from; i < n; i++) {
        sum += size[i];
        squares += size[i] * size[i];
    }
    double mean = sum / (n - from);
    double variance = squares / (n - from) - mean * mean;
    return (sum + (variance > 0.0 ? variance : 0.0)) / n_stages;
}

fl_status fl_partition_greedy(const int64_t *n_params, const bool *frozen, int n_layers,
                              int n_stages, int *first)
{
    double size[FL_MAX_LAYERS] = {0};
    if (n_layers > FL_MAX_LAYERS) {
        return fl_fail(FL_EINVAL, "%d layers; allowed: 1 .. %d", n_layers, FL_MAX_LAYERS);
    }
    FL_TRY(check_counts(n_layers, n_stages));
    for (int i = 0; i < n_layers; i++) {
        size[i] = (double)n_params[i] / SIZE_UNIT * (frozen[i] ? LAMBDA_FROZEN : 1.0);
    }
    int next = 0;
    for (int stage = 0; stage < n_stages; stage++) {
        int stages_left = n_stages - stage;
        double share = share_of_rest(size, next, n_layers, stages_left);
        double mine = 0.0;
        first[stage] = next;
        /* A stage takes at least one layer and leaves one for each stage after it. */
        for (int end = n_layers - (stages_left - 1); next < end; next++) {
            bool must = next == first[stage] || stages_left == 1;
            if (!must && mine + size[next] >= share) {
                break;
            }
            mine += size[next];
        }
    }
    first[n_stages] = n_layers;
    return FL_OK;
}
