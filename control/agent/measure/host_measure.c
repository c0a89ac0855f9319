#include "control/agent/measure/host_measure.h"

#include "device/system/alloc.h"

#include <string.h>

fl_host_profile_piece fl_host_profile_cut(const char *text, size_t size_bytes, size_t at)
{
    size_t left = size_bytes - at;
    return (fl_host_profile_piece){.size_bytes = (int32_t)size_bytes,
                                   .at = (int32_t)at,
                                   .bytes = (const unsigned char *)text + at,
                                   .n =
                                       left < FL_HOST_PROFILE_PIECE ? left : FL_HOST_PROFILE_PIECE};
}

fl_status fl_host_profile_add(fl_host_profile *p, const fl_host_profile_piece *piece)
{
    if (p->text == NULL && piece->size_bytes > 0 && piece->size_bytes <= FL_HOST_PROFILE_BYTES) {
        FL_TRY(fl_alloc((size_t)piece->size_bytes, (void **)&p->text));
        p->size_bytes = piece->size_bytes;
    }
    if (p->text == NULL || piece->size_bytes != p->size_bytes || piece->at != p->n ||
        piece->n < 1 || piece->n > (size_t)(p->size_bytes - p->n)) {
        return fl_fail(FL_EFORMAT,
                       "its profile has a piece of %zu bytes at %d of %d after %d of %d", piece->n,
                       (int)piece->at, (int)piece->size_bytes, (int)p->n, (int)p->size_bytes);
    }
    memcpy(p->text + p->n, piece->bytes, piece->n);
    p->n += (int32_t)piece->n;
    return FL_OK;
}

bool fl_host_profile_is_whole(const fl_host_profile *p)
{
    return p->text != NULL && p->n == p->size_bytes;
}

void fl_host_profile_fini(fl_host_profile *p)
{
    fl_free(p->text);
    *p = (fl_host_profile){.text = NULL};
}
