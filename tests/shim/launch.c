/* A launch on the host: blocks one after another, the threads of a block as fibres.
 *
 *   1. shim_launch begins a block: all its threads are ready.
 *   2. run_ready resumes each ready thread until it waits at a barrier, a shuffle, or ends.
 *   3. release_warps and release_block let go whoever is complete: a warp whose lanes all wait at
 * one shuffle, a block whose threads all wait at one barrier. Then 2 again.
 *   4. If nobody can be let go, the threads do not meet, and the launch fails.
 *
 * A fibre that has ended runs the next launch. A thread that finds an error (shim_stop) never goes
 * on; its fibre, and those that then still wait, begin anew with the next launch. */
#include "tests/shim/capture.h"
#include "tests/shim/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 4096, SHARED_ARRAYS_MAX = 16, SHIM_TEXT_MAX = 400 };

typedef enum fibre_state { READY, AT_BLOCK, AT_WARP, ENDED } fibre_state;

typedef struct fibre {
    ucontext_t context; /* where it begins */
    jmp_buf place;      /* where it goes on, once it has begun */
    bool begun;
    bool idle; /* it has run its kernel to the end, and can run another one */
    char *stack;
    fibre_state state;
    const char *file; /* where it waits */
    int line;
    shim_warp_op op;
    int argument;
    uint64_t value; /* into a shuffle, and out of it */
    uint32_t warp_epoch;
} fibre;

typedef struct shared_array {
    const char *file;
    int line;
    const char *name;
    void *memory;
    size_t size_bytes;
} shared_array;

static struct {
    fibre fibres[SHIM_THREADS_MAX];
    jmp_buf scheduler;
    shared_array shared[SHARED_ARRAYS_MAX];
    int n_shared;
    size_t shared_bytes;
    const char *file; /* of the launch */
    int line;
    shim_dim grid, block, block_idx;
    uint32_t n_threads, n_blocks_ever;
    void (*run)(void *call);
    void *call;
    bool running; /* a kernel's thread, not the scheduler */
    bool failed;
    shim_now now;
    shim_counts counts;
    char error[SHIM_TEXT_MAX + 200];
} shim;

bool shim_running(void)
{
    return shim.running;
}

const shim_now *shim_current(void)
{
    return &shim.now;
}

shim_counts shim_count(void)
{
    shim_counts counts = shim.counts;
    counts.tensor_products = shim_tensor_products();
    return counts;
}

const char *shim_take_error(void)
{
    static char taken[sizeof shim.error];
    memcpy(taken, shim.error, sizeof taken);
    shim.error[0] = '\0';
    return taken;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The first error stays. actor: ", thread N", or "" */
static void note_error(const char *actor, const char *what)
{
    if (shim.error[0] == '\0') {
        snprintf(shim.error, sizeof shim.error, "launch at %s:%d: block %u%s: %s",
                 base_of(shim.file), shim.line, shim.now.block - shim.now.first_block, actor, what);
    }
    shim.failed = true;
}

__attribute__((format(printf, 1, 2))) static void fail_block(const char *format, ...)
{
    char what[SHIM_TEXT_MAX];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    note_error("", what);
}

void shim_stop(const char *format, ...)
{
    char actor[32], what[SHIM_TEXT_MAX];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    snprintf(actor, sizeof actor, ", thread %u", shim.now.thread);
    note_error(actor, what);
    shim.fibres[shim.now.thread].state = ENDED;
    _longjmp(shim.scheduler, 1);
}

/* ---- what a kernel's thread asks for ---- */

shim_dim shim_thread_idx(void)
{
    return (shim_dim){shim.now.thread, 0, 0};
}

shim_dim shim_block_idx(void)
{
    return shim.block_idx;
}

shim_dim shim_block_dim(void)
{
    return shim.block;
}

shim_dim shim_grid_dim(void)
{
    return shim.grid;
}

void *shim_shared(const char *file, int line, const char *name, size_t size_bytes)
{
    for (int i = 0; i < shim.n_shared; i++) {
        shared_array *a = &shim.shared[i];
        if (a->line == line && strcmp(a->file, file) == 0 && strcmp(a->name, name) == 0 &&
            a->size_bytes == size_bytes) {
            return a->memory;
        }
    }
    shim.shared_bytes += size_bytes;
    if (shim.shared_bytes > SHIM_SHARED_MAX || shim.n_shared == SHARED_ARRAYS_MAX) {
        shim_stop("its shared arrays have %zu bytes, allowed are %d", shim.shared_bytes,
                  SHIM_SHARED_MAX);
    }
    void *memory = aligned_alloc(256, (size_bytes + 512) / 256 * 256);
    if (memory == NULL) {
        shim_stop("out of memory for shared arrays");
    }
    shim.shared[shim.n_shared++] = (shared_array){file, line, name, memory, size_bytes};
    shim_region_enter(memory, size_bytes, name, true);
    return memory;
}

/* Go on with the scheduler, until it resumes this thread. _setjmp, unlike swapcontext, makes no
 * system call: threads switch at every barrier. */
static void leave_thread(fibre *f)
{
    if (_setjmp(f->place) == 0) {
        _longjmp(shim.scheduler, 1);
    }
}

static void wait_as(fibre_state state, const char *file, int line)
{
    fibre *f = &shim.fibres[shim.now.thread];
    f->state = state;
    f->file = file;
    f->line = line;
    leave_thread(f);
}

void shim_sync_block(const char *file, int line)
{
    wait_as(AT_BLOCK, file, line);
}

uint64_t shim_sync_warp(const char *file, int line, shim_warp_op op, uint32_t mask, uint64_t value,
                        int argument)
{
    fibre *f = &shim.fibres[shim.now.thread];
    if (mask != UINT32_MAX) {
        shim_stop("the mask of %s:%d is 0x%08x; all lanes of a warp take part, 0xffffffff",
                  base_of(file), line, mask);
    }
    f->op = op;
    f->argument = argument;
    f->value = value;
    wait_as(AT_WARP, file, line);
    return f->value;
}

/* ---- 2: fibres ---- */

static void fibre_main(void)
{
    for (;;) {
        fibre *f = &shim.fibres[shim.now.thread];
        f->idle = false;
        shim.run(shim.call);
        f->idle = true;
        f->state = ENDED;
        leave_thread(f);
    }
}

/* A fibre that begins its kernel when it is resumed. */
static void prepare_fibre(fibre *f)
{
    if (f->idle) {
        return;
    }
    if (f->stack == NULL) {
        char *memory = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
            fprintf(stderr, "shim: no memory for stacks\n");
            abort();
        }
        f->stack = memory + GUARD_BYTES;
    }
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, fibre_main, 0);
    f->begun = false;
}

