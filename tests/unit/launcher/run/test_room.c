/* Whether what a run writes fits where it is written. Would catch: a nearly full file system that
 * nobody hears of before the run, and a warning about one with enough room. */
#include "launcher/job/job.h"
#include "launcher/run/checks/room.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1 << 20, N_PARAMS = MIB };

static void test_room__counts_what_a_run_writes(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    job.checkpoint.keep = 2;
    job.checkpoint.every = (fl_interval){.steps = 10};
    job.train.optimizer = FL_ADAMW;
    fl_room_need need = fl_room_of_run(&job, N_PARAMS, 3);
    assert_int_equal(need.records, 7 * MIB);
    assert_int_equal(need.model, 4 * MIB);
    assert_int_equal(need.checkpoints, 4 * 12 * MIB); /* the best one, and one that is written */
    job.checkpoint.every = (fl_interval){0};
    job.run.save_model = false;
    need = fl_room_of_run(&job, N_PARAMS, 3);
    assert_int_equal(need.model + need.checkpoints, 0);
    assert_int_equal(fl_room_of_logs(3).records, 3 * MIB);
}

static void test_room__says_where_what_was_found_and_what_is_needed(void **state)
{
    (void)state;
    char text[512] = "";
    const fl_room_need need = {.records = 4 * MIB, .model = 8 * MIB, .checkpoints = 52 * MIB};
    assert_true(fl_room_fits("runs/a", 64 * MIB, &need, text, sizeof text));
    assert_true(fl_room_fits("runs/a", -1, &need, text, sizeof text)); /* not known */
    assert_string_equal(text, "");
    assert_false(fl_room_fits("runs/a", 3 * MIB, &need, text, sizeof text));
    assert_non_null(strstr(text, "runs/a has 3.0 MiB free, and the run may write 64.0 MiB there"));
    assert_non_null(strstr(text, "checkpoints 52.0 MiB"));
}

static void test_room__asks_the_file_system(void **state)
{
    (void)state;
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(fl_room_left(fd) >= 0);
    close(fd);
    assert_int_equal(fl_room_left(-1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room__counts_what_a_run_writes),
        cmocka_unit_test(test_room__says_where_what_was_found_and_what_is_needed),
        cmocka_unit_test(test_room__asks_the_file_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
