#include "launcher/cli/job_context.h"

#include "launcher/job/job.h"
#include "launcher/run/model/instantiate.h"

#include <string.h>

void fl_job_context_fini(fl_job_context *w)
{
    fl_model_destroy(&w->model);
    fl_dataset_destroy(&w->dataset);
}

int fl_job_context_overrides(const fl_args *args, const char *overrides[FL_ARGS_MAX])
{
    int n = 0;
    for (int i = 0; i < args->n_given; i++) {
        if (strcmp(args->given[i].option->name, "--set") == 0) {
            overrides[n++] = args->given[i].value;
        }
    }
    return n;
}

fl_status fl_job_context_make(fl_job_context *w)
{
    return fl_job_locate(&w->job, fl_instantiate(&w->job, &w->model, &w->dataset));
}

fl_status fl_job_context_init(const fl_args *args, fl_job_context *w)
{
    const char *overrides[FL_ARGS_MAX];
    int n = fl_job_context_overrides(args, overrides);
    FL_TRY(fl_job_load(args->operand, overrides, n, &w->job));
    return fl_job_context_make(w);
}

int fl_job_context_finish(fl_status status)
{
    if (status != FL_OK && status != FL_ESTOPPED) {
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}
