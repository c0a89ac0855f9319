#include "data/squad/text_pool.h"

#include "device/system/alloc.h"

#include <string.h>

fl_status fl__text_pool_add(fl_text_pool *p, const char *bytes, size_t n_bytes)
{
    size_t used = (size_t)fl__text_pool_bytes(p);
    FL_TRY(fl_alloc_room((void **)&p->begin, p->n == 0 ? 0 : (size_t)p->n + 1, 2, sizeof *p->begin,
                         &p->begin_room));
    FL_TRY(fl_alloc_room((void **)&p->bytes, used, n_bytes + 1, 1, &p->bytes_room));
    memcpy(p->bytes + used, bytes, n_bytes);
    p->begin[p->n++] = (int64_t)used;
    p->begin[p->n] = (int64_t)(used + n_bytes);
    return FL_OK;
}

void fl__text_pool_fini(fl_text_pool *p)
{
    fl_free(p->begin);
    fl_free(p->bytes);
    *p = (fl_text_pool){0};
}

fl_text fl__text_pool_get(const fl_text_pool *p, int64_t i)
{
    /* An empty text at the end of a pool that a file gave may have no memory. */
    return (fl_text){.bytes = p->bytes == NULL ? "" : p->bytes + p->begin[i],
                     .n_bytes = (size_t)(p->begin[i + 1] - p->begin[i])};
}

int64_t fl__text_pool_bytes(const fl_text_pool *p)
{
    return p->n == 0 ? 0 : p->begin[p->n];
}

bool fl__text_pool_is_sound(const fl_text_pool *p, int64_t n_bytes)
{
    if (p->n == 0) {
        return n_bytes == 0;
    }
    bool good = p->begin[0] == 0 && p->begin[p->n] == n_bytes;
    for (int64_t i = 0; good && i < p->n; i++) {
        good = p->begin[i] <= p->begin[i + 1];
    }
    return good;
}
