#include "control/events/fields.h"

#include <math.h>
#include <stdio.h>

void fl_fields_grid(fl_json *json, fl_grid grid)
{
    fl_json_integer(json, "f", grid.F);
    fl_json_integer(json, "k", grid.K);
    fl_json_integer(json, "r", grid.R);
    fl_json_integer(json, "m", grid.M);
}

void fl_fields_plan(fl_json *json, const fl_plan *plan)
{
    fl_fields_grid(json, fl_plan_grid(plan));
    fl_json_array(json, "first");
    for (int k = 0; k <= plan->K; k++) {
        fl_json_integer(json, NULL, plan->first[k]);
    }
    fl_json_close(json, ']');
}

void fl_fields_places(fl_json *json, const fl_plan *plan)
{
    fl_json_array(json, "ranks");
    for (int i = 0; i < plan->K * plan->R; i++) {
        fl_json_integer(json, NULL, fl_plan_active(plan, i));
    }
    fl_json_close(json, ']');
    fl_json_array(json, "departed");
    for (int rank = 0; rank < plan->n_workers; rank++) {
        if (plan->departed[rank]) {
            fl_json_integer(json, NULL, rank);
        }
    }
    fl_json_close(json, ']');
}

void fl_fields_candidate(fl_json *json, const fl_candidate *candidate, double ratio)
{
    fl_json_integer(json, "k", candidate->grid.K);
    fl_json_integer(json, "r", candidate->grid.R);
    fl_json_integer(json, "m", candidate->grid.M);
    fl_json_rounded(json, "step_ms", candidate->step_us * 1e-3 * ratio, 3);
    fl_json_rounded(json, "bubble", candidate->bubble, 4);
    fl_json_integer(json, "memory_bytes", candidate->memory_bytes);
}

void fl_fields_mfu(fl_json *json, const fl_mfu *mfu)
{
    fl_json_real(json, "step_flops", mfu->step_flops);
    fl_json_rounded(json, "peak_flops", mfu->peak_flops, 0);
    fl_json_rounded(json, "mfu", mfu->share, 4);
}

void fl_fields_metrics(fl_json *json, const char *samples, const fl_metric_list *metrics,
                       const fl_metric_means *means)
{
    for (int i = 0; i < metrics->n; i++) {
        char key[16 + FL_METRIC_NAME_MAX];
        snprintf(key, sizeof key, "%s_%s", samples, metrics->metric[i].name);
        fl_json_real(json, key, i < means->n ? means->mean[i] : (double)NAN);
    }
}

void fl_fields_times(fl_json *json, const fl_time_sums *sums)
{
    fl_json_rounded(json, "compute_s", sums->compute_us * 1e-6, 3);
    fl_json_rounded(json, "wait_s", sums->wait_us * 1e-6, 3);
    fl_json_rounded(json, "reduce_wait_s", sums->reduce_wait_us * 1e-6, 3);
    fl_json_rounded(json, "optimizer_s", sums->optimizer_us * 1e-6, 3);
    fl_json_rounded(json, "data_s", sums->data_us * 1e-6, 3);
}

void fl_fields_host(fl_json *json, const fl_hosts *hosts, int rank)
{
    int i = hosts == NULL ? -1 : fl_hosts_of(hosts, rank);
    if (i >= 0) {
        fl_json_text(json, "host", hosts->host[i].name);
    }
}

void fl_fields_gpu(fl_json *json, const fl_worker *worker)
{
    if (worker->gpu_name[0] != '\0') {
        fl_json_integer(json, "gpu", worker->gpu);
        fl_json_text(json, "gpu_name", worker->gpu_name);
    }
}

void fl_fields_host_costs(fl_json *json, const fl_controller_options *options, const fl_host *host)
{
    const fl_plan_input *input = options->plan_input;
    const fl_cluster *cluster = input == NULL ? NULL : input->cluster;
    if (cluster != NULL && host->first < cluster->n_devices) {
        fl_json_rounded(json, "speed", fl_cluster_speed(cluster, host->first), 3);
        fl_json_integer(json, "memory_bytes",
                        fl_cluster_memory(cluster, options->job, host->first));
    } else {
        fl_json_null(json, "speed");
        fl_json_null(json, "memory_bytes");
    }
    fl_json_text(json, "profile", fl_costs_origin_of_host(options->costs, cluster, host));
}
