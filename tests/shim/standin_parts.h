/* What the parts of the stand-in share: its table, and whether a call fails. */
#ifndef FL_TESTS_SHIM_STANDIN_PARTS_H
#define FL_TESTS_SHIM_STANDIN_PARTS_H

#include "tests/shim/standin.h"

#include <pthread.h>

/* Codes of the runtime that plugin.h has no name for. */
enum { STANDIN_INVALID_VALUE = 1, STANDIN_NOT_REGISTERED = 713, STANDIN_NOT_SUPPORTED = 801 };

/* The entries of the table, in its order, without the kernels of FL__CUDA_LAUNCHES: X(name,
 * arguments). Those before the kernels, and those behind them. */
#define STANDIN_RUNTIME(X)                                                                         \
    X(count_devices, (int *n))                                                                     \
    X(choose_device, (int number))                                                                 \
    X(describe_device, (int number, fl_cuda_facts *out))                                           \
    X(numa_node, (int number, int *node))                                                          \
    X(find_nvlink, (int number, int other, bool *linked))                                          \
    X(identify_device, (int number, fl_cuda_identity *out))                                        \
    X(driver_version, (int *out))                                                                  \
    X(device_wait, (void))                                                                         \
    X(memory_take, (size_t size_bytes, void **out))                                                \
    X(pool_take, (size_t size_bytes, void **out, bool *registers))                                 \
    X(memory_give, (void *memory))                                                                 \
    X(memory_free, (size_t * size_bytes))                                                          \
    X(ipc_export, (void *memory, fl_cuda_handle *out))                                             \
    X(ipc_open, (const fl_cuda_handle *handle, void **out))                                        \
    X(ipc_close, (void *memory))                                                                   \
    X(host_take, (size_t size_bytes, void **out))                                                  \
    X(host_give, (void *memory))                                                                   \
    X(host_pin, (void *memory, size_t size_bytes, bool read_only))                                 \
    X(host_unpin, (void *memory))                                                                  \
    X(copy, (void *stream, void *to, const void *from, size_t n))                                  \
    X(fill_zero, (void *stream, void *to, size_t n))                                               \
    X(stream_create, (void **out))                                                                 \
    X(stream_destroy, (void *stream))                                                              \
    X(stream_wait, (void *stream))                                                                 \
    X(event_create, (void **out))                                                                  \
    X(event_destroy, (void *event))                                                                \
    X(event_record, (void *event, void *stream))                                                   \
    X(event_wait, (void *event))                                                                   \
    X(stream_wait_event, (void *stream, void *event))                                              \
    X(event_elapsed, (const void *from, const void *to, float *ms))                                \
    X(event_reached, (void *event, bool *reached))                                                 \
    X(capture_begin, (void *stream))                                                               \
    X(capture_end, (void *stream, void **graph))                                                   \
    X(graph_destroy, (void *graph))                                                                \
    X(graph_nodes, (void *graph, size_t *n))                                                       \
    X(graph_instantiate, (void *graph, void **executable))                                         \
    X(graph_update, (void *executable, void *graph))                                               \
    X(graph_launch, (void *executable, void *stream))                                              \
    X(executable_destroy, (void *executable))

#define STANDIN_LIBRARY(X)                                                                         \
    X(library_open, (bool tf32, fl__cuda_library **out, const char **reason))                      \
    X(library_close, (fl__cuda_library * library))                                                 \
    X(library_multiply,                                                                            \
      (fl__cuda_library * library, fl__cuda_queue * q, const fl__cuda_product *p))                 \
    X(library_save,                                                                                \
      (fl__cuda_library * library, char *text, size_t size_bytes, size_t *needed_bytes))           \
    X(library_load, (fl__cuda_library * library, const char *text, int *n_taken))                  \
    X(add_to_sum, (fl__cuda_queue * q, double value, double *sum))                                 \
    X(adamw_many, (fl__cuda_queue * q, const fl_update *list, int n, const fl_adamw_step *step))   \
    X(sgd_many, (fl__cuda_queue * q, const fl_update *list, int n, const fl_sgd_step *step))       \
    X(sum_squares_many, (fl__cuda_queue * q, const fl_square_sum *list, int n))

#define STANDIN_DECLARE(name, args) int standin__##name args;
STANDIN_RUNTIME(STANDIN_DECLARE)
STANDIN_LIBRARY(STANDIN_DECLARE)
#undef STANDIN_DECLARE
#define STANDIN_DECLARE(kernel, args) int standin__##kernel(fl__cuda_queue *q, const args *a);
FL__CUDA_LAUNCHES(STANDIN_DECLARE)
#undef STANDIN_DECLARE

/* ---- the state that several parts read or change ---- */

typedef struct standin_state {
    size_t memory_bytes, used_bytes; /* of the device */
    bool real_time; /* events are at the time of their record; else a millisecond apart */
    bool fast_graphs;
    int64_t far_us; /* of each KiB that is read from a device that NVLink does not link */
    int64_t kernel_us, graph_us; /* between events a millisecond apart */
    int pageable_code;      /* of copies from or to pageable memory of the host; 0: they work */
    const char *no_library; /* why there is none */
    int outstanding;        /* what was taken and not given back */
} standin_state;

/* Whether NVLink links the two, and the device that this thread has chosen. */
bool standin_is_linked(int a, int b);
int standin_chosen(void);

extern standin_state standin;

/* Times that this thread has waited for the device. */
extern _Thread_local int64_t standin_waits_here;

/* Count a call of this entry. 0, or the code that it fails with. */
int standin_failure_of(const char *entry);

/* From now on every call fails with `code`, unless it is 0. Returns code. A launch that the shim
 * stopped breaks the device, as it does on a GPU. */
int standin_note_launch(int code);

/* Let the clock of events go on, but for work that is only captured. */
void standin_spend(int64_t us);

/* ---- at the head of each entry ---- */

/* The threads of a worker call one at a time, as the shim needs it. */
extern pthread_mutex_t standin_one_call;
void standin_end_call(const bool *locked);

/* Keep other threads out until the function that contains this returns. */
#define ONE_CALL                                                                                   \
    __attribute__((cleanup(standin_end_call), unused)) const bool locked_ =                        \
        pthread_mutex_lock(&standin_one_call) == 0

#define FAIL_OR_GO_ON(entry)                                                                       \
    ONE_CALL;                                                                                      \
    do {                                                                                           \
        int failure_ = standin_failure_of(entry);                                                  \
        if (failure_ != 0) {                                                                       \
            return failure_;                                                                       \
        }                                                                                          \
    } while (0)

/* For a call that a thread must not make while it captures a stream. */
#define FAIL_IN_CAPTURE                                                                            \
    do {                                                                                           \
        if (shim_captures_here()) {                                                                \
            return shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED);                                   \
        }                                                                                          \
    } while (0)

#endif
