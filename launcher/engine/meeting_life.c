#include "launcher/engine/meeting_life.h"

#include "device/errors/log.h"
#include "launcher/engine/meeting_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BOOT_ID = 40, PLACE = 96 };

/* ---- where a task is ---- */

static void read_boot(char boot[BOOT_ID])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, BOOT_ID - 1);
    if (fd >= 0) {
        close(fd);
    }
    boot[n < 0 ? 0 : n] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
}

#define NOWHERE "machine not known\n"

/* One kernel has the locks of all processes on one mounted file system. */
static void find_place(int fd, char place[PLACE])
{
    char boot[BOOT_ID];
    struct stat info;
    read_boot(boot);
    if (boot[0] == '\0' || fstat(fd, &info) != 0) {
        snprintf(place, PLACE, NOWHERE);
    } else {
        snprintf(place, PLACE, "machine %s, file system %llx\n", boot,
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

int fl_meeting_hold(const char *dir, int rank)
{
    char name[FL__MEETING_NAME], place[PLACE];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fl__meeting_name_lock(rank, name);
    int fd = open_lock(dir, name, O_CREAT);
    if (fd >= 0 && fcntl(fd, F_SETLK, &whole) != 0) {
        close(fd);
        return -1;
    }
    if (fd >= 0) {
        find_place(fd, place);
        bool good = pwrite(fd, place, strlen(place), 0) == (ssize_t)strlen(place);
        if (!good || fdatasync(fd) != 0) { /* its end is not noticed, then */
            fl_log(FL_LOG_DEBUG, "%s/%s: %s", dir, name, strerror(errno));
        }
    }
    return fd;
}

/* What is known of a lock. */
typedef struct lock_look {
    bool known, held;
    char own[PLACE];   /* the place of this process */
    char place[PLACE]; /* of the task that has or had it; "": none has written it */
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
    ssize_t n = pread(fd, look.place, sizeof look.place - 1, 0);
    bool whole_line = n > 0 && look.place[n - 1] == '\n';
    look.place[whole_line ? n : 0] = '\0';
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

static bool has_left(const char *dir, int rank)
{
    char name[FL__MEETING_NAME];
    fl__meeting_name_left(rank, name);
    return fl__meeting_has(dir, name);
}

static void note_reach(const char *dir, const lock_look *look)
{
    bool is_new = look->place[0] != '\0' && !is_same_place(look->place, look->own) &&
                  !fl__meeting_has(dir, FL__MEETING_LOCKS);
    if (is_new && fl__meeting_write(dir, FL__MEETING_LOCKS, "") != FL_OK) {
        fl_log(FL_LOG_DEBUG, "%s", fl_errmsg());
    }
}

fl_task_life fl_meeting_life(const char *dir, int rank)
{
    if (has_left(dir, rank)) {
        return FL_TASK_HAS_ENDED;
    }
    lock_look look = look_at(dir, rank);
    if (look.held) {
        note_reach(dir, &look);
        return FL_TASK_LIVES;
    }
    if (!look.known || look.place[0] == '\0') {
        return FL_TASK_NOT_KNOWN;
    }
    bool reaches = is_same_place(look.place, look.own) || fl__meeting_has(dir, FL__MEETING_LOCKS);
    return reaches ? FL_TASK_HAS_ENDED : FL_TASK_NOT_KNOWN;
}
