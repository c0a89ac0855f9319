#include "device/text/size_text.h"

#include <math.h>
#include <stdio.h>

const char *fl_size_text(double size_bytes, char text[FL_SIZE_TEXT_MAX])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int last = (int)(sizeof unit / sizeof *unit) - 1, i = 0;
    if (!isfinite(size_bytes)) {
        snprintf(text, FL_SIZE_TEXT_MAX, "-");
        return text;
    }
    for (; fabs(size_bytes) >= 999.5 && i < last; i++) {
        size_bytes /= 1024.0;
    }
    int decimals = i == 0 || fabs(size_bytes) >= 99.95 ? 0 : 1;
    snprintf(text, FL_SIZE_TEXT_MAX, "%.*f %s", decimals, size_bytes, unit[i]);
    return text;
}
