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
#include "device/alloc.h"
#include "device/cuda/parts.h"

enum { WEIGHTS_FIRST = 16 };

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
};

/* ---- what a capture notes ---- */

static void drop_graph(const fl__cuda *c, fl_graph **graph)
{
    fl_graph *g = *graph;
    if (g != NULL) {
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
static fl_status make_executable(const fl__cuda *c, fl_graph *g, fl_graph *old, void *captured)
{
    if (old != NULL && c->plugin->graph_update(old->executable, captured) == FL_CUDA_OK) {
        g->executable = old->executable;
        old->executable = NULL;
        return FL_OK;
    }
    return fl__cuda_status(c, "graph_instantiate",
                           c->plugin->graph_instantiate(captured, &g->executable));
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
    FL__CUDA_CALL(c, graph_launch, g->executable, s->queue.stream);
    return FL_OK;
}

void fl__cuda_graph_destroy(fl_device *d, fl_graph **graph)
{
    drop_graph(fl__cuda_of(d), graph);
}