static void resume_thread(uint32_t thread)
{
    fibre *f = &shim.fibres[thread];
    shim.now.thread = thread;
    shim.now.warp_epoch = f->warp_epoch;
    shim.now.stack = f->stack;
    shim.now.stack_bytes = STACK_BYTES;
    shim.running = true;
    if (_setjmp(shim.scheduler) == 0) {
        if (f->begun) {
            _longjmp(f->place, 1);
        }
        f->begun = true;
        setcontext(&f->context);
    }
    shim.running = false;
}

static void run_ready(void)
{
    for (uint32_t t = 0; t < shim.n_threads && !shim.failed; t++) {
        if (shim.fibres[t].state == READY) {
            resume_thread(t);
        }
    }
}

/* ---- 3: barriers ---- */

static bool same_place(const fibre *a, const fibre *b)
{
    return a->state == b->state && a->line == b->line && strcmp(a->file, b->file) == 0;
}

/* Whether fibres first .. first + n - 1 all wait at one place. */
static bool all_wait(uint32_t first, uint32_t n, fibre_state state)
{
    const fibre *f = &shim.fibres[first];
    for (uint32_t i = 0; i < n; i++) {
        if (f[i].state != state || !same_place(&f[i], f)) {
            return false;
        }
    }
    return true;
}

static uint32_t source_lane(const fibre *f, uint32_t lane)
{
    uint32_t argument = (uint32_t)f->argument;
    uint32_t from = f->op == SHIM_XOR    ? lane ^ argument
                    : f->op == SHIM_DOWN ? lane + argument
                    : f->op == SHIM_FROM ? argument % SHIM_WARP
                                         : lane;
    return from < SHIM_WARP ? from : lane;
}

static void release_warp(fibre *f)
{
    uint64_t values[SHIM_WARP], ballot = 0;
    for (uint32_t lane = 0; lane < SHIM_WARP; lane++) {
        values[lane] = f[lane].value;
        ballot |= (uint64_t)(values[lane] != 0) << lane;
    }
    for (uint32_t lane = 0; lane < SHIM_WARP; lane++) {
        f[lane].value = f[lane].op == SHIM_BALLOT ? ballot : values[source_lane(&f[lane], lane)];
        f[lane].warp_epoch += f[lane].op == SHIM_SYNC ? 1 : 0;
        f[lane].state = READY;
    }
}

static bool release_warps(void)
{
    bool any = false;
    for (uint32_t first = 0; first < shim.n_threads; first += SHIM_WARP) {
        if (all_wait(first, SHIM_WARP, AT_WARP)) {
            release_warp(&shim.fibres[first]);
            any = true;
        }
    }
    return any;
}

static bool release_block(void)
{
    if (!all_wait(0, shim.n_threads, AT_BLOCK)) {
        return false;
    }
    for (uint32_t t = 0; t < shim.n_threads; t++) {
        shim.fibres[t].state = READY;
    }
    shim.now.epoch++;
    return true;
}

