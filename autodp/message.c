#include "autodp/message.h"

#include "autodp/net/open/net_open.h"
#include "autodp/net/small_all_gather.h"
#include "autodp/net/tag.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"

#include <stdio.h>
#include <string.h>

enum { GATHER_MAX_BYTES = 4096 };

/* With at most this many members, all-gathers are direct: they are rare, and a message through
 * another member is lost with that member. Fewer where each pair would need a connection for it. */
enum { GATHER_DIRECT = 64, GATHER_DIRECT_CONNECTING = 8 };

static const uint32_t broadcast_magic = 0x464c544c; /* FLTL */

typedef struct packet_header {
    uint32_t magic;
    uint32_t generation;
    uint64_t size_bytes;
} packet_header;

struct fl_message_group {
    fl_net *net;
    int rank, size; /* this member's index, and the number of members */
    int *ranks;     /* [size] ascending */
    fl_message_counts counts;
    fl_all_gather **through; /* [size] the all-gather through each member; NULL: not used so far */
    int root;                /* the member through which all-gathers go */
    const fl_all_gather *latest; /* the one that ran last */
    unsigned char *packet;       /* a header and FL_MESSAGE_MAX_BYTES */
    fl_net_buffer *in;
    fl_net_buffer **out; /* [size], all over `packet` */
};

int fl__message_index(const fl_message_group *g, int rank)
{
    for (int i = 0; i < g->size; i++) {
        if (g->ranks[i] == rank) {
            return i;
        }
    }
    return -1;
}

static fl_status number_members(fl_message_group *g, const fl_message_options *options)
{
    FL_TRY(fl_alloc_array((size_t)options->size, sizeof *g->ranks, (void **)&g->ranks));
    g->size = options->size;
    for (int i = 0; i < g->size; i++) {
        g->ranks[i] = options->ranks == NULL ? i : options->ranks[i];
    }
    g->rank = fl__message_index(g, options->rank);
    return g->rank >= 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "rank %d is no member of the message group", options->rank);
}

static bool is_direct(const fl_message_group *g)
{
    return g->size <= (fl_net_connects_late(g->net) ? GATHER_DIRECT_CONNECTING : GATHER_DIRECT);
}

/* Each root has an all-gather with a tag of its own: the receives that it has posted ahead stay for
 * when that root is used again. */
static fl_status use_root(fl_message_group *g, int root)
{
    if (g->through[root] == NULL) {
        FL_TRY(fl_all_gather_create(g->net, g->rank, g->size,
                                    is_direct(g) ? FL_ALL_GATHER_DIRECT : root,
                                    fl_tag(FL_TAG_MESSAGE_ALL_GATHER, (uint32_t)root),
                                    GATHER_MAX_BYTES, &g->through[root]));
    }
    g->root = root;
    return FL_OK;
}

static const size_t packet_bytes = sizeof(packet_header) + FL_MESSAGE_MAX_BYTES;

static fl_status set_up(fl_message_group *g)
{
    FL_TRY(fl_alloc_array((size_t)g->size, sizeof *g->through, (void **)&g->through));
    FL_TRY(use_root(g, 0));
    FL_TRY(fl_alloc(packet_bytes, (void **)&g->packet));
    FL_TRY(fl_net_buffer_create(g->net, g->packet, packet_bytes, &g->in));
    FL_TRY(fl_alloc_array((size_t)g->size, sizeof(fl_net_buffer *), (void **)&g->out));
    for (int peer = 0; peer < g->size; peer++) {
        FL_TRY(fl_net_buffer_create(g->net, g->packet, packet_bytes, &g->out[peer]));
    }
    return FL_OK;
}

static fl_status open_net(fl_message_group *g, const fl_message_options *options)
{
    char name[64];
    snprintf(name, sizeof name, "message/%u", options->membership);
    const fl_net_options net = {
        .rank = g->rank,
        .size = g->size,
        .name = name,
        .kv = options->kv,
        .host = options->host,
        .open_timeout_ms = options->open_timeout_ms,
        .wait_timeout_ms = options->wait_timeout_ms,
        .abort_set = options->abort_set,
        .generation = options->membership,
        .transport = options->transport,
    };
    FL_TRY(fl_net_open(&net, &g->net));
    return set_up(g);
}

fl_status fl_message_open(const fl_message_options *options, fl_message_group **out)
{
    fl_message_group *g = NULL;
    FL_TRY(fl_alloc(sizeof *g, (void **)&g));
    fl_status status = number_members(g, options);
    if (status == FL_OK) {
        status = open_net(g, options);
    }
    if (status != FL_OK) {
        fl_message_close(&g);
        return status;
    }
    *out = g;
    return FL_OK;
}

void fl_message_close(fl_message_group **group)
{
    fl_message_group *g = *group;
    if (g == NULL) {
        return;
    }
    *group = NULL;
    for (int root = 0; g->through != NULL && root < g->size; root++) {
        fl_all_gather_destroy(&g->through[root]);
    }
    for (int peer = 0; g->out != NULL && peer < g->size; peer++) {
        fl_net_buffer_destroy(&g->out[peer]);
    }
    fl_net_buffer_destroy(&g->in);
    fl_net_close(&g->net);
    fl_free(g->through);
    fl_free(g->out);
    fl_free(g->packet);
    fl_free(g->ranks);
    fl_free(g);
}

fl_net *fl__message_net(const fl_message_group *group)
{
    return group->net;
}

int fl_message_rank(const fl_message_group *group, int index)
{
    return group->ranks[index];
}

