#include "launcher/engine/pmi.h"

#include "device/system/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ASK_MS = 2000, LINE_MAX_BYTES = 256 };

static const char question[] = "cmd=get_my_kvsname\n";
static const char goodbye[] = "cmd=finalize\n";
static const char key[] = "kvsname=";

/* The line that comes, without its end. */
static bool read_line(int fd, char line[LINE_MAX_BYTES])
{
    size_t n = 0;
    for (int64_t until_us = fl_deadline_us(ASK_MS); n + 1 < LINE_MAX_BYTES;) {
        struct pollfd item = {.fd = fd, .events = POLLIN};
        int ready = poll(&item, 1, (int)fl_left_ms(until_us));
        ssize_t got = ready > 0 ? read(fd, line + n, 1) : ready;
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        if (line[n] == '\n') {
            line[n] = '\0';
            return true;
        }
        n++;
    }
    return false;
}

static bool ask_hydra(int fd, const char *what, char line[LINE_MAX_BYTES])
{
    size_t n = strlen(what);
    return send(fd, what, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n && read_line(fd, line);
}

bool fl_pmi_ask_start(int fd, char *name, size_t size_bytes)
{
    char line[LINE_MAX_BYTES], last[LINE_MAX_BYTES];
    bool answered = ask_hydra(fd, question, line);
    (void)ask_hydra(fd, goodbye, last); /* its answer says nothing */
    close(fd);
    if (!answered) {
        return false;
    }
    const char *value = strstr(line, key);
    size_t length = value == NULL ? 0 : strcspn(value + strlen(key), " ");
    if (length == 0 || length >= size_bytes) {
        return false;
    }
    snprintf(name, size_bytes, "%.*s", (int)length, value + strlen(key));
    return true;
}
