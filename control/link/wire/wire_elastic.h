/* The bodies of frames about transitions: see wire.h. Plans go to agents as well. */
#ifndef FL_CONTROL_LINK_WIRE_WIRE_ELASTIC_H
#define FL_CONTROL_LINK_WIRE_WIRE_ELASTIC_H

#include "control/link/wire/bytes.h"
#include "control/link/wire/wire.h"

size_t fl_wire_plan_size(const fl_plan *plan);
void fl_wire_put_plan(fl_writer *w, const fl_plan *plan);
bool fl_wire_get_plan(fl_reader *r, fl_plan *plan); /* false: no plan that fl_plan_check accepts */

size_t fl_wire_command_size(const fl_command *command);
void fl_wire_put_command(fl_writer *w, const fl_command *command);
bool fl_wire_get_command(fl_reader *r, fl_command *command);

size_t fl_wire_prepared_size(const fl_prepared_report *report);
void fl_wire_put_prepared(fl_writer *w, const fl_prepared_report *report);
bool fl_wire_get_prepared(fl_reader *r, uint32_t generation, fl_prepared_report *report);

enum { FL_WIRE_TRANSITION_BYTES = 8 * 8 + 4 + 8 + FL_TRANSFER_WAYS * (4 + 8 + 8) };
void fl_wire_put_transition(fl_writer *w, const fl_transition_parts *t);
bool fl_wire_get_transition(fl_reader *r, uint32_t generation, fl_transition_parts *t);

size_t fl_wire_norms_size(const fl_wire_norms *norms);
void fl_wire_put_norms(fl_writer *w, const fl_wire_norms *norms);
bool fl_wire_get_norms(fl_reader *r, fl_wire_norms *norms);

size_t fl_wire_comm_size(const fl_comm_report *report);
void fl_wire_put_comm(fl_writer *w, const fl_comm_report *report);
bool fl_wire_get_comm(fl_reader *r, uint32_t generation, fl_comm_report *report);

#endif
