/* Traces: written, read back, and refused when damaged; their summary is checked with operations
 * for which it can be computed by hand. */
#include "control/observe/slow.h"
#include "control/observe/trace/trace.h"
#include "device/random/random.h"
#include "support/folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const int64_t MS = 1000000;

static fl_trace_data *trace_of(int n_workers, int K, int R, int M, fl_schedule schedule)
{
    fl_trace_data *t = calloc(1, sizeof *t);
    assert_non_null(t);
    fl_trace_about *about = &t->about;
    snprintf(about->job, sizeof about->job, "by \"hand\"");
    about->n_workers = n_workers;
    about->first_step = 5;
    about->n_steps = 1;
    about->batch = 8;
    about->n_layers = K;
    about->n_plans = 1;
    fl_plan *plan = &about->plan[0];
    *plan = (fl_plan){.generation = 2,
                      .K = K,
                      .R = R,
                      .M = M,
                      .schedule = schedule,
                      .n_layers = K,
                      .n_workers = n_workers};
    for (int k = 0; k < K; k++) {
        plan->first[k] = k;
        snprintf(about->layer[k].kind, sizeof about->layer[k].kind, "layer");
        about->layer[k].fwd_us = 1000.0;
        about->layer[k].bwd_us = 2000.0;
    }
    plan->first[K] = K;
    for (int i = 0; i < n_workers; i++) {
        plan->rank_of[i] = i;
    }
    return t;
}

static void drop(fl_trace_data *t)
{
    fl_trace_fini(t);
    free(t);
}

/* From and to in milliseconds. */
static fl_flight_entry *put(fl_trace_data *t, int rank, fl_flight_kind kind, double from, double to)
{
    fl_trace_event event = {.rank = rank,
                            .role = kind == FL_FLIGHT_REDUCE ? FL_FLIGHT_REDUCER : FL_FLIGHT_MAIN,
                            .e = {.kind = kind,
                                  .generation = 2,
                                  .step = 5,
                                  .micro_batch = -1,
                                  .item = -1,
                                  .peer = -1,
                                  .entered_ns = (int64_t)(from * (double)MS),
                                  .left_ns = (int64_t)(to * (double)MS)}};
    assert_int_equal(fl_trace_add(t, &event), FL_OK);
    return &t->events[t->n - 1].e;
}

static void put_layer(fl_trace_data *t, int rank, fl_flight_kind kind, int m, double from,
                      double to)
{
    fl_flight_entry *e = put(t, rank, kind, from, to);
    e->item = rank;
    e->micro_batch = m;
}

static void put_message(fl_trace_data *t, int rank, fl_flight_kind kind, int peer, int m,
                        double from, double to)
{
    fl_flight_entry *e = put(t, rank, kind, from, to);
    e->peer = peer;
    e->micro_batch = m;
    e->bytes = 100;
}

/* Two stages, one micro-batch. Worker 1 waits 10 ms for worker 0 and 1 ms for the bytes; worker 0
 * waits 15 for the gradient, 1 for its bytes, and both come to the sum. */
static fl_trace_data *two_stages(void)
{
    fl_trace_data *t = trace_of(2, 2, 1, 1, FL_GPIPE);
    put_layer(t, 0, FL_FLIGHT_FORWARD, 0, 0, 10);
    put_message(t, 0, FL_FLIGHT_SEND, 1, 0, 10, 10.5);
    put_message(t, 0, FL_FLIGHT_RECEIVE_GRAD, 1, 0, 10.5, 27);
    put_layer(t, 0, FL_FLIGHT_BACKWARD, 0, 27, 37);
    put(t, 0, FL_FLIGHT_SUM, 37, 38)->item = 6;
    put(t, 0, FL_FLIGHT_OPTIMIZER, 38, 40);
    put(t, 0, FL_FLIGHT_STEP, 0, 41);
    put_message(t, 1, FL_FLIGHT_RECEIVE, 0, 0, 0, 11);
    put_layer(t, 1, FL_FLIGHT_FORWARD, 0, 11, 16);
    put_layer(t, 1, FL_FLIGHT_BACKWARD, 0, 16, 26);
    put_message(t, 1, FL_FLIGHT_SEND_GRAD, 0, 0, 26, 26.5);
    put(t, 1, FL_FLIGHT_SUM, 26.5, 38)->item = 6;
    put(t, 1, FL_FLIGHT_OPTIMIZER, 38, 40);
    put(t, 1, FL_FLIGHT_STEP, 0, 40);
    return t;
}

