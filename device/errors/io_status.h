/* What a scheduler has to know of a failure: whether the same command may succeed later. */
#ifndef FL_DEVICE_ERRORS_IO_STATUS_H
#define FL_DEVICE_ERRORS_IO_STATUS_H

#include <frostline/status.h>

/* FL_EFAILED: a file system is full or answers no more, or the machine has no room, or no
 * descriptor is left, which passes without a change of the job; FL_EIO: everything else, as a
 * folder that may not be written. error: an errno. Threads: pure; any. */
fl_status fl_io_status(int error);

/* Whether the same command fails again until the user corrects what the message names.
 * Threads   pure; any */
bool fl_status_is_bad_input(fl_status status);

#endif
