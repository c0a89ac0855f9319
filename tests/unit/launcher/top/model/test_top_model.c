/* What `frostline top` knows of a run, and what its keys ask for. Would catch: a reply that is not
 * what it should be and still changes something or is read beyond its end, shares that jump at the
 * end of an epoch or are not of the time that passed, a curve that loses steps or grows, a command
 * that is sent without having been confirmed. */
#include "launcher/top/feed/top_ask.h"
#include "launcher/top/feed/top_tail.h"
#include "support/folder.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static fl_top_model model;

static bool take(const char *text)
{
    json_t *status = json_loads(text, 0, NULL);
    bool taken = fl_top_model_status(&model, status);
    json_decref(status);
    return taken;
}

/* One worker's sums, `times_s` after they were begun. */
static void take_times(double times_s, int steps, double compute_s, double wait_s)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"step\": %d, \"step_ms\": 10, \"times_s\": %f, \"plan\": {\"k\": 1, \"r\": 1}, "
             "\"workers\": [{\"rank\": 0, \"state\": \"active\", \"replica\": 0, \"stage\": 0, "
             "\"steps\": %d, \"compute_s\": %f, \"wait_s\": %f}]}",
             steps, times_s, steps, compute_s, wait_s);
    assert_true(take(text));
}

static void share_is(fl_top_share which, double expected)
{
    assert_true(fabs(model.worker[0].share[which] - expected) < 1e-9);
}

static double sum_of_shares(void)
{
    double sum = 0.0;
    for (int i = 0; i < FL_TOP_SHARES; i++) {
        sum += model.worker[0].share[i];
    }
    return sum;
}

static void test_top_model__shares_are_of_the_time_that_passed(void **state)
{
    (void)state;
    fl_top_model_init(&model);
    take_times(10.0, 100, 5.0, 2.0); /* the first reply tells of the epoch so far */
    share_is(FL_TOP_COMPUTE, 0.5);
    share_is(FL_TOP_WAIT, 0.2);
    share_is(FL_TOP_IDLE, 0.3);
    for (int i = 1; i <= 60; i++) { /* from here on it only waits */
        take_times(10.0 + i, 100 + i, 5.0, 2.0 + i);
    }
    share_is(FL_TOP_WAIT, 1.0);
    assert_true(fabs(sum_of_shares() - 1.0) < 1e-9);
}

/* Would catch: bars that flicker between idle and busy because a step takes longer than the
 * interval between two requests. */
static void test_top_model__between_two_steps_nothing_is_known(void **state)
{
    (void)state;
    fl_top_model_init(&model);
    take_times(10.0, 100, 9.0, 1.0);
    take_times(10.5, 100, 9.0, 1.0);
    take_times(11.0, 100, 9.0, 1.0);
    share_is(FL_TOP_COMPUTE, 0.9);
    take_times(11.5, 101, 10.35, 1.15);
    share_is(FL_TOP_COMPUTE, 0.9);
    take_times(20.0, 101, 10.35, 1.15); /* too long for a step of 10 ms: it is idle */
    assert_true(model.worker[0].share[FL_TOP_IDLE] > 0.3);
}

static void test_top_model__sums_begin_anew_with_an_epoch(void **state)
{
    (void)state;
    fl_top_model_init(&model);
    take_times(100.0, 1000, 80.0, 20.0);
    take_times(1.0, 1010, 0.8, 0.2);
    share_is(FL_TOP_COMPUTE, 0.8);
    share_is(FL_TOP_WAIT, 0.2);
    take_times(2.0, 1020, 3.0, 0.4); /* a report that is ahead of the watch */
    assert_true(fabs(sum_of_shares() - 1.0) < 1e-9);
    for (int i = 0; i < FL_TOP_SHARES; i++) {
        assert_true(model.worker[0].share[i] >= 0.0 && model.worker[0].share[i] <= 1.0);
    }
}

static void test_top_model__what_is_no_status_changes_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {"[]",
                                        "{}",
                                        "1",
                                        "null",
                                        "{\"plan\": 1, \"workers\": []}",
                                        "{\"plan\": {}, \"workers\": {}}"};
    static fl_top_model before;
    fl_top_model_init(&model);
    take_times(10.0, 100, 5.0, 2.0);
    before = model;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_false(take(texts[i]));
        assert_memory_equal(&before, &model, sizeof model);
    }
    assert_false(fl_top_model_status(&model, NULL));
}

