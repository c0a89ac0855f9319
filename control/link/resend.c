#include "control/link/resend.h"

#include "device/system/alloc.h"

#include <string.h>

enum { START_BYTES = 4096, SIZE_BYTES = sizeof(size_t) };

void fl_resend_fini(fl_resend *resend)
{
    fl_free(resend->kept);
    *resend = (fl_resend){0};
}

/* ---- what is sent ---- */

static fl_status make_room(fl_resend *resend, size_t size_bytes)
{
    size_t capacity = resend->capacity == 0 ? START_BYTES : resend->capacity;
    while (capacity < resend->n_bytes + size_bytes) {
        capacity *= 2;
    }
    if (capacity > resend->capacity) {
        void *larger = resend->kept;
        FL_TRY(fl_realloc(&larger, resend->n_bytes, capacity));
        resend->kept = (unsigned char *)larger;
        resend->capacity = capacity;
    }
    return FL_OK;
}

fl_status fl_resend_keep(fl_resend *resend, const void *bytes, size_t size_bytes)
{
    FL_TRY(make_room(resend, SIZE_BYTES + size_bytes));
    memcpy(resend->kept + resend->n_bytes, &size_bytes, SIZE_BYTES);
    memcpy(resend->kept + resend->n_bytes + SIZE_BYTES, bytes, size_bytes);
    resend->n_bytes += SIZE_BYTES + size_bytes;
    resend->n_made++;
    return FL_OK;
}

static size_t size_at(const fl_resend *resend, size_t at)
{
    size_t size_bytes;
    memcpy(&size_bytes, resend->kept + at, SIZE_BYTES);
    return size_bytes;
}

const unsigned char *fl_resend_due(const fl_resend *resend, size_t *size_bytes)
{
    if (resend->due_at == resend->n_bytes) {
        return NULL;
    }
    *size_bytes = size_at(resend, resend->due_at);
    return resend->kept + resend->due_at + SIZE_BYTES;
}

void fl_resend_sent(fl_resend *resend)
{
    resend->due_at += SIZE_BYTES + size_at(resend, resend->due_at);
    resend->n_sent++;
}

fl_wire_counts fl_resend_counts(const fl_resend *resend, bool numbered)
{
    return (fl_wire_counts){.n_sent = resend->n_sent + numbered,
                            .n_taken = resend->n_taken,
                            .round = resend->n_back + 1,
                            .lacks = resend->lacks,
                            .numbered = numbered};
}

/* ---- what is heard ---- */

/* It may have taken more than was sent since this end went back: the first copies have arrived. */
static void drop_taken(fl_resend *resend, int64_t n_given)
{
    size_t end = 0;
    for (; resend->n_given < n_given; resend->n_given++) {
        end += SIZE_BYTES + size_at(resend, end);
    }
    if (end > 0) {
        memmove(resend->kept, resend->kept + end, resend->n_bytes - end);
        resend->n_bytes -= end;
        resend->due_at = resend->due_at > end ? resend->due_at - end : 0;
        resend->n_sent = resend->n_sent > n_given ? resend->n_sent : n_given;
    }
}

static void go_back(fl_resend *resend)
{
    resend->due_at = 0;
    resend->n_sent = resend->n_given;
    resend->n_back++;
}

fl_status fl_resend_heard(fl_resend *resend, const fl_wire_counts *counts, bool *take)
{
    if (counts->n_taken > resend->n_made) {
        return fl_fail(FL_EFORMAT, "%lld messages taken, of %lld", (long long)counts->n_taken,
                       (long long)resend->n_made);
    }
    drop_taken(resend, counts->n_taken);
    if (counts->lacks == resend->n_back + 1) {
        go_back(resend);
    }
    *take = !counts->numbered || counts->n_sent == resend->n_taken + 1;
    resend->n_taken += counts->numbered && *take;
    resend->lacks = counts->n_sent > resend->n_taken ? counts->round : 0;
    return FL_OK;
}
