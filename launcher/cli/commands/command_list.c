/* frostline list: the runs of a directory. */
#include "launcher/cli/cli.h"
#include "launcher/run/runs/run_again.h"
#include "launcher/run/runs/run_checkpoints.h"
#include "launcher/run/runs/runs.h"

#include "control/agent/join/wait_record.h"
#include "control/events/json.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "device/text/shown_text.h"
#include "nn/loss.h"

#include <frostline/job.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { METRICS_BYTES = FL_METRICS_MAX * (FL_METRIC_NAME_MAX + 16) + 4 };

/* What cannot be read is not there. */
static fl_run_checkpoints checkpoints_of(const fl_run_entry *e)
{
    fl_run_checkpoints c;
    if (fl_run_checkpoints_look(e->path, &c) != FL_OK) {
        c = (fl_run_checkpoints){.step = -1, .best_step = -1, .age_s = (double)NAN};
    }
    return c;
}

static void put_checkpoints(fl_json *j, const fl_run_entry *e)
{
    const fl_run_checkpoints c = checkpoints_of(e);
    fl_json_integer(j, "checkpoints", c.n);
    if (c.n == 0) {
        fl_json_null(j, "checkpoint");
        return;
    }
    fl_json_object(j, "checkpoint");
    fl_json_integer(j, "step", c.step);
    fl_json_text(j, "path", c.path);
    fl_json_text(j, "written", c.written);
    fl_json_rounded(j, "age_s", c.age_s, 3);
    if (c.best_step >= 0) {
        fl_json_integer(j, "best_step", c.best_step);
    }
    fl_json_close(j, '}');
}

/* For its hosts, or while they measure; nothing of another run. */
static const char *wait_text(const fl_run_entry *e, char text[FL_WAIT_TEXT])
{
    bool may = e->state == FL_RUN_STARTING || e->state == FL_RUN_RECOVERING;
    text[0] = '\0';
    return may ? fl_wait_record_text(e->path, text) : text;
}

static void put_wait(fl_json *j, const fl_run_entry *e)
{
    char text[FL_WAIT_TEXT];
    if (wait_text(e, text)[0] != '\0') {
        fl_json_text(j, "waits", text);
    }
}

static void put_unreachable(fl_json *j, const fl_run_entry *e)
{
    char text[FL_UNREACHABLE_TEXT];
    if (fl_run_unreachable_text(e, text)[0] != '\0') {
        fl_json_text(j, "unreachable", text);
    }
}

static void print_json(const fl_run_entry *entries, int n)
{
    fl_json j = {0};
    fl_json_array(&j, NULL);
    for (int i = 0; i < n; i++) {
        const fl_run_entry *e = &entries[i];
        fl_json_object(&j, NULL);
        fl_json_text(&j, "name", e->name);
        fl_json_text(&j, "path", e->path);
        fl_json_text(&j, "job", e->job);
        fl_json_text(&j, "state", fl_run_state_text(e->state));
        fl_json_bool(&j, "record_incomplete", e->record_incomplete);
        fl_json_bool(&j, "untrained", e->untrained);
        put_wait(&j, e);
        put_unreachable(&j, e);
        if (e->state == FL_RUN_ELSEWHERE) {
            fl_json_text(&j, "hostname", e->hostname);
        }
        fl_json_text(&j, "started", e->started);
        fl_json_integer(&j, "step", e->steps);
        fl_json_integer(&j, "steps", e->n_steps);
        fl_json_integer(&j, "skipped_steps", e->skipped_steps);
        fl_json_real(&j, "loss", e->loss);
        fl_json_real(&j, "test_accuracy", e->test_accuracy);
        for (int m = 0; m < e->n_metrics; m++) {
            char key[sizeof e->metrics[m].name + 8];
            snprintf(key, sizeof key, "test_%s", e->metrics[m].name);
            if (strcmp(e->metrics[m].name, FL_ACCURACY) != 0) {
                fl_json_real(&j, key, e->metrics[m].test);
            }
        }
        put_checkpoints(&j, e);
        fl_json_close(&j, '}');
    }
    fl_json_close(&j, ']');
    fl_json_newline(&j);
    fwrite(j.text, 1, j.n, stdout);
    fl_json_fini(&j);
}

static const char *number_text(double value, char text[24])
{
    if (isnan(value)) {
        return "-";
    }
    snprintf(text, 24, "%.4f", value);
    return text;
}

/* " (mae 0.0125, rmse 0.0201)": the metrics without a column; "" if none is known. */
static const char *metrics_text(const fl_run_entry *e, char text[METRICS_BYTES])
{
    int n = 0;
    text[0] = 0;
    for (int i = 0; i < e->n_metrics && n < METRICS_BYTES; i++) {
        const fl_metric_result *m = &e->metrics[i];
        if (strcmp(m->name, FL_ACCURACY) != 0 && !isnan(m->test)) {
            n += snprintf(text + n, METRICS_BYTES - (size_t)n, "%s%s %.4g", n == 0 ? " (" : ", ",
                          m->name, m->test);
        }
    }
    if (n > 0 && n < METRICS_BYTES) {
        snprintf(text + n, METRICS_BYTES - (size_t)n, ")");
    }
    return text;
}

