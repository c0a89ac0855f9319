#include "control/link/keys/zap_auth.h"

#include "control/link/keys/door.h"
#include "control/link/keys/key_file.h"
#include "control/link/keys/zmq_socket.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/files/input_file.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { TELL_EVERY_US = 10000000 };

enum {
    ALLOWED_MAX = 256,
    LINE_BYTES = 256,
    FILE_BYTES = 128 * 1024,
    KEY_BYTES = 32,
    FRAME_MAX = 256,
    ANSWERS_A_TURN = 64,
    TRY_MS = 20, /* between two attempts to get a port */
};

#define DOMAIN_NAME "frostline"
#define ZAP_ENDPOINT "inproc://zeromq.zap.01"

struct fl_zap_auth {
    char secret[FL_KEY_MAX];
    bool of_run; /* the keys are the run's own, not those of control.allow */
    int n_allowed;
    char allowed[ALLOWED_MAX][FL_KEY_MAX];
    void *zap;
    fl_door *door; /* NULL until a port is bound */
    int n_refused; /* since the last line of the log about them */
    int64_t tell_us;
};

/* ---- keys ---- */

static bool is_key(const char *text)
{
    unsigned char bytes[KEY_BYTES];
    return strlen(text) == FL_KEY_MAX - 1 && zmq_z85_decode(bytes, text) != NULL;
}

/* The next line that is neither empty nor a comment, without surrounding blanks. */
static bool next_line(FILE *file, char line[LINE_BYTES])
{
    while (fgets(line, LINE_BYTES, file) != NULL) {
        if (line[0] == '#') {
            continue;
        }
        size_t n = strcspn(line, " \t\r\n");
        bool rest = strspn(line + n, " \t\r\n") == strlen(line + n);
        line[n] = 0;
        if (!rest) {
            line[0] = '?'; /* more than one word: not a key */
            return true;
        }
        if (n > 0) {
            return true;
        }
    }
    return false;
}

/* A file of keys in memory, since it may be a pipe. */
typedef struct key_lines {
    char text[FILE_BYTES + 1]; /* one more detects a longer file */
    FILE *file;
} key_lines;

static fl_status load_text(const char *path, bool secret, char text[FILE_BYTES + 1], size_t *n)
{
    fl_input in;
    if (fl_input_open(path, &in) != FL_OK) {
        return fl_fail(FL_EINVAL, "%s", fl_errmsg());
    }
    fl_status status = secret ? fl_key_file_check(in.fd, path) : FL_OK;
    if (status == FL_OK && fl_input_fill(&in, text, FILE_BYTES + 1, n) != FL_OK) {
        status = fl_fail(FL_EINVAL, "%s", fl_errmsg());
    }
    fl_input_close(&in);
    return status == FL_OK && *n > FILE_BYTES
               ? fl_fail(FL_EINVAL, "%s: more than %d bytes found; allowed: a file of keys", path,
                         FILE_BYTES)
               : status;
}

static void close_lines(key_lines **lines)
{
    if (*lines != NULL && (*lines)->file != NULL) {
        fclose((*lines)->file);
    }
    if (*lines != NULL) {
        explicit_bzero((*lines)->text, sizeof(*lines)->text);
    }
    fl_free(*lines);
    *lines = NULL;
}

static fl_status open_lines(const char *path, bool secret, key_lines **out)
{
    key_lines *lines = NULL;
    size_t n = 0;
    FL_TRY(fl_alloc(sizeof *lines, (void **)&lines));
    fl_status status = load_text(path, secret, lines->text, &n);
    if (status == FL_OK) {
        lines->file = fmemopen(lines->text, n, "r");
        status = lines->file == NULL ? fl_fail(FL_ENOMEM, "out of memory") : FL_OK;
    }
    if (status != FL_OK) {
        close_lines(&lines);
    }
    *out = lines;
    return status;
}

fl_status fl_zap_auth_read_key(const char *path, bool secret, char key[FL_KEY_MAX])
{
    char line[LINE_BYTES];
    key_lines *lines = NULL;
    FL_TRY(open_lines(path, secret, &lines));
    bool found = next_line(lines->file, line) && is_key(line);
    close_lines(&lines);
    if (!found) {
        return fl_fail(FL_EINVAL,
                       "%s: no key found; allowed: a line of 40 characters, as "
                       "frostline key writes it",
                       path);
    }
    memcpy(key, line, FL_KEY_MAX);
    return FL_OK;
}

static fl_status read_allowed(const char *path, fl_zap_auth *guard)
{
    char line[LINE_BYTES];
    key_lines *lines = NULL;
    fl_status status = FL_OK;
    FL_TRY(open_lines(path, false, &lines));
    for (int n = 1; status == FL_OK && next_line(lines->file, line); n++) {
        if (!is_key(line) || guard->n_allowed == ALLOWED_MAX) {
            status = fl_fail(FL_EINVAL, "%s: key %d: %s", path, n,
                             is_key(line) ? "there are too many" : "not a key of 40 characters");
        } else {
            memcpy(guard->allowed[guard->n_allowed++], line, FL_KEY_MAX);
        }
    }
    close_lines(&lines);
    if (status == FL_OK && guard->n_allowed == 0) {
        status = fl_fail(FL_EINVAL, "%s: no key found, so no client could connect", path);
    }
    return status;
}

