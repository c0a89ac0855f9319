#include "autodp/affinity.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

enum { FRACTION_BITS = 24 };

/* Separates these draws from others with the same numbers. */
static const uint64_t stream_of_affinity = 0x686F6D6573u;

fl_status fl_affinity_init(fl_affinity *affinity, const int *store, int n_replicas)
{
    *affinity = (fl_affinity){.n_replicas = n_replicas, .one = true};
    FL_TRY(fl_alloc_array((size_t)n_replicas, sizeof *affinity->store, (void **)&affinity->store));
    FL_TRY(
        fl_alloc_array((size_t)n_replicas, sizeof *affinity->in_same, (void **)&affinity->in_same));
    for (int r = 0; r < n_replicas; r++) {
        int first = 0;
        while (store[first] != store[r]) {
            first++;
        }
        affinity->store[r] = store[r];
        affinity->in_same[r] = 0;
        affinity->in_same[first]++;
        affinity->one = affinity->one && first == 0;
    }
    return FL_OK;
}

void fl_affinity_fini(fl_affinity *affinity)
{
    fl_free(affinity->store);
    fl_free(affinity->in_same);
    *affinity = (fl_affinity){0};
}

/* -log2((bits + 0.5) / 2^32) in units of 2^-24; above 0. Computes the fraction bit by bit: squares
 * the number; if the square exceeds 2, the bit is set. */
static uint64_t minus_log(uint32_t bits)
{
    uint64_t x = 2 * (uint64_t)bits + 1, log = 1; /* x of 2^33, below 1 */
    for (; x >> 32 == 0; x <<= 1) {
        log++;
    }
    log <<= FRACTION_BITS;
    for (int i = 1; i <= FRACTION_BITS; i++) { /* x in 2^32 .. 2^33 - 1 stands for 1 .. 2 */
        x = (x >> 1) * (x >> 1) >> 30;
        if (x >> 33 != 0) {
            x >>= 1;
            log -= UINT64_C(1) << (FRACTION_BITS - i);
        }
    }
    return log + 1;
}

int fl_affinity_store_of(const fl_affinity *affinity, int64_t id)
{
    int best = 0;
    uint64_t least = 0;
    for (int r = 0; r < affinity->n_replicas && !affinity->one; r++) {
        if (affinity->in_same[r] == 0) {
            continue;
        }
        uint64_t key = fl_mix64(stream_of_affinity, (uint64_t)affinity->store[r]);
        uint64_t drawn = minus_log((uint32_t)(fl_mix64(key, (uint64_t)id) >> 32));
        if (r == 0 || drawn * affinity->in_same[best] < least * affinity->in_same[r]) {
            least = drawn;
            best = r;
        }
    }
    return affinity->store[best];
}

static int64_t weight(const int32_t *work, int64_t i)
{
    if (work == NULL) {
        return 1;
    }
    return work[i] > 0 ? work[i] : 0;
}

/* A replica of that store with room for this much work; -1: none. */
static int with_room(const fl_affinity *h, int store, int64_t amount, const int64_t *room)
{
    for (int r = 0; r < h->n_replicas; r++) {
        if (h->store[r] == store && room[r] >= amount) {
            return r;
        }
    }
    return -1;
}

static int with_most_room(const fl_affinity *h, const int64_t *room)
{
    int best = 0;
    for (int r = 1; r < h->n_replicas; r++) {
        best = room[r] > room[best] ? r : best;
    }
    return best;
}

void fl_affinity_assign(const fl_affinity *affinity, const int64_t *ids, const int32_t *work,
                        int64_t n, int64_t *room, int *replica)
{
    for (int64_t i = 0; i < n; i++) {
        replica[i] =
            with_room(affinity, fl_affinity_store_of(affinity, ids[i]), weight(work, i), room);
        if (replica[i] >= 0) {
            room[replica[i]] -= weight(work, i);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        if (replica[i] < 0) {
            replica[i] = with_most_room(affinity, room);
            room[replica[i]] -= weight(work, i);
        }
    }
}