/* "12 s", "3 min", "5 h", "2 d"; "-" if it is not known. */
static const char *age_text(double seconds, char text[24])
{
    static const struct {
        double unit_s;
        const char *name;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    if (!(seconds >= 0)) {
        return "-";
    }
    int i = 0;
    while (i < 3 && seconds < units[i].unit_s) {
        i++;
    }
    snprintf(text, 24, "%.0f %s", floor(seconds / units[i].unit_s), units[i].name);
    return text;
}

enum { CHECKPOINTS_BYTES = 80 };

/* Three columns: finished steps at the newest one, its age, how many there are. */
static const char *checkpoints_text(const fl_run_entry *e, char text[CHECKPOINTS_BYTES])
{
    const fl_run_checkpoints c = checkpoints_of(e);
    char step[24], age[24], kept[24];
    snprintf(step, sizeof step, "%" PRId64, c.step);
    snprintf(kept, sizeof kept, "%d", c.n);
    snprintf(text, CHECKPOINTS_BYTES, "%10s %6s %4s", c.n == 0 ? "-" : step, age_text(c.age_s, age),
             c.n == 0 ? "-" : kept);
    return text;
}

enum { ELSEWHERE_BYTES = 4 * 65 + 32 };

/* " (started on host node7)" of a run that this machine knows no more of; else "". */
static const char *elsewhere_text(const fl_run_entry *e, char text[ELSEWHERE_BYTES])
{
    char host[4 * sizeof e->hostname];
    text[0] = '\0';
    if (e->state == FL_RUN_ELSEWHERE) {
        snprintf(text, ELSEWHERE_BYTES, " (started on host %s)",
                 fl_text_shown(e->hostname, host, sizeof host));
    }
    return text;
}

static void print_table(const fl_run_entry *entries, int n)
{
    printf("%-9s %15s %8s %8s %10s %6s %4s  %-19s  %s\n", "state", "steps", "loss", "accuracy",
           "checkpoint", "age", "kept", "started (UTC)", "run");
    for (int i = 0; i < n; i++) {
        const fl_run_entry *e = &entries[i];
        char steps[48], loss[24], accuracy[24], skipped[64] = "", n_skipped[FL_COUNT_BYTES];
        char metrics[METRICS_BYTES], checkpoints[CHECKPOINTS_BYTES], host[ELSEWHERE_BYTES];
        char name[FL_SHELL_PATH_BYTES], started[FL_SHOWN_PATH_BYTES];
        if (e->skipped_steps > 0) {
            snprintf(skipped, sizeof skipped, " (%s skipped)",
                     fl_count(e->skipped_steps, "step", n_skipped));
        }
        snprintf(steps, sizeof steps, "%" PRId64 "/%" PRId64, e->steps, e->n_steps);
        if (e->n_steps <= 0) { /* it ended before its workers were there, or they are awaited */
            snprintf(steps, sizeof steps, "-");
        }
        printf("%-9s %15s %8s %8s %s  %-19.19s  %s%s%s%s%s\n", fl_run_state_text(e->state), steps,
               number_text(e->loss, loss), number_text(e->test_accuracy, accuracy),
               checkpoints_text(e, checkpoints), fl_text_shown(e->started, started, sizeof started),
               fl_shell_shown(e->name, name, sizeof name), metrics_text(e, metrics), skipped,
               elsewhere_text(e, host), e->record_incomplete ? " (record incomplete)" : "");
    }
}

/* Below the table: for what runs wait, which take no requests, and what becomes of those of which
 * nothing was kept. */
static void print_notes(const fl_run_entry *entries, int n)
{
    char again[FL_RUN_AGAIN_TEXT], waits[FL_WAIT_TEXT], name[FL_SHOWN_PATH_BYTES];
    char unreachable[FL_UNREACHABLE_TEXT];
    for (int i = 0; i < n; i++) {
        fl_text_shown(entries[i].name, name, sizeof name);
        if (wait_text(&entries[i], waits)[0] != '\0') {
            printf("%s: the run %s\n", name, waits);
        }
        if (fl_run_unreachable_text(&entries[i], unreachable)[0] != '\0') {
            printf("%s: the run %s\n", name, unreachable);
        }
        if (entries[i].untrained) {
            printf("%s: the run was lost before it trained: %s\n", name,
                   fl_run_again_look(entries[i].path, again));
        }
    }
}

/* The runs in a directory; a directory that is itself a run is listed alone. */
static fl_status list_runs(const char *dir, fl_run_entry **entries, int *n)
{
    char shown[FL_SHOWN_PATH_BYTES];
    fl_run_entry self;
    void *one = NULL;
    if (fl_run_look(dir, &self) != FL_OK) {
        return fl_runs_list(dir, entries, n);
    }
    FL_TRY(fl_alloc(sizeof self, &one));
    *entries = one;
    **entries = self;
    *n = 1;
    fl_complain("%s: a run directory; list its parent directory for all of its runs",
                fl_text_shown(dir, shown, sizeof shown));
    return FL_OK;
}

static int list_command(const fl_args *args)
{
    fl_run_entry *entries = NULL;
    fl_job job;
    int n = 0;
    fl_job_defaults(&job);
    fl_status status = list_runs(args->operand == NULL ? job.run.dir : args->operand, &entries, &n);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
        return fl_exit_of(status);
    }
    if (fl_args_has(args, "--json")) {
        print_json(entries, n);
    } else {
        print_table(entries, n);
        print_notes(entries, n);
    }
    fl_free(entries);
    return FL_EXIT_DONE;
}

const fl_cli_command fl_cli_command_list = {
    .name = "list",
    .operand = "DIR",
    .operand_is_optional = true,
    .summary = "List the runs of a directory, newest first.",
    .details = "The default for DIR is runs/. A run is live while its controller answers,\n"
               "starting or recovering while it does not answer yet, lost if its controller\n"
               "vanished, and elsewhere if another machine has started it and it has recorded no\n"
               "end. The loss is the mean of the last epoch; for a run that may be training, or\n"
               "has finished no epoch, it is that of the newest step. checkpoint: finished steps\n"
               "at the newest one that is whole; age: since it was written; kept: how many there\n"
               "are. \"record incomplete\": a file of the run could not be written.\n",
    .options = {{"--json", 0, NULL, "print JSON, for programs"}},
    .run = list_command,
};
