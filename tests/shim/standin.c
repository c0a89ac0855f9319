#include "tests/shim/standin.h"

#include "device/clock.h"
#include "device/shared.h"
#include "tests/shim/capture.h"
#include "tests/shim/cublaslt/cublasLt.h"
#include "tests/shim/cublaslt_table.h"
#include "tests/shim/parts.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES_MAX = 128 };
enum { BLOCKS_MAX = 4096, VIEWS_MAX = 256, OTHER_ERROR = 1, NOT_SUPPORTED = 801 };

/* Allocations of whole units lie in files that other processes can map: they can be exported. */
enum { EXPORT_UNIT = 2 << 20 };

static struct {
    int n_devices, devices_code, describe_code;
    fl_cuda_compute_mode mode;
    size_t memory_bytes, used_bytes;
    struct {
        void *memory;
        size_t size_bytes;
        fl_shared *shared;           /* where it lies; NULL: in memory of this process */
    } blocks[BLOCKS_MAX];            /* of device memory */
    fl_shared_view views[VIEWS_MAX]; /* of other processes' */
    int outstanding;
    char entry[64]; /* that fails next */
    int n, code, broken;
    int64_t clock_us;
    bool real_time; /* clock_us goes with the time; otherwise by a millisecond for each event */
    const char *no_library; /* why there is none */
    int64_t n_calls[ENTRIES_MAX];
} standin;

/* Times that this thread has waited for the device. */
static _Thread_local int64_t host_waits;

/* The threads of a worker call one at a time, as the shim needs it. */
static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;

static void end_call(const bool *locked)
{
    if (*locked) {
        pthread_mutex_unlock(&one_call);
    }
}

/* Keep other threads out until the function that contains this returns. */
#define ONE_CALL                                                                                   \
    __attribute__((cleanup(end_call), unused)) const bool locked_ =                                \
        pthread_mutex_lock(&one_call) == 0

static void count_call(const char *entry)
{
    for (int i = 0; standin_entry(i) != NULL; i++) {
        if (strcmp(standin_entry(i), entry) == 0) {
            standin.n_calls[i]++;
        }
    }
}

/* Whether this call fails: 0 or the code. */
static int failure_of(const char *entry)
{
    count_call(entry);
    if (standin.broken != 0) {
        return standin.broken;
    }
    if (standin.n > 0 && strcmp(entry, standin.entry) == 0 && --standin.n == 0) {
        return standin.code;
    }
    return 0;
}

#define FAIL_OR_GO_ON(entry)                                                                       \
    ONE_CALL;                                                                                      \
    do {                                                                                           \
        int failure_ = failure_of(entry);                                                          \
        if (failure_ != 0) {                                                                       \
            return failure_;                                                                       \
        }                                                                                          \
    } while (0)

/* As above, for a call that a thread must not make while it captures a stream. */
#define FAIL_IN_CAPTURE                                                                            \
    do {                                                                                           \
        if (shim_captures_here()) {                                                                \
            return shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED);                                   \
        }                                                                                          \
    } while (0)

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

static int count_devices(int *n)
{
    FAIL_OR_GO_ON("count_devices");
    *n = standin.n_devices;
    return standin.devices_code;
}

static int choose_device(int number)
{
    FAIL_OR_GO_ON("choose_device");
    return number >= 0 && number < standin.n_devices ? 0 : OTHER_ERROR;
}

static int device_wait(void)
{
    FAIL_OR_GO_ON("device_wait");
    host_waits++;
    return shim_captures_any() ? shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED) : 0;
}

static int describe_device(int number, fl_cuda_facts *out)
{
    FAIL_OR_GO_ON("describe_device");
    snprintf(out->name, sizeof out->name, "Stand-in");
    out->capability[0] = 9;
    out->capability[1] = number;
    out->mode = standin.mode;
    out->memory_bytes = standin.memory_bytes;
    out->free_bytes = standin.memory_bytes - standin.used_bytes;
    return standin.describe_code;
}

/* ---- memory ---- */

static int find_block(const void *memory)
{
    for (int i = 0; i < BLOCKS_MAX; i++) {
        if (standin.blocks[i].memory == memory) {
            return i;
        }
    }
    return -1;
}

