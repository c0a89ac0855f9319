/* What one job needs of this host. */
#include "launcher/doctor/checks/doctor.h"

#include "control/observe/metrics/metrics_http.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"
#include "launcher/job/job.h"
#include "launcher/run/checks/loopback.h"
#include "launcher/run/hosts/host_address.h"
#include "launcher/run/joined/host_facts.h"
#include "launcher/run/machine/job_demand.h"
#include "launcher/run/plan/kinds.h"
#include "launcher/run/plan/preparation.h"
#include "launcher/run/plan/run_plan.h"
#include "pipe/cost/plan.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

void fl_doctor_judge_memory(int64_t memory_bytes, int n_workers, int64_t available_bytes,
                            fl_findings *findings)
{
    char workers[FL_COUNT_BYTES], needed[FL_SIZE_TEXT_MAX], available[FL_SIZE_TEXT_MAX];
    bool little = available_bytes > 0 && memory_bytes > available_bytes;
    fl_finding *f = fl_finding_add(
        findings, little ? FL_VERDICT_ERROR : FL_VERDICT_OK, "job memory",
        "%s of this host: about %s are needed; %s are available",
        fl_count(n_workers, "worker", workers), fl_size_text((double)memory_bytes, needed),
        available_bytes == 0 ? "an unknown number of bytes"
                             : fl_size_text((double)available_bytes, available));
    if (little) {
        fl_finding_advise(f, "end other programs, raise the limit of the control group, or lower "
                             "the number of workers of this host (devices.count of the job, or "
                             "devices of its entry in hosts), train.batch or the size of the "
                             "model");
    }
}

/* The largest stage of the chosen plan, for each worker of this host with a stage. */
static int64_t count_memory(const fl_preparation *p, int *n_workers)
{
    fl_grid grid = fl_plan_grid(p->plan);
    const fl_host *own = fl_preparation_own_host(p);
    *n_workers = 0;
    for (int at = 0; at < grid.K * grid.R; at++) {
        int rank = p->plan->rank_of[at];
        *n_workers += own == NULL || (rank >= own->first && rank < own->first + own->n);
    }
    for (int i = 0; i < p->n_candidates; i++) {
        if (fl_grid_is_same(p->candidates[i].grid, grid)) {
            return p->candidates[i].memory_bytes * *n_workers;
        }
    }
    return 0;
}

/* The workers of this host that the job may have; of a job that is not fit, those that it states.
 */
static int count_workers(const fl_preparation *p)
{
    const fl_host *own = fl_preparation_own_host(p);
    return own != NULL ? own->n : p->n_ranks > 0 ? p->n_ranks : (int)p->job->devices.count;
}

static void compare_demand(const fl_preparation *p, const fl_host_limits *machine,
                           fl_findings *findings)
{
    char text[2][FL_FINDING_TEXT];
    int n_workers;
    char plan[256];
    fl_job_demand_compare(machine, p->job, fl_preparation_own_host(p), p->n_ranks, text[0], text[1],
                          sizeof text[0]);
    fl_finding_add(findings, FL_VERDICT_OK, "job plan",
                   "%s, if all layers cost what their parameters do",
                   fl_plan_text(p->plan, plan, sizeof plan));
    for (int i = 0; i < 2; i++) {
        if (text[i][0] != '\0') {
            fl_finding_add(findings, FL_VERDICT_WARNING, "job", "%s", text[i]);
        }
    }
    if (p->job->devices.kind != FL_DEVICE_CUDA) {
        int64_t bytes = count_memory(p, &n_workers);
        fl_doctor_judge_memory(bytes, n_workers, machine->available_bytes, findings);
    }
}

