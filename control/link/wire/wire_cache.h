/* The body of frames about the cache: see wire.h. For control/link/wire/wire.c alone. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_CACHE_H
#define FL_CONTROL_LINK_WIRE_WIRE_CACHE_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

enum { FL_WIRE_CACHE_BYTES = 14 * 8 + 2 * 4 };
void fl_wire_put_cache(fl_writer *w, const fl_cache_report *c);
bool fl_wire_get_cache(fl_reader *r, fl_cache_report *c);

size_t fl_wire_cache_tiers_size(const fl_cache_tiers_report *report);
void fl_wire_put_cache_tiers(fl_writer *w, const fl_cache_tiers_report *report);
bool fl_wire_get_cache_tiers(fl_reader *r, fl_cache_tiers_report *report);

#endif
