/* The parts of frames that steer a run: for wire.c and wire_elastic.c. */
#ifndef FL_CONTROL_WIRE_STEER_H
#define FL_CONTROL_WIRE_STEER_H

#include "control/bytes.h"
#include "control/wire.h"

enum { FL_WIRE_STEER_BYTES = 4 + 8 + 8, FL_WIRE_STEERED_BYTES = 3 * 8 };

void fl_wire_put_steer(fl_writer *w, const fl_steer *steer);
bool fl_wire_get_steer(fl_reader *r, fl_steer *steer);

void fl_wire_put_steered(fl_writer *w, const fl_steered_report *report);
bool fl_wire_get_steered(fl_reader *r, fl_steered_report *report);

#endif
