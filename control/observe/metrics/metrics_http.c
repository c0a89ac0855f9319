#include "control/observe/metrics/metrics_http.h"

#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 16,
    REQUEST_BYTES_MAX = 8 * 1024, /* memory of a connection: a longer request header is refused */
    IDLE_S = 5,
    LONGEST_MS = 10000, /* the longest time of a connection, however slow the client */
    STALE_MS = 10000,   /* a controller that publishes nothing for this long is unhealthy */
    BACKLOG = 16,
    NICENESS = 10,
    SPARE_BYTES = 4096,
};

/* ---- the address ---- */

typedef struct listen_place {
    struct sockaddr_storage at;
    socklen_t size;
} listen_place;

static fl_status misread(const char *address)
{
    return fl_fail_field(FL_EINVAL, FL_FIELDS("control.metrics"),
                         "found '%s', allowed: PORT, ADDRESS:PORT or [ADDRESS]:PORT, "
                         "a numeric address and a port from 0 to 65535",
                         address);
}

static bool read_port(const char *text, uint16_t *port)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    *port = htons((uint16_t)value);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && value <= 65535;
}

static fl_status read_address(const char *address, listen_place *out)
{
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(address, ':'), *port = colon == NULL ? address : colon + 1;
    size_t n = colon == NULL ? 0 : (size_t)(colon - address);
    bool bracketed = n >= 2 && address[0] == '[' && address[n - 1] == ']';
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out->at;
    struct sockaddr_in *four = (struct sockaddr_in *)&out->at;
    memset(out, 0, sizeof *out);
    if (n >= sizeof host) {
        return misread(address);
    }
    if (colon != NULL) {
        size_t skip = bracketed ? 1 : 0;
        memcpy(host, address + skip, n - 2 * skip);
        host[n - 2 * skip] = 0;
    }
    bool good;
    if (bracketed) {
        out->size = sizeof *six;
        six->sin6_family = AF_INET6;
        good = inet_pton(AF_INET6, host, &six->sin6_addr) == 1 && read_port(port, &six->sin6_port);
    } else {
        out->size = sizeof *four;
        four->sin_family = AF_INET;
        good = inet_pton(AF_INET, host, &four->sin_addr) == 1 && read_port(port, &four->sin_port);
    }
    return good ? FL_OK : misread(address);
}

fl_status fl_metrics_check(const char *address)
{
    listen_place p;
    return read_address(address, &p);
}

/* The URL with the port that the system chose. */
static bool tell_url(fl_metrics_listener *l)
{
    listen_place p = {.size = sizeof p.at};
    char host[INET6_ADDRSTRLEN] = "";
    if (getsockname(l->fd, (struct sockaddr *)&p.at, &p.size) != 0) {
        return false;
    }
    if (p.at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&p.at;
        (void)inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        snprintf(l->url, sizeof l->url, "http://[%s]:%d/metrics", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&p.at;
        (void)inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        snprintf(l->url, sizeof l->url, "http://%s:%d/metrics", host, ntohs(four->sin_port));
    }
    return true;
}

fl_status fl_metrics_listen(const char *address, fl_metrics_listener *listener)
{
    listen_place p;
    int one = 1;
    FL_TRY(read_address(address, &p));
    listener->fd = socket(p.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = listener->fd >= 0 &&
                setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                bind(listener->fd, (struct sockaddr *)&p.at, p.size) == 0 &&
                listen(listener->fd, BACKLOG) == 0 && tell_url(listener);
    if (!good) {
        fl_status status = fl_fail_field(FL_EIO, FL_FIELDS("control.metrics"),
                                         "cannot listen at %s: %s", address, strerror(errno));
        fl_metrics_listener_close(listener);
        return status;
    }
    return FL_OK;
}

void fl_metrics_listener_close(fl_metrics_listener *listener)
{
    if (listener->fd >= 0) {
        close(listener->fd);
        listener->fd = -1;
    }
}

/* ---- the server ---- */

typedef struct visitor {
    int fd; /* -1: closed */
    int64_t since_us;
} visitor;

struct fl_metrics_server {
    struct MHD_Daemon *daemon;
    bool nice; /* the priority of its thread is lowered */
    char *text;
    size_t capacity;
    /* Guards the fields below. The controller never waits for it, and no worker uses it. */
    pthread_mutex_t lock;
    visitor visitors[CONNECTIONS_MAX];
    int64_t published_us; /* 0: not yet */
    fl_metrics metrics;   /* with its own arrays of workers and hosts */
};

/* Render the current text, in the server's memory; NULL: out of memory. */
static const char *render(fl_metrics_server *s, size_t *n)
{
    pthread_mutex_lock(&s->lock);
    *n = fl_metrics_render(&s->metrics, s->text, s->capacity);
    if (*n >= s->capacity) {
        void *larger = s->text;
        if (fl_realloc(&larger, 0, *n + SPARE_BYTES) == FL_OK) {
            s->text = larger;
            s->capacity = *n + SPARE_BYTES;
            *n = fl_metrics_render(&s->metrics, s->text, s->capacity);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return *n < s->capacity ? s->text : NULL;
}

static bool is_well(fl_metrics_server *s)
{
    pthread_mutex_lock(&s->lock);
    bool well = s->published_us != 0 && fl_now_us() - s->published_us < STALE_MS * INT64_C(1000);
    pthread_mutex_unlock(&s->lock);
    return well;
}

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned code, const char *type,
                             const char *text, size_t n)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) {
        return MHD_NO;
    }
    enum MHD_Result result = MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        result = MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    result = result == MHD_YES ? MHD_queue_response(connection, code, r) : result;
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned code, const char *text)
{
    return reply(connection, code, "text/plain; charset=utf-8", text, strlen(text));
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **of_connection)
{
    fl_metrics_server *s = context;
    (void)version;
    (void)upload;
    (void)upload_bytes;
    (void)of_connection;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    }
    if (strcmp(url, "/healthz") == 0) {
        return is_well(s) ? say(connection, MHD_HTTP_OK, "ok\n")
                          : say(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                "the controller does not respond\n");
    }
    if (strcmp(url, "/metrics") != 0) {
        return say(connection, MHD_HTTP_NOT_FOUND, "/metrics and /healthz are here\n");
    }
    size_t n = 0;
    const char *text = render(s, &n);
    return text == NULL ? say(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n")
                        : reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                                text, n);
}

