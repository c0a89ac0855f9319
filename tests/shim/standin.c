/* The stand-in itself: its table, which call fails, what tests ask for, and the device. */
#include "tests/shim/capture.h"
#include "tests/shim/cublaslt/cublasLt.h"
#include "tests/shim/parts.h"
#include "tests/shim/standin_parts.h"

#include <stdio.h>
#include <string.h>

standin_state standin;
_Thread_local int64_t standin_waits_here;
pthread_mutex_t standin_one_call = PTHREAD_MUTEX_INITIALIZER;

#define NAME_OF(name, ...) #name,
static const char *const entries[] = {STANDIN_RUNTIME(NAME_OF) FL__CUDA_LAUNCHES(NAME_OF)
                                          STANDIN_LIBRARY(NAME_OF) NULL};
#undef NAME_OF

enum { N_ENTRIES = sizeof entries / sizeof *entries - 1 };

static int64_t n_calls[N_ENTRIES];

enum { N_ISLANDS = 16 };

/* What describe_device and count_devices find. */
static struct {
    int n_devices, devices_code, describe_code;
    fl_cuda_compute_mode mode;
    int driver_version;
    int island[N_ISLANDS]; /* of a device that NVLink links to others; 0: to none */
    int numa[N_ISLANDS];
    bool has_numa;
} surroundings;

static _Thread_local int chosen;

/* Which call fails. */
static struct {
    char entry[64];
    int n, code, broken;
} failing;

/* ---- which call fails ---- */

void standin_end_call(const bool *locked)
{
    if (*locked) {
        pthread_mutex_unlock(&standin_one_call);
    }
}

/* -1: there is no such entry. */
static int number_of(const char *entry)
{
    int i = 0;
    while (i < N_ENTRIES && strcmp(entries[i], entry) != 0) {
        i++;
    }
    return i < N_ENTRIES ? i : -1;
}

int standin_failure_of(const char *entry)
{
    n_calls[number_of(entry)]++;
    if (failing.broken != 0) {
        return failing.broken;
    }
    if (failing.n > 0 && strcmp(entry, failing.entry) == 0 && --failing.n == 0) {
        return failing.code;
    }
    return 0;
}

int standin_note_launch(int code)
{
    failing.broken = code > 0 ? code : failing.broken;
    return code;
}

/* ---- the device ---- */

static const char *error_text(int code)
{
    static char text[700];
    if (code >= FL_CUDA_LIBRARY_CODE) {
        return cublasLtGetStatusString((cublasStatus_t)(code - FL_CUDA_LIBRARY_CODE));
    }
    switch (code) {
    case FL_CUDA_OUT_OF_MEMORY:
        return "out of memory";
    case FL_CUDA_DRIVER_TOO_OLD:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case FL_CUDA_BUSY:
        return "CUDA-capable device(s) is/are busy or unavailable";
    case FL_CUDA_NO_DEVICE:
        return "no CUDA-capable device is detected";
    case FL_CUDA_NO_KERNEL:
        return "no kernel image is available for execution on the device";
    case SHIM_CAPTURE_UNSUPPORTED:
        return "operation not permitted when stream is capturing";
    case SHIM_CAPTURE_INVALIDATED:
        return "operation failed due to a previous error during capture";
    case SHIM_LAUNCH_FAILED:
        snprintf(text, sizeof text, "%s", shim_take_error());
        return text;
    }
    return "another error";
}

int standin__count_devices(int *n)
{
    FAIL_OR_GO_ON("count_devices");
    *n = surroundings.n_devices;
    return surroundings.devices_code;
}

int standin__choose_device(int number)
{
    FAIL_OR_GO_ON("choose_device");
    chosen = number;
    return number >= 0 && number < surroundings.n_devices ? 0 : STANDIN_INVALID_VALUE;
}

int standin_chosen(void)
{
    return chosen;
}

int standin__numa_node(int number, int *node)
{
    FAIL_OR_GO_ON("numa_node");
    *node = number < N_ISLANDS && surroundings.has_numa ? surroundings.numa[number] : -1;
    return 0;
}

bool standin_is_linked(int a, int b)
{
    return a == b || (a < N_ISLANDS && b < N_ISLANDS && surroundings.island[a] > 0 &&
                      surroundings.island[a] == surroundings.island[b]);
}

int standin__find_nvlink(int number, int other, bool *linked)
{
    FAIL_OR_GO_ON("find_nvlink");
    *linked = standin_is_linked(number, other);
    return 0;
}

