#include "launcher/run/plan/run_plan.h"

#include "device/device.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/machine/host_limits.h"
#include "device/machine/sockets.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/run/plan/found_kinds.h"
#include "launcher/run/plan/islands.h"
#include "launcher/run/plan/kinds.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/plan/run_survey.h"
#include "nn/model.h"

#include <sched.h>

static const double GUESSED_CALL_US = 20.0; /* so that small micro-batches do not look free */

/* Workers compute on processors of their own, or share GPUs: then a GPU counts as the processors of
 * one worker. */
static int count_processors(const fl_preparation *p)
{
    if (p->hosts != NULL) {
        return p->n_workers * (int)p->job->devices.cores;
    }
    return p->devices.n > 0 ? p->devices.n * (int)p->job->devices.cores
                            : fl_host_limits_processors();
}

static void set_input(fl_preparation *p, int F)
{
    p->input = (fl_plan_input){.model = p->model,
                               .job = p->job,
                               .profile = p->profile,
                               .n_processors = count_processors(p),
                               .memory_one = p->memory_one,
                               .ragged = p->ragged,
                               .batches = p->batches,
                               .n_workers = p->n_workers,
                               .F = F,
                               .generation = 1,
                               .cluster = p->cluster,
                               .cached_read = p->activations == NULL ? NULL : &p->profile->read};
}

bool fl_run_plan_pool(const fl_preparation *p, fl_worker_pool *out)
{
    bool lacks = false;
    *out = (fl_worker_pool){.limit = 0};
    for (int i = 0; p->hosts != NULL && i < p->hosts->n; i++) {
        const fl_host *host = &p->hosts->host[i];
        for (int rank = host->first; host->absent && rank < host->first + host->n; rank++) {
            out->drained[rank] = lacks = true;
        }
    }
    for (int rank = p->hosts == NULL ? p->n_ranks : fl_hosts_n_ranks(p->hosts); rank < p->n_ranks;
         rank++) {
        out->drained[rank] = true; /* of hosts that may join */
    }
    return lacks;
}

/* Without the hosts that the run has lost, with K and R of the job as far as the others suffice. */
static fl_status choose_without(fl_preparation *p, const fl_worker_pool *usable)
{
    fl_job *job = NULL;
    fl_plan_input input = p->input;
    FL_TRY(fl_alloc(sizeof *job, (void **)&job));
    *job = *p->job;
    fl_worker_pool_loosen(job, fl_worker_pool_count(usable, p->n_workers));
    input.job = job;
    fl_status status = fl_worker_pool_choose_listed(
        usable, &input, p->plan, p->candidates, FL_PREPARATION_CANDIDATES_MAX, &p->n_candidates);
    fl_free(job);
    return status;
}

fl_status fl_run_plan_choose(fl_preparation *p, int F)
{
    fl_capacity capacity;
    fl_worker_pool usable;
    set_input(p, F);
    FL_TRY(fl_run_plan_pool(p, &usable)
               ? choose_without(p, &usable)
               : fl_plan_choose(&p->input, p->plan, p->candidates, FL_PREPARATION_CANDIDATES_MAX,
                                &p->n_candidates));
    FL_TRY(fl_capacity_of_plan(p->batches, p->plan, &capacity));
    return fl_capacity_check_rows(p->sizes, &capacity);
}

void fl_run_plan_guess(fl_preparation *p)
{
    p->profile->n_layers = fl_model_n_layers(p->model);
    p->profile->link_bytes_per_us = 1000.0;
    p->profile->reduce_bytes_per_us = 1000.0;
    for (int i = 0; i < p->profile->n_layers; i++) {
        int64_t n = fl_model_layer_n_params(p->model, i);
        p->profile->layer[i] = (fl_layer_cost){.fwd_call_us = GUESSED_CALL_US,
                                               .bwd_call_us = GUESSED_CALL_US,
                                               .fwd_us = 1e-3 * (double)(n + 1),
                                               .bwd_us = 2e-3 * (double)(n + 1),
                                               .n_params = n};
    }
}

/* Workers of this host, which run at once. */
static int count_here(const fl_preparation *p)
{
    const fl_host *own = fl_preparation_own_host(p);
    return own != NULL ? own->n : p->n_workers;
}