static void near(double found, double expected)
{
    if (!(fabs(found - expected) < 1e-6)) {
        fail_msg("found %.9g, expected %.9g", found, expected);
    }
}

/* Would catch: waiting that is reported as communication, or the reverse. */
static void test_trace__shares_by_hand(void **state)
{
    (void)state;
    fl_trace_data *t = two_stages();
    fl_trace_report r;
    assert_int_equal(fl_trace_analyse(t, &r), FL_OK);
    const fl_trace_worker *w = r.worker;
    near((double)w[0].wall_ns, 41e6);
    near((double)w[0].in_ns[FL_FLIGHT_IS_COMPUTE], 20e6);
    near((double)w[0].in_ns[FL_FLIGHT_IS_OPTIMIZER], 2e6);
    near((double)w[0].idle_ns, 15.5e6);                     /* 10.5 .. 26 */
    near((double)w[0].communication_ns, 0.5e6 + 1e6 + 1e6); /* send, receive, sum */
    near((double)w[0].in_ns[FL_FLIGHT_IS_OTHER], 1e6);
    near((double)w[1].wall_ns, 40e6);
    near((double)w[1].idle_ns, 10e6 + 10.5e6); /* 0 .. 10, and the sum until 37 */
    near((double)w[1].communication_ns, 1e6 + 0.5e6 + 1e6);
    near((double)w[1].in_ns[FL_FLIGHT_IS_RECEIVE], 11e6);
    near((double)w[1].in_ns[FL_FLIGHT_IS_OTHER], 0);
    /* 35 ms of 2 x 37 are computed: by the schedule, with 1 ms for a message, the same. */
    assert_int_equal(r.n_pipelines, 1);
    near(r.bubble, 1.0 - 35.0 / 74.0);
    near(r.schedule_bubble, 1.0 - 35.0 / 74.0);
    near(w[0].own_us, 20000);
    near(w[1].own_us, 15000);
    near(w[0].expected_us, 24000);
    near(w[0].slowness, 20.0 / 15.0);
    fl_trace_report_fini(&r);
    drop(t);
}

/* Two stages of three layers each on devices that compute after their work was queued: worker 0
 * from 0 to 10 and 27 to 37, worker 1 from 11 to 26. */
static fl_trace_data *two_devices(void)
{
    static const struct {
        int rank;
        fl_flight_kind kind;
        double from, to;
    } computed[] = {{0, FL_FLIGHT_FORWARD, 0, 10},
                    {0, FL_FLIGHT_BACKWARD, 27, 37},
                    {1, FL_FLIGHT_FORWARD, 11, 16},
                    {1, FL_FLIGHT_BACKWARD, 16, 26}};
    fl_trace_data *t = trace_of(2, 2, 1, 1, FL_GPIPE);
    fl_trace_about *about = &t->about;
    about->n_layers = 6;
    for (int i = 0; i < 6; i++) {
        about->layer[i] = (fl_trace_layer){.fwd_us = 1000.0, .bwd_us = 2000.0, .kind = "layer"};
    }
    for (int k = 0; k <= 2; k++) {
        about->plan[0].first[k] = 3 * k;
    }
    for (int rank = 0; rank < 2; rank++) {
        put(t, rank, FL_FLIGHT_STEP, 0, 40);
        put(t, rank, FL_FLIGHT_FORWARD, 0, 0.25)->item = 3 * rank;
        put(t, rank, FL_FLIGHT_LAUNCH, 0.25, 0.5);
        put(t, rank, FL_FLIGHT_NORMS, 0.5, 40);
    }
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++) {
        fl_flight_entry *e =
            put(t, computed[i].rank, computed[i].kind, computed[i].from, computed[i].to);
        e->item = 3 * computed[i].rank + 1; /* the lowest layer is frozen, its output cached */
        t->events[t->n - 1].role = FL_FLIGHT_DEVICE;
    }
    put(t, 0, FL_FLIGHT_REDUCE, 30, 40)->item = 0;
    return t;
}

