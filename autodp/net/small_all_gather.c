/* One round, with two slots so that a fast member may be one round ahead:
 *
 *   direct:           every member  -> every other
 *   through a root:   the others -> root (blobs), then root -> the others (the table of all blobs)
 *
 * Buffers grow with N, not with its square: a member has one receive row for each member that sends
 * to it, of a blob each, or one row of a whole table from the root.
 * A message is a header and its payload; the header has the generation, the round and the size. A
 * table has a byte for each member before its rows: 1 where the row is missing. */
#include "autodp/net/small_all_gather.h"

#include "device/system/alloc.h"

#include <string.h>

enum { N_SLOTS = 2 };

typedef struct header {
    uint32_t generation;
    uint32_t status; /* of the table: what the root found wrong with the blobs, as -fl_status */
    uint64_t round;
    uint64_t size_bytes;
} header;

struct fl_all_gather {
    fl_net *net;
    int rank, size;
    int root; /* FL_ALL_GATHER_DIRECT: none */
    uint64_t tag;
    uint64_t round, n_posted;    /* rounds done, and rounds whose messages are expected */
    size_t blob_bytes;           /* header and max_bytes */
    size_t in_bytes, out_bytes;  /* of one incoming and one outgoing message at most */
    unsigned char *lacks;        /* [size] 1: the latest round has no row of this member */
    unsigned char *in, *out;     /* in [N_SLOTS][n_rows][in_bytes], out [out_bytes] */
    fl_net_buffer **in_buffers;  /* [N_SLOTS][size]; NULL where nothing comes from */
    fl_net_buffer **out_buffers; /* [size] */
};

static bool linked(const fl_all_gather *x, int peer)
{
    bool direct = x->root == FL_ALL_GATHER_DIRECT;
    return peer != x->rank && (direct || x->rank == x->root || peer == x->root);
}

static size_t slot_of(const fl_all_gather *x, uint64_t round, int peer)
{
    return (size_t)(round % N_SLOTS) * (size_t)x->size + (size_t)peer;
}

/* Whether this member receives only from the root. */
static bool is_leaf(const fl_all_gather *x)
{
    return x->root != FL_ALL_GATHER_DIRECT && x->rank != x->root;
}

static size_t table_bytes(const fl_all_gather *x, size_t size_bytes)
{
    return sizeof(header) + (size_t)x->size + size_bytes * (size_t)x->size;
}

/* The memory of a slot. A leaf has one row for each of its slots. */
static unsigned char *row_of(const fl_all_gather *x, size_t slot)
{
    return x->in + (is_leaf(x) ? slot / (size_t)x->size : slot) * x->in_bytes;
}

/* Ignore a failure whose cause is the loss of an expendable peer. */
static fl_status unless_lost(const fl_all_gather *x, int peer, fl_status status)
{
    return status != FL_OK && fl_net_lost(x->net, peer) && fl_net_state(x->net) == FL_OK ? FL_OK
                                                                                         : status;
}

/* Post the receives of this round and of the next before anything is sent in this round: a member
 * that has finished this round may send its next message, or leave, and a receive from a member
 * that has left cannot be posted. */
static fl_status post(fl_all_gather *x)
{
    for (; x->n_posted <= x->round + 1; x->n_posted++) {
        for (int peer = 0; peer < x->size; peer++) {
            if (linked(x, peer)) {
                FL_TRY(unless_lost(x, peer,
                                   fl_net_recv(x->in_buffers[slot_of(x, x->n_posted, peer)], peer,
                                               x->tag, 0, x->in_bytes)));
            }
        }
    }
    return FL_OK;
}

