/* The bodies of frames about checkpoints: see wire.h. For control/link/wire/wire.c alone. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_CHECKPOINT_H
#define FL_CONTROL_LINK_WIRE_WIRE_CHECKPOINT_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

enum { FL_WIRE_CHECKPOINT_FILE_BYTES = 4 * 8 + 3 * 4 };
void fl_wire_put_checkpoint_file(fl_writer *w, const fl_checkpoint_file_report *report);
bool fl_wire_get_checkpoint_file(fl_reader *r, uint32_t generation,
                                 fl_checkpoint_file_report *report);

enum { FL_WIRE_SNAPSHOT_BYTES = 4 * 8 + 1 + 4 };
void fl_wire_put_snapshot(fl_writer *w, const fl_snapshot_report *report);
bool fl_wire_get_snapshot(fl_reader *r, uint32_t generation, fl_snapshot_report *report);

size_t fl_wire_checkpoint_part_size(const fl_checkpoint_part_report *report);
void fl_wire_put_checkpoint_part(fl_writer *w, const fl_checkpoint_part_report *report);
bool fl_wire_get_checkpoint_part(fl_reader *r, uint32_t generation,
                                 fl_checkpoint_part_report *report);

#endif
