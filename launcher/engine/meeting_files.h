/* The files of a meeting (meeting.h): their names, and how a task reads and writes them. */
#ifndef FL_LAUNCHER_ENGINE_MEETING_FILES_H
#define FL_LAUNCHER_ENGINE_MEETING_FILES_H

#include <frostline/status.h>

#include <limits.h>
#include <stdbool.h>

#define FL__MEETING_JOIN "join"
#define FL__MEETING_OVER "over"
#define FL__MEETING_START "start"
#define FL__MEETING_LOCKS "locks"

enum { FL__MEETING_TEXT = 256, FL__MEETING_NAME = 32, FL__MEETING_PATH = PATH_MAX + 32 };

/* "task-2", "left-2"; "lock-2", of the head "head". */
void fl__meeting_name_task(int rank, char name[FL__MEETING_NAME]);
void fl__meeting_name_left(int rank, char name[FL__MEETING_NAME]);
void fl__meeting_name_lock(int rank, char name[FL__MEETING_NAME]);

/* The file gets its name when it is whole; nothing is left of one that cannot be written.
 * fl_io_status. */
fl_status fl__meeting_write(const char *dir, const char *name, const char *text) FL_MUST_CHECK;

/* False while it is not there. */
bool fl__meeting_read(const char *dir, const char *name, char text[FL__MEETING_TEXT]);

bool fl__meeting_has(const char *dir, const char *name);

/* Whether somebody has removed the folder itself. */
bool fl__meeting_is_gone(const char *dir);

/* It may be gone, or was never written. */
void fl__meeting_remove(const char *dir, const char *name);

/* Between two looks: a file system on a network is asked no more often. */
void fl__meeting_nap(void);

#endif
