/* The body of frames in which workers report what they have done: see wire.h. For
 * control/link/wire/wire.c alone. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_REPORTS_H
#define FL_CONTROL_LINK_WIRE_WIRE_REPORTS_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

size_t fl_wire_step_size(const fl_step_report *s);
void fl_wire_put_step(fl_writer *w, const fl_step_report *s);
bool fl_wire_get_step(fl_reader *r, uint32_t generation, fl_step_report *s);

enum { FL_WIRE_TIME_BYTES = 6 * 8 };
void fl_wire_put_time(fl_writer *w, const fl_time_report *t);
bool fl_wire_get_time(fl_reader *r, fl_time_report *t);

size_t fl_wire_eval_size(const fl_eval_report *e);
void fl_wire_put_eval(fl_writer *w, const fl_eval_report *e);
bool fl_wire_get_eval(fl_reader *r, fl_eval_report *e);

/* Its lines lie in the frame. */
size_t fl_wire_pass_size(const fl_pass_report *p);
void fl_wire_put_pass(fl_writer *w, const fl_pass_report *p);
bool fl_wire_get_pass(fl_reader *r, fl_pass_report *p);

/* Its ids lie in the frame: fl_wire_ids reads them. */
size_t fl_wire_ledger_size(const fl_wire_ledger *l);
void fl_wire_put_ledger(fl_writer *w, const fl_wire_ledger *l);
bool fl_wire_get_ledger(fl_reader *r, fl_wire_ledger *l);

size_t fl_wire_hashes_size(const fl_hashes_report *h);
void fl_wire_put_hashes(fl_writer *w, const fl_hashes_report *h);
bool fl_wire_get_hashes(fl_reader *r, fl_hashes_report *h);

enum { FL_WIRE_MEMORY_BYTES = 4 * 8 };
void fl_wire_put_memory(fl_writer *w, const fl_memory_report *m);
bool fl_wire_get_memory(fl_reader *r, fl_memory_report *m);

#endif