bool fl_zap_auth_endpoint(const char *listen, int plus, char *text, size_t size_bytes)
{
    const char *colon = strrchr(listen, ':');
    char *end;
    if (strncmp(listen, "tcp://", 6) != 0 || colon == NULL || colon < listen + 7) {
        return false;
    }
    long port = strtol(colon + 1, &end, 10);
    bool good = colon[1] >= '1' && colon[1] <= '9' && *end == 0 && port < 65535;
    int n = snprintf(text, size_bytes, "%.*s:%ld", (int)(colon - listen), listen, port + plus);
    return good && n > 0 && (size_t)n < size_bytes;
}

static fl_status load_keys(const fl_job *job, fl_zap_auth *guard)
{
    char text[FL_TEXT_MAX + 8];
    if (!fl_zap_auth_endpoint(job->control.listen, 1, text, sizeof text)) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("control.listen"),
                             "found '%s', allowed: tcp://ADDRESS:PORT, PORT from 1 to "
                             "65534",
                             job->control.listen);
    }
    if (job->control.key[0] == 0 || job->control.allow[0] == 0) {
        return fl_fail(FL_EINVAL,
                       "control.%s: found none, with control.listen allowed: a file; without keys "
                       "nothing listens on a network",
                       job->control.key[0] == 0 ? "key" : "allow");
    }
    fl_status status = fl_zap_auth_read_key(job->control.key, true, guard->secret);
    if (status != FL_OK) {
        return fl_fail_field(status, FL_FIELDS("control.key"), "%s", fl_errmsg());
    }
    status = read_allowed(job->control.allow, guard);
    return status == FL_OK ? FL_OK
                           : fl_fail_field(status, FL_FIELDS("control.allow"), "%s", fl_errmsg());
}

fl_status fl_zap_auth_create(const fl_job *job, fl_zap_auth **out)
{
    fl_zap_auth *guard = NULL;
    *out = NULL;
    if (job->control.listen[0] == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *guard, (void **)&guard));
    fl_status status = load_keys(job, guard);
    if (status != FL_OK) {
        fl_zap_auth_destroy(&guard);
        return status;
    }
    *out = guard;
    return FL_OK;
}

fl_status fl_zap_auth_create_for(const char *secret, const char *client, fl_zap_auth **out)
{
    fl_zap_auth *guard = NULL;
    FL_TRY(fl_alloc(sizeof *guard, (void **)&guard));
    guard->of_run = true;
    memcpy(guard->secret, secret, FL_KEY_MAX);
    memcpy(guard->allowed[guard->n_allowed++], client, FL_KEY_MAX);
    *out = guard;
    return FL_OK;
}

void fl_zap_auth_destroy(fl_zap_auth **guard)
{
    if (*guard != NULL) {
        explicit_bzero(*guard, sizeof **guard);
        fl_free(*guard);
        *guard = NULL;
    }
}

/* ---- ZAP ---- */

fl_status fl_zap_auth_open(fl_zap_auth *guard, void *zmq)
{
    guard->zap = zmq_socket(zmq, ZMQ_REP);
    if (guard->zap == NULL || !fl_zmq_set(guard->zap, ZMQ_LINGER, 0) ||
        zmq_bind(guard->zap, ZAP_ENDPOINT) != 0) {
        return fl_fail(FL_EIO, "cannot check the keys of clients: %s", zmq_strerror(zmq_errno()));
    }
    return FL_OK;
}

void fl_zap_auth_close(fl_zap_auth *guard)
{
    fl_door_close(&guard->door);
    if (guard->zap != NULL) {
        zmq_close(guard->zap);
        guard->zap = NULL;
    }
}

bool fl_zap_auth_protect(const fl_zap_auth *guard, void *socket)
{
    /* A connection that has not proved its key by then is closed, so that a stranger who connects
     * and stays silent holds a descriptor for this long only. A slow client connects again. */
    const int server = 1, handshake_ms = 10000;
    return zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &server, sizeof server) == 0 &&
           zmq_setsockopt(socket, ZMQ_HANDSHAKE_IVL, &handshake_ms, sizeof handshake_ms) == 0 &&
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, guard->secret, FL_KEY_MAX) == 0 &&
           zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, DOMAIN_NAME, strlen(DOMAIN_NAME)) == 0;
}

