#include "launcher/work.h"

#include "launcher/build.h"
#include "launcher/job.h"

#include <string.h>

void fl_work_fini(fl_work *w)
{
    fl_model_destroy(&w->model);
    fl_dataset_destroy(&w->dataset);
}

fl_status fl_work_init(const fl_args *args, fl_work *w)
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

int fl_work_finish(fl_status status)
{
    if (status != FL_OK && status != FL_ESTOPPED) {
        status = fl_job_locate(status);
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}
