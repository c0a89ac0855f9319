/* frostline trace-report: what a trace says, as tables or as JSON. */
#include "control/events/json.h"
#include "control/observe/slow.h"
#include "control/observe/trace/trace.h"
#include "device/system/alloc.h"
#include "launcher/cli/cli.h"
#include "launcher/run/runs/runs.h"
#include "pipe/plan/planner.h"

#include <frostline/job.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef fl_trace_report report;

static double ms(int64_t ns)
{
    return (double)ns * 1e-6;
}

static double share(int64_t part_ns, int64_t whole_ns)
{
    return whole_ns > 0 ? (double)part_ns / (double)whole_ns : 0.0;
}

static int64_t computing_ns(const fl_trace_worker *w)
{
    return w->in_ns[FL_FLIGHT_IS_COMPUTE] + w->in_ns[FL_FLIGHT_IS_OPTIMIZER];
}

static int64_t rest_ns(const fl_trace_worker *w)
{
    return w->wall_ns - computing_ns(w) - w->communication_ns - w->idle_ns;
}

/* ---- tables ---- */

static void print_host(const fl_trace_host *host, bool is_head)
{
    printf("host %s: worker%s %d", host->name, host->n == 1 ? "" : "s", host->first);
    if (host->n > 1) {
        printf(" .. %d", host->first + host->n - 1);
    }
    if (host->missing[0] != '\0') {
        printf(", missing: %s\n", host->missing);
    } else if (is_head) {
        printf(", by whose clock all times are\n");
    } else {
        printf(", times are right to %.3f ms\n", ms(host->error_ns));
    }
}

static void print_head(const fl_trace_about *about, const fl_trace_data *trace)
{
    printf("trace of steps %" PRId64 " .. %" PRId64 " of job %s: %d worker%s, %zu operations\n",
           about->first_step, about->first_step + about->n_steps - 1, about->job, about->n_workers,
           about->n_workers == 1 ? "" : "s", trace->n);
    for (int i = 0; i < about->n_plans; i++) {
        const fl_plan *p = &about->plan[i];
        printf("generation %u: F=%d, K=%d x R=%d x M=%d, %s\n", p->generation, p->F, p->K, p->R,
               p->M, fl_schedule_text(p->schedule));
    }
    for (int i = 0; i < trace->n_hosts; i++) {
        print_host(&trace->hosts[i], i == 0);
    }
    if (about->lost > 0) {
        printf("%" PRId64 " operations are missing: they were overwritten before they were read\n",
               about->lost);
    }
}

static void print_shares(const report *r)
{
    printf("\nworker      wall ms   compute  communication      idle      rest  slowness\n");
    for (int i = 0; i < r->n_workers; i++) {
        const fl_trace_worker *w = &r->worker[i];
        char slowness[16] = "-";
        if (w->slowness > 0.0) {
            snprintf(slowness, sizeof slowness, "%.2f", w->slowness);
        }
        printf("%6d  %11.3f  %6.1f %%       %6.1f %%  %6.1f %%  %6.1f %%  %8s\n", i, ms(w->wall_ns),
               100 * share(computing_ns(w), w->wall_ns),
               100 * share(w->communication_ns, w->wall_ns), 100 * share(w->idle_ns, w->wall_ns),
               100 * share(rest_ns(w), w->wall_ns), slowness);
    }
}

static void print_categories(const report *r)
{
    printf("\nms by what    ");
    for (int i = 0; i < r->n_workers && i < 8; i++) {
        printf("  worker %-3d", i);
    }
    printf("\n");
    for (int c = 0; c < FL_FLIGHT_N_CATEGORIES; c++) {
        if (c == FL_FLIGHT_IS_PHASE) {
            continue;
        }
        printf("  %-12s", fl_flight_category_text((fl_flight_category)c));
        for (int i = 0; i < r->n_workers && i < 8; i++) {
            printf("  %10.3f", ms(r->worker[i].in_ns[c]));
        }
        printf("\n");
    }
}

static void print_pipelines(const report *r)
{
    int64_t reduce_ns = 0, hidden_ns = 0;
    for (int i = 0; i < r->n_workers; i++) {
        reduce_ns += r->worker[i].reduce_ns;
        hidden_ns += r->worker[i].hidden_ns;
    }
    printf("\n");
    if (r->n_pipelines > 0) {
        printf("bubble      %.1f %% of the stages' time; by the schedule %.1f %%\n",
               100 * r->bubble, 100 * r->schedule_bubble);
    }
    if (reduce_ns > 0) {
        printf("all-reduce  %.3f ms of transfers, %.1f %% behind compute\n", ms(reduce_ns),
               100 * share(hidden_ns, reduce_ns));
    }
}

/* Of workers whose device tells. */
static void print_devices(const report *r)
{
    for (int i = 0; i < r->n_workers; i++) {
        const fl_trace_worker *w = &r->worker[i];
        if (w->has_device) {
            printf("device      worker %d: %.3f ms, %.1f %% of wall\n", i, ms(w->device_ns),
                   100 * share(w->device_ns, w->wall_ns));
        }
    }
}

