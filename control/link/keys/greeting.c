#include "control/link/keys/greeting.h"

#include "device/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    GREETING_BYTES = 64,
    SIGNATURE_END = 9, /* 0xff, eight bytes, 0x7f */
    MAJOR_AT = 10,
    MECHANISM_AT = 12,
};

static const char mechanism[] = "CURVE"; /* padded with zeros */

/* HOST:PORT or [HOST]:PORT, behind tcp:// */
static struct addrinfo *resolve(const char *endpoint)
{
    static const char scheme[] = "tcp://";
    char host[256];
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const char *begin = endpoint + sizeof scheme - 1, *colon = strrchr(endpoint, ':');
    if (strncmp(endpoint, scheme, sizeof scheme - 1) != 0 || colon < begin) {
        return NULL;
    }
    bool bracketed = *begin == '[' && colon > begin && colon[-1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(colon - begin) - 2 * bracketed, begin + bracketed);
    return getaddrinfo(host, colon + 1, &hints, &found) == 0 ? found : NULL;
}

static bool wait_for(int fd, short events, int64_t deadline_us)
{
    struct pollfd item = {.fd = fd, .events = events};
    int n;
    while ((n = poll(&item, 1, (int)fl_left_ms(deadline_us))) < 0 && errno == EINTR) {
    }
    return n == 1;
}

static bool connect_to(int fd, const struct addrinfo *to, int64_t deadline_us)
{
    int error = 0;
    socklen_t size = sizeof error;
    return connect(fd, to->ai_addr, to->ai_addrlen) == 0 ||
           (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline_us) &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0);
}

/* The other side sends all of its greeting only to a peer that speaks version 3, too. */
static bool exchange(int fd, unsigned char theirs[GREETING_BYTES], int64_t deadline_us)
{
    unsigned char ours[GREETING_BYTES] = {[0] = 0xff, [SIGNATURE_END] = 0x7f, [MAJOR_AT] = 3};
    size_t n = 0;
    memcpy(ours + MECHANISM_AT, mechanism, sizeof mechanism);
    if (send(fd, ours, sizeof ours, MSG_NOSIGNAL) != (ssize_t)sizeof ours) {
        return false;
    }
    while (n < GREETING_BYTES && wait_for(fd, POLLIN, deadline_us)) {
        ssize_t more = recv(fd, theirs + n, GREETING_BYTES - n, 0);
        if (more <= 0) {
            return false;
        }
        n += (size_t)more;
    }
    return n == GREETING_BYTES;
}

static bool greets(const struct addrinfo *to, int64_t deadline_us)
{
    unsigned char theirs[GREETING_BYTES];
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = fd >= 0 && connect_to(fd, to, deadline_us) && exchange(fd, theirs, deadline_us) &&
                theirs[0] == 0xff && theirs[SIGNATURE_END] == 0x7f && theirs[MAJOR_AT] == 3 &&
                memcmp(theirs + MECHANISM_AT, mechanism, sizeof mechanism) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

bool fl_greets_with_curve(const char *endpoint, int timeout_ms)
{
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    struct addrinfo *found = resolve(endpoint);
    bool good = false;
    for (const struct addrinfo *to = found; to != NULL && !good; to = to->ai_next) {
        good = greets(to, deadline_us);
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
    return good;
}
