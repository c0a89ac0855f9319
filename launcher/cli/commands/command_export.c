/* frostline export: a run's curves for TensorBoard, or as tables; or a model. */
#include "device/text/shell_text.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/output_path.h"
#include "launcher/cli/run_output.h"
#include "launcher/cli/use_args.h"
#include "launcher/report/export/export.h"
#include "launcher/run/saved/model_export.h"

#include <frostline/job.h>

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

typedef fl_status export_fn(const fl_report *report, FILE *file);

/* A file of a format; formats are rows of one name. */
typedef struct exported_file {
    const char *format, *name;
    export_fn *write;
} exported_file;

static const exported_file files[] = {
    {"tensorboard", "events.out.tfevents.frostline", fl_export_tensorboard},
    {"csv", "steps.csv", fl_export_steps},
    {"csv", "evaluations.csv", fl_export_evaluations},
};
enum { N_FILES = sizeof files / sizeof files[0] };

static fl_status check_format(const char *format)
{
    for (int i = 0; i < N_FILES; i++) {
        if (strcmp(files[i].format, format) == 0) {
            return FL_OK;
        }
    }
    return fl_fail(FL_EINVAL, "--format: found %.64s, allowed: tensorboard or csv", format);
}

static fl_status make_folder(const char *path)
{
    return mkdir(path, 0755) == 0 || errno == EEXIST
               ? FL_OK
               : fl_fail(FL_EIO, "--out: %s: %s", path, strerror(errno));
}

typedef struct exported {
    const fl_report *report;
    export_fn *write;
} exported;

static fl_status write_file(const void *context, FILE *file)
{
    const exported *e = context;
    return e->write(e->report, file);
}

static fl_status path_of(const exported_file *file, const char *folder, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, file->name) < PATH_MAX
               ? FL_OK
               : fl_fail(FL_EINVAL, "--out: a path of more than %d bytes", PATH_MAX - 1);
}

/* All files of the format can be written, or none is. */
static fl_status check_files(const char *format, const char *folder)
{
    char path[PATH_MAX];
    for (int i = 0; i < N_FILES; i++) {
        if (strcmp(files[i].format, format) == 0) {
            FL_TRY(path_of(&files[i], folder, path));
            FL_TRY(fl_output_path_check("cannot write", path));
        }
    }
    return FL_OK;
}

static fl_status write_files(const fl_report *report, const char *format, const char *folder)
{
    char path[PATH_MAX], shown[FL_SHELL_PATH_BYTES];
    FL_TRY(check_files(format, folder));
    FL_TRY(make_folder(folder));
    for (int i = 0; i < N_FILES; i++) {
        if (strcmp(files[i].format, format) != 0) {
            continue;
        }
        FL_TRY(path_of(&files[i], folder, path));
        const exported e = {.report = report, .write = files[i].write};
        FL_TRY(fl_replace_file(path, write_file, &e));
        printf("%s\n", fl_shell_shown(path, shown, sizeof shown));
    }
    int64_t n = fl_export_n_evaluations(report);
    printf("%" PRId64 " step%s, %" PRId64 " evaluation%s\n", report->n_steps,
           report->n_steps == 1 ? "" : "s", n, n == 1 ? "" : "s");
    return FL_OK;
}

static fl_status export_run(const char *name, const char *format, const char *out)
{
    fl_run_entry run;
    fl_report report = {0};
    fl_job job;
    format = format == NULL ? "tensorboard" : format;
    fl_job_defaults(&job);
    FL_TRY(check_format(format));
    if (out != NULL) {
        FL_TRY(fl_output_folder_check("--out", out));
    }
    FL_TRY(fl_run_find_any(job.run.dir, name, &run));
    if (run.untrained) {
        return fl_run_fail_untrained(run.path, name);
    }
    fl_status status = fl_report_read(&run, &report);
    if (status == FL_OK) {
        fl_say_gaps(&report.steps_file);
        fl_say_gaps(&report.events_file);
        status = write_files(&report, format, out == NULL ? run.path : out);
    }
    fl_report_fini(&report);
    return status;
}

/* ---- --to: the model ---- */

static fl_status export_model(const fl_args *args, const char *folder)
{
    const char *dtype_name = fl_args_value(args, "--dtype");
    const char *checkpoint = fl_args_value(args, "--checkpoint");
    fl_saved_model saved;
    fl_safetensors *weights = NULL;
    fl_st_dtype dtype;
    fl_model_export_result result;
    char origin[FL_SAVED_ORIGIN_MAX], shown[FL_SHELL_PATH_BYTES];
    if (fl_args_has(args, "--format") || fl_args_has(args, "--out")) {
        return fl_fail(FL_EINVAL, "--to exports the model, %s the curves; allowed: one of both",
                       fl_args_has(args, "--out") ? "--out" : "--format");
    }
    FL_TRY(fl_output_folder_check("--to", folder));
    FL_TRY(fl_export_dtype_parse(dtype_name == NULL ? "fp32" : dtype_name, &dtype));
    FL_TRY(fl_saved_model_open(args->operand, checkpoint, &saved, &weights));
    fl_use_say_choice(&saved);
    fl_status status = fl_model_export(&saved, weights, folder, dtype, &result);
    fl_safetensors_close(&weights);
    FL_TRY(status);
    fl_shell_shown(folder, shown, sizeof shown);
    printf("%s/model.safetensors\n%s/config.json\n%d tensors, %" PRId64 " bytes\nweights: %s\n",
           shown, shown, result.n_tensors, result.size_bytes,
           fl_saved_model_origin(&saved, origin));
    return FL_OK;
}

static fl_status export_curves(const fl_args *args)
{
    return fl_args_has(args, "--checkpoint")
               ? fl_fail(FL_EINVAL, "--checkpoint: allowed only with --to, which exports the model")
           : fl_args_has(args, "--dtype")
               ? fl_fail(FL_EINVAL, "--dtype: allowed only with --to, which exports the model")
               : export_run(args->operand, fl_args_value(args, "--format"),
                            fl_args_value(args, "--out"));
}

static int run_export(const fl_args *args)
{
    const char *folder = fl_args_value(args, "--to");
    fl_status status = folder == NULL ? export_curves(args) : export_model(args, folder);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_export = {
    .name = "export",
    .operand = "RUN",
    .summary = "Write a run's curves for TensorBoard or as tables, or its model.",
    .details = "RUN is a run directory, or the name of one or of a job below runs/; of several,\n"
               "the newest. A run that still trains, failed or was stopped is exported as far as\n"
               "it got; a later export replaces an earlier one.\n\n"
               "With --to, the model is exported instead of the curves: model.safetensors and\n"
               "config.json. RUN may then also be a checkpoint or a folder of weights, and DIR\n"
               "must not hold a model. --dtype rounds its numbers to nearest.\n\n"
               "  frostline export runs/first && tensorboard --logdir runs\n"
               "  frostline export runs/first --format csv --out tables\n"
               "  frostline export runs/first --to exported --dtype bf16\n",
    .options = {{"--format", 0, "tensorboard|csv", "of the curves; default: tensorboard"},
                {"--out", 0, "DIR", "where curves go; default: the run directory"},
                {"--to", 0, "DIR", "export the model into this folder"},
                {"--checkpoint", 0, "STEP", "of RUN, for --to: a number of steps, or best"},
                {"--dtype", 0, "fp32|bf16|fp16", "of the model; default: fp32"}},
    .run = run_export,
};
