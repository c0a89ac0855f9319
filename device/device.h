/* A device: memory under a budget, streams, events, kernels; a const table of functions a kind.
 *
 * Work given to a stream runs in order; a function may return before the work is done, and an error
 * of the work itself may come from a later call on the same stream, `sync` at the latest. Streams
 * are in no order with each other: an event recorded in one and waited for by the other makes one.
 * A stream of NULL is the device's default stream, which is a stream like any other.
 *
 * Only the device reads and writes its memory. Where `host_memory` is true, the host may do so as
 * well once it has waited for the work in question; everywhere else the host copies.
 * Kinds: cpu (device/cpu: a kernel has finished when it returns), async-test (device/async: the
 * same results as a GPU computes them, for tests), cuda (device/cuda: an NVIDIA GPU), null (plans
 * memory: kernels do nothing, memory costs nothing). docs/device.md explains the contract to those
 * who write another. */
#ifndef FL_DEVICE_DEVICE_H
#define FL_DEVICE_DEVICE_H

#include "device/system/shared.h"
#include "device/updates.h"

#include <frostline/kernels.h>
#include <frostline/status.h>

#include <stdbool.h>

typedef struct fl_device fl_device;
typedef struct fl_stream fl_stream;
typedef struct fl_event fl_event;
typedef struct fl_graph fl_graph;

/* Goes up when the table below changes, so that a device of another build is refused by name. */
enum { FL_DEVICE_OPS_VERSION = 8 };

/* A stream as a library sees one that queues work of its own in it, such as NCCL. */
typedef struct fl_native {
    void *stream;       /* the runtime's own handle */
    uint64_t hardware;  /* the device itself: two processes on one device have the same; never 0 */
    int driver_version; /* the newest CUDA that its driver can run: 13000 is 13.0. 0: no driver */
    bool registers; /* a library may register its memory, for other devices to reach it directly */
} fl_native;

/* What the kernels' arguments mean: frostline/kernels.h. Lists (fl_update, fl_square_sum) are host
 * memory that a call reads before it returns. */
