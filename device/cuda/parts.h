/* What the parts of the CUDA device share. */
#ifndef FL_DEVICE_CUDA_PARTS_H
#define FL_DEVICE_CUDA_PARTS_H

#include "device/cuda/arena.h"
#include "device/cuda/cuda.h"

#include <pthread.h>
#include <stdatomic.h>

/* Memory that other processes may read (export.c). */
typedef struct fl__cuda_export fl__cuda_export;

typedef struct fl__cuda {
    fl_device base;
    const fl_cuda_plugin *plugin;
    int number;
    fl_stream *default_stream;
    pthread_mutex_t lock;  /* of the arena and of the exports */
    pthread_mutex_t waits; /* recursive; held while a stream is captured, and to wait for all */
    fl__cuda_export *exports;
    atomic_bool has_unregistered; /* device memory that NCCL cannot register, beside exports */
    fl__cuda_arena arena;         /* without a budget, it has no byte */
    fl__cuda_library *library;    /* NULL: products by the own kernel */
    char *algorithms;             /* the file that keeps its answers; NULL: none does */
} fl__cuda;

/* An fl_stream of this device: a queue with the workspace of the stream's kernels, which run one
 * after another. An fl_event is the runtime's own handle. */
typedef struct fl__cuda_stream {
    fl__cuda_queue queue;  /* first: an fl_stream is a queue, too */
    uint64_t n_workspaces; /* that it had so far */
    fl_graph *capture;     /* at work; NULL: work is queued */
} fl__cuda_stream;

static inline fl__cuda *fl__cuda_of(fl_device *d)
{
    return (fl__cuda *)d;
}

/* NULL is the default stream. */
static inline fl__cuda_queue *fl__cuda_queue_of(const fl__cuda *c, fl_stream *s)
{
    return (fl__cuda_queue *)(void *)(s == NULL ? c->default_stream : s);
}

static inline fl__cuda_stream *fl__cuda_stream_of(const fl__cuda *c, fl_stream *s)
{
    return (fl__cuda_stream *)(void *)(s == NULL ? c->default_stream : s);
}

/* FL_OK for 0. call: what failed, as the table names it */
fl_status fl__cuda_status(const fl__cuda *c, const char *call, int code) FL_MUST_CHECK;

/* Let this thread's calls go to the device. */
fl_status fl__cuda_enter(const fl__cuda *c) FL_MUST_CHECK;

