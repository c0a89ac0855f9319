#include "control/agent/join/wait_record.h"

#include "control/agent/join/awaited.h"
#include "device/system/files/regular_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PART FL_WAIT_FILE ".part"
#define LINE "since %lld, %lld s at most, %d: "
#define MEASURES "measuring since %lld: "

#define STOPS ", and is asked to stop"

enum { MS_PER_S = 1000, LIMIT_MOST_S = 86400 };

/* ---- the head ---- */

static void write_record(int dir_fd, const char *line)
{
    int fd = fl_regular_file_replace(dir_fd, PART, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    fprintf(file, "%s\n", line);
    if (fclose(file) != 0 || renameat(dir_fd, PART, dir_fd, FL_WAIT_FILE) != 0) {
        (void)unlinkat(dir_fd, PART, 0);
    }
}

static void write_wait(const fl_wait_record *record, int dir_fd, const fl_hosts *hosts,
                       int64_t limit_ms)
{
    char names[FL_AWAITED_TEXT], line[FL_WAIT_TEXT];
    snprintf(line, sizeof line, LINE "%.600s", (long long)record->since_s,
             (long long)(limit_ms / MS_PER_S), hosts->again ? 1 : 0,
             fl_awaited_names(hosts, record->awaited, names));
    write_record(dir_fd, line);
}

void fl_wait_record_note(fl_wait_record *record, int dir_fd, const fl_hosts *hosts,
                         const bool *awaited, int64_t limit_ms)
{
    size_t n = (size_t)hosts->n;
    bool any = memchr(awaited, 1, n) != NULL;
    if (any == record->any && memcmp(record->awaited, awaited, n * sizeof *awaited) == 0) {
        return;
    }
    record->since_s = record->since_s == 0 ? (int64_t)time(NULL) : record->since_s;
    record->any = any;
    memcpy(record->awaited, awaited, n * sizeof *awaited);
    if (any) {
        write_wait(record, dir_fd, hosts, limit_ms);
    } else {
        fl_wait_record_clear(dir_fd);
    }
}

void fl_wait_record_measures(fl_wait_record *record, int dir_fd, const char *what)
{
    char line[FL_WAIT_TEXT];
    *record = (fl_wait_record){.any = false};
    snprintf(line, sizeof line, MEASURES "%s", (long long)time(NULL), what);
    write_record(dir_fd, line);
}

void fl_wait_record_clear(int dir_fd)
{
    (void)unlinkat(dir_fd, FL_WAIT_FILE, 0); /* first: no client renames it afterwards */
    (void)unlinkat(dir_fd, FL_WAIT_STOP_FILE, 0);
    (void)unlinkat(dir_fd, PART, 0);
}

bool fl_wait_record_is_stopped(int dir_fd)
{
    struct stat info;
    return fstatat(dir_fd, FL_WAIT_STOP_FILE, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- clients ---- */

static bool read_line(int dir, const char *name, char line[FL_WAIT_TEXT])
{
    int fd = fl_regular_file_open(dir, name, NULL);
    ssize_t n = fd < 0 ? -1 : read(fd, line, FL_WAIT_TEXT - 1);
    if (fd >= 0) {
        close(fd);
    }
    line[n > 0 ? n : 0] = '\0';
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '\n') {
            *c = '\0';
            return true;
        }
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    }
    return false;
}

static long long seconds_since(long long since_s)
{
    long long s = (long long)time(NULL) - since_s;
    return s < 0 ? 0 : s;
}

static bool put_measures(const char *line, bool stops, char text[FL_WAIT_TEXT])
{
    long long since_s;
    int at = 0;
    bool measures = sscanf(line, MEASURES "%n", &since_s, &at) == 1 && at > 0;
    if (measures && since_s >= 0) {
        snprintf(text, FL_WAIT_TEXT, "measures %.400s, for %lld s%s", line + at,
                 seconds_since(since_s), stops ? STOPS : "");
    }
    return measures;
}

static void put_text(const char *line, bool stops, char text[FL_WAIT_TEXT])
{
    long long since_s, limit_s;
    int again, at = 0;
    if (put_measures(line, stops, text)) {
        return;
    }
    bool good = sscanf(line, LINE "%n", &since_s, &limit_s, &again, &at) == 3 && at > 0;
    if (!good || since_s < 0 || limit_s < 0 || limit_s > LIMIT_MOST_S) {
        return;
    }
    const char *names = line + at;
    long long waited_s = seconds_since(since_s);
    waited_s = waited_s > limit_s ? limit_s : waited_s;
    bool several = strstr(names, "), ") != NULL;
    snprintf(text, FL_WAIT_TEXT, "waits for %s %.400s to join%s, for %lld s, %lld s more at most%s",
             several ? "hosts" : "host", names, again != 0 ? " again" : "", waited_s,
             limit_s - waited_s, stops ? STOPS : "");
}

const char *fl_wait_record_text(const char *path, char text[FL_WAIT_TEXT])
{
    char line[FL_WAIT_TEXT];
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    text[0] = '\0';
    if (dir < 0) {
        return text;
    }
    bool stops = read_line(dir, FL_WAIT_STOP_FILE, line);
    if (stops || read_line(dir, FL_WAIT_FILE, line)) {
        put_text(line, stops, text);
    }
    close(dir);
    return text;
}

bool fl_wait_record_ask_stop(const char *path)
{
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool asked = dir >= 0 && (renameat(dir, FL_WAIT_FILE, dir, FL_WAIT_STOP_FILE) == 0 ||
                              fl_wait_record_is_stopped(dir));
    if (dir >= 0) {
        close(dir);
    }
    return asked;
}
