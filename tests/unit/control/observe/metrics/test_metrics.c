/* Metrics as text. Would catch: a line that Prometheus does not accept, a metric that the
 * documentation or the dashboard lacks or invents. */
#include "control/observe/metrics/metrics.h"
#include "support/control/some_metrics.h"
#include "support/formats/exposition.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT_MAX = 64 * 1024 };

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
    fl_metrics_worker workers[SOME_METRICS_WORKERS];
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
    fl_metrics_worker workers[SOME_METRICS_WORKERS];
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
    fl_metrics_worker workers[SOME_METRICS_WORKERS];
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
    fl_metrics_worker workers[SOME_METRICS_WORKERS];
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
    fl_metrics_worker workers[SOME_METRICS_WORKERS];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics__tell_what_is_known),
        cmocka_unit_test(test_metrics__leave_out_what_is_unknown),
        cmocka_unit_test(test_metrics__keep_within_their_room),
        cmocka_unit_test(test_metrics__the_page_lists_each),
        cmocka_unit_test(test_metrics__the_dashboard_asks_for_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
