/* The ledger of the run: written while the run trains, and proved when the run is over. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_RUN_LEDGER_H
#define FL_CONTROL_CONTROLLER_PARTS_RUN_LEDGER_H

#include "autodp/ledger.h"
#include "control/link/step_order.h"
#include "control/state/options.h"

typedef struct fl_run_ledger {
    int dir_fd;              /* of the run directory; borrowed */
    bool waits;              /* it is that of a run that continues, as the run left it before: */
    fl_ledger_proved proved; /* where it is to continue */
    fl_ledger *ledger;       /* NULL while it waits */
    char text[256];          /* what the ledger proves, as a sentence; "" if nothing */
} fl_run_ledger;

/* Create it; of a run that continues, prove it and leave it as it is. */
fl_status fl_run_ledger_open(fl_run_ledger *ledger,
                             const fl_controller_options *options) FL_MUST_CHECK;

/* Continue the one that waits. */
fl_status fl_run_ledger_continue(fl_run_ledger *ledger) FL_MUST_CHECK;
void fl_run_ledger_close(fl_run_ledger *ledger);

/* Record which samples a replica used in a step. A record that cannot be written is logged. */
void fl_run_ledger_add(fl_run_ledger *ledger, int64_t step, const fl_step_share *share);

/* Write no end record, because records may be missing, or the file was deleted: the ledger is then
 * an incomplete record. */
void fl_run_ledger_leave_open(fl_run_ledger *ledger);

/* End the ledger and write what it proves into text. A ledger that cannot be written any more stays
 * an incomplete record.
 * Returns   FL_EINTERNAL if an epoch did not use each sample exactly once, or if it used another
 *           number of samples than n_samples (-1: unknown) */
fl_status fl_run_ledger_prove(fl_run_ledger *ledger, int64_t n_samples) FL_MUST_CHECK;

#endif