static void test_top_model__values_out_of_range_are_unknown(void **state)
{
    (void)state;
    fl_top_model_init(&model);
    assert_true(
        take("{\"step\": -5, \"steps\": \"many\", \"loss\": [1], \"mfu\": null, "
             "\"straggler\": 99999999, \"blocks\": 9999999, \"pinned\": [0, -1, 3, 99999, \"x\"], "
             "\"state\": \"a state of more than twenty-three bytes\", "
             "\"plan\": {\"k\": 1000000, \"r\": -3, \"first\": [0, 5, 3]}, "
             "\"cache\": {\"memory_bytes\": 9223372036854775807, "
             "\"disk_bytes\": 9223372036854775807}, \"workers\": "
             "[1, {\"rank\": -1, \"stage\": 9999999, \"replica\": \"0\", \"compute_s\": -1}]}"));
    assert_int_equal(model.step, 0);
    assert_int_equal(model.steps, 0);
    assert_true(isnan(model.loss) && isnan(model.mfu));
    assert_int_equal(model.K, FL_MAX_STAGES);
    assert_int_equal(model.R, 1);
    assert_int_equal(model.n_first, 0);
    assert_int_equal(model.blocks, FL_MAX_LAYERS);
    assert_true(model.pinned[3] && !model.pinned[1] && !model.pinned[2]);
    assert_true(model.cache_bytes > 0);
    assert_int_equal(model.n_workers, 2);
    for (int i = 0; i < 2; i++) {
        assert_in_range(model.worker[i].rank, 0, FL_MAX_WORKERS - 1);
        assert_true(model.worker[i].stage < FL_MAX_STAGES);
    }
    assert_true(strlen(model.state) < sizeof model.state);
}

/* The reply of a real run with random bytes changed: whatever still is JSON is taken or not, and
 * nothing is read or written where it should not be (the sanitizers look on). */
static void test_top_model__takes_any_reply(void **state)
{
    (void)state;
    static const char good[] =
        "{\"job\": \"a\", \"state\": \"running\", \"step\": 5, \"steps\": 10, \"epoch\": 0, "
        "\"epochs\": 1, \"loss\": 1.5, \"blocks\": 8, \"pinned\": [1, 2], \"times_s\": 4.5, "
        "\"plan\": {\"generation\": 1, \"f\": 1, \"k\": 2, \"r\": 1, \"m\": 4, \"first\": [0, 9, "
        "18]},"
        "\"workers\": [{\"rank\": 0, \"state\": \"active\", \"replica\": 0, \"stage\": 0, "
        "\"steps\": 5}, {\"rank\": 1, \"state\": \"active\", \"replica\": 0, \"stage\": 1}]}";
    unsigned seed = (unsigned)time(NULL);
    int n_taken = 0;
    print_message("seed %u\n", seed);
    fl_top_model_init(&model);
    for (int i = 0; i < 20000; i++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (int n = rand_r(&seed) % 3; n >= 0; n--) {
            int at = (int)((size_t)rand_r(&seed) % (sizeof good - 1));
            text[at] = "0123456789-.e[]{},:\"x"[rand_r(&seed) % 21];
        }
        n_taken += take(text);
        fl_top_model_event(&model, text);
        fl_top_model_step(&model, text);
        assert_in_range(model.K, model.known, FL_MAX_STAGES);
        assert_in_range(model.n_workers, 0, 2);
    }
    assert_true(n_taken > 1000);
}

