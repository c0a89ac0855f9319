/* When the command of a run began: the time of its job.yaml, which a start writes before it waits
 * for hosts. The clock of the run starts after that wait. */
#ifndef FL_CONTROL_EVENTS_BEGUN_H
#define FL_CONTROL_EVENTS_BEGUN_H

#include <stdint.h>

enum { FL_BEGUN_TEXT = 40 };

/* Milliseconds since 1970 of the run in the open directory; 0: it has no job.yaml. */
int64_t fl_begun_read(int dir_fd);

/* 1500 -> "1970-01-01T00:00:01.500Z", as the `wall` of events; 0 -> "". Returns text. */
const char *fl_begun_text(int64_t begun_ms, char text[FL_BEGUN_TEXT]);

#endif
