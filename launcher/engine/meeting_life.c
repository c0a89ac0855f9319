#include "launcher/engine/meeting_life.h"

#include "device/errors/log.h"
#include "device/system/machine_name.h"
#include "launcher/engine/meeting_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACE = 96, LOCK_TEXT = 160 };

/* ---- where a task is ---- */

#define NOWHERE "machine not known\n"

/* One kernel has the locks of all processes on one mounted file system. */
static void find_place(int fd, char place[PLACE])
{
    char boot[FL_BOOT_ID_BYTES];
    struct stat info;
    if (fl_boot_id(boot)[0] == '\0' || fstat(fd, &info) != 0) {
        snprintf(place, PLACE, NOWHERE);
    } else {
        snprintf(place, PLACE, "machine %s, file system %016llx\n", boot,
                 (unsigned long long)info.st_dev);
    }
}

static bool is_same_place(const char *a, const char *b)
{
    return strcmp(a, b) == 0 && strcmp(a, NOWHERE) != 0;
}

/* ---- locks ---- */

static int open_lock(const char *dir, const char *name, int more)
{
    char path[FL__MEETING_PATH];
    bool fits = snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path;
    return fits ? open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | more, 0600) : -1;
}

#define START "start "
#define NO_START "--------------------------------" /* as long: a lock is overwritten */

void fl_meeting_mark(int lock_fd, const char *start)
{
    char text[LOCK_TEXT], place[PLACE];
    if (lock_fd < 0) {
        return;
    }
    find_place(lock_fd, place);
    int n =
        snprintf(text, sizeof text, "%s" START "%s\n", place, start[0] == '\0' ? NO_START : start);
    bool good = pwrite(lock_fd, text, (size_t)n, 0) == n && ftruncate(lock_fd, n) == 0;
    if (!good || fdatasync(lock_fd) != 0) { /* its end is not noticed, then */
        fl_log(FL_LOG_DEBUG, "the lock of a task: %s", strerror(errno));
    }
}

/* Of the text of a lock: where its task is, and of which start. Either may be "". */
static void read_mark(int fd, char place[PLACE], char start[FL_MEETING_ID])
{
    char text[LOCK_TEXT];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    bool whole_line = n > 0 && text[n - 1] == '\n';
    text[whole_line ? n : 0] = '\0';
    size_t end = strcspn(text, "\n") + whole_line;
    snprintf(place, PLACE, "%.*s", (int)(end < PLACE ? end : 0), text);
    const char *mark = text + end;
    bool has_start = strncmp(mark, START, strlen(START)) == 0 &&
                     strncmp(mark + strlen(START), NO_START, strlen(NO_START)) != 0;
    const char *named = has_start ? mark + strlen(START) : "";
    snprintf(start, FL_MEETING_ID, "%.*s", (int)strcspn(named, "\n"), named);
}

int fl_meeting_hold(fl_meeting *m)
{
    char name[FL__MEETING_NAME], place[PLACE];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fl__meeting_name_lock(m->rank, name);
    int fd = open_lock(m->dir, name, O_CREAT);
    if (fd >= 0 && fcntl(fd, F_SETLK, &whole) != 0) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        read_mark(fd, place, m->former);
        fl_meeting_mark(fd, m->start);
    }
    return fd;
}

/* What is known of a lock. */
typedef struct lock_look {
    bool known, held;
    char own[PLACE];           /* the place of this process */
    char place[PLACE];         /* of the task that has or had it; "": none has written it */
    char start[FL_MEETING_ID]; /* of the same */
} lock_look;

/* A task writes its place once it has the lock: so the place is read first, and then a lock that is
 * free was released. */
static lock_look look_at(const char *dir, int rank)
{
    char name[FL__MEETING_NAME];
    lock_look look = {.known = false};
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fl__meeting_name_lock(rank, name);
    int fd = open_lock(dir, name, 0);
    if (fd < 0) {
        look.known = errno == ENOENT;
        return look;
    }
    read_mark(fd, look.place, look.start);
    look.known = fcntl(fd, F_GETLK, &whole) == 0;
    look.held = look.known && whole.l_type != F_UNLCK;
    find_place(fd, look.own);
    close(fd);
    return look;
}

bool fl_meeting_may_have_head(const char *dir)
{
    lock_look look = look_at(dir, 0);
    return look.held || !look.known;
}

/* ---- lives, has ended, or not known ---- */

#define UNFIT "\nunfit\n" /* behind the identity of the start */

void fl_meeting_note_left(const char *start, bool unfit, char text[FL_MEETING_NOTE])
{
    snprintf(text, FL_MEETING_NOTE, "%s%s", start, unfit ? UNFIT : "");
}

bool fl_meeting_read_left(const char *dir, const char *name, char start[FL_MEETING_ID])
{
    char text[FL__MEETING_TEXT] = "";
    bool left = fl__meeting_read(dir, name, text);
    size_t n = left ? strcspn(text, "\n") : 0;
    snprintf(start, FL_MEETING_ID, "%.*s", n < FL_MEETING_ID ? (int)n : FL_MEETING_ID - 1, text);
    return left;
}

fl_task_life fl_meeting_end_in(const fl_meeting *m, const char *start)
{
    if (start[0] == '\0') {
        return FL_TASK_MAY_HAVE_ENDED;
    }
    if (m->start[0] == '\0') {
        return strcmp(start, m->former) == 0 ? FL_TASK_NOT_KNOWN : FL_TASK_MAY_HAVE_ENDED;
    }
    return strcmp(start, m->start) == 0 ? FL_TASK_HAS_ENDED : FL_TASK_NOT_KNOWN;
}

/* A note in a folder where no head was before is of this start. */
static fl_task_life look_for_note(const fl_meeting *m, int rank)
{
    char name[FL__MEETING_NAME], start[FL_MEETING_ID];
    fl__meeting_name_left(rank, name);
    if (!fl_meeting_read_left(m->dir, name, start)) {
        return FL_TASK_NOT_KNOWN;
    }
    return m->is_first ? FL_TASK_HAS_ENDED : fl_meeting_end_in(m, start);
}

bool fl_meeting_is_unfit(const fl_meeting *m, int rank)
{
    char name[FL__MEETING_NAME], text[FL__MEETING_TEXT];
    fl__meeting_name_left(rank, name);
    return look_for_note(m, rank) >= FL_TASK_MAY_HAVE_ENDED &&
           fl__meeting_read(m->dir, name, text) && strstr(text, UNFIT) != NULL;
}

static void note_reach(const char *dir, const lock_look *look)
{
    bool is_new = look->place[0] != '\0' && !is_same_place(look->place, look->own) &&
                  !fl__meeting_has(dir, FL__MEETING_LOCKS);
    if (is_new && fl__meeting_write(dir, FL__MEETING_LOCKS, "") != FL_OK) {
        fl_log(FL_LOG_DEBUG, "%s", fl_errmsg());
    }
}

fl_task_life fl_meeting_life(const fl_meeting *m, int rank)
{
    fl_task_life life = look_for_note(m, rank);
    if (life != FL_TASK_NOT_KNOWN) {
        return life;
    }
    lock_look look = look_at(m->dir, rank);
    if (look.held) {
        note_reach(m->dir, &look);
        return FL_TASK_LIVES;
    }
    if (!look.known || look.place[0] == '\0') {
        return FL_TASK_NOT_KNOWN;
    }
    bool reaches =
        is_same_place(look.place, look.own) || fl__meeting_has(m->dir, FL__MEETING_LOCKS);
    return reaches ? fl_meeting_end_in(m, look.start) : FL_TASK_NOT_KNOWN;
}