static bool all_ended(void)
{
    for (uint32_t t = 0; t < shim.n_threads; t++) {
        if (shim.fibres[t].state != ENDED) {
            return false;
        }
    }
    return true;
}

/* ---- 4: threads that do not meet ---- */

static void describe_place(const fibre *f, char *text, size_t size)
{
    if (f->state == ENDED) {
        snprintf(text, size, "has ended");
    } else {
        snprintf(text, size, "waits at %s:%d for its %s", base_of(f->file), f->line,
                 f->state == AT_BLOCK ? "block" : "warp");
    }
}

static void fail_apart(void)
{
    for (uint32_t t = 1; t < shim.n_threads; t++) {
        const fibre *f = &shim.fibres[t];
        bool apart = f->state != shim.fibres[0].state ||
                     (f->state != ENDED && !same_place(f, &shim.fibres[0]));
        if (apart) {
            char first[96], other[96];
            describe_place(&shim.fibres[0], first, sizeof first);
            describe_place(f, other, sizeof other);
            fail_block("threads do not meet: thread 0 %s, thread %u %s", first, t, other);
            return;
        }
    }
}

/* ---- 1: blocks ---- */

static void run_block(void)
{
    shim.now.block = ++shim.n_blocks_ever;
    shim.now.epoch = 0;
    for (uint32_t t = 0; t < shim.n_threads; t++) {
        shim.fibres[t].state = READY;
        shim.fibres[t].warp_epoch = 0;
    }
    while (!shim.failed) {
        run_ready();
        if (shim.failed || all_ended()) {
            return;
        }
        bool moved = release_warps();
        moved = release_block() || moved;
        if (!moved) {
            fail_apart();
        }
    }
}

static void drop_shared(void)
{
    for (int i = 0; i < shim.n_shared; i++) {
        shim_region_remove(shim.shared[i].memory);
        free(shim.shared[i].memory);
    }
    shim.n_shared = 0;
    shim.shared_bytes = 0;
}

static void run_grid(void)
{
    uint32_t n = shim.grid.x * shim.grid.y * shim.grid.z;
    for (uint32_t i = 0; i < n && !shim.failed; i++) {
        shim.block_idx = (shim_dim){i % shim.grid.x, i / shim.grid.x % shim.grid.y,
                                    i / shim.grid.x / shim.grid.y};
        run_block();
    }
}

int shim_launch(const char *file, int line, shim_dim grid, shim_dim block, void (*run)(void *call),
                void *call, size_t call_bytes)
{
    shim.file = file;
    shim.line = line;
    shim.grid = grid;
    shim.block = block;
    shim.run = run;
    shim.call = call;
    shim.failed = false;
    shim.n_threads = block.x * block.y * block.z;
    shim.now.block = shim.now.first_block = shim.n_blocks_ever + 1;
    if (shim.n_threads == 0 || shim.n_threads > SHIM_THREADS_MAX ||
        shim.n_threads % SHIM_WARP != 0) {
        fail_block("it has %u threads; allowed are whole warps of 32, at most %d", shim.n_threads,
                   SHIM_THREADS_MAX);
        return SHIM_LAUNCH_FAILED;
    }
    for (uint32_t t = 0; t < shim.n_threads; t++) {
        prepare_fibre(&shim.fibres[t]);
    }
    shim_region_enter(call, call_bytes, "parameters", false);
    run_grid();
    shim_region_remove(call);
    drop_shared();
    if (shim.failed) {
        return SHIM_LAUNCH_FAILED;
    }
    shim.counts.launches++;
    shim.counts.threads += (int64_t)shim.n_threads * grid.x * grid.y * grid.z;
    return SHIM_OK;
}

/* ---- launches that are captured ---- */

typedef struct captured_launch {
    const char *file;
    int line;
    shim_dim grid, block;
    void (*run)(void *call);
    size_t call_bytes;
    _Alignas(64) unsigned char call[];
} captured_launch;

static int run_captured(void *call)
{
    captured_launch *l = call;
    return shim_launch(l->file, l->line, l->grid, l->block, l->run, l->call, l->call_bytes);
}

int shim_launch_on(const void *stream, const char *file, int line, shim_dim grid, shim_dim block,
                   void (*run)(void *call), void *call, size_t call_bytes)
{
    if (!shim_captures(stream)) {
        return shim_launch(file, line, grid, block, run, call, call_bytes);
    }
    size_t size_bytes = (sizeof(captured_launch) + call_bytes + 63) / 64 * 64;
    captured_launch *l = aligned_alloc(64, size_bytes);
    if (l == NULL) {
        return SHIM_LAUNCH_FAILED;
    }
    memset(l, 0, size_bytes);
    l->file = file;
    l->line = line;
    l->grid = grid;
    l->block = block;
    l->run = run;
    l->call_bytes = call_bytes;
    memcpy(l->call, call, call_bytes);
    int code = shim_capture_add(stream, run_captured, l, size_bytes);
    free(l);
    return code;
}
