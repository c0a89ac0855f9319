/* ⑤ of launcher/run/run.c: the runs of a program, with its model and its callbacks. */
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/run_parts.h"

#include <stdatomic.h>

/* The record of the run does not claim that the model is one of the job's. */
static fl_status run_program(fl_preparation *p, fl_run_result *result)
{
    fl_job *own = NULL;
    FL_TRY(fl_alloc(sizeof *own, (void **)&own));
    *own = *p->job;
    own->model.kind = FL_MODEL_PROGRAM;
    own->model.plugin[0] = 0;
    own->data.kind = FL_DATA_PROGRAM;
    p->job = own;
    fl_status status = p->resume == NULL ? FL_OK : fl_resume_check_program(p->resume, own);
    if (status == FL_OK) {
        status = fl__run_prepared(p, NULL, result);
    }
    fl_free(own);
    return status;
}

static fl_status resume_program(fl_preparation *p, const char *run_dir, fl_run_result *result)
{
    fl_resume *resume = NULL;
    FL_TRY(fl_alloc(sizeof *resume, (void **)&resume));
    fl_status status = fl_resume_open(run_dir, resume);
    if (status == FL_OK) {
        p->resume = resume;
        status = run_program(p, result);
    }
    fl_failure failure;
    fl_failure_keep(&failure, status);
    fl_resume_close(resume);
    fl_free(resume);
    return fl_failure_raise(&failure);
}

/* Whether a run of this process is in progress: one at a time has the signals and the terminal. */
static atomic_flag in_progress = ATOMIC_FLAG_INIT;

/* run_dir: of the run to continue; NULL: a new one begins. */
static fl_status run_alone(fl_preparation *p, const char *run_dir, const fl_callbacks *callbacks,
                           fl_run_result *result)
{
    if (atomic_flag_test_and_set(&in_progress)) {
        return fl_fail(FL_EBUSY, "a run of this process is in progress: start another one when "
                                 "it has returned; a callback must not call fl_run");
    }
    fl_run_result own;
    fl_failure failure; /* the callback may fail at something, too */
    fl_run_result *r = result != NULL ? result : &own;
    fl__run_init_result(r); /* on_end gets it even if memory for the job runs out */
    p->callbacks = callbacks;
    fl_status status = fl_preparation_check_arguments(p->model, p->dataset, p->job);
    if (status == FL_OK) {
        status = run_dir == NULL ? run_program(p, r) : resume_program(p, run_dir, r);
    }
    fl_failure_keep(&failure, status);
    if (callbacks != NULL && callbacks->on_end != NULL) {
        callbacks->on_end(callbacks->context, status, r);
    }
    atomic_flag_clear(&in_progress);
    return fl_failure_raise(&failure);
}

fl_status fl_run_with(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_callbacks *callbacks, fl_run_result *result)
{
    fl_preparation p = {.model = model, .dataset = dataset, .job = job};
    return run_alone(&p, NULL, callbacks, result);
}

fl_status fl_run_resume(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                        const char *run_dir, const fl_callbacks *callbacks, fl_run_result *result)
{
    fl_preparation p = {.model = model, .dataset = dataset, .job = job};
    return run_alone(&p, run_dir == NULL ? "" : run_dir, callbacks, result);
}

fl_status fl_run(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                 fl_run_result *result)
{
    return fl_run_with(model, dataset, job, NULL, result);
}
