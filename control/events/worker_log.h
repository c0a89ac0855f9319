/* What a worker has written to its log. */
#ifndef FL_CONTROL_EVENTS_WORKER_LOG_H
#define FL_CONTROL_EVENTS_WORKER_LOG_H

#include <stddef.h>

/* The last lines (at most 10, at most size_bytes - 1) of a worker's log, without the last newline;
 * "" if the log is empty. dir_fd: the run directory. Returns text. */
const char *fl_worker_log_tail(int dir_fd, int rank, char *text, size_t size_bytes);

#endif
