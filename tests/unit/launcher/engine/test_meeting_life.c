/* What is known of a task of a start: it lives, it has ended, or neither is known. Would catch: a
 * task that is killed at any moment, and for which others wait ten minutes; and one that counts as
 * ended because its lock cannot be seen, or because it has not come yet. */
#include "launcher/engine/meeting_life.h"
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

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

static void test_life__a_task_of_this_machine_is_known(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    make_folder(dir);
    open_task(dir, 0, 3, &m);
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_NOT_KNOWN);
    meeting_write(m.dir, "lock-1", ""); /* as between its file and its lock */
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_NOT_KNOWN);
    pid_t task = meeting_start(dir, 1, 3, MEETING_STAYS);
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_LIVES);
    meeting_kill(task);
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_HAS_ENDED);
    assert_int_equal(remove_folder(dir), 0);
}

/* Where locks do not reach other hosts, a lock that is held there looks free. */
static void test_life__a_task_of_another_machine_is_known_once_locks_reach(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    make_folder(dir);
    open_task(dir, 0, 3, &m);
    meeting_kill(meeting_start(dir, 1, 3, MEETING_STAYS_ELSEWHERE));
    pid_t near = meeting_start(dir, 2, 3, MEETING_STAYS);
    assert_int_equal(fl_meeting_life(&m, 2), FL_TASK_LIVES);
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_NOT_KNOWN);
    meeting_kill(near);
    pid_t far = meeting_start(dir, 3, 4, MEETING_STAYS_ELSEWHERE);
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_NOT_KNOWN);
    assert_int_equal(fl_meeting_life(&m, 3), FL_TASK_LIVES);
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_HAS_ENDED);
    meeting_kill(far);
    assert_int_equal(fl_meeting_life(&m, 3), FL_TASK_HAS_ENDED);
    assert_int_equal(remove_folder(dir), 0);
}

static void test_life__a_task_that_says_it_leaves_has_ended(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    make_folder(dir);
    open_task(dir, 0, 2, &m);
    pid_t task = meeting_start(dir, 1, 2, MEETING_STAYS);
    meeting_write(m.dir, "left-1", "");
    assert_int_equal(fl_meeting_life(&m, 1), FL_TASK_HAS_ENDED);
    meeting_kill(task);
    assert_int_equal(remove_folder(dir), 0);
}

/* ---- before the head's first look ---- */

static void check_killed(int n, meeting_part part)
{
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host hosts[3];
    fl_engine_task head = meeting_task(0, n);
    int number = 0;
    make_folder(dir);
    meeting_kill(meeting_start(dir, 1, n, part));
    open_task(dir, 0, n, &m);
    come(&m);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_no_stop, hosts, &number),
                     FL_EPEER);
    assert_non_null(strstr(fl_errmsg(), "task 1 (n2) has ended before the run began"));
    assert_int_equal(remove_folder(dir), 0);
}

static void test_life__one_killed_before_the_first_look_is_noticed(void **state)
{
    (void)state;
    check_killed(2, MEETING_COMES);
    check_killed(3, MEETING_COMES);
}

/* It had its lock, and had not said yet which host it has. */
static void test_life__one_killed_before_it_has_come_is_noticed(void **state)
{
    (void)state;
    check_killed(2, MEETING_STAYS);
    check_killed(3, MEETING_STAYS);
}

/* The task has gone by the time the head looks for it, and the head itself is to stop. */
static void test_life__a_signal_for_all_is_the_heads(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host hosts[3];
    fl_engine_task head = meeting_task(0, 2);
    int number = 0;
    make_folder(dir);
    meeting_kill(meeting_start(dir, 1, 2, MEETING_COMES));
    open_task(dir, 0, 2, &m);
    come(&m);
    assert_int_equal(
        fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_terminated, hosts, &number),
        FL_ESTOPPED);
    assert_int_equal(number, SIGTERM);
    assert_int_equal(remove_folder(dir), 0);
}

/* ---- the head ---- */

/* Would catch: a task that comes after the head was killed, and that waits ten minutes. */
static void test_life__a_late_task_finds_a_killed_head(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    make_folder(dir);
    meeting_kill(meeting_start(dir, 0, 3, MEETING_STAYS));
    pid_t late[2];
    for (int i = 0; i < 2; i++) {
        late[i] = meeting_start(dir, i + 1, 3, MEETING_AWAITS);
    }
    assert_int_equal(meeting_exit(late[0]), 3);
    assert_int_equal(meeting_exit(late[1]), 3);
    assert_int_equal(remove_folder(dir), 0);
}

/* ---- leftovers ---- */

/* All tasks of a start were killed once the head had said where to join, and another start has the
 * same name. Would catch: a task that takes the former head for its own, ends, and removes the
 * folder under the others; and one that joins where nobody is. */
static void test_life__a_start_is_not_that_of_its_name_before(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host hosts[2];
    fl_engine_task head = meeting_task(0, 2);
    int number = 0;
    make_folder(dir);
    pid_t former[2];
    for (int i = 0; i < 2; i++) {
        former[i] = meeting_start(dir, i, 2, MEETING_COMES);
    }
    snprintf(m.dir, sizeof m.dir, "%s/" FL_MEETING_FOLDER "%s", dir, head.start);
    meeting_write(m.dir, "join", "tcp://10.0.0.9:1");
    meeting_kill(former[0]);
    meeting_kill(former[1]);
    pid_t task = meeting_start(dir, 1, 2, MEETING_AWAITS);
    open_task(dir, 0, 2, &m);
    come(&m);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_no_stop, hosts, &number),
                     FL_OK);
    assert_int_equal(fl_meeting_announce(m.dir, "tcp://10.0.0.1:5570"), FL_OK);
    assert_int_equal(meeting_exit(task), MEETING_JOINS);
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: a head that waits ten minutes for tasks that have ended because somebody removed the
 * folder. */
