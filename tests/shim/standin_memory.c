/* The stand-in's memory: of the device, of other processes' devices, of the host; and copies. */
#include "device/system/shared.h"
#include "tests/shim/capture.h"
#include "tests/shim/shim.h"
#include "tests/shim/standin_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS_MAX = 4096, VIEWS_MAX = 256, PINS_MAX = 4096 };

/* Allocations of whole units lie in files that other processes can map: they can be exported. */
enum { EXPORT_UNIT = 2 << 20 };

/* Device memory. */
static struct block {
    void *memory;
    size_t size_bytes;
    fl_shared *shared; /* where it lies; NULL: in memory of this process */
} blocks[BLOCKS_MAX];

static fl_shared_view views[VIEWS_MAX]; /* of other processes' device memory */
static int device_of_view[VIEWS_MAX];

/* Page-locked memory of the host. */
static struct pin {
    const char *memory;
    size_t size_bytes;
    bool taken; /* by host_take */
} pins[PINS_MAX];

/* ---- of the device ---- */

/* NULL: a place that is free, or none. */
static struct block *find_block(const void *memory)
{
    for (int i = 0; i < BLOCKS_MAX; i++) {
        if (blocks[i].memory == memory) {
            return &blocks[i];
        }
    }
    return NULL;
}

static void *take_bytes(size_t size_bytes, fl_shared **shared)
{
    *shared = NULL;
    if (size_bytes % EXPORT_UNIT != 0) {
        return aligned_alloc(256, (size_bytes + 511) / 256 * 256);
    }
    return fl_shared_create(size_bytes, shared) == FL_OK ? fl_shared_data(*shared) : NULL;
}

/* Filled with what was there before: memory of a GPU is not cleared. */
static int take_memory(size_t size_bytes, void **out)
{
    FAIL_IN_CAPTURE;
    struct block *b = find_block(NULL);
    if (b == NULL || size_bytes > standin.memory_bytes - standin.used_bytes) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    void *memory = take_bytes(size_bytes, &b->shared);
    if (memory == NULL) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    if (!standin.real_time) { /* a plugin has no time for it: a budget is one piece of memory */
        memset(memory, 0xA5, size_bytes);
    }
    b->memory = memory;
    b->size_bytes = size_bytes;
    standin.used_bytes += size_bytes;
    standin.outstanding++;
    shim_region_add(memory, size_bytes, "device memory");
    *out = memory;
    return 0;
}

int standin__memory_take(size_t size_bytes, void **out)
{
    FAIL_OR_GO_ON("memory_take");
    return take_memory(size_bytes, out);
}

int standin__pool_take(size_t size_bytes, void **out, bool *registers)
{
    FAIL_OR_GO_ON("pool_take");
    *registers = true;
    return take_memory(size_bytes, out);
}

int standin__memory_give(void *memory)
{
    ONE_CALL;
    struct block *b = find_block(memory);
    if (memory == NULL || b == NULL) {
        fprintf(stderr, "stand-in: device memory is given back that was not taken\n");
        abort();
    }
    shim_region_remove(memory);
    standin.used_bytes -= b->size_bytes;
    b->memory = NULL;
    standin.outstanding--;
    if (b->shared != NULL) {
        fl_shared_destroy(&b->shared);
    } else {
        free(memory);
    }
    FAIL_IN_CAPTURE;
    return standin_failure_of("memory_give");
}

/* ---- of other processes' devices ---- */

/* What a handle has. */
typedef struct exported {
    int64_t pid, device;
    fl_shared_key key;
    size_t size_bytes;
} exported;

_Static_assert(sizeof(exported) <= sizeof(fl_cuda_handle), "it fits");

int standin__ipc_export(void *memory, fl_cuda_handle *out)
{
    FAIL_OR_GO_ON("ipc_export");
    const struct block *b = find_block(memory);
    if (b == NULL || b->shared == NULL) {
        return STANDIN_NOT_SUPPORTED;
    }
    const exported e = {.pid = getpid(),
                        .device = standin_chosen(),
                        .key = fl_shared_key_of(b->shared),
                        .size_bytes = b->size_bytes};
    memset(out, 0, sizeof *out);
    memcpy(out, &e, sizeof e);
    return 0;
}

/* NULL: the place that is free. */
static fl_shared_view *find_view(const void *memory)
{
    for (int i = 0; i < VIEWS_MAX; i++) {
        if (views[i].data == memory) {
            return &views[i];
        }
    }
    fprintf(stderr, "stand-in: memory is closed that was not opened, or too much is open\n");
    abort();
}

int standin__ipc_open(const fl_cuda_handle *handle, void **out)
{
    exported e;
    FAIL_OR_GO_ON("ipc_open");
    memcpy(&e, handle, sizeof e);
    fl_shared_view *view = find_view(NULL);
    if (fl_shared_view_open(e.pid, &e.key, 0, e.size_bytes, view) != FL_OK) {
        return STANDIN_INVALID_VALUE;
    }
    device_of_view[view - views] = (int)e.device;
    standin.outstanding++;
    shim_region_add(view->data, e.size_bytes, "another process's memory");
    *out = (void *)(uintptr_t)view->data;
    return 0;
}