static void print_stragglers(const report *r)
{
    int n = 0;
    for (int i = 0; i < r->n_workers; i++) {
        if (r->worker[i].slowness >= FL_SLOW_RATIO) {
            printf("straggler   worker %d: its own compute takes %.2f times as long as that of "
                   "the others, relative to the profile of its layers\n",
                   i, r->worker[i].slowness);
            n++;
        }
    }
    if (n == 0) {
        printf("stragglers  none\n");
    }
}

static void top_name(const fl_trace_about *about, const fl_trace_top *top, char *text, size_t size)
{
    if (top->item >= 0) {
        snprintf(text, size, "%s %d %s", fl_flight_text(top->kind), top->item,
                 top->item < about->n_layers ? about->layer[top->item].kind : "");
    } else {
        snprintf(text, size, "%s", fl_flight_text(top->kind));
    }
}

static void print_longest(const fl_trace_about *about, const report *r)
{
    char name[96];
    printf("\nlongest operations                 times    total ms     mean ms  longest ms\n");
    for (int i = 0; i < r->n_top; i++) {
        const fl_trace_top *top = &r->top[i];
        top_name(about, top, name, sizeof name);
        printf("  %-32s %5" PRId64 "  %10.3f  %10.3f  %10.3f\n", name, top->n, ms(top->total_ns),
               ms(top->total_ns) / (double)top->n, ms(top->longest_ns));
    }
}

/* ---- JSON ---- */

static void worker_fields(fl_json *j, const fl_trace_worker *w, int rank)
{
    fl_json_object(j, NULL);
    fl_json_integer(j, "rank", rank);
    fl_json_rounded(j, "wall_ms", ms(w->wall_ns), 6);
    fl_json_object(j, "ms");
    for (int c = 0; c < FL_FLIGHT_N_CATEGORIES; c++) {
        if (c != FL_FLIGHT_IS_PHASE) {
            fl_json_rounded(j, fl_flight_category_text((fl_flight_category)c), ms(w->in_ns[c]), 6);
        }
    }
    fl_json_close(j, '}');
    fl_json_rounded(j, "compute_share", share(computing_ns(w), w->wall_ns), 6);
    fl_json_rounded(j, "communication_share", share(w->communication_ns, w->wall_ns), 6);
    fl_json_rounded(j, "idle_share", share(w->idle_ns, w->wall_ns), 6);
    fl_json_rounded(j, "reduce_ms", ms(w->reduce_ns), 6);
    fl_json_rounded(j, "reduce_hidden_ms", ms(w->hidden_ns), 6);
    fl_json_real(j, "device_ms", w->has_device ? ms(w->device_ns) : NAN);
    fl_json_rounded(j, "own_ms", w->own_us * 1e-3, 6);
    fl_json_rounded(j, "expected_ms", w->expected_us * 1e-3, 6);
    fl_json_real(j, "slowness", w->slowness > 0.0 ? w->slowness : NAN);
    fl_json_bool(j, "straggler", w->slowness >= FL_SLOW_RATIO);
    fl_json_close(j, '}');
}

static void host_fields(fl_json *j, const fl_trace_data *trace)
{
    fl_json_array(j, "hosts");
    for (int i = 0; i < trace->n_hosts; i++) {
        const fl_trace_host *host = &trace->hosts[i];
        fl_json_object(j, NULL);
        fl_json_text(j, "host", host->name);
        fl_json_integer(j, "first_worker", host->first);
        fl_json_integer(j, "workers", host->n);
        fl_json_rounded(j, "error_ms", ms(host->error_ns), 6);
        fl_json_text(j, "missing", host->missing);
        fl_json_close(j, '}');
    }
    fl_json_close(j, ']');
}

static void print_json(const fl_trace_data *trace, const report *r)
{
    fl_json j = {.text = NULL};
    char name[96];
    fl_json_object(&j, NULL);
    fl_json_text(&j, "job", trace->about.job);
    fl_json_integer(&j, "first_step", trace->about.first_step);
    fl_json_integer(&j, "steps", trace->about.n_steps);
    fl_json_integer(&j, "lost", trace->about.lost);
    if (trace->n_hosts > 0) {
        host_fields(&j, trace);
    }
    fl_json_real(&j, "bubble", r->bubble);
    fl_json_real(&j, "schedule_bubble", r->schedule_bubble);
    fl_json_array(&j, "workers");
    for (int i = 0; i < r->n_workers; i++) {
        worker_fields(&j, &r->worker[i], i);
    }
    fl_json_close(&j, ']');
    fl_json_array(&j, "longest");
    for (int i = 0; i < r->n_top; i++) {
        top_name(&trace->about, &r->top[i], name, sizeof name);
        fl_json_object(&j, NULL);
        fl_json_text(&j, "operation", name);
        fl_json_integer(&j, "times", r->top[i].n);
        fl_json_rounded(&j, "total_ms", ms(r->top[i].total_ns), 6);
        fl_json_rounded(&j, "longest_ms", ms(r->top[i].longest_ns), 6);
        fl_json_close(&j, '}');
    }
    fl_json_close(&j, ']');
    fl_json_close(&j, '}');
    fl_json_newline(&j);
    fwrite(j.text, 1, j.n, stdout);
    fl_json_fini(&j);
}

