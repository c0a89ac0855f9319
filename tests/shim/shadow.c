/* For each byte of a region: the last plain write, the last plain reads and the last atomic access,
 * with the thread and its place in the order of barriers. */
#include "tests/shim/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Several readers in no order with each other count as one, of a larger kind. */
typedef enum stamp_scope { ONE_THREAD, ONE_WARP, ONE_BLOCK, ALL_BLOCKS } stamp_scope;

typedef struct stamp {
    uint32_t block; /* counted through all launches, from 1; 0: never */
    uint32_t epoch, warp_epoch;
    uint16_t thread;
    uint16_t scope;
} stamp;

typedef struct cell {
    stamp last[3]; /* by shim_access_kind */
} cell;

typedef struct region {
    uintptr_t begin, end;
    const char *name;
    bool shared;
    cell *cells; /* [end - begin] */
} region;

/* Sorted by address. */
static struct {
    region *list;
    size_t n, room;
    size_t recent;
} all;

/* The number of regions that begin at or before `at`. */
static size_t count_up_to(uintptr_t at)
{
    size_t low = 0, high = all.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all.list[middle].begin <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void *room_for(void *memory, size_t n, size_t each)
{
    void *p = memory == NULL ? calloc(n, each) : realloc(memory, n * each);
    if (p == NULL) {
        fprintf(stderr, "shim: out of memory\n");
        abort();
    }
    return p;
}

void shim_region_enter(const void *memory, size_t size_bytes, const char *name, bool shared)
{
    uintptr_t begin = (uintptr_t)memory;
    if (all.n == all.room) {
        all.room = all.room * 2 + 16;
        all.list = room_for(all.list, all.room, sizeof *all.list);
    }
    size_t at = count_up_to(begin);
    memmove(all.list + at + 1, all.list + at, (all.n - at) * sizeof *all.list);
    all.list[at] = (region){.begin = begin,
                            .end = begin + size_bytes,
                            .name = name,
                            .shared = shared,
                            .cells = room_for(NULL, size_bytes + 1, sizeof(cell))};
    all.n++;
}

void shim_region_add(const void *memory, size_t size_bytes, const char *name)
{
    shim_region_enter(memory, size_bytes, name, false);
}

void shim_region_remove(const void *memory)
{
    size_t at = count_up_to((uintptr_t)memory);
    if (at == 0 || all.list[at - 1].begin != (uintptr_t)memory) {
        fprintf(stderr, "shim: a region is removed that was not added\n");
        abort();
    }
    at--;
    free(all.list[at].cells);
    memmove(all.list + at, all.list + at + 1, (all.n - at - 1) * sizeof *all.list);
    all.n--;
    all.recent = 0;
}

static region *region_at(uintptr_t at)
{
    if (all.recent < all.n && at >= all.list[all.recent].begin && at < all.list[all.recent].end) {
        return &all.list[all.recent];
    }
    size_t n = count_up_to(at);
    if (n == 0 || at >= all.list[n - 1].end) {
        return NULL;
    }
    all.recent = n - 1;
    return &all.list[all.recent];
}

bool shim_region_holds(const void *memory, size_t size_bytes)
{
    const region *r = region_at((uintptr_t)memory);
    return r != NULL && size_bytes <= r->end - (uintptr_t)memory;
}

/* Whether the access behind `s` came before the current thread's next access to the region. */
static bool is_ordered(const region *r, const stamp *s, const shim_now *now)
{
    if (s->block < now->first_block || (r->shared && s->block != now->block)) {
        return true; /* an earlier launch, never, or another block's array of the same name */
    }
    if (s->scope == ALL_BLOCKS || s->block != now->block) {
        return false;
    }
    if (s->epoch < now->epoch || (s->scope == ONE_THREAD && s->thread == now->thread)) {
        return true;
    }
    return s->scope != ONE_BLOCK && s->thread / SHIM_WARP == now->thread / SHIM_WARP &&
           s->warp_epoch < now->warp_epoch;
}

static const char *verb_of(shim_access_kind kind)
{
    static const char *const verbs[] = {"reads", "writes", "updates atomically"};
    return verbs[kind];
}

static _Noreturn void report_race(const region *r, uintptr_t at, size_t size_bytes,
                                  shim_access_kind kind, shim_access_kind other, const stamp *s,
                                  const shim_now *now)
{
    static const char *const past[] = {"read", "wrote", "updated atomically"};
    char actor[64];
    if (s->scope == ALL_BLOCKS) {
        snprintf(actor, sizeof actor, "several blocks");
    } else if (s->block != now->block) {
        snprintf(actor, sizeof actor, "thread %u of block %u", s->thread,
                 s->block - now->first_block);
    } else if (s->scope == ONE_THREAD) {
        snprintf(actor, sizeof actor, "thread %u of the same block", s->thread);
    } else {
        snprintf(actor, sizeof actor, "several threads of the same block");
    }
    shim_stop("race: it %s %zu bytes at %s + %zu, which %s %s with no barrier in between",
              verb_of(kind), size_bytes, r->name, (size_t)(at - r->begin), actor, past[other]);
}

/* Which earlier accesses an access must come after. */
static bool conflicts(shim_access_kind kind, shim_access_kind other)
{
    return kind != other ? kind == SHIM_WRITE || other == SHIM_WRITE || kind == SHIM_ATOMIC ||
                               other == SHIM_ATOMIC
                         : kind == SHIM_WRITE;
}

/* Add the current thread's read or atomic access to earlier ones that it is in no order with. */
static void join_stamp(stamp *s, const shim_now *now)
{
    if (s->block != now->block || s->scope == ALL_BLOCKS) {
        s->scope = ALL_BLOCKS;
    } else if (s->scope != ONE_BLOCK && s->thread / SHIM_WARP == now->thread / SHIM_WARP) {
        s->scope = ONE_WARP;
    } else {
        s->scope = ONE_BLOCK;
    }
    s->block = now->block;
    s->epoch = now->epoch;
    s->warp_epoch = s->warp_epoch > now->warp_epoch ? s->warp_epoch : now->warp_epoch;
}

static void check_byte(const region *r, uintptr_t at, size_t size_bytes, shim_access_kind kind,
                       const shim_now *now)
{
    cell *c = &r->cells[at - r->begin];
    for (shim_access_kind other = SHIM_READ; other <= SHIM_ATOMIC; other++) {
        if (conflicts(kind, other) && !is_ordered(r, &c->last[other], now)) {
            report_race(r, at, size_bytes, kind, other, &c->last[other], now);
        }
    }
    if (r->shared && kind != SHIM_WRITE && c->last[SHIM_WRITE].block != now->block &&
        c->last[SHIM_ATOMIC].block != now->block) {
        shim_stop("it %s %zu bytes at %s + %zu, shared memory that no thread of the block has "
                  "written",
                  verb_of(kind), size_bytes, r->name, (size_t)(at - r->begin));
    }
    stamp *s = &c->last[kind];
    if (is_ordered(r, s, now) || kind == SHIM_WRITE) {
        *s = (stamp){.block = now->block,
                     .epoch = now->epoch,
                     .warp_epoch = now->warp_epoch,
                     .thread = (uint16_t)now->thread,
                     .scope = ONE_THREAD};
    } else {
        join_stamp(s, now);
    }
}

void shim_access(const void *memory, size_t size_bytes, shim_access_kind kind)
{
    if (!shim_running()) {
        return; /* the launching code itself */
    }
    const shim_now *now = shim_current();
    uintptr_t at = (uintptr_t)memory, stack = (uintptr_t)now->stack;
    if (at >= stack && at + size_bytes <= stack + now->stack_bytes) {
        return;
    }
    const region *r = region_at(at);
    if (r == NULL || at + size_bytes > r->end) {
        size_t n = count_up_to(at);
        const region *before = n == 0 ? NULL : &all.list[n - 1];
        if (before != NULL && at - before->begin < 2 * (before->end - before->begin) + 4096) {
            shim_stop("out of bounds: it %s %zu bytes at %s + %zu, which has %zu bytes",
                      verb_of(kind), size_bytes, before->name, (size_t)(at - before->begin),
                      (size_t)(before->end - before->begin));
        }
        shim_stop("out of bounds: it %s %zu bytes at %p, which is no memory of a kernel",
                  verb_of(kind), size_bytes, memory);
    }
    for (size_t i = 0; i < size_bytes; i++) {
        check_byte(r, at + i, size_bytes, kind, now);
    }
}
