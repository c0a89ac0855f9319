/* The body of frames about the cache: see wire.h. For control/link/wire.c alone. */
#ifndef FL_CONTROL_LINK_WIRE_CACHE_H
#define FL_CONTROL_LINK_WIRE_CACHE_H

#include "control/link/bytes.h"
#include "control/link/wire.h"

enum { FL_WIRE_CACHE_BYTES = 12 * 8 + 2 * 4 };
void fl_wire_put_cache(fl_writer *w, const fl_cache_report *c);
bool fl_wire_get_cache(fl_reader *r, fl_cache_report *c);

#endif
