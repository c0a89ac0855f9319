/* Streams whose work is noted instead of done, and graphs of such work: what the stand-in for the
 * CUDA runtime and the launches of the shim share. A stream that waits for an event of captured
 * work is captured, too, until its work has been waited for by the stream that was captured first.
 * Nothing here is thread-safe. */
#ifndef FL_TESTS_SHIM_CAPTURE_H
#define FL_TESTS_SHIM_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes of the runtime. */
enum {
    SHIM_CAPTURE_UNSUPPORTED = 900,
    SHIM_CAPTURE_INVALIDATED = 901,
    SHIM_CAPTURE_UNJOINED = 904,
    SHIM_CAPTURE_ISOLATION = 905,
    SHIM_CAPTURED_EVENT = 907,
    SHIM_CAPTURE_WRONG_THREAD = 908,
    SHIM_GRAPH_UPDATE_FAILURE = 910
};

typedef struct shim_graph shim_graph;

bool shim_captures(const void *stream);

/* Whether this thread captures a stream; whether any thread does. */
bool shim_captures_here(void);
bool shim_captures_any(void);

/* A place in captured work. */
typedef struct shim_fork {
    int capture;     /* -1: in none */
    uint64_t serial; /* of the capture */
    const void *stream;
    int n_nodes;
} shim_fork;

/* Where the stream is now, for an event; let `stream` wait for that. 0 or a code. */
shim_fork shim_capture_mark(const void *stream);
int shim_capture_wait(const void *stream, const shim_fork *fork);

/* The same for work that counts its copies: count(call, 1) for each, count(call, -1) at its end. */
int shim_capture_add_counted(const void *stream, int (*run)(void *call), const void *call,
                             size_t call_bytes, void (*count)(void *call, int change));

/* Note a piece of work, which is run(call) with a copy of call [call_bytes]. 0 or a code. */
int shim_capture_add(const void *stream, int (*run)(void *call), const void *call,
                     size_t call_bytes);

/* A call that is not allowed: those captures of the device are spoilt. Returns `code`. */
int shim_capture_spoil(int code);

int shim_capture_begin(const void *stream);
int shim_capture_end(const void *stream, shim_graph **out); /* *out NULL after a failure */

shim_graph *shim_graph_dup(const shim_graph *graph);
void shim_graph_destroy(shim_graph *graph);
bool shim_graph_same_form(const shim_graph *a, const shim_graph *b); /* the same work in order */
int shim_graph_run(const shim_graph *graph);
int shim_graph_nodes(const shim_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
