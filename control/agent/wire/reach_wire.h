/* Orders and answers of control/agent/measure/reach.h as bytes, for control/agent/wire/host_wire.c
 * and control/agent/wire/agent_wire.c alone. */
#ifndef FL_CONTROL_AGENT_WIRE_REACH_WIRE_H
#define FL_CONTROL_AGENT_WIRE_REACH_WIRE_H

#include "control/agent/measure/reach.h"
#include "control/link/wire/bytes.h"

void fl_reach_put_order(fl_writer *w, const fl_reach_order *order);
bool fl_reach_get_order(fl_reader *r, fl_reach_order *order);

void fl_reach_put_answer(fl_writer *w, const fl_reach_answer *answer);
bool fl_reach_get_answer(fl_reader *r, fl_reach_answer *answer);

#endif
