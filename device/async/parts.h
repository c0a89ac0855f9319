/* Inside the asynchronous test device: what its files share. async.c has the diagram. */
#ifndef FL_DEVICE_ASYNC_PARTS_H
#define FL_DEVICE_ASYNC_PARTS_H

#include "device/async/async.h"
#include "device/async/entries.h"
#include "device/async/space.h"
#include "device/errors/failure.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    FL__ASYNC_QUEUE = 256,      /* pieces of work that a stream holds before a call waits */
    FL__ASYNC_ARGS_BYTES = 512, /* the largest arguments of a kernel */
    FL__ASYNC_WEIGHTS = 4,      /* the most weights that one kernel takes */
};

typedef struct fl__async fl__async;

/* How the arguments of a kernel point to memory; kernels.c. */
typedef struct fl__async_kernel fl__async_kernel;

/* Memory of the host that a copy reads or writes until it is done. */
typedef struct fl__async_host_range {
    const void *memory;
    size_t size_bytes;
    bool written;
} fl__async_host_range;

/* Waits for what queued work does, on the stack of a thread that waits: for `until` pieces of
 * `stream`, for recording `until` of `event`, or, without either, for the next piece of any stream.
 */
typedef struct fl__async_waiter {
    struct fl__async_waiter *next;
    pthread_cond_t wake;
    bool woken;
    const fl_stream *stream;
    const fl_event *event;
    uint64_t until;
    bool ends_at_failure; /* of the device */
} fl__async_waiter;

typedef struct fl__async_work fl__async_work;
typedef void fl__async_run(fl__async *a, fl_device *cpu, fl__async_work *work);

/* A piece of work in a stream's queue: all that it needs, by value.
 * run        on the stream's thread; without the lock; in `status` what came of it
 * host       what the copy uses of the host; size 0: nothing
 * device     what a copy uses of the device, as bytes behind addresses */
struct fl__async_work {
    fl__async_run *run;
    fl__async_entry entry;
    bool fails; /* on request */
    fl_status status;
    uint64_t number;
    fl__async_host_range host;
    void *to;
    const void *from;
    size_t size_bytes;
    bool checked; /* `hash` is that of the host's bytes when the copy was asked for */
    uint64_t hash;
    fl_event *event;
    uint64_t ticket; /* of the event */
    const fl__async_kernel *kernel;
    fl_weight weight[FL__ASYNC_WEIGHTS];
    _Alignas(16) unsigned char args[FL__ASYNC_ARGS_BYTES];
};

struct fl_stream {
    fl_async_native native; /* as a library sees it */
    fl__async *device;
    struct fl_stream *next; /* in the device's list */
    pthread_t thread;
    fl_device *cpu; /* made by the thread, which it belongs to; NULL until then */
    uint64_t seed;
    pthread_cond_t wake; /* for its thread alone, and once for the one that opens it */
    uint64_t n_queued, n_done;
    bool started; /* it shall run what it has; false: it sleeps */
    bool opened, closing;
    fl_failure failure; /* to open */
    fl__async_work queue[FL__ASYNC_QUEUE];
};

/* recorded and reached count its recordings. */
struct fl_event {
    uint64_t recorded, reached;
    int64_t reached_us;
    int n_pending;  /* pieces of work that name it */
    bool destroyed; /* freed with the last of them */
};

struct fl__async {
    fl_device base;
    fl_async_options o;
    pthread_mutex_t lock; /* over everything below */
    fl__async_waiter *waiters;
    fl__space memory, host;
    fl_stream *streams;
    fl_stream *first; /* the default stream */
    uint64_t n_streams_made;
    int n_events;
    atomic_uint_fast64_t n_calls[FL__ASYNC_ENTRIES];
    fl__async_entry fault_entry; /* FL__ASYNC_ENTRIES: no fault is set */
    uint64_t fault_at;
    bool fault_later;
    fl_failure failure; /* the first of queued work; status FL_OK: none */
    bool held;          /* streams begin no work */
    bool misused;       /* a defect of the caller that a void function found */
};

static inline fl__async *fl__async_of(fl_device *d)
{
    return (fl__async *)d;
}

/* ---- faults.c ---- */

/* At the begin of each call: count it, and fail if the device has failed or the call shall. *fails:
 * its work shall, when its turn comes; NULL for an entry that queues none. */
fl_status fl__async_enter(fl__async *a, fl__async_entry entry, bool *fails) FL_MUST_CHECK;

fl_status fl__async_fault_set(fl__async *a, const fl_async_fault *fault) FL_MUST_CHECK;

/* The failure that queued work left, or FL_OK. */
fl_status fl__async_raise(fl__async *a) FL_MUST_CHECK;

/* A caller's defect: it is logged, and ends the process when the device is destroyed. With the
 * lock.
 */
void fl__async_misuse(fl__async *a, const char *format, ...) FL_PRINTF(2, 3);

/* ---- memory.c ---- */

