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

/* Remove a folder with all that tasks have written there. */
void fl_meeting_clear(const char *dir);

/* Remove the folders in `parent` that are older than `own` by 900 s, and that no living head has
 * locked. Those of other users, and those of which nobody can know that, stay. */
void fl_meeting_tidy(const char *parent, const char *own);

#endif
