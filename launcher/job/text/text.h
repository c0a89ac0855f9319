/* Text from outside: which characters it may contain, and how a message shows it. */
#ifndef FL_LAUNCHER_JOB_TEXT_TEXT_H
#define FL_LAUNCHER_JOB_TEXT_TEXT_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_SHOWN_MAX = 96 };

/* Whether YAML lets this character stand in a file as it is. Pure. */
bool fl_char_is_printable(uint32_t code);

/* FL_EINVAL, with the path and what is allowed, for "~" and "~/...": only a shell expands that, and
 * not within quotes. "~NAME" is the name of a file as any other. */
fl_status fl_path_check_home(const char *path) FL_MUST_CHECK;

/* Quote text for a message: escaped so that it cannot control a terminal, and cut when long.
 * Returns shown. */
const char *fl_shown(const char *text, size_t length, char shown[FL_SHOWN_MAX]);

/* The number of single-character changes (insert, delete, replace, swap of neighbours) from one to
 * the other, ignoring case; `limit` + 1 when there are more than `limit`. Pure. */
int fl_edit_distance(const char *a, const char *b, int limit);

/* The candidate that `word` most likely means, or NULL if none is close. `next` returns candidate
 * i, NULL after the last. Of equally close ones, the first wins. */
typedef const char *fl_candidate_word(const void *context, int i);
const char *fl_nearest(const char *word, fl_candidate_word *next, const void *context);

#endif
