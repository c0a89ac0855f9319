/* The fields of frames that carry a setting: for wire.c and wire_elastic.c. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_SETTING_H
#define FL_CONTROL_LINK_WIRE_WIRE_SETTING_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

enum { FL_WIRE_SETTING_BYTES = 4 + 8 + 8, FL_WIRE_SETTING_DONE_BYTES = 3 * 8 };

void fl_wire_put_setting(fl_writer *w, const fl_setting *setting);
bool fl_wire_get_setting(fl_reader *r, fl_setting *setting);

void fl_wire_put_setting_done(fl_writer *w, const fl_setting_done_report *report);
bool fl_wire_get_setting_done(fl_reader *r, fl_setting_done_report *report);

#endif
