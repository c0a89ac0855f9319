/* One writer a track, and any number of readers in other processes:
 *
 *     enter   changes + 1 (odd)   open[depth] = it, depth + 1    changes + 1 (even)
 *     leave   changes + 1 (odd)   depth - 1                      changes + 1 (even)
 *             begun + 1           ring[n % RING] = it            written + 1
 *     beat    changes + 2
 *
 * A reader of `open` reads again when `changes` was odd or has moved. A reader of the ring takes
 * what lies below `written`, and drops what `begun` shows to have been overwritten meanwhile.
 * Every word is stored with release and loaded with acquire: a reader that sees a word of a change
 * also sees, afterwards, that the change had begun, so it discards a torn entry. This needs no
 * fence, which ThreadSanitizer does not model; on x86 both orders compile to plain moves. */
#include "device/flight/flight.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 8, TRIES = 100 };

typedef struct slot {
    _Atomic uint64_t word[WORDS];
} slot;

typedef struct track {
    _Alignas(64) atomic_int role; /* fl_flight_role; written by the thread that holds the track */
    _Atomic uint64_t changes, begun, written;
    _Atomic uint64_t depth;
    _Alignas(64) slot open[FL_FLIGHT_DEPTH];
    slot ring[FL_FLIGHT_RING];
} track;

typedef struct recorder {
    _Alignas(64) _Atomic int64_t step;
    track tracks[FL_FLIGHT_TRACKS];
} recorder;

struct fl_flight {
    int n_workers;
    size_t stride; /* bytes of a worker, whole pages */
    unsigned char *memory;
};

/* This process's recorder, and what each of its threads needs to write. */
static recorder *mine;
static int my_rank;
static _Thread_local struct {
    track *track;
    track *device;  /* of what this thread's device computes; NULL: nothing yet */
    uint64_t depth; /* may be beyond FL_FLIGHT_DEPTH: what lies deeper is not recorded */
    uint32_t generation;
    int32_t micro_batch;
} here;

/* ---- words ---- */

static uint64_t pair(int32_t low, int32_t high)
{
    return (uint64_t)(uint32_t)low | (uint64_t)(uint32_t)high << 32;
}

static void set(slot *s, int i, uint64_t value)
{
    atomic_store_explicit(&s->word[i], value, memory_order_release);
}

static uint64_t get(const slot *s, int i)
{
    return atomic_load_explicit(&s->word[i], memory_order_acquire);
}

static fl_flight_entry entry_of(const slot *s)
{
    uint64_t head = get(s, 0), numbers = get(s, 2);
    uint64_t kind = head & 0xff;
    return (fl_flight_entry){
        .kind = kind < FL_FLIGHT_KINDS ? (fl_flight_kind)kind : FL_FLIGHT_NONE,
        .depth = (int)(head >> 8 & 0xff),
        .generation = (uint32_t)(head >> 32),
        .step = (int64_t)get(s, 1),
        .micro_batch = (int32_t)(uint32_t)numbers,
        .item = (int32_t)(uint32_t)(numbers >> 32),
        .peer = (int32_t)(uint32_t)get(s, 3),
        .bytes = (int64_t)get(s, 4),
        .entered_ns = (int64_t)get(s, 5),
        .left_ns = (int64_t)get(s, 6),
    };
}

static uint64_t next(_Atomic uint64_t *counter)
{
    uint64_t n = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, n + 1, memory_order_relaxed);
    return n;
}

static void begin_change(track *t)
{
    next(&t->changes); /* the stores that follow are releases: none is seen before it */
}

static void end_change(track *t)
{
    uint64_t n = atomic_load_explicit(&t->changes, memory_order_relaxed);
    atomic_store_explicit(&t->changes, n + 1, memory_order_release);
}

/* ---- writing ---- */

/* All but when it was left. */
static void set_entry(slot *s, const fl_flight_entry *e)
{
    set(s, 0, (uint64_t)e->kind | (uint64_t)e->depth << 8 | (uint64_t)e->generation << 32);
    set(s, 1, (uint64_t)e->step);
    set(s, 2, pair(e->micro_batch, e->item));
    set(s, 3, pair(e->peer, 0));
    set(s, 4, (uint64_t)e->bytes);
    set(s, 5, (uint64_t)e->entered_ns);
}