/* Would catch: the time of calls that only queue work taken for the time that the work takes. */
static void test_trace__devices_tell_when_they_compute(void **state)
{
    (void)state;
    fl_trace_data *t = two_devices();
    fl_trace_report r;
    assert_int_equal(fl_trace_analyse(t, &r), FL_OK);
    const fl_trace_worker *w = r.worker;
    assert_true(w[0].has_device && w[1].has_device);
    near((double)w[0].device_ns, 20e6);
    near((double)w[1].device_ns, 15e6);
    near(w[0].own_us, 20000);
    near(w[1].own_us, 15000);
    near(w[0].expected_us, 8 * 2 * 3000.0); /* layers 1 and 2, for 8 samples */
    near(w[0].slowness, 20.0 / 15.0);
    near((double)w[0].hidden_ns, 7e6); /* of 30 .. 40, until 37 */
    near((double)w[0].in_ns[FL_FLIGHT_IS_COMPUTE], 40e6);
    assert_int_equal(r.n_pipelines, 1);
    near(r.bubble, 1.0 - 35.0 / 74.0);
    near(r.schedule_bubble, 1.0 - 35.0 / 70.0); /* no message is in this trace */
    fl_trace_report_fini(&r);
    drop(t);
}

/* Would catch: an evaluation's forward passes counted as a pipeline's work. */
static void test_trace__evaluations_are_no_steps(void **state)
{
    (void)state;
    fl_trace_data *t = two_stages();
    fl_trace_report r;
    put_layer(t, 0, FL_FLIGHT_FORWARD, 0, 50, 60);
    put(t, 0, FL_FLIGHT_EVALUATION, 50, 60);
    assert_int_equal(fl_trace_analyse(t, &r), FL_OK);
    near(r.bubble, 1.0 - 35.0 / 74.0);
    near(r.worker[0].own_us, 20000);
    near((double)r.worker[0].in_ns[FL_FLIGHT_IS_COMPUTE], 30e6);
    near((double)r.worker[0].wall_ns, 60e6);
    fl_trace_report_fini(&r);
    drop(t);
}

/* Transfers from 5 to 15 and from 20 to 22; the worker computes from 0 to 10 and from 12 to 14. */
static void test_trace__overlap_by_hand(void **state)
{
    (void)state;
    fl_trace_data *t = trace_of(2, 1, 2, 1, FL_1F1B);
    fl_trace_report r;
    put_layer(t, 0, FL_FLIGHT_BACKWARD, 0, 0, 10);
    put(t, 0, FL_FLIGHT_OPTIMIZER, 12, 14);
    put(t, 0, FL_FLIGHT_REDUCE, 5, 15)->item = 0;
    put(t, 0, FL_FLIGHT_REDUCE, 20, 22)->item = 1;
    put(t, 0, FL_FLIGHT_REDUCE_WAIT, 14, 22)->item = 1;
    put(t, 1, FL_FLIGHT_REDUCE, 18, 22)->item = 1;
    put_layer(t, 1, FL_FLIGHT_BACKWARD, 0, 0, 30);
    assert_int_equal(fl_trace_analyse(t, &r), FL_OK);
    near((double)r.worker[0].reduce_ns, 12e6);
    near((double)r.worker[0].hidden_ns, 5e6 + 2e6);
    near((double)r.worker[1].reduce_ns, 4e6);
    near((double)r.worker[1].hidden_ns, 4e6);
    /* The last transfer of bucket 1 began at 20: so long the wait was idle. */
    near((double)r.worker[0].idle_ns, 6e6);
    near((double)r.worker[0].communication_ns, 2e6);
    assert_int_equal(r.n_pipelines, 0);
    assert_true(isnan(r.bubble));
    fl_trace_report_fini(&r);
    drop(t);
}

