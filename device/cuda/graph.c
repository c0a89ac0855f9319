/* Work that is captured once and launched many times: CUDA graphs.
 *
 * A captured kernel keeps the arguments of its launch. Three things may change behind them:
 *
 *     the workspace of the stream    a larger one has another address: such a graph is refused, and
 *                                    its caller captures anew
 *     bf16 copies of weights         written before the launch where the weights have changed
 *     device memory                  the work reads what is there when it runs
 *
 * While a stream is captured, no call may wait for the whole device: whoever must takes `waits`. */
#include "device/cuda/parts.h"
#include "device/system/alloc.h"

enum {
    WEIGHTS_FIRST = 16,
    NODE_BYTES = 4096,         /* of a node at least: its parameters may have as many */
    NODE_MOST_BYTES = 1 << 20, /* more is not the graph's */
};

/* A weight whose bf16 copy the work reads, and that of its bias. */
typedef struct weight_use {
    fl_weight *w;
    const fl_weight *bias; /* NULL: none */
    const void *copy, *bias_copy;
} weight_use;

struct fl_graph {
    void *executable;
    uint64_t workspace; /* the stream's, when it was captured */
    weight_use *uses;   /* [n] */
    int n;
    size_t room;
    size_t nodes, bytes; /* as the device's counts have them */
    bool launched;
};

/* ---- the driver's memory ---- */

/* What is free on the device; 0: the runtime does not say. */
static size_t free_bytes_of(const fl__cuda *c)
{
    size_t n = 0;
    return c->plugin->memory_free(&n) == FL_CUDA_OK ? n : 0;
}

/* Let the device's counts have `bytes` for this graph. */
static void count_graph(fl__cuda *c, fl_graph *g, size_t nodes, size_t bytes)
{
    atomic_fetch_add(&c->base.graph_nodes, nodes - g->nodes);
    atomic_fetch_add(&c->base.graph_bytes, bytes - g->bytes);
    g->nodes = nodes;
    g->bytes = bytes;
}

/* The graph's part of what was free before and is not now. The driver takes memory in large pieces,
 * which serve several graphs, and other processes take some of the same device at any time: so no
 * graph counts less than its nodes take at least, nor what its nodes cannot have taken. */
static void count_taken(fl__cuda *c, fl_graph *g, size_t before)
{
    size_t after = free_bytes_of(c);
    size_t taken = after > 0 && before > after ? before - after : 0;
    size_t least = g->nodes * NODE_BYTES;
    taken = taken > g->nodes * NODE_MOST_BYTES ? 0 : g->bytes + taken;
    taken = taken > g->bytes ? taken : g->bytes;
    count_graph(c, g, g->nodes, taken > least ? taken : least);
}

/* ---- what a capture notes ---- */

static void drop_graph(fl__cuda *c, fl_graph **graph)
{
    fl_graph *g = *graph;
    if (g != NULL) {
        count_graph(c, g, 0, 0);
        if (g->executable != NULL) {
            FL__CUDA_GIVE(c, executable_destroy, g->executable);
        }
        fl_free(g->uses);
        fl_free(g);
        *graph = NULL;
    }
}

fl_status fl__cuda_capture_weight(fl__cuda_stream *s, fl_weight *w, const fl_weight *bias,
                                  const void *copy, const void *bias_copy)
{
    fl_graph *g = s->capture;
    for (int i = 0; i < g->n; i++) {
        if (g->uses[i].w == w && g->uses[i].bias == bias) {
            return FL_OK;
        }
    }
    if ((size_t)g->n == g->room) {
        void *more = NULL;
        size_t room = g->room == 0 ? WEIGHTS_FIRST : 2 * g->room;
        FL_TRY(fl_alloc_array(room, sizeof *g->uses, &more));
        for (int i = 0; i < g->n; i++) {
            ((weight_use *)more)[i] = g->uses[i];
        }
        fl_free(g->uses);
        g->uses = more;
        g->room = room;
    }
    g->uses[g->n++] = (weight_use){w, bias, copy, bias_copy};
    return FL_OK;
}

fl_status fl__cuda_refuse_in_capture(const fl__cuda *c, const char *what)
{
    return fl_fail(FL_ENOTSUP, "device cuda %d: %s while work is captured", c->number, what);
}

/* ---- begin and end ---- */

