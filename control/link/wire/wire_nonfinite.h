/* The body of frames about a step that was not finite: see wire.h. For control/link/wire/wire.c
 * alone.
 */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_NONFINITE_H
#define FL_CONTROL_LINK_WIRE_WIRE_NONFINITE_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

size_t fl_wire_nonfinite_size(const fl_nonfinite_report *report);
void fl_wire_put_nonfinite(fl_writer *w, const fl_nonfinite_report *report);
bool fl_wire_get_nonfinite(fl_reader *r, fl_nonfinite_report *report);

#endif
