/* Work that a library beside the program queues in a stream, as NCCL does on a GPU. */
#include "device/async/parts.h"

#include "device/random/random.h"

#include <string.h>
#include <unistd.h>

typedef struct native_call {
    void (*run)(void *call, void *to, const void *from);
    void *call;
} native_call;

static void run_native(fl__async *a, fl_device *cpu, fl__async_work *w)
{
    native_call call;
    (void)a;
    (void)cpu;
    memcpy(&call, w->args, sizeof call);
    call.run(call.call, w->to, w->from);
}

/* With the lock. NULL stays NULL. */
static fl_status find_bytes(fl__async *a, const char *what, const void *memory, size_t size_bytes,
                            void **out)
{
    *out = NULL;
    return memory == NULL
               ? FL_OK
               : fl__async_translate(a, FL__ASYNC_stream_native, what, memory, size_bytes, out);
}

static int queue_native(fl_async_native *stream, void *to, const void *from, size_t size_bytes,
                        void (*run)(void *call, void *to, const void *from), void *call)
{
    fl_stream *s = (fl_stream *)(void *)stream; /* its first member */
    fl__async *a = s->device;
    const native_call native = {run, call};
    void *to_bytes, *from_bytes;
    if (fl__async_raise(a) != FL_OK) {
        return -1;
    }
    pthread_mutex_lock(&a->lock);
    fl_status status = find_bytes(a, "to", to, size_bytes, &to_bytes);
    status = status == FL_OK ? find_bytes(a, "from", from, size_bytes, &from_bytes) : status;
    if (status == FL_OK) {
        fl__async_work *w = fl__stream_begin(a, s, FL__ASYNC_stream_native);
        w->run = run_native;
        w->to = to_bytes;
        w->from = from_bytes;
        w->size_bytes = size_bytes;
        memcpy(w->args, &native, sizeof native);
        fl__stream_push(a, s);
        fl__streams_start(a); /* the library may wait in ways of its own */
    }
    pthread_mutex_unlock(&a->lock);
    return status == FL_OK ? 0 : -1;
}

static bool holds_native(fl_async_native *stream, const void *memory, size_t size_bytes)
{
    fl__async *a = ((fl_stream *)(void *)stream)->device;
    pthread_mutex_lock(&a->lock);
    bool holds = fl__space_find(&a->memory, memory, size_bytes) != NULL;
    pthread_mutex_unlock(&a->lock);
    return holds;
}

fl_status fl__async_stream_native(fl_device *d, fl_stream *stream, fl_native *out)
{
    fl__async *a = fl__async_of(d);
    fl_stream *s = fl__stream_of(a, stream);
    FL_TRY(fl__async_enter(a, FL__ASYNC_stream_native, NULL));
    s->native.queue = queue_native;
    s->native.holds = holds_native;
    out->stream = &s->native;
    out->driver_version = 0;
    out->registers = true;
    out->hardware =
        (a->o.hardware != 0 ? a->o.hardware : fl_mix64((uint64_t)getpid(), (uintptr_t)a)) | 1;
    return FL_OK;
}
