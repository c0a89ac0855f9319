#include "control/events/begun.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

enum { MS_PER_S = 1000, NS_PER_MS = 1000000 };

int64_t fl_begun_read(int dir_fd)
{
    struct stat info;
    return fstatat(dir_fd, "job.yaml", &info, 0) == 0
               ? (int64_t)info.st_mtim.tv_sec * MS_PER_S + info.st_mtim.tv_nsec / NS_PER_MS
               : 0;
}

const char *fl_begun_text(int64_t begun_ms, char text[FL_BEGUN_TEXT])
{
    char day[24];
    struct tm utc;
    time_t s = (time_t)(begun_ms / MS_PER_S);
    text[0] = '\0';
    if (begun_ms > 0 && gmtime_r(&s, &utc) != NULL) {
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
        snprintf(text, FL_BEGUN_TEXT, "%s.%03dZ", day, (int)(begun_ms % MS_PER_S));
    }
    return text;
}
