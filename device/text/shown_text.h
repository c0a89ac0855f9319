/* Text from outside, such as the name of a folder, as a line on a terminal shows it. */
#ifndef FL_DEVICE_TEXT_SHOWN_TEXT_H
#define FL_DEVICE_TEXT_SHOWN_TEXT_H

#include <limits.h>
#include <stddef.h>

enum {
    FL_TEXT_OCTAL_BYTES = 5,
    FL_SHOWN_PATH_BYTES = 4 * PATH_MAX, /* hold each path as fl_text_shown writes it */
};

/* The bytes of the character at the start of text. 0: the text is empty, or its first byte is no
 * UTF-8, or the character controls a terminal, ends a line, or changes the direction in which a
 * line is read. Pure. */
size_t fl_text_harmless(const char *text);

/* "\012". Returns octal. */
const char *fl_text_octal(char byte, char octal[FL_TEXT_OCTAL_BYTES]);

/* The text as it is, but each byte that is not part of a harmless character as an octal escape:
 * "a\012b". Cut if it does not fit. text and shown do not overlap. Returns shown [size_bytes]. */
const char *fl_text_shown(const char *text, char *shown, size_t size_bytes);

/* As fl_text_shown, but line ends stay: for a message of several lines, whose parts from outside
 * are shown by fl_text_shown before. */
const char *fl_text_shown_lines(const char *text, char *shown, size_t size_bytes);

#endif