void standin_set_nvlink(const int *devices, int n, int island)
{
    for (int i = 0; i < n; i++) {
        surroundings.island[devices[i]] = island;
    }
}

void standin_set_numa(int number, int node)
{
    surroundings.has_numa = true;
    surroundings.numa[number] = node;
}

void standin_set_far(int64_t us)
{
    standin.far_us = us;
}

int standin__device_wait(void)
{
    FAIL_OR_GO_ON("device_wait");
    standin_waits_here++;
    return shim_captures_any() ? shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED) : 0;
}

int standin__describe_device(int number, fl_cuda_facts *out)
{
    FAIL_OR_GO_ON("describe_device");
    snprintf(out->name, sizeof out->name, "Stand-in");
    out->capability[0] = 9;
    out->capability[1] = number;
    out->mode = surroundings.mode;
    out->memory_bytes = standin.memory_bytes;
    out->free_bytes = standin.memory_bytes - standin.used_bytes;
    return surroundings.describe_code;
}

int standin__memory_free(size_t *size_bytes)
{
    FAIL_OR_GO_ON("memory_free");
    *size_bytes = standin.memory_bytes - standin.used_bytes;
    return 0;
}

int standin__identify_device(int number, fl_cuda_identity *out)
{
    FAIL_OR_GO_ON("identify_device");
    memset(out, 0, sizeof *out);
    out->bytes[0] = (unsigned char)(number + 1);
    return 0;
}

int standin__driver_version(int *out)
{
    FAIL_OR_GO_ON("driver_version");
    *out = surroundings.driver_version;
    return 0;
}

void standin_set_driver(int version)
{
    surroundings.driver_version = version;
}

/* ---- the table ---- */

const fl_cuda_plugin fl_cuda_plugin_table = {
    .version = FL_CUDA_PLUGIN_VERSION,
    .size_bytes = sizeof(fl_cuda_plugin),
    .kind = "stand-in",
    .error_text = error_text,
#define STANDIN_CASE(name, args) .name = standin__##name,
    STANDIN_RUNTIME(STANDIN_CASE) FL__CUDA_LAUNCHES(STANDIN_CASE) STANDIN_LIBRARY(STANDIN_CASE)
#undef STANDIN_CASE
};

/* ---- what tests ask for ---- */

const fl_cuda_plugin *standin_plugin(void)
{
    surroundings.n_devices = 1;
    surroundings.devices_code = 0;
    surroundings.describe_code = 0;
    surroundings.mode = FL_CUDA_MODE_SHARED;
    surroundings.driver_version = 13000;
    standin.memory_bytes = SIZE_MAX;
    failing.n = 0;
    failing.broken = 0;
    standin.no_library = NULL;
    standin.pageable_code = 0;
    cublaslt_begin("", 0, CUBLAS_STATUS_SUCCESS);
    return &fl_cuda_plugin_table;
}

void standin_set_devices(int n, int code)
{
    surroundings.n_devices = n;
    surroundings.devices_code = code;
}

void standin_set_description(fl_cuda_compute_mode mode, int code)
{
    surroundings.mode = mode;
    surroundings.describe_code = code;
}

void standin_set_costs(int64_t kernel_us, int64_t graph_us)
{
    standin.kernel_us = kernel_us;
    standin.graph_us = graph_us;
}

void standin_use_real_time(void)
{
    standin.real_time = true;
}

void standin_make_graphs_fast(void)
{
    standin.fast_graphs = true;
}

void standin_set_memory(size_t size_bytes)
{
    standin.memory_bytes = size_bytes;
}

void standin_refuse_pageable(int code)
{
    standin.pageable_code = code;
}

void standin_fail(const char *entry, int n, int code)
{
    snprintf(failing.entry, sizeof failing.entry, "%s", entry);
    failing.n = n;
    failing.code = code;
}

void standin_remove_library(const char *reason)
{
    standin.no_library = reason;
}

void standin_break(int code)
{
    failing.broken = code;
}

const char *standin_entry(int index)
{
    return entries[index];
}

int64_t standin_calls(const char *entry)
{
    int number = number_of(entry);
    return number < 0 ? -1 : n_calls[number];
}

int64_t standin_host_waits(void)
{
    return standin_waits_here;
}

int standin_outstanding(void)
{
    return standin.outstanding + cublaslt_outstanding();
}
