/* A CUDA device is looked at in a child process, which answers in memory that both share. */
#include "device/machine/survey.h"

#include "device/async/async.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "device/errors/failure.h"
#include "device/system/child.h"
#include "device/text/plural.h"

#include <stdio.h>
#include <string.h>

/* The first process that uses a GPU may wait for its driver to start. */
enum { LOOK_MS = 120000 };

typedef struct cuda_look {
    const fl_device_demand *demand;
    struct {
        char plugin[FL_CUDA_PATH_BYTES]; /* the file that it uses, once that is known */
        bool done;
        fl_failure failure; /* status FL_OK: survey is valid */
        fl_device_survey survey;
    } * answer;
} cuda_look;

static fl_status survey_cuda(const cuda_look *look)
{
    const fl_cuda_plugin *plugin;
    FL_TRY(fl_cuda_plugin_locate(look->answer->plugin));
    FL_TRY(fl_cuda_plugin_open(look->answer->plugin, &plugin));
    return fl_cuda_survey(plugin, look->demand, &look->answer->survey);
}

static void look_at_cuda(void *context)
{
    const cuda_look *look = context;
    fl_status status = survey_cuda(look);
    fl_failure_keep(&look->answer->failure, status);
    __atomic_store_n(&look->answer->done, true, __ATOMIC_RELEASE);
}

static fl_status judge_end(const cuda_look *look, const fl_child_end *end)
{
    if (__atomic_load_n(&look->answer->done, __ATOMIC_ACQUIRE)) {
        return fl_failure_raise(&look->answer->failure);
    }
    char process[FL_CUDA_PATH_BYTES + 64];
    snprintf(process, sizeof process, "the process that looked for CUDA devices with %s",
             look->answer->plugin);
    return fl_child_refuse(process, end, LOOK_MS);
}

static fl_status look_in_child(cuda_look *look)
{
    fl_child_end end;
    FL_TRY(fl_child_run("CUDA devices", look_at_cuda, look, LOOK_MS, &end));
    return judge_end(look, &end);
}

/* A failure that names no field of the job is about the kind of device. */
static fl_status name_field(fl_status status)
{
    if (status == FL_OK || fl_failure_field(0) != NULL) {
        return status;
    }
    return fl_fail_field(status, FL_FIELDS("devices.kind"), "%s", fl_errmsg());
}

static fl_status make_cuda(const fl_device_demand *demand, fl_device_survey *out)
{
    cuda_look look = {.demand = demand};
    FL_TRY(fl_child_memory_take("CUDA devices", sizeof *look.answer, (void **)&look.answer));
    fl_status status = name_field(look_in_child(&look));
    if (status == FL_OK) {
        *out = look.answer->survey;
    }
    fl_child_memory_give(look.answer, sizeof *look.answer);
    return status;
}

fl_status fl_device_survey_make(const fl_device_demand *demand, fl_device_survey *out)
{
    *out = (fl_device_survey){.kind = demand->kind};
    switch (demand->kind) {
    case FL_DEVICE_CPU:
        return FL_OK;
    case FL_DEVICE_ASYNC_TEST:
        return fl_async_options_of_environment(&(fl_async_options){0});
    case FL_DEVICE_CUDA:
        return make_cuda(demand, out);
    }
    return fl_fail(FL_ENOTSUP, "no device of kind %d in this build", (int)demand->kind);
}

int fl_device_survey_number(const fl_device_survey *survey, int rank)
{
    return survey->n == 0 || rank < survey->first ? 0 : (rank - survey->first) % survey->n;
}

/* How many devices from the first on have its name. */
static int count_alike(const fl_device_survey *survey, int first)
{
    int n = 1;
    while (first + n < survey->n &&
           strcmp(survey->device[first + n].name, survey->device[first].name) == 0) {
        n++;
    }
    return n;
}

const char *fl_device_survey_text(const fl_device_survey *survey, char text[FL_SURVEY_TEXT_BYTES])
{
    size_t used = 0;
    char cpu[128];
    if (survey->n == 0) {
        snprintf(text, FL_SURVEY_TEXT_BYTES, "%s, %s", fl_device_cpu_name(cpu, sizeof cpu),
                 fl_device_cpu_isa());
        return text;
    }
    for (int i = 0; i < survey->n && used < FL_SURVEY_TEXT_BYTES; i += count_alike(survey, i)) {
        used +=
            (size_t)snprintf(text + used, FL_SURVEY_TEXT_BYTES - used, "%s%d x %s",
                             i == 0 ? "" : ", ", count_alike(survey, i), survey->device[i].name);
    }
    return text;
}

const char *fl_device_survey_line(const fl_device_survey *survey, int n_workers,
                                  char text[FL_SURVEY_TEXT_BYTES])
{
    char devices[FL_SURVEY_TEXT_BYTES], workers[FL_COUNT_BYTES], rule[48] = "";
    text[0] = '\0';
    if (survey->n > 1) {
        snprintf(rule, sizeof rule, ", worker w on GPU w %% %d", survey->n);
    }
    if (survey->n > 0) {
        snprintf(text, FL_SURVEY_TEXT_BYTES, "%s on %s%s", fl_count(n_workers, "worker", workers),
                 fl_device_survey_text(survey, devices), rule);
    }
    return text;
}
