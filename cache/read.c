/* Reading without a lock. Of many values, a chunk ahead of what is copied:
 *
 *   ① begin   look up; what lies in the file is read now if the page cache has it; otherwise the
 *              disk is asked for it, and nobody waits
 *   ② finish  copy what lies in memory, whose first bytes are on their way; then what the disk
 *              has read meanwhile
 *
 * So as many reads as two chunks hold are under way at once, where the disk has them. */
#include "cache/cache.h"
#include "cache/file.h"
#include "cache/pool.h"
#include "cache/value.h"
#include "device/cpu/bf16.h"
#include "device/system/sanitizer.h"

#include <string.h>

enum { CHUNK = 32, READ_TRIES = 2, PAGE = 4096, LINE = 64, LINES_AHEAD = 4, BYTES_AHEAD = 32768 };

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)

/* A value as its head describes it. */
typedef struct found {
    uint32_t head, seq;
    int level;
    uint64_t print;
    int64_t n;
} found;

typedef enum copied { COPIED, CHANGED, DAMAGED, NOT_YET } copied;

/* Whether to wait for the disk. */
typedef enum patience { AT_ONCE, WAIT } patience;

/* ---- one unit ---- */

static copied read_file(fl_cache *c, uint32_t unit, size_t bytes, patience p, void *to)
{
    int64_t at = fl_pool_file_at(c, unit);
    if (p == AT_ONCE) {
        return fl_cache_file_read_cached(c->fd, to, bytes, at) ? COPIED : NOT_YET;
    }
    if (!fl_cache_file_read(c->fd, to, bytes, at)) {
        atomic_fetch_add(&c->header->n_disk_errors, 1);
        return DAMAGED;
    }
    return COPIED;
}

/* Copy the elements of one unit as they are at this moment; *checksum is theirs. */
static copied read_unit(fl_cache *c, uint32_t unit, int64_t n, uint64_t seed, patience p, void *out,
                        uint64_t *checksum)
{
    bool narrow = c->o.values != c->o.dtype;
    size_t bytes = fl_pool_stored_bytes(c, n);
    unsigned char *to = (unsigned char *)out + (narrow ? bytes : 0);
    const unsigned char *from = to;
    if (unit >= c->n_memory) {
        copied how = read_file(c, unit, bytes, p, to);
        if (how != COPIED) {
            return how;
        }
    }
    fl_sanitizer_begin_checked_reads();
    if (unit < c->n_memory && narrow) {
        from = c->memory + (size_t)unit * c->unit_bytes;
    } else if (unit < c->n_memory) {
        memcpy(to, c->memory + (size_t)unit * c->unit_bytes, bytes);
    }
    *checksum = fl_checksum(from, bytes, seed);
    if (narrow) {
        fl_bf16_widen(from, n, out);
    }
    fl_sanitizer_end_checked_reads();
    return COPIED;
}

/* ---- one value ---- */

static bool look_up(const fl_cache *c, const fl_cache_prints *prints, int64_t key, found *f)
{
    f->head = fl_pool_find(c, key);
    if (f->head == FL_POOL_NONE) {
        return false;
    }
    fl_cell *unit = &c->unit[f->head];
    f->seq = atomic_load_explicit(&unit->seq, memory_order_acquire);
    f->level = (int)GET(unit->level);
    f->print = GET(unit->print);
    f->n = GET(unit->n_elements);
    return fl_pool_is_whole(f->seq) && GET(unit->key) == key &&
           fl_pool_accepts(prints, f->level, f->print);
}

/* All units of the value. Whether it stayed what it was is known only at the end: until then,
 * anything may be read, and nothing is believed. */
static copied copy_value(fl_cache *c, int64_t key, const found *f, patience p, unsigned char *out)
{
    uint32_t unit = f->head;
    copied how = COPIED;
    for (int64_t first = 0; first < f->n && how == COPIED; first += c->o.unit_elements) {
        int64_t left = f->n - first, n = left < c->o.unit_elements ? left : c->o.unit_elements;
        uint64_t checksum = 0;
        how = unit >= c->n_units ? DAMAGED
                                 : read_unit(c, unit, n, fl_pool_seed(key, f->print, first), p,
                                             out + (size_t)first * c->value_bytes, &checksum);
        if (how == COPIED && checksum != GET(c->unit[unit].checksum)) {
            how = DAMAGED;
        }
        unit = how == COPIED ? GET(c->unit[unit].next) : unit;
    }
    fl_sanitizer_fence(memory_order_acquire);
    return how != NOT_YET && GET(c->unit[f->head].seq) != f->seq ? CHANGED : how;
}

static void drop_damaged(fl_cache *c, const found *f)
{
    atomic_fetch_add(&c->header->n_damaged, 1);
    if (fl_pool_lock(c)) {
        if (GET(c->unit[f->head].seq) == f->seq) {
            fl_pool_drop(c, f->head);
        }
        fl_pool_unlock(c);
    }
}