fl_status fl__cuda_capture_begin(fl_device *d, fl_stream *stream)
{
    fl__cuda *c = fl__cuda_of(d);
    fl__cuda_stream *s = fl__cuda_stream_of(c, stream);
    if (stream == NULL || s->capture != NULL) {
        return fl_fail(FL_EINVAL, "device cuda %d: %s cannot be captured", c->number,
                       stream == NULL ? "the default stream" : "a stream that is captured already");
    }
    FL_TRY(fl_alloc(sizeof *s->capture, (void **)&s->capture));
    s->capture->workspace = s->n_workspaces;
    pthread_mutex_lock(&c->waits);
    fl_status status = fl__cuda_enter(c);
    if (status == FL_OK) {
        status = fl__cuda_status(c, "capture_begin", c->plugin->capture_begin(s->queue.stream));
    }
    if (status != FL_OK) {
        pthread_mutex_unlock(&c->waits);
        drop_graph(c, &s->capture);
    }
    return status;
}

/* Put what was captured into the executable graph of `old`, if there is one that can take it, or
 * into one of its own. */
static fl_status make_executable(fl__cuda *c, fl_graph *g, fl_graph *old, void *captured)
{
    if (old != NULL && c->plugin->graph_update(old->executable, captured) == FL_CUDA_OK) {
        g->executable = old->executable;
        g->launched = old->launched;
        old->executable = NULL;
        count_graph(c, g, old->nodes, old->bytes);
        count_graph(c, old, 0, 0);
        return FL_OK;
    }
    size_t before = free_bytes_of(c), nodes = 0;
    FL_TRY(fl__cuda_status(c, "graph_instantiate",
                           c->plugin->graph_instantiate(captured, &g->executable)));
    count_graph(c, g, c->plugin->graph_nodes(captured, &nodes) == FL_CUDA_OK ? nodes : 0, 0);
    count_taken(c, g, before);
    return FL_OK;
}

fl_status fl__cuda_capture_end(fl_device *d, fl_stream *stream, fl_graph **graph)
{
    fl__cuda *c = fl__cuda_of(d);
    fl__cuda_stream *s = fl__cuda_stream_of(c, stream);
    fl_graph *g = s->capture, *old = *graph;
    void *captured = NULL;
    *graph = NULL;
    if (g == NULL) {
        drop_graph(c, &old);
        return fl_fail(FL_EINVAL, "device cuda %d: no capture has begun", c->number);
    }
    s->capture = NULL;
    (void)c->plugin->choose_device(c->number);
    fl_status status =
        fl__cuda_status(c, "capture_end", c->plugin->capture_end(s->queue.stream, &captured));
    pthread_mutex_unlock(&c->waits);
    status = status == FL_OK ? make_executable(c, g, old, captured) : status;
    if (captured != NULL) {
        FL__CUDA_GIVE(c, graph_destroy, captured);
    }
    if (old != NULL && old->executable != NULL) {
        FL__CUDA_GIVE(c, stream_wait, s->queue.stream); /* it may be at work */
    }
    drop_graph(c, &old);
    if (status != FL_OK) {
        drop_graph(c, &g);
    }
    *graph = g;
    return status;
}

/* ---- launch ---- */

fl_status fl__cuda_graph_launch(fl_device *d, fl_stream *stream, fl_graph *g)
{
    fl__cuda *c = fl__cuda_of(d);
    fl__cuda_stream *s = fl__cuda_stream_of(c, stream);
    if (g->workspace != s->n_workspaces) {
        return fl_fail(FL_ENOTSUP,
                       "device cuda %d: the stream's workspace has grown since the work "
                       "was captured",
                       c->number);
    }
    for (int i = 0; i < g->n; i++) {
        const weight_use *use = &g->uses[i];
        const void *copy = NULL, *bias_copy = NULL;
        FL_TRY(fl__cuda_weight_copies(c, s, use->w, use->bias, &copy, &bias_copy));
        if (copy != use->copy || bias_copy != use->bias_copy) {
            return fl_fail(FL_ENOTSUP,
                           "device cuda %d: a weight's copy has moved since the work "
                           "was captured",
                           c->number);
        }
    }
    size_t before = g->launched ? 0 : free_bytes_of(c);
    FL__CUDA_CALL(c, graph_launch, g->executable, s->queue.stream);
    if (!g->launched) { /* the driver may bring it to the device only now */
        g->launched = true;
        count_taken(c, g, before);
    }
    return FL_OK;
}

void fl__cuda_graph_destroy(fl_device *d, fl_graph **graph)
{
    drop_graph(fl__cuda_of(d), graph);
}