static void test_life__a_folder_that_is_removed_ends_the_wait(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    fl_meeting_host hosts[2];
    fl_engine_task head = meeting_task(0, 2);
    int number = 0;
    bool unfit = true;
    make_folder(dir);
    open_task(dir, 0, 2, &m);
    come(&m);
    assert_false(fl_meeting_has_lost(m.dir, 1, &unfit));
    fl_meeting_clear(m.dir);
    assert_true(fl_meeting_has_lost(m.dir, 1, &unfit));
    assert_false(unfit);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_no_stop, hosts, &number),
                     FL_EPEER);
    assert_non_null(strstr(fl_errmsg(), "was removed before the run began"));
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: a head that ends with a code for which a scheduler starts it again. */
static void test_life__a_host_that_cannot_take_part_is_named(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], note[FL_MEETING_NOTE];
    fl_meeting m;
    fl_meeting_host hosts[2];
    fl_engine_task head = meeting_task(0, 2);
    int number = 0;
    bool unfit = true;
    make_folder(dir);
    open_task(dir, 0, 2, &m);
    come(&m);
    m.is_first = false;
    fl_meeting_note_left("0123456789abcdef0123456789abcdef", true, note); /* of another start */
    meeting_write(m.dir, "left-1", note);
    assert_false(fl_meeting_has_lost(m.dir, 1, &unfit) || unfit);
    fl_meeting_note_left(m.start, true, note);
    meeting_write(m.dir, "left-1", note);
    assert_true(fl_meeting_has_lost(m.dir, 1, &unfit) && unfit);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_no_stop, hosts, &number),
                     FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "task 1 (n2) has ended before the run began, because"));
    assert_int_equal(remove_folder(m.dir), 0);
    assert_int_equal(remove_folder(dir), 0);
}

/* Nobody has seen the lock of the head on its other machine; but the run does not begin any more.
 */
static void test_life__a_late_task_does_not_wait_where_another_has_left(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_meeting m;
    int code = 0;
    make_folder(dir);
    meeting_kill(meeting_start(dir, 0, 3, MEETING_STAYS_ELSEWHERE));
    open_task(dir, 1, 3, &m);
    assert_int_equal(fl_meeting_await(&m, 1, meeting_no_stop, endpoint, &code), FL_EDEADLINE);
    meeting_write(m.dir, "left-2", "");
    assert_int_equal(fl_meeting_await(&m, MEETING_WAIT_MS, meeting_no_stop, endpoint, &code),
                     FL_EFAILED);
    assert_int_equal(code, 3);
    assert_int_equal(remove_folder(dir), 0);
}

/* What a task that has the endpoint asks while it joins. */
static void test_life__a_task_that_joins_finds_the_end(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    int code = 0;
    make_folder(dir);
    open_task(dir, 1, 2, &m);
    pid_t head = meeting_start(dir, 0, 2, MEETING_STAYS);
    meeting_write(m.dir, "join", "tcp://10.0.0.1:5570");
    assert_int_equal(fl_meeting_check_head(&m, &code), FL_OK);
    meeting_write(m.dir, "over", "5\n");
    assert_int_equal(fl_meeting_check_head(&m, &code), FL_EFAILED);
    assert_int_equal(code, 5);
    meeting_kill(head);
    assert_int_equal(fl_meeting_check_head(&m, &code), FL_EFAILED);
    assert_int_equal(code, 5); /* it has said so before */
    assert_int_equal(remove_folder(m.dir), 0);
    assert_int_equal(fl_meeting_check_head(&m, &code), FL_EFAILED);
    assert_int_equal(code, 3);
    assert_int_equal(remove_folder(dir), 0);
}

/* ---- a signal ---- */

static const char *stopped_dir;

/* The signal has come to the head a moment earlier or later. */
static int stop_all(void)
{
    meeting_write(stopped_dir, "over", "130\n");
    return SIGINT;
}

/* Would catch: a task that leaves before the head has noticed a signal for both, so that the head
 * counts it as lost. */
static void test_life__a_signal_for_all_ends_the_head_first(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_meeting m;
    int code = 0;
    make_folder(dir);
    open_task(dir, 1, 2, &m);
    stopped_dir = m.dir;
    meeting_write(m.dir, "start", "0123456789abcdef0123456789abcdef");
    assert_int_equal(fl_meeting_await(&m, MEETING_WAIT_MS, stop_all, endpoint, &code), FL_EFAILED);
    assert_int_equal(code, 130);
    assert_int_equal(remove_folder(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life__a_task_of_this_machine_is_known),
        cmocka_unit_test(test_life__a_task_of_another_machine_is_known_once_locks_reach),
        cmocka_unit_test(test_life__a_task_that_says_it_leaves_has_ended),
        cmocka_unit_test(test_life__one_killed_before_the_first_look_is_noticed),
        cmocka_unit_test(test_life__one_killed_before_it_has_come_is_noticed),
        cmocka_unit_test(test_life__a_signal_for_all_is_the_heads),
        cmocka_unit_test(test_life__a_host_that_cannot_take_part_is_named),
        cmocka_unit_test(test_life__a_late_task_finds_a_killed_head),
        cmocka_unit_test(test_life__a_start_is_not_that_of_its_name_before),
        cmocka_unit_test(test_life__a_folder_that_is_removed_ends_the_wait),
        cmocka_unit_test(test_life__a_late_task_does_not_wait_where_another_has_left),
        cmocka_unit_test(test_life__a_task_that_joins_finds_the_end),
        cmocka_unit_test(test_life__a_signal_for_all_ends_the_head_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