/* Called by the server's thread when a connection begins and before its socket is closed. */
static void note_visitor(void *context, struct MHD_Connection *connection, void **slot,
                         enum MHD_ConnectionNotificationCode what)
{
    fl_metrics_server *s = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!s->nice) {
        s->nice = true;
        (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* applies to this thread, on Linux */
    }
    pthread_mutex_lock(&s->lock);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && *slot != NULL) {
        ((visitor *)*slot)->fd = -1;
    }
    for (int i = 0; what == MHD_CONNECTION_NOTIFY_STARTED && i < CONNECTIONS_MAX; i++) {
        if (s->visitors[i].fd < 0 && info != NULL) {
            s->visitors[i] = (visitor){info->connect_fd, fl_now_us()};
            *slot = &s->visitors[i];
            break;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

/* A client that sends a byte now and then is never idle, so connections also have a total limit. */
static void end_long_visits(fl_metrics_server *s, int64_t now_us)
{
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        visitor *v = &s->visitors[i];
        if (v->fd >= 0 && now_us - v->since_us > LONGEST_MS * INT64_C(1000)) {
            (void)shutdown(v->fd, SHUT_RDWR);
        }
    }
}

void fl_metrics_publish(fl_metrics_server *server, const fl_metrics *metrics)
{
    fl_metrics_worker *own = server->metrics.workers;
    fl_metrics_host *own_hosts = server->metrics.hosts;
    if (pthread_mutex_trylock(&server->lock) != 0) {
        return;
    }
    memcpy(own, metrics->workers, (size_t)metrics->n_workers * sizeof *own);
    if (metrics->n_hosts > 0) {
        memcpy(own_hosts, metrics->hosts, (size_t)metrics->n_hosts * sizeof *own_hosts);
    }
    server->metrics = *metrics;
    server->metrics.workers = own;
    server->metrics.hosts = own_hosts;
    server->published_us = fl_now_us();
    end_long_visits(server, server->published_us);
    pthread_mutex_unlock(&server->lock);
}

/* Its thread receives no signals: the controller handles them. */
static struct MHD_Daemon *start(fl_metrics_server *s, int fd)
{
    sigset_t before;
    fl_thread_block_signals(&before);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL, answer, s,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES_MAX, MHD_OPTION_NOTIFY_CONNECTION, note_visitor, s, MHD_OPTION_END);
    fl_thread_restore_signals(&before);
    return daemon;
}

fl_status fl_metrics_serve(fl_metrics_listener *listener, int n_workers, fl_metrics_server **out)
{
    fl_metrics_server *s = NULL;
    FL_TRY(fl_alloc(sizeof *s, (void **)&s));
    pthread_mutex_init(&s->lock, NULL);
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        s->visitors[i].fd = -1;
    }
    fl_status status =
        fl_alloc_array((size_t)n_workers, sizeof *s->metrics.workers, (void **)&s->metrics.workers);
    if (status == FL_OK) { /* each host has a worker */
        status =
            fl_alloc_array((size_t)n_workers, sizeof *s->metrics.hosts, (void **)&s->metrics.hosts);
    }
    if (status == FL_OK) {
        s->daemon = start(s, listener->fd);
        status = s->daemon != NULL ? FL_OK
                                   : fl_fail_field(FL_EIO, FL_FIELDS("control.metrics"),
                                                   "no thread to answer at %s", listener->url);
    }
    if (status != FL_OK) {
        fl_metrics_stop(&s);
        return status;
    }
    listener->fd = -1;
    *out = s;
    return FL_OK;
}

void fl_metrics_stop(fl_metrics_server **server)
{
    fl_metrics_server *s = *server;
    if (s == NULL) {
        return;
    }
    *server = NULL;
    if (s->daemon != NULL) {
        MHD_stop_daemon(s->daemon);
    }
    pthread_mutex_destroy(&s->lock);
    fl_free(s->metrics.workers);
    fl_free(s->metrics.hosts);
    fl_free(s->text);
    fl_free(s);
}
