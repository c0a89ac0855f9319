/* frostline run and frostline validate: the same way, to its end or to the last check. */
#include "launcher/build.h"
#include "launcher/cli.h"
#include "launcher/job.h"
#include "launcher/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A job with what it builds. */
typedef struct work {
    fl_job job;
    fl_model *model;
    fl_dataset dataset;
} work;

static void work_fini(work *w)
{
    fl_model_destroy(&w->model);
    fl_dataset_destroy(&w->dataset);
}

static fl_status work_init(const fl_args *args, work *w)
{
    const char *overrides[FL_ARGS_MAX];
    int n = 0;
    for (int i = 0; i < args->n_given; i++) {
        if (strcmp(args->given[i].option->name, "--set") == 0) {
            overrides[n++] = args->given[i].value;
        }
    }
    FL_TRY(fl_job_load(args->operand, overrides, n, &w->job));
    return fl_build(&w->job, &w->model, &w->dataset);
}

/* Say what went wrong, with its place in the job; returns the exit code. */
static int finish(fl_status status)
{
    if (status != FL_OK && status != FL_ESTOPPED) {
        status = fl_job_locate(status);
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}

static int run(const fl_args *args)
{
    work w = {0};
    fl_run_result result;
    fl_status status = work_init(args, &w);
    if (status == FL_OK) {
        status = fl_run_in(w.model, &w.dataset, &w.job, fl_args_value(args, "--run-dir"), &result);
    }
    work_fini(&w);
    return finish(status);
}

static void print_good(const char *path, const work *w)
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
    work w = {0};
    fl_status status = work_init(args, &w);
    if (status == FL_OK) {
        status = fl_check(w.model, &w.dataset, &w.job);
    }
    if (status == FL_OK) {
        print_good(args->operand, &w);
    }
    work_fini(&w);
    return finish(status);
}

const fl_command fl_command_run = {
    .name = "run",
    .operand = "JOB.yaml",
    .summary = "Train the model that a job file describes.",
    .details =
        "Starts one worker process a device, shows the progress, and leaves everything about\n"
        "the run in a directory of its own. Ctrl-C ends it after the step in flight, a second\n"
        "one at once.\n",
    .options = {{"--run-dir", 0, "DIR", "the run directory; default: RUN.DIR/NAME-DATE-TIME"},
                {"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"}},
    .run = run,
};

const fl_command fl_command_validate = {
    .name = "validate",
    .operand = "JOB.yaml",
    .summary = "Check a job file, its model, its data and its plan, and start nothing.",
    .details = "Makes every check that run makes before it starts a process.\n",
    .options = {{"--set", 0, "PATH=VALUE", "override a field, as in --set pipe.k=2; repeatable"}},
    .run = validate,
};
