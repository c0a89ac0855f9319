/* What the record says of a run that continues from a checkpoint. Would catch: a resumed run that
 * counts from zero what its record has, or counts what is cut off; and a damaged record that is
 * read without an end. */
#include "control/events/record_sums.h"

#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[FOLDER_SIZE];
static int dir_fd;
static FILE *events;

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(dir_fd, "events.jsonl", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    events = fdopen(fd, "w");
    return events == NULL ? -1 : 0;
}

static int clean(void **state)
{
    (void)state;
    fclose(events);
    close(dir_fd);
    return remove_folder(folder);
}

static void put(const char *name, const char *fields)
{
    fprintf(events,
            "{\"time\": 1.0, \"wall\": \"2026-11-29T12:00:00.000Z\", \"event\": \"%s\"%s}\n", name,
            fields);
}

static void put_written(int step)
{
    fprintf(events,
            "{\"time\": 1.0, \"event\": \"checkpoint.written\", \"checkpoint\": "
            "\"checkpoints/step-%09d\", \"step\": %d, \"bytes\": %d, \"linked_bytes\": 7, "
            "\"copy_ms\": 250, \"write_ms\": 500, \"commit_ms\": 250}\n",
            step, step, step * 100);
}

static fl_record_sums read_at(int64_t step, long place_bytes)
{
    fl_record_sums sums;
    fl_runfiles_place place = {.step = step, .events_bytes = place_bytes};
    fflush(events);
    fl_record_sums_read(dir_fd, &place, &sums);
    return sums;
}

static void test_record_sums__count_up_to_the_checkpoint(void **state)
{
    (void)state;
    put("run.started", "");
    put_written(10);
    put("run.recovered", ", \"without_training_ms\": 1500");
    put("checkpoint.failed", ", \"why\": \"the event \\\"event\\\": \\\"checkpoint.written\\\"\"");
    put("run.resumed", ", \"checkpoint\": \"runs/a/checkpoints/step-000000010\", \"step\": 10");
    put("run.resumed", ", \"checkpoint\": \"the snapshot in memory\", \"step\": 12");
    put("run.returned", ", \"without_training_ms\": 2500");
    long place = ftell(events);
    put("epoch.finished", "");
    put_written(20);
    put("run.recovered", ", \"without_training_ms\": 9000");
    put("checkpoint.failed", "");
    put_written(30);
    fl_record_sums sums = read_at(20, place);
    assert_int_equal(sums.n_written, 3); /* after 10 steps, 10 again, and 20 */
    assert_int_equal(sums.n_failed, 1);
    assert_int_equal(sums.bytes, 2000);
    assert_int_equal(sums.linked_bytes, 7);
    assert_true(sums.seconds == 1.0);
    assert_true(sums.without_training_s == 2.5);
}

static void test_record_sums__a_run_that_ended_before_its_event(void **state)
{
    (void)state;
    put("run.started", "");
    fl_record_sums sums = read_at(10, ftell(events));
    assert_int_equal(sums.n_written, 1);
    assert_int_equal(sums.n_failed, 0);
    assert_int_equal(sums.bytes, 0);
    assert_true(sums.seconds == 0.0 && sums.without_training_s == 0.0);
    assert_int_equal(unlinkat(dir_fd, "events.jsonl", 0), 0);
    assert_int_equal(read_at(10, 100).n_written, 1);
}

/* A line that is longer than any event of interest, and the zeros of a power failure. */
static void test_record_sums__a_record_of_anything(void **state)
{
    (void)state;
    for (int i = 0; i < 5000; i++) {
        fputs("\"event\": \"checkpoint.written\", ", events);
    }
    fputs("\n", events);
    put_written(10);
    long place = ftell(events);
    put_written(20);
    fflush(events);
    assert_int_equal(ftruncate(fileno(events), INT64_C(1) << 33), 0);
    fl_record_sums sums = read_at(20, place);
    assert_int_equal(sums.n_written, 2);
    assert_int_equal(sums.bytes, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_record_sums__count_up_to_the_checkpoint, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_record_sums__a_run_that_ended_before_its_event, set_up,
                                        clean),
        cmocka_unit_test_setup_teardown(test_record_sums__a_record_of_anything, set_up, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
