/* frostline schedule: draw a schedule. */
#include "device/system/alloc.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/commands/draw.h"
#include "launcher/job/schema/schema.h"
#include "launcher/job/text/text.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

/* Read an option through the field of a job that has the same meaning; here it must be given. */
static fl_status read_field(const fl_args *args, const char *option, const char *shown,
                            const char *path, fl_job *job)
{
    const char *text = fl_args_value(args, option);
    fl_field field = *fl_schema_field(fl_schema_find(path));
    field.word = NULL; /* no "auto": there is no planner here that could choose */
    if (text == NULL) {
        return fl_fail(FL_EINVAL, "option %s is missing", shown);
    }
    fl_status status = fl_field_parse(&field, text, strlen(text), false, job);
    return status == FL_OK ? FL_OK : fl_within(status, "%s", shown);
}

/* Text made of more than ASCII is for a terminal that says it can show it. */
static bool terminal_shows_unicode(void)
{
    setlocale(LC_CTYPE, "");
    return isatty(STDOUT_FILENO) && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static fl_status read_arguments(const fl_args *args, fl_drawing *drawing)
{
    fl_job job;
    fl_job_defaults(&job);
    if (fl_args_has(args, "--schedule")) {
        FL_TRY(read_field(args, "--schedule", "--schedule", "pipe.schedule", &job));
    }
    FL_TRY(read_field(args, "--stages", "-k", "pipe.k", &job));
    FL_TRY(read_field(args, "--micro-batches", "-m", "pipe.m", &job));
    int64_t backward = 1;
    if (fl_args_has(args, "--backward")) {
        const char *text = fl_args_value(args, "--backward");
        if (strlen(text) != 1 || text[0] < '1' || text[0] > '4') {
            char shown[FL_SHOWN_MAX];
            return fl_fail(FL_EINVAL, "--backward: found %s, allowed: 1 to 4 ticks",
                           fl_shown(text, strlen(text), shown));
        }
        backward = text[0] - '0';
    }
    *drawing = (fl_drawing){
        .schedule = job.pipe.schedule,
        .schedule_name =
            fl_schema_field(fl_schema_find("pipe.schedule"))->choices[job.pipe.schedule],
        .K = (int)job.pipe.k,
        .M = (int)job.pipe.m,
        .backward_ticks = (int)backward,
        .unicode = terminal_shows_unicode(),
    };
    return FL_OK;
}

static int run_schedule(const fl_args *args)
{
    fl_drawing drawing;
    fl_status status = read_arguments(args, &drawing);
    if (status == FL_OK) {
        status = fl_args_has(args, "--json") ? fl_draw_json(&drawing, stdout)
                                             : fl_draw_text(&drawing, stdout);
    }
    if (status != FL_OK) {
        fl_complain("frostline schedule: %s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_schedule = {
    .name = "schedule",
    .summary = "Draw the schedule of a pipeline: what each stage does at each tick.",
    .details = "One row per stage; F2 is the forward, B2 the backward of micro-batch 2. A\n"
               "micro-batch is in flight while a stage holds its activations.\n",
    .options = {{"--schedule", 0, "gpipe|1f1b", "default: 1f1b"},
                {"--stages", 'k', "K", "stages of the pipeline"},
                {"--micro-batches", 'm', "M", "micro-batches of a step"},
                {"--backward", 0, "TICKS", "ticks of a backward, a forward being 1; default: 1"},
                {"--json", 0, NULL, "print JSON, for programs"}},
    .run = run_schedule,
};