static void *take_bytes(size_t size_bytes, fl_shared **shared)
{
    *shared = NULL;
    if (size_bytes % EXPORT_UNIT != 0) {
        return aligned_alloc(256, (size_bytes + 511) / 256 * 256);
    }
    return fl_shared_create(size_bytes, shared) == FL_OK ? fl_shared_data(*shared) : NULL;
}

/* Filled with what was there before: memory of a GPU is not cleared. */
static int memory_take(size_t size_bytes, void **out)
{
    FAIL_OR_GO_ON("memory_take");
    FAIL_IN_CAPTURE;
    int at = find_block(NULL);
    if (at < 0 || size_bytes > standin.memory_bytes - standin.used_bytes) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    void *memory = take_bytes(size_bytes, &standin.blocks[at].shared);
    if (memory == NULL) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    if (!standin.real_time) { /* a plugin has no time for it: a budget is one piece of memory */
        memset(memory, 0xA5, size_bytes);
    }
    standin.blocks[at].memory = memory;
    standin.blocks[at].size_bytes = size_bytes;
    standin.used_bytes += size_bytes;
    standin.outstanding++;
    shim_region_add(memory, size_bytes, "device memory");
    *out = memory;
    return 0;
}

static int memory_give(void *memory)
{
    ONE_CALL;
    int at = find_block(memory);
    if (memory == NULL || at < 0) {
        fprintf(stderr, "stand-in: device memory is given back that was not taken\n");
        abort();
    }
    shim_region_remove(memory);
    standin.used_bytes -= standin.blocks[at].size_bytes;
    standin.blocks[at].memory = NULL;
    standin.outstanding--;
    if (standin.blocks[at].shared != NULL) {
        fl_shared_destroy(&standin.blocks[at].shared);
    } else {
        free(memory);
    }
    FAIL_IN_CAPTURE;
    return failure_of("memory_give");
}

/* What a handle has. */
typedef struct exported {
    int64_t pid;
    fl_shared_key key;
    size_t size_bytes;
} exported;

_Static_assert(sizeof(exported) <= sizeof(fl_cuda_handle), "it fits");

static int ipc_export(void *memory, fl_cuda_handle *out)
{
    FAIL_OR_GO_ON("ipc_export");
    int at = find_block(memory);
    if (at < 0 || standin.blocks[at].shared == NULL) {
        return NOT_SUPPORTED;
    }
    const exported e = {.pid = getpid(),
                        .key = fl_shared_key_of(standin.blocks[at].shared),
                        .size_bytes = standin.blocks[at].size_bytes};
    memset(out, 0, sizeof *out);
    memcpy(out, &e, sizeof e);
    return 0;
}

/* NULL: the place that is free. */
static fl_shared_view *find_view(const void *memory)
{
    for (int i = 0; i < VIEWS_MAX; i++) {
        if (standin.views[i].data == memory) {
            return &standin.views[i];
        }
    }
    fprintf(stderr, "stand-in: memory is closed that was not opened, or too much is open\n");
    abort();
}

static int ipc_open(const fl_cuda_handle *handle, void **out)
{
    exported e;
    FAIL_OR_GO_ON("ipc_open");
    memcpy(&e, handle, sizeof e);
    fl_shared_view *view = find_view(NULL);
    if (fl_shared_view_open(e.pid, &e.key, 0, e.size_bytes, view) != FL_OK) {
        return OTHER_ERROR;
    }
    standin.outstanding++;
    shim_region_add(view->data, e.size_bytes, "another process's memory");
    *out = (void *)(uintptr_t)view->data;
    return 0;
}

static int ipc_close(void *memory)
{
    ONE_CALL;
    fl_shared_view *view = find_view(memory);
    shim_region_remove(memory);
    fl_shared_view_close(view);
    standin.outstanding--;
    return failure_of("ipc_close");
}

static int host_take(size_t size_bytes, void **out)
{
    FAIL_OR_GO_ON("host_take");
    FAIL_IN_CAPTURE;
    void *memory = aligned_alloc(256, (size_bytes + 255) / 256 * 256);
    if (memory == NULL) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    memset(memory, 0xA5, size_bytes);
    standin.outstanding++;
    *out = memory;
    return 0;
}

