/* Lines for people, on standard error or a worker's own file. */
#ifndef FL_DEVICE_ERRORS_LOG_H
#define FL_DEVICE_ERRORS_LOG_H

#include <frostline/status.h>

#include <stdint.h>

typedef enum fl_log_level { FL_LOG_ERROR, FL_LOG_WARN, FL_LOG_INFO, FL_LOG_DEBUG } fl_log_level;

/* The name of this process ("worker 3"), printed in each line. Copied, at most 31 bytes. */
void fl_log_name(const char *name);
void fl_log_level_set(fl_log_level level);
fl_log_level fl_log_level_get(void);

/* One line, "HH:MM:SS.mmm level name: text\n", in one write(2); a text of several lines stays so.
 * Other characters that control a terminal are escaped: "a\033b". Threads: any. */
void fl_log(fl_log_level level, const char *format, ...) FL_PRINTF(2, 3);

/* A warning about a message that a peer may send any number of times: the first `each` of them get
 * a line, and then the 10th, the 100th, the 1000th and so on, with their number.
 * The text is one line: its line ends are escaped, too.
 * n   how many there were, the caller's: 0 at first. Counted up. */
void fl_log_counted(int64_t *n, int64_t each, const char *format, ...) FL_PRINTF(3, 4);

#endif
