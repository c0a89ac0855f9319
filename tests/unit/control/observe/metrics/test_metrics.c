/* Metrics as text, and their server. Would catch: a line that Prometheus does not accept, a metric
 * that the documentation or the dashboard lacks or invents, a client that crashes the server,
 * blocks it or makes it grow. */
#include "control/observe/metrics/metrics_http.h"
#include "device/random/random.h"
#include "support/formats/exposition.h"
#include "support/formats/http.h"
#include "support/nap.h"
#include "support/ranks/ranks.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3, TEXT_MAX = 64 * 1024, IDLERS = 40, GARBAGE = 400 };

/* Everything is known, and every number differs. */
static const fl_metric loss_metrics[] = {{.name = "accuracy", .is_share = true}, {.name = "mae"}};

static fl_metrics_host hosts[] = {
    {.name = "a",
     .address = "10.0.0.1",
     .state = "joined",
     .n_workers = 2,
     .end_time_s = NAN,
     .clock_offset_s = NAN,
     .round_trip_s = NAN},
    {.name = "b",
     .address = "10.0.0.2",
     .state = "lost",
     .end_time_s = 1795000100.5,
     .clock_offset_s = -0.25,
     .round_trip_s = 0.125,
     .apart_from = "a"},
};

static fl_metrics some_metrics(fl_metrics_worker *workers)
{
    static const char *const states[WORKERS] = {"active", "standby", "left"};
    for (int i = 0; i < WORKERS; i++) {
        workers[i] =
            (fl_metrics_worker){.replica = i == 0 ? 0 : -1,
                                .stage = i == 0 ? 1 : -1,
                                .host = i == 2,
                                .gpu = 1,
                                .gpu_name = {i == 0 ? 'G' : 0},
                                .slow = i == 0,
                                .steps = 100 + i,
                                .seconds = {1.25 + i, 2.5, 0.125, 0.0, 1e-7},
                                .memory_used_bytes = 1000 + i,
                                .memory_peak_bytes = INT64_C(9000000000) + i,
                                .memory_parked_bytes = 700 + i,
                                .memory_workspace_bytes = 80 + i,
                                .graphs = {i == 0, 210 + i, 320 + i, 430 + i, 3, 4, 5, 600 + i}};
        snprintf(workers[i].state, sizeof workers[i].state, "%s", states[i]);
    }
    return (fl_metrics){
        .version = "0.1.0",
        .job = "a \"job\" in\\out\nof line",
        .run = "vit-20261121-120000",
        .state = "running",
        .start_time_s = 1795000000.25,
        .steps = 101,
        .planned_steps = 5000,
        .epochs = 2,
        .planned_epochs = 10,
        .samples = 6464,
        .tokens = 109888,
        .n_losses = 5,
        .n_recoveries = 4,
        .recovery_seconds_sum = 1.25,
        .n_checkpoints = 31,
        .n_checkpoints_failed = 3,
        .checkpoint_step = 96,
        .checkpoint_bytes = 123456789,
        .checkpoint_seconds = 0.875,
        .checkpoint_age_seconds = 61.5,
        .loss = 0.3125,
        .gradient_norm = 1.75,
        .learning_rate = 3e-4,
        .validation_loss = 0.6,
        .validation_accuracy = 0.8125,
        .test_loss = 0.4,
        .test_accuracy = 0.875,
        .loss_metrics = {loss_metrics, 2},
        .train_metrics = {2, {0.75, 12.5}},
        .validation_metrics = {2, {0.8125, (double)NAN}},
        .test_metrics = {2, {0.875, (double)NAN}},
        .step_seconds_sum = 12.5,
        .predicted_step_seconds = 0.11,
        .mfu = 0.42,
        .generation = 7,
        .blocks = 12,
        .frozen = 3,
        .stages = 2,
        .replicas = 1,
        .micro_batches = 8,
        .n_committed = 6,
        .n_cancelled = 4,
        .stall_seconds_sum = 0.9,
        .last_stall_seconds = 0.15,
        .migrated_bytes = 123456789,
        .cache_hits = 11,
        .cache_device_hits = 5,
        .cache_pinned_hits = 2,
        .cache_upgrades = 13,
        .cache_misses = 17,
        .cache_values = 19,
        .cache_evicted = 23,
        .cache_used_bytes = 29,
        .cache_memory_bytes = 31,
        .cache_disk_bytes = 37,
        .cache_used = true,
        .n_stragglers = 5,
        .n_events = 41,
        .n_events_dropped = 43,
        .n_requests = 47,
        .n_requests_refused = 53,
        .memory_budget_bytes = INT64_C(12000000000),
        .n_hosts = 2,
        .hosts = hosts,
        .links = {{"devices", 1e-6, 4e9}, {"sockets", 2e-6, 3e9}, {"hosts", 5e-5, 1e9}},
        .n_workers = WORKERS,
        .workers = workers};
}

