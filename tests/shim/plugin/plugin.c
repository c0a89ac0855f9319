/* The stand-in as a plugin's file, so that whole runs use it. FROSTLINE_STANDIN, in the environment
 * of the process that loads it, has its options, separated by commas:
 *   devices=N           how many devices there are
 *   count_code=N        count_devices fails with this code
 *   describe_code=N     describe_device does
 *   mode=N              their compute mode
 *   driver=N            the version of its driver, as 13000
 *   nvlink=0-2:1-3      which devices NVLink links to each other
 *   numa=0:0:1:1        the NUMA nodes of the devices
 *   far=US              a copy from a device that NVLink does not link takes so long for each KiB
 *   memory=N            bytes of memory of each
 *   fail=ENTRY:N:CODE   the N-th call of an entry fails
 *   graphs=fast         for events, a launch of a graph takes no time
 *   pageable=CODE       copies from and to pageable memory of the host fail
 *   asked=PATH          each question to cuBLASLt's heuristic adds a byte to this file
 *   version=N           of cuBLASLt
 *   die=N               the process is killed by this signal when the plugin is loaded */
#include "tests/shim/cublaslt/cublasLt.h"
#include "tests/shim/standin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MEMORY_BYTES = (size_t)16 << 30;

typedef struct options {
    int devices, count_code, describe_code, mode;
    size_t memory_bytes;
} options;

static void read_fault(char *text)
{
    const char *entry = strsep(&text, ":");
    const char *n = strsep(&text, ":");
    standin_fail(entry, n == NULL ? 1 : atoi(n), text == NULL ? 1 : atoi(text));
}

static void read_nvlink(char *text)
{
    for (int island = 1; text != NULL; island++) {
        char *devices = strsep(&text, ":");
        while (devices != NULL) {
            int device = atoi(strsep(&devices, "-"));
            standin_set_nvlink(&device, 1, island);
        }
    }
}

static void read_option(const char *name, char *value, options *o)
{
    if (strcmp(name, "devices") == 0) {
        o->devices = atoi(value);
    } else if (strcmp(name, "count_code") == 0) {
        o->count_code = atoi(value);
    } else if (strcmp(name, "describe_code") == 0) {
        o->describe_code = atoi(value);
    } else if (strcmp(name, "mode") == 0) {
        o->mode = atoi(value);
    } else if (strcmp(name, "driver") == 0) {
        standin_set_driver(atoi(value));
    } else if (strcmp(name, "memory") == 0) {
        o->memory_bytes = strtoull(value, NULL, 10);
    } else if (strcmp(name, "fail") == 0) {
        read_fault(value);
    } else if (strcmp(name, "nvlink") == 0) {
        read_nvlink(value);
    } else if (strcmp(name, "numa") == 0) {
        for (int number = 0; value != NULL; number++) {
            standin_set_numa(number, atoi(strsep(&value, ":")));
        }
    } else if (strcmp(name, "far") == 0) {
        standin_set_far(atoi(value));
    } else if (strcmp(name, "graphs") == 0 && strcmp(value, "fast") == 0) {
        standin_make_graphs_fast();
    } else if (strcmp(name, "pageable") == 0) {
        standin_refuse_pageable(atoi(value));
    } else if (strcmp(name, "asked") == 0) {
        cublaslt_log(value);
    } else if (strcmp(name, "version") == 0) {
        cublaslt_set_version(strtoul(value, NULL, 10));
    } else if (strcmp(name, "die") == 0) {
        raise(atoi(value));
    } else {
        fprintf(stderr, "FROSTLINE_STANDIN: there is no option '%s'\n", name);
        abort();
    }
}

__attribute__((constructor)) static void read_environment(void)
{
    char text[8192] = "", *rest = text, *part;
    const char *given = getenv("FROSTLINE_STANDIN");
    options o = {.devices = 1, .memory_bytes = MEMORY_BYTES};
    (void)standin_plugin();
    standin_use_real_time();
    snprintf(text, sizeof text, "%s", given == NULL ? "" : given);
    while ((part = strsep(&rest, ",")) != NULL) {
        char *value = strchr(part, '=');
        if (value != NULL) {
            *value++ = '\0';
            read_option(part, value, &o);
        }
    }
    standin_set_devices(o.devices, o.count_code);
    standin_set_description((fl_cuda_compute_mode)o.mode, o.describe_code);
    standin_set_memory(o.memory_bytes);
}