typedef struct fl_device_ops {
    uint32_t version;    /* FL_DEVICE_OPS_VERSION */
    uint32_t size_bytes; /* of this struct */
    const char *kind;
    bool host_memory; /* device memory is host memory */
    bool has_graphs;  /* work can be captured */

    fl_status (*memory_take)(fl_device *d, size_t size_bytes, void **out); /* cleared, 64-aligned */
    /* the same, but nothing is held before it is touched */
    fl_status (*memory_reserve)(fl_device *d, size_t size_bytes, void **out);
    void (*memory_give)(fl_device *d, void *memory, size_t size_bytes);
    /* as memory_reserve, but other processes can look into it, unless *shared becomes NULL */
    fl_status (*memory_share)(fl_device *d, size_t size_bytes, void **out, fl_shared **shared);
    /* the same for a device that does not compute in host memory: `copy` in other processes of this
     * machine, with a device of the same kind, can read it. *shared names it to them, and is the
     * caller's; memory_give gives the memory back. Outside the budget. FL_ENOTSUP: it cannot */
    fl_status (*memory_export)(fl_device *d, size_t size_bytes, void **out, fl_shared **shared);
    /* look at size_bytes that process `pid` has exported; FL_EIO, FL_ENOTSUP */
    fl_status (*view_open)(fl_device *d, int64_t pid, const fl_shared_key *key, size_t size_bytes,
                           fl_shared_view *out);
    void (*view_close)(fl_device *d, fl_shared_view *view); /* all zero is fine */
    /* host memory that copies to and from the device run at full speed with (pinned), cleared,
     * 64-aligned; outside the device's budget */
    fl_status (*host_take)(fl_device *d, size_t size_bytes, void **out);
    void (*host_give)(fl_device *d, void *memory, size_t size_bytes);
    /* Lock the pages of other host memory, so that copies run at full speed with it too; read_only:
     * it may not be written. No byte of it is locked already. Copies work without it; FL_ENOTSUP */
    fl_status (*host_pin)(fl_device *d, void *memory, size_t size_bytes, bool read_only);
    void (*host_unpin)(fl_device *d, void *memory); /* its copies are done */

    /* The host's side of a copy, of any host memory, belongs to the copy until it is done. */
    fl_status (*copy_in)(fl_device *d, fl_stream *s, void *to, const void *from_host, size_t n);
    fl_status (*copy_out)(fl_device *d, fl_stream *s, void *to_host, const void *from, size_t n);
    fl_status (*copy)(fl_device *d, fl_stream *s, void *to, const void *from, size_t n);
    fl_status (*fill_zero)(fl_device *d, fl_stream *s, void *to, size_t n);

    /* Never NULL when created. Destroying one waits for its work. *s becomes NULL; NULL is fine. */
    fl_status (*stream_create)(fl_device *d, fl_stream **out);
    void (*stream_destroy)(fl_device *d, fl_stream **s);
    fl_status (*sync)(fl_device *d, fl_stream *s);

    /* An event is a point in a stream's work; it is reached when all work before it is done. It may
     * be recorded again. One that was never recorded counts as reached. */
    fl_status (*event_create)(fl_device *d, fl_event **out);
    void (*event_destroy)(fl_device *d, fl_event **e);
    fl_status (*event_record)(fl_device *d, fl_event *e, fl_stream *s);
    fl_status (*event_wait)(fl_device *d, fl_event *e);                /* the host waits */
    fl_status (*stream_wait)(fl_device *d, fl_stream *s, fl_event *e); /* later work of s waits */
    /* between two events that were recorded and reached, microseconds */
    fl_status (*event_elapsed)(fl_device *d, const fl_event *from, const fl_event *to, double *us);
    fl_status (*event_reached)(fl_device *d, fl_event *e, bool *reached); /* does not wait */

    /* The stream for a library that this process has loaded. Afterwards, what the calling thread
     * asks of the library is for this device. FL_ENOTSUP: no library can use it. */
    fl_status (*stream_native)(fl_device *d, fl_stream *s, fl_native *out);

    /* Work that is captured once and launched many times as one, which costs the host less than all
     * its calls. Between capture_begin and capture_end, which one thread calls, the stream does
     * nothing: kernels, copies on the device and fill_zero are noted, with their arguments as they
     * are now; any other call for the stream fails, and capture_end as well. Memory and weights
     * that the work uses outlive the graph. Their values may change: the work reads what is there
     * when it runs. */
    fl_status (*capture_begin)(fl_device *d, fl_stream *s);
    /* End the capture in any case. *graph is NULL, or a graph of this stream that gets the new work
     * in place of its own; NULL after a failure. */
    fl_status (*capture_end)(fl_device *d, fl_stream *s, fl_graph **graph);
    /* On the stream that it was captured in. It may fail where the work does not fit the device any
     * more; then nothing was queued, and a new capture may succeed. */
    fl_status (*graph_launch)(fl_device *d, fl_stream *s, fl_graph *graph);
    void (*graph_destroy)(fl_device *d, fl_graph **graph); /* its launches are done; NULL is fine */
    void (*destroy)(fl_device *d);

    /* release what fl_weight.pack holds */
    void (*weight_release)(fl_device *d, fl_weight *w);

    fl_status (*linear)(fl_device *d, fl_stream *s, const fl_linear_args *a);
    fl_status (*linear_backward_input)(fl_device *d, fl_stream *s,
                                       const fl_linear_backward_input_args *a);
    fl_status (*linear_backward_weights)(fl_device *d, fl_stream *s,
                                         const fl_linear_backward_weights_args *a);
    fl_status (*activate)(fl_device *d, fl_stream *s, const fl_activate_args *a);
    fl_status (*activate_backward)(fl_device *d, fl_stream *s, const fl_activate_backward_args *a);
    fl_status (*layernorm)(fl_device *d, fl_stream *s, const fl_norm_args *a);
    fl_status (*layernorm_backward)(fl_device *d, fl_stream *s, const fl_norm_backward_args *a);
    fl_status (*rmsnorm)(fl_device *d, fl_stream *s, const fl_norm_args *a);
    fl_status (*rmsnorm_backward)(fl_device *d, fl_stream *s, const fl_norm_backward_args *a);
    fl_status (*attention)(fl_device *d, fl_stream *s, const fl_attention_args *a);
    fl_status (*attention_backward)(fl_device *d, fl_stream *s,
                                    const fl_attention_backward_args *a);
    fl_status (*dropout)(fl_device *d, fl_stream *s, const fl_dropout_args *a);
    fl_status (*add)(fl_device *d, fl_stream *s, const fl_add_args *a);
    fl_status (*convert)(fl_device *d, fl_stream *s, const fl_convert_args *a);
    fl_status (*gather_rows)(fl_device *d, fl_stream *s, const fl_gather_rows_args *a);
    fl_status (*scatter_rows)(fl_device *d, fl_stream *s, const fl_scatter_rows_args *a);
    fl_status (*embed)(fl_device *d, fl_stream *s, const fl_embed_args *a);
    fl_status (*embed_backward)(fl_device *d, fl_stream *s, const fl_embed_backward_args *a);
    fl_status (*patchify)(fl_device *d, fl_stream *s, const fl_patchify_args *a);
    fl_status (*patchify_backward)(fl_device *d, fl_stream *s, const fl_patchify_args *a);
    fl_status (*vit_assemble)(fl_device *d, fl_stream *s, const fl_vit_assemble_args *a);
    fl_status (*vit_assemble_backward)(fl_device *d, fl_stream *s,
                                       const fl_vit_assemble_backward_args *a);
    fl_status (*cross_entropy)(fl_device *d, fl_stream *s, const fl_cross_entropy_args *a);
    fl_status (*span_cross_entropy)(fl_device *d, fl_stream *s,
                                    const fl_span_cross_entropy_args *a);
    fl_status (*squared_error)(fl_device *d, fl_stream *s, const fl_squared_error_args *a);
    /* *sum += value */
    fl_status (*add_to_sum)(fl_device *d, fl_stream *s, double value, double *sum);

    /* All tensors of a list in one pass. Sums of squares are accumulated in double, and are the
     * same for any number of threads and whatever else is in the list. */
    fl_status (*adamw_many)(fl_device *d, fl_stream *s, const fl_update *list, int n,
                            const fl_adamw_step *step);
    fl_status (*sgd_many)(fl_device *d, fl_stream *s, const fl_update *list, int n,
                          const fl_sgd_step *step);
    fl_status (*sum_squares_many)(fl_device *d, fl_stream *s, const fl_square_sum *list, int n);
} fl_device_ops;

