/* frostline plan: what run would choose on this machine, and what else there is. */
#include "control/events/fields.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/hosts/planned_hosts.h"
#include "launcher/cli/job_context.h"
#include "launcher/job/cluster_file.h"
#include "launcher/run/hosts/host_names.h"
#include "launcher/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FROZEN_MAX = 64, ROWS_MAX = 16 };

typedef struct plan_table {
    const fl_model *model;
    fl_json *json;                  /* NULL: for people */
    const fl_cluster_file *cluster; /* NULL: this machine */
    fl_link_cost between_hosts;
    const char *between_hosts_from; /* NULL: there is one host */
} plan_table;

static bool is_choice(const fl_plan *plan, const fl_candidate *c)
{
    return c->why_not == FL_OK && fl_grid_is_same(c->grid, fl_plan_grid(plan));
}

static void print_row(const fl_plan *plan, const fl_candidate *c)
{
    double memory = (double)c->memory_bytes / 1048576.0;
    printf("%c %4d %4d %4d ", is_choice(plan, c) ? '*' : ' ', c->grid.K, c->grid.R, c->grid.M);
    if (c->why_not == FL_OK) {
        printf("%10.2f %7.1f%% %11.1f\n", c->step_us * 1e-3, c->bubble * 100.0, memory);
    } else {
        printf("%10s %8s %11.1f  %s\n", "-", "-", memory, fl_status_text(c->why_not));
    }
}

static void print_stages(const plan_table *t, const fl_plan *plan)
{
    for (int k = 0; k < plan->K; k++) {
        int first = plan->first[k], last = plan->first[k + 1] - 1;
        printf("stage %d: %s", k, fl_model_layer_name(t->model, first));
        if (last > first) {
            printf(" .. %s, %d layers", fl_model_layer_name(t->model, last), last - first + 1);
        }
        printf("\n");
    }
}

/* "host a: replica 0 stages 0 .. 3, replica 2 stage 1". */
static void print_host(const fl_cluster_file *file, const fl_plan *plan, int host)
{
    int n = plan->K * plan->R, n_places = 0;
    char stages[FL_COUNT_BYTES];
    printf("host %s:", file->name[host]);
    for (int at = 0; at < n; at++) {
        int first = at % plan->K, last = first;
        if (file->cluster.host_of[plan->rank_of[at]] != host) {
            continue;
        }
        while (last + 1 < plan->K && file->cluster.host_of[plan->rank_of[at + 1]] == host) {
            at++;
            last++;
        }
        printf("%s replica %d %s", n_places++ == 0 ? "" : ",", at / plan->K,
               fl_count_range(first, last - first + 1, "stage", stages));
    }
    printf(n_places == 0 ? " no stage\n" : "\n");
}

static void print_hosts(const fl_cluster_file *file, const fl_plan *plan)
{
    for (int host = 0; host < file->cluster.n_hosts; host++) {
        print_host(file, plan, host);
    }
    printf("predicted step: %.2f ms\n", plan->predicted_step_us * 1e-3);
}

/* What the job or the file of hosts states of the devices of hosts. */
static void print_stated(const fl_cluster_file *file)
{
    char text[FL_HOST_STATED_MAX];
    for (int host = 0; host < file->cluster.n_hosts; host++) {
        if (fl_cluster_file_stated(file, host, text)[0] != '\0') {
            printf("stated of host %s: %s\n", file->name[host], text);
        }
    }
}

