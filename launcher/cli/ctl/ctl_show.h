/* Replies and events of a run, for people. */
#ifndef FL_LAUNCHER_CLI_CTL_CTL_SHOW_H
#define FL_LAUNCHER_CLI_CTL_CTL_SHOW_H

#include <jansson.h>
#include <stdio.h>

/* The fields of an object, one a line; an array of objects becomes a table. */
void fl_ctl_show(const json_t *object, FILE *out);

/* An event in one line: its time, its name, and its plain fields. */
void fl_ctl_show_event(const json_t *event, FILE *out);

#endif