void fl_flight_stamp(fl_flight_entry *entry)
{
    entry->generation = here.generation;
    entry->micro_batch = here.micro_batch;
    entry->step = mine == NULL ? 0 : atomic_load_explicit(&mine->step, memory_order_relaxed);
}

void fl_flight_enter(fl_flight_kind kind, int peer, int item, int64_t bytes)
{
    track *t = here.track;
    if (t == NULL || here.depth++ >= FL_FLIGHT_DEPTH) {
        return;
    }
    slot *s = &t->open[here.depth - 1];
    fl_flight_entry entry = {
        .kind = kind, .depth = (int)here.depth - 1, .item = item, .peer = peer, .bytes = bytes};
    fl_flight_stamp(&entry);
    begin_change(t);
    entry.entered_ns = fl_now_ns();
    set_entry(s, &entry);
    set(s, 6, 0);
    atomic_store_explicit(&t->depth, here.depth, memory_order_release);
    end_change(t);
    if (fl__flight_point != NULL) {
        fl__flight_point(kind, my_rank, entry.step);
    }
}

void fl_flight_leave(void)
{
    track *t = here.track;
    if (t == NULL || here.depth == 0 || --here.depth >= FL_FLIGHT_DEPTH) {
        return;
    }
    const slot *from = &t->open[here.depth];
    uint64_t n = next(&t->begun);
    slot *to = &t->ring[n % FL_FLIGHT_RING];
    for (int i = 0; i < 6; i++) {
        set(to, i, get(from, i));
    }
    set(to, 6, (uint64_t)fl_now_ns());
    atomic_store_explicit(&t->written, n + 1, memory_order_release);
    begin_change(t);
    atomic_store_explicit(&t->depth, here.depth, memory_order_release);
    end_change(t);
}

void fl_flight_beat(void)
{
    if (here.track != NULL) {
        begin_change(here.track);
        end_change(here.track);
    }
}

void fl_flight_innermost(fl_flight_entry *out)
{
    bool any = here.track != NULL && here.depth > 0 && here.depth <= FL_FLIGHT_DEPTH;
    *out = any ? entry_of(&here.track->open[here.depth - 1])
               : (fl_flight_entry){.kind = FL_FLIGHT_NONE};
}

void fl_flight_awaits(const fl_flight_entry *entry)
{
    track *t = here.track;
    if (t == NULL) {
        return;
    }
    begin_change(t);
    if (entry != NULL) {
        set_entry(&t->open[0], entry);
        set(&t->open[0], 6, 0);
    }
    atomic_store_explicit(&t->depth, entry != NULL, memory_order_release);
    end_change(t);
}

/* A free track beside the main thread's; NULL: there is none. */
static track *take_track(fl_flight_role role)
{
    for (int i = 1; mine != NULL && i < FL_FLIGHT_TRACKS; i++) {
        int nobody = FL_FLIGHT_NOBODY;
        if (atomic_compare_exchange_strong(&mine->tracks[i].role, &nobody, (int)role)) {
            return &mine->tracks[i];
        }
    }
    return NULL;
}

static bool take_device_track(void)
{
    here.device = take_track(FL_FLIGHT_DEVICE);
    return here.device != NULL;
}

/* Onto the ring of a track. */
static void put_left(track *t, const fl_flight_entry *entry)
{
    uint64_t n = next(&t->begun);
    slot *to = &t->ring[n % FL_FLIGHT_RING];
    set_entry(to, entry);
    set(to, 6, (uint64_t)entry->left_ns);
    atomic_store_explicit(&t->written, n + 1, memory_order_release);
}

void fl_flight_computed(const fl_flight_entry *entry)
{
    if (here.track == NULL || (here.device == NULL && !take_device_track())) {
        return;
    }
    put_left(here.device, entry);
    begin_change(here.device);
    end_change(here.device);
}

void fl_flight_unwind(void)
{
    while (here.track != NULL && here.depth > 0) {
        fl_flight_leave();
    }
    here.micro_batch = -1;
}

void fl_flight_micro_batch(int micro_batch)
{
    here.micro_batch = micro_batch;
}

void fl_flight_generation(uint32_t generation)
{
    here.generation = generation;
}

void fl_flight_step(int64_t step)
{
    if (mine != NULL) {
        atomic_store_explicit(&mine->step, step, memory_order_relaxed);
    }
}

