/* Graphs that captured operations of NCCL. NCCL ends a communicator only once no graph refers to
 * it: a call that destroys or aborts one with a living graph never returns. So the group has a list
 * of them:
 *
 *     in order     their owner destroys them before the buckets in them, and so before the
 *                  communicators
 *     by force     the watch thread raises the flags of all communicators, which ends a graph that
 *                  is at work; destroys the graphs, whatever their owner is doing; and then lets
 *                  NCCL free the communicators
 */
#include "autodp/nccl/nccl_group.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

typedef struct nccl_captured {
    fl_captured base;
    pthread_mutex_t mutex; /* the graph is launched, or destroyed. Taken behind the group's. */
    struct nccl_captured *next;
} nccl_captured;

static nccl_captured **list_of(nccl_group *g)
{
    return (nccl_captured **)(void *)&g->captured;
}

fl_status fl__nccl_captured_create(fl_group *group, fl_graph *graph, fl_captured **out)
{
    nccl_group *g = (nccl_group *)group;
    nccl_captured *c = NULL;
    *out = NULL;
    fl_status status = fl_alloc(sizeof *c, (void **)&c);
    if (status != FL_OK) {
        group->device->ops->graph_destroy(group->device, &graph);
        return status;
    }
    c->base = (fl_captured){.group = group, .graph = graph};
    pthread_mutex_init(&c->mutex, NULL);
    pthread_mutex_lock(&g->mutex);
    c->next = *list_of(g);
    *list_of(g) = c;
    bool too_late = g->failed != FL_OK; /* the watch thread may have been there */
    pthread_mutex_unlock(&g->mutex);
    *out = &c->base;
    if (too_late) {
        fl_captured_destroy(out);
        return fl__nccl_state(g);
    }
    return FL_OK;
}

static void drop_graph(nccl_captured *c)
{
    fl_device *d = c->base.group->device;
    pthread_mutex_lock(&c->mutex);
    d->ops->graph_destroy(d, &c->base.graph);
    pthread_mutex_unlock(&c->mutex);
}

void fl__nccl_captured_destroy(fl_captured *captured)
{
    nccl_captured *c = (nccl_captured *)captured;
    nccl_group *g = (nccl_group *)captured->group;
    pthread_mutex_lock(&g->mutex);
    nccl_captured **at = list_of(g);
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    pthread_mutex_unlock(&g->mutex);
    drop_graph(c);
    pthread_mutex_destroy(&c->mutex);
    fl_free(c);
}

static void note_launch(nccl_group *g, int64_t until_us)
{
    pthread_mutex_lock(&g->mutex);
    g->launch_until_us = until_us;
    pthread_mutex_unlock(&g->mutex);
}

fl_status fl__nccl_captured_launch(fl_captured *captured, fl_stream *stream)
{
    nccl_captured *c = (nccl_captured *)captured;
    nccl_group *g = (nccl_group *)captured->group;
    fl_device *d = captured->group->device;
    FL_TRY(fl__nccl_state(g));
    note_launch(g, fl__nccl_limit(g, fl_deadline_us(g->wait_timeout_ms)));
    pthread_mutex_lock(&c->mutex);
    fl_status status = captured->graph == NULL
                           ? fl_fail(FL_ESTALE, "the captured work is gone with its group")
                           : d->ops->graph_launch(d, stream, captured->graph);
    pthread_mutex_unlock(&c->mutex);
    note_launch(g, 0);
    return fl__nccl_result(g, status);
}

void fl__nccl_captured_drop(nccl_group *g)
{
    pthread_mutex_lock(&g->mutex);
    for (nccl_captured *c = *list_of(g); c != NULL; c = c->next) {
        drop_graph(c);
    }
    pthread_mutex_unlock(&g->mutex);
}
