/* frostline report: one page of HTML that tells of a run. */
#include "launcher/cli/cli.h"
#include "launcher/report/page.h"

#include <frostline/job.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

/* Whole or not at all: beside it, then renamed. */
static fl_status write_page(const char *path, const fl_html *html)
{
    char beside[PATH_MAX];
    int n = snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof beside) {
        return fl_fail(FL_EINVAL, "the path %.64s... is too long", path);
    }
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    bool good = write_all(fd, html->text, html->n);
    good = close(fd) == 0 && good;
    if (!good || rename(beside, path) != 0) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
        unlink(beside);
        return status;
    }
    return FL_OK;
}

static void say_gaps(const fl_lines *file)
{
    if (file->missing[0] != '\0') {
        fl_complain("%s: %s", file->name, file->missing);
    }
    if (file->n_bad > 0) {
        fl_complain("%s: %lld of %lld lines could not be read; the first is line %lld: %s",
                    file->name, (long long)file->n_bad, (long long)file->n,
                    (long long)file->first_bad, file->why);
    }
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
    fl_status status =
        html.broken ? fl_fail(FL_ENOMEM, "out of memory for the page") : write_page(path, &html);
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
    FL_TRY(fl_run_find_any(job.run.dir, name, &run));
    snprintf(path, sizeof path, "%s/report.html", run.path);
    out = out == NULL ? path : out;
    fl_status status = fl_report_read(&run, &report);
    if (status == FL_OK) {
        status = make_page(&report, out);
    }
    if (status == FL_OK) {
        say_gaps(&report.steps_file);
        say_gaps(&report.events_file);
        printf("%s: %lld steps, %lld events\n", out, (long long)report.n_steps,
               (long long)(report.n_events + report.n_left_out));
    }
    fl_report_fini(&report);
    return status;
}

static int run(const fl_args *args)
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
    .run = run,
};
