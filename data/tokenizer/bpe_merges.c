/* The merges of a vocabulary: a hash table from a pair of ids to its rank and what it becomes. */
#include "data/tokenizer/bpe.h"
#include "device/system/alloc.h"

enum { FIRST_BITS = 8 };

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static fl_merge *find_place(const fl_merge_table *table, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << table->bits) - 1;
    uint64_t at = (key * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - table->bits);
    while (table->merges[at].rank != UINT32_MAX && table->merges[at].key != key) {
        at = (at + 1) & mask;
    }
    return &table->merges[at];
}

const fl_merge *fl__merges_find(const fl_merge_table *table, int32_t left, int32_t right)
{
    if (table->n == 0) {
        return NULL;
    }
    const fl_merge *found = find_place(table, key_of(left, right));
    return found->rank == UINT32_MAX ? NULL : found;
}

/* At most half of the table is in use. */
static fl_status grow_table(fl_merge_table *table)
{
    size_t n_old = table->n == 0 ? 0 : (size_t)1 << table->bits;
    if (table->n * 2 < n_old) {
        return FL_OK;
    }
    int bits = n_old == 0 ? FIRST_BITS : table->bits + 1;
    fl_merge *old = table->merges, *merges;
    FL_TRY(fl_alloc_array((size_t)1 << bits, sizeof *merges, (void **)&merges));
    for (size_t i = 0; i < (size_t)1 << bits; i++) {
        merges[i].rank = UINT32_MAX;
    }
    table->merges = merges;
    table->bits = bits;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].rank != UINT32_MAX) {
            *find_place(table, old[i].key) = old[i];
        }
    }
    fl_free(old);
    return FL_OK;
}

fl_status fl__merges_add(fl_merge_table *table, int32_t left, int32_t right, int32_t id,
                         uint32_t rank)
{
    FL_TRY(grow_table(table));
    fl_merge *place = find_place(table, key_of(left, right));
    table->n += place->rank == UINT32_MAX;
    *place = (fl_merge){.key = key_of(left, right), .rank = rank, .id = id};
    return FL_OK;
}

void fl__merges_fini(fl_merge_table *table)
{
    fl_free(table->merges);
    *table = (fl_merge_table){0};
}
