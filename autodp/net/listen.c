#include "autodp/net/listen.h"

#include "device/system/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <unistd.h>

static void set_port(struct sockaddr_storage *address, uint16_t port)
{
    if (address->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)address)->sin_port = htons(port);
    }
}

/* A socket that was bound and cannot listen is of no use for another port. */
static int listen_at(struct sockaddr_storage *address, socklen_t size, int backlog)
{
    int one = 1, fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    /* connections that were closed a moment ago do not keep the port */
    bool good = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                bind(fd, (struct sockaddr *)address, size) == 0 && listen(fd, backlog) == 0 &&
                getsockname(fd, (struct sockaddr *)address, &size) == 0;
    if (!good) {
        int error = errno;
        close(fd);
        errno = error;
    }
    return good ? fd : -1;
}

int fl_net_listen(struct sockaddr_storage *address, socklen_t size, const uint16_t ports[2],
                  int backlog)
{
    int n = ports[0] == 0 ? 1 : ports[1] - ports[0] + 1, fd = -1;
    int from = ports[0] == 0 ? 0 : (int)(fl_now_us() % n); /* processes begin at different ones */
    errno = EADDRINUSE;
    for (int i = 0; i < n && fd < 0 && errno == EADDRINUSE; i++) {
        set_port(address, (uint16_t)(ports[0] + (from + i) % n));
        fd = listen_at(address, size, backlog);
    }
    return fd;
}
