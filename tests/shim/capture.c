#include "tests/shim/capture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPTURES_MAX = 8 };

typedef struct node {
    int (*run)(void *call);
    void *call;
    size_t call_bytes;
} node;

struct shim_graph {
    node *nodes; /* [n] in the order of the stream */
    int n, room;
};

static struct {
    const void *stream; /* NULL: a free place */
    pthread_t thread;
    shim_graph *graph;
    int code; /* of the call that spoilt it */
} captures[CAPTURES_MAX];

static int place_of(const void *stream)
{
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].stream == stream) {
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

static void add_node(shim_graph *g, int (*run)(void *call), const void *call, size_t call_bytes)
{
    if (g->n == g->room) {
        g->room = 2 * g->room + 16;
        g->nodes = checked(realloc(g->nodes, (size_t)g->room * sizeof *g->nodes));
    }
    node *to = &g->nodes[g->n++];
    *to = (node){run, checked(aligned_alloc(64, (call_bytes + 64) / 64 * 64)), call_bytes};
    memcpy(to->call, call, call_bytes);
}

shim_graph *shim_graph_dup(const shim_graph *g)
{
    shim_graph *copy = checked(calloc(1, sizeof *copy));
    for (int i = 0; i < g->n; i++) {
        add_node(copy, g->nodes[i].run, g->nodes[i].call, g->nodes[i].call_bytes);
    }
    return copy;
}

void shim_graph_destroy(shim_graph *g)
{
    for (int i = 0; i < g->n; i++) {
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

int shim_capture_add(const void *stream, int (*run)(void *call), const void *call,
                     size_t call_bytes)
{
    int i = place_of(stream);
    if (captures[i].code != 0) {
        return SHIM_CAPTURE_INVALIDATED;
    }
    add_node(captures[i].graph, run, call, call_bytes);
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
    return 0;
}

int shim_capture_end(const void *stream, shim_graph **out)
{
    int i = stream == NULL ? -1 : place_of(stream);
    *out = NULL;
    if (i < 0) {
        return SHIM_CAPTURE_UNSUPPORTED;
    }
    bool good = captures[i].code == 0, mine = pthread_equal(captures[i].thread, pthread_self());
    shim_graph *graph = captures[i].graph;
    captures[i].stream = NULL;
    if (good && mine) {
        *out = graph;
        return 0;
    }
    shim_graph_destroy(graph);
    return mine ? SHIM_CAPTURE_INVALIDATED : SHIM_CAPTURE_WRONG_THREAD;
}