static void test_top_model__keeps_the_newest_events(void **state)
{
    (void)state;
    char line[128];
    fl_top_model_init(&model);
    assert_null(fl_top_model_event_at(&model, 0));
    for (int i = 0; i < 2 * FL_TOP_EVENTS + 3; i++) {
        snprintf(line, sizeof line, "{\"time\": %d, \"event\": \"epoch.finished\", \"epoch\": %d}",
                 i, i);
        fl_top_model_event(&model, line);
    }
    fl_top_model_event(&model, "no event");
    fl_top_model_event(&model, "{\"time\": 1}");
    snprintf(line, sizeof line, "epoch=%d", 2 * FL_TOP_EVENTS + 3); /* counts from 1 */
    assert_non_null(strstr(fl_top_model_event_at(&model, 0)->text, line));
    snprintf(line, sizeof line, "epoch=%d", FL_TOP_EVENTS + 4);
    assert_non_null(strstr(fl_top_model_event_at(&model, FL_TOP_EVENTS - 1)->text, line));
    assert_null(fl_top_model_event_at(&model, FL_TOP_EVENTS));
    assert_false(model.over);
    fl_top_model_event(&model, "{\"event\": \"worker.lost\", \"rank\": 1}");
    assert_true(fl_top_model_event_at(&model, 0)->warns);
    fl_top_model_event(&model, "{\"event\": \"run.failed\", \"message\": \"worker 1 died\\nlog\"}");
    assert_true(model.over);
    assert_string_equal(model.how, "failed: worker 1 died");
    model.step = 3;
    fl_top_model_event(&model, "{\"event\": \"run.finished\", \"steps\": 12}");
    assert_int_equal(model.step, 12); /* the last answer came before the last steps */
    fl_top_model_event(&model, "{\"event\": \"run.failed\", \"message\": \"worker 1 died\"}");
    fl_top_model_end(&model, "lost");
    assert_string_equal(model.how, "failed: worker 1 died");
}

/* ---- curves ---- */

static void test_top_series__keeps_every_step_in_the_same_room(void **state)
{
    (void)state;
    enum { STEPS = 100000, COLUMNS = 10 };
    static fl_top_series series;
    double value[COLUMNS], least, most, weight = 0.0;
    memset(&series, 0, sizeof series);
    assert_int_equal(fl_top_series_columns(&series, value, COLUMNS, &least, &most), 0);
    for (int i = 0; i < STEPS; i++) {
        fl_top_series_add(&series, i, i);
        fl_top_series_add(&series, i, 1e9); /* known already */
        fl_top_series_add(&series, i + 1, NAN);
    }
    for (int i = 0; i < series.n; i++) {
        weight += series.point[i].weight;
    }
    assert_true(weight == STEPS);
    assert_true(series.n > FL_TOP_POINTS / 4 && series.n <= FL_TOP_POINTS);
    assert_int_equal(fl_top_series_columns(&series, value, COLUMNS, &least, &most), COLUMNS);
    for (int i = 0; i < COLUMNS; i++) {
        double middle = (i + 0.5) * STEPS / COLUMNS;
        assert_true(fabs(value[i] - middle) < 0.01 * STEPS);
    }
    assert_true(least == value[0] && most == value[COLUMNS - 1]);
}

static void test_top_series__steps_may_be_far_apart(void **state)
{
    (void)state;
    static fl_top_series series;
    double value[4], least, most;
    memset(&series, 0, sizeof series);
    fl_top_series_add(&series, 7, 1.0);
    fl_top_series_add(&series, INT64_MAX - 1, 2.0);
    assert_int_equal(fl_top_series_columns(&series, value, 4, &least, &most), 2);
    assert_true(value[0] == 1.0 && isnan(value[1]) && isnan(value[2]) && value[3] == 2.0);
    for (int64_t i = 1; i < 3000; i++) {
        fl_top_series_add(&series, i * 1000003, 1.0); /* all are behind the newest */
    }
    assert_int_equal(series.n, 2);
    memset(&series, 0, sizeof series);
    for (int64_t i = 1; i < 3000; i++) {
        fl_top_series_add(&series, i * 1000000007, 1.0);
    }
    assert_true(series.n <= FL_TOP_POINTS && series.n > 2);
}

/* ---- files ---- */

