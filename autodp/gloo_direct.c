/* The all-reduce between members of one host: each reads the others' memory, so that a byte is
 * copied once, by its receiver, instead of through two socket buffers; if the memory is shared, it
 * is added from where it lies, without a copy. P owners, P segments; the owner at place p:
 *
 *   1. tells the others READY and where its data lies
 *   2. adds the others' segment p to its own, as they become ready
 *   3. tells REDUCED
 *   4. copies segment q of each other q, as it is reduced
 *   5. tells DONE; who has heard it from all may change its data again
 *
 * Nobody reads what is being written: q's segment p is written only by q in (4), after p's REDUCED.
 * The notes are messages of the net, so deadlines, aborts and dead members are noticed as ever. */
#include "autodp/gloo_group.h"
#include "autodp/tag.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"
#include "device/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

/* Elements at a time: large enough for the call's fixed cost, small enough for the cache. */
enum { READ_CHUNK = 128 * 1024 };

/* Smaller buckets go by the ring, whose two messages are less than the three notes. */
enum { DIRECT_MIN = 32 * 1024 };

enum { READY, REDUCED, DONE, N_NOTES };

typedef struct note {
    uint64_t what;
    uint64_t address;  /* of the data, in the sender */
    fl_shared_key key; /* of the file that it lies in; id 0: in none */
    uint64_t offset_bytes;
} note;

struct gloo_direct {
    int *owners;                 /* [n_owners] */
    note *in;                    /* [n_owners][N_NOTES] */
    note out[N_NOTES];           /* the same to everybody */
    fl_net_buffer **in_buffers;  /* [n_owners]; NULL at my place */
    fl_net_buffer **out_buffers; /* [n_owners]; NULL at my place */
    fl_shared_view *views;       /* [n_owners]; none where the data is not shared */
    bool looked;                 /* ... or where it could not be opened: tried once */
};

/* ---- who can read whom ---- */

typedef struct card {
    uint64_t host; /* this boot of this machine, and the name space of its process numbers */
    int64_t pid;
    uint64_t address; /* of secret, in this process */
    uint64_t secret;
} card;

static bool read_memory(int pid, uint64_t address, void *to, size_t size_bytes)
{
    struct iovec local = {to, size_bytes};
    struct iovec remote = {(void *)(uintptr_t)address, size_bytes};
    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)size_bytes;
}

static uint64_t this_host(void)
{
    char text[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t n = 0;
    if (file != NULL) {
        n = fread(text, 1, 128, file);
        fclose(file);
    }
    ssize_t more = readlink("/proc/self/ns/pid", text + n, sizeof text - n);
    return XXH3_64bits(text, n + (more > 0 ? (size_t)more : 0));
}

fl_status fl__gloo_find_near(gloo_group *g, int64_t deadline_us)
{
    size_t size = (size_t)g->base.size, me = (size_t)g->base.index;
    card mine = {.host = this_host(), .pid = getpid()};
    uint64_t secret = fl_mix64((uint64_t)fl_now_us(), (uint64_t)mine.pid), found;
    mine.secret = secret;
    mine.address = (uint64_t)(uintptr_t)&secret;
    card *cards = NULL;
    FL_TRY(fl_alloc_array(size, sizeof *g->pids, (void **)&g->pids));
    FL_TRY(fl_alloc_array(size, size, (void **)&g->near));
    FL_TRY(fl_alloc_array(size, sizeof *cards, (void **)&cards));
    fl_status status =
        fl_exchange_run(g->sums, g->base.generation, &mine, sizeof mine, cards, deadline_us);
    for (size_t i = 0; i < size && status == FL_OK; i++) {
        g->pids[i] = (int)cards[i].pid;
        g->near[me * size + i] = cards[i].host == mine.host &&
                                 read_memory(g->pids[i], cards[i].address, &found, sizeof found) &&
                                 found == cards[i].secret;
    }
    fl_free(cards);
    FL_TRY(status);
    /* Also keeps `secret` where it is until all have read it. */
    return fl_exchange_run(g->sums, g->base.generation, g->near + me * size, size, g->near,
                           deadline_us);
}

static bool all_near(const gloo_group *g, const int *owners, int n_owners)
{
    for (int i = 0; i < n_owners; i++) {
        for (int j = 0; j < n_owners; j++) {
            if (!g->near[owners[i] * g->base.size + owners[j]]) {
                return false;
            }
        }
    }
    return true;
}

/* ---- buckets ---- */

static fl_status set_up(gloo_group *g, gloo_bucket *b, gloo_direct *d, const int *owners)
{
    size_t n = (size_t)b->n_owners;
    FL_TRY(fl_alloc_array(n, sizeof *d->owners, (void **)&d->owners));
    FL_TRY(fl_alloc_array(n, N_NOTES * sizeof *d->in, (void **)&d->in));
    FL_TRY(fl_alloc_array(n, sizeof *d->views, (void **)&d->views));
    FL_TRY(fl_alloc_array(n, sizeof(fl_net_buffer *), (void **)&d->in_buffers));
    FL_TRY(fl_alloc_array(n, sizeof(fl_net_buffer *), (void **)&d->out_buffers));
    memcpy(d->owners, owners, n * sizeof *owners);
    for (uint64_t what = 0; what < N_NOTES; what++) {
        d->out[what] = (note){.what = what, .address = (uint64_t)(uintptr_t)b->base.data};
    }
    for (size_t i = 0; i < n; i++) {
        if (i != (size_t)b->my_place) {
            FL_TRY(fl_net_buffer_create(g->net, d->in + i * N_NOTES, N_NOTES * sizeof *d->in,
                                        &d->in_buffers[i]));
            FL_TRY(fl_net_buffer_create(g->net, d->out, sizeof d->out, &d->out_buffers[i]));
        }
    }
    return FL_OK;
}

fl_status fl__gloo_direct_create(gloo_group *g, gloo_bucket *b, const int *owners)
{
    if (g->near == NULL || b->base.n < DIRECT_MIN || !all_near(g, owners, b->n_owners)) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *b->direct, (void **)&b->direct));
    fl_status status = set_up(g, b, b->direct, owners);
    if (status != FL_OK) {
        fl__gloo_direct_destroy(b);
    }
    return status;
}