fl_costs_options fl_run_plan_costs(const fl_preparation *p, const char *only)
{
    return (fl_costs_options){.model = p->model,
                              .dataset = p->dataset,
                              .job = p->job,
                              .memory_one = p->memory_one,
                              .sizes = p->sizes->equal ? NULL : p->sizes,
                              .devices = &p->devices,
                              .nccl = &p->nccl,
                              .n_workers = count_here(p),
                              .only = only};
}

/* Workers of GPUs have islands of these. */
static void seat(fl_preparation *p, const int *cpu, int n_cpus)
{
    if (fl_device_kind_has_host_memory(p->job->devices.kind)) {
        fl_sockets_seat("", cpu, n_cpus, (int)p->job->devices.cores, count_here(p), &p->devices);
    }
}

void fl_run_plan_seat(fl_preparation *p)
{
    int cpu[FL_SURVEY_PROCESSORS_MAX];
    seat(p, cpu, fl_processors_list(cpu));
}

/* The processors of all workers, until the end of the run. Where there are not enough for those
 * that the run may grow by, the ones that it begins with have theirs. */
static void take_cores(fl_preparation *p)
{
    int cores = (int)p->job->devices.cores;
    int n_ranks = p->hosts == NULL ? p->n_ranks : p->hosts->host[0].n;
    fl_cores_take(FL_CORES_NAME, n_ranks * cores, &p->cores);
    if (p->cores.n == 0 && p->n_ranks > p->n_workers) {
        fl_cores_take(FL_CORES_NAME, p->n_workers * cores, &p->cores);
    }
    if (p->cores.n_shared > 0 && !fl_resume_goes_back(p)) {
        fl_log(FL_LOG_WARN, "%d of the %d processors that this run uses are another run's, too",
               p->cores.n_shared, p->cores.n);
    }
    seat(p, p->cores.cpu, p->cores.n);
}

static fl_status get_costs(fl_preparation *p)
{
    cpu_set_t before;
    fl_costs_options costs = fl_run_plan_costs(p, NULL);
    costs.run_dir = p->resume == NULL ? NULL : p->resume->dir;
    if (p->guesses_costs) {
        fl_costs_find(&costs, p->costs);
        return FL_OK;
    }
    if (fl_found_kinds_are_wanted(p)) { /* it measures while other hosts do */
        p->own_costs_unknown = !fl_costs_look(&costs, p->costs, p->profile);
        return FL_OK;
    }
    fl_cores_confine(&p->cores, &before);
    fl_status status = fl_costs_get(&costs, p->costs, p->profile);
    p->nccl = p->costs->nccl;
    (void)sched_setaffinity(0, sizeof before, &before);
    return status;
}

fl_status fl_run_plan_open_cache(fl_preparation *p)
{
    fl_store_map map = {.n_workers = p->n_ranks};
    for (; p->hosts != NULL && map.n_hosts < p->hosts->n; map.n_hosts++) {
        map.first[map.n_hosts] = p->hosts->host[map.n_hosts].first;
    }
    map.n_ranks = p->hosts == NULL ? 0 : fl_hosts_n_ranks(p->hosts);
    FL_TRY(fl_activations_create(p->model, p->dataset, p->job, p->n_samples, p->n_steps, &map, 0,
                                 p->hosts == NULL ? p->n_ranks : p->hosts->host[0].n,
                                 &p->activations, p->no_cache_why, sizeof p->no_cache_why));
    if (p->activations != NULL) {
        p->batches->stores = p->activations->map;
    }
    return FL_OK;
}

static fl_status open_metrics(fl_preparation *p)
{
    if (p->job->control.metrics[0] == 0) {
        return FL_OK;
    }
    FL_TRY(fl_metrics_listen(p->job->control.metrics, &p->metrics));
    p->listens = true;
    return FL_OK;
}

/* 0: the caller's own data set has no fingerprint. */
static uint64_t fingerprint_of(const fl_dataset *d)
{
    return d->ops->fingerprint == NULL ? 0 : d->ops->fingerprint(d->self);
}

static fl_status read_recording(fl_preparation *p)
{
    fl_recording_facts facts = {.job = p->job,
                                .n_layers = fl_model_n_layers(p->model),
                                .n_devices = p->n_workers,
                                .n_ranks = p->n_ranks,
                                .n_samples = p->n_samples,
                                .n_steps = p->n_steps,
                                .data_fingerprint = fingerprint_of(p->dataset),
                                .kernels = fl_preparation_kernels(p)};
    return p->recorded_dir == NULL ? FL_OK
                                   : fl_recording_read(p->recorded_dir, &facts, &p->recording);
}