static void test_top_tail__gives_whole_lines_as_they_come(void **state)
{
    (void)state;
    char path[FOLDER_SIZE];
    make_file(path, "", 0);
    int fd = open(path, O_WRONLY);
    fl_top_tail tail;
    fl_top_tail_open(&tail, path);
    assert_null(fl_top_tail_next(&tail));
    assert_int_equal(write(fd, "one\ntw", 6), 6);
    assert_string_equal(fl_top_tail_next(&tail), "one");
    assert_null(fl_top_tail_next(&tail));
    assert_int_equal(write(fd, "o\n\nthree\n", 9), 9);
    assert_string_equal(fl_top_tail_next(&tail), "two");
    assert_string_equal(fl_top_tail_next(&tail), "");
    assert_string_equal(fl_top_tail_next(&tail), "three");
    char *large = malloc(FL_TOP_LINE_MAX); /* with its neighbours, more than there is room for */
    memset(large, 'x', FL_TOP_LINE_MAX);
    assert_int_equal(write(fd, large, FL_TOP_LINE_MAX), FL_TOP_LINE_MAX);
    assert_null(fl_top_tail_next(&tail));
    assert_int_equal(write(fd, large, FL_TOP_LINE_MAX), FL_TOP_LINE_MAX);
    assert_int_equal(write(fd, "\nfour\n", 6), 6);
    assert_string_equal(fl_top_tail_next(&tail), "four");
    fl_top_tail_close(&tail);
    assert_null(fl_top_tail_next(&tail));
    free(large);
    close(fd);
    unlink(path);
    fl_top_tail_open(&tail, path); /* which is gone */
    assert_null(fl_top_tail_next(&tail));
    fl_top_tail_close(&tail);
}

/* A run that goes back cuts its files. Would catch: a reader that goes on in the middle of a line,
 * and misses the lines before it. */
static void test_top_tail__begins_again_where_a_file_was_cut(void **state)
{
    (void)state;
    fl_top_tail tail;
    char path[FOLDER_SIZE];
    make_file(path, "one\ntwo\nthree\n", 14);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    fl_top_tail_open(&tail, path);
    for (int i = 0; i < 3; i++) {
        assert_non_null(fl_top_tail_next(&tail));
    }
    assert_null(fl_top_tail_next(&tail));
    assert_false(tail.was_cut);
    assert_int_equal(ftruncate(fd, 4), 0);
    assert_int_equal(pwrite(fd, "a line that is longer\n", 22, 4), 22);
    assert_string_equal(fl_top_tail_next(&tail), "one");
    assert_true(tail.was_cut);
    assert_string_equal(fl_top_tail_next(&tail), "a line that is longer");
    assert_null(fl_top_tail_next(&tail));
    close(fd);
    fl_top_tail_close(&tail);
    unlink(path);
}

/* ---- keys ---- */

static fl_top_ask ask;

/* Give it these keys; the deed of the last one. */
static fl_top_deed type(const char *keys)
{
    fl_top_deed deed = FL_TOP_DEED_NONE;
    int scroll;
    for (; *keys != 0; keys++) {
        assert_int_not_equal(deed, FL_TOP_DEED_SEND); /* not before the last key */
        deed = fl_top_ask_key(&ask, &model, *keys, &scroll);
    }
    return deed;
}

static void sends(const char *keys, const char *command, const char *args, const char *text)
{
    assert_int_equal(type(keys), FL_TOP_DEED_SEND);
    assert_string_equal(ask.request.command, command);
    assert_string_equal(ask.request.args, args);
    assert_string_equal(ask.request.text, text);
    assert_string_equal(ask.question, "");
}

static void test_top_ask__sends_what_was_confirmed(void **state)
{
    (void)state;
    fl_top_model_init(&model);
    take_times(1.0, 1, 0.5, 0.5);
    sends("py", "pause", "{}", "pause the run");
    sends("s2\ny", "scale", "{\"devices\": 2}", "scale to 2 devices");
    sends("s2x1\ny", "scale", "{\"k\": 2, \"r\": 1}", "scale to K=2 x R=1");
    sends("f3\ny", "freeze", "{\"blocks\": 3}", "freeze the first 3 blocks");
    sends("f31\177\ny", "freeze", "{\"blocks\": 3}", "freeze the first 3 blocks");
    sends("t0\ny", "thaw", "{\"blocks\": 0}", "thaw all but the first 0 blocks");
    sends("d1\ny", "drain", "{\"worker\": 1}", "drain worker 1: it leaves the run");
    sends("xny", "stop", "{\"when\": \"now\"}", "stop the run after the step in flight");
    sends("xey", "stop", "{\"when\": \"epoch\"}", "stop the run with the epoch");
    snprintf(model.state, sizeof model.state, "paused");
    sends("py", "resume", "{}", "let the run go on");
}