/* ---- the command ---- */

enum { NAMES_BYTES = 512 };

/* The traces of a folder: how many, the last one's name, and all of their names for a message. */
typedef struct found_traces {
    int n;
    char name[NAME_MAX + 1];
    char names[NAMES_BYTES];
} found_traces;

static bool is_trace(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strncmp(name, "trace-", 6) == 0 && strcmp(name + n - 5, ".json") == 0;
}

static fl_status list_traces(const char *folder, found_traces *found)
{
    DIR *dir = opendir(folder);
    size_t used = 0;
    if (dir == NULL) {
        return fl_fail(FL_EIO, "%s: %s", folder, strerror(errno));
    }
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (is_trace(e->d_name)) {
            snprintf(found->name, sizeof found->name, "%s", e->d_name);
            used += (size_t)snprintf(found->names + used, sizeof found->names - used, "%s%s",
                                     found->n++ == 0 ? "" : ", ", e->d_name);
            used = used < sizeof found->names ? used : sizeof found->names - 1;
        }
    }
    closedir(dir);
    return FL_OK;
}

/* The one trace of a run directory. */
static fl_status trace_of_folder(const char *folder, char path[PATH_MAX])
{
    found_traces found = {.n = 0};
    FL_TRY(list_traces(folder, &found));
    if (found.n == 0) {
        return fl_fail(FL_EINVAL,
                       "%s: a folder without a trace found, a trace-A-B.json or a run directory "
                       "with one expected; trace.steps in the job or frostline ctl trace takes one",
                       folder);
    }
    if (found.n > 1) {
        return fl_fail(FL_EINVAL, "%s: a folder with %d traces found; name one of them: %s", folder,
                       found.n, found.names);
    }
    if (snprintf(path, PATH_MAX, "%s/%s", folder, found.name) >= PATH_MAX) {
        return fl_fail(FL_EINVAL, "%s: a path of more than %d bytes", folder, PATH_MAX - 1);
    }
    return FL_OK;
}

/* The file that the user means: itself, or the one of a run directory or of a run's name. */
static fl_status find_trace(const char *operand, char path[PATH_MAX])
{
    struct stat what;
    fl_run_entry run;
    fl_job job;
    if (stat(operand, &what) == 0 && !S_ISDIR(what.st_mode)) {
        return snprintf(path, PATH_MAX, "%s", operand) < PATH_MAX
                   ? FL_OK
                   : fl_fail(FL_EINVAL, "%.64s...: a path of more than %d bytes", operand,
                             PATH_MAX - 1);
    }
    if (stat(operand, &what) == 0) {
        return trace_of_folder(operand, path);
    }
    fl_job_defaults(&job);
    if (fl_run_find_any(job.run.dir, operand, &run) != FL_OK) {
        return fl_fail(FL_EINVAL,
                       "%s: no such file, and no run of this name in %s; a trace-A-B.json or a run "
                       "with one expected",
                       operand, job.run.dir);
    }
    return trace_of_folder(run.path, path);
}

static fl_status report_on(const char *operand, bool as_json, fl_trace_data *trace)
{
    char path[PATH_MAX];
    report r;
    FL_TRY(find_trace(operand, path));
    FL_TRY(fl_trace_read(path, trace));
    FL_TRY(fl_trace_analyse(trace, &r));
    if (as_json) {
        print_json(trace, &r);
    } else {
        print_head(&trace->about, trace);
        print_shares(&r);
        print_categories(&r);
        print_pipelines(&r);
        print_devices(&r);
        print_stragglers(&r);
        print_longest(&trace->about, &r);
    }
    fl_trace_report_fini(&r);
    return FL_OK;
}

static int run_trace_report(const fl_args *args)
{
    fl_trace_data *trace = NULL;
    fl_status status = fl_alloc(sizeof *trace, (void **)&trace);
    if (status == FL_OK) {
        status = report_on(args->operand, fl_args_has(args, "--json"), trace);
        fl_trace_fini(trace);
        fl_free(trace);
    }
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_trace_report = {
    .name = "trace-report",
    .operand = "TRACE",
    .summary = "Analyse a trace: shares of time, bubbles, overlap, stragglers.",
    .details = "TRACE is a trace-A-B.json, or a run (its directory or its name) that has exactly\n"
               "one. docs/traces.md explains each number.\n",
    .options = {{"--json", 0, NULL, "one JSON object"}},
    .run = run_trace_report,
};