void fl__gloo_direct_destroy(gloo_bucket *b)
{
    gloo_direct *d = b->direct;
    if (d == NULL) {
        return;
    }
    b->direct = NULL;
    for (int i = 0; i < b->n_owners; i++) {
        if (d->in_buffers != NULL) {
            fl_net_buffer_destroy(&d->in_buffers[i]);
        }
        if (d->out_buffers != NULL) {
            fl_net_buffer_destroy(&d->out_buffers[i]);
        }
        if (d->views != NULL) {
            fl_shared_view_close(&d->views[i]);
        }
    }
    fl_free(d->views);
    fl_free(d->in_buffers);
    fl_free(d->out_buffers);
    fl_free(d->owners);
    fl_free(d->in);
    fl_free(d);
}

void fl__gloo_direct_share(fl_bucket *bucket, const fl_shared *shared, size_t offset_bytes)
{
    gloo_direct *d = ((gloo_bucket *)bucket)->direct;
    for (int what = 0; d != NULL && what < N_NOTES; what++) {
        d->out[what].key = fl_shared_key_of(shared);
        d->out[what].offset_bytes = offset_bytes;
    }
}

/* ---- the all-reduce ---- */

/* The other places in the order p + 1, p + 2, ..., so that not all read the same one at once. */
static int other(const gloo_bucket *b, int k)
{
    return (b->my_place + k) % b->n_owners;
}

static fl_status expect_notes(const gloo_bucket *b)
{
    uint64_t tag = fl_tag(FL_TAG_DIRECT, b->base.id);
    for (int k = 1; k < b->n_owners; k++) {
        int place = other(b, k);
        for (size_t what = 0; what < N_NOTES; what++) {
            FL_TRY(fl_net_recv(b->direct->in_buffers[place], b->direct->owners[place], tag,
                               what * sizeof(note), sizeof(note)));
        }
    }
    return FL_OK;
}

static fl_status tell(const gloo_bucket *b, size_t what)
{
    uint64_t tag = fl_tag(FL_TAG_DIRECT, b->base.id);
    for (int k = 1; k < b->n_owners; k++) {
        int place = other(b, k);
        FL_TRY(fl_net_send(b->direct->out_buffers[place], b->direct->owners[place], tag,
                           what * sizeof(note), sizeof(note)));
    }
    return FL_OK;
}

