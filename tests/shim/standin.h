/* A stand-in for the plugin of the CUDA device: the kernels run on the host, in the shim; memory is
 * host memory; streams do their work at the call, or note it while they are captured, with the
 * rules of the runtime for what may be called meanwhile; matrix products are those of a stand-in
 * for cuBLASLt (cublaslt/cublasLt.h). Any call can be made to fail. Threads: any; their calls run
 * one at a time. */
#ifndef FL_TESTS_SHIM_STANDIN_H
#define FL_TESTS_SHIM_STANDIN_H

#include "device/cuda/plugin.h"

/* The driver's memory for each piece of work of a graph. */
enum { STANDIN_NODE_BYTES = 8192 };

/* The table, under the name that a plugin exports it by. */
extern const fl_cuda_plugin fl_cuda_plugin_table;

/* The same. One at a time; what earlier calls set is forgotten. */
const fl_cuda_plugin *standin_plugin(void);

/* How many devices it has, 1 at first; a code: count_devices fails with it. */
void standin_set_devices(int n, int code);

/* What describe_device finds: a mode, and the code that it returns; 0 and 0 at first. */
void standin_set_description(fl_cuda_compute_mode mode, int code);

/* NVLink links these devices (below 16) to each other; island from 1. A device's NUMA node. */
void standin_set_nvlink(const int *devices, int n, int island);
void standin_set_numa(int number, int node);

/* A copy from the memory of a device that NVLink does not link takes so long for each KiB. */
void standin_set_far(int64_t us);

/* What driver_version finds; 13000 at first. */
void standin_set_driver(int version);

/* Events are at the time of their record from now on; before, a millisecond apart. */
void standin_use_real_time(void);

/* What lies between two events that are not in real time, beside their millisecond: so long for
 * each kernel of the device table, and for each launch of a graph; 0 and 0 at first. */
void standin_set_costs(int64_t kernel_us, int64_t graph_us);

/* From now on events in real time see nothing of what a launch of a graph takes, so that graphs are
 * the faster way for certain. */
void standin_make_graphs_fast(void);

/* How much device memory there is; SIZE_MAX at first. */
void standin_set_memory(size_t size_bytes);

/* From now on copies from and to pageable memory of the host fail with `code`; 0: none does. */
void standin_refuse_pageable(int code);

/* From now on cuBLASLt cannot be loaded; `reason` stays the caller's. */
void standin_remove_library(const char *reason);

/* The n-th call of an entry of the table from now on fails with `code`; n = 0: none does. What
 * gives something back does so nevertheless. */
void standin_fail(const char *entry, int n, int code);

/* As a kernel that went wrong on a GPU: from now on every call fails with `code`. What gives
 * something back does so nevertheless. */
void standin_break(int code);

/* Names of the entries that standin_fail knows; NULL behind the last. */
const char *standin_entry(int index);

/* Calls of an entry so far, of all threads; how often this thread has waited for the device. */
int64_t standin_calls(const char *entry);
int64_t standin_host_waits(void);

/* Memory, streams, events, graphs and what the library describes that were not given back. */
int standin_outstanding(void);

/* Exported by the plugin's file, for a library beside it, as NCCL is: if the stream is captured,
 * note run(call), of a copy of call [call_bytes], which other threads' calls run beside.
 * count(call, 1) for each copy that there is, and count(call, -1) at its end. -1: the stream is not
 * captured. */
enum { STANDIN_BESIDE_BYTES = 256 };
__attribute__((visibility("default"))) int
standin_capture_beside(void *stream, int (*run)(void *call), void (*count)(void *call, int change),
                       const void *call, size_t call_bytes);

#endif
