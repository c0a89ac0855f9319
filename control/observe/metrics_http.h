/* Metrics over HTTP: /metrics for Prometheus, /healthz for whoever asks whether the controller
 * lives.
 *
 *     head ── fl_metrics_publish, a few times a second ──> values ──> a thread of libmicrohttpd ──>
 * GET
 *
 * Clients are answered from the values published last, by a thread of its own that gives way to
 * those that train. It takes few connections, none for long, and small requests only. */
#ifndef FL_CONTROL_OBSERVE_METRICS_HTTP_H
#define FL_CONTROL_OBSERVE_METRICS_HTTP_H

#include "control/observe/metrics.h"

enum { FL_METRICS_URL_MAX = 96 };

/* A socket that listens; nobody answers on it yet. */
typedef struct fl_metrics_listener {
    int fd;
    char url[FL_METRICS_URL_MAX]; /* of the metrics, with the port that it got */
} fl_metrics_listener;

/* address  "PORT" (of 127.0.0.1), "ADDRESS:PORT" or "[ADDRESS]:PORT"; port 0: any that is free.
 * Returns  FL_EINVAL if it is none of these, saying what is allowed */
fl_status fl_metrics_check(const char *address) FL_MUST_CHECK;

/* The same, and FL_EIO if nobody can listen there. */
fl_status fl_metrics_listen(const char *address, fl_metrics_listener *listener) FL_MUST_CHECK;
void fl_metrics_listener_close(fl_metrics_listener *listener);

typedef struct fl_metrics_server fl_metrics_server;

/* Answer on the listener, whose socket becomes the server's. Fork before: it starts a thread. */
fl_status fl_metrics_serve(fl_metrics_listener *listener, int n_workers,
                           fl_metrics_server **out) FL_MUST_CHECK;

/* From here on these values are told; copied. While a client is being answered it does nothing, so
 * it never waits. Also ends connections that last too long: call it at least every few seconds. */
void fl_metrics_publish(fl_metrics_server *server, const fl_metrics *metrics);

/* *server becomes NULL; NULL is fine. */
void fl_metrics_stop(fl_metrics_server **server);

#endif
