#include "control/events/worker_log.h"

#include "control/agent/process/agent.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAIL_LINES = 4 };

const char *fl_worker_log_tail(int dir_fd, int rank, char *text, size_t size_bytes)
{
    char name[FL_AGENT_LOG_NAME_BYTES];
    struct stat info;
    text[0] = 0;
    int fd = openat(dir_fd, fl_agent_log_name(rank, name), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return text;
    }
    off_t start = info.st_size < (off_t)size_bytes ? 0 : info.st_size - (off_t)size_bytes + 1;
    ssize_t n = pread(fd, text, size_bytes - 1, start);
    close(fd);
    n = n < 0 ? 0 : n;
    while (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    text[n] = 0;
    ssize_t first = n;
    for (int lines = 0; first > 0; first--) {
        if (text[first - 1] == '\n' && ++lines == TAIL_LINES) {
            break;
        }
    }
    if (first == 0 && start > 0) { /* the first line is incomplete: leave it out */
        const char *end = strchr(text, '\n');
        first = end == NULL ? 0 : end - text + 1;
    }
    memmove(text, text + first, (size_t)(n - first) + 1);
    /* Control characters of a log must not reach the terminal of its reader. */
    for (char *c = text; *c != 0; c++) {
        if ((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') {
            *c = '?';
        }
    }
    return text;
}
