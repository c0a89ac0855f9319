/* The lines of a run's file, read however they were left. */
#ifndef FL_LAUNCHER_REPORT_READ_LINES_H
#define FL_LAUNCHER_REPORT_READ_LINES_H

#include <frostline/status.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { FL_LINE_BYTES_MAX = 512 * 1024, FL_WHY_BYTES = 160 };

/* What became of a file. */
typedef struct fl_lines {
    const char *name;
    char missing[FL_WHY_BYTES]; /* why it could not be read at all; "": it was */
    int64_t n;                  /* lines */
    int64_t n_bad, first_bad;   /* that could not be read; the number of the first, from 1 */
    char why[FL_WHY_BYTES];     /* of the first */
} fl_lines;

/* Takes one line, a borrowed object. Sets *good to false, with *why, if the line does not belong
 * into such a file. A failure status ends the reading. */
typedef fl_status fl_line_taker(void *context, json_t *line, bool *good,
                                const char **why) FL_MUST_CHECK;

/* Give every line of dir/name, as JSON, to the taker. A file that is missing, is no file, or holds
 * lines that are cut, too long or no JSON is no failure: *lines tells. Fails with FL_ENOMEM, or as
 * the taker does. */
fl_status fl_lines_read(int dir_fd, const char *name, fl_line_taker *take, void *context,
                        fl_lines *lines) FL_MUST_CHECK;

/* A number; NAN if there is none or it is beyond 1e15, which nothing in a run is. */
double fl_line_real(const json_t *object, const char *key);

/* A whole number from `least` to `most`; `otherwise` if there is none. */
int64_t fl_line_whole(const json_t *object, const char *key, int64_t least, int64_t most,
                      int64_t otherwise);

/* A text, borrowed; "" if there is none. */
const char *fl_line_text(const json_t *object, const char *key);

#endif
