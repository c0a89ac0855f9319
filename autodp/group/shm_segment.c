#include "autodp/group/shm_segment.h"

#include "autodp/group/shm_lives.h"
#include "autodp/net/host_id.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A stage has at most as many buckets as layers, and at most four channels. */
enum { N_ENTRIES = 640 };

typedef struct page {
    _Alignas(64) atomic_bool left; /* its owner takes part in nothing any more */
    fl_entry published;            /* counts all publications in this segment */
    fl_entry entries[N_ENTRIES];
} page;

struct fl_shm_segment {
    fl_shm_segment_options o;
    pthread_mutex_t mutex; /* guards the allocation of own entries */
    fl_shared *shared;     /* own page; NULL: none */
    fl_shared_view *views; /* [size], of the other members */
    int64_t *pids;         /* [size] */
    fl_shm_lives lives;    /* of the members that are seen, if the net connects late */
    unsigned char *sees;   /* [size][size]: what the row's member reads of the column's */
    void *probe;           /* exported memory, for others to try; NULL: none */
    fl_shared *probe_name;
};

/* Bits of `sees`. */
enum { SEES_SEGMENT = 1, SEES_DEVICE = 2, PROBE_BYTES = 64 };

/* ---- counts ---- */

static void wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void fl_entry_ring(fl_entry *entry)
{
    atomic_fetch_add(&entry->count, 1);
    wake_all(&entry->count);
}

static bool has_come(const atomic_uint *word, uint32_t target, uint32_t *seen)
{
    *seen = atomic_load(word);
    return (int32_t)(*seen - target) >= 0;
}

/* Long enough for a message of a micro-batch in flight; meanwhile other threads may take the
 * processor. */
static bool comes_soon(const atomic_uint *word, uint32_t target)
{
    enum { AWAKE_US = 200, LOOKS = 64 };
    int64_t end_us = fl_now_us() + AWAKE_US;
    uint32_t seen;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (has_come(word, target, &seen)) {
                return true;
            }
        }
        sched_yield();
    } while (fl_now_us() < end_us);
    return false;
}

/* Sleep until the owner rings, but not for long: neither a death nor an abort rings. */
static void sleep_on(const atomic_uint *word, uint32_t seen)
{
    const struct timespec slice = {.tv_nsec = 10 * 1000 * 1000};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &slice, NULL, 0);
}

/* A net that connects late would connect to each member that is waited for. */
static fl_status expect(fl_shm_segment *b, int member)
{
    if (!fl_shm_lives_watches(&b->lives, member)) {
        return fl_net_expect(b->o.net, member);
    }
    FL_TRY(fl_net_state(b->o.net));
    const page *theirs = b->views[member].data;
    bool ended = fl_shm_lives_has_ended(&b->lives, member);
    return atomic_load(&theirs->left) ? fl_fail(FL_EPEER, "member %d has left", member)
           : ended ? fl_fail(FL_EPEER, "member %d was lost: its process has ended", member)
                   : FL_OK;
}

static fl_status wait_for(fl_shm_segment *b, int member, const atomic_uint *word, uint32_t target,
                          fl_waiting how, int64_t deadline_us)
{
    uint32_t seen;
    FL_TRY(fl_net_state(b->o.net));
    if (has_come(word, target, &seen) || (how == FL_WAIT_AWAKE && comes_soon(word, target))) {
        return FL_OK;
    }
    int64_t started_us = fl_now_us(), latest_us = fl_deadline_us(b->o.wait_timeout_ms);
    latest_us = fl_net_wait_limit(b->o.net, deadline_us < latest_us ? deadline_us : latest_us);
    for (;;) {
        fl_status alive = expect(b, member);
        if (has_come(word, target, &seen)) {
            return FL_OK; /* also if the owner has left after its last ring */
        }
        FL_TRY(alive);
        if (fl_now_us() >= latest_us) {
            return fl_net_late(b->o.net, member, (latest_us - started_us) / 1000);
        }
        sleep_on(word, seen);
    }
}

fl_status fl_shm_segment_wait(fl_shm_segment *segment, const fl_look *look, uint32_t n,
                              fl_waiting how, int64_t deadline_us)
{
    return wait_for(segment, look->member, &look->entry->count, look->begin + n, how, deadline_us);
}

/* ---- opening ---- */

typedef struct card {
    uint64_t host; /* fl_host_id_at */
    int64_t pid;
    fl_shared_key key, probe; /* id 0: none */
} card;

static size_t memory_bytes(const fl_shm_segment *b)
{
    return sizeof(page) + b->o.extra_bytes;
}