/* Call an entry of the plugin's table, on the device. */
#define FL__CUDA_CALL(c, entry, ...)                                                               \
    do {                                                                                           \
        FL_TRY(fl__cuda_enter(c));                                                                 \
        FL_TRY(fl__cuda_status(c, #entry, (c)->plugin->entry(__VA_ARGS__)));                       \
    } while (0)

/* Let `code` be what a launch of the plugin's table on queue q returns; it is called again with a
 * larger workspace if it asks for one. */
#define FL__CUDA_LAUNCH(c, q, code, entry, ...)                                                    \
    do {                                                                                           \
        FL_TRY(fl__cuda_enter(c));                                                                 \
        (code) = (c)->plugin->entry(__VA_ARGS__);                                                  \
        if ((code) == FL__CUDA_MORE) {                                                             \
            FL_TRY(fl__cuda_workspace_grow(c, q));                                                 \
            (code) = (c)->plugin->entry(__VA_ARGS__);                                              \
        }                                                                                          \
    } while (0)

/* What gives something back fails for nobody: an error that stays comes from the next wait. */
#define FL__CUDA_GIVE(c, entry, handle)                                                            \
    do {                                                                                           \
        (void)(c)->plugin->choose_device((c)->number);                                             \
        (void)(c)->plugin->entry(handle);                                                          \
    } while (0)

/* memory.c */

/* One allocation of budget_bytes. FL_ENOMEM */
fl_status fl__cuda_arena_open(fl__cuda *c, size_t budget_bytes) FL_MUST_CHECK;
void fl__cuda_arena_close(fl__cuda *c);

/* A piece of the arena, or, where it has no hole for it, an allocation of the runtime's own; not
 * cleared. Giving it back waits for all work of the device. */
fl_status fl__cuda_piece_take(fl__cuda *c, size_t size_bytes, void **out) FL_MUST_CHECK;
void fl__cuda_piece_give(fl__cuda *c, void *memory);

fl_status fl__cuda_memory_take(fl_device *d, size_t size_bytes, void **out) FL_MUST_CHECK;
void fl__cuda_memory_give(fl_device *d, void *memory, size_t size_bytes);
fl_status fl__cuda_memory_share(fl_device *d, size_t size_bytes, void **out,
                                fl_shared **shared) FL_MUST_CHECK;
fl_status fl__cuda_host_take(fl_device *d, size_t size_bytes, void **out) FL_MUST_CHECK;
void fl__cuda_host_give(fl_device *d, void *memory, size_t size_bytes);
fl_status fl__cuda_host_pin(fl_device *d, void *memory, size_t size_bytes,
                            bool read_only) FL_MUST_CHECK;
void fl__cuda_host_unpin(fl_device *d, void *memory);
fl_status fl__cuda_copy(fl_device *d, fl_stream *s, void *to, const void *from,
                        size_t n) FL_MUST_CHECK;
fl_status fl__cuda_fill_zero(fl_device *d, fl_stream *s, void *to, size_t n) FL_MUST_CHECK;

/* export.c */
fl_status fl__cuda_memory_export(fl_device *d, size_t size_bytes, void **out,
                                 fl_shared **shared) FL_MUST_CHECK;
fl_status fl__cuda_view_open(fl_device *d, int64_t pid, const fl_shared_key *key, size_t size_bytes,
                             fl_shared_view *out) FL_MUST_CHECK;
void fl__cuda_view_close(fl_device *d, fl_shared_view *view);

/* Whether `memory` is exported memory, which may be used again from now on. */
bool fl__cuda_export_give(fl__cuda *c, const void *memory);
void fl__cuda_exports_close(fl__cuda *c);

/* stream.c */
fl_status fl__cuda_stream_create(fl_device *d, fl_stream **out) FL_MUST_CHECK;
void fl__cuda_stream_destroy(fl_device *d, fl_stream **s);
fl_status fl__cuda_sync(fl_device *d, fl_stream *s) FL_MUST_CHECK;
fl_status fl__cuda_event_create(fl_device *d, fl_event **out) FL_MUST_CHECK;
void fl__cuda_event_destroy(fl_device *d, fl_event **e);
fl_status fl__cuda_event_record(fl_device *d, fl_event *e, fl_stream *s) FL_MUST_CHECK;
fl_status fl__cuda_event_wait(fl_device *d, fl_event *e) FL_MUST_CHECK;
fl_status fl__cuda_stream_wait(fl_device *d, fl_stream *s, fl_event *e) FL_MUST_CHECK;
fl_status fl__cuda_event_elapsed(fl_device *d, const fl_event *from, const fl_event *to,
                                 double *us) FL_MUST_CHECK;
fl_status fl__cuda_event_reached(fl_device *d, fl_event *e, bool *reached) FL_MUST_CHECK;
fl_status fl__cuda_stream_native(fl_device *d, fl_stream *s, fl_native *out) FL_MUST_CHECK;

/* Free the queue's workspace; its work is done. */
void fl__cuda_workspace_drop(fl__cuda *c, fl__cuda_queue *q);

/* graph.c */
fl_status fl__cuda_capture_begin(fl_device *d, fl_stream *s) FL_MUST_CHECK;
fl_status fl__cuda_capture_end(fl_device *d, fl_stream *s, fl_graph **graph) FL_MUST_CHECK;
fl_status fl__cuda_graph_launch(fl_device *d, fl_stream *s, fl_graph *graph) FL_MUST_CHECK;
void fl__cuda_graph_destroy(fl_device *d, fl_graph **graph);

/* The capture at work in the stream reads bf16 copies of a weight and of its bias. */
fl_status fl__cuda_capture_weight(fl__cuda_stream *s, fl_weight *w, const fl_weight *bias,
                                  const void *copy, const void *bias_copy) FL_MUST_CHECK;

/* FL_ENOTSUP: what would have to be done is not allowed now. */
fl_status fl__cuda_refuse_in_capture(const fl__cuda *c, const char *what) FL_MUST_CHECK;

/* products.c */

/* The bf16 copies of a weight and of its bias (NULL: none), up to date for work of the stream. */
fl_status fl__cuda_weight_copies(fl__cuda *c, fl__cuda_stream *s, fl_weight *w,
                                 const fl_weight *bias, const void **copy,
                                 const void **bias_copy) FL_MUST_CHECK;
void fl__cuda_weight_release(fl_device *d, fl_weight *w);
fl_status fl__cuda_linear(fl_device *d, fl_stream *s, const fl_linear_args *a) FL_MUST_CHECK;
fl_status fl__cuda_linear_backward_input(fl_device *d, fl_stream *s,
                                         const fl_linear_backward_input_args *a) FL_MUST_CHECK;
fl_status fl__cuda_linear_backward_weights(fl_device *d, fl_stream *s,
                                           const fl_linear_backward_weights_args *a) FL_MUST_CHECK;

/* library.c */
fl_status fl__cuda_library_open(fl__cuda *c, bool tf32) FL_MUST_CHECK;
void fl__cuda_library_close(fl__cuda *c);

/* algorithms.c */

/* Read the file of the library's answers, if there is one, and write it when the device is
 * destroyed; path NULL or "": neither. What fails is logged. */
void fl__cuda_algorithms_open(fl__cuda *c, const char *path);
void fl__cuda_algorithms_close(fl__cuda *c);

/* cuda.c */
void fl__cuda_destroy(fl_device *d);

/* kernels.c */

/* FL_ENOTSUP for a type that `kernel` has no code for */
fl_status fl__cuda_check_type(const char *kernel, fl_dtype dtype) FL_MUST_CHECK;

/* A workspace of needed_bytes. The one before may still be in use, so its work is waited for. */
fl_status fl__cuda_workspace_grow(fl__cuda *c, fl__cuda_queue *q) FL_MUST_CHECK;

extern const fl_device_ops fl__cuda_ops;

#endif
