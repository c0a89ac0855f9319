/* The server of metrics. Would catch: an address that is taken or refused wrongly, a client that
 * crashes the server, blocks it or makes it grow. */
#include "control/observe/metrics/metrics_http.h"
#include "device/random/random.h"
#include "support/control/some_metrics.h"
#include "support/formats/exposition.h"
#include "support/formats/http.h"
#include "support/nap.h"
#include "support/ranks/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { IDLERS = 40, GARBAGE = 400 };

/* ---- addresses ---- */

static void test_metrics__addresses(void **state)
{
    (void)state;
    static const char *const good[] = {"0", "9464", "127.0.0.1:9464", "0.0.0.0:65535", "[::1]:0"};
    static const char *const bad[] = {"",
                                      ":",
                                      "65536",
                                      "-1",
                                      "localhost:9464",
                                      "127.0.0.1",
                                      "1.2.3:4",
                                      "[::1]",
                                      "[::1]:",
                                      "::1:80",
                                      "127.0.0.1:9464x",
                                      "[]:80",
                                      "[:80",
                                      " 80",
                                      "127.0.0.1: 9",
                                      "[::1]80",
                                      "127.0.0.1:99999999999999999999"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(fl_metrics_check(good[i]), FL_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (fl_metrics_check(bad[i]) != FL_EINVAL) {
            fail_msg("'%s' is taken", bad[i]);
        }
        assert_non_null(strstr(fl_errmsg(), "allowed: PORT"));
    }
    fl_metrics_listener first, second;
    char address[32];
    assert_int_equal(fl_metrics_listen("0", &first), FL_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", http_port(first.url));
    assert_int_equal(fl_metrics_listen(address, &second), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), address));
    assert_non_null(strstr(fl_errmsg(), "in use"));
    fl_metrics_listener_close(&first);
}

/* ---- the server ---- */

typedef struct rig {
    fl_metrics_server *server;
    fl_metrics_worker workers[SOME_METRICS_WORKERS];
    fl_metrics metrics;
    int port;
} rig;

static void begin(rig *r)
{
    fl_metrics_listener listener;
    r->metrics = some_metrics(r->workers);
    assert_int_equal(fl_metrics_listen("127.0.0.1:0", &listener), FL_OK);
    r->port = http_port(listener.url);
    assert_int_equal(fl_metrics_serve(&listener, SOME_METRICS_WORKERS, &r->server), FL_OK);
    assert_int_equal(listener.fd, -1);
}

static double steps_told(const rig *r)
{
    char *body = NULL;
    assert_int_equal(http_get(r->port, "/metrics", &body), 200);
    exposition *e = exposition_read(body);
    double steps = exposition_value(e, "frostline_steps_total", "");
    free(e);
    free(body);
    return steps;
}

static void *end_at_once(void *argument)
{
    return argument;
}

/* ThreadSanitizer starts a thread of its own together with the first one of the program. */
static void start_first_thread(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end_at_once, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_server__answers(void **state)
{
    (void)state;
    rig r;
    start_first_thread();
    int before = count_descriptors(), threads = count_threads();
    begin(&r);
    assert_int_equal(http_get(r.port, "/healthz", NULL), 503); /* nothing published yet */
    fl_metrics_publish(r.server, &r.metrics);
    assert_int_equal(http_get(r.port, "/healthz", NULL), 200);
    assert_true(steps_told(&r) == 101);
    r.metrics.steps = 202;
    fl_metrics_publish(r.server, &r.metrics);
    assert_true(steps_told(&r) == 202);
    assert_int_equal(http_get(r.port, "/", NULL), 404);
    assert_int_equal(http_get(r.port, "/metrics/", NULL), 404);
    static const struct {
        const char *request, *reply;
    } others[] = {
        {"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 200"},
        {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabcd",
         "HTTP/1.1 405"},
        {"DELETE /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 405"},
        {"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.0 200"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *reply = http_send(r.port, others[i].request, strlen(others[i].request), false);
        if (strncmp(reply, others[i].reply, 12) != 0 &&
            strncmp(reply + 9, others[i].reply + 9, 3) != 0) {
            fail_msg("%s: %.80s", others[i].request, reply);
        }
        free(reply);
    }
    fl_metrics_stop(&r.server);
    fl_metrics_stop(&r.server);
    assert_int_equal(http_connect(r.port), -1);
    assert_int_equal(count_descriptors(), before);
    assert_true(threads_fall_to(threads));
}

static size_t mutate(char *bytes, size_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < 1 + fl_mix64(seed, 1) % 8; i++) {
        bytes[fl_mix64(seed, 10 + i) % n] = (char)fl_mix64(seed, 100 + i);
    }
    return 1 + fl_mix64(seed, 2) % n;
}

/* More connections than it takes that say nothing, heads that are too long, and what is no HTTP:
 * it answers afterwards as before, and holds no descriptor of theirs. */
static void test_server__survives_its_clients(void **state)
{
    (void)state;
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n"
                                  "Content-Length: 12\r\nConnection: close\r\n\r\nsome content";
    rig r;
    int idle[IDLERS];
    uint64_t seed = (uint64_t)time(NULL);
    char *large = malloc(256 * 1024);
    assert_non_null(large);
    print_message("seed %llu\n", (unsigned long long)seed);
    begin(&r);
    int before = count_descriptors(); /* nobody has come yet */
    fl_metrics_publish(r.server, &r.metrics);
    assert_true(steps_told(&r) == 101);
    for (int i = 0; i < GARBAGE; i++) {
        char bytes[sizeof request];
        memcpy(bytes, request, sizeof bytes);
        free(http_send(r.port, bytes, mutate(bytes, sizeof bytes, fl_mix64(seed, (uint64_t)i)),
                       true));
    }
    memset(large, 'a', 256 * 1024);
    memcpy(large, "GET /", 5);
    free(http_send(r.port, large, 256 * 1024, true));
    memcpy(large, "GET / HTTP/1.1\r\n", 16);
    free(http_send(r.port, large, 256 * 1024, true));
    for (int i = 0; i < IDLERS; i++) {
        idle[i] = http_connect(r.port);
        assert_true(idle[i] >= 0);
    }
    for (int i = 0; i < IDLERS; i++) {
        fl_metrics_publish(r.server, &r.metrics);
        close(idle[i]);
    }
    assert_true(steps_told(&r) == 101);
    for (int i = 0; i < 30000 && count_descriptors() > before; i++) {
        nap(1000); /* until it has closed the last of them */
    }
    assert_int_equal(count_descriptors(), before);
    fl_metrics_stop(&r.server);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics__addresses),
        cmocka_unit_test(test_server__answers),
        cmocka_unit_test(test_server__survives_its_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
