#include "launcher/engine/meeting_start.h"

#include "device/errors/log.h"
#include "launcher/engine/meeting_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* ---- the head ---- */

static fl_status draw_start(char start[FL_MEETING_ID])
{
    unsigned char bytes[(FL_MEETING_ID - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        return fl_fail(FL_EIO, "random bytes: %s", strerror(errno));
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(start + 2 * i, 3, "%02x", bytes[i]);
    }
    return FL_OK;
}

fl_status fl__meeting_draw(fl_meeting *m)
{
    m->is_first = !fl__meeting_has(m->dir, FL__MEETING_START);
    return draw_start(m->start);
}

fl_status fl__meeting_begin(const fl_meeting *m)
{
    return fl__meeting_write(m->dir, FL__MEETING_START, m->start);
}

void fl__meeting_read_start(const char *dir, char start[FL_MEETING_ID])
{
    char text[FL__MEETING_TEXT];
    bool good = fl__meeting_read(dir, FL__MEETING_START, text);
    snprintf(start, FL_MEETING_ID, "%.*s", FL_MEETING_ID - 1, good ? text : "");
}

/* ---- the others ---- */

fl_status fl__meeting_tell(fl_meeting *m, const char *start)
{
    char text[FL__MEETING_TEXT], name[FL__MEETING_NAME];
    snprintf(text, sizeof text, "%s %s %d %s\n", m->self.name, m->self.address, m->self.n_devices,
             start[0] == '\0' ? "-" : start);
    fl__meeting_name_task(m->rank, name);
    FL_TRY(fl__meeting_write(m->dir, name, text));
    snprintf(m->told, sizeof m->told, "%s", start);
    return FL_OK;
}

static void take_start(fl_meeting *m, const char *start)
{
    if (strcmp(m->start, start) != 0) {
        snprintf(m->start, sizeof m->start, "%s", start);
        fl_meeting_mark(m->lock_fd, start);
    }
}

fl_head_sight fl__meeting_look(fl_meeting *m)
{
    char start[FL_MEETING_ID];
    fl__meeting_read_start(m->dir, start);
    fl_task_life life = fl_meeting_life(m, 0);
    if (start[0] == '\0' ||
        strcmp(start, m->former) == 0) { /* a head may begin, or have begun to */
        return life >= FL_TASK_MAY_HAVE_ENDED ? FL_HEAD_HAS_COME : FL_HEAD_NOT_COME;
    }
    bool lives = life == FL_TASK_LIVES;
    take_start(m, lives || strcmp(start, m->start) == 0 ? start : "");
    bool tells = m->self.n_devices > 0 && strcmp(start, m->told) != 0;
    if (tells && fl__meeting_tell(m, start) != FL_OK) {
        fl_log(FL_LOG_DEBUG, "%s", fl_errmsg());
    }
    return lives ? FL_HEAD_LIVES : FL_HEAD_HAS_COME;
}
