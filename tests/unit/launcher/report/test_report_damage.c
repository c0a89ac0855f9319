/* The page of a run directory that is cut, broken or hostile, or of a run that failed. */
#include "control/events/runfiles.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "support/formats/report_page.h"
#include "support/runs/runs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MUTATIONS = 1000, FILE_MAX = 1 << 16 };

static void near(double value, double expected, double by)
{
    if (!(fabs(value - expected) <= by)) {
        fail_msg("%g, expected %g", value, expected);
    }
}

/* ---- runs that did not end well ---- */

static void test_report__says_why_a_run_failed(void **state)
{
    (void)state;
    fl_report report;
    report_put("events.jsonl", "w", report_events);
    report_put("events.jsonl", "a",
               "{\"event\":\"run.failed\",\"message\":\"worker 1 was killed by signal 9;\\nlast "
               "lines\"}\n");
    char *page = report_page(&report);
    report_expect(page, "<span class=\"state failed\">");
    report_expect(page, "worker 1 was killed by signal 9;\nlast lines</pre>");
    report_expect(page, "steps.jsonl could not be read: No such file or directory");
    report_expect(page, "It could not be read: job.yaml: No such file or directory");
    free(page);
    fl_report_fini(&report);
}

static void test_report__counts_what_it_cannot_read(void **state)
{
    (void)state;
    fl_report report;
    report_put("events.jsonl", "w",
               "{\"event\":\"run.started\",\"job\":\"toy\"}\n[1]\n{\"no\":1}\n");
    report_put(
        "steps.jsonl", "w",
        "{\"step\":0,\"epoch\":0,\"loss\":null,\"ms\":1}\nrubbish\n{\"step\":-4,\"epoch\":0}\n"
        "{\"step\":1,\"epoch\":0,\"ms\":-1}\n{\"step\":1,\"step\":2}\n\xFF\xFE\n"
        "{\"step\":1,\"epoch\":0,\"loss\":1e999,\"ms\":2}\n{\"step\":1,\"epoch\":0,\"loss\":1,"
        "\"ms\":2}\n{\"step\":2,\"epo");
    char *page = report_page(&report);
    assert_int_equal(report.n_steps, 2);
    assert_int_equal(report.steps_file.n, 9);
    assert_int_equal(report.steps_file.n_bad, 7);
    assert_int_equal(report.steps_file.first_bad, 2);
    assert_int_equal(report.events_file.n_bad, 2);
    report_expect(page, "steps.jsonl: 7 of 9 lines could not be read; the first is line 2: ");
    report_expect(page, "events.jsonl: 2 of 3 lines could not be read; the first is line 2: not an "
                        "object.");
    free(page);
    fl_report_fini(&report);
}

static void test_report__a_line_without_end_does_not_hide_the_next(void **state)
{
    (void)state;
    fl_report report;
    char *longest = calloc(1, 3 * FL_LINE_BYTES_MAX);
    assert_non_null(longest);
    memset(longest, '[', 3 * FL_LINE_BYTES_MAX - 2);
    report_put("events.jsonl", "w", "{\"event\":\"run.started\",\"job\":\"toy\"}\n");
    report_put("events.jsonl", "a", longest);
    report_put("events.jsonl", "a", "\n{\"event\":\"run.finished\",\"steps\":7}\n");
    char *page = report_page(&report);
    assert_int_equal(report.n_events, 2);
    assert_int_equal(report.events_file.n_bad, 1);
    report_expect(page, "longer than any line that a run writes");
    free(longest);
    free(page);
    fl_report_fini(&report);
}

/* A hole of 64 GiB takes no disk, but would take long to read. */
static void test_report__nothing_is_read_behind_zeros(void **state)
{
    (void)state;
    fl_report report;
    char path[256];
    report_put("events.jsonl", "w", "{\"event\":\"run.started\",\"job\":\"toy\"}\n{\"ev");
    snprintf(path, sizeof path, "%s/events.jsonl", root);
    assert_int_equal(truncate(path, INT64_C(1) << 36), 0);
    report_put("events.jsonl", "a", "\n{\"event\":\"run.finished\",\"steps\":7}\n");
    char *page = report_page(&report);
    assert_int_equal(report.n_events, 1);
    assert_int_equal(report.events_file.n, 2);
    report_expect(page,
                  "events.jsonl: 1 of 2 lines could not be read; the first is line 2: zero bytes, "
                  "behind which nothing is read.");
    free(page);
    fl_report_fini(&report);
}

/* A resumed run continues its files without a gap or a repeated step. Lines that repeat a step are
 * damage: curves and times over them would go back. */
static void test_report__a_repeated_step_is_a_line_that_cannot_be_read(void **state)
{
    (void)state;
    fl_report report;
    report_put("events.jsonl", "w", report_events);
    report_put("steps.jsonl", "w", "");
    static const int step[] = {0, 1, 2, 3, 1, 2, 3, 4};
    for (int i = 0; i < 8; i++) {
        char line[96];
        snprintf(line, sizeof line, "{\"step\":%d,\"epoch\":0,\"loss\":%d,\"ms\":1000}\n", step[i],
                 i);
        report_put("steps.jsonl", "a", line);
    }
    char *page = report_page(&report);
    assert_int_equal(report.n_steps, 5);
    assert_int_equal(report.steps_file.n_bad, 3);
    near(report.step[4].end_s, 5, 1e-9);
    near(report.step[1].loss, 1, 0);
    report_expect(
        page, "3 of 8 lines could not be read; the first is line 5: not after the step before it");
    free(page);
    fl_report_fini(&report);
}

