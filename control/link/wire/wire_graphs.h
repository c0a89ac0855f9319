/* The body of frames about captured work: see wire.h. For control/link/wire/wire.c alone. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_GRAPHS_H
#define FL_CONTROL_LINK_WIRE_WIRE_GRAPHS_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

size_t fl_wire_graphs_size(const fl_graphs_report *report);
void fl_wire_put_graphs(fl_writer *w, const fl_graphs_report *report);
bool fl_wire_get_graphs(fl_reader *r, uint32_t generation, fl_graphs_report *report);

#endif
