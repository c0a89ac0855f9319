#include "control/events/log/weight_lines.h"

#include "control/events/json.h"
#include "control/events/runfiles.h"
#include "device/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    LOCK_MS = 5000, /* another worker, or a program of the user's, may be stopped with the lock */
    LOOK_MS = 2,
};

static void build_lines(const fl_model *model, const fl_hashes_report *report, fl_json *lines)
{
    char hash[17];
    for (int i = 0; i < report->n; i++) {
        lines->comma = false;
        snprintf(hash, sizeof hash, "%016" PRIx64, report->hash[i]);
        fl_json_object(lines, NULL);
        fl_json_integer(lines, "step", report->step);
        fl_json_integer(lines, "layer", report->first + i);
        fl_json_text(lines, "name", fl_model_layer_name(model, report->first + i));
        fl_json_text(lines, "hash", hash);
        fl_json_close(lines, '}');
        fl_json_newline(lines);
    }
}

/* Returns 0, or errno. */
static int lock_file(int fd)
{
    int64_t deadline_us = fl_deadline_us(LOCK_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return errno;
        }
        if (fl_left_ms(deadline_us) == 0) {
            return ETIMEDOUT;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
    return 0;
}

/* Returns 0, or errno. A named pipe in the file's place must make nobody wait. */
static int append_text(int dir_fd, const fl_json *lines)
{
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
    int fd = openat(dir_fd, "weights.jsonl", flags, 0644);
    if (fd < 0) {
        return errno;
    }
    int error = lock_file(fd);
    error = error != 0 ? error : fl_runfile_append(fd, lines->text, lines->n);
    close(fd);
    return error;
}

int fl_weight_lines_append(int dir_fd, const fl_model *model, const fl_hashes_report *report)
{
    fl_json lines = {0};
    build_lines(model, report, &lines);
    int error = lines.broken ? ENOMEM : append_text(dir_fd, &lines);
    fl_json_fini(&lines);
    return error;
}
