/* The ledger of the run: written while it trains, and proved when it is over. */
#ifndef FL_CONTROL_CONTROLLER_RUN_LEDGER_H
#define FL_CONTROL_CONTROLLER_RUN_LEDGER_H

#include "autodp/ledger.h"
#include "control/link/wire.h"
#include "control/state/options.h"

typedef struct fl_run_ledger {
    int dir_fd; /* of the run directory; borrowed */
    fl_ledger *ledger;
    int64_t *ids; /* [ids_capacity] of the record at hand */
    size_t ids_capacity;
    char text[256]; /* what it proves, a sentence; "" if nothing */
} fl_run_ledger;

fl_status fl_run_ledger_open(fl_run_ledger *ledger,
                             const fl_controller_options *options) FL_MUST_CHECK;
void fl_run_ledger_close(fl_run_ledger *ledger);

/* A worker reports which samples a replica used in a step. A record that cannot be kept is logged.
 */
void fl_run_ledger_add(fl_run_ledger *ledger, const fl_wire_message *message);

/* End the ledger and write what it proves into text; `removed`: its file is gone, and it proves
 * nothing. FL_EINTERNAL if an epoch was not used once, or if not n_samples samples (-1:
 * unknown) were used. */
fl_status fl_run_ledger_prove(fl_run_ledger *ledger, bool removed, int64_t n_samples) FL_MUST_CHECK;

#endif
