#include "data/squad/question_ids.h"

#include "device/system/alloc.h"

#include <string.h>
#include <xxhash.h>

enum { SHOWN_BYTES = 40 };

typedef struct id_table {
    const fl_text_pool *ids;
    int32_t *slots; /* [n_slots] a question, or -1 */
    size_t n_slots; /* a power of two, at least twice as many as there are questions */
} id_table;

/* The earlier question with the id of question q; -1: the id is new. Adds q. */
static int32_t add_id(id_table *t, int32_t q)
{
    const fl_text id = fl__text_pool_get(t->ids, q);
    size_t slot = (size_t)XXH64(id.bytes, id.n_bytes, 0) & (t->n_slots - 1);
    for (; t->slots[slot] >= 0; slot = (slot + 1) & (t->n_slots - 1)) {
        const fl_text other = fl__text_pool_get(t->ids, t->slots[slot]);
        if (other.n_bytes == id.n_bytes && memcmp(other.bytes, id.bytes, id.n_bytes) == 0) {
            return t->slots[slot];
        }
    }
    t->slots[slot] = q;
    return -1;
}

fl_status fl__question_ids_check(const char *path, const fl_text_pool *ids)
{
    id_table t = {.ids = ids, .n_slots = 2};
    fl_status status = FL_OK;
    while (t.n_slots < 2 * (size_t)ids->n) {
        t.n_slots *= 2;
    }
    FL_TRY(fl_alloc_array(t.n_slots, sizeof *t.slots, (void **)&t.slots));
    memset(t.slots, 0xFF, t.n_slots * sizeof *t.slots);
    for (int32_t q = 0; status == FL_OK && q < (int32_t)ids->n; q++) {
        int32_t before = add_id(&t, q);
        const fl_text id = fl__text_pool_get(ids, q);
        if (before >= 0) {
            status = fl_fail(FL_EFORMAT,
                             "%s: questions %d and %d have one id, '%.*s', allowed: an id of its "
                             "own for each question",
                             path, before + 1, q + 1,
                             id.n_bytes < SHOWN_BYTES ? (int)id.n_bytes : SHOWN_BYTES, id.bytes);
        }
    }
    fl_free(t.slots);
    return status;
}