static void test_top_ask__sends_nothing_else(void **state)
{
    (void)state;
    static const char *const keys[] = {"pn",        "p\033",      "p ",    "s\n\033",     "s2\nn",
                                       "sx\ny\033", "s2x\ny\033", "s\033", "xy",          "x\033",
                                       "y",         "\n",         "z",     "fabc\ny\033", "xnn"};
    fl_top_model_init(&model);
    take_times(1.0, 1, 0.5, 0.5);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_int_not_equal(type(keys[i]), FL_TOP_DEED_SEND);
        assert_string_equal(ask.question, "");
    }
    assert_int_equal(type("q"), FL_TOP_DEED_QUIT);
    assert_int_equal(type("?"), FL_TOP_DEED_HELP);
    model.over = true; /* then there is nobody to ask */
    (void)type("p");
    assert_string_equal(ask.question, "");
    assert_int_equal(type("q"), FL_TOP_DEED_QUIT);
}

static void name_host(int i, const char *name, const char *state)
{
    snprintf(model.host[i].name, sizeof model.host[i].name, "%s", name);
    snprintf(model.host[i].state, sizeof model.host[i].state, "%s", state);
    model.n_hosts = i + 1;
}

/* Would catch: a host that is drained without a question, one that does not exist, a name with a q
 * that cancels, and the key in a run of one host. */
static void test_top_ask__drains_a_host_by_its_name(void **state)
{
    (void)state;
    fl_top_model_init(&model);
    take_times(1.0, 1, 0.5, 0.5);
    (void)type("D");
    assert_string_equal(ask.question, "");
    name_host(0, "a", "joined");
    name_host(1, "q-2", "joined");
    name_host(2, "c", "lost");
    (void)type("D");
    assert_string_equal(ask.question, "drain which host (q-2): _");
    (void)type("\033");
    sends("Dq-2\ny", "drain", "{\"host\": \"q-2\"}", "drain host q-2: the run goes on without it");
    assert_int_not_equal(type("Dx\ny\033"), FL_TOP_DEED_SEND);
    assert_int_not_equal(type("Da\ny\033"), FL_TOP_DEED_SEND); /* the head */
    assert_int_not_equal(type("Dc\nn"), FL_TOP_DEED_SEND);
    assert_string_equal(ask.question, "");
}

static void test_top_ask__scrolls(void **state)
{
    (void)state;
    int scroll = 0;
    fl_top_model_init(&model);
    assert_int_equal(fl_top_ask_key(&ask, &model, FL_TOP_KEY_DOWN, &scroll), FL_TOP_DEED_SCROLL);
    assert_int_equal(scroll, 1);
    assert_int_equal(fl_top_ask_key(&ask, &model, FL_TOP_KEY_PAGE_UP, &scroll), FL_TOP_DEED_SCROLL);
    assert_true(scroll < -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_model__shares_are_of_the_time_that_passed),
        cmocka_unit_test(test_top_model__between_two_steps_nothing_is_known),
        cmocka_unit_test(test_top_model__sums_begin_anew_with_an_epoch),
        cmocka_unit_test(test_top_model__what_is_no_status_changes_nothing),
        cmocka_unit_test(test_top_model__values_out_of_range_are_unknown),
        cmocka_unit_test(test_top_model__takes_any_reply),
        cmocka_unit_test(test_top_model__keeps_the_newest_events),
        cmocka_unit_test(test_top_series__keeps_every_step_in_the_same_room),
        cmocka_unit_test(test_top_series__steps_may_be_far_apart),
        cmocka_unit_test(test_top_tail__gives_whole_lines_as_they_come),
        cmocka_unit_test(test_top_tail__begins_again_where_a_file_was_cut),
        cmocka_unit_test(test_top_ask__sends_what_was_confirmed),
        cmocka_unit_test(test_top_ask__sends_nothing_else),
        cmocka_unit_test(test_top_ask__drains_a_host_by_its_name),
        cmocka_unit_test(test_top_ask__scrolls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