/* The address that other programs reach the run at. */
static void look_at_control(const fl_job *job, fl_findings *findings)
{
    if (job->control.listen[0] == '\0') {
        return;
    }
    void *context = zmq_ctx_new();
    void *socket = context == NULL ? NULL : zmq_socket(context, ZMQ_REP);
    if (socket != NULL && zmq_bind(socket, job->control.listen) == 0) {
        fl_finding_add(findings, FL_VERDICT_OK, "job ports", "control.listen: %s is free",
                       job->control.listen);
    } else {
        fl_finding *f =
            fl_finding_add(findings, FL_VERDICT_ERROR, "job ports", "control.listen: %s: %s",
                           job->control.listen, zmq_strerror(errno));
        fl_finding_advise(f, "end the program that has the port, or name another one");
    }
    if (socket != NULL) {
        zmq_close(socket);
    }
    if (context != NULL) {
        zmq_ctx_term(context);
    }
}

static void look_at_metrics(const fl_job *job, fl_findings *findings)
{
    fl_metrics_listener listener;
    if (job->control.metrics[0] == '\0') {
        return;
    }
    if (fl_metrics_listen(job->control.metrics, &listener) == FL_OK) {
        fl_finding_add(findings, FL_VERDICT_OK, "job ports", "control.metrics: %s is free",
                       job->control.metrics);
        fl_metrics_listener_close(&listener);
    } else {
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "job ports",
                                       "control.metrics: %s", fl_errmsg());
        fl_finding_advise(f, "end the program that has the port, or name another one");
    }
}

void fl_doctor_look_at_loopback(const fl_preparation *p, const char *address, fl_findings *findings)
{
    fl_host own = *fl_preparation_own_host(p);
    fl_preparation placed = *p;
    fl_loopback_fault fault;
    placed.joined = &own;
    if (fl_host_address(address, own.address) != FL_OK || !fl_host_address_is_own(own.address) ||
        fl_loopback_works(&placed, &fault)) {
        return;
    }
    fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, FL_DOCTOR_SOCKETS, "host %s: %s",
                                   own.name, fault.found);
    fl_finding_advise(f, "a run refuses this host: %s", fault.mend);
}

void fl_doctor_look_at_job(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                           const fl_planned_hosts *planned, const fl_nccl_trial *nccl,
                           fl_host_facts *facts, fl_findings *findings)
{
    fl_preparation p = {.model = model, .dataset = dataset, .job = job};
    if (planned != NULL) {
        p.hosts = &planned->hosts;
        p.cluster_file = &planned->file;
        p.cluster = &planned->file.cluster;
    }
    fl_host_limits machine;
    fl_host_facts own;
    p.tried = fl_nccl_was_tried(nccl) ? nccl : NULL;
    fl_host_limits_read("", &machine);
    fl_status status = fl_preparation_check_arguments(model, dataset, job);
    if (status == FL_OK) {
        status = fl_preparation_check(&p);
    }
    if (status == FL_OK) {
        fl_run_plan_guess(&p);
        status = fl_run_plan_choose(&p, 0);
    }
    if (status == FL_OK) {
        status = fl_run_plan_check_transport(&p);
    }
    if (status == FL_OK) {
        status = fl_run_kinds_use(&p); /* profiles that are stated can be used */
    }
    if (status == FL_OK) {
        status = fl_host_facts_make(&p, &own);
    }
    if (fl_job_locate(job, status) != FL_OK || p.plan == NULL) { /* no plan without a failure */
        fl_finding *f = fl_finding_add(findings, FL_VERDICT_ERROR, "job", "%s", fl_errmsg());
        fl_finding_advise(f, "change the job, or override the field with --set");
    } else {
        *facts = own;
        fl_finding_add(findings, FL_VERDICT_OK, "job", "model, data and devices fit each other");
        compare_demand(&p, &machine, findings);
        if (planned != NULL) {
            fl_doctor_look_at_loopback(&p, planned->file.address[0], findings);
        }
    }
    fl_doctor_compare_sockets(NULL, count_workers(&p), findings);
    fl_preparation_fini(&p);
    look_at_control(job, findings);
    look_at_metrics(job, findings);
}
