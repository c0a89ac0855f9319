/* The stand-in's streams, events and graphs. */
#include "device/system/clock.h"
#include "tests/shim/capture.h"
#include "tests/shim/standin_parts.h"

#include <stdlib.h>
#include <string.h>

/* Of events that are a millisecond apart. */
static int64_t clock_us;

/* Real time that events do not see. */
static int64_t hidden_us;

void standin_spend(int64_t us)
{
    clock_us += shim_captures_here() ? 0 : us;
}

/* ---- streams and events ---- */

typedef struct handle {
    int64_t us;    /* of an event */
    bool captured; /* it was recorded in a stream that was captured */
    shim_fork fork;
} handle;

static int create_handle(const char *entry, void **out)
{
    FAIL_OR_GO_ON(entry);
    handle *made = calloc(1, sizeof *made);
    *out = made;
    if (made != NULL) {
        made->fork.capture = -1;
    }
    standin.outstanding += *out == NULL ? 0 : 1;
    return *out == NULL ? FL_CUDA_OUT_OF_MEMORY : 0;
}

static int destroy_handle(const char *entry, void *destroyed)
{
    ONE_CALL;
    free(destroyed);
    standin.outstanding--;
    return standin_failure_of(entry);
}

int standin__stream_create(void **out)
{
    return create_handle("stream_create", out);
}

int standin__stream_destroy(void *stream)
{
    return destroy_handle("stream_destroy", stream);
}

int standin__stream_wait(void *stream)
{
    FAIL_OR_GO_ON("stream_wait");
    standin_waits_here++;
    return shim_captures(stream) ? shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED) : 0;
}

int standin__event_create(void **out)
{
    return create_handle("event_create", out);
}

int standin__event_destroy(void *event)
{
    return destroy_handle("event_destroy", event);
}

int standin__event_record(void *event, void *stream)
{
    FAIL_OR_GO_ON("event_record");
    ((handle *)event)->captured = shim_captures(stream);
    ((handle *)event)->fork = shim_capture_mark(stream);
    clock_us = standin.real_time ? fl_now_us() - hidden_us : clock_us + 1000;
    ((handle *)event)->us = clock_us;
    return 0;
}

int standin__event_wait(void *event)
{
    FAIL_OR_GO_ON("event_wait");
    standin_waits_here++;
    return ((const handle *)event)->captured ? SHIM_CAPTURED_EVENT : 0;
}

int standin__stream_wait_event(void *stream, void *event)
{
    FAIL_OR_GO_ON("stream_wait_event");
    return shim_capture_wait(stream, &((const handle *)event)->fork);
}

int standin__event_elapsed(const void *from, const void *to, float *ms)
{
    const handle *begun = from, *ended = to;
    FAIL_OR_GO_ON("event_elapsed");
    *ms = (float)(ended->us - begun->us) * 1e-3f;
    return begun->captured || ended->captured ? SHIM_CAPTURED_EVENT : 0;
}

int standin__event_reached(void *event, bool *reached)
{
    FAIL_OR_GO_ON("event_reached");
    *reached = true;
    return ((const handle *)event)->captured ? SHIM_CAPTURED_EVENT : 0;
}

/* ---- graphs ---- */

int standin__capture_begin(void *stream)
{
    FAIL_OR_GO_ON("capture_begin");
    return shim_capture_begin(stream);
}

int standin__capture_end(void *stream, void **out)
{
    ONE_CALL;
    shim_graph *graph = NULL;
    int code = shim_capture_end(stream, &graph), failure = standin_failure_of("capture_end");
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
    return standin_failure_of(entry);
}

int standin__graph_destroy(void *graph)
{
    return drop_graph("graph_destroy", graph);
}

int standin__graph_nodes(void *graph, size_t *n)
{
    FAIL_OR_GO_ON("graph_nodes");
    *n = (size_t)shim_graph_nodes(graph);
    return 0;
}

int standin__executable_destroy(void *executable)
{
    void *graph = *(void **)executable;
    standin.used_bytes -= (size_t)shim_graph_nodes(graph) * STANDIN_NODE_BYTES;
    free(executable);
    return drop_graph("executable_destroy", graph);
}

int standin__graph_instantiate(void *graph, void **executable)
{
    FAIL_OR_GO_ON("graph_instantiate");
    shim_graph **made = malloc(sizeof *made);
    if (made == NULL) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    *made = shim_graph_dup(graph);
    *executable = made;
    standin.used_bytes += (size_t)shim_graph_nodes(graph) * STANDIN_NODE_BYTES;
    standin.outstanding++;
    return 0;
}

int standin__graph_update(void *executable, void *graph)
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

int standin__graph_launch(void *executable, void *stream)
{
    FAIL_OR_GO_ON("graph_launch");
    standin_spend(standin.graph_us);
    if (shim_captures(stream)) {
        return shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED);
    }
    int64_t begun_us = fl_now_us();
    int code = standin_note_launch(shim_graph_run(*(shim_graph **)executable));
    hidden_us += standin.fast_graphs ? fl_now_us() - begun_us : 0;
    return code;
}

/* ---- work of libraries beside the plugin ---- */

typedef struct beside {
    int (*run)(void *call);
    void (*count)(void *call, int change);
    unsigned char call[STANDIN_BESIDE_BYTES];
} beside;

/* Other threads call meanwhile: it may wait for other processes. */
static int run_beside(void *call)
{
    beside *b = call;
    pthread_mutex_unlock(&standin_one_call);
    int code = b->run(b->call);
    pthread_mutex_lock(&standin_one_call);
    return code;
}

static void count_beside(void *call, int change)
{
    beside *b = call;
    b->count(b->call, change);
}

int standin_capture_beside(void *stream, int (*run)(void *call),
                           void (*count)(void *call, int change), const void *call,
                           size_t call_bytes)
{
    ONE_CALL;
    beside b = {run, count, {0}};
    if (!shim_captures(stream)) {
        return -1;
    }
    memcpy(b.call, call, call_bytes);
    return shim_capture_add_counted(stream, run_beside, &b, sizeof b, count_beside);
}
