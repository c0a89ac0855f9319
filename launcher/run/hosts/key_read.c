#include "launcher/run/hosts/key_read.h"

#include "control/link/keys/key_file.h"
#include "device/errors/failure.h"
#include "device/system/clock.h"
#include "device/system/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { INPUT_BYTES = 4096 };

static bool is_key(const char *text)
{
    unsigned char bytes[32];
    return strlen(text) == FL_CURVE_KEY - 1 && zmq_z85_decode(bytes, text) != NULL;
}

/* The next line that is neither empty nor a comment is a key. */
static bool read_line(FILE *file, char key[FL_CURVE_KEY])
{
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0') {
            continue;
        }
        bool good = is_key(line);
        memcpy(key, line, good ? FL_CURVE_KEY : 0);
        explicit_bzero(line, sizeof line);
        return good;
    }
    return false;
}

/* head: the secret key of the head, which has to be there, too; NULL: none is wanted. */
static bool read_lines(FILE *file, fl_curve_keys *out, char *head)
{
    char public_key[FL_CURVE_KEY];
    return read_line(file, out->server) && read_line(file, out->secret) &&
           zmq_curve_public(out->public_key, out->secret) == 0 &&
           (head == NULL || (read_line(file, head) && zmq_curve_public(public_key, head) == 0 &&
                             strcmp(public_key, out->server) == 0));
}

static fl_status read_file(const char *path, fl_curve_keys *out, char *head)
{
    const char *why = "out of memory";
    int fd = fl_regular_file_open(AT_FDCWD, path, &why);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (file == NULL) {
        fl_status failed = fl_fail(FL_EINVAL, "%s: %s", path, why);
        if (fd >= 0) {
            close(fd);
        }
        return failed;
    }
    fl_status status = fl_key_file_check(fd, path);
    bool good = status == FL_OK && read_lines(file, out, head);
    fclose(file);
    if (status != FL_OK) {
        return status;
    }
    return good ? FL_OK
                : fl_fail(FL_EINVAL, "%s: no keys found; allowed: the file %s", path,
                          head == NULL ? FL_HOSTS_KEY_FILE " of a run directory"
                                       : "head.key of a Secret that frostline manifest wrote");
}

fl_status fl_hosts_read_key(const char *path, fl_curve_keys *out)
{
    return read_file(path, out, NULL);
}

fl_status fl_hosts_read_head_key(const char *path, fl_curve_keys *out, char head[FL_CURVE_KEY])
{
    return read_file(path, out, head);
}

void fl_hosts_key_path(const char *path, char whole[PATH_MAX])
{
    char folder[PATH_MAX], found[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    snprintf(folder, sizeof folder, "%.*s/.", (int)(name - path), path);
    if (realpath(slash == NULL ? "." : folder, found) == NULL ||
        snprintf(whole, PATH_MAX, "%s/%s", found, name) >= PATH_MAX) {
        snprintf(whole, PATH_MAX, "%s", path);
    }
}

/* ---- from standard input ---- */

static bool parse_keys(char *text, size_t n, fl_curve_keys *out)
{
    FILE *file = fmemopen(text, n, "r");
    bool good = file != NULL && read_lines(file, out, NULL);
    if (file != NULL) {
        fclose(file);
    }
    return good;
}

/* FL_EDEADLINE: nothing came in time. *n = 0: the input ends. */
static fl_status read_more(int fd, int64_t until_us, char *text, size_t capacity, size_t *n)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    for (;;) {
        int ready = poll(&one, 1, (int)fl_left_ms(until_us));
        if (ready == 0) {
            return fl_fail(FL_EDEADLINE, "no keys on standard input in time; --wait says how long");
        }
        ssize_t got = ready > 0 ? read(fd, text, capacity) : -1;
        if (got >= 0) {
            *n = (size_t)got;
            return FL_OK;
        }
        if (errno != EINTR && errno != EAGAIN) {
            return fl_fail(FL_EINVAL, "standard input: %s", strerror(errno));
        }
    }
}

fl_status fl_hosts_read_key_input(int fd, int64_t wait_ms, fl_curve_keys *out)
{
    char text[INPUT_BYTES];
    size_t n = 0, more = 1;
    int64_t until_us = fl_deadline_us(wait_ms);
    fl_status status = FL_OK;
    bool good = false;
    while (status == FL_OK && !good && more > 0 && n < sizeof text) {
        status = read_more(fd, until_us, text + n, sizeof text - n, &more);
        n += status == FL_OK ? more : 0;
        good = status == FL_OK && n > 0 && parse_keys(text, n, out);
    }
    explicit_bzero(text, sizeof text);
    return status != FL_OK || good ? status : fl_fail(FL_EINVAL, "no keys found on standard input");
}