/* A value that is not stated is left out. */
static void put_stated(fl_json *j, const fl_cluster_file *file)
{
    const fl_cluster *c = &file->cluster;
    int d = 0;
    fl_json_array(j, "hosts");
    for (int host = 0; host < c->n_hosts; host++) {
        int first = d;
        while (d < c->n_devices && c->host_of[d] == host) {
            d++;
        }
        fl_json_object(j, NULL);
        fl_json_text(j, "host", file->name[host]);
        fl_json_integer(j, "devices", d - first);
        if (c->memory_bytes[first] > 0) {
            fl_json_integer(j, "memory_bytes", c->memory_bytes[first]);
        }
        if (file->has_speed[host]) {
            fl_json_real(j, "speed", c->speed[first]);
        }
        if (file->profile[host][0] != '\0') {
            fl_json_text(j, "profile", file->profile[host]);
        }
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void put_hosts(fl_json *j, const fl_cluster_file *file, const fl_plan *plan)
{
    fl_json_array(j, "places");
    for (int at = 0; at < plan->K * plan->R; at++) {
        int device = plan->rank_of[at];
        fl_json_object(j, NULL);
        fl_json_integer(j, "replica", at / plan->K);
        fl_json_integer(j, "stage", at % plan->K);
        fl_json_integer(j, "device", device);
        fl_json_text(j, "host", file->name[file->cluster.host_of[device]]);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void print_text(const plan_table *t, const fl_plan *plan, const char *why_not,
                       const fl_candidate *candidates, int n)
{
    char text[256];
    printf("\n%d of %d blocks frozen\n", plan->F, fl_model_n_blocks(t->model));
    if (why_not != NULL) {
        printf("nothing fits: %s\n", why_not);
        return;
    }
    printf("     K    R    M    step ms   bubble  memory MiB\n");
    for (int i = 0; i < n && i < ROWS_MAX; i++) {
        print_row(plan, &candidates[i]);
    }
    if (n > ROWS_MAX) {
        printf("  and %d more\n", n - ROWS_MAX);
    }
    printf("plan: %s\n", fl_plan_text(plan, text, sizeof text));
    print_stages(t, plan);
    if (t->cluster != NULL) {
        print_hosts(t->cluster, plan);
    }
}

static void put_between_hosts(fl_json *j, const plan_table *t)
{
    if (t->between_hosts_from != NULL) {
        fl_json_object(j, "between_hosts");
        fl_json_text(j, "from", t->between_hosts_from);
        fl_json_rounded(j, "latency_us", t->between_hosts.latency_us, 3);
        fl_json_rounded(j, "bytes_per_s", t->between_hosts.bytes_per_us * 1e6, 0);
        fl_json_close(j, '}');
    }
}

static void put_json(const plan_table *t, const fl_plan *plan, const char *why_not,
                     const fl_candidate *candidates, int n)
{
    fl_json *j = t->json;
    fl_json_object(j, NULL);
    if (why_not != NULL) {
        fl_json_integer(j, "f", plan->F);
        fl_json_text(j, "why_not", why_not);
        fl_json_close(j, '}');
        return;
    }
    fl_fields_plan(j, plan);
    fl_json_array(j, "layers");
    for (int layer = 0; layer < plan->n_layers; layer++) {
        fl_json_text(j, NULL, fl_model_layer_name(t->model, layer));
    }
    fl_json_close(j, ']');
    if (t->cluster != NULL) {
        put_stated(j, t->cluster);
        put_hosts(j, t->cluster, plan);
    }
    put_between_hosts(j, t);
    fl_json_array(j, "candidates");
    for (int i = 0; i < n; i++) {
        const fl_candidate *c = &candidates[i];
        fl_json_object(j, NULL);
        fl_fields_candidate(j, c, 1.0);
        fl_json_bool(j, "chosen", is_choice(plan, c));
        if (c->why_not != FL_OK) {
            fl_json_text(j, "why_not", fl_status_text(c->why_not));
        }
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
    fl_json_close(j, '}');
}

static void seen(void *context, const fl_plan *plan, const char *why_not,
                 const fl_candidate *candidates, int n)
{
    plan_table *t = context;
    if (t->json == NULL) {
        print_text(t, plan, why_not, candidates, n);
    } else {
        put_json(t, plan, why_not, candidates, n);
    }
}

static void costs_seen(void *context, const fl_costs_origin *origin)
{
    const plan_table *t = context;
    if (t->json == NULL) {
        bool from_file = strcmp(origin->from, "file") == 0;
        printf("costs: measured %s", from_file ? origin->measured : "now");
        printf(origin->path == NULL ? "\n"
               : from_file          ? ", from %s\n"
                                    : ", kept in %s\n",
               origin->path);
        for (int i = 0; i < origin->n_kinds; i++) {
            const fl_kind_origin *kind = &origin->kinds[i];
            printf("costs of host %s: %.3g times as fast, measured %s, from %s\n", kind->host,
                   kind->speed, kind->measured, kind->path);
        }
    }
    if (t->json == NULL && t->cluster != NULL) {
        print_stated(t->cluster);
    }
}

static void devices_seen(void *context, const fl_device_survey *devices, int n_workers)
{
    const plan_table *t = context;
    char line[FL_SURVEY_TEXT_BYTES];
    if (t->json == NULL && fl_device_survey_line(devices, n_workers, line)[0] != '\0') {
        printf("devices: %s\n", line);
    }
}

static void between_hosts_seen(void *context, const fl_link_cost *link, const char *from)
{
    plan_table *t = context;
    char rate[FL_SIZE_TEXT_MAX];
    t->between_hosts = *link;
    t->between_hosts_from = from;
    if (t->json == NULL) {
        printf("links between hosts: %s, %.0f us and %s/s%s\n", from, link->latency_us,
               fl_size_text(link->bytes_per_us * 1e6, rate),
               strcmp(from, "assumed") == 0 ? "; state them in links.between_hosts" : "");
    }
}

/* F = 0, then every --frozen. */
static fl_status read_frozen(const fl_args *args, int L, int *frozen, int *n)
{
    frozen[0] = 0;
    *n = 1;
    for (int i = 0; i < args->n_given && *n < FROZEN_MAX; i++) {
        if (strcmp(args->given[i].option->name, "--frozen") != 0) {
            continue;
        }
        char *end = NULL;
        const char *text = args->given[i].value;
        long value = strtol(text, &end, 10);
        if (end == text || *end != '\0' || value < 0 || value > L) {
            return fl_fail(FL_EINVAL, "--frozen: found %.64s, allowed: 0 to %d blocks", text, L);
        }
        frozen[(*n)++] = (int)value;
    }
    return FL_OK;
}

static fl_status show_plans(const fl_args *args, const fl_job_context *w,
                            const fl_cluster_file *cluster, const fl_hosts *hosts)
{
    int frozen[FROZEN_MAX], n;
    fl_json json = {0};
    plan_table t = {
        .model = w->model, .json = fl_args_has(args, "--json") ? &json : NULL, .cluster = cluster};
    FL_TRY(read_frozen(args, fl_model_n_blocks(w->model), frozen, &n));
    fl_json_array(&json, NULL);
    fl_plan_request request = {.frozen = frozen,
                               .n = n,
                               .profile = fl_args_value(args, "--profile"),
                               .cluster = cluster,
                               .hosts = hosts,
                               .costs = costs_seen,
                               .devices = devices_seen,
                               .between_hosts = between_hosts_seen,
                               .seen = seen,
                               .context = &t};
    fl_status status = fl_plan_job(w->model, &w->dataset, &w->job, &request);
    fl_json_close(&json, ']');
    fl_json_newline(&json);
    if (status == FL_OK && json.broken) {
        status = fl_fail(FL_ENOMEM, "no memory for the output");
    } else if (status == FL_OK && t.json != NULL) {
        fwrite(json.text, 1, json.n, stdout);
    }
    fl_json_fini(&json);
    return status;
}

/* *cluster: NULL without a path; else the caller's, by fl_free, also after a failure. */
static fl_status load_cluster(const char *path, fl_cluster_file **cluster)
{
    if (path == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof **cluster, (void **)cluster));
    return fl_cluster_file_load(path, *cluster);
}

/* For the hosts of the job, if it has any. */
static fl_status show_job(const fl_args *args, fl_job_context *w)
{
    fl_planned_hosts *of_job = NULL;
    FL_TRY(fl_planned_hosts_make(NULL, &w->job, &of_job));
    fl_host_names_warn(&w->job);
    fl_status status = of_job == NULL ? show_plans(args, w, NULL, NULL)
                                      : show_plans(args, w, &of_job->file, &of_job->hosts);
    fl_free(of_job);
    return status;
}

static int run_plan(const fl_args *args)
{
    fl_job_context w = {0};
    fl_cluster_file *cluster = NULL;
    fl_status status = load_cluster(fl_args_value(args, "--cluster"), &cluster);
    if (status == FL_OK) {
        status = fl_job_context_init(args, &w);
    }
    if (status == FL_OK) {
        status = cluster == NULL ? show_job(args, &w) : show_plans(args, &w, cluster, NULL);
    }
    fl_job_context_fini(&w);
    fl_free(cluster);
    return fl_job_context_finish(status);
}

const fl_cli_command fl_cli_command_plan = {
    .name = "plan",
    .operand = "JOB.yaml",
    .summary = "Show which plan would be chosen, and the alternatives.",
    .details = "Measures the costs of the layers unless they are known, and starts no run. For\n"
               "each K, R and M it prints the predicted step time, the bubble and the memory of\n"
               "the largest stage. With --cluster the plan is for the hosts of a file, else for\n"
               "those of the job, if it has any.\n",
    .options = {{"--frozen", 0, "N", "plan also with the first N blocks frozen; repeatable"},
                {"--profile", 0, "FILE", "take the costs from FILE, even of another device"},
                {"--cluster", 0, "FILE", "plan for the hosts, devices and links of FILE"},
                {"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"},
                {"--json", 0, NULL, "print JSON, for programs"}},
    .run = run_plan,
};
