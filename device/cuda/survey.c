/* Which devices of a machine a job can use. */
#include "device/cuda/cuda.h"
#include "device/errors/failure.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"

#include <stdio.h>

enum {
    MIB = 1 << 20,
    WORKSPACE_BYTES = 2 * 32 * MIB, /* of two streams: cuBLASLt may ask so much for each */
    MESSAGE_BYTES = 32 * MIB,       /* the last part of messages, which lie in whole 2 MiB */
    TRANSFER_BYTES = 8 * MIB,       /* of weights and moments on their way to another worker */
};

/* What a worker takes of the device beside its budget, at most. bf16 copies of weights lie in the
 * budget. */
static const size_t BESIDE_BYTES =
    WORKSPACE_BYTES + MESSAGE_BYTES + TRANSFER_BYTES + FL_DEVICE_GRAPH_ROOM_BYTES;

/* Of a process that uses the device: kernels, stacks, the driver's own. The process that looks has
 * one of its own while it does, so the first worker's is not in the free memory any more. */
static const size_t CONTEXT_BYTES = (size_t)512 << 20;

/* "CUDA device 0 (NVIDIA H100 80GB HBM3, compute capability 9.0)"; the name may be unknown. */
static const char *describe(int number, const fl_cuda_facts *facts, char text[384])
{
    int n = snprintf(text, 384, "CUDA device %d", number);
    if (facts->name[0] != '\0') {
        snprintf(text + n, 384 - (size_t)n, " (%s, compute capability %d.%d)", facts->name,
                 facts->capability[0], facts->capability[1]);
    }
    return text;
}

static fl_status refuse_device(const fl_cuda_plugin *plugin, const char *device, int code)
{
    const char *why = code == FL_CUDA_OUT_OF_MEMORY ? "it has no memory left for another process"
                      : code == FL_CUDA_BUSY ? "another process uses it alone (exclusive mode)"
                      : code == FL_CUDA_NO_KERNEL
                          ? "this build of the plugin has no kernels for its compute capability"
                          : "it cannot be used";
    return fl_fail(FL_ENOTSUP, "%s: %s: %s (CUDA error %d)", device, why, plugin->error_text(code),
                   code);
}

static const char *count_field(const fl_device_demand *demand)
{
    return demand->count_field == NULL ? "devices.count" : demand->count_field;
}

static fl_status check_count(int n, int n_workers, const fl_device_demand *demand)
{
    char gpus[FL_COUNT_BYTES];
    return n_workers <= n
               ? FL_OK
               : fl_fail_field(
                     FL_ENOTSUP, FL_FIELDS(count_field(demand)),
                     "found %d devices, but there %s %s, or CUDA_VISIBLE_DEVICES shows no "
                     "more; allowed: at most %d",
                     n_workers, n == 1 ? "is" : "are", fl_count(n, "GPU", gpus), n);
}

static fl_status check_mode(const char *device, fl_cuda_compute_mode mode, int n_workers,
                            const fl_device_demand *demand)
{
    if (mode == FL_CUDA_MODE_PROHIBITED) {
        return fl_fail(FL_ENOTSUP,
                       "%s: no process may use it (compute mode prohibited); `nvidia-smi -c 0` "
                       "allows it",
                       device);
    }
    if (mode != FL_CUDA_MODE_SHARED && n_workers > 1) {
        return fl_fail_field(FL_ENOTSUP, FL_FIELDS(count_field(demand)),
                             "%s: %d workers would share it, but it is in exclusive mode; allowed: "
                             "one worker for each device, or `nvidia-smi -c 0` first",
                             device, n_workers);
    }
    return FL_OK;
}

static fl_status check_memory(const char *device, const fl_cuda_facts *facts, int n_workers,
                              const fl_device_demand *demand)
{
    size_t budget_bytes = demand->budget_bytes;
    char free_text[FL_SIZE_TEXT_MAX], all[FL_SIZE_TEXT_MAX], each[FL_SIZE_TEXT_MAX];
    char workers[FL_COUNT_BYTES], beside[FL_SIZE_TEXT_MAX];
    size_t n = (size_t)n_workers, besides = n * BESIDE_BYTES + (n - 1) * CONTEXT_BYTES;
    if (besides <= facts->free_bytes && budget_bytes <= (facts->free_bytes - besides) / n) {
        return FL_OK;
    }
    return fl_fail_field(
        FL_ENOTSUP, FL_FIELDS("devices.memory", count_field(demand)),
        "%s of %s each, and %s for their workspaces and processes, but %s of %s "
        "are free on %s",
        fl_count(n_workers, "worker", workers), fl_size_text((double)budget_bytes, each),
        fl_size_text((double)besides, beside), fl_size_text((double)facts->free_bytes, free_text),
        fl_size_text((double)facts->memory_bytes, all), device);
}

/* n_workers: those that would use this device */
static fl_status survey_device(const fl_cuda_plugin *plugin, int number, int n_workers,
                               const fl_device_demand *demand, fl_device_facts *out)
{
    char device[384];
    fl_cuda_facts facts = {0};
    int code = plugin->describe_device(number, &facts);
    describe(number, &facts, device);
    FL_TRY(check_mode(device, facts.mode, n_workers, demand));
    if (code != FL_CUDA_OK) {
        return refuse_device(plugin, device, code);
    }
    FL_TRY(check_memory(device, &facts, n_workers, demand));
    snprintf(out->name, sizeof out->name, "%s", facts.name);
    out->memory_bytes = facts.memory_bytes;
    if (plugin->numa_node(number, &out->numa) != FL_CUDA_OK) {
        out->numa = -1;
    }
    return FL_OK;
}

static fl_status find_driver(const fl_cuda_plugin *plugin, int *version)
{
    int code = plugin->driver_version(version);
    return code == FL_CUDA_OK
               ? FL_OK
               : fl_fail(FL_ENOTSUP, "the driver does not tell its version: %s (CUDA error %d)",
                         plugin->error_text(code), code);
}

/* A link that cannot be asked about counts as none: it is measured as what is left. */
static void find_links(const fl_cuda_plugin *plugin, int n, fl_device_survey *out)
{
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            bool linked = false;
            int code = a == b ? FL_CUDA_OK : plugin->find_nvlink(a, b, &linked);
            out->nvlink[a][b] = code == FL_CUDA_OK && linked;
        }
    }
}

fl_status fl_cuda_survey(const fl_cuda_plugin *plugin, const fl_device_demand *demand,
                         fl_device_survey *out)
{
    int n = 0;
    FL_TRY(fl_cuda_check(plugin, &n));
    FL_TRY(find_driver(plugin, &out->driver_version));
    n = n > FL_SURVEY_DEVICES_MAX ? FL_SURVEY_DEVICES_MAX : n;
    int n_workers = demand->n_workers == 0 ? n : demand->n_workers;
    FL_TRY(demand->apart ? check_count(n, n_workers, demand) : FL_OK);
    n = n_workers < n ? n_workers : n;
    for (int i = 0; i < n; i++) {
        int sharers = (n_workers - i + n - 1) / n; /* workers i, i + n, i + 2 n, ... */
        FL_TRY(survey_device(plugin, i, sharers, demand, &out->device[i]));
    }
    find_links(plugin, n, out);
    out->kind = FL_DEVICE_CUDA;
    out->n = n;
    return FL_OK;
}