static int host_give(void *memory)
{
    ONE_CALL;
    free(memory);
    standin.outstanding--;
    return failure_of("host_give");
}

typedef struct bytes_call {
    void *to;
    const void *from; /* NULL: zeros */
    size_t n;
} bytes_call;

static int move_bytes(void *call)
{
    const bytes_call *b = call;
    if (b->from == NULL) {
        memset(b->to, 0, b->n);
    } else {
        memmove(b->to, b->from, b->n);
    }
    return 0;
}

static int do_or_note(const void *stream, bytes_call call)
{
    return shim_captures(stream) ? shim_capture_add(stream, move_bytes, &call, sizeof call)
                                 : move_bytes(&call);
}

static int copy_bytes(void *stream, void *to, const void *from, size_t n)
{
    FAIL_OR_GO_ON("copy");
    return do_or_note(stream, (bytes_call){to, from, n});
}

static int fill_zero(void *stream, void *to, size_t n)
{
    FAIL_OR_GO_ON("fill_zero");
    return do_or_note(stream, (bytes_call){to, NULL, n});
}

/* ---- streams and events ---- */

typedef struct handle {
    int64_t us;    /* of an event */
    bool captured; /* it was recorded in a stream that was captured */
} handle;

static int create_handle(const char *entry, void **out)
{
    FAIL_OR_GO_ON(entry);
    *out = calloc(1, sizeof(handle));
    standin.outstanding += *out == NULL ? 0 : 1;
    return *out == NULL ? FL_CUDA_OUT_OF_MEMORY : 0;
}

static int destroy_handle(const char *entry, void *destroyed)
{
    ONE_CALL;
    free(destroyed);
    standin.outstanding--;
    return failure_of(entry);
}

static int stream_create(void **out)
{
    return create_handle("stream_create", out);
}

static int stream_destroy(void *stream)
{
    return destroy_handle("stream_destroy", stream);
}

static int stream_wait(void *stream)
{
    FAIL_OR_GO_ON("stream_wait");
    host_waits++;
    return shim_captures(stream) ? shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED) : 0;
}

static int event_create(void **out)
{
    return create_handle("event_create", out);
}

static int event_destroy(void *event)
{
    return destroy_handle("event_destroy", event);
}

static int event_record(void *event, void *stream)
{
    FAIL_OR_GO_ON("event_record");
    ((handle *)event)->captured = shim_captures(stream);
    standin.clock_us = standin.real_time ? fl_now_us() : standin.clock_us + 1000;
    ((handle *)event)->us = standin.clock_us;
    return 0;
}

static int event_wait(void *event)
{
    FAIL_OR_GO_ON("event_wait");
    host_waits++;
    return ((const handle *)event)->captured ? SHIM_CAPTURED_EVENT : 0;
}

static int stream_wait_event(void *stream, void *event)
{
    FAIL_OR_GO_ON("stream_wait_event");
    return shim_captures(stream) == ((const handle *)event)->captured
               ? 0
               : shim_capture_spoil(SHIM_CAPTURE_ISOLATION);
}

static int event_elapsed(const void *from, const void *to, float *ms)
{
    const handle *begun = from, *ended = to;
    FAIL_OR_GO_ON("event_elapsed");
    *ms = (float)(ended->us - begun->us) * 1e-3f;
    return begun->captured || ended->captured ? SHIM_CAPTURED_EVENT : 0;
}

/* ---- graphs ---- */

static int capture_begin(void *stream)
{
    FAIL_OR_GO_ON("capture_begin");
    return shim_capture_begin(stream);
}

static int capture_end(void *stream, void **out)
{
    ONE_CALL;
    shim_graph *graph = NULL;
    int code = shim_capture_end(stream, &graph), failure = failure_of("capture_end");
    if (failure != 0 && graph != NULL) {
        shim_graph_destroy(graph);
        graph = NULL;
    }
    standin.outstanding += graph == NULL ? 0 : 1;
    *out = graph;
    return failure == 0 ? code : failure;
}

static int drop_graph(const char *entry, void *graph)
{
    ONE_CALL;
    shim_graph_destroy(graph);
    standin.outstanding--;
    return failure_of(entry);
}

