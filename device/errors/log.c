#include "device/errors/log.h"

#include "device/text/shown_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096, NAME_MAX_BYTES = 32 };

static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* The logger is the one place with state of the whole process. */
static char leader[NAME_MAX_BYTES] = "frostline";
static fl_log_level threshold = FL_LOG_INFO;

void fl_log_name(const char *name)
{
    snprintf(leader, sizeof leader, "%s", name);
}

void fl_log_level_set(fl_log_level level)
{
    threshold = level;
}

fl_log_level fl_log_level_get(void)
{
    return threshold;
}

void fl_log(fl_log_level level, const char *format, ...)
{
    if (level > threshold) {
        return;
    }
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    char text[LINE_MAX_BYTES], line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int n = snprintf(line, sizeof line, "%02d:%02d:%02d.%03ld %s %s: ", local.tm_hour, local.tm_min,
                     local.tm_sec, now.tv_nsec / 1000000, level_names[level], leader);
    fl_text_shown_lines(text, line + n, sizeof line - (size_t)n - 1);
    size_t length = strlen(line);
    line[length] = '\n';
    /* A log that cannot be written is not worth ending a run for. */
    ssize_t written = write(STDERR_FILENO, line, length + 1);
    (void)written;
}

static bool is_power_of_ten(int64_t n)
{
    while (n > 1 && n % 10 == 0) {
        n /= 10;
    }
    return n == 1;
}

void fl_log_counted(int64_t *n, int64_t each, const char *format, ...)
{
    char text[LINE_MAX_BYTES], shown[LINE_MAX_BYTES];
    *n += *n < INT64_MAX;
    if (*n > each && !is_power_of_ten(*n)) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fl_text_shown(text, shown, sizeof shown);
    if (*n < each) {
        fl_log(FL_LOG_WARN, "%s", shown);
    } else if (*n == each) {
        fl_log(FL_LOG_WARN, "%s; more of them are counted", shown);
    } else {
        fl_log(FL_LOG_WARN, "%s; that is number %" PRId64, shown, *n);
    }
}
