/* Which start a task is of. Two starts may have the same name, as with MPICH and a FROSTLINE_START
 * that stays the same, and the second one finds what the first one has left. So each head draws an
 * identity, and writes it into `start` once it has removed what is left of heads before. Another
 * task takes the identity as its own when it sees the head alive, and writes it into its lock. What
 * a task leaves carries the identity, and each task judges what it finds by it:
 *
 *     the identity of its own start            it is of this start
 *     another one                              it is of a start before
 *     none, of a task that has seen no head    either may be
 *
 * A task that has no identity yet knows only which start is over for certain: the one that the last
 * process of its own rank has left in its lock. */
#ifndef FL_LAUNCHER_ENGINE_MEETING_START_H
#define FL_LAUNCHER_ENGINE_MEETING_START_H

#include "launcher/engine/meeting.h"
#include "launcher/engine/meeting_life.h"

/* What another task sees of the head of its start. */
typedef enum fl_head_sight {
    FL_HEAD_NOT_COME, /* no head is there, or only the head of an earlier start */
    FL_HEAD_HAS_COME, /* a head was there; it may be the head of an earlier start */
    FL_HEAD_LIVES,
} fl_head_sight;

/* The head draws the identity of its start, before it takes its lock. fl_io_status. */
fl_status fl__meeting_draw(fl_meeting *m) FL_MUST_CHECK;

/* Tell it to the others. fl_io_status. */
fl_status fl__meeting_begin(const fl_meeting *m) FL_MUST_CHECK;

/* The identity of the start whose head came last; "": none has. */
void fl__meeting_read_start(const char *dir, char start[FL_MEETING_ID]);

/* Look for the head, and take part in its start. What cannot be told to it now is told at the next
 * look. */
fl_head_sight fl__meeting_look(fl_meeting *m);

/* Say which host this task has, to the head whose identity is `start`; "": to none yet.
 * fl_io_status. */
fl_status fl__meeting_tell(fl_meeting *m, const char *start) FL_MUST_CHECK;

#endif
