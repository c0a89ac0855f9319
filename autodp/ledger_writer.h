/* How a ledger is written into a file of another name first, or continued in its own. */
#ifndef FL_AUTODP_LEDGER_WRITER_H
#define FL_AUTODP_LEDGER_WRITER_H

#include "autodp/ledger.h"

/* fl_ledger_create under this name. */
fl_status fl__ledger_create_as(int dir_fd, const char *name, int64_t n_samples, uint64_t seed,
                               fl_ledger **out) FL_MUST_CHECK;

/* Cut the file there, durably, and continue it. This needs no space on the disk. On failure the
 * file is as it was. */
fl_status fl__ledger_continue(int dir_fd, const char *name, const fl__ledger_end *end,
                              fl_ledger **out) FL_MUST_CHECK;

/* Close it without writing more, and remove the file. *ledger NULL: only the file. Keeps the
 * message of the failure. */
void fl__ledger_drop(int dir_fd, const char *name, fl_ledger **ledger);

#endif
