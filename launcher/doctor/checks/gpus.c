/* GPUs and NCCL, which child processes look at. */
#include "launcher/doctor/checks/doctor.h"

#include "autodp/nccl/library.h"
#include "device/cuda/cuda.h"
#include "device/machine/survey.h"
#include "device/text/size_text.h"

#include <stdlib.h>
#include <string.h>

/* Two GPUs or more exchange data faster over NCCL; a job may insist on it. */
static fl_verdict judge_nccl(const fl_job *job, const fl_nccl_trial *nccl, int n_devices)
{
    bool wanted = job->devices.kind == FL_DEVICE_CUDA && job->autodp.transport == FL_TRANSPORT_NCCL;
    if (fl_nccl_is_usable(nccl)) {
        return FL_VERDICT_OK;
    }
    return wanted ? FL_VERDICT_ERROR : n_devices > 1 ? FL_VERDICT_WARNING : FL_VERDICT_OK;
}

static void look_at_nccl(const fl_job *job, const fl_device_survey *devices, fl_nccl_trial *nccl,
                         fl_findings *findings)
{
    char version[FL_NCCL_VERSION_TEXT];
    if (fl_nccl_try("cuda", devices->driver_version, FL_NCCL_TRIAL_MS, nccl) != FL_OK) {
        fl_nccl_refuse(nccl, "%s", fl_errmsg());
    }
    fl_verdict verdict = judge_nccl(job, nccl, devices->n);
    fl_finding *f = fl_finding_add(
        findings, verdict, "NCCL", "%s",
        fl_nccl_is_usable(nccl) ? fl_nccl_version_text(nccl->version, version) : nccl->reason);
    if (verdict != FL_VERDICT_OK) {
        fl_finding_advise(f, verdict == FL_VERDICT_ERROR
                                 ? "see docs/nccl.md; or autodp.transport: auto"
                                 : "without it GPUs exchange data through host memory; see "
                                   "docs/nccl.md");
    }
}

/* No job is at fault here. */
static const char *without_field(const char *message)
{
    static const char field[] = "devices.kind: ";
    size_t n = sizeof field - 1;
    return strncmp(message, field, n) == 0 ? message + n : message;
}

/* Most hosts have no GPU, and most jobs want none. Who names a plugin has them in mind. */
static fl_verdict judge_missing(bool wanted)
{
    const char *named = getenv("FROSTLINE_CUDA_PLUGIN");
    if (wanted) {
        return FL_VERDICT_ERROR;
    }
    return named != NULL && named[0] != '\0' ? FL_VERDICT_WARNING : FL_VERDICT_OK;
}

void fl_doctor_look_at_gpus(const fl_job *job, fl_nccl_trial *nccl, fl_findings *findings)
{
    bool wanted = job->devices.kind == FL_DEVICE_CUDA;
    const fl_device_demand demand = {.kind = FL_DEVICE_CUDA, .budget_bytes = 0};
    fl_device_survey devices;
    if (fl_device_survey_make(&demand, &devices) != FL_OK) {
        fl_finding *f = fl_finding_add(findings, judge_missing(wanted), "GPUs", "%s",
                                       without_field(fl_errmsg()));
        fl_finding_advise(f, wanted ? "see docs/cuda.md; or devices.kind: cpu"
                                    : "only needed for jobs with devices.kind: cuda");
        return;
    }
    for (int i = 0; i < devices.n; i++) {
        char memory[FL_SIZE_TEXT_MAX];
        fl_finding_add(findings, FL_VERDICT_OK, "GPUs", "%d: %s, %s", i, devices.device[i].name,
                       fl_size_text((double)devices.device[i].memory_bytes, memory));
    }
    look_at_nccl(job, &devices, nccl, findings);
}