static void test_report__a_pipe_in_place_of_a_file_is_not_waited_for(void **state)
{
    (void)state;
    fl_report report;
    char path[128];
    report_put("events.jsonl", "w", report_events);
    snprintf(path, sizeof path, "%s/steps.jsonl", root);
    assert_int_equal(mkfifo(path, 0600), 0);
    char *page = report_page(&report);
    report_expect(page, "steps.jsonl could not be read: not a regular file");
    free(page);
    fl_report_fini(&report);
}

/* ---- hostile runs ---- */

static void test_report__no_name_or_message_brings_markup_in(void **state)
{
    (void)state;
    static const char evil[] = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\\\"'";
    static const char *const field[] = {"job",    "wall",  "version", "why",     "message", "plan",
                                        "policy", "state", "choice",  "why_not", "reason",  "comm"};
    static const char *const event[] = {
        "run.started",   "plan.chosen",          "cache.opened",
        "cache.decided", "freeze.decided",       "plan.considered",
        "tune.done",     "transition.done",      "run.failed",
        "run.stopping",  "transition.cancelled", "checkpoint.failed",
        "graphs",        "transport.chosen"};
    fl_report report;
    report_put("events.jsonl", "w", "");
    report_put("job.yaml", "w", "name: '</pre><script>'\n");
    for (size_t e = 0; e < sizeof event / sizeof event[0]; e++) {
        report_put("events.jsonl", "a",
                   "{\"epoch\":1,\"generation\":1,\"next_generation\":1,\"event\":\"");
        report_put("events.jsonl", "a", event[e]);
        report_put("events.jsonl", "a", "\"");
        for (size_t f = 0; f < sizeof field / sizeof field[0]; f++) {
            report_put("events.jsonl", "a", ",\"");
            report_put("events.jsonl", "a", field[f]);
            report_put("events.jsonl", "a", "\":\"");
            report_put("events.jsonl", "a", evil);
            report_put("events.jsonl", "a", "\"");
        }
        report_put("events.jsonl", "a", "}\n");
    }
    report_put("events.jsonl", "a", "{\"event\":\"<script>\",\"<b>\":{\"<i>\":[\"<u>\"]}}\n");
    char *page = report_page(&report); /* which has refused any element that runs or loads */
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<img"));
    report_expect(page, "&lt;script&gt;");
    free(page);
    fl_report_fini(&report);
}

static size_t read_file(const char *name, char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, FILE_MAX, file);
    fclose(file);
    return n;
}

static void write_file(const char *name, const char *text, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Change a few places: other bytes, other numbers, a cut, a piece twice. */
static size_t mutate(char *text, size_t n, uint64_t seed)
{
    static const char *const number[] = {
        "-1", "1e308", "9223372036854775807", "-9e18", "null", "\"x\"", "[]", "{}", "0", "1e-308"};
    uint64_t draws = 0;
    int n_changes = 1 + (int)(fl_mix64(seed, draws++) % 6);
    for (int i = 0; i < n_changes && n > 64; i++) {
        size_t at = fl_mix64(seed, draws++) % (n - 32);
        uint64_t how = fl_mix64(seed, draws++);
        if (how % 4 == 0) {
            text[at] = (char)(how >> 8);
        } else if (how % 4 == 1) {
            char *colon = memchr(text + at, ':', n - 32 - at);
            const char *with = number[(how >> 8) % 10];
            if (colon != NULL) { /* what is left of the old value mostly breaks the line */
                size_t length = strcspn(colon + 1, ",}\n");
                size_t fits = strlen(with);
                memset(colon + 1, ' ', length);
                memcpy(colon + 1, with, fits <= length ? fits : length);
            }
        } else if (how % 4 == 2 && i == 0) {
            n = at + 32;
        } else {
            memmove(text + at, text + at / 2, 24);
        }
    }
    return n;
}

/* Would catch: files whose contents cause a crash, an endless drawing or an invalid page. */
static void test_report__any_damage_leaves_a_page(void **state)
{
    (void)state;
    static char events[FILE_MAX], steps[FILE_MAX], job[FILE_MAX], text[FILE_MAX];
    report_put_whole();
    size_t n_events = read_file("events.jsonl", events), n_steps = read_file("steps.jsonl", steps),
           n_job = read_file("job.yaml", job);
    for (uint64_t i = 0; i < MUTATIONS; i++) {
        fl_report report;
        memcpy(text, events, n_events);
        write_file("events.jsonl", text, mutate(text, n_events, 3 * i));
        memcpy(text, steps, n_steps);
        write_file("steps.jsonl", text, mutate(text, n_steps, 3 * i + 1));
        memcpy(text, job, n_job);
        write_file("job.yaml", text, mutate(text, n_job, 3 * i + 2));
        free(report_page(&report));
        fl_report_fini(&report);
    }
}

static void test_report__an_allocation_that_fails_is_reported(void **state)
{
    (void)state;
    fl_run_entry run;
    fl_report report;
    int n_failed = 0;
    report_put_whole();
    assert_int_equal(fl_run_look(root, &run), FL_OK);
    for (uint64_t n = 1; n < 40; n++) {
        fl_html html = {0};
        fl_alloc_fail_at(n);
        fl_status status = fl_report_read(&run, &report);
        if (status == FL_OK) {
            fl_page_write(&html, &report, "now");
        }
        fl_alloc_fail_at(0);
        n_failed += status != FL_OK || html.broken;
        fl_html_fini(&html);
        fl_report_fini(&report);
    }
    assert_true(n_failed >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_report__says_why_a_run_failed, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__counts_what_it_cannot_read, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_line_without_end_does_not_hide_the_next,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__nothing_is_read_behind_zeros, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_repeated_step_is_a_line_that_cannot_be_read,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__a_pipe_in_place_of_a_file_is_not_waited_for,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_report__no_name_or_message_brings_markup_in, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__any_damage_leaves_a_page, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(test_report__an_allocation_that_fails_is_reported,
                                        make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
