#include "launcher/run/joined/joined_measure.h"

#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/run/joined/joined_open.h"
#include "launcher/run/model/instantiate.h"
#include "launcher/run/plan/preparation.h"
#include "launcher/run/plan/run_plan.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It lasts until the process ends. */
typedef struct measurer {
    const fl_host_measure_order *order;
    const fl_curve_keys *keys;
    int dir_fd;
    fl_job job;
    fl_model *model;
    fl_dataset dataset;
    fl_preparation p;
} measurer;

/* Where the hosts share no files, paths are relative to the agent's own folder. */
static fl_status load_job(measurer *m, int job_fd)
{
    const fl_host_measure_order *o = m->order;
    FL_TRY(fl_joined_read_job(job_fd, o->job_bytes, &m->job));
    if (m->job.run.shared) {
        FL_TRY(fl_joined_open_shared(o->run_dir, NULL, o->cwd, m->keys, &m->dir_fd));
    }
    return fl_instantiate(&m->job, &m->model, &m->dataset);
}

static fl_status measure_costs(measurer *m, int job_fd, char **text, size_t *n)
{
    cpu_set_t before;
    FL_TRY(load_job(m, job_fd));
    m->p = (fl_preparation){
        .model = m->model, .dataset = &m->dataset, .job = &m->job, .joined = &m->order->host};
    FL_TRY(fl_preparation_check(&m->p));
    fl_cores_take(FL_CORES_NAME, m->order->host.n * (int)m->job.devices.cores, &m->p.cores);
    fl_cores_confine(&m->p.cores, &before);
    const fl_costs_options costs = fl_run_plan_costs(&m->p, NULL);
    fl_costs_find(&costs, m->p.costs);
    FL_TRY(fl_costs_measure(&costs, m->p.costs, m->p.profile));
    return fl_profile_print(&m->p.costs->key, m->model, m->p.profile, &m->p.costs->about, text, n);
}

static void tell_profile(int socket, uint64_t number, const char *text, size_t n)
{
    for (size_t at = 0; at < n; at += FL_HOST_PROFILE_PIECE) {
        fl_host_message m = {.type = FL_HOST_PROFILE, .profile = fl_host_profile_cut(text, n, at)};
        m.profile.number = number;
        fl_relay_tell_head(socket, &m);
    }
}

void fl_joined_measure(void *context, const fl_host_measure_order *order, int job_fd, int socket)
{
    measurer *m = NULL;
    char *text = NULL;
    size_t n = 0;
    fl_log_level_set(FL_LOG_ERROR); /* the start of the run warns of the job */
    fl_status status = fl_alloc(sizeof *m, (void **)&m);
    if (status == FL_OK) {
        m->order = order;
        m->keys = context;
        status = measure_costs(m, job_fd, &text, &n);
    }
    if (status == FL_OK && n > FL_HOST_PROFILE_BYTES) {
        status = fl_fail(FL_EINVAL, "a profile of %zu bytes, allowed: at most %d", n,
                         FL_HOST_PROFILE_BYTES);
    }
    if (status == FL_OK) {
        tell_profile(socket, order->number, text, n);
    } else {
        fl_host_message why = {.type = FL_HOST_UNMEASURED, .unmeasured = {.number = order->number}};
        snprintf(why.unmeasured.text, sizeof why.unmeasured.text, "%s", fl_errmsg());
        fl_relay_tell_head(socket, &why);
        if (m == NULL || fl_job_locate(&m->job, status) != FL_OK) {
            fl_log(FL_LOG_ERROR, "what layers cost on this host was not measured: %s", fl_errmsg());
        }
    }
    free(text);
}