static fl_status make_buffers(fl_all_gather *x)
{
    size_t n_slots = (size_t)N_SLOTS * (size_t)x->size;
    FL_TRY(fl_alloc_array(is_leaf(x) ? N_SLOTS : n_slots, x->in_bytes, (void **)&x->in));
    FL_TRY(fl_alloc(x->out_bytes, (void **)&x->out));
    FL_TRY(fl_alloc((size_t)x->size, (void **)&x->lacks));
    FL_TRY(fl_alloc_array(n_slots, sizeof *x->in_buffers, (void **)&x->in_buffers));
    FL_TRY(fl_alloc_array((size_t)x->size, sizeof *x->out_buffers, (void **)&x->out_buffers));
    for (int peer = 0; peer < x->size; peer++) {
        if (!linked(x, peer)) {
            continue;
        }
        FL_TRY(fl_net_buffer_create(x->net, x->out, x->out_bytes, &x->out_buffers[peer]));
        for (uint64_t s = 0; s < N_SLOTS; s++) {
            size_t i = slot_of(x, s, peer);
            FL_TRY(fl_net_buffer_create(x->net, row_of(x, i), x->in_bytes, &x->in_buffers[i]));
        }
    }
    return FL_OK;
}

fl_status fl_all_gather_create(fl_net *net, int rank, int size, int root, uint64_t tag,
                               size_t max_bytes, fl_all_gather **out)
{
    fl_all_gather *x = NULL;
    FL_TRY(fl_alloc(sizeof *x, (void **)&x));
    x->net = net;
    x->rank = rank;
    x->size = size;
    x->root = root;
    x->tag = tag;
    x->blob_bytes = sizeof(header) + max_bytes;
    x->in_bytes = is_leaf(x) ? table_bytes(x, max_bytes) : x->blob_bytes;
    x->out_bytes = rank == root ? table_bytes(x, max_bytes) : x->blob_bytes;
    fl_status status = make_buffers(x);
    if (status != FL_OK) {
        fl_all_gather_destroy(&x);
        return status;
    }
    *out = x;
    return FL_OK;
}

void fl_all_gather_destroy(fl_all_gather **gather)
{
    fl_all_gather *x = *gather;
    if (x == NULL) {
        return;
    }
    *gather = NULL;
    for (int i = 0; x->in_buffers != NULL && i < N_SLOTS * x->size; i++) {
        fl_net_buffer_destroy(&x->in_buffers[i]);
    }
    for (int i = 0; x->out_buffers != NULL && i < x->size; i++) {
        fl_net_buffer_destroy(&x->out_buffers[i]);
    }
    fl_free(x->in_buffers);
    fl_free(x->out_buffers);
    fl_free(x->lacks);
    fl_free(x->in);
    fl_free(x->out);
    fl_free(x);
}

static fl_status check_header(const fl_all_gather *x, const header *h, int peer,
                              uint32_t generation, size_t size_bytes)
{
    if (h->generation != generation) {
        return fl_fail(FL_ESTALE, "member %d is in generation %u, member %d in %u", peer,
                       h->generation, x->rank, generation);
    }
    if (h->size_bytes != size_bytes || h->round != x->round) {
        return fl_fail(FL_EINTERNAL, "member %d gave %llu bytes in round %llu, not %zu in %llu",
                       peer, (unsigned long long)h->size_bytes, (unsigned long long)h->round,
                       size_bytes, (unsigned long long)x->round);
    }
    return FL_OK;
}

static fl_status send_to_all(fl_all_gather *x, size_t message_bytes)
{
    for (int peer = 0; peer < x->size; peer++) {
        if (linked(x, peer)) {
            FL_TRY(unless_lost(x, peer,
                               fl_net_send(x->out_buffers[peer], peer, x->tag, 0, message_bytes)));
        }
    }
    return FL_OK;
}

static fl_status wait_sent(fl_all_gather *x, int64_t deadline_us)
{
    for (int peer = 0; peer < x->size; peer++) {
        if (linked(x, peer)) {
            FL_TRY(unless_lost(x, peer, fl_net_wait_send(x->out_buffers[peer], deadline_us)));
        }
    }
    return FL_OK;
}

