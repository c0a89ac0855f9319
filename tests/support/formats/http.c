#include "support/formats/http.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

int http_connect(int port)
{
    struct timeval patience = {.tv_sec = 30};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience), 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

char *http_send(int port, const void *bytes, size_t n, bool over)
{
    size_t have = 0, room = 1 << 20;
    char *text = malloc(room + 1);
    int fd = http_connect(port);
    assert_non_null(text);
    assert_true(fd >= 0);
    /* The server may have enough before it has all. */
    ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
    (void)sent;
    if (over) {
        (void)shutdown(fd, SHUT_WR);
    }
    for (ssize_t got = 1; got > 0 && have<room; have += got> 0 ? (size_t)got : 0) {
        got = recv(fd, text + have, room - have, 0);
    }
    close(fd);
    text[have] = 0;
    return text;
}

int http_get(int port, const char *path, char **body)
{
    char request[256];
    int code = 0;
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    char *reply = http_send(port, request, (size_t)n, false), *end = strstr(reply, "\r\n\r\n");
    if (sscanf(reply, "HTTP/1.1 %d", &code) != 1 || end == NULL) {
        fail_msg("no answer to GET %s: '%s'", path, reply);
    }
    if (body != NULL && end != NULL) {
        *body = strdup(end + 4);
    }
    free(reply);
    return code;
}

int http_port(const char *url)
{
    int port = 0;
    assert_int_equal(sscanf(url, "http://127.0.0.1:%d/metrics", &port), 1);
    return port;
}
