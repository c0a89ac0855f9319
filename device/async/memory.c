/* Device memory behind addresses that nobody can touch, and pinned memory of the host. */
#include "device/async/parts.h"

/* With the lock. */
static fl_status take_memory(fl__async *a, size_t size_bytes, void **out)
{
    size_t most = a->o.memory_bytes, used = a->memory.used_bytes;
    if (used > most || size_bytes > most - used) {
        return fl_fail(FL_ENOMEM,
                       "device async-test: out of memory: %zu bytes asked, %zu of %zu in use",
                       size_bytes, used, most);
    }
    fl_status status = fl__space_take(&a->memory, size_bytes, out);
    return status == FL_OK ? FL_OK : fl_within(status, "device async-test: memory");
}

static fl_status take(fl_device *d, fl__async_entry entry, size_t size_bytes, void **out)
{
    fl__async *a = fl__async_of(d);
    FL_TRY(fl__async_enter(a, entry, NULL));
    pthread_mutex_lock(&a->lock);
    fl_status status = take_memory(a, size_bytes, out);
    pthread_mutex_unlock(&a->lock);
    return status;
}

fl_status fl__async_memory_take(fl_device *d, size_t size_bytes, void **out)
{
    return take(d, FL__ASYNC_memory_take, size_bytes, out);
}

fl_status fl__async_memory_reserve(fl_device *d, size_t size_bytes, void **out)
{
    return take(d, FL__ASYNC_memory_reserve, size_bytes, out);
}

/* No other process can look into it. */
fl_status fl__async_memory_share(fl_device *d, size_t size_bytes, void **out, fl_shared **shared)
{
    *shared = NULL;
    return take(d, FL__ASYNC_memory_share, size_bytes, out);
}

void fl__async_memory_give(fl_device *d, void *memory, size_t size_bytes)
{
    fl__async *a = fl__async_of(d);
    pthread_mutex_lock(&a->lock);
    if (fl__space_find(&a->memory, memory, size_bytes) != NULL) {
        const void *bytes = fl__space_bytes(&a->memory, memory);
        const fl__async_work *user = fl__async_user_of(a, bytes, size_bytes);
        if (user != NULL) {
            fl__async_misuse(a,
                             "%zu bytes of memory were given back before %s, which uses them, "
                             "was done",
                             size_bytes, fl__async_entry_name(user->entry));
        }
        while (fl__async_user_of(a, bytes, size_bytes) != NULL) {
            fl__async_wait(a, (fl__async_waiter){0});
        }
    }
    if (!fl__space_give(&a->memory, memory, size_bytes)) {
        fl__async_misuse(a, "%zu bytes of memory at %p were given back, which it does not have",
                         size_bytes, memory);
    }
    pthread_mutex_unlock(&a->lock);
}

fl_status fl__async_host_take(fl_device *d, size_t size_bytes, void **out)
{
    fl__async *a = fl__async_of(d);
    FL_TRY(fl__async_enter(a, FL__ASYNC_host_take, NULL));
    pthread_mutex_lock(&a->lock);
    fl_status status = fl__space_take(&a->host, size_bytes, out);
    pthread_mutex_unlock(&a->lock);
    return status == FL_OK ? FL_OK : fl_within(status, "device async-test: pinned memory");
}

void fl__async_host_give(fl_device *d, void *memory, size_t size_bytes)
{
    fl__async *a = fl__async_of(d);
    pthread_mutex_lock(&a->lock);
    if (fl__async_host_busy(a, memory, size_bytes, false)) {
        fl__async_misuse(a,
                         "%zu bytes of pinned memory were given back before a copy, which uses "
                         "them, was done",
                         size_bytes);
    }
    while (fl__async_host_busy(a, memory, size_bytes, false)) {
        fl__async_wait(a, (fl__async_waiter){0});
    }
    if (!fl__space_give(&a->host, memory, size_bytes)) {
        fl__async_misuse(a,
                         "%zu bytes of pinned memory at %p were given back, which it does not "
                         "have",
                         size_bytes, memory);
    }
    pthread_mutex_unlock(&a->lock);
}

fl_status fl__async_translate(fl__async *a, fl__async_entry entry, const char *what,
                              const void *handed, size_t size_bytes, void **out)
{
    if (fl__space_find(&a->memory, handed, size_bytes) == NULL) {
        const char *why = !fl__space_contains(&a->memory, handed) ? "is no memory of this device"
                          : fl__space_find(&a->memory, handed, 0) != NULL
                              ? "ends before the last of its bytes"
                              : "was not allocated or was given back";
        return fl_fail(FL_EINVAL, "device async-test: %s: `%s` at %p %s",
                       fl__async_entry_name(entry), what, handed, why);
    }
    *out = fl__space_bytes(&a->memory, handed);
    return FL_OK;
}
