/* Metrics of a run as it trains. Would catch: numbers that differ from the run's, a counter that
 * decreases, an address that is not reported, a port in use that is detected too late. */
#include "control/observe/metrics/metrics_http.h"
#include "device/system/clock.h"
#include "launcher/run/run.h"
#include "support/data/toy.h"
#include "support/folder.h"
#include "support/formats/exposition.h"
#include "support/formats/http.h"
#include "support/nap.h"
#include "support/runs/live_run.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000 };

#define RUN                                                                                        \
    "train.batch", "10", "train.epochs", "9000", "autodp.bucket", "16KiB", "devices.count", "2",   \
        "pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "control.metrics", "0"

static exposition *ask(int port, char **text)
{
    char *body = NULL;
    assert_int_equal(http_get(port, "/metrics", &body), 200);
    exposition *e = exposition_read(body);
    if (text != NULL) {
        *text = body;
    } else {
        free(body);
    }
    return e;
}

static int port_of(live_run *run)
{
    json_t *status = live_ask(run, "status", "{}");
    const char *url = json_string_value(json_object_get(status, "metrics"));
    assert_non_null(url);
    int port = http_port(url);
    json_decref(status);
    return port;
}

/* What is published twice a second is there sooner or later. */
static exposition *await(int port, const char *name, const char *labels, double least)
{
    int64_t deadline_us = fl_deadline_us(PATIENCE_MS);
    for (;;) {
        exposition *e = ask(port, NULL);
        const exposition_sample *s = exposition_find(e, name, labels);
        if (s != NULL && s->value >= least) {
            return e;
        }
        free(e);
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(20000);
    }
}

static void check_counters(const exposition *before, const exposition *after)
{
    for (int i = 0; i < before->n_samples; i++) {
        const exposition_sample *s = &before->sample[i];
        if (strstr(s->name, "_total") != NULL) {
            assert_true(exposition_value(after, s->name, s->labels) >= s->value);
        }
    }
}

/* promtool is Prometheus' own opinion; where it is not installed, ours must do. */
static void ask_promtool(const char *text)
{
    char path[FOLDER_SIZE], command[128];
    if (system("command -v promtool >/dev/null") != 0) {
        print_message("promtool is not installed: not asked\n");
        return;
    }
    make_file(path, text, strlen(text));
    snprintf(command, sizeof command, "promtool check metrics <%s", path);
    int found = system(command);
    unlink(path);
    assert_int_equal(found, 0);
}

static void test_metrics_run__tells_what_the_run_does(void **state)
{
    (void)state;
    char *text = NULL;
    live_run run = live_start((const char *const[]){RUN, NULL});
    int port = port_of(&run);
    live_await_step(&run, 10);
    exposition *first = await(port, "frostline_steps_total", "", 10);
    assert_true(exposition_value(first, "frostline_run_state", "state=\"running\"") == 1);
    assert_true(exposition_value(first, "frostline_stages", "") == 2);
    assert_true(exposition_value(first, "frostline_generation", "") == 1);
    assert_true(exposition_value(first, "frostline_samples_total", "") > 0);
    json_decref(live_ask(&run, "scale", "{\"devices\": 1}"));
    int64_t step = live_status(&run, "step");
    exposition *second = await(port, "frostline_transitions_total", "outcome=\"committed\"", 1);
    assert_true(exposition_value(second, "frostline_stages", "") == 1);
    assert_true(exposition_value(second, "frostline_replicas", "") == 1);
    assert_true(exposition_value(second, "frostline_generation", "") == 2);
    assert_true(exposition_value(second, "frostline_transition_last_stall_seconds", "") > 0);
    assert_true(exposition_value(second, "frostline_migrated_bytes_total", "") > 0);
    check_counters(first, second);
    free(second);
    free(await(port, "frostline_worker_memory_used_bytes", "worker=\"0\"", 1));
    free(await(port, "frostline_test_accuracy_ratio", "", 0));
    live_await_step(&run, step + 30);
    free(await(port, "frostline_steps_total", "", (double)step + 30));
    exposition *last = ask(port, &text);
    check_counters(first, last);
    assert_true(exposition_value(last, "frostline_steps_total", "") <=
                (double)live_status(&run, "step"));
    assert_true(exposition_value(last, "frostline_step_seconds_sum", "") > 0);
    assert_true(exposition_value(last, "frostline_control_requests_total", "outcome=\"ok\"") > 2);
    assert_true(exposition_value(last, "frostline_events_total", "") > 5);
    assert_true(exposition_value(last, "frostline_events_dropped_total", "") == 0);
    assert_int_equal(http_get(port, "/healthz", NULL), 200);
    ask_promtool(text);
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_int_equal(http_connect(port), -1);
    live_clean(&run);
    free(first);
    free(last);
    free(text);
}

/* Before anything has started: not even the run directory is there. */
static void test_metrics_run__a_taken_port_is_told_first(void **state)
{
    (void)state;
    fl_metrics_listener taken;
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    char dir[80];
    assert_int_equal(fl_metrics_listen("0", &taken), FL_OK);
    fl_job_defaults(&job);
    assert_int_equal(fl_job_set(&job, "train.batch", "10"), FL_OK);
    snprintf(job.control.metrics, sizeof job.control.metrics, "%d", http_port(taken.url));
    assert_int_equal(fl_toy_dataset(LIVE_SAMPLES, &data), FL_OK);
    assert_int_equal(fl_toy_model(4, 0.1f, &model), FL_OK);
    assert_int_equal(make_root(NULL), 0);
    snprintf(dir, sizeof dir, "%s/run", root);
    assert_int_equal(fl_run_in(model, &data, &job, dir, NULL), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "control.metrics: cannot listen at"));
    assert_int_not_equal(access(dir, F_OK), 0);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    fl_metrics_listener_close(&taken);
    assert_int_equal(remove_root(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics_run__tells_what_the_run_does),
        cmocka_unit_test(test_metrics_run__a_taken_port_is_told_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