/* Beside the budget of each worker, its GPU has this room for captured work. */
enum { FL_DEVICE_GRAPH_ROOM_BYTES = 64 << 20 };

struct fl_device {
    const fl_device_ops *ops;
    int n_threads;       /* compute threads that a kernel may use */
    size_t budget_bytes; /* what fl_device_alloc may hand out in all */
    /* A worker's prepare thread allocates while its main thread trains and reports. */
    _Atomic size_t used_bytes;
    _Atomic size_t peak_bytes;
    _Atomic size_t workspace_bytes; /* of kernels, outside the budget */
    /* Of captured work that exists: pieces, and the driver's memory for them, outside the budget.
     */
    _Atomic size_t graph_nodes, graph_bytes;
};

/* One process drives one CPU device: sets the compute threads of this process (OpenMP) to n_threads
 * and pins them to the processors cpu_ids[n_threads] (NULL: not pinned). The caller is the first of
 * them, so threads that it starts afterwards inherit its pin. Results below 1e-38 become zero in
 * these threads (denormals are slow). Call it after the last fork.
 * The kernels are those of the best instruction set that the processor has: AVX-512, AVX2 with FMA,
 * or whatever the compiler takes for granted. Their results are the same bits for any n_threads,
 * and those of a row, of a sample in attention, do not depend on what else is in the micro-batch; a
 * gradient that is summed over rows depends on its rows and their order alone.
 * A kernel's workspace lies outside the budget; workspace_bytes counts it. It grows when first
 * needed, per thread: 640 KiB for
 * products, 256 (T + D) bytes for attention over T tokens and heads of D (12 T D more where D does
 * not fill vectors), 8 n bytes for every 64 rows of n in LayerNorm's way back. For bf16 values,
 * which the kernels compute in fp32, there are 256 KiB at most for each array that a kernel reads
 * or writes, unless one row is longer. Returns    FL_EINVAL for fewer than one thread or a
 * processor that cannot be had, FL_ENOMEM */
fl_status fl_device_cpu_create(int n_threads, const int *cpu_ids, size_t budget_bytes,
                               fl_device **out) FL_MUST_CHECK;

typedef struct fl_device_options {
    fl_device_kind kind;
    int n_threads;          /* the host's compute threads; a CPU device computes in them */
    const int *cpu_ids;     /* [n_threads]; NULL: not pinned */
    int number;             /* of a device that workers share (device/machine/survey.h); else 0 */
    bool tf32;              /* a GPU's products of fp32 values may round them to TF32 */
    const char *algorithms; /* as in fl_cuda_options; NULL: none */
    size_t budget_bytes;
} fl_device_options;

/* The kind as a job names it, and as `kind` of its table has it; "unknown" for any other number. */
const char *fl_device_kind_name(fl_device_kind kind);

/* A device of the kind that a job names. FL_ENOTSUP for a kind that this build does not have, else
 * as the kind's own function. */