static void test_trace__the_longest_operations(void **state)
{
    (void)state;
    fl_trace_data *t = two_stages();
    fl_trace_report r;
    put_layer(t, 0, FL_FLIGHT_BACKWARD, 1, 50, 53);
    assert_int_equal(fl_trace_analyse(t, &r), FL_OK);
    assert_int_equal(r.top[0].kind, FL_FLIGHT_RECEIVE_GRAD);
    assert_int_equal(r.top[1].kind, FL_FLIGHT_BACKWARD);
    assert_int_equal(r.top[1].item, 0);
    assert_int_equal(r.top[1].n, 2);
    assert_int_equal(r.top[1].total_ns, 13 * MS);
    assert_int_equal(r.top[1].longest_ns, 10 * MS);
    for (int i = 1; i < r.n_top; i++) {
        assert_true(r.top[i].total_ns <= r.top[i - 1].total_ns);
        assert_int_not_equal(fl_flight_category_of(r.top[i].kind), FL_FLIGHT_IS_PHASE);
    }
    fl_trace_report_fini(&r);
    drop(t);
}

static void test_trace__an_empty_one_is_refused(void **state)
{
    (void)state;
    fl_trace_data *t = trace_of(2, 2, 1, 1, FL_GPIPE);
    fl_trace_report r;
    assert_int_equal(fl_trace_analyse(t, &r), FL_EINVAL);
    assert_null(r.worker);
    drop(t);
}

/* ---- the file ---- */

static char *write_text(const fl_trace_data *t, size_t *n)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, n);
    assert_non_null(file);
    assert_int_equal(fl_trace_write(t, file), FL_OK);
    fclose(file);
    assert_non_null(text);
    return text;
}

static fl_status read_text(const char *text, size_t n, fl_trace_data *out)
{
    char path[FOLDER_SIZE];
    make_file(path, text, n);
    fl_status status = fl_trace_read(path, out);
    unlink(path);
    return status;
}

/* Would catch: a trace that claims steps that no worker has finished, or holds a part of one. */
static void test_trace__keeps_the_steps_that_were_finished(void **state)
{
    (void)state;
    fl_trace_data *t = trace_of(2, 2, 1, 1, FL_1F1B);
    t->about.n_steps = 900;
    put(t, 0, FL_FLIGHT_FORWARD, 0, 1)->step = 6; /* behind what was overwritten */
    put(t, 0, FL_FLIGHT_REPORT, 3, 4)->step = 7;
    put(t, 1, FL_FLIGHT_FORWARD, 2, 3)->step = 7;
    put(t, 1, FL_FLIGHT_REPORT, 4, 5)->step = 8;
    put(t, 0, FL_FLIGHT_STEP, 5, 6)->step = 9; /* it failed */
    fl_trace_keep_finished(t);
    assert_int_equal(t->about.first_step, 7);
    assert_int_equal(t->about.n_steps, 2);
    assert_int_equal(t->n, 3);
    assert_int_equal(t->events[2].e.step, 8);
    t->n = 2;
    t->events[0].e.kind = t->events[1].e.kind = FL_FLIGHT_FORWARD;
    fl_trace_keep_finished(t);
    assert_int_equal(t->about.n_steps, 0);
    assert_int_equal(t->n, 0);
    drop(t);
}

static void test_trace__reads_back_what_was_written(void **state)
{
    (void)state;
    fl_trace_data *t = two_stages(), *back = calloc(1, sizeof *back);
    size_t n = 0;
    assert_non_null(back);
    t->about.lost = 3;
    char *text = write_text(t, &n);
    assert_int_equal(read_text(text, n, back), FL_OK);
    assert_string_equal(back->about.job, t->about.job);
    assert_int_equal(back->about.lost, 3);
    assert_int_equal(back->about.n_plans, 1);
    assert_int_equal(back->about.plan[0].K, 2);
    assert_int_equal(back->about.plan[0].schedule, FL_GPIPE);
    near(back->about.layer[1].bwd_us, 2000.0);
    assert_int_equal(back->n, t->n);
    for (size_t i = 0; i < t->n; i++) {
        assert_memory_equal(&back->events[i], &t->events[i], sizeof t->events[i]);
    }
    free(text);
    drop(back);
    drop(t);
}

/* Would catch: trusting a file with indices out of range, times that are not numbers, or half of
 * its bytes. */
