/* frostline run and frostline validate: the same way, to its end or to the last check. */
#include "launcher/cli/cli.h"
#include "launcher/cli/job_context.h"
#include "launcher/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int run(const fl_args *args)
{
    fl_job_context w = {0};
    fl_run_result result;
    fl_status status = fl_job_context_init(args, &w);
    if (status == FL_OK) {
        status = fl_run_in(w.model, &w.dataset, &w.job, fl_args_value(args, "--run-dir"), &result);
    }
    fl_job_context_fini(&w);
    return fl_job_context_finish(status);
}

static void print_good(const char *path, const fl_job_context *w)
{
    const fl_dataset *d = &w->dataset;
    printf("%s: good\n", path);
    printf("  model  %s, %d layers in %d blocks, %" PRId64 " parameters\n", fl_model_name(w->model),
           fl_model_n_layers(w->model), fl_model_n_blocks(w->model), fl_model_n_params(w->model));
    printf("  data   %s, %" PRId64 " samples to train on, %" PRId64 " to test on\n", d->ops->kind,
           d->ops->count(d->self, FL_TRAIN), d->ops->count(d->self, FL_TEST));
}

static int validate(const fl_args *args)
{
    fl_job_context w = {0};
    fl_status status = fl_job_context_init(args, &w);
    if (status == FL_OK) {
        status = fl_check(w.model, &w.dataset, &w.job);
    }
    if (status == FL_OK) {
        print_good(args->operand, &w);
    }
    fl_job_context_fini(&w);
    return fl_job_context_finish(status);
}

const fl_cli_command fl_cli_command_run = {
    .name = "run",
    .operand = "JOB.yaml",
    .summary = "Train the model that a job file describes.",
    .details = "Starts one worker process a device, shows the progress, and leaves everything\n"
               "about the run in a directory of its own. Ctrl-C ends it after the step in\n"
               "flight, a second one at once.\n",
    .options = {{"--run-dir", 0, "DIR", "the run directory; default: RUN.DIR/NAME-DATE-TIME"},
                {"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"}},
    .run = run,
};

const fl_cli_command fl_cli_command_validate = {
    .name = "validate",
    .operand = "JOB.yaml",
    .summary = "Check a job file, its model, data and plan, and start nothing.",
    .details = "Makes every check that run makes before it starts a process.\n",
    .options = {{"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"}},
    .run = validate,
};