fl_status fl_zap_auth_bind(fl_zap_auth *guard, void *zmq, void *socket, const char *endpoint)
{
    if (guard->door == NULL) {
        FL_TRY(fl_door_open(FL_DOOR_PORTS, &guard->door));
    }
    return fl_door_bind(guard->door, zmq, socket, endpoint)
               ? FL_OK
               : fl_fail(FL_EIO, "%s", zmq_strerror(zmq_errno()));
}

fl_status fl_zap_auth_bind_own(fl_zap_auth *guard, void *zmq, void *socket, const char *endpoint,
                               const char *use, int64_t wait_ms)
{
    fl_status status = fl_zap_auth_bind(guard, zmq, socket, endpoint);
    for (; status != FL_OK && zmq_errno() == EADDRINUSE && wait_ms > 0; wait_ms -= TRY_MS) {
        poll(NULL, 0, TRY_MS);
        status = fl_zap_auth_bind(guard, zmq, socket, endpoint);
    }
    if (status != FL_OK && zmq_errno() == EADDRINUSE) {
        return fl_fail(FL_EBUSY,
                       "another process has taken %s, which was free before, %s; start again, with "
                       "ports outside of net.ipv4.ip_local_port_range",
                       endpoint, use);
    }
    return status == FL_OK ? FL_OK
                           : fl_within(status, "--listen: cannot open %s, %s", endpoint, use);
}

void *fl_zap_auth_socket(const fl_zap_auth *guard)
{
    return guard->zap;
}

/* A ZAP request: version, id, domain, address, identity, mechanism, credentials. */
enum { VERSION, ID, DOMAIN, ADDRESS, IDENTITY, MECHANISM, CREDENTIALS, N_FRAMES };

typedef struct frame {
    char bytes[FRAME_MAX];
    size_t n;
} frame;

static bool is_text(const frame *f, const char *text)
{
    return f->n == strlen(text) && memcmp(f->bytes, text, f->n) == 0;
}

static bool is_allowed(const fl_zap_auth *guard, const frame *frames)
{
    char key[FL_KEY_MAX];
    if (!is_text(&frames[VERSION], "1.0") || !is_text(&frames[DOMAIN], DOMAIN_NAME) ||
        !is_text(&frames[MECHANISM], "CURVE") || frames[CREDENTIALS].n != KEY_BYTES ||
        zmq_z85_encode(key, (const uint8_t *)frames[CREDENTIALS].bytes, KEY_BYTES) == NULL) {
        return false;
    }
    for (int i = 0; i < guard->n_allowed; i++) {
        if (strcmp(key, guard->allowed[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void reply(fl_zap_auth *guard, const frame *frames, bool allowed)
{
    const char *code = allowed ? "200" : "400", *text = allowed ? "OK" : "not on the list";
    zmq_send(guard->zap, "1.0", 3, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(guard->zap, frames[ID].bytes, frames[ID].n, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(guard->zap, code, strlen(code), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(guard->zap, text, strlen(text), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(guard->zap, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT); /* user */
    zmq_send(guard->zap, "", 0, ZMQ_DONTWAIT);               /* metadata */
}

/* Strangers may come by the thousand: a line in ten seconds tells how many, and of the last. */
static void tell_refused(fl_zap_auth *guard, const frame *address)
{
    int64_t now_us = fl_now_us();
    char before[48] = "";
    if (guard->tell_us > now_us) {
        guard->n_refused++;
        return;
    }
    if (guard->n_refused > 0) {
        snprintf(before, sizeof before, " (and %d before)", guard->n_refused);
    }
    fl_log(FL_LOG_WARN, "refused a client from %.*s%s: its key is not %s", (int)address->n,
           address->bytes, before, guard->of_run ? "one of this run" : "in control.allow");
    guard->tell_us = now_us + TELL_EVERY_US;
    guard->n_refused = 0;
}

/* Answer one request; false when none is waiting. Too many frames, or one too long: denied. */
static bool answer_one(fl_zap_auth *guard)
{
    frame frames[N_FRAMES];
    int n = 0, more = 1;
    bool sound = true;
    memset(frames, 0, sizeof frames);
    while (more) {
        frame *f = &frames[n < N_FRAMES ? n : N_FRAMES - 1];
        int got = zmq_recv(guard->zap, f->bytes, sizeof f->bytes, ZMQ_DONTWAIT);
        if (got < 0) {
            return false;
        }
        sound = sound && got <= FRAME_MAX && n < N_FRAMES;
        f->n = got < FRAME_MAX ? (size_t)got : FRAME_MAX;
        n++;
        size_t size = sizeof more;
        zmq_getsockopt(guard->zap, ZMQ_RCVMORE, &more, &size);
    }
    bool allowed = sound && n == N_FRAMES && is_allowed(guard, frames);
    if (!allowed) {
        tell_refused(guard, &frames[ADDRESS]);
    }
    reply(guard, frames, allowed);
    return true;
}

void fl_zap_auth_watch(fl_zap_auth *guard)
{
    for (int i = 0; i < ANSWERS_A_TURN && answer_one(guard); i++) {
    }
}