static void test_trace__damage_is_refused(void **state)
{
    (void)state;
    fl_trace_data *t = two_stages();
    fl_trace_report r;
    size_t n = 0;
    uint64_t seed = 20261;
    int n_refused = 0, n_read = 0;
    char *text = write_text(t, &n);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 3000; i++) {
        fl_trace_data *back = calloc(1, sizeof *back);
        char *copy = malloc(n);
        if (back == NULL || copy == NULL) {
            free(back);
            free(copy);
            break; /* then nothing was read, which the end of the test sees */
        }
        memcpy(copy, text, n);
        size_t length = i % 5 == 0 ? fl_mix64(seed, i) % n : n;
        for (uint64_t k = 0; k < 1 + i % 4; k++) {
            static const char bytes[] = "0123456789-.eE\"{}[],: x\xff";
            uint64_t at = fl_mix64(seed + k, 3 * i) % n;
            copy[at] = bytes[fl_mix64(seed + k, 3 * i + 1) % (sizeof bytes - 1)];
        }
        if (read_text(copy, length, back) != FL_OK) {
            n_refused++;
        } else if (fl_trace_analyse(back, &r) == FL_OK) {
            n_read++;
            fl_trace_report_fini(&r);
        }
        free(copy);
        drop(back);
    }
    print_message("%d refused, %d read\n", n_refused, n_read);
    assert_true(n_refused > 500 && n_read > 100);
    free(text);
    drop(t);
}

static void test_trace__what_is_no_trace_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"traceEvents\": []}",
                                        "{\"frostline\": {\"version\": 2}}",
                                        "{\"frostline\": 7, \"traceEvents\": 7}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fl_trace_data *back = calloc(1, sizeof *back);
        assert_non_null(back);
        assert_int_equal(read_text(texts[i], strlen(texts[i]), back), FL_EFORMAT);
        drop(back);
    }
    fl_trace_data *none = calloc(1, sizeof *none);
    assert_non_null(none);
    assert_int_equal(fl_trace_read("/nonexistent/trace.json", none), FL_EIO);
    drop(none);
}

/* ---- slow workers ---- */

/* Would catch: a straggler that is named because its stage is larger, or because it waited. */
static void test_slow__compares_with_what_layers_should_take(void **state)
{
    (void)state;
    double slowness[4];
    const double expected[] = {100, 300, 100, 300};
    assert_int_equal(fl_slow_find((const double[]){110, 320, 105, 330}, expected, 4, slowness), -1);
    near(slowness[0], 1.10 / (320.0 / 300.0));
    assert_int_equal(fl_slow_find((const double[]){110, 320, 200, 330}, expected, 4, slowness), 2);
    near(slowness[2], 2.0 / 1.1);
    assert_int_equal(fl_slow_find((const double[]){110, 0, 0, 0}, expected, 4, slowness), -1);
    near(slowness[0], 0.0);
    assert_int_equal(fl_slow_find((const double[]){100, 600}, expected, 2, slowness), 1);
    near(slowness[1], 2.0);
    near(slowness[0], 0.5);
}

static void test_slow__what_a_stage_should_take(void **state)
{
    (void)state;
    const fl_slow_layer layers[] = {{10, 20, 4}, {30, 60, 4}, {5, 10, 4}};
    fl_plan plan = {.K = 2, .R = 2, .M = 3, .first = {0, 2, 3}};
    near(fl_slow_expected_us(&plan, 0, 0, 16, layers), 8 * 120 + 2 * 3 * 4);
    near(fl_slow_expected_us(&plan, 1, 0, 16, layers), 8 * (10 + 90) + 3 * 4 * 1.5);
    near(fl_slow_expected_us(&plan, 1, 1, 16, layers), 8 * 15 + 3 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace__shares_by_hand),
        cmocka_unit_test(test_trace__devices_tell_when_they_compute),
        cmocka_unit_test(test_trace__evaluations_are_no_steps),
        cmocka_unit_test(test_trace__overlap_by_hand),
        cmocka_unit_test(test_trace__the_longest_operations),
        cmocka_unit_test(test_trace__an_empty_one_is_refused),
        cmocka_unit_test(test_trace__keeps_the_steps_that_were_finished),
        cmocka_unit_test(test_trace__reads_back_what_was_written),
        cmocka_unit_test(test_trace__damage_is_refused),
        cmocka_unit_test(test_trace__what_is_no_trace_is_refused),
        cmocka_unit_test(test_slow__compares_with_what_layers_should_take),
        cmocka_unit_test(test_slow__what_a_stage_should_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