fl_message_counts fl_message_count(const fl_message_group *group)
{
    return group->counts;
}

void fl_message_follow(fl_message_group *group, const fl_message_counts *before)
{
    group->counts = *before;
}

void fl_message_abort(fl_message_group *group, fl_status why)
{
    fl_net_abort(group->net, why);
}

fl_status fl_message_state(fl_message_group *group)
{
    return fl_net_state(group->net);
}

fl_status fl_message_gather_through(fl_message_group *group, int rank)
{
    int root = fl__message_index(group, rank);
    if (root < 0) {
        return fl_fail(FL_EINVAL, "rank %d is not among the %d of a message group", rank,
                       group->size);
    }
    return is_direct(group) ? FL_OK : use_root(group, root);
}

fl_status fl_message_release(fl_message_group *group, const bool *spare)
{
    bool direct = is_direct(group);
    fl_status status = FL_OK;
    for (int peer = 0; peer < group->size; peer++) {
        bool can =
            spare[group->ranks[peer]] && peer != group->rank && (direct || peer != group->root);
        fl_status one = fl_net_set_expendable(group->net, peer, can);
        status = status == FL_OK ? one : status;
    }
    return status;
}

bool fl_message_lost(const fl_message_group *group, int rank)
{
    int peer = fl__message_index(group, rank);
    return peer >= 0 && group->latest != NULL && fl_all_gather_lacks(group->latest, peer);
}

/* A broadcast does not fail because it misses an expendable member that is gone. */
static fl_status unless_lost(fl_message_group *g, int peer, fl_status status)
{
    return status != FL_OK && fl_net_lost(g->net, peer) && fl_net_state(g->net) == FL_OK ? FL_OK
                                                                                         : status;
}

static fl_status send_message(fl_message_group *g, uint32_t generation, const void *data,
                              size_t size_bytes, int64_t deadline_us)
{
    if (size_bytes > FL_MESSAGE_MAX_BYTES) {
        return fl_fail(FL_EINVAL, "a message of %zu bytes, at most %d are allowed", size_bytes,
                       FL_MESSAGE_MAX_BYTES);
    }
    const packet_header h = {broadcast_magic, generation, size_bytes};
    memcpy(g->packet, &h, sizeof h);
    memcpy(g->packet + sizeof h, data, size_bytes);
    uint64_t tag = fl_tag(FL_TAG_MESSAGE_BROADCAST, 0);
    for (int peer = 0; peer < g->size; peer++) {
        if (peer != g->rank) {
            FL_TRY(unless_lost(g, peer,
                               fl_net_send(g->out[peer], peer, tag, 0, sizeof h + size_bytes)));
        }
    }
    for (int peer = 0; peer < g->size; peer++) {
        if (peer != g->rank) {
            FL_TRY(unless_lost(g, peer, fl_net_wait_send(g->out[peer], deadline_us)));
        }
    }
    return FL_OK;
}

/* root: an index */
static fl_status receive_message(fl_message_group *g, int root, uint32_t generation, void *data,
                                 size_t *size_bytes, int64_t deadline_us)
{
    FL_TRY(fl_net_recv(g->in, root, fl_tag(FL_TAG_MESSAGE_BROADCAST, 0), 0, packet_bytes));
    FL_TRY(fl_net_wait_recv(g->in, deadline_us));
    packet_header h;
    memcpy(&h, g->packet, sizeof h);
    if (h.magic != broadcast_magic || h.size_bytes > FL_MESSAGE_MAX_BYTES) {
        return fl_fail(FL_EINTERNAL, "no message, but something else from rank %d", g->ranks[root]);
    }
    if (h.generation != generation) {
        return fl_fail(FL_ESTALE, "rank %d sent a message of generation %u, rank %d is in %u",
                       g->ranks[root], h.generation, g->ranks[g->rank], generation);
    }
    memcpy(data, g->packet + sizeof h, h.size_bytes);
    *size_bytes = h.size_bytes;
    return FL_OK;
}

fl_status fl_message_broadcast(fl_message_group *group, int root, uint32_t generation, void *data,
                               size_t *size_bytes, int64_t deadline_us)
{
    int at = fl__message_index(group, root);
    if (at < 0) {
        return fl_fail(FL_EINVAL, "rank %d is not among the %d of a message group", root,
                       group->size);
    }
    group->counts.n_broadcasts++;
    if (at == group->rank) {
        fl_flight_enter(FL_FLIGHT_SEND_COMMAND, -1, group->counts.n_broadcasts,
                        (int64_t)*size_bytes);
        FL_TRY(send_message(group, generation, data, *size_bytes, deadline_us));
    } else {
        fl_flight_enter(FL_FLIGHT_RECEIVE_COMMAND, root, group->counts.n_broadcasts, 0);
        FL_TRY(receive_message(group, at, generation, data, size_bytes, deadline_us));
    }
    fl_flight_leave();
    return FL_OK;
}

fl_status fl_message_all_gather(fl_message_group *group, uint32_t generation, const void *mine,
                                size_t size_bytes, void *all, int64_t deadline_us)
{
    fl_all_gather *x = group->through[group->root];
    fl_flight_enter(FL_FLIGHT_GATHER, -1, ++group->counts.n_gathers, (int64_t)size_bytes);
    FL_TRY(fl_all_gather_run(x, generation, mine, size_bytes, all, deadline_us));
    group->latest = x;
    fl_flight_leave();
    return FL_OK;
}