static exposition *read_metrics(const fl_metrics *m)
{
    static char text[TEXT_MAX];
    size_t n = fl_metrics_render(m, text, sizeof text);
    assert_true(n < sizeof text);
    assert_int_equal(strlen(text), n);
    return exposition_read(text);
}

static void test_metrics__tell_what_is_known(void **state)
{
    (void)state;
    fl_metrics_worker workers[WORKERS];
    fl_metrics m = some_metrics(workers);
    exposition *e = read_metrics(&m);
    const struct {
        const char *name, *labels;
        double value;
    } expected[] = {
        {"frostline_build_info", "version=\"0.1.0\"", 1},
        {"frostline_run_info",
         "job=\"a \\\"job\\\" in\\\\out\\nof line\",run=\"vit-20261121-120000\"", 1},
        {"frostline_run_start_time_seconds", "", 1795000000.25},
        {"frostline_run_state", "state=\"running\"", 1},
        {"frostline_run_state", "state=\"paused\"", 0},
        {"frostline_steps_total", "", 101},
        {"frostline_tokens_total", "", 109888},
        {"frostline_step_seconds_sum", "", 12.5},
        {"frostline_step_seconds_count", "", 101},
        {"frostline_loss", "", 0.3125},
        {"frostline_learning_rate", "", 3e-4},
        {"frostline_validation_loss", "", 0.6},
        {"frostline_validation_accuracy_ratio", "", 0.8125},
        {"frostline_test_loss", "", 0.4},
        {"frostline_test_accuracy_ratio", "", 0.875},
        {"frostline_loss_metric", "metric=\"accuracy\",samples=\"train\"", 0.75},
        {"frostline_loss_metric", "metric=\"mae\",samples=\"train\"", 12.5},
        {"frostline_loss_metric", "metric=\"accuracy\",samples=\"validation\"", 0.8125},
        {"frostline_loss_metric", "metric=\"accuracy\",samples=\"test\"", 0.875},
        {"frostline_mfu_ratio", "", 0.42},
        {"frostline_frozen_blocks", "", 3},
        {"frostline_stages", "", 2},
        {"frostline_replicas", "", 1},
        {"frostline_micro_batches", "", 8},
        {"frostline_generation", "", 7},
        {"frostline_transitions_total", "outcome=\"committed\"", 6},
        {"frostline_transitions_total", "outcome=\"cancelled\"", 4},
        {"frostline_transition_last_stall_seconds", "", 0.15},
        {"frostline_migrated_bytes_total", "", 123456789},
        {"frostline_cache_samples_total", "result=\"upgrade\"", 13},
        {"frostline_cache_hits_total", "tier=\"store\"", 4},
        {"frostline_cache_hits_total", "tier=\"pinned\"", 2},
        {"frostline_cache_hits_total", "tier=\"device\"", 5},
        {"frostline_cache_limit_bytes", "tier=\"disk\"", 37},
        {"frostline_events_dropped_total", "", 43},
        {"frostline_control_requests_total", "outcome=\"refused\"", 53},
        {"frostline_worker_info",
         "worker=\"0\",state=\"active\",replica=\"0\",stage=\"1\",host=\"a\",gpu=\"1\",gpu_name="
         "\"G\"",
         1},
        {"frostline_worker_info", "worker=\"2\",state=\"left\",replica=\"\",stage=\"\",host=\"b\"",
         1},
        {"frostline_host_info", "host=\"a\",address=\"10.0.0.1\",state=\"joined\"", 1},
        {"frostline_host_info", "host=\"b\",address=\"10.0.0.2\",state=\"lost\"", 1},
        {"frostline_host_workers", "host=\"a\"", 2},
        {"frostline_host_end_time_seconds", "host=\"b\"", 1795000100.5},
        {"frostline_host_clock_offset_seconds", "host=\"b\"", -0.25},
        {"frostline_host_round_trip_seconds", "host=\"b\"", 0.125},
        {"frostline_host_apart", "host=\"b\",from=\"a\"", 1},
        {"frostline_link_latency_seconds", "between=\"hosts\"", 5e-5},
        {"frostline_link_bytes_per_second", "between=\"sockets\"", 3e9},
        {"frostline_worker_seconds_total", "worker=\"2\",part=\"compute\"", 3.25},
        {"frostline_worker_seconds_total", "worker=\"1\",part=\"data\"", 1e-7},
        {"frostline_worker_memory_peak_bytes", "worker=\"1\"", 9000000001.0},
        {"frostline_worker_memory_parked_bytes", "worker=\"1\"", 701.0},
        {"frostline_worker_memory_workspace_bytes", "worker=\"0\"", 80.0},
        {"frostline_worker_graph_captures_total", "worker=\"0\"", 210.0},
        {"frostline_worker_graph_launches_total", "worker=\"1\"", 321.0},
        {"frostline_worker_graph_calls_total", "worker=\"2\"", 432.0},
        {"frostline_worker_graph_memory_bytes", "worker=\"1\"", 601.0},
        {"frostline_worker_graph_shapes", "worker=\"0\",way=\"measuring\"", 3.0},
        {"frostline_worker_graph_shapes", "worker=\"0\",way=\"graphs\"", 4.0},
        {"frostline_worker_graph_shapes", "worker=\"0\",way=\"calls\"", 5.0},
        {"frostline_worker_slow", "worker=\"0\"", 1},
        {"frostline_worker_slow", "worker=\"1\"", 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        double found = exposition_value(e, expected[i].name, expected[i].labels);
        if (found != expected[i].value) {
            fail_msg("%s{%s} is %.17g", expected[i].name, expected[i].labels, found);
        }
    }
    assert_null(exposition_find(e, "frostline_loss_metric", "metric=\"mae\",samples=\"test\""));
    free(e);
}

static const char *labels_of(const char *name)
{
    return strcmp(name, "frostline_loss_metric") == 0 ? "metric=\"mae\",samples=\"train\"" : "";
}

static void test_metrics__leave_out_what_is_unknown(void **state)
{
    (void)state;
    static const char *const unknown[] = {"frostline_loss",
                                          "frostline_gradient_norm",
                                          "frostline_test_accuracy_ratio",
                                          "frostline_mfu_ratio",
                                          "frostline_transition_last_stall_seconds",
                                          "frostline_loss_metric"};
    fl_metrics_worker workers[WORKERS];
    fl_metrics m = some_metrics(workers);
    exposition *before = read_metrics(&m);
    m.loss = m.gradient_norm = m.mfu = NAN;
    m.test_accuracy = INFINITY;
    m.last_stall_seconds = NAN;
    m.train_metrics = (fl_metric_means){2, {INFINITY, NAN}};
    m.validation_metrics.n = 0;
    m.test_metrics.n = 0;
    workers[0].graphs.any = false;
    m.n_hosts = 0;
    exposition *after = read_metrics(&m);
    assert_int_equal(before->n_families - after->n_families, 6 + 5 + 8);
    assert_null(exposition_find(after, "frostline_worker_graph_calls_total", "worker=\"0\""));
    for (int i = 0; i < 6; i++) {
        assert_non_null(exposition_find(before, unknown[i], labels_of(unknown[i])));
        assert_null(exposition_find(after, unknown[i], labels_of(unknown[i])));
    }
    free(before);
    free(after);
}

/* Of any size, also none: never beyond it, always ended, always the beginning of the whole. */
static void test_metrics__keep_within_their_room(void **state)
{
    (void)state;
    static char whole[TEXT_MAX], part[TEXT_MAX];
    fl_metrics_worker workers[WORKERS];
    fl_metrics m = some_metrics(workers);
    size_t n = fl_metrics_render(&m, whole, sizeof whole);
    assert_int_equal(fl_metrics_render(&m, NULL, 0), n);
    for (size_t size = 1; size <= n + 1; size += size < 300 ? 1 : 97) {
        memset(part, '#', sizeof part);
        assert_int_equal(fl_metrics_render(&m, part, size), n);
        assert_int_equal(strlen(part), size - 1 < n ? size - 1 : n);
        assert_memory_equal(part, whole, strlen(part));
        assert_int_equal(part[size], '#');
    }
}

/* ---- the page and the dashboard ---- */

static char *load(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/docs/%s", FL_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("no %s", path);
    }
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static const exposition_family *family_of(const exposition *e, const char *name)
{
    for (int i = 0; i < e->n_families; i++) {
        const exposition_family *f = &e->family[i];
        size_t n = strlen(f->name);
        const char *rest = strncmp(f->name, name, n) == 0 ? name + n : "?";
        bool part = strcmp(f->type, "summary") == 0 &&
                    (strcmp(rest, "_sum") == 0 || strcmp(rest, "_count") == 0);
        if (*rest == 0 || part) {
            return f;
        }
    }
    return NULL;
}

/* Each family stands in the page's table with its type, and nothing else does. */
static void test_metrics__the_page_lists_each(void **state)
{
    (void)state;
    fl_metrics_worker workers[WORKERS];
    fl_metrics m = some_metrics(workers);
    exposition *e = read_metrics(&m);
    char *page = load("metrics.md");
    int n_rows = 0;
    for (int i = 0; i < e->n_families; i++) {
        char row[256];
        snprintf(row, sizeof row, "| `%s` | %s |", e->family[i].name, e->family[i].type);
        if (strstr(page, row) == NULL) {
            fail_msg("docs/metrics.md has no line '%s'", row);
        }
    }
    for (const char *at = page; (at = strstr(at, "\n| `frostline_")) != NULL; at++) {
        n_rows++;
    }
    assert_int_equal(n_rows, e->n_families);
    free(page);
    free(e);
}

static int check_names(const exposition *e, const char *expression)
{
    int n = 0;
    for (const char *at = expression; (at = strstr(at, "frostline_")) != NULL;) {
        char name[EXPOSITION_NAME] = "";
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_') {
            length++;
        }
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (family_of(e, name) == NULL) {
            fail_msg("docs/grafana.json asks for %s, which is not there", name);
        }
        at += length;
        n++;
    }
    return n;
}