static int graph_destroy(void *graph)
{
    return drop_graph("graph_destroy", graph);
}

static int executable_destroy(void *executable)
{
    void *graph = *(void **)executable;
    free(executable);
    return drop_graph("executable_destroy", graph);
}

static int graph_instantiate(void *graph, void **executable)
{
    FAIL_OR_GO_ON("graph_instantiate");
    shim_graph **made = malloc(sizeof *made);
    if (made == NULL) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    *made = shim_graph_dup(graph);
    *executable = made;
    standin.outstanding++;
    return 0;
}

static int graph_update(void *executable, void *graph)
{
    shim_graph **made = executable;
    FAIL_OR_GO_ON("graph_update");
    if (!shim_graph_same_form(*made, graph)) {
        return SHIM_GRAPH_UPDATE_FAILURE;
    }
    shim_graph_destroy(*made);
    *made = shim_graph_dup(graph);
    return 0;
}

static int note_launch(int code);

static int graph_launch(void *executable, void *stream)
{
    FAIL_OR_GO_ON("graph_launch");
    return shim_captures(stream) ? shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED)
                                 : note_launch(shim_graph_run(*(shim_graph **)executable));
}

/* ---- kernels ---- */

/* A launch that the shim stopped breaks the device, as it does on a GPU. */
static int note_launch(int code)
{
    standin.broken = code > 0 ? code : standin.broken;
    return code;
}

