/* What the workers and the controller of a prepared run get. */
#include "launcher/run/run_parts.h"

#include "launcher/run/returns.h"

#include <string.h>

bool fl__run_has_snapshots(const fl_preparation *p)
{
    return p->kept != NULL && p->kept->memory.slots != NULL;
}

static bool returns(const fl_preparation *p)
{
    return p->resume != NULL && p->resume->returns;
}

fl_worker_context fl__run_worker_of(fl_preparation *p, fl_run_files *f)
{
    const fl_interval *every = &p->job->checkpoint.every;
    if (returns(p)) {
        f->from = (fl_snapshot_view){.snapshot = &p->kept->memory, .slot = p->kept->slot};
    }
    return (fl_worker_context){.model = p->model,
                               .dataset = p->dataset,
                               .job = p->job,
                               .cores = &p->cores,
                               .host = p->hosts == NULL ? NULL : &p->hosts->host[0],
                               .n_head = p->hosts == NULL ? 0 : p->hosts->host[0].n,
                               .apart = p->hosts != NULL && !p->job->run.shared,
                               .keys = p->hosts == NULL ? NULL : &p->hosts->keys,
                               .devices = &p->devices,
                               .nccl = &p->nccl,
                               .algorithms = p->costs->algorithms,
                               .activations = p->activations,
                               .due = &p->due,
                               .profile = p->profile,
                               .batches = p->batches,
                               .dir_fd = f->dir_fd,
                               .init = &p->init,
                               .saved_fd = fl_resume_has_state(p) ? &p->resume->folder_fd : NULL,
                               .snapshot = fl__run_has_snapshots(p) ? &p->kept->memory : NULL,
                               .from = returns(p) ? &f->from : NULL,
                               .store = &f->store,
                               .checkpoints =
                                   every->ms > 0 || every->steps > 0 || every->epochs > 0,
                               .model_file = p->job->run.save_model ? &f->model : NULL,
                               .n_samples = p->n_samples,
                               .n_validation = p->n_validation,
                               .n_steps = p->n_steps};
}

/* What operators want of a run that goes back. */
static void keep_wishes(const fl_preparation *p, fl_worker_birth *birth)
{
    const fl_lasting *l = p->losses == NULL ? NULL : &p->losses->lasting;
    if (l != NULL && l->any) {
        birth->paused = l->paused;
        birth->lr_factor = l->lr / p->job->train.lr;
        birth->end_step = l->end_step < birth->end_step ? l->end_step : birth->end_step;
    }
}

void fl__run_birth_of(const fl_preparation *p, fl_worker_birth *birth)
{
    if (!fl_resume_has_state(p)) {
        fl_worker_birth_first(p->plan, p->n_steps, birth);
        keep_wishes(p, birth);
        return;
    }
    *birth = p->resume->start;
    birth->plan = *p->plan;
    memcpy(birth->parked, p->resume->checkpoint->controller.parked, sizeof birth->parked);
    memcpy(birth->since, p->resume->checkpoint->controller.since, sizeof birth->since);
    keep_wishes(p, birth);
}

fl_controller_options fl__run_controller_of(fl_preparation *p, fl_run_files *f,
                                            const fl_worker_birth *birth, fl_worker_context *worker)
{
    return (fl_controller_options){.job = p->job,
                                   .model = p->model,
                                   .dataset = p->dataset,
                                   .plan = p->plan,
                                   .birth = birth,
                                   .plan_input = &p->input,
                                   .costs = &p->costs->origin,
                                   .learned = p->learned,
                                   .candidates = p->candidates,
                                   .n_candidates = p->n_candidates,
                                   .activations = p->activations,
                                   .no_cache_why = p->no_cache_why,
                                   .metrics = p->listens ? &p->metrics : NULL,
                                   .run_dir = f->path,
                                   .dir_fd = f->dir_fd,
                                   .job_text = f->job_text,
                                   .checkpoints = &f->store,
                                   .resume = fl_resume_has_state(p) ? p->resume->checkpoint : NULL,
                                   .record_waits =
                                       fl_resume_has_state(p) && !fl_returns_is_begun(p->losses),
                                   .returns = returns(p),
                                   .snapshot = p->kept,
                                   .recovered = p->recovered,
                                   .lasting = p->losses == NULL ? NULL : &p->losses->lasting,
                                   .find_return = p->losses == NULL ? NULL : fl_returns_find,
                                   .begins_again = p->losses == NULL ? NULL : fl_returns_may_follow,
                                   .find_context = p->losses,
                                   .held_ports = p->held_ports,
                                   .origin = p->resume == NULL ? NULL : &p->resume->origin,
                                   .model_file = worker->model_file,
                                   .lead = p->due.lead,
                                   .recording = p->due.recording,
                                   .n_devices = p->n_workers,
                                   .hosts = p->hosts,
                                   .links = p->links,
                                   .n_links = p->n_links,
                                   .starters = p->starters,
                                   .hosts_measured = p->hosts_measured,
                                   .devices = &p->devices,
                                   .kernels = fl_preparation_kernels(p),
                                   .n_samples = p->n_samples,
                                   .n_validation = p->n_validation,
                                   .n_steps = p->n_steps,
                                   .n_epochs = p->job->train.epochs,
                                   .callbacks = p->callbacks,
                                   .worker = fl_worker_run,
                                   .context = worker};
}
