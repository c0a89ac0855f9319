/* Folders of starts whose tasks were killed. */
#ifndef FL_LAUNCHER_ENGINE_MEETING_TIDY_H
#define FL_LAUNCHER_ENGINE_MEETING_TIDY_H

#include <stdbool.h>

/* How the folder of a start begins, and the file that its head keeps locked while it lives. */
#define FL_MEETING_FOLDER ".start-"
#define FL_MEETING_HEAD "head"
#define FL_MEETING_LEFT "left-"
#define FL_MEETING_LOCK "lock-"

enum { FL_MEETING_STALE_S = 900 }; /* tasks wait for each other for ten minutes */

/* Lock this file of the folder for as long as this process has it open: the descriptor; -1: the
 * file system has no locks, or another process has it. */
int fl_meeting_hold(const char *dir, const char *name);

/* Whether a living task holds the lock; true, too, where nobody can know it, as on a file system
 * without locks. A folder without that file has no such task yet, or is of an earlier version. */
bool fl_meeting_is_held(const char *dir, const char *name);

/* Remove a folder with all that tasks have written there. */
void fl_meeting_clear(const char *dir);

/* Remove the folders in `parent` that are older than `own` by 900 s, and that no living head has
 * locked. Those of other users, and those of which nobody can know that, stay. */
void fl_meeting_tidy(const char *parent, const char *own);

#endif
