#include "control/link/keys/waiting_room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WAITING_MAX = 4096, NAME_BYTES = 64 };

/* NAME with an end of its own. */
static const char *beside(char text[NAME_BYTES], const char *name, const char *end)
{
    snprintf(text, NAME_BYTES, "%s.%s", name, end);
    return text;
}

static bool listen_at(int fd, int dir_fd, const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%s", dir_fd, name);
    (void)unlinkat(dir_fd, name, 0); /* of a process that was killed */
    /* The file gets the mode of the descriptor: the umask is that of all threads. */
    return n < (int)sizeof at.sun_path && fchmod(fd, 0600) == 0 &&
           bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && listen(fd, WAITING_MAX) == 0;
}

/* The socket keeps its name until the other one has it, where the file system has hard links. */
static bool change_places(int dir_fd, const char *name, const char *own, const char *other)
{
    (void)unlinkat(dir_fd, own, 0);
    return (linkat(dir_fd, name, dir_fd, own, 0) == 0 ||
            renameat(dir_fd, name, dir_fd, own) == 0) &&
           renameat(dir_fd, other, dir_fd, name) == 0;
}

int fl_waiting_room_shut(int dir_fd, const char *name)
{
    char own[NAME_BYTES], other[NAME_BYTES];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    beside(own, name, "open");
    beside(other, name, "wait");
    if (fd >= 0 && listen_at(fd, dir_fd, other) && change_places(dir_fd, name, own, other)) {
        return fd;
    }
    int error = errno;
    if (fd >= 0) {
        close(fd);
        (void)unlinkat(dir_fd, other, 0);
        (void)renameat(dir_fd, own, dir_fd, name);
    }
    errno = error;
    return -1;
}

bool fl_waiting_room_open(int dir_fd, const char *name, int *room)
{
    char own[NAME_BYTES];
    bool opened = renameat(dir_fd, beside(own, name, "open"), dir_fd, name) == 0;
    int error = errno;
    if (!opened && error != ENOENT) {
        return false;
    }
    close(*room);
    *room = -1;
    if (!opened) {
        (void)unlinkat(dir_fd, name, 0); /* of the room, in which nobody would be answered */
    }
    errno = error;
    return opened;
}

void fl_waiting_room_forget(int dir_fd, const char *name)
{
    char text[NAME_BYTES];
    (void)unlinkat(dir_fd, beside(text, name, "open"), 0);
    (void)unlinkat(dir_fd, beside(text, name, "wait"), 0);
}

void fl_waiting_room_remove(int dir_fd, const char *name, int *room)
{
    if (*room >= 0) {
        close(*room);
        *room = -1;
        (void)unlinkat(dir_fd, name, 0);
        fl_waiting_room_forget(dir_fd, name);
    }
}

bool fl_waiting_room_is_shut(int dir_fd, const char *name)
{
    char own[NAME_BYTES];
    return faccessat(dir_fd, beside(own, name, "open"), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
