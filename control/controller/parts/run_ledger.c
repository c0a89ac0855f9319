#include "control/controller/parts/run_ledger.h"

#include "autodp/sampler.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"

#include <inttypes.h>
#include <stdio.h>

fl_status fl_run_ledger_open(fl_run_ledger *ledger, const fl_controller_options *options)
{
    const fl_job *job = options->job;
    *ledger = (fl_run_ledger){.dir_fd = options->dir_fd};
    if (options->resume == NULL) {
        return fl_ledger_create(options->dir_fd, options->n_samples, job->train.seed,
                                &ledger->ledger);
    }
    const fl_ledger_place place = {.n_samples = options->n_samples,
                                   .seed = job->train.seed,
                                   .batch = fl_sampler_batch(job),
                                   .step = options->origin->step};
    FL_TRY(fl_ledger_prove_place(options->dir_fd, &place, &ledger->proved));
    ledger->waits = true;
    return FL_OK;
}

fl_status fl_run_ledger_continue(fl_run_ledger *ledger)
{
    ledger->waits = false;
    return fl_ledger_continue(&ledger->proved, &ledger->ledger);
}

void fl_run_ledger_close(fl_run_ledger *ledger)
{
    if (ledger->waits) {
        fl_ledger_leave(&ledger->proved);
    }
    fl_status closed = fl_ledger_close(&ledger->ledger); /* record.c reports a failure */
    (void)closed;
}

void fl_run_ledger_add(fl_run_ledger *ledger, int64_t step, const fl_step_share *share)
{
    if (ledger->ledger == NULL) {
        return; /* it could not be continued, and the run ends for that */
    }
    fl_status status = fl_ledger_add(ledger->ledger, share->epoch, step, share->generation,
                                     share->replica, share->ids, share->n);
    /* Any other failure is the ledger's: see control/events/log/record.c. */
    if (status == FL_EINVAL) {
        fl_log(FL_LOG_ERROR, "dropped a ledger record: %s", fl_errmsg());
    }
}

/* ---- the proof ---- */

static fl_status count_epochs(fl_run_ledger *ledger, int64_t n_samples,
                              const fl_ledger_epoch *epochs, int64_t n)
{
    int64_t full = 0, used = 0;
    for (int64_t i = 0; i < n; i++) {
        const fl_ledger_epoch *e = &epochs[i];
        if (e->more > 0 || (e->never > 0 && i + 1 < n)) {
            return fl_fail(FL_EINTERNAL,
                           "the ledger shows that in epoch %" PRId64 " %" PRId64
                           " samples were used more than once and %" PRId64 " not at all",
                           e->epoch + 1, e->more, e->never);
        }
        full += e->never == 0;
        used += e->once;
    }
    if (n_samples >= 0 && used != n_samples) {
        return fl_fail(FL_EINTERNAL,
                       "the ledger shows %" PRId64 " samples, the steps used %" PRId64, used,
                       n_samples);
    }
    char part[96] = "";
    if (n > full) {
        snprintf(part, sizeof part,
                 "%s%" PRId64 " of %" PRId64 " samples of epoch %" PRId64 " once",
                 full > 0 ? ", " : "", epochs[n - 1].once, epochs[n - 1].n_samples,
                 epochs[n - 1].epoch + 1);
    }
    if (full > 0) {
        char epochs_full[FL_COUNT_BYTES];
        snprintf(ledger->text, sizeof ledger->text, "every sample of %s used once%s",
                 fl_count(full, "epoch", epochs_full), part);
    } else {
        snprintf(ledger->text, sizeof ledger->text, "%s", part);
    }
    return FL_OK;
}

/* Prove the open file, whatever file its path names by now. */
static fl_status prove_file(fl_run_ledger *ledger, int64_t n_samples)
{
    char path[64];
    fl_ledger_epoch *epochs = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d/ledger.bin", ledger->dir_fd);
    fl_status status = fl_ledger_read(path, &epochs, &n);
    if (status == FL_OK) {
        status = count_epochs(ledger, n_samples, epochs, n);
    }
    fl_free(epochs);
    return status;
}

void fl_run_ledger_leave_open(fl_run_ledger *ledger)
{
    snprintf(ledger->text, sizeof ledger->text,
             "incomplete record: it proves nothing about the whole run");
}

fl_status fl_run_ledger_prove(fl_run_ledger *ledger, int64_t n_samples)
{
    if (fl_ledger_end(ledger->ledger) != FL_OK) {
        fl_run_ledger_leave_open(ledger);
        return FL_OK;
    }
    return prove_file(ledger, n_samples);
}
