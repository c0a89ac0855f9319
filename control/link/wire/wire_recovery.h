/* The bodies of frames about recovery: see wire.h. For control/link/wire/wire.c alone. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_RECOVERY_H
#define FL_CONTROL_LINK_WIRE_WIRE_RECOVERY_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

void fl_wire_put_unanswered(fl_writer *w, const fl_net_unanswered *u);
bool fl_wire_get_unanswered(fl_reader *r, fl_net_unanswered *u);

size_t fl_wire_broken_size(const fl_broken_report *report);
void fl_wire_put_broken(fl_writer *w, const fl_broken_report *report);
bool fl_wire_get_broken(fl_reader *r, fl_broken_report *report);

size_t fl_wire_regroup_size(const fl_regroup_order *order);
void fl_wire_put_regroup(fl_writer *w, const fl_regroup_order *order);
bool fl_wire_get_regroup(fl_reader *r, fl_regroup_order *order);

#endif
