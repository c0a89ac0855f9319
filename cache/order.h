/* The order of eviction: a heap of units by the time of their next use, the farthest on top. The
 * caller owns its arrays, so that they can lie in memory that processes share. */
#ifndef FL_CACHE_ORDER_H
#define FL_CACHE_ORDER_H

#include <stdint.h>

#define FL_ORDER_NONE UINT32_MAX /* no unit; in `at`: not in the heap */

typedef struct fl_order {
    uint32_t *heap;  /* [n of *count] units, heap[0] is used last */
    uint32_t *at;    /* [n_units] where each unit stands in the heap */
    int64_t *when;   /* [n_units] its next use */
    uint32_t *count; /* units in the heap */
} fl_order;

/* Each takes O(log n). `unit` must be absent for push, present for the others. */
void fl_order_push(const fl_order *order, uint32_t unit, int64_t when);
void fl_order_remove(const fl_order *order, uint32_t unit);
void fl_order_move(const fl_order *order, uint32_t unit, int64_t when);

/* The unit whose next use is farthest away; FL_ORDER_NONE when empty. */
static inline uint32_t fl_order_last(const fl_order *order)
{
    return *order->count == 0 ? FL_ORDER_NONE : order->heap[0];
}

#endif