fl_status fl_device_open(const fl_device_options *options, fl_device **out) FL_MUST_CHECK;

/* Whether a device's table is of this build and complete: FL_ENOTSUP names its kind and version, or
 * the first entry that is missing. fl_device_open asks it of every device. */
fl_status fl_device_ops_check(const fl_device_ops *ops) FL_MUST_CHECK;

/* The instruction set whose kernels a CPU device uses on this processor. Threads: any. */
const char *fl_device_cpu_isa(void);

/* The name of the processor, as in "AMD EPYC 9B14"; "unknown" where the system does not provide it.
 * Returns text. */
const char *fl_device_cpu_name(char *text, size_t size_bytes);

/* The device of dry runs. */
fl_status fl_device_null_create(fl_device **out) FL_MUST_CHECK;

/* Operations, two per multiply-add, of all matrix products and attention requested so far.
 * Element-wise work does not count. device: a null device. */
int64_t fl_device_null_flops(const fl_device *device);

/* Every allocation must have been given back. *device becomes NULL; NULL is fine. */
void fl_device_destroy(fl_device **device);

/* Device memory against the budget, cleared, 64-byte aligned. `what` names it in the message.
 * The message of FL_EBUDGET has the bytes requested, in use and allowed. Threads: any, also at the
 * same time; what they hold together stays within the budget. This holds for all functions below.
 */
fl_status fl_device_alloc(fl_device *device, size_t size_bytes, const char *what,
                          void **out) FL_MUST_CHECK;
void fl_device_free(fl_device *device, void *memory, size_t size_bytes);

/* Memory for later, cleared, 64-byte aligned: it is neither counted nor held yet. Once it is
 * claimed it is as if it had been allocated; fl_device_drop gives back what was not. FL_ENOMEM */
fl_status fl_device_reserve(fl_device *device, size_t size_bytes, void **out) FL_MUST_CHECK;
void fl_device_drop(fl_device *device, void *memory, size_t size_bytes);

/* Reserve memory that other processes of this host can look into; *shared NULL, and memory of the
 * usual kind, where the device or the system has none. fl_device_unshare drops it. FL_ENOMEM */
fl_status fl_device_share(fl_device *device, size_t size_bytes, void **out,
                          fl_shared **shared) FL_MUST_CHECK;
void fl_device_unshare(fl_device *device, void *memory, size_t size_bytes, fl_shared **shared);

/* memory_export, view_open and view_close of a device that exports nothing. */
fl_status fl_device_no_export(fl_device *d, size_t size_bytes, void **out,
                              fl_shared **shared) FL_MUST_CHECK;
fl_status fl_device_no_view(fl_device *d, int64_t pid, const fl_shared_key *key, size_t size_bytes,
                            fl_shared_view *out) FL_MUST_CHECK;
void fl_device_no_view_close(fl_device *d, fl_shared_view *view);

/* host_pin and host_unpin of a device whose copies are equally fast with all host memory. */
fl_status fl_device_no_pin(fl_device *d, void *memory, size_t size_bytes,
                           bool read_only) FL_MUST_CHECK;
void fl_device_no_unpin(fl_device *d, void *memory);

/* stream_native of a device that no library can use. */
fl_status fl_device_no_native(fl_device *d, fl_stream *s, fl_native *out) FL_MUST_CHECK;

/* The graphs of a device that captures nothing. */
fl_status fl_device_no_capture(fl_device *d, fl_stream *s) FL_MUST_CHECK;
fl_status fl_device_no_capture_end(fl_device *d, fl_stream *s, fl_graph **graph) FL_MUST_CHECK;
fl_status fl_device_no_launch(fl_device *d, fl_stream *s, fl_graph *graph) FL_MUST_CHECK;
void fl_device_no_graph_destroy(fl_device *d, fl_graph **graph);

/* Count size_bytes of reserved memory from now on; FL_EBUDGET as fl_device_alloc. */
fl_status fl_device_claim(fl_device *device, size_t size_bytes, const char *what) FL_MUST_CHECK;

/* Memory leaves the budget, as parked moments of frozen layers do (pipe/state/migrate.h). Only the
 * count changes; fl_device_claim takes it back. */
void fl_device_disclaim(fl_device *device, size_t size_bytes);

/* Whether devices of a kind compute in host memory, as `host_memory` in their table says. */
bool fl_device_kind_has_host_memory(fl_device_kind kind);

/* *event becomes NULL; NULL is fine. */
void fl_device_event_destroy(fl_device *device, fl_event **event);

#endif
