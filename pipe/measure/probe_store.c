#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "pipe/measure/probe.h"

#include <string.h>
#include <time.h>

enum { FREE, WRITING, THERE, POLL_NS = 100000 };

static fl_status store_set(void *self, const char *key, int64_t deadline_us, const void *data,
                           size_t size_bytes)
{
    fl_probe_store *store = self;
    (void)deadline_us; /* nothing is waited for */
    if (strlen(key) >= FL_PROBE_KEY_MAX || size_bytes > FL_PROBE_VALUE_MAX) {
        return fl_fail(FL_EINVAL, "key %s of %zu bytes is too large for the profile's store", key,
                       size_bytes);
    }
    for (int i = 0; i < FL_PROBE_KEYS; i++) {
        int expected = FREE;
        if (__atomic_compare_exchange_n(&store->entry[i].state, &expected, WRITING, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            memcpy(store->entry[i].key, key, strlen(key) + 1);
            memcpy(store->entry[i].value, data, size_bytes);
            store->entry[i].size_bytes = size_bytes;
            __atomic_store_n(&store->entry[i].state, THERE, __ATOMIC_RELEASE);
            return FL_OK;
        }
    }
    return fl_fail(FL_ENOMEM, "the profile's store holds %d keys already", FL_PROBE_KEYS);
}

static int find(const fl_probe_store *store, const char *key)
{
    for (int i = 0; i < FL_PROBE_KEYS; i++) {
        if (__atomic_load_n(&store->entry[i].state, __ATOMIC_ACQUIRE) == THERE &&
            strcmp(store->entry[i].key, key) == 0) {
            return i;
        }
    }
    return -1;
}

static fl_status store_get(void *self, const char *key, int64_t deadline_us, void **data,
                           size_t *size_bytes)
{
    fl_probe_store *store = self;
    int i;
    while ((i = find(store, key)) < 0) {
        struct timespec pause = {.tv_nsec = POLL_NS};
        if (fl_now_us() >= deadline_us) {
            return fl_fail(FL_EDEADLINE, "no process set %s", key);
        }
        nanosleep(&pause, NULL);
    }
    void *copy = NULL;
    FL_TRY(fl_alloc(store->entry[i].size_bytes, &copy));
    memcpy(copy, store->entry[i].value, store->entry[i].size_bytes);
    *data = copy;
    *size_bytes = store->entry[i].size_bytes;
    return FL_OK;
}

fl_kv fl_probe_store_kv(fl_probe_store *store)
{
    return (fl_kv){.self = store, .set = store_set, .get = store_get};
}