#define STANDIN_CASE(kernel, args)                                                                 \
    static int run_##kernel(fl__cuda_queue *q, const args *a)                                      \
    {                                                                                              \
        FAIL_OR_GO_ON(#kernel);                                                                    \
        return note_launch(fl__cuda_##kernel(q, a));                                               \
    }
FL__CUDA_LAUNCHES(STANDIN_CASE)
#undef STANDIN_CASE

static int library_open(bool tf32, fl__cuda_library **out, const char **reason)
{
    FAIL_OR_GO_ON("library_open");
    *reason = standin.no_library;
    return standin.no_library == NULL ? standin_library_open(tf32, out) : (int)FL__CUDA_NO_LIBRARY;
}

static int library_close(fl__cuda_library *library)
{
    ONE_CALL;
    int code = fl__cublaslt_close(library);
    int failure = failure_of("library_close");
    return failure == 0 ? code : failure;
}

static int library_multiply(fl__cuda_library *library, fl__cuda_queue *q, const fl__cuda_product *p)
{
    FAIL_OR_GO_ON("library_multiply");
    return fl__cublaslt_multiply(library, q, p);
}

static int library_save(fl__cuda_library *library, char *text, size_t size_bytes,
                        size_t *needed_bytes)
{
    FAIL_OR_GO_ON("library_save");
    return fl__cublaslt_save(library, text, size_bytes, needed_bytes);
}

static int library_load(fl__cuda_library *library, const char *text, int *n_taken)
{
    FAIL_OR_GO_ON("library_load");
    return fl__cublaslt_take(library, text, n_taken);
}

static int run_add_to_sum(fl__cuda_queue *q, double value, double *sum)
{
    FAIL_OR_GO_ON("add_to_sum");
    return note_launch(fl__cuda_add_to_sum(q, value, sum));
}

static int run_adamw_many(fl__cuda_queue *q, const fl_update *list, int n,
                          const fl_adamw_step *step)
{
    FAIL_OR_GO_ON("adamw_many");
    return note_launch(fl__cuda_adamw_many(q, list, n, step));
}

static int run_sgd_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_sgd_step *step)
{
    FAIL_OR_GO_ON("sgd_many");
    return note_launch(fl__cuda_sgd_many(q, list, n, step));
}

static int run_sum_squares_many(fl__cuda_queue *q, const fl_square_sum *list, int n)
{
    FAIL_OR_GO_ON("sum_squares_many");
    return note_launch(fl__cuda_sum_squares_many(q, list, n));
}

const fl_cuda_plugin fl_cuda_plugin_table = {
    .version = FL_CUDA_PLUGIN_VERSION,
    .size_bytes = sizeof(fl_cuda_plugin),
    .kind = "stand-in",
    .error_text = error_text,
    .count_devices = count_devices,
    .choose_device = choose_device,
    .describe_device = describe_device,
    .device_wait = device_wait,
    .memory_take = memory_take,
    .memory_give = memory_give,
    .ipc_export = ipc_export,
    .ipc_open = ipc_open,
    .ipc_close = ipc_close,
    .host_take = host_take,
    .host_give = host_give,
    .copy = copy_bytes,
    .fill_zero = fill_zero,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_wait_event = stream_wait_event,
    .event_elapsed = event_elapsed,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_destroy = graph_destroy,
    .graph_instantiate = graph_instantiate,
    .graph_update = graph_update,
    .graph_launch = graph_launch,
    .executable_destroy = executable_destroy,
#define STANDIN_CASE(kernel, args) .kernel = run_##kernel,
    FL__CUDA_LAUNCHES(STANDIN_CASE)
#undef STANDIN_CASE
        .library_open = library_open,
    .library_close = library_close,
    .library_multiply = library_multiply,
    .library_save = library_save,
    .library_load = library_load,
    .add_to_sum = run_add_to_sum,
    .adamw_many = run_adamw_many,
    .sgd_many = run_sgd_many,
    .sum_squares_many = run_sum_squares_many,
};

/* ---- what tests ask for ---- */

const fl_cuda_plugin *standin_plugin(void)
{
    standin.n_devices = 1;
    standin.devices_code = 0;
    standin.describe_code = 0;
    standin.mode = FL_CUDA_MODE_SHARED;
    standin.memory_bytes = SIZE_MAX;
    standin.n = 0;
    standin.broken = 0;
    standin.no_library = NULL;
    cublaslt_begin("", 0, CUBLAS_STATUS_SUCCESS);
    return &fl_cuda_plugin_table;
}

void standin_set_devices(int n, int code)
{
    standin.n_devices = n;
    standin.devices_code = code;
}

void standin_set_description(fl_cuda_compute_mode mode, int code)
{
    standin.mode = mode;
    standin.describe_code = code;
}

void standin_use_real_time(void)
{
    standin.real_time = true;
}

void standin_set_memory(size_t size_bytes)
{
    standin.memory_bytes = size_bytes;
}

void standin_fail(const char *entry, int n, int code)
{
    snprintf(standin.entry, sizeof standin.entry, "%s", entry);
    standin.n = n;
    standin.code = code;
}

void standin_remove_library(const char *reason)
{
    standin.no_library = reason;
}

void standin_break(int code)
{
    standin.broken = code;
}

const char *standin_entry(int index)
{
    static const char *const names[] = {"count_devices",
                                        "choose_device",
                                        "describe_device",
                                        "device_wait",
                                        "memory_take",
                                        "memory_give",
                                        "ipc_export",
                                        "ipc_open",
                                        "ipc_close",
                                        "host_take",
                                        "host_give",
                                        "copy",
                                        "fill_zero",
                                        "stream_create",
                                        "stream_destroy",
                                        "stream_wait",
                                        "event_create",
                                        "event_destroy",
                                        "event_record",
                                        "event_wait",
                                        "stream_wait_event",
                                        "event_elapsed",
                                        "capture_begin",
                                        "capture_end",
                                        "graph_destroy",
                                        "graph_instantiate",
                                        "graph_update",
                                        "graph_launch",
                                        "executable_destroy",
#define STANDIN_CASE(kernel, args) #kernel,
                                        FL__CUDA_LAUNCHES(STANDIN_CASE)
#undef STANDIN_CASE
                                            "library_open",
                                        "library_close",
                                        "library_multiply",
                                        "library_save",
                                        "library_load",
                                        "add_to_sum",
                                        "adamw_many",
                                        "sgd_many",
                                        "sum_squares_many",
                                        NULL};
    _Static_assert(sizeof names / sizeof *names <= ENTRIES_MAX, "each entry has a count");
    return names[index];
}

int64_t standin_calls(const char *entry)
{
    for (int i = 0; standin_entry(i) != NULL; i++) {
        if (strcmp(standin_entry(i), entry) == 0) {
            return standin.n_calls[i];
        }
    }
    return -1;
}

int64_t standin_host_waits(void)
{
    return host_waits;
}

int standin_outstanding(void)
{
    return standin.outstanding + cublaslt_outstanding();
}
