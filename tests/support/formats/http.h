/* As little of an HTTP client as tests need, on 127.0.0.1. */
#ifndef FL_TESTS_SUPPORT_FORMATS_HTTP_H
#define FL_TESTS_SUPPORT_FORMATS_HTTP_H

#include <stdbool.h>
#include <stddef.h>

/* A connection; a wait on it ends after 30 s. -1: refused. */
int http_connect(int port);

/* Send these bytes on a new connection; with `over`, shut down the sending side. Returns the whole
 * answer with a 0 behind it, which the caller frees; "" if there is no answer. */
char *http_send(int port, const void *bytes, size_t n, bool over);

/* GET: the status, and the body, which the caller frees. */
int http_get(int port, const char *path, char **body);

/* The port in "http://127.0.0.1:PORT/metrics". */
int http_port(const char *url);

#endif
