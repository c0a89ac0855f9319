/* A start whose name an earlier one had, whose tasks were killed, or of which only the head came.
 * Would catch: a task that takes what those have left for the end of a task of its own start, and a
 * task that then waits ten minutes in a folder where nobody comes. */
#include "launcher/engine/meeting.h"
#include "launcher/engine/meeting_tidy.h"
#include "support/folder.h"
#include "support/hosts/meeting_tasks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LATE = 25 }; /* looks of a task at the others, more than for as long as it has doubts */

static void open_task(const char *parent, int rank, int n, fl_meeting *m)
{
    fl_engine_task task = meeting_task(rank, n);
    assert_int_equal(fl_meeting_open(parent, &task, m), FL_OK);
    assert_true(m->lock_fd >= 0);
}

static void come(fl_meeting *m)
{
    fl_meeting_host self = {.name = "n1", .address = "10.0.0.1", .n_devices = 1};
    assert_int_equal(fl_meeting_enter(m, &self), FL_OK);
}

/* ---- another task comes at a look ---- */

static struct {
    const char *dir;
    int rank, n, looks;
    meeting_part part;
    pid_t task;
} late;

static void set_late(const char *dir, int rank, int n, int looks, meeting_part part)
{
    late.dir = dir;
    late.rank = rank;
    late.n = n;
    late.looks = looks;
    late.part = part;
}

static int start_late(void)
{
    if (--late.looks == 0) {
        late.task = meeting_start(late.dir, late.rank, late.n, late.part);
    }
    return 0;
}

/* ---- what is left ---- */

/* All tasks of the start before were killed when they had met. */
static void leave_killed(const char *dir, int n)
{
    pid_t former[MEETING_TASKS];
    fl_engine_task head = meeting_task(0, n);
    char folder[PATH_MAX];
    for (int i = 0; i < n; i++) {
        former[i] = meeting_start(dir, i, n, MEETING_COMES);
    }
    snprintf(folder, sizeof folder, "%s/" FL_MEETING_FOLDER "%s", dir, head.start);
    meeting_write(folder, "join", "tcp://10.0.0.9:1");
    for (int i = 0; i < n; i++) {
        meeting_kill(former[i]);
    }
}

/* The head of the start before was alone, and a signal has ended it. */
static void leave_word(const char *dir, int n)
{
    fl_meeting m;
    open_task(dir, 0, n, &m);
    meeting_write(m.dir, "over", "5\n");
    fl_meeting_leave(&m);
}

/* ---- the head first ---- */

static void meet_late(int n, int looks)
{
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host hosts[MEETING_TASKS];
    fl_engine_task head = meeting_task(0, n);
    int number = 0;
    make_folder(dir);
    leave_killed(dir, n);
    open_task(dir, 0, n, &m);
    come(&m);
    pid_t other = n == 3 ? meeting_start(dir, 1, n, MEETING_AWAITS) : 0;
    set_late(dir, n - 1, n, looks, MEETING_AWAITS);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, start_late, hosts, &number),
                     FL_OK);
    assert_int_equal(fl_meeting_announce(m.dir, MEETING_ENDPOINT), FL_OK);
    assert_int_equal(meeting_exit(late.task), MEETING_JOINS);
    assert_true(other == 0 || meeting_exit(other) == MEETING_JOINS);
    assert_int_equal(remove_folder(dir), 0);
}

static void test_again__the_head_waits_for_a_task_that_was_killed_before(void **state)
{
    (void)state;
    meet_late(2, 3);
}

static void test_again__the_head_waits_for_the_last_of_three_tasks(void **state)
{
    (void)state;
    meet_late(3, LATE);
}

/* What a task says of its host is for one head. */
static void test_again__a_host_of_the_start_before_has_not_come(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host hosts[MEETING_TASKS];
    fl_engine_task head = meeting_task(0, 2);
    int number = 0;
    make_folder(dir);
    leave_killed(dir, 2);
    open_task(dir, 0, 2, &m);
    come(&m);
    assert_int_equal(fl_meeting_gather(&m, &head, 1, meeting_no_stop, hosts, &number),
                     FL_EDEADLINE);
    assert_non_null(strstr(fl_errmsg(), "no sign of n2 in "));
    assert_int_equal(remove_folder(dir), 0);
}

/* ---- another task first ---- */

static void await_late_head(void (*leave)(const char *dir, int n), int looks)
{
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_meeting m;
    int code = 0;
    make_folder(dir);
    leave(dir, 2);
    open_task(dir, 1, 2, &m);
    come(&m);
    set_late(dir, 0, 2, looks, MEETING_LEADS);
    assert_int_equal(fl_meeting_await(&m, MEETING_WAIT_MS, start_late, endpoint, &code), FL_OK);
    assert_string_equal(endpoint, MEETING_ENDPOINT);
    meeting_kill(late.task);
    assert_int_equal(remove_folder(dir), 0);
}

static void test_again__a_task_knows_the_head_of_its_start_before(void **state)
{
    (void)state;
    await_late_head(leave_killed, LATE);
}

static void test_again__a_task_doubts_a_last_word_that_it_found(void **state)
{
    (void)state;
    await_late_head(leave_word, 3);
}

/* The task cannot know that the word is of a start before. Neither waits for the other one. */
static void test_again__a_head_finds_the_end_of_a_task_that_took_a_word_for_its_own(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host hosts[MEETING_TASKS];
    fl_engine_task head = meeting_task(0, 2);
    int number = 0;
    make_folder(dir);
    leave_word(dir, 2);
    assert_int_equal(meeting_exit(meeting_start(dir, 1, 2, MEETING_AWAITS)), 5);
    open_task(dir, 0, 2, &m);
    come(&m);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_no_stop, hosts, &number),
                     FL_EPEER);
    assert_non_null(strstr(fl_errmsg(), "task 1 (n2) has ended before the run began"));
    assert_int_equal(remove_folder(dir), 0);
}

/* ---- the folder ---- */

static void test_again__a_folder_that_is_removed_is_named(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host self = {.name = "n1", .address = "10.0.0.1", .n_devices = 1};
    make_folder(dir);
    open_task(dir, 0, 2, &m);
    fl_meeting_clear(m.dir);
    assert_int_equal(fl_meeting_enter(&m, &self), FL_EPEER);
    assert_non_null(strstr(fl_errmsg(), ".start-7-0-0 was removed before the run began"));
    assert_int_equal(fl_meeting_announce(m.dir, MEETING_ENDPOINT), FL_EPEER);
    assert_int_equal(remove_folder(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again__the_head_waits_for_a_task_that_was_killed_before),
        cmocka_unit_test(test_again__the_head_waits_for_the_last_of_three_tasks),
        cmocka_unit_test(test_again__a_host_of_the_start_before_has_not_come),
        cmocka_unit_test(test_again__a_task_knows_the_head_of_its_start_before),
        cmocka_unit_test(test_again__a_task_doubts_a_last_word_that_it_found),
        cmocka_unit_test(test_again__a_head_finds_the_end_of_a_task_that_took_a_word_for_its_own),
        cmocka_unit_test(test_again__a_folder_that_is_removed_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