fl_status fl__async_memory_take(fl_device *d, size_t size_bytes, void **out) FL_MUST_CHECK;
fl_status fl__async_memory_reserve(fl_device *d, size_t size_bytes, void **out) FL_MUST_CHECK;
void fl__async_memory_give(fl_device *d, void *memory, size_t size_bytes);
fl_status fl__async_memory_share(fl_device *d, size_t size_bytes, void **out,
                                 fl_shared **shared) FL_MUST_CHECK;
fl_status fl__async_host_take(fl_device *d, size_t size_bytes, void **out) FL_MUST_CHECK;
void fl__async_host_give(fl_device *d, void *memory, size_t size_bytes);

/* The bytes behind the caller's device memory; FL_EINVAL, with `what`, if it is none. With the
 * lock.
 */
fl_status fl__async_translate(fl__async *a, fl__async_entry entry, const char *what,
                              const void *handed, size_t size_bytes, void **out) FL_MUST_CHECK;

/* ---- copy.c ---- */

fl_status fl__async_copy_in(fl_device *d, fl_stream *s, void *to, const void *from_host,
                            size_t n) FL_MUST_CHECK;
fl_status fl__async_copy_out(fl_device *d, fl_stream *s, void *to_host, const void *from,
                             size_t n) FL_MUST_CHECK;
fl_status fl__async_copy(fl_device *d, fl_stream *s, void *to, const void *from,
                         size_t n) FL_MUST_CHECK;
fl_status fl__async_fill_zero(fl_device *d, fl_stream *s, void *to, size_t n) FL_MUST_CHECK;

/* ---- stream.c ---- */

fl_status fl__async_stream_create(fl_device *d, fl_stream **out) FL_MUST_CHECK;
void fl__async_stream_destroy(fl_device *d, fl_stream **s);
fl_status fl__async_sync(fl_device *d, fl_stream *s) FL_MUST_CHECK;

/* Without an entry of its own: the default stream, and the end of a stream. */
fl_status fl__stream_open(fl__async *a, fl_stream **out) FL_MUST_CHECK;
void fl__stream_close(fl_stream **s);

/* The next free place of the queue, cleared; waits for one. With the lock. */
fl__async_work *fl__stream_begin(fl__async *a, fl_stream *s, fl__async_entry entry);
/* It is filled: the stream may run it. With the lock. */
void fl__stream_push(fl__async *a, fl_stream *s);

/* Let sleeping streams begin what they have. With the lock. */
void fl__streams_start(fl__async *a);

/* Wait as `how` says; the rest of it is filled here. With the lock. */
void fl__async_wait(fl__async *a, fl__async_waiter how);

static inline fl_stream *fl__stream_of(fl__async *a, fl_stream *s)
{
    return s == NULL ? a->first : s;
}

/* Whether queued work uses this memory of the host; `written`: only work that writes it counts.
 * With the lock. */
bool fl__async_host_busy(const fl__async *a, const void *memory, size_t size_bytes, bool written);

/* Queued work that uses these bytes of the device, or NULL. With the lock. */
const fl__async_work *fl__async_user_of(const fl__async *a, const void *bytes, size_t size_bytes);

/* ---- event.c ---- */

/* Work that names an event is done, or was dropped. With the lock. */
void fl__event_settle(const fl__async_work *work);

fl_status fl__async_event_create(fl_device *d, fl_event **out) FL_MUST_CHECK;
void fl__async_event_destroy(fl_device *d, fl_event **e);
fl_status fl__async_event_record(fl_device *d, fl_event *e, fl_stream *s) FL_MUST_CHECK;
fl_status fl__async_event_wait(fl_device *d, fl_event *e) FL_MUST_CHECK;
fl_status fl__async_stream_wait(fl_device *d, fl_stream *s, fl_event *e) FL_MUST_CHECK;
fl_status fl__async_event_elapsed(fl_device *d, const fl_event *from, const fl_event *to,
                                  double *us) FL_MUST_CHECK;
fl_status fl__async_event_reached(fl_device *d, fl_event *e, bool *reached) FL_MUST_CHECK;

/* ---- native.c ---- */

fl_status fl__async_stream_native(fl_device *d, fl_stream *s, fl_native *out) FL_MUST_CHECK;

/* ---- kernels.c ---- */

/* Whether a queued kernel uses these bytes. */
bool fl__async_kernel_uses(const fl__async_work *work, const void *bytes, size_t size_bytes);

#define FL__ASYNC_DECLARE(name, type)                                                              \
    fl_status fl__async_##name(fl_device *d, fl_stream *s, const type *args) FL_MUST_CHECK;
FL__ASYNC_KERNELS(FL__ASYNC_DECLARE)
#undef FL__ASYNC_DECLARE

fl_status fl__async_add_to_sum(fl_device *d, fl_stream *s, double value, double *sum) FL_MUST_CHECK;
fl_status fl__async_adamw_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                               const fl_adamw_step *step) FL_MUST_CHECK;
fl_status fl__async_sgd_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                             const fl_sgd_step *step) FL_MUST_CHECK;
fl_status fl__async_sum_squares_many(fl_device *d, fl_stream *s, const fl_square_sum *list,
                                     int n) FL_MUST_CHECK;

#endif
