/* Sizes of memory and files for people: "12.3 MiB". */
#ifndef FL_DEVICE_TEXT_SIZE_TEXT_H
#define FL_DEVICE_TEXT_SIZE_TEXT_H

enum { FL_SIZE_TEXT_MAX = 24 };

/* In the unit that leaves at most three digits before the point: "0 B", "7.0 MiB", "123 GiB"; "-"
 * for what is not finite. Returns text. */
const char *fl_size_text(double size_bytes, char text[FL_SIZE_TEXT_MAX]);

#endif
