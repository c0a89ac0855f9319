/* The record of an interrupted run: steps.jsonl, events.jsonl and weights.jsonl, cut at a
 * checkpoint and continued. */
#include "control/events/resume_files.h"

#include "support/folder.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT_MAX = 1 << 16 };

static const fl_metric_list no_metrics = {NULL, 0};
static char folder[FOLDER_SIZE];
static int dir_fd;
static fl_runfiles files;

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fl_runfiles_open(&files, dir_fd) == FL_OK ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    fl_runfiles_close(&files);
    close(dir_fd);
    return remove_folder(folder);
}

static void put(const char *name, const char *text)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static size_t get(const char *name, char text[TEXT_MAX])
{
    int fd = openat(dir_fd, name, O_RDONLY);
    ssize_t n = read(fd, text, TEXT_MAX - 1);
    assert_true(n >= 0);
    text[n] = 0;
    close(fd);
    return (size_t)n;
}

static void add_step(int64_t step)
{
    fl_step_report report = {.step = step, .loss = 1.0 / (double)(step + 3)};
    fl_runfiles_step(&files, &no_metrics, &report);
    fl_runfiles_flush(&files);
}

static void add_event(const char *name)
{
    fl_runfiles_event(&files, name, 1);
    fl_runfiles_event_end(&files);
}

static int64_t length_of(const char *name)
{
    struct stat what;
    assert_int_equal(fstatat(dir_fd, name, &what, 0), 0);
    return what.st_size;
}

/* Steps 0 .. n - 1 and an event after each, up to here. */
static fl_runfiles_place run_to(int64_t from, int64_t n)
{
    for (int64_t step = from; step < n; step++) {
        add_step(step);
        add_event("one");
    }
    return (fl_runfiles_place){.step = n,
                               .steps_bytes = length_of("steps.jsonl"),
                               .events_bytes = length_of("events.jsonl"),
                               .elapsed_s = 1234.5};
}

static void test_resume_files__cuts_what_follows_and_continues(void **state)
{
    (void)state;
    static char steps[TEXT_MAX], events[TEXT_MAX], text[TEXT_MAX];
    fl_runfiles_cut cut;
    fl_runfiles_place place = run_to(0, 5);
    size_t n_steps = get("steps.jsonl", steps), n_events = get("events.jsonl", events);
    run_to(5, 8);
    add_event("run.failed");
    fl_runfiles_close(&files);
    assert_int_equal(fl_runfiles_check_place(dir_fd, &place, &cut), FL_OK);
    assert_int_equal(cut.n_steps, 3);
    assert_int_equal(cut.n_events, 4);
    assert_int_equal(fl_runfiles_resume(&files, dir_fd, &place), FL_OK);
    add_step(5);
    add_event("two");
    assert_true(get("steps.jsonl", text) > n_steps);
    assert_memory_equal(text, steps, n_steps);
    assert_non_null(strstr(text + n_steps, "{\"step\": 5,"));
    assert_null(strstr(text + n_steps, "\"step\": 7"));
    assert_true(get("events.jsonl", text) > n_events);
    assert_memory_equal(text, events, n_events);
    json_t *event = json_loads(text + n_events, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(event, "event")), "two");
    double time_s = json_number_value(json_object_get(event, "time"));
    assert_true(time_s >= 1234.5 && time_s < 1300);
    json_decref(event);
    get("summary.txt", text);
    assert_string_equal(text, "This run has not ended, or its controller was killed.\n");
}

/* The controller was killed within a line. */
static void test_resume_files__counts_a_line_that_is_cut(void **state)
{
    (void)state;
    fl_runfiles_cut cut;
    fl_runfiles_place place = run_to(0, 2);
    run_to(2, 4);
    assert_int_equal(ftruncate(files.fd[FL_RUNFILE_STEPS], length_of("steps.jsonl") - 7), 0);
    assert_int_equal(fl_runfiles_check_place(dir_fd, &place, &cut), FL_OK);
    assert_int_equal(cut.n_steps, 2);
}

/* Would catch: a sparse file of many gigabytes that is read to its end. */
static void test_resume_files__reads_no_zeros_after_the_place(void **state)
{
    (void)state;
    fl_runfiles_cut cut;
    fl_runfiles_place place = run_to(0, 2);
    run_to(2, 4);
    assert_int_equal(ftruncate(files.fd[FL_RUNFILE_STEPS], INT64_C(1) << 40), 0);
    assert_int_equal(fl_runfiles_check_place(dir_fd, &place, &cut), FL_OK);
    assert_int_equal(cut.n_steps, 3);
}

