#include "device/system/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fl_regular_file_open(int dir_fd, const char *path, const char **why)
{
    struct stat what;
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool known = fd >= 0 && fstat(fd, &what) == 0;
    if (known && S_ISREG(what.st_mode)) {
        return fd;
    }
    if (why != NULL) {
        *why =
            known || errno == ENXIO ? "not a regular file" : strerror(errno); /* ENXIO: a socket */
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

int fl_regular_file_replace(int dir_fd, const char *path, unsigned mode)
{
    if (unlinkat(dir_fd, path, 0) != 0 && errno != ENOENT) {
        return -1;
    }
    return openat(dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
}
