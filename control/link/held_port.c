#include "control/link/held_port.h"

#include "device/errors/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool read_endpoint(const char *endpoint, struct sockaddr_in *out)
{
    static const char scheme[] = "tcp://";
    char address[INET_ADDRSTRLEN];
    *out = (struct sockaddr_in){.sin_family = AF_INET};
    if (strncmp(endpoint, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    const char *begin = endpoint + sizeof scheme - 1, *colon = strchr(begin, ':');
    if (colon == NULL || colon - begin >= (long)sizeof address) {
        return false;
    }
    snprintf(address, sizeof address, "%.*s", (int)(colon - begin), begin);
    out->sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10));
    return inet_pton(AF_INET, address, &out->sin_addr) == 1;
}

int fl_held_port_open(const char *endpoint)
{
    struct sockaddr_in at;
    const int one = 1;
    if (!read_endpoint(endpoint, &at)) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* Agents connect anew every half minute, and their old connections stay in the queue. */
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
                    bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, SOMAXCONN))) {
        fl_held_port_close(&fd);
    }
    return fd;
}

void fl_held_port_hold(const char *endpoint, int *fd)
{
    if (*fd < 0) {
        *fd = fl_held_port_open(endpoint);
    }
    if (*fd < 0) {
        fl_log(FL_LOG_DEBUG, "cannot hold the port of %s: %s", endpoint, strerror(errno));
    }
}

void fl_held_ports_hold(const char *agents, const char *links, fl_held_ports *ports)
{
    fl_held_port_hold(agents, &ports->agents);
    fl_held_port_hold(links, &ports->links);
}

void fl_held_port_close(int *fd)
{
    int error = errno;
    if (fd != NULL && *fd >= 0) {
        shutdown(*fd, SHUT_RDWR); /* of all copies: a process may stand still with one */
        close(*fd);
    }
    if (fd != NULL) {
        *fd = -1;
    }
    errno = error;
}

static void drop_copy(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void fl_held_ports_drop_copies(fl_held_ports *ports)
{
    if (ports != NULL) {
        drop_copy(&ports->agents);
        drop_copy(&ports->links);
    }
}

void fl_held_ports_close(fl_held_ports *ports)
{
    if (ports != NULL) {
        fl_held_port_close(&ports->agents);
        fl_held_port_close(&ports->links);
    }
}