/* Every expression of the tree; how many there are. */
static int check_expressions(const exposition *e, json_t *node)
{
    int n = 0;
    const char *key;
    json_t *child;
    size_t i;
    json_array_foreach(node, i, child)
    {
        n += check_expressions(e, child);
    }
    json_object_foreach(node, key, child)
    {
        if (json_is_string(child) && strcmp(key, "expr") == 0) {
            assert_true(check_names(e, json_string_value(child)) > 0);
            n++;
        } else if (json_is_string(child) && strcmp(key, "query") == 0) {
            (void)check_names(e, json_string_value(child));
        }
        n += check_expressions(e, child);
    }
    return n;
}

static void test_metrics__the_dashboard_asks_for_what_is_there(void **state)
{
    (void)state;
    fl_metrics_worker workers[WORKERS];
    fl_metrics m = some_metrics(workers);
    exposition *e = read_metrics(&m);
    char *text = load("grafana.json");
    json_t *dashboard = json_loads(text, 0, NULL);
    assert_non_null(dashboard);
    int n_panels = (int)json_array_size(json_object_get(dashboard, "panels"));
    assert_true(n_panels > 0);
    assert_true(check_expressions(e, dashboard) >= n_panels);
    json_decref(dashboard);
    free(text);
    free(e);
}

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
    fl_metrics_worker workers[WORKERS];
    fl_metrics metrics;
    int port;
} rig;

static void begin(rig *r)
{
    fl_metrics_listener listener;
    r->metrics = some_metrics(r->workers);
    assert_int_equal(fl_metrics_listen("127.0.0.1:0", &listener), FL_OK);
    r->port = http_port(listener.url);
    assert_int_equal(fl_metrics_serve(&listener, WORKERS, &r->server), FL_OK);
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
        cmocka_unit_test(test_metrics__tell_what_is_known),
        cmocka_unit_test(test_metrics__leave_out_what_is_unknown),
        cmocka_unit_test(test_metrics__keep_within_their_room),
        cmocka_unit_test(test_metrics__the_page_lists_each),
        cmocka_unit_test(test_metrics__the_dashboard_asks_for_what_is_there),
        cmocka_unit_test(test_metrics__addresses),
        cmocka_unit_test(test_server__answers),
        cmocka_unit_test(test_server__survives_its_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
