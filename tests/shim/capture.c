#include "tests/shim/capture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPTURES_MAX = 8, JOINED_MAX = 16 };

typedef struct node {
    int (*run)(void *call);
    void *call;
    size_t call_bytes;
    void (*count)(void *call, int change); /* NULL: nobody counts it */
} node;

struct shim_graph {
    node *nodes; /* [n] in the order of the stream */
    int n, room;
};

/* A stream that has come to a capture by waiting for an event of it. */
typedef struct joined_stream {
    const void *stream;
    int n_nodes; /* of the graph, behind its last piece of work; of what was waited for: */
    int n_waited;
} joined_stream;

static struct {
    joined_stream joined[JOINED_MAX];
    int n_joined;
    uint64_t serial;
    const void *stream; /* NULL: a free place */
    pthread_t thread;
    shim_graph *graph;
    int code; /* of the call that spoilt it */
} captures[CAPTURES_MAX];

static uint64_t n_captures;

static joined_stream *find_joined(int i, const void *stream)
{
    for (int j = 0; captures[i].stream != NULL && j < captures[i].n_joined; j++) {
        if (captures[i].joined[j].stream == stream) {
            return &captures[i].joined[j];
        }
    }
    return NULL;
}

static int place_of(const void *stream)
{
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].stream == stream || (stream != NULL && find_joined(i, stream) != NULL)) {
            return i;
        }
    }
    return -1;
}

bool shim_captures(const void *stream)
{
    return stream != NULL && place_of(stream) >= 0;
}

bool shim_captures_here(void)
{
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].stream != NULL && pthread_equal(captures[i].thread, pthread_self())) {
            return true;
        }
    }
    return false;
}

bool shim_captures_any(void)
{
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].stream != NULL) {
            return true;
        }
    }
    return false;
}

int shim_capture_spoil(int code)
{
    for (int i = 0; i < CAPTURES_MAX; i++) {
        captures[i].code = captures[i].stream != NULL ? code : 0;
    }
    return code;
}

/* ---- graphs ---- */

static void *checked(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "stand-in: no memory for captured work\n");
        abort();
    }
    return memory;
}

static void add_node(shim_graph *g, const node *n)
{
    const void *call = n->call;
    size_t call_bytes = n->call_bytes;
    if (g->n == g->room) {
        g->room = 2 * g->room + 16;
        g->nodes = checked(realloc(g->nodes, (size_t)g->room * sizeof *g->nodes));
    }
    node *to = &g->nodes[g->n++];
    *to = *n;
    to->call = checked(aligned_alloc(64, (call_bytes + 64) / 64 * 64));
    memcpy(to->call, call, call_bytes);
    if (n->count != NULL) {
        n->count(to->call, 1);
    }
}

shim_graph *shim_graph_dup(const shim_graph *g)
{
    shim_graph *copy = checked(calloc(1, sizeof *copy));
    for (int i = 0; i < g->n; i++) {
        add_node(copy, &g->nodes[i]);
    }
    return copy;
}

void shim_graph_destroy(shim_graph *g)
{
    for (int i = 0; i < g->n; i++) {
        if (g->nodes[i].count != NULL) {
            g->nodes[i].count(g->nodes[i].call, -1);
        }
        free(g->nodes[i].call);
    }
    free(g->nodes);
    free(g);
}

bool shim_graph_same_form(const shim_graph *a, const shim_graph *b)
{
    for (int i = 0; a->n == b->n && i < a->n; i++) {
        if (a->nodes[i].run != b->nodes[i].run) {
            return false;
        }
    }
    return a->n == b->n;
}

int shim_graph_run(const shim_graph *g)
{
    int code = 0;
    for (int i = 0; i < g->n && code == 0; i++) {
        code = g->nodes[i].run(g->nodes[i].call);
    }
    return code;
}

int shim_graph_nodes(const shim_graph *g)
{
    return g->n;
}

/* ---- captures ---- */

int shim_capture_add_counted(const void *stream, int (*run)(void *call), const void *call,
                             size_t call_bytes, void (*count)(void *call, int change))
{
    int i = place_of(stream);
    if (captures[i].code != 0) {
        return SHIM_CAPTURE_INVALIDATED;
    }
    add_node(captures[i].graph, &(node){run, (void *)(uintptr_t)call, call_bytes, count});
    joined_stream *joined = find_joined(i, stream);
    if (joined != NULL) {
        joined->n_nodes = captures[i].graph->n;
    }
    return 0;
}

int shim_capture_add(const void *stream, int (*run)(void *call), const void *call,
                     size_t call_bytes)
{
    return shim_capture_add_counted(stream, run, call, call_bytes, NULL);
}

shim_fork shim_capture_mark(const void *stream)
{
    int i = stream == NULL ? -1 : place_of(stream);
    shim_fork none = {.capture = -1};
    if (i < 0) {
        return none;
    }
    return (shim_fork){i, captures[i].serial, stream, captures[i].graph->n};
}

int shim_capture_wait(const void *stream, const shim_fork *fork)
{
    int i = fork->capture, mine = stream == NULL ? -1 : place_of(stream);
    bool living = i >= 0 && captures[i].stream != NULL && captures[i].serial == fork->serial;
    if (i < 0 || !living) {
        return mine < 0 && i < 0 ? 0 : shim_capture_spoil(SHIM_CAPTURE_ISOLATION);
    }
    if (mine >= 0 && mine != i) {
        return shim_capture_spoil(SHIM_CAPTURE_ISOLATION);
    }
    if (mine < 0) {
        if (stream == NULL || captures[i].n_joined == JOINED_MAX) {
            return shim_capture_spoil(SHIM_CAPTURE_UNSUPPORTED);
        }
        captures[i].joined[captures[i].n_joined++] =
            (joined_stream){stream, captures[i].graph->n, 0};
    }
    joined_stream *joined = find_joined(i, fork->stream);
    if (stream == captures[i].stream && joined != NULL && fork->n_nodes > joined->n_waited) {
        joined->n_waited = fork->n_nodes;
    }
    return 0;
}

int shim_capture_begin(const void *stream)
{
    int i = place_of(NULL);
    if (stream == NULL || shim_captures(stream) || i < 0) {
        return SHIM_CAPTURE_UNSUPPORTED;
    }
    captures[i].stream = stream;
    captures[i].thread = pthread_self();
    captures[i].graph = checked(calloc(1, sizeof *captures[i].graph));
    captures[i].code = 0;
    captures[i].n_joined = 0;
    captures[i].serial = ++n_captures;
    return 0;
}

/* What joined and was not waited for would be lost. */
static bool is_unjoined(int i)
{
    for (int j = 0; j < captures[i].n_joined; j++) {
        if (captures[i].joined[j].n_waited < captures[i].joined[j].n_nodes) {
            return true;
        }
    }
    return false;
}

int shim_capture_end(const void *stream, shim_graph **out)
{
    int i = stream == NULL ? -1 : place_of(stream);
    *out = NULL;
    if (i < 0) {
        return SHIM_CAPTURE_UNSUPPORTED;
    }
    bool unjoined = captures[i].code == 0 && is_unjoined(i);
    bool good = captures[i].code == 0 && !unjoined,
         mine = pthread_equal(captures[i].thread, pthread_self());
    shim_graph *graph = captures[i].graph;
    captures[i].stream = NULL;
    if (good && mine) {
        *out = graph;
        return 0;
    }
    shim_graph_destroy(graph);
    return unjoined ? SHIM_CAPTURE_UNJOINED
           : mine   ? SHIM_CAPTURE_INVALIDATED
                    : SHIM_CAPTURE_WRONG_THREAD;
}
