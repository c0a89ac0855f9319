/* frostline predict: what a saved model says of each sample, as lines of JSON. */
#include "device/text/plural.h"
#include "device/text/shell_text.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/output_path.h"
#include "launcher/cli/use_args.h"
#include "launcher/run/pass_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Where the lines go: standard output, or a file that gets its name when it is complete. */
typedef struct prediction_file {
    const char *path; /* NULL: standard output */
    int fd;
    char part[PATH_MAX];
} prediction_file;

static fl_status open_output(const char *path, prediction_file *out)
{
    *out = (prediction_file){.path = path, .fd = STDOUT_FILENO};
    if (path == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_output_path_check("--out", path));
    int n = snprintf(out->part, sizeof out->part, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof out->part) {
        return fl_fail(FL_EINVAL, "--out: the path %.64s... is too long", path);
    }
    out->fd = open(out->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return out->fd >= 0 ? FL_OK : fl_fail(FL_EIO, "--out: %s: %s", path, strerror(errno));
}

static fl_status keep_output(const prediction_file *out)
{
    return out->path == NULL || (fsync(out->fd) == 0 && rename(out->part, out->path) == 0)
               ? FL_OK
               : fl_fail(FL_EFAILED, "%s could not be written: %s", out->path, strerror(errno));
}

static fl_status predict_into(fl_use *use, const prediction_file *out)
{
    const fl_pass_request request = {.task = FL_WORKER_PREDICT,
                                     .verb = isatty(out->fd) ? NULL : "predicting",
                                     .out_fd = out->fd,
                                     .out = out->path == NULL ? "standard output" : out->path};
    fl_pass_result result;
    FL_TRY(fl_pass_run(use, &request, &result));
    FL_TRY(keep_output(out));
    if (out->path != NULL) {
        char origin[FL_SAVED_ORIGIN_MAX], lines[FL_COUNT_BYTES], path[FL_SHELL_PATH_BYTES];
        printf("%s: %s\nweights: %s\n", fl_shell_shown(out->path, path, sizeof path),
               fl_count(result.outcome.n_samples, "line", lines),
               fl_saved_model_origin(&use->saved, origin));
    }
    return FL_OK;
}

static fl_status predict_samples(const fl_args *args, fl_use *use)
{
    prediction_file out;
    FL_TRY(fl_use_open_args(args, true, use));
    fl_status status = open_output(fl_args_value(args, "--out"), &out);
    if (status != FL_OK) {
        return status;
    }
    fl_use_unlink_at_signal(out.part);
    status = predict_into(use, &out);
    fl_use_unlink_at_signal(NULL);
    if (out.path != NULL) {
        (void)unlink(out.part); /* unless it has its name by now */
        close(out.fd);
    }
    return status;
}

static int run_predict(const fl_args *args)
{
    fl_use use = {0};
    fl_status status = predict_samples(args, &use);
    fl_use_fini(&use);
    return fl_use_finish(status);
}

const fl_cli_command fl_cli_command_predict = {
    .name = "predict",
    .operand = "MODEL [JOB.yaml]",
    .takes_more = true,
    .summary = "Write the output of a saved model for each sample, as JSON.",
    .details = FL_USE_DETAILS
    "One line for each sample, in the order of the ids: id, label (if it is known),\n"
    "prediction and scores; of a language model, one for each line of the text: its\n"
    "tokens and its perplexity. The samples need no labels. Without --out the lines\n"
    "are written to standard output as they come; FILE is written whole or not at\n"
    "all.\n\n"
    "  frostline predict runs/first | head -n 3\n"
    "  frostline predict exported --data images --out predictions.jsonl\n",
    .options = {FL_USE_OPTIONS,
                {"--out", 0, "FILE", "write to this file; default: standard output"}},
    .run = run_predict,
};
