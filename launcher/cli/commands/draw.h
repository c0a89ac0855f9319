/* A schedule as text, and as JSON. */
#ifndef FL_LAUNCHER_CLI_COMMANDS_DRAW_H
#define FL_LAUNCHER_CLI_COMMANDS_DRAW_H

#include <frostline/job.h>

#include <stdio.h>

typedef struct fl_drawing {
    fl_schedule schedule;
    const char *schedule_name; /* borrowed */
    int K, M;
    int backward_ticks; /* a forward takes 1 */
    bool unicode;
} fl_drawing;

/* FL_ENOMEM; errors of the stream stay with the stream. */
fl_status fl_draw_text(const fl_drawing *drawing, FILE *stream) FL_MUST_CHECK;
fl_status fl_draw_json(const fl_drawing *drawing, FILE *stream) FL_MUST_CHECK;

#endif
