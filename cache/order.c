#include "cache/order.h"

static void put_unit(const fl_order *o, uint32_t place, uint32_t unit)
{
    o->heap[place] = unit;
    o->at[unit] = place;
}

static void rise(const fl_order *o, uint32_t place, uint32_t unit)
{
    while (place > 0) {
        uint32_t parent = (place - 1) / 2;
        if (o->when[o->heap[parent]] >= o->when[unit]) {
            break;
        }
        put_unit(o, place, o->heap[parent]);
        place = parent;
    }
    put_unit(o, place, unit);
}

static void sink(const fl_order *o, uint32_t place, uint32_t unit)
{
    uint32_t n = *o->count;
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && o->when[o->heap[child + 1]] > o->when[o->heap[child]]) {
            child++;
        }
        if (o->when[unit] >= o->when[o->heap[child]]) {
            break;
        }
        put_unit(o, place, o->heap[child]);
        place = child;
    }
    put_unit(o, place, unit);
}

void fl_order_push(const fl_order *o, uint32_t unit, int64_t when)
{
    o->when[unit] = when;
    rise(o, (*o->count)++, unit);
}

void fl_order_remove(const fl_order *o, uint32_t unit)
{
    uint32_t place = o->at[unit];
    uint32_t moved = o->heap[--*o->count];
    o->at[unit] = FL_ORDER_NONE;
    if (moved != unit) {
        sink(o, place, moved);
        rise(o, o->at[moved], moved);
    }
}

void fl_order_move(const fl_order *o, uint32_t unit, int64_t when)
{
    uint32_t place = o->at[unit];
    o->when[unit] = when;
    sink(o, place, unit);
    rise(o, o->at[unit], unit);
}
