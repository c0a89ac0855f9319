/* Copies. The host's side of one belongs to it until it is done: what a copy will write is garbage
 * until then, and what it will read must not change. */
#include "device/async/parts.h"

#include "device/random/random.h"

#include <string.h>

enum { GARBAGE = 0xff }; /* as a float: not a number */

static uint64_t hash_bytes(const void *bytes, size_t n)
{
    uint64_t hash = n, word = 0;
    const unsigned char *at = bytes;
    for (; n >= sizeof word; n -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = fl_mix64(hash, word);
    }
    word = 0;
    memcpy(&word, at, n);
    return fl_mix64(hash, word);
}

static void run_copy_in(fl__async *a, fl_device *cpu, fl__async_work *w)
{
    (void)a;
    (void)cpu;
    memcpy(w->to, w->from, w->size_bytes);
    if (w->checked && hash_bytes(w->to, w->size_bytes) != w->hash) {
        w->status = fl_fail(FL_EINTERNAL,
                            "device async-test: copy_in %llu: the host changed the %zu bytes at %p "
                            "before the copy was done",
                            (unsigned long long)w->number, w->size_bytes, w->from);
    }
}

static void run_copy(fl__async *a, fl_device *cpu, fl__async_work *w)
{
    (void)a;
    (void)cpu;
    memmove(w->to, w->from, w->size_bytes);
}

static void run_fill_zero(fl__async *a, fl_device *cpu, fl__async_work *w)
{
    (void)a;
    (void)cpu;
    memset(w->to, 0, w->size_bytes);
}

static fl_status check_host(fl__async *a, fl__async_entry entry, const void *memory)
{
    if (fl__space_contains(&a->memory, memory)) {
        return fl_fail(FL_EINVAL, "device async-test: %s: %p is device memory, expected the host's",
                       fl__async_entry_name(entry), memory);
    }
    return FL_OK;
}

typedef struct copy {
    fl__async_entry entry;
    fl__async_run *run;
    void *to;         /* device memory, if not to_host */
    const void *from; /* device memory, if not from_host */
    void *to_host;
    const void *from_host;
    size_t n;
} copy;

/* With the lock. Both ends become bytes. */
static fl_status check_ends(fl__async *a, copy *c)
{
    void *bytes = NULL;
    if (c->to != NULL) {
        FL_TRY(fl__async_translate(a, c->entry, "to", c->to, c->n, &bytes));
        c->to = bytes;
    }
    if (c->from != NULL) {
        FL_TRY(fl__async_translate(a, c->entry, "from", c->from, c->n, &bytes));
        c->from = bytes;
    }
    return check_host(a, c->entry, c->to_host != NULL ? c->to_host : c->from_host);
}

/* With the lock. */
static void queue_copy(fl__async *a, fl_stream *s, const copy *c, bool fails)
{
    bool unsure = fl__async_host_busy(a, c->from_host, c->n, true);
    bool in_use = fl__async_host_busy(a, c->to_host, c->n, false);
    fl__async_work *w = fl__stream_begin(a, s, c->entry);
    w->run = c->run;
    w->fails = fails;
    w->to = c->to_host != NULL ? c->to_host : c->to;
    w->from = c->from_host != NULL ? c->from_host : c->from;
    w->size_bytes = c->n;
    if (c->from_host != NULL) {
        w->host = (fl__async_host_range){c->from_host, c->n, false};
        w->checked = !unsure; /* otherwise another copy still fills it */
        w->hash = w->checked ? hash_bytes(c->from_host, c->n) : 0;
    } else if (c->to_host != NULL) {
        w->host = (fl__async_host_range){c->to_host, c->n, true};
        if (!in_use) {
            memset(c->to_host, GARBAGE, c->n);
        }
    }
    fl__stream_push(a, s);
}

static fl_status start_copy(fl_device *d, fl_stream *s, copy c)
{
    fl__async *a = fl__async_of(d);
    bool fails = false;
    FL_TRY(fl__async_enter(a, c.entry, &fails));
    pthread_mutex_lock(&a->lock);
    fl_status status = c.n == 0 && !fails ? FL_OK : check_ends(a, &c);
    if (status == FL_OK && (c.n > 0 || fails)) {
        queue_copy(a, fl__stream_of(a, s), &c, fails);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

fl_status fl__async_copy_in(fl_device *d, fl_stream *s, void *to, const void *from_host, size_t n)
{
    return start_copy(d, s,
                      (copy){.entry = FL__ASYNC_copy_in,
                             .run = run_copy_in,
                             .to = to,
                             .from_host = from_host,
                             .n = n});
}

fl_status fl__async_copy_out(fl_device *d, fl_stream *s, void *to_host, const void *from, size_t n)
{
    return start_copy(d, s,
                      (copy){.entry = FL__ASYNC_copy_out,
                             .run = run_copy,
                             .from = from,
                             .to_host = to_host,
                             .n = n});
}

fl_status fl__async_copy(fl_device *d, fl_stream *s, void *to, const void *from, size_t n)
{
    return start_copy(
        d, s, (copy){.entry = FL__ASYNC_copy, .run = run_copy, .to = to, .from = from, .n = n});
}

fl_status fl__async_fill_zero(fl_device *d, fl_stream *s, void *to, size_t n)
{
    return start_copy(d, s,
                      (copy){.entry = FL__ASYNC_fill_zero, .run = run_fill_zero, .to = to, .n = n});
}
