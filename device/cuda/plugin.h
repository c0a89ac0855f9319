/* What the CUDA device needs of a GPU: one table of functions, which a plugin exports. The plugin
 * holds the kernels and thin wrappers of the CUDA runtime; the program, which is free of CUDA, has
 * the device itself (device/cuda/cuda.h). In tests a table that executes on the host takes its
 * place (tests/shim/standin.h). */
#ifndef FL_DEVICE_CUDA_PLUGIN_H
#define FL_DEVICE_CUDA_PLUGIN_H

#include "device/cuda/launches.h"

#include <stdint.h>

/* Goes up when the table, launches.h or an argument of a kernel changes. */
enum { FL_CUDA_PLUGIN_VERSION = 11 };

/* The name of the table in the plugin's file. */
#define FL_CUDA_PLUGIN_TABLE "fl_cuda_plugin_table"

/* Codes of the CUDA runtime that the device tells apart from others. */
enum {
    FL_CUDA_OK = 0,
    FL_CUDA_OUT_OF_MEMORY = 2,
    FL_CUDA_DRIVER_TOO_OLD = 35,
    FL_CUDA_BUSY = 46,
    FL_CUDA_NO_DEVICE = 100,
    FL_CUDA_NO_KERNEL = 209
};

/* Codes from here on are those of cuBLASLt, plus this. */
enum { FL_CUDA_LIBRARY_CODE = 100000 };

/* Which processes may use a device at the same time, as the runtime numbers it. */
typedef enum fl_cuda_compute_mode {
    FL_CUDA_MODE_SHARED = 0,
    FL_CUDA_MODE_ONE_THREAD = 1,
    FL_CUDA_MODE_PROHIBITED = 2,
    FL_CUDA_MODE_ONE_PROCESS = 3
} fl_cuda_compute_mode;

enum { FL_CUDA_NAME_BYTES = 256 };

typedef struct fl_cuda_facts {
    char name[FL_CUDA_NAME_BYTES]; /* "NVIDIA H100 80GB HBM3" */
    int capability[2];             /* major, minor */
    fl_cuda_compute_mode mode;
    size_t memory_bytes, free_bytes; /* in all; that no process holds */
} fl_cuda_facts;

/* No two devices have the same; what CUDA calls its UUID. */
typedef struct fl_cuda_identity {
    unsigned char bytes[16];
} fl_cuda_identity;

/* Names exported memory to other processes; the runtime's own form. */
typedef struct fl_cuda_handle {
    unsigned char bytes[64];
} fl_cuda_handle;

/* Each function returns 0 or an error code. Handles are the runtime's own. Threads: any, as the
 * runtime allows it; what a thread calls is for the device that it chose last. */
typedef struct fl_cuda_plugin {
    uint32_t version;    /* FL_CUDA_PLUGIN_VERSION */
    uint32_t size_bytes; /* of this struct */
    const char *kind;    /* "cuda" */

    const char *(*error_text)(int code);
    int (*count_devices)(int *n);
    int (*choose_device)(int number); /* for this thread */
    /* Fills *out from the top, so that after an error the first fields are valid. It fails where
     * this plugin's kernels cannot run on the device, or this process cannot use it now. */
    int (*describe_device)(int number, fl_cuda_facts *out);

    int (*numa_node)(int number, int *node); /* of its processors; -1: unknown */
    /* Whether NVLink links these two: each reaches the other's memory, and with atomic operations
     */
    int (*find_nvlink)(int number, int other, bool *linked);

    int (*identify_device)(int number, fl_cuda_identity *out);
    int (*driver_version)(int *out); /* of the newest CUDA that it can run: 13000 is 13.0 */

    int (*device_wait)(void); /* the host waits for all streams of it */

    int (*memory_take)(size_t size_bytes, void **out); /* 256-aligned, not cleared */
    /* The same, where possible as memory that NCCL can register (*registers). */
    int (*pool_take)(size_t size_bytes, void **out, bool *registers);
    int (*memory_give)(void *memory);       /* of both */
    int (*memory_free)(size_t *size_bytes); /* of the device, that no process holds */
    /* CUDA IPC: the base of an allocation, for other processes of the machine, and theirs here */
    int (*ipc_export)(void *memory, fl_cuda_handle *out);
    int (*ipc_open)(const fl_cuda_handle *handle, void **out);
    int (*ipc_close)(void *memory);

    int (*host_take)(size_t size_bytes, void **out); /* pinned, not cleared */
    int (*host_give)(void *memory);
    /* lock the pages of memory that the caller has; read_only: it may not be written */
    int (*host_pin)(void *memory, size_t size_bytes, bool read_only);
    int (*host_unpin)(void *memory);

    /* Queued in the stream. The runtime finds out where both sides of a copy lie. */
    int (*copy)(void *stream, void *to, const void *from, size_t n);
    int (*fill_zero)(void *stream, void *to, size_t n);

    int (*stream_create)(void **out); /* in no order with any other */
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream); /* the host waits */
    int (*event_create)(void **out);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event); /* the host waits */
    int (*stream_wait_event)(void *stream, void *event);
    int (*event_elapsed)(const void *from, const void *to, float *ms);
    int (*event_reached)(void *event, bool *reached);

    /* CUDA graphs. Between capture_begin and capture_end, which one thread calls, the stream's work
     * is noted and not done; capture_end ends the capture in any case. Other threads may use the
     * device meanwhile, but none may wait for all of it. */
    int (*capture_begin)(void *stream);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_destroy)(void *graph);
    int (*graph_nodes)(void *graph, size_t *n); /* its kernels, copies and fills */
    int (*graph_instantiate)(void *graph, void **executable);
    /* the work of `graph` takes the place of its own; it fails for a graph of another form */
    int (*graph_update)(void *executable, void *graph);
    int (*graph_launch)(void *executable, void *stream);
    int (*executable_destroy)(void *executable);

#define FL__CUDA_ENTRY(kernel, args) int (*kernel)(fl__cuda_queue * q, const args *a);
    FL__CUDA_LAUNCHES(FL__CUDA_ENTRY)
#undef FL__CUDA_ENTRY
    /* cuBLASLt (device/cuda/cublaslt.h) */
    int (*library_open)(bool tf32, fl__cuda_library **out, const char **reason);
    int (*library_close)(fl__cuda_library *library);
    int (*library_multiply)(fl__cuda_library *library, fl__cuda_queue *q,
                            const fl__cuda_product *p);
    int (*library_save)(fl__cuda_library *library, char *text, size_t size_bytes,
                        size_t *needed_bytes);
    int (*library_load)(fl__cuda_library *library, const char *text, int *n_taken);

    int (*add_to_sum)(fl__cuda_queue *q, double value, double *sum);
    int (*adamw_many)(fl__cuda_queue *q, const fl_update *list, int n, const fl_adamw_step *step);
    int (*sgd_many)(fl__cuda_queue *q, const fl_update *list, int n, const fl_sgd_step *step);
    int (*sum_squares_many)(fl__cuda_queue *q, const fl_square_sum *list, int n);
} fl_cuda_plugin;

#endif