static bool look_at(fl_shm_segment *b, int member, const card *theirs, const card *mine)
{
    b->pids[member] = theirs->pid;
    bool sees = mine->key.id != 0 && theirs->key.id != 0 && theirs->host == mine->host &&
                fl_shared_view_open(theirs->pid, &theirs->key, 0, memory_bytes(b),
                                    &b->views[member]) == FL_OK;
    if (sees && fl_net_connects_late(b->o.net)) {
        fl_shm_lives_watch(&b->lives, member, theirs->pid);
    }
    return sees;
}

/* Whether this device reads what another member's has exported. */
static bool try_device(const fl_shm_segment *b, const card *theirs)
{
    fl_device *d = b->o.device;
    fl_shared_view view = {0};
    bool reads = d != NULL && theirs->probe.id != 0 &&
                 d->ops->view_open(d, theirs->pid, &theirs->probe, PROBE_BYTES, &view) == FL_OK;
    if (reads) {
        d->ops->view_close(d, &view);
    }
    return reads;
}

static unsigned char look_at_all(fl_shm_segment *b, int member, const card *theirs,
                                 const card *mine)
{
    if (!look_at(b, member, theirs, mine)) {
        return 0;
    }
    return (unsigned char)(SEES_SEGMENT | (try_device(b, theirs) ? SEES_DEVICE : 0));
}

/* Without exported memory, messages between devices go through host memory. */
static void export_probe(fl_shm_segment *b, card *mine)
{
    fl_device *d = b->o.device;
    if (d != NULL && !d->ops->host_memory &&
        d->ops->memory_export(d, PROBE_BYTES, &b->probe, &b->probe_name) == FL_OK) {
        mine->probe = fl_shared_key_of(b->probe_name);
    }
}

static fl_status meet(fl_shm_segment *b, card *cards, int64_t deadline_us)
{
    int size = b->o.size, me = b->o.index;
    card mine = {.host = fl_host_id_at(b->o.host), .pid = getpid()};
    if (fl_shared_create(memory_bytes(b), &b->shared) == FL_OK) {
        mine.key = fl_shared_key_of(b->shared);
    } else {
        fl_log(FL_LOG_WARN, "everything goes through sockets: %s", fl_errmsg());
    }
    export_probe(b, &mine);
    FL_TRY(
        fl_all_gather_run(b->o.exchange, b->o.generation, &mine, sizeof mine, cards, deadline_us));
    unsigned char *row = b->sees + (int64_t)me * size;
    for (int i = 0; i < size; i++) {
        row[i] = i != me ? look_at_all(b, i, &cards[i], &mine) : 0;
    }
    row[me] = b->shared != NULL;
    return fl_all_gather_run(b->o.exchange, b->o.generation, row, (size_t)size, b->sees,
                             deadline_us);
}

static fl_status set_up(fl_shm_segment *b, int64_t deadline_us)
{
    size_t size = (size_t)b->o.size;
    card *cards = NULL;
    FL_TRY(fl_alloc_array(size, sizeof *b->views, (void **)&b->views));
    FL_TRY(fl_alloc_array(size, sizeof *b->pids, (void **)&b->pids));
    FL_TRY(fl_alloc_array(size, size, (void **)&b->sees));
    if (fl_net_connects_late(b->o.net)) {
        FL_TRY(fl_shm_lives_open(&b->lives, b->o.size));
    }
    FL_TRY(fl_alloc_array(size, sizeof *cards, (void **)&cards));
    fl_status status = meet(b, cards, deadline_us);
    fl_free(cards);
    return status;
}

fl_status fl_shm_segment_open(const fl_shm_segment_options *options, int64_t deadline_us,
                              fl_shm_segment **out)
{
    fl_shm_segment *b = NULL;
    FL_TRY(fl_alloc(sizeof *b, (void **)&b));
    b->o = *options;
    pthread_mutex_init(&b->mutex, NULL);
    fl_status status = set_up(b, deadline_us);
    if (status != FL_OK) {
        fl_shm_segment_close(&b);
        return status;
    }
    *out = b;
    return FL_OK;
}

void fl_shm_segment_close(fl_shm_segment **segment)
{
    fl_shm_segment *b = *segment;
    if (b == NULL) {
        return;
    }
    *segment = NULL;
    if (b->shared != NULL) {
        atomic_store(&((page *)fl_shared_data(b->shared))->left, true);
    }
    fl_shm_lives_close(&b->lives);
    for (int i = 0; b->views != NULL && i < b->o.size; i++) {
        fl_shared_view_close(&b->views[i]);
    }
    if (b->probe != NULL) {
        b->o.device->ops->memory_give(b->o.device, b->probe, PROBE_BYTES);
        fl_shared_destroy(&b->probe_name);
    }
    fl_shared_let_go(&b->shared); /* a member may not have read the last count yet */
    pthread_mutex_destroy(&b->mutex);
    fl_free(b->views);
    fl_free(b->pids);
    fl_free(b->sees);
    fl_free(b);
}

