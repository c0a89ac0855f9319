/* What became of each checkpoint, by ticket. */
#include "control/checkpoint/parts.h"
#include "device/system/clock.h"

#include <stdio.h>

const fl_checkpoint_outcome *fl_checkpoints_outcome_of(const fl_checkpoints *c, int64_t ticket)
{
    const fl_checkpoint_outcome *o = &c->outcome[ticket % FL_CHECKPOINT_OUTCOMES];
    return o->ticket == ticket ? o : NULL;
}

/* The checkpoint with this ticket is over, and so are requests for it. */
fl_checkpoint_outcome *fl__checkpoints_end_ticket(fl_checkpoints *c, bool good, int64_t step)
{
    fl_checkpoint_outcome *o = &c->outcome[c->ticket % FL_CHECKPOINT_OUTCOMES];
    *o = (fl_checkpoint_outcome){.ticket = c->ticket, .good = good, .step = step};
    o->seconds = (double)(fl_now_us() - c->begun_us) * 1e-6;
    c->ticket++;
    c->asked = c->again = false;
    c->n_late = c->n_switched = 0;
    return o;
}

void fl__checkpoints_fail_ticket(fl_checkpoints *c, int64_t step, const char *why)
{
    fl_checkpoint_outcome *o = fl__checkpoints_end_ticket(c, false, step);
    snprintf(o->why, sizeof o->why, "%s", why);
    c->sums.n_failed++;
    fl_event_log_no_checkpoint(c->log, step, why);
}

void fl__checkpoints_note_written(fl_checkpoints *c, const fl_collection *settled)
{
    fl_checkpoint_outcome *o = fl__checkpoints_end_ticket(c, true, settled->step);
    o->is_best = c->commit->best_step_found == settled->step;
    o->bytes = settled->bytes;
    o->linked_bytes = fl_collection_linked_bytes(settled, c->newest);
    o->copy_ms = (double)settled->copy_us * 1e-3;
    o->write_ms = (double)settled->write_us * 1e-3;
    o->commit_ms = (double)c->commit->took_us * 1e-3;
    c->last_good = *o;
    c->sums = (fl_checkpoint_sums){.n_written = c->sums.n_written + 1,
                                   .n_failed = c->sums.n_failed,
                                   .any = true,
                                   .last_step = settled->step,
                                   .best_step = c->commit->best_step_found,
                                   .last_us = fl_now_us(),
                                   .last_bytes = o->bytes,
                                   .last_linked_bytes = o->linked_bytes,
                                   .last_seconds = o->seconds};
    fl_event_log_checkpoint(c->log, o);
    c->written(c->context, o);
}