/* Receive the blobs of all linked members into all; *found is the first thing wrong with them. */
static fl_status collect(fl_all_gather *x, uint32_t generation, size_t size_bytes,
                         unsigned char *all, fl_status *found, int64_t deadline_us)
{
    for (int peer = 0; peer < x->size; peer++) {
        if (!linked(x, peer)) {
            continue;
        }
        size_t slot = slot_of(x, x->round, peer);
        fl_status came = fl_net_wait_recv(x->in_buffers[slot], deadline_us);
        FL_TRY(unless_lost(x, peer, came));
        x->lacks[peer] = came != FL_OK;
        if (came != FL_OK) {
            memset(all + (size_t)peer * size_bytes, 0, size_bytes);
            continue;
        }
        const unsigned char *message = row_of(x, slot);
        header h;
        memcpy(&h, message, sizeof h);
        fl_status status = check_header(x, &h, peer, generation, size_bytes);
        if (status == FL_OK) {
            memcpy(all + (size_t)peer * size_bytes, message + sizeof h, size_bytes);
        } else if (*found == FL_OK) {
            *found = status;
        }
    }
    return FL_OK;
}

/* The table from the root. */
static fl_status take_table(fl_all_gather *x, uint32_t generation, size_t size_bytes,
                            unsigned char *all, fl_status *found, int64_t deadline_us)
{
    size_t slot = slot_of(x, x->round, x->root), n = (size_t)x->size;
    FL_TRY(fl_net_wait_recv(x->in_buffers[slot], deadline_us));
    const unsigned char *message = row_of(x, slot);
    header h;
    memcpy(&h, message, sizeof h);
    *found = check_header(x, &h, x->root, generation, size_bytes);
    if (*found == FL_OK && h.status != 0) {
        *found = fl_fail((fl_status) - (int)h.status,
                         "members differ in generation or size, as member %d saw it", x->root);
    }
    if (*found == FL_OK) {
        memcpy(x->lacks, message + sizeof h, n);
        memcpy(all, message + sizeof h + n, size_bytes * n);
    }
    return FL_OK;
}

/* The table to all others. */
static fl_status send_table(fl_all_gather *x, header *h, fl_status found, const unsigned char *rows)
{
    size_t n = (size_t)x->size;
    h->status = (uint32_t) - (int)found;
    memcpy(x->out, h, sizeof *h);
    memcpy(x->out + sizeof *h, x->lacks, n);
    memcpy(x->out + sizeof *h + n, rows, h->size_bytes * n);
    return send_to_all(x, table_bytes(x, h->size_bytes));
}

fl_status fl_all_gather_run(fl_all_gather *x, uint32_t generation, const void *mine,
                            size_t size_bytes, void *all, int64_t deadline_us)
{
    if (size_bytes > x->blob_bytes - sizeof(header)) {
        return fl_fail(FL_EINVAL, "%zu bytes are more than the %zu of a small all-gather",
                       size_bytes, x->blob_bytes - sizeof(header));
    }
    FL_TRY(post(x));
    unsigned char *rows = all;
    memmove(rows + (size_t)x->rank * size_bytes, mine, size_bytes);
    fl_status found = FL_OK;
    header h = {.generation = generation, .round = x->round, .size_bytes = size_bytes};
    if (x->rank != x->root) {
        memcpy(x->out, &h, sizeof h);
        memcpy(x->out + sizeof h, rows + (size_t)x->rank * size_bytes, size_bytes);
        FL_TRY(send_to_all(x, sizeof h + size_bytes));
    }
    if (is_leaf(x)) {
        FL_TRY(take_table(x, generation, size_bytes, rows, &found, deadline_us));
    } else {
        FL_TRY(collect(x, generation, size_bytes, rows, &found, deadline_us));
    }
    if (x->rank == x->root) {
        FL_TRY(send_table(x, &h, found, rows));
    }
    FL_TRY(wait_sent(x, deadline_us));
    x->round++;
    return found;
}

bool fl_all_gather_lacks(const fl_all_gather *x, int member)
{
    return x->lacks[member] != 0;
}
