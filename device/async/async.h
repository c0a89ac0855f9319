/* The asynchronous test device: what a GPU does to a program that uses it, on the host's
 * processors, for tests of Frostline and of plugins. Results are the CPU device's, bit by bit.
 *
 *   - Nobody but the device can touch its memory: a caller that does dies with a line that says
 *     what it touched (device/async/touch.h).
 *   - Each stream is a thread that runs its work in order, with random delays between two pieces.
 *     A host that reads a result without waiting for it, or reuses memory of a copy that is not
 *     done, gets garbage or a failure that names the copy.
 *   - Any call can be made to fail, at once or when its work runs; memory can run out.
 *   - Whatever is not given back ends the process when the device is destroyed.
 *
 * docs/device.md describes how a backend is tested with it. */
#ifndef FL_DEVICE_ASYNC_ASYNC_H
#define FL_DEVICE_ASYNC_ASYNC_H

#include "device/device.h"

/* Delays of a device that a job opens, and the longest that an option may ask for. */
enum { FL_ASYNC_DELAY_US = 100, FL_ASYNC_DELAY_MAX_US = 100000 };

/* A call that fails on purpose. `entry` is a name of the table in device/device.h, as in
 * "copy_in". n counts its calls from when the fault was set: 1 is the next. */
typedef struct fl_async_fault {
    const char *entry; /* NULL: none */
    uint64_t n;
    /* The call succeeds, its work fails when its turn comes. From then on no work is run, events
     * are reached, and every call but those that give something back fails with this failure. */
    bool later;
} fl_async_fault;

typedef struct fl_async_options {
    int n_threads;      /* compute threads of each stream */
    const int *cpu_ids; /* [n_threads]; NULL: not pinned */
    size_t budget_bytes;
    size_t memory_bytes;  /* what the device has; 0: as much as it has addresses for */
    uint64_t seed;        /* of the delays */
    int64_t max_delay_us; /* 0: none */
    const char *isa;      /* as for fl__cpu_isa_set; NULL: the best */
    uint64_t hardware;    /* as in fl_native, odd; 0: a device of its own */
    fl_async_fault fault;
} fl_async_options;

/* A stream as a library sees it that queues work of its own there: what `stream` of an fl_native
 * points to, in the place of CUDA's handle. */
typedef struct fl_async_native fl_async_native;
struct fl_async_native {
    /* Queue run(call, to, from) on the stream's thread. to, from: device memory [size_bytes], or
     * NULL; `run` gets the bytes behind them. Returns 0, or -1 and nothing is queued: that is no
     * memory of the device, or the device has failed. If the device fails later, `run` is not
     * called. */
    int (*queue)(fl_async_native *stream, void *to, const void *from, size_t size_bytes,
                 void (*run)(void *call, void *to, const void *from), void *call);
    /* Whether the device has this memory now, and nobody has given it back. */
    bool (*holds)(fl_async_native *stream, const void *memory, size_t size_bytes);
};

/* As fl_device_cpu_create; the threads of streams are pinned, too. FL_EINVAL for a fault that
 * cannot happen: an entry that does not exist, or that queues no work and shall fail later. */
fl_status fl_device_async_create(const fl_async_options *options, fl_device **out) FL_MUST_CHECK;

/* What a text as in the environment's FROSTLINE_ASYNC_TEST adds to the options:
 * "seed=7,delay_us=200,memory=64000,fail=copy_in:3" or "fail_later=linear:1". Options that it does
 * not name stay. FL_EINVAL names what it does not understand. */
fl_status fl_async_options_read(const char *text, fl_async_options *options) FL_MUST_CHECK;

/* The same with the text that the environment has; without one, all options stay. */
fl_status fl_async_options_of_environment(fl_async_options *options) FL_MUST_CHECK;

/* Let a call of a device that is in use fail. device: an async-test device. Threads: any. */
fl_status fl_device_async_fail(fl_device *device, const fl_async_fault *fault) FL_MUST_CHECK;

/* While a device is held, its streams begin no work: what a caller does too early goes wrong for
 * certain. Whoever waits for work meanwhile waits for ever. Threads: any. */
void fl_device_async_hold(fl_device *device, bool held);

/* Names of the entries that can fail, for tests that walk over all of them; NULL behind the last.
 * *queues: whether the entry queues work, which can fail later. */
const char *fl_async_entry(int index, bool *queues);

/* Calls of the index-th entry so far. */
uint64_t fl_device_async_calls(const fl_device *device, int index);

#endif