int standin__ipc_close(void *memory)
{
    ONE_CALL;
    fl_shared_view *view = find_view(memory);
    shim_region_remove(memory);
    fl_shared_view_close(view);
    standin.outstanding--;
    return standin_failure_of("ipc_close");
}

/* ---- page-locked memory of the host ---- */

/* The one that begins there; NULL: a place that is free. */
static struct pin *find_pin(const void *memory)
{
    for (int i = 0; i < PINS_MAX; i++) {
        if (pins[i].memory == memory) {
            return &pins[i];
        }
    }
    if (memory == NULL) {
        fprintf(stderr, "stand-in: too much memory is page-locked\n");
        abort();
    }
    return NULL;
}

static void add_pin(void *memory, size_t size_bytes, bool taken)
{
    *find_pin(NULL) = (struct pin){memory, size_bytes, taken};
    standin.outstanding++;
}

static void remove_pin(struct pin *p)
{
    p->memory = NULL;
    standin.outstanding--;
}

int standin__host_take(size_t size_bytes, void **out)
{
    FAIL_OR_GO_ON("host_take");
    FAIL_IN_CAPTURE;
    void *memory = aligned_alloc(256, (size_bytes + 255) / 256 * 256);
    if (memory == NULL) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    memset(memory, 0xA5, size_bytes);
    add_pin(memory, size_bytes, true);
    *out = memory;
    return 0;
}

int standin__host_give(void *memory)
{
    ONE_CALL;
    struct pin *p = find_pin(memory);
    if (p == NULL || !p->taken) {
        fprintf(stderr, "stand-in: host memory is given back that was not taken\n");
        abort();
    }
    remove_pin(p);
    free(memory);
    return standin_failure_of("host_give");
}

/* The runtime touches the pages. Memory that may not be written has to be announced as such. */
int standin__host_pin(void *memory, size_t size_bytes, bool read_only)
{
    FAIL_OR_GO_ON("host_pin");
    FAIL_IN_CAPTURE;
    if (size_bytes == 0 || find_pin(memory) != NULL) {
        return STANDIN_INVALID_VALUE;
    }
    if (!read_only) {
        volatile char *last = (char *)memory + size_bytes - 1;
        char value = *last;
        *last = value;
    }
    add_pin(memory, size_bytes, false);
    return 0;
}

int standin__host_unpin(void *memory)
{
    ONE_CALL;
    struct pin *p = find_pin(memory);
    if (p == NULL || p->taken) {
        return STANDIN_NOT_REGISTERED;
    }
    remove_pin(p);
    return standin_failure_of("host_unpin");
}

/* ---- copies ---- */

static bool contains(const void *begin, size_t size_bytes, const void *memory)
{
    const char *b = begin, *m = memory;
    return b != NULL && m >= b && m < b + size_bytes;
}

/* Whether this is pageable memory of the host. */
static bool is_pageable(const void *memory)
{
    for (int i = 0; i < BLOCKS_MAX; i++) {
        if (contains(blocks[i].memory, blocks[i].size_bytes, memory)) {
            return false;
        }
    }
    for (int i = 0; i < VIEWS_MAX; i++) {
        if (contains(views[i].data, views[i].map_bytes, memory)) {
            return false;
        }
    }
    for (int i = 0; i < PINS_MAX; i++) {
        if (contains(pins[i].memory, pins[i].size_bytes, memory)) {
            return false;
        }
    }
    return true;
}

/* How long a copy takes for its way to the device that this thread has chosen. */
static int64_t far_us_of(const void *from, size_t n)
{
    for (int i = 0; standin.far_us > 0 && i < VIEWS_MAX; i++) {
        if (contains(views[i].data, views[i].map_bytes, from)) {
            bool linked = standin_is_linked(device_of_view[i], standin_chosen());
            return linked ? 0 : standin.far_us * (int64_t)(n / 1024 + 1);
        }
    }
    return 0;
}

typedef struct bytes_call {
    void *to;
    const void *from; /* NULL: zeros */
    size_t n;
} bytes_call;

static int move_bytes(void *call)
{
    const bytes_call *b = call;
    if (b->from == NULL) {
        memset(b->to, 0, b->n);
    } else {
        memmove(b->to, b->from, b->n);
    }
    return 0;
}

static int do_or_note(const void *stream, bytes_call call)
{
    return shim_captures(stream) ? shim_capture_add(stream, move_bytes, &call, sizeof call)
                                 : move_bytes(&call);
}

int standin__copy(void *stream, void *to, const void *from, size_t n)
{
    FAIL_OR_GO_ON("copy");
    if (standin.pageable_code != 0 && (is_pageable(to) || is_pageable(from))) {
        return standin.pageable_code;
    }
    int64_t far_us = far_us_of(from, n);
    if (far_us > 0) {
        usleep((useconds_t)far_us);
    }
    return do_or_note(stream, (bytes_call){to, from, n});
}

int standin__fill_zero(void *stream, void *to, size_t n)
{
    FAIL_OR_GO_ON("fill_zero");
    return do_or_note(stream, (bytes_call){to, NULL, n});
}
