#include "device/machine.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 8192, KIB = 1024 };

static const char GROUPS[] = "/sys/fs/cgroup"; /* control groups, version 2 */

/* The file's first TEXT_BYTES - 1 bytes, ended by a zero; "" if it cannot be read. */
static void read_text(const char *path, char text[TEXT_BYTES])
{
    FILE *file = fopen(path, "re");
    size_t n = file == NULL ? 0 : fread(text, 1, TEXT_BYTES - 1, file);
    text[n] = '\0';
    if (file != NULL) {
        fclose(file);
    }
}

static int64_t read_count(const char *text, int64_t unit)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    bool good = end != text && errno == 0 && n >= 0 && n <= INT64_MAX / unit;
    return good ? n * unit : INT64_MAX;
}

int64_t fl_meminfo_bytes(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ':') {
            return read_count(line + length + 1, KIB);
        }
    }
    return INT64_MAX;
}

/* The lowest memory.max of the group at `path` ("/a/b", changed) and of all that contain it. */
static int64_t group_limit(char *path)
{
    char file[PATH_MAX], text[TEXT_BYTES];
    int64_t lowest = INT64_MAX;
    for (char *cut = path; cut != NULL; *cut = '\0') {
        snprintf(file, sizeof file, "%s%s/memory.max", GROUPS, path);
        read_text(file, text);
        int64_t limit = read_count(text, 1); /* "max" is no number: no limit */
        lowest = limit < lowest ? limit : lowest;
        cut = strrchr(path, '/');
        if (cut == NULL) {
            break;
        }
    }
    return lowest;
}

int64_t fl_machine_available_bytes(void)
{
    char text[TEXT_BYTES];
    read_text("/proc/meminfo", text);
    int64_t available = fl_meminfo_bytes(text, "MemAvailable");
    read_text("/proc/self/cgroup", text);
    char *path = strstr(text, "0::");
    if (path != NULL) {
        path += strlen("0::");
        path[strcspn(path, "\n")] = '\0';
        int64_t limit = group_limit(path);
        available = limit < available ? limit : available;
    }
    return available;
}