/* Where no part of the job gives a worker without a stage work later, start without such workers.
 * Otherwise they stand by: a freeze, the script, the loss of another worker or `frostline ctl
 * scale` may give them one. Ranks beyond devices.count have no process until `frostline ctl scale`
 * wants them. */
static void choose_members(fl_preparation *p)
{
    const fl_job *job = p->job;
    bool gives_work = p->hosts != NULL || job->elastic.n_script > 0 ||
                      job->freeze.policy != FL_FREEZE_NONE || job->elastic.enabled ||
                      job->fault.on_loss == FL_ON_LOSS_CONTINUE;
    int n_members = gives_work ? p->n_workers : p->plan->K * p->plan->R;
    p->plan->n_workers = p->n_ranks > p->n_workers ? p->n_ranks : n_members;
    for (int rank = n_members; rank < p->plan->n_workers; rank++) {
        p->plan->departed[rank] = true;
    }
    fl_worker_pool usable;
    for (int rank = 0; fl_run_plan_pool(p, &usable) && rank < n_members; rank++) {
        p->plan->departed[rank] = usable.drained[rank];
    }
}

fl_status fl_run_plan_check_transport(const fl_preparation *p)
{
    const fl_plan *plan = p->plan;
    int n = plan->K * plan->R;
    if (p->job->autodp.transport != FL_TRANSPORT_NCCL || p->hosts != NULL || p->devices.n == 0) {
        return FL_OK;
    }
    for (int i = 0; i < n; i++) {
        for (int j = i + 1; j < n; j++) {
            int a = plan->rank_of[i], b = plan->rank_of[j];
            int device = fl_device_survey_number(&p->devices, a);
            if (device == fl_device_survey_number(&p->devices, b)) {
                return fl_fail_field(FL_ENOTSUP, FL_FIELDS("autodp.transport", "devices.count"),
                                     "found nccl, but workers %d and %d share GPU %d, which NCCL "
                                     "refuses; allowed: auto or host, or at most %d workers",
                                     a, b, device, p->devices.n);
            }
        }
    }
    return FL_OK;
}

static fl_status choose_first(fl_preparation *p)
{
    FL_TRY(fl_run_plan_choose(p, p->F));
    if (p->recorded_dir != NULL) {
        *p->plan = p->recording.first;
        return FL_OK;
    }
    choose_members(p);
    return FL_OK;
}

/* The plan of a run that continues. */
static fl_status choose_next(fl_preparation *p)
{
    int F = p->resume->checkpoint->plan.F;
    set_input(p, F);
    bool kept = fl_resume_keeps_plan(p->resume, p);
    if (!kept) {
        FL_TRY(fl_run_plan_choose(p, F));
        choose_members(p);
    }
    fl_resume_take_plan(p->resume, p, kept, p->plan);
    return FL_OK;
}

/* Whether any plan fits, before costs are measured. */
static fl_status check_fit(fl_preparation *p)
{
    fl_run_plan_guess(p);
    if (!fl_resume_has_state(p)) {
        return fl_run_plan_choose(p, p->F);
    }
    set_input(p, p->resume->checkpoint->plan.F);
    return fl_resume_keeps_plan(p->resume, p) ? FL_OK : fl_run_plan_choose(p, p->input.F);
}

fl_status fl_run_plan_make(fl_preparation *p)
{
    FL_TRY(read_recording(p)); /* first refuse what cannot run, before measuring takes time */
    FL_TRY(fl_run_plan_open_cache(p));
    FL_TRY(check_fit(p));
    if (!fl_resume_goes_back(p)) {
        fl_preparation_warn(p);
    }
    FL_TRY(open_metrics(p));
    take_cores(p);
    FL_TRY(get_costs(p));
    fl_found_kinds_use_links(p);
    FL_TRY(
        fl_run_kinds_use(p)); /* profiles that are stated and cannot be used end the start here */
    return fl_run_survey_is_wanted(p) ? FL_OK : fl_run_plan_settle(p);
}

fl_status fl_run_plan_settle(fl_preparation *p)
{
    FL_TRY(fl_run_kinds_use(p));
    FL_TRY(fl_run_islands_use(p));
    FL_TRY(fl_resume_has_state(p) ? choose_next(p) : choose_first(p));
    FL_TRY(fl_run_plan_check_transport(p));
    p->input.n_workers = p->plan->n_workers; /* later plans are made for the ranks of this one */
    return FL_OK;
}