bool fl_shm_segment_is_shared(const fl_shm_segment *segment, int a, int b)
{
    return segment != NULL && segment->sees[(int64_t)a * segment->o.size + b] &&
           segment->sees[(int64_t)b * segment->o.size + a];
}

bool fl_shm_segment_reads_device(const fl_shm_segment *segment, int a, int b)
{
    return segment != NULL && (segment->sees[(int64_t)a * segment->o.size + b] & SEES_DEVICE) &&
           (segment->sees[(int64_t)b * segment->o.size + a] & SEES_DEVICE);
}

void *fl_shm_segment_extra(const fl_shm_segment *segment, int member)
{
    const void *memory =
        member == segment->o.index ? fl_shared_data(segment->shared) : segment->views[member].data;
    return (char *)(uintptr_t)memory + sizeof(page);
}

/* ---- entries ---- */

static bool same_name(const fl_entry_name *a, const fl_entry_name *b)
{
    return a->kind == b->kind && a->peer == b->peer && a->id == b->id;
}

/* The entry of this name; NULL: it was never published. */
static const fl_entry *entry_of(const page *p, const fl_entry_name *name)
{
    for (int i = 0; i < N_ENTRIES && atomic_load(&p->entries[i].times) > 0; i++) {
        if (same_name(&p->entries[i].name, name)) {
            return &p->entries[i];
        }
    }
    return NULL;
}

/* The one of this name, or the first that was never used; NULL: the segment is full. */
static fl_entry *place_for(page *p, const fl_entry_name *name)
{
    for (int i = 0; i < N_ENTRIES; i++) {
        if (atomic_load(&p->entries[i].times) == 0 || same_name(&p->entries[i].name, name)) {
            return &p->entries[i];
        }
    }
    return NULL;
}

fl_status fl_shm_segment_publish(fl_shm_segment *segment, const fl_entry_name *name,
                                 const fl_entry_data *data, fl_entry **out)
{
    page *mine = fl_shared_data(segment->shared);
    pthread_mutex_lock(&segment->mutex);
    fl_entry *entry = place_for(mine, name);
    if (entry != NULL) {
        entry->name = *name;
        entry->data = *data;
        entry->begin = atomic_load(&entry->count);
        atomic_fetch_add(&entry->times, 1);
    }
    pthread_mutex_unlock(&segment->mutex);
    if (entry == NULL) {
        return fl_fail(FL_ENOMEM, "more than %d channels and buckets", N_ENTRIES);
    }
    fl_entry_ring(&mine->published);
    *out = entry;
    return FL_OK;
}

fl_status fl_shm_segment_find(fl_shm_segment *segment, int member, const fl_entry_name *name,
                              const fl_entry *mine, int64_t deadline_us, fl_look *out)
{
    const page *theirs = segment->views[member].data;
    uint32_t times = atomic_load(&mine->times);
    for (;;) {
        uint32_t n = atomic_load(&theirs->published.count);
        const fl_entry *entry = entry_of(theirs, name);
        if (entry != NULL && atomic_load(&entry->times) >= times) {
            *out = (fl_look){entry, member, entry->begin};
            return FL_OK;
        }
        FL_TRY(wait_for(segment, member, &theirs->published.count, n + 1, FL_WAIT_ASLEEP,
                        deadline_us));
    }
}

fl_status fl_shm_segment_view(fl_shm_segment *segment, const fl_look *look, size_t size_bytes,
                              bool on_device, fl_shared_view *out)
{
    const fl_entry_data *data = &look->entry->data;
    fl_device *d = segment->o.device;
    int64_t pid = segment->pids[look->member];
    fl_status status = on_device ? d->ops->view_open(d, pid, &data->key, size_bytes, out)
                                 : fl_shared_view_open(pid, &data->key, (size_t)data->offset_bytes,
                                                       size_bytes, out);
    if (status == FL_OK) {
        return FL_OK;
    }
    /* Its segment could be read before, so it is the member that has gone. */
    fl_net_abort(segment->o.net, FL_EPEER);
    return fl_fail(FL_EPEER, "the memory of member %d cannot be seen any more: %s", look->member,
                   fl_errmsg());
}
