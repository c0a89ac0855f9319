/* frostline report: one HTML page about a run. */
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/output_path.h"
#include "launcher/cli/run_output.h"
#include "launcher/report/page.h"

#include <frostline/job.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static fl_status write_page(const void *context, FILE *file)
{
    const fl_html *html = context;
    return fwrite(html->text, 1, html->n, file) == html->n ? FL_OK
                                                           : fl_fail(FL_EIO, "%s", strerror(errno));
}

static fl_status make_page(const fl_report *report, const char *path)
{
    fl_html html = {0};
    char made[40];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fl_page_write(&html, report, made);
    fl_status status = html.broken ? fl_fail(FL_ENOMEM, "out of memory for the page")
                                   : fl_replace_file(path, write_page, &html);
    fl_html_fini(&html);
    return status;
}

static fl_status make_report(const char *name, const char *out)
{
    char path[PATH_MAX + 16];
    fl_run_entry run;
    fl_report report = {0};
    fl_job job;
    fl_job_defaults(&job);
    if (out != NULL) {
        FL_TRY(fl_output_path_check("--out", out));
    }
    FL_TRY(fl_run_find_any(job.run.dir, name, &run));
    if (run.state == FL_RUN_STARTING && run.n_steps == 0) { /* it has written no event */
        return fl_run_fail_starting(run.path, name);
    }
    if (run.untrained) {
        return fl_run_fail_untrained(run.path, name);
    }
    snprintf(path, sizeof path, "%s/report.html", run.path);
    out = out == NULL ? path : out;
    fl_status status = fl_report_read(&run, &report);
    if (status == FL_OK) {
        status = make_page(&report, out);
    }
    if (status == FL_OK) {
        fl_say_gaps(&report.steps_file);
        fl_say_gaps(&report.events_file);
        char steps[FL_COUNT_BYTES], events[FL_COUNT_BYTES], shown[FL_SHELL_PATH_BYTES];
        printf("%s: %s, %s\n", fl_shell_shown(out, shown, sizeof shown),
               fl_count(report.n_steps, "step", steps),
               fl_count(report.n_events + report.n_left_out, "event", events));
    }
    fl_report_fini(&report);
    return status;
}

static int run_report(const fl_args *args)
{
    fl_status status = make_report(args->operand, fl_args_value(args, "--out"));
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_report = {
    .name = "report",
    .operand = "RUN",
    .summary = "Write one HTML page about a run, finished or not.",
    .details = "RUN is a run directory, or the name of a run or job below runs/; if several\n"
               "match, the newest. The page is self-contained: no network, script or other file.\n"
               "Lines that cannot be read are counted and reported.\n",
    .options = {{"--out", 0, "FILE", "where to write it; default: RUN/report.html"}},
    .run = run_report,
};
