/* The controller's part of a pass. Would catch: lines out of order or of another batch; a report
 * that cannot be true and is believed; workers that run further ahead than the lines are held, or
 * that do not all end with the same batch; a reader that is slow and holds up the loop. */
#include "control/controller/parts/pass.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BATCH = 4, SAMPLES = 70, REPORT = 1024 };

static fl_pass_gate *gate;
static fl_pass pass;
static fl_pass_options options;
static int ends[2]; /* of a pipe */

static int set_up(void **state)
{
    (void)state;
    if (pipe(ends) != 0 || fl_pass_gate_create(&gate) != FL_OK) {
        return -1;
    }
    options = (fl_pass_options){
        .gate = gate, .n_samples = SAMPLES, .batch = BATCH, .out_fd = ends[1], .out = "the pipe"};
    fl_pass_init(&pass, &options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fl_pass_fini(&pass);
    fl_pass_gate_destroy(&gate);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* A report of samples `ids`, each with a line of `size` bytes that begins with its id. */
static fl_status report_ids(int64_t batch, const int *ids, int n, size_t size)
{
    unsigned char *bytes = calloc((size_t)n, 12 + size), *at = bytes;
    for (int i = 0; i < n; i++) {
        at[0] = (unsigned char)ids[i];
        at[8] = (unsigned char)size;
        at[9] = (unsigned char)(size >> 8);
        at[10] = (unsigned char)(size >> 16);
        memset(at + 12, '.', size);
        at[12] = (unsigned char)ids[i];
        at[12 + size - 1] = '\n';
        at += 12 + size;
    }
    fl_pass_report report = {
        .batch = batch, .n_samples = n, .lines_bytes = (uint32_t)(at - bytes), .lines = bytes};
    fl_status status = fl_pass_heard(&pass, &report);
    free(bytes);
    return status;
}

static fl_status report_batch(int64_t batch, size_t size)
{
    int ids[BATCH], n = batch == SAMPLES / BATCH ? SAMPLES % BATCH : BATCH;
    for (int i = 0; i < n; i++) {
        ids[i] = (int)batch * BATCH + n - 1 - i; /* backwards */
    }
    return report_ids(batch, ids, n, size);
}

static bool admits(int64_t batch)
{
    bool over;
    return fl_pass_gate_admits(gate, batch, &over);
}

static void expect_ids(int first, int n)
{
    unsigned char line[4];
    for (int i = 0; i < n; i++) {
        assert_int_equal(read(ends[0], line, 3), 3);
        assert_int_equal(line[0], first + i);
    }
}

static void test_pass__writes_lines_in_the_order_of_ids(void **state)
{
    (void)state;
    static const int later[] = {7, 5}, rest[] = {6, 4}, first[] = {2, 0, 3, 1};
    assert_int_equal(report_ids(1, later, 2, 3), FL_OK);
    assert_int_equal(report_ids(1, rest, 2, 3), FL_OK);
    assert_int_equal(pass.outcome.n_samples, 0); /* batch 0 is not complete */
    assert_int_equal(report_ids(0, first, 4, 3), FL_OK);
    assert_int_equal(pass.outcome.n_samples, 8);
    expect_ids(0, 8);
    for (int batch = 2; batch <= SAMPLES / BATCH; batch++) {
        assert_true(admits(batch));
        assert_int_equal(report_batch(batch, 3), FL_OK);
    }
    assert_int_equal(pass.outcome.n_samples, SAMPLES);
    expect_ids(8, SAMPLES - 8);
    assert_false(fl_pass_holds_lines(&pass));
}

static void test_pass__refuses_what_cannot_be_true(void **state)
{
    (void)state;
    static const int ids[] = {0, 1, 2, 3, 4};
    unsigned char cut[] = {0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 'x'};
    const fl_pass_report reports[] = {
        {.batch = 0, .n_samples = 1, .lines_bytes = sizeof cut, .lines = cut},
        {.batch = 0, .n_samples = 1, .lines_bytes = 5, .lines = cut},
        {.batch = 0, .n_samples = 1},
    };
    assert_int_equal(report_ids(FL_PASS_AHEAD, ids, 1, 3), FL_EFORMAT);
    assert_int_equal(report_ids(SAMPLES, ids, 1, 3), FL_EFORMAT);
    assert_int_equal(report_ids(0, ids, 5, 3), FL_EFORMAT);
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        assert_int_equal(fl_pass_heard(&pass, &reports[i]), FL_EFORMAT);
    }
    fl_pass_init(&pass, NULL);
    assert_int_equal(fl_pass_heard(&pass, &reports[2]), FL_EFORMAT); /* the run trains */
    assert_int_equal(fl_pass_write(&pass), FL_OK);
    assert_false(fl_pass_holds_lines(&pass));
}

/* The pipe is full: the loop goes on, and no further batch is opened until it is read. */
static void test_pass__waits_for_a_slow_reader_at_the_gate(void **state)
{
    (void)state;
    static char bytes[1 << 16];
    size_t n_read = 0;
    for (int batch = 0; batch < FL_PASS_AHEAD; batch++) {
        assert_int_equal(report_batch(batch, 30000), FL_OK);
    }
    assert_true(fl_pass_holds_lines(&pass));
    assert_false(admits(FL_PASS_AHEAD));
    while (fl_pass_holds_lines(&pass)) {
        ssize_t n = read(ends[0], bytes, sizeof bytes);
        assert_true(n > 0);
        n_read += (size_t)n;
        assert_int_equal(fl_pass_write(&pass), FL_OK);
    }
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    for (ssize_t n; (n = read(ends[0], bytes, sizeof bytes)) > 0;) {
        n_read += (size_t)n;
    }
    assert_int_equal(n_read, FL_PASS_AHEAD * BATCH * 30000);
    assert_true(admits(2 * FL_PASS_AHEAD - 1));
    assert_false(admits(2 * FL_PASS_AHEAD));
}

static void test_pass__stops_all_workers_at_one_batch(void **state)
{
    (void)state;
    bool over = true;
    assert_int_equal(report_batch(0, 3), FL_OK);
    assert_true(fl_pass_gate_admits(gate, FL_PASS_AHEAD, &over));
    assert_false(over);
    assert_false(fl_pass_gate_admits(gate, FL_PASS_AHEAD + 1, &over));
    assert_false(over); /* later */
    fl_pass_stop(&pass);
    assert_int_equal(report_batch(1, 3), FL_OK); /* opens nothing */
    assert_true(fl_pass_gate_admits(gate, FL_PASS_AHEAD, &over));
    assert_false(over);
    assert_false(fl_pass_gate_admits(gate, FL_PASS_AHEAD + 1, &over));
    assert_true(over);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_pass__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(writes_lines_in_the_order_of_ids),
        TEST(refuses_what_cannot_be_true),
        TEST(waits_for_a_slow_reader_at_the_gate),
        TEST(stops_all_workers_at_one_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
