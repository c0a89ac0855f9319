#include "control/link/wire/wire_cache.h"

#include "control/link/wire/ranges.h"

#include <string.h>

void fl_wire_put_cache(fl_writer *w, const fl_cache_report *c)
{
    fl_put_i64(w, c->step);
    fl_put_i64(w, c->epoch);
    fl_put(w, (uint32_t)c->f, 4);
    fl_put(w, (uint32_t)c->on << 1 | (uint32_t)c->decided, 4);
    fl_put_i64(w, c->n_hits);
    fl_put_i64(w, c->n_upgrades);
    fl_put_i64(w, c->n_misses);
    fl_put_i64(w, c->n_device);
    fl_put_i64(w, c->n_pinned);
    fl_put_f64(w, c->read_us);
    fl_put_f64(w, c->compute_us);
    fl_put_i64(w, c->n_values);
    fl_put_i64(w, c->used_bytes);
    fl_put_i64(w, c->n_evicted);
    fl_put_i64(w, c->n_damaged);
    fl_put_i64(w, c->n_recovered);
}

bool fl_wire_get_cache(fl_reader *r, fl_cache_report *c)
{
    *c = (fl_cache_report){.step = fl_get_i64(r)};
    c->epoch = fl_get_i64(r);
    c->f = fl_get_i32(r);
    uint64_t flags = fl_get(r, 4);
    c->on = flags >> 1 & 1;
    c->decided = flags & 1;
    c->n_hits = fl_get_i64(r);
    c->n_upgrades = fl_get_i64(r);
    c->n_misses = fl_get_i64(r);
    c->n_device = fl_get_i64(r);
    c->n_pinned = fl_get_i64(r);
    c->read_us = fl_get_f64(r);
    c->compute_us = fl_get_f64(r);
    c->n_values = fl_get_i64(r);
    c->used_bytes = fl_get_i64(r);
    c->n_evicted = fl_get_i64(r);
    c->n_damaged = fl_get_i64(r);
    c->n_recovered = fl_get_i64(r);
    return flags < 4 && fl_wire_is_step(c->step) && fl_wire_is_step(c->epoch) && c->f >= 0 &&
           fl_wire_is_count(c->n_hits) && fl_wire_is_count(c->n_upgrades) &&
           fl_wire_is_count(c->n_misses) && fl_wire_is_count(c->n_device) &&
           fl_wire_is_count(c->n_pinned) && c->n_device <= c->n_hits - c->n_pinned &&
           fl_wire_is_count(c->n_values) && fl_wire_is_bytes(c->used_bytes) &&
           fl_wire_is_count(c->n_evicted) && fl_wire_is_count(c->n_damaged) &&
           fl_wire_is_count(c->n_recovered);
}

size_t fl_wire_cache_tiers_size(const fl_cache_tiers_report *report)
{
    return 2 * 8 + 4 + strnlen(report->why_not, FL_WIRE_CACHE_TEXT_MAX);
}

void fl_wire_put_cache_tiers(fl_writer *w, const fl_cache_tiers_report *report)
{
    fl_put_i64(w, report->pinned_bytes);
    fl_put_i64(w, report->device_bytes);
    fl_put_text(w, report->why_not, FL_WIRE_CACHE_TEXT_MAX);
}

bool fl_wire_get_cache_tiers(fl_reader *r, fl_cache_tiers_report *t)
{
    t->pinned_bytes = fl_get_i64(r);
    t->device_bytes = fl_get_i64(r);
    return fl_wire_is_bytes(t->pinned_bytes) && fl_wire_is_bytes(t->device_bytes) &&
           fl_get_text(r, t->why_not, FL_WIRE_CACHE_TEXT_MAX);
}
