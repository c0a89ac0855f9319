/* The checks and plans of a job without a run: the first two steps of run.c. */
#include "launcher/run/plan/islands.h"
#include "launcher/run/plan/kinds.h"
#include "launcher/run/plan/preparation.h"
#include "launcher/run/plan/run_plan.h"
#include "launcher/run/run.h"

#include "device/errors/failure.h"
#include "launcher/job/job.h"

/* hosts, cluster: NULL: this machine alone. */
static void take_hosts(fl_preparation *p, const fl_hosts *hosts, const fl_cluster_file *cluster)
{
    p->hosts = hosts;
    p->cluster = hosts == NULL ? NULL : &cluster->cluster;
    p->cluster_file = hosts == NULL ? NULL : cluster;
}

fl_status fl_check(const fl_model *model, const fl_dataset *dataset, const fl_job *job)
{
    return fl_check_on_hosts(model, dataset, job, NULL, NULL);
}

fl_status fl_check_on_hosts(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                            const fl_hosts *hosts, const fl_cluster_file *cluster)
{
    fl_preparation p = {.model = model, .dataset = dataset, .job = job};
    take_hosts(&p, hosts, cluster);
    FL_TRY(fl_preparation_check_arguments(model, dataset, job));
    fl_status status = fl_preparation_check(&p);
    if (status == FL_OK) {
        fl_run_plan_guess(&p);
        status = fl_run_plan_choose(&p, 0);
    }
    if (status == FL_OK) {
        status = fl_run_kinds_use(&p); /* profiles that are stated can be used */
    }
    if (status == FL_OK) {
        fl_preparation_warn(&p);
    }
    fl_preparation_fini(&p);
    return fl_job_locate(job, status);
}

/* FL_OK if a plan fits for any of frozen [n]; otherwise the first failure. */
static fl_status some_fit(fl_preparation *p, const int *frozen, int n)
{
    fl_failure first;
    fl_status status = fl_run_plan_choose(p, frozen[0]);
    fl_failure_keep(&first, status);
    for (int i = 1; status == FL_EBUDGET && i < n; i++) {
        status = fl_run_plan_choose(p, frozen[i]);
    }
    return status == FL_OK ? FL_OK : fl_failure_raise(&first);
}

/* From here on, plans are for the devices of the cluster. */
static void take_cluster(fl_preparation *p, const fl_cluster_file *file)
{
    if (file != NULL) {
        p->cluster = &file->cluster;
        p->cluster_file = file;
        p->n_workers = p->n_ranks = p->batches->stores.n_workers = file->cluster.n_devices;
    }
}

static void tell_links(const fl_preparation *p, const fl_plan_request *request)
{
    if (p->cluster != NULL && p->cluster->n_hosts > 1) {
        fl_link_cost link = fl_cluster_link(p->cluster, p->profile, FL_LINK_HOSTS);
        request->between_hosts(request->context, &link,
                               fl_costs_origin_of_link(p->cluster, p->profile, FL_LINK_HOSTS));
    }
}

static fl_status plan_each(fl_preparation *p, const fl_plan_request *request)
{
    FL_TRY(fl_preparation_check(p));
    FL_TRY(fl_run_plan_open_cache(p));
    fl_run_plan_guess(p);
    fl_run_plan_seat(p);
    fl_costs_options costs = fl_run_plan_costs(p, request->profile);
    if (request->hosts == NULL) {
        take_cluster(p, request->cluster);
    }
    FL_TRY(some_fit(p, request->frozen, request->n));
    FL_TRY(fl_costs_get(&costs, p->costs, p->profile));
    FL_TRY(fl_run_kinds_use(p));
    FL_TRY(fl_run_islands_use(p));
    request->costs(request->context, &p->costs->origin);
    request->devices(request->context, &p->devices, costs.n_workers);
    tell_links(p, request);
    for (int i = 0; i < request->n; i++) {
        fl_status status = fl_run_plan_choose(p, request->frozen[i]);
        if (status != FL_OK && status != FL_EBUDGET) {
            return status;
        }
        p->plan->F = request->frozen[i];
        request->seen(request->context, p->plan, status == FL_OK ? NULL : fl_errmsg(),
                      p->candidates, status == FL_OK ? p->n_candidates : 0);
    }
    return FL_OK;
}

fl_status fl_plan_job(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_plan_request *request)
{
    fl_preparation p = {.model = model, .dataset = dataset, .job = job};
    take_hosts(&p, request->hosts, request->cluster);
    FL_TRY(fl_preparation_check_arguments(model, dataset, job));
    fl_status status = plan_each(&p, request);
    fl_preparation_fini(&p);
    return fl_job_locate(job, status);
}
