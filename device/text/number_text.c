#include "device/text/number_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

const char *fl_number_text(double value, int digits, char text[FL_NUMBER_TEXT_MAX])
{
    if (isnan(value)) {
        snprintf(text, FL_NUMBER_TEXT_MAX, "-");
        return text;
    }
    /* From here on, %g rounds to 10^digits, which it writes with an exponent. */
    double most = pow(10.0, digits) - 0.5;
    bool whole = fabs(value) >= most && fabs(value) < 1e8;
    if (whole) {
        snprintf(text, FL_NUMBER_TEXT_MAX, "%.0f", value);
    } else {
        snprintf(text, FL_NUMBER_TEXT_MAX, "%.*g", digits, value);
    }
    return text;
}