/* Record the outcome for the requested value; false if it must be tried again. */
static bool settle_want(fl_cache *c, const found *f, copied how, fl_cache_want *w)
{
    if (how == COPIED) {
        w->found = f->head < c->n_memory ? FL_CACHE_MEMORY : FL_CACHE_DISK;
        w->level = f->level;
        w->n = f->n;
    } else if (how == DAMAGED) {
        drop_damaged(c, f);
    }
    return how == COPIED || how == DAMAGED;
}

/* Repeat from the look-up as long as the value changes meanwhile. */
static void get_one(fl_cache *c, const fl_cache_prints *prints, fl_cache_want *w)
{
    for (int i = 0; i < READ_TRIES; i++) {
        found f;
        if (!look_up(c, prints, w->key, &f) || f.n > w->max_elements ||
            settle_want(c, &f, copy_value(c, w->key, &f, WAIT, w->out), w)) {
            return;
        }
    }
}

/* ---- many ---- */

typedef enum state { DONE, IN_MEMORY, ON_DISK } state;

typedef struct chunk {
    fl_cache_want *wants;
    int64_t n;
    found found[CHUNK];
    state state[CHUNK];
} chunk;

/* The processor follows a run of lines by itself, within a page. */
static void fetch(const fl_cache *c, const found *f)
{
    const unsigned char *from = c->memory + (size_t)f->head * c->unit_bytes;
    size_t bytes = fl_pool_stored_bytes(c, f->n < c->o.unit_elements ? f->n : c->o.unit_elements);
    for (size_t at = 0; at < bytes && at < BYTES_AHEAD; at += PAGE) {
        for (size_t line = 0; line < LINES_AHEAD; line++) {
            __builtin_prefetch(from + at + line * LINE);
        }
    }
}

static void ask_disk(const fl_cache *c, const found *f)
{
    uint32_t unit = f->head;
    int64_t left = f->n;
    for (; left > 0 && unit >= c->n_memory && unit < c->n_units; left -= c->o.unit_elements) {
        int64_t n = left < c->o.unit_elements ? left : c->o.unit_elements;
        fl_cache_file_ask(c->fd, fl_pool_stored_bytes(c, n), fl_pool_file_at(c, unit));
        unit = GET(c->unit[unit].next);
    }
}

static state begin_one(fl_cache *c, const fl_cache_prints *prints, fl_cache_want *w, found *f)
{
    w->found = FL_CACHE_MISS;
    if (!look_up(c, prints, w->key, f) || f->n > w->max_elements) {
        return DONE;
    }
    if (f->head < c->n_memory) {
        return IN_MEMORY;
    }
    copied how = copy_value(c, w->key, f, AT_ONCE, w->out);
    if (how == NOT_YET) {
        ask_disk(c, f);
        return ON_DISK;
    }
    if (!settle_want(c, f, how, w)) {
        get_one(c, prints, w);
    }
    return DONE;
}

static void begin_chunk(fl_cache *c, const fl_cache_prints *prints, chunk *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        k->state[i] = begin_one(c, prints, &k->wants[i], &k->found[i]);
    }
}

static void finish_chunk(fl_cache *c, const fl_cache_prints *prints, chunk *k, state which)
{
    for (int64_t i = 0; i < k->n; i++) {
        if (which == IN_MEMORY && i + 1 < k->n && k->state[i + 1] == IN_MEMORY) {
            fetch(c, &k->found[i + 1]);
        }
        fl_cache_want *w = &k->wants[i];
        if (k->state[i] == which &&
            !settle_want(c, &k->found[i], copy_value(c, w->key, &k->found[i], WAIT, w->out), w)) {
            get_one(c, prints, w);
        }
    }
}

void fl_cache_get_all(fl_cache *c, const fl_cache_prints *prints, fl_cache_want *wants,
                      int64_t n_wants)
{
    chunk chunks[2];
    for (int64_t first = 0, turn = 0; first < n_wants + CHUNK; first += CHUNK, turn++) {
        chunk *next = &chunks[turn % 2], *now = &chunks[(turn + 1) % 2];
        int64_t left = n_wants - first;
        next->wants = wants + (left > 0 ? first : 0);
        next->n = left < 0 ? 0 : left < CHUNK ? left : CHUNK;
        begin_chunk(c, prints, next); /* ① */
        if (turn > 0) {
            finish_chunk(c, prints, now, IN_MEMORY); /* ② */
            finish_chunk(c, prints, now, ON_DISK);
        }
    }
}

fl_cache_found fl_cache_get(fl_cache *c, const fl_cache_prints *prints, int64_t key, void *out,
                            int64_t max_elements, int *level, int64_t *n)
{
    fl_cache_want w = {.key = key, .out = out, .max_elements = max_elements};
    get_one(c, prints, &w);
    if (w.found != FL_CACHE_MISS) {
        *level = w.level;
        *n = w.n;
    }
    return w.found;
}
