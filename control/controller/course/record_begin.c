#include "control/controller/course/record_begin.h"

#include "control/controller/course/stop_request.h"
#include "control/controller/parts/parts.h"
#include "control/events/resume_files.h"

#include <stdio.h>

fl_status fl_record_continue(fl_controller *controller)
{
    fl_run_ledger *ledger = &controller->ledger;
    if (ledger->waits) { /* that of a run that goes back to its first step is new */
        FL_TRY(fl_run_ledger_continue(ledger));
        controller->record.ledger = controller->checkpoints.ledger = ledger->ledger;
    }
    return controller->log.files.waits ? fl_runfiles_continue(&controller->log.files) : FL_OK;
}

void fl_record_begin(fl_controller *controller)
{
    fl_shutdown *shutdown = &controller->shutdown;
    if (fl_record_continue(controller) != FL_OK && shutdown->status == FL_OK) {
        shutdown->status = FL_EFAILED;
        snprintf(shutdown->message, sizeof shutdown->message, "the record cannot be continued: %s",
                 fl_errmsg());
        fl_stop_request(controller, "a failure");
    }
}