static void hold(track *t, fl_flight_role role, uint32_t generation)
{
    here.track = t;
    here.device = NULL;
    here.depth = 0;
    here.generation = generation;
    here.micro_batch = -1;
    begin_change(t);
    atomic_store_explicit(&t->depth, 0, memory_order_release);
    atomic_store_explicit(&t->role, (int)role, memory_order_release);
    end_change(t);
}

void fl_flight_thread(fl_flight_role role, uint32_t generation)
{
    track *t = take_track(role);
    if (t != NULL) {
        hold(t, role, generation);
    }
}

void fl_flight_thread_end(void)
{
    if (here.device != NULL) {
        atomic_store_explicit(&here.device->role, FL_FLIGHT_NOBODY, memory_order_release);
        here.device = NULL;
    }
    if (here.track != NULL) {
        atomic_store_explicit(&here.track->role, FL_FLIGHT_NOBODY, memory_order_release);
        here.track = NULL;
    }
}

/* ---- the controller ---- */

static recorder *recorder_of(const fl_flight *flight, int rank)
{
    return (recorder *)(void *)(flight->memory + (size_t)rank * flight->stride);
}

fl_status fl_flight_create(int n_workers, fl_flight **out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t stride = (sizeof(recorder) + page - 1) / page * page;
    fl_flight *flight = NULL;
    /* Pages that are never written take no memory. */
    void *memory = mmap(NULL, stride * (size_t)n_workers, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "flight recorders of %d workers: %s", n_workers, strerror(errno));
    }
    fl_status status = fl_alloc(sizeof *flight, (void **)&flight);
    if (status != FL_OK) {
        munmap(memory, stride * (size_t)n_workers);
        return status;
    }
    *flight = (fl_flight){.n_workers = n_workers, .stride = stride, .memory = memory};
    *out = flight;
    return FL_OK;
}

void fl_flight_destroy(fl_flight **flight)
{
    fl_flight *f = *flight;
    if (f != NULL) {
        munmap(f->memory, f->stride * (size_t)f->n_workers);
        fl_free(f);
        *flight = NULL;
    }
}

/* It may have died in the middle of a change: then `changes` is odd, and an entry of the ring is
 * torn, which `begun` shows until the next one overwrites it. */
void fl_flight_clear(fl_flight *flight, int rank)
{
    recorder *r = recorder_of(flight, rank);
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        track *t = &r->tracks[i];
        uint64_t changes = atomic_load(&t->changes);
        atomic_store(&t->depth, 0);
        atomic_store(&t->role, FL_FLIGHT_NOBODY);
        atomic_store(&t->begun, atomic_load(&t->written));
        atomic_store(&t->changes, changes + 2 - changes % 2);
    }
}

void fl_flight_join(fl_flight *flight, int rank)
{
    size_t before = (size_t)rank * flight->stride;
    size_t after = (size_t)(flight->n_workers - rank - 1) * flight->stride;
    mine = recorder_of(flight, rank);
    my_rank = rank;
    if (before > 0) {
        munmap(flight->memory, before);
    }
    if (after > 0) {
        munmap(flight->memory + before + flight->stride, after);
    }
    hold(&mine->tracks[0], FL_FLIGHT_MAIN, 0);
}

void fl_flight_show(fl_flight *flight, int rank, int track_index, const fl_flight_view *view)
{
    track *t = &recorder_of(flight, rank)->tracks[track_index];
    atomic_store(&t->changes, 1); /* odd: in the middle */
    for (int i = 0; i < view->depth; i++) {
        set_entry(&t->open[i], &view->open[i]);
        set(&t->open[i], 6, 0);
    }
    atomic_store(&t->role, (int)view->role);
    atomic_store(&t->depth, (uint64_t)view->depth);
    atomic_store(&t->changes, view->n_changes - view->n_changes % 2);
}

void fl_flight_append(fl_flight *flight, int rank, int track_index, const fl_flight_entry *entry,
                      int n)
{
    for (int i = 0; i < n; i++) {
        put_left(&recorder_of(flight, rank)->tracks[track_index], &entry[i]);
    }
}

void fl_flight_show_step(fl_flight *flight, int rank, int64_t step)
{
    atomic_store_explicit(&recorder_of(flight, rank)->step, step, memory_order_relaxed);
}

int64_t fl_flight_step_of(const fl_flight *flight, int rank)
{
    return atomic_load_explicit(&recorder_of(flight, rank)->step, memory_order_relaxed);
}

