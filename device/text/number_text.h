/* Numbers for people: "13.5", "7570". */
#ifndef FL_DEVICE_TEXT_NUMBER_TEXT_H
#define FL_DEVICE_TEXT_NUMBER_TEXT_H

enum { FL_NUMBER_TEXT_MAX = 32 };

/* With `digits` significant digits, and all digits before the point, without an exponent below 1e8;
 * "-" for NAN. Returns text. */
const char *fl_number_text(double value, int digits, char text[FL_NUMBER_TEXT_MAX]);

#endif
