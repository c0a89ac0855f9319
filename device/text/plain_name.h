/* Names of jobs, hosts and the like: they stand in paths, in lines of logs and in YAML as they are.
 */
#ifndef FL_DEVICE_TEXT_PLAIN_NAME_H
#define FL_DEVICE_TEXT_PLAIN_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* For the message about another text, after the number of characters. */
#define FL_PLAIN_NAME_RULE "letters, digits, '_', '-' and '.', the first not '-' or '.'"

/* Whether text is such a name of 1 to `longest` characters. Pure. */
bool fl_name_is_plain(const char *text, size_t longest);

#endif