/* ---- reading ---- */

static void look_once(const track *t, fl_flight_view *out)
{
    uint64_t depth = atomic_load_explicit(&t->depth, memory_order_acquire);
    out->role = (fl_flight_role)atomic_load_explicit(&t->role, memory_order_acquire);
    out->depth = (int)(depth < FL_FLIGHT_DEPTH ? depth : FL_FLIGHT_DEPTH);
    for (int i = 0; i < out->depth; i++) {
        out->open[i] = entry_of(&t->open[i]);
    }
}

void fl_flight_look(const fl_flight *flight, int rank, int track_index, fl_flight_view *out)
{
    const track *t = &recorder_of(flight, rank)->tracks[track_index];
    memset(out, 0, sizeof *out);
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&t->changes, memory_order_acquire);
        out->n_changes = before;
        look_once(t, out); /* the last try stands: its writer died or was stopped in the middle */
        if (before % 2 == 0 && before == atomic_load_explicit(&t->changes, memory_order_relaxed)) {
            out->whole = true;
            break;
        }
    }
    uint64_t lost = 0, written = fl_flight_written(flight, rank, track_index);
    uint64_t cursor = written > 0 ? written - 1 : 0;
    fl_flight_read(flight, rank, track_index, &cursor, &out->last, 1, &lost);
}

static bool computes(fl_flight_kind kind)
{
    fl_flight_category category = fl_flight_category_of(kind);
    return category == FL_FLIGHT_IS_COMPUTE || category == FL_FLIGHT_IS_OPTIMIZER;
}

void fl_flight_look_training(const fl_flight *flight, int rank, fl_flight_view *out)
{
    fl_flight_look(flight, rank, 0, out);
    if (out->depth == 0 || out->depth == FL_FLIGHT_DEPTH ||
        !computes(out->open[out->depth - 1].kind)) {
        return;
    }
    for (int i = 1; i < FL_FLIGHT_TRACKS; i++) {
        fl_flight_view awaited;
        fl_flight_look(flight, rank, i, &awaited);
        if (awaited.role == FL_FLIGHT_AWAITED && awaited.depth > 0) {
            out->open[out->depth] = awaited.open[0];
            out->open[out->depth].depth = out->depth;
            out->depth++;
            return;
        }
    }
}

uint64_t fl_flight_written(const fl_flight *flight, int rank, int track_index)
{
    const track *t = &recorder_of(flight, rank)->tracks[track_index];
    return atomic_load_explicit(&t->written, memory_order_acquire);
}

int fl_flight_read(const fl_flight *flight, int rank, int track_index, uint64_t *cursor,
                   fl_flight_entry *out, int capacity, uint64_t *n_lost)
{
    const track *t = &recorder_of(flight, rank)->tracks[track_index];
    uint64_t written = atomic_load_explicit(&t->written, memory_order_acquire);
    int n = 0;
    if (written > *cursor + FL_FLIGHT_RING) {
        *n_lost += written - FL_FLIGHT_RING - *cursor;
        *cursor = written - FL_FLIGHT_RING;
    }
    for (; n < capacity && *cursor < written; ++*cursor) {
        out[n] = entry_of(&t->ring[*cursor % FL_FLIGHT_RING]);
        if (atomic_load_explicit(&t->begun, memory_order_relaxed) > *cursor + FL_FLIGHT_RING) {
            ++*n_lost; /* overwritten while it was read */
        } else {
            n++;
        }
    }
    return n;
}

bool fl_flight_newest(const fl_flight *flight, int rank, int track_index, fl_flight_kind kind,
                      fl_flight_entry *out)
{
    const track *t = &recorder_of(flight, rank)->tracks[track_index];
    uint64_t written = atomic_load_explicit(&t->written, memory_order_acquire), lost = 0;
    uint64_t oldest = written > FL_FLIGHT_RING ? written - FL_FLIGHT_RING : 0;
    for (uint64_t i = written; i > oldest; i--) {
        uint64_t cursor = i - 1;
        fl_flight_entry entry;
        if (fl_flight_read(flight, rank, track_index, &cursor, &entry, 1, &lost) != 1 || lost > 0) {
            return false; /* the writer came round: what is older is gone, too */
        }
        if (entry.kind == kind) {
            *out = entry;
            return true;
        }
    }
    return false;
}
