/* Metrics over HTTP: /metrics for Prometheus, /healthz to check that the controller is alive.
 *
 *     controller ── fl_metrics_publish, a few times a second ──> values ──> server thread ──> GET
 *
 * A thread of libmicrohttpd, at a lower priority than the training threads, answers clients from
 * the values published last. It accepts few connections, for a limited time, and small requests
 * only. */
#ifndef FL_CONTROL_OBSERVE_METRICS_METRICS_HTTP_H
#define FL_CONTROL_OBSERVE_METRICS_METRICS_HTTP_H

#include "control/observe/metrics/metrics.h"

enum { FL_METRICS_URL_MAX = 96 };

/* A listening socket; no thread answers on it yet. */
typedef struct fl_metrics_listener {
    int fd;
    char url[FL_METRICS_URL_MAX]; /* of the metrics, with the port that it got */
} fl_metrics_listener;

/* address  "PORT" (of 127.0.0.1), "ADDRESS:PORT" or "[ADDRESS]:PORT"; port 0: any free port.
 * Returns  FL_EINVAL if it has none of these forms, with the allowed ones */
fl_status fl_metrics_check(const char *address) FL_MUST_CHECK;

/* The same, and FL_EIO if the address cannot be bound. */
fl_status fl_metrics_listen(const char *address, fl_metrics_listener *listener) FL_MUST_CHECK;
void fl_metrics_listener_close(fl_metrics_listener *listener);

typedef struct fl_metrics_server fl_metrics_server;

/* Answer on the listener; the server takes its socket. Call it after the fork: it starts a thread.
 */
fl_status fl_metrics_serve(fl_metrics_listener *listener, int n_workers,
                           fl_metrics_server **out) FL_MUST_CHECK;

/* Answer with these values (copied) from now on. While a client is being answered it does nothing,
 * so it never waits. Also ends connections that last too long: call it at least every few seconds.
 */
void fl_metrics_publish(fl_metrics_server *server, const fl_metrics *metrics);

/* *server becomes NULL; NULL is allowed. */
void fl_metrics_stop(fl_metrics_server **server);

#endif