static void refuse(const fl_runfiles_place *place, fl_status status, const char *why)
{
    static char before[TEXT_MAX], after[TEXT_MAX];
    fl_runfiles again;
    get("steps.jsonl", before);
    assert_int_equal(fl_runfiles_check_place(dir_fd, place, NULL), status);
    if (strstr(fl_errmsg(), why) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", fl_errmsg(), why);
    }
    assert_int_equal(fl_runfiles_resume(&again, dir_fd, place), status);
    get("steps.jsonl", after);
    assert_string_equal(before, after);
}

static void test_resume_files__refuses_files_without_the_place(void **state)
{
    (void)state;
    fl_runfiles_place place = run_to(0, 3), bad = place;
    bad.steps_bytes++;
    refuse(&bad, FL_EFORMAT, "steps.jsonl: ");
    bad = place;
    bad.steps_bytes--;
    refuse(&bad, FL_EFORMAT, "no end of a line found, where the checkpoint has one");
    bad = place;
    bad.steps_bytes = -1;
    refuse(&bad, FL_EFORMAT, "at least -1 expected");
    bad = place;
    bad.step = 4;
    refuse(&bad, FL_EFORMAT, "the line of step 2 found, step 3 expected before the checkpoint");
    bad = place;
    bad.events_bytes += 100;
    refuse(&bad, FL_EFORMAT, "events.jsonl: ");
    assert_non_null(strstr(fl_errmsg(), "lines of before the checkpoint are missing"));
    unlinkat(dir_fd, "events.jsonl", 0);
    refuse(&place, FL_EIO, "events.jsonl: No such file or directory");
    unlinkat(dir_fd, "events.jsonl", 0);
    assert_int_equal(mkfifoat(dir_fd, "events.jsonl", 0600), 0);
    refuse(&place, FL_EFORMAT, "events.jsonl: not a regular file");
}

static void test_resume_files__begins_at_the_first_step(void **state)
{
    (void)state;
    fl_runfiles_cut cut;
    fl_runfiles_place place = {.events_bytes = 0};
    run_to(0, 2);
    fl_runfiles_close(&files);
    assert_int_equal(fl_runfiles_check_place(dir_fd, &place, &cut), FL_OK);
    assert_int_equal(cut.n_steps, 2);
    assert_int_equal(fl_runfiles_resume(&files, dir_fd, &place), FL_OK);
    assert_int_equal(length_of("steps.jsonl"), 0);
    assert_int_equal(length_of("events.jsonl"), 0);
}

/* Workers append their lines in any order, and one may die within a line. */
static void test_resume_files__drops_hashes_of_later_steps(void **state)
{
    (void)state;
    static char text[TEXT_MAX];
    put("weights.jsonl", "{\"step\": 2, \"layer\": 0}\n{\"step\": 4, \"layer\": 0}\n"
                         "{\"step\": 2, \"layer\": 1}\n{\"step\": 3, \"layer\": 1}\n{\"step\": 1");
    assert_int_equal(fl_runfiles_cut_hashes(dir_fd, 3), FL_OK);
    get("weights.jsonl", text);
    assert_string_equal(text, "{\"step\": 2, \"layer\": 0}\n{\"step\": 2, \"layer\": 1}\n"
                              "{\"step\": 3, \"layer\": 1}\n");
    assert_int_not_equal(faccessat(dir_fd, "weights.jsonl.part", F_OK, 0), 0);
    assert_int_equal(mkdirat(dir_fd, "weights.jsonl.part", 0700), 0);
    assert_int_equal(fl_runfiles_cut_hashes(dir_fd, 3), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "weights.jsonl.part: Is a directory"));
    unlinkat(dir_fd, "weights.jsonl.part", AT_REMOVEDIR);
    unlinkat(dir_fd, "weights.jsonl", 0);
    assert_int_equal(fl_runfiles_cut_hashes(dir_fd, 3), FL_OK);
    assert_int_not_equal(faccessat(dir_fd, "weights.jsonl", F_OK, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_resume_files__cuts_what_follows_and_continues, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_resume_files__counts_a_line_that_is_cut, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_resume_files__reads_no_zeros_after_the_place, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_resume_files__refuses_files_without_the_place, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_resume_files__begins_at_the_first_step, set_up, clean),
        cmocka_unit_test_setup_teardown(test_resume_files__drops_hashes_of_later_steps, set_up,
                                        clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