static fl_status hear(const gloo_group *g, const gloo_bucket *b, int place, uint64_t what)
{
    FL_TRY(fl_net_wait_recv(b->direct->in_buffers[place], fl_deadline_us(g->wait_timeout_ms)));
    const note *heard = &b->direct->in[(uint64_t)place * N_NOTES + what];
    if (heard->what != what) {
        return fl_fail(FL_EINTERNAL, "member %d told %llu, expected was %llu",
                       b->direct->owners[place], (unsigned long long)heard->what,
                       (unsigned long long)what);
    }
    return FL_OK;
}

/* Once everybody has said where its data lies. A view that cannot be had is no failure. */
static void look(gloo_group *g, const gloo_bucket *b, int place)
{
    const note *ready = &b->direct->in[place * N_NOTES + READY];
    size_t size_bytes = sizeof(float) * (size_t)b->base.n;
    if (ready->key.id == 0) {
        return;
    }
    if (fl_shared_view_open(g->pids[b->direct->owners[place]], &ready->key, ready->offset_bytes,
                            size_bytes, &b->direct->views[place]) != FL_OK) {
        fl_log(FL_LOG_WARN, "the gradients of member %d are copied: %s", b->direct->owners[place],
               fl_errmsg());
    }
}

/* Elements at .. at + n - 1 of the owner at `place`, copied to `to`. */
static fl_status fetch(gloo_group *g, const gloo_bucket *b, int place, int64_t at, int64_t n,
                       float *to)
{
    int member = b->direct->owners[place];
    uint64_t address = b->direct->in[place * N_NOTES + READY].address;
    if (!read_memory(g->pids[member], address + sizeof(float) * (uint64_t)at, to,
                     sizeof(float) * (size_t)n)) {
        int error = errno;
        fl_net_abort(g->net, FL_EPEER);
        return fl_fail(FL_EPEER, "reading the memory of member %d: %s", member, strerror(error));
    }
    return FL_OK;
}

static fl_status take_chunk(gloo_group *g, const gloo_bucket *b, int place, int64_t at, int64_t n,
                            bool adding)
{
    const float *seen = b->direct->views[place].data;
    float *mine = b->base.data + at;
    if (seen == NULL) {
        FL_TRY(fetch(g, b, place, at, n, adding ? g->scratch : mine));
    } else if (!adding) {
        memcpy(mine, seen + at, sizeof(float) * (size_t)n);
    }
    if (adding) {
        fl__gloo_add(mine, seen == NULL ? g->scratch : seen + at, n);
    }
    return FL_OK;
}

/* Take segment `segment` of the owner at `place`: add it to mine, or put it in its place. */
static fl_status take(gloo_group *g, const gloo_bucket *b, int place, int segment, bool adding)
{
    int64_t at = b->base.n * segment / b->n_owners;
    int64_t end = b->base.n * (segment + 1) / b->n_owners;
    while (at < end) {
        int64_t n = end - at < READ_CHUNK ? end - at : READ_CHUNK;
        FL_TRY(fl_net_state(g->net));
        FL_TRY(take_chunk(g, b, place, at, n, adding));
        atomic_fetch_add(&g->received_bytes, (int64_t)sizeof(float) * n);
        atomic_fetch_add(&g->sent_bytes, (int64_t)sizeof(float) * n);
        at += n;
    }
    return FL_OK;
}

fl_status fl__gloo_direct_reduce(gloo_group *g, gloo_bucket *b)
{
    FL_TRY(expect_notes(b));
    FL_TRY(tell(b, READY));
    for (int k = 1; k < b->n_owners; k++) {
        FL_TRY(hear(g, b, other(b, k), READY));
        if (!b->direct->looked) {
            look(g, b, other(b, k));
        }
        FL_TRY(take(g, b, other(b, k), b->my_place, true));
    }
    b->direct->looked = true;
    FL_TRY(tell(b, REDUCED));
    for (int k = 1; k < b->n_owners; k++) {
        FL_TRY(hear(g, b, other(b, k), REDUCED));
        FL_TRY(take(g, b, other(b, k), other(b, k), false));
    }
    FL_TRY(tell(b, DONE));
    for (int k = 1; k < b->n_owners; k++) {
        FL_TRY(hear(g, b, other(b, k), DONE));
    }
    for (int k = 1; k < b->n_owners; k++) {
        for (int what = 0; what < N_NOTES; what++) {
            FL_TRY(fl_net_wait_send(b->direct->out_buffers[other(b, k)],
                                    fl_deadline_us(g->wait_timeout_ms)));
        }
    }
    return FL_OK;
}
