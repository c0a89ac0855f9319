/* The folder where the tasks of one start meet. Would catch: a folder that others may read, a file
 * of somebody else that is believed, tasks that wait for a head which has ended, and a folder that
 * stays. */
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
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const endpoint_text = "tcp://10.0.0.1:5570";

static void open_head(const char *parent, int n, fl_meeting *m)
{
    fl_engine_task task = meeting_task(0, n);
    assert_int_equal(fl_meeting_open(parent, &task, m), FL_OK);
}

static void come(fl_meeting *m)
{
    fl_meeting_host self = {.name = "n1", .address = "10.0.0.1", .n_devices = 1};
    assert_int_equal(fl_meeting_enter(m, &self), FL_OK);
}

static void test_meeting__tasks_meet(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], parent[FOLDER_SIZE + 16], endpoint[FL_MEETING_ENDPOINT];
    fl_meeting m;
    fl_meeting_host hosts[3];
    fl_engine_task head = meeting_task(0, 3);
    struct stat info;
    pid_t tasks[2];
    int code = 0, number = 0;
    make_folder(dir);
    snprintf(parent, sizeof parent, "%s/a/runs", dir);
    open_head(parent, 3, &m);
    come(&m);
    for (int i = 0; i < 2; i++) {
        tasks[i] = meeting_start(parent, i + 1, 3, MEETING_COMES);
    }
    assert_int_equal(stat(m.dir, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_no_stop, hosts, &number),
                     FL_OK);
    assert_string_equal(hosts[2].name, "n3");
    assert_string_equal(hosts[1].address, "10.0.0.2");
    assert_int_equal(hosts[2].n_devices, 3);
    bool unfit = false;
    assert_false(fl_meeting_has_lost(m.dir, 1, &unfit) || fl_meeting_has_lost(m.dir, 2, &unfit));
    assert_int_equal(fl_meeting_announce(m.dir, endpoint_text), FL_OK);
    meeting_kill(tasks[0]);
    assert_true(fl_meeting_has_lost(m.dir, 1, &unfit));
    assert_false(unfit || fl_meeting_has_lost(m.dir, 2, &unfit));
    meeting_kill(tasks[1]);
    fl_engine_task other = meeting_task(3, 4);
    fl_meeting again;
    assert_int_equal(fl_meeting_open(parent, &other, &again), FL_OK);
    pid_t holder = meeting_start(parent, 2, 3, MEETING_STAYS);
    close(m.lock_fd); /* its own lock looks free to this process */
    assert_int_equal(unlink(strcat(strcpy(parent, m.dir), "/head")), 0);
    assert_int_equal(fl_meeting_await(&again, MEETING_WAIT_MS, meeting_no_stop, endpoint, &code),
                     FL_OK);
    assert_string_equal(endpoint, endpoint_text);
    meeting_kill(holder);
    assert_int_equal(remove_folder(dir), 0);
}

/* 0: the run has finished long ago. */
static void test_meeting__tasks_end_with_the_head_and_leave_nothing(void **state)
{
    (void)state;
    for (int head_code = 0; head_code <= 3; head_code += 3) {
        char dir[FOLDER_SIZE];
        pid_t late[2];
        fl_meeting m;
        make_folder(dir);
        open_head(dir, 3, &m);
        for (int i = 0; i < 2; i++) {
            late[i] = meeting_start(dir, i + 1, 3, MEETING_AWAITS);
        }
        fl_meeting_end(&m, head_code);
        fl_meeting_leave(&m);
        assert_int_equal(meeting_exit(late[0]), head_code);
        assert_int_equal(meeting_exit(late[1]), head_code);
        assert_int_equal(rmdir(dir), 0);
    }
}

static void test_meeting__nothing_is_left_of_a_run(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    make_folder(dir);
    open_head(dir, 3, &m);
    meeting_write(m.dir, "task-1", "n2 10.0.0.2 1\n"); /* of a host that has failed */
    meeting_write(m.dir, "join", endpoint_text);
    fl_meeting_end(&m, 0);
    fl_meeting_leave(&m);
    assert_int_equal(rmdir(dir), 0);
}

/* Would catch: a folder that stays because a task of the start was killed, and one that waits for a
 * head which nobody can hear of any more. */
static void test_meeting__a_killed_task_leaves_nothing(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_meeting m;
    make_folder(dir);
    open_head(dir, 3, &m);
    meeting_kill(meeting_start(dir, 2, 3, MEETING_STAYS));
    meeting_kill(meeting_start(dir, 1, 3, MEETING_COMES));
    fl_meeting_end(&m, 2);
    fl_meeting_leave(&m);
    assert_int_equal(rmdir(dir), 0);
}

/* Would catch: tasks that wait ten minutes for a head which is killed before the run begins. */
static void test_meeting__a_killed_head_is_noticed(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    pid_t late[2];
    make_folder(dir);
    for (int i = 0; i < 2; i++) {
        late[i] = meeting_start(dir, i + 1, 3, MEETING_AWAITS);
    }
    pid_t head = meeting_start(dir, 0, 3, MEETING_STAYS);
    meeting_await_start(dir, 1);
    meeting_await_start(dir, 2);
    meeting_kill(head);
    assert_int_equal(meeting_exit(late[0]), 3);
    assert_int_equal(meeting_exit(late[1]), 3);
    assert_int_equal(rmdir(dir), 0);
}

/* Would catch: a head that waits ten minutes for a task which a signal has ended. */
static void test_meeting__a_stopped_task_is_noticed(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_engine_task head = meeting_task(0, 3), other = meeting_task(1, 3);
    fl_meeting_host hosts[3];
    fl_meeting m, stopped;
    int number = 0;
    make_folder(dir);
    open_head(dir, 3, &m);
    close(m.lock_fd); /* its own lock looks free to this process */
    assert_int_equal(fl_meeting_open(dir, &other, &stopped), FL_OK);
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/head", m.dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(
        fl_meeting_await(&stopped, MEETING_WAIT_MS, meeting_terminated, endpoint, &number),
        FL_ESTOPPED);
    assert_int_equal(number, SIGTERM);
    fl_meeting_leave(&stopped);
    assert_int_equal(fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_no_stop, hosts, &number),
                     FL_EPEER);
    assert_non_null(strstr(fl_errmsg(), "task 1 (n2) has ended before the run began"));
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: a task of a slow host that waits ten minutes for a head that has long ended. */
static void test_meeting__a_late_task_finds_the_last_word(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_engine_task head = meeting_task(0, 3);
    fl_meeting_host hosts[3];
    fl_meeting m;
    int number = 0;
    make_folder(dir);
    open_head(dir, 3, &m);
    assert_int_equal(
        fl_meeting_gather(&m, &head, MEETING_WAIT_MS, meeting_terminated, hosts, &number),
        FL_ESTOPPED);
    assert_int_equal(number, SIGTERM);
    fl_meeting_end(&m, 5);
    fl_meeting_leave(&m);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(meeting_exit(meeting_start(dir, i, 3, MEETING_AWAITS)), 5);
    }
    assert_int_equal(remove_folder(dir), 0); /* another head may look for the end of these tasks */
}

static void make_old(const char *dir)
{
    const struct timeval old[2] = {{.tv_sec = time(NULL) - 2 * FL_MEETING_STALE_S},
                                   {.tv_sec = time(NULL) - 2 * FL_MEETING_STALE_S}};
    assert_int_equal(utimes(dir, old), 0);
}

/* Would catch: a folder that stays after all of its tasks were killed, and one that is taken from
 * tasks that live. */
static void test_meeting__a_later_start_removes_what_was_left(void **state)
{
    (void)state;
    static const char *const starts[] = {"old", "young", "held"};
    char dir[FOLDER_SIZE];
    fl_meeting m[3], next;
    make_folder(dir);
    for (int i = 0; i < 2; i++) {
        fl_engine_task task = meeting_task(0, 3);
        snprintf(task.start, sizeof task.start, "%s", starts[i]);
        assert_int_equal(fl_meeting_open(dir, &task, &m[i]), FL_OK);
        meeting_write(m[i].dir, "task-1", "n2 10.0.0.2 1\n");
        close(m[i].lock_fd); /* as its head's end does */
    }
    pid_t holder = meeting_start(dir, 0, 3, MEETING_STAYS);
    snprintf(m[2].dir, sizeof m[2].dir, "%s/" FL_MEETING_FOLDER "7-0-0", dir);
    make_old(m[0].dir);
    make_old(m[2].dir);
    fl_engine_task task = meeting_task(0, 3);
    snprintf(task.start, sizeof task.start, "next");
    assert_int_equal(fl_meeting_open(dir, &task, &next), FL_OK);
    assert_int_equal(access(m[0].dir, F_OK), -1);
    assert_int_equal(access(m[1].dir, F_OK), 0);
    assert_int_equal(access(m[2].dir, F_OK), 0);
    fl_meeting_abandon(&m[2]);
    assert_int_equal(access(m[2].dir, F_OK), 0);
    meeting_kill(holder);
    meeting_write(next.dir, "join", endpoint_text);
    fl_meeting_end(&next, 0);
    fl_meeting_leave(&next);
    fl_meeting_abandon(&m[1]);
    fl_meeting_abandon(&m[2]);
    assert_int_equal(rmdir(dir), 0);
}

static void test_meeting__names_the_hosts_that_are_missing(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT], text[128];
    fl_engine_task task = meeting_task(0, 3);
    fl_meeting m;
    fl_meeting_host hosts[3];
    int code = 0, number = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &task, &m), FL_OK);
    snprintf(text, sizeof text, "n2 10.0.0.2 1 %s\n", m.start);
    meeting_write(m.dir, "task-1", text);
    assert_int_equal(fl_meeting_gather(&m, &task, 1, meeting_no_stop, hosts, &number),
                     FL_EDEADLINE);
    assert_non_null(strstr(fl_errmsg(), "no sign of n1, n3 in "));
    fl_engine_task other = meeting_task(2, 3);
    fl_meeting late;
    pid_t head = 0;
    close(m.lock_fd);
    head = meeting_start(dir, 0, 3, MEETING_STAYS);
    assert_int_equal(fl_meeting_open(dir, &other, &late), FL_OK);
    assert_int_equal(fl_meeting_await(&late, 1, meeting_no_stop, endpoint, &code), FL_EDEADLINE);
    meeting_kill(head);
    assert_int_equal(remove_folder(dir), 0);
}

static void test_meeting__refuses_what_no_task_wrote(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "n2",
                                      "n2 10.0.0.2\n",
                                      "n2 10.0.0.2 0 -\n",
                                      "n2 10.0.0.2 1 -",
                                      "n2 10.0.0.2 1\n",
                                      "n2 10.0.0.2 1 - x\n",
                                      "n2 10.0.0 1 -\n",
                                      "n2 10.0.0.2 99999999 -\n"};
    char dir[FOLDER_SIZE];
    fl_engine_task task = meeting_task(0, 3);
    fl_meeting m;
    fl_meeting_host hosts[3];
    int number = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &task, &m), FL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        meeting_write(m.dir, "task-1", bad[i]);
        if (fl_meeting_gather(&m, &task, MEETING_WAIT_MS, meeting_no_stop, hosts, &number) !=
            FL_EFORMAT) {
            fail_msg("'%s' is accepted", bad[i]);
        }
    }
    assert_int_equal(chmod(m.dir, 0750), 0);
    assert_int_equal(fl_meeting_open(dir, &task, &m), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "found what others may read"));
    assert_int_equal(remove_folder(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meeting__tasks_meet),
        cmocka_unit_test(test_meeting__tasks_end_with_the_head_and_leave_nothing),
        cmocka_unit_test(test_meeting__nothing_is_left_of_a_run),
        cmocka_unit_test(test_meeting__a_killed_task_leaves_nothing),
        cmocka_unit_test(test_meeting__a_killed_head_is_noticed),
        cmocka_unit_test(test_meeting__a_stopped_task_is_noticed),
        cmocka_unit_test(test_meeting__a_late_task_finds_the_last_word),
        cmocka_unit_test(test_meeting__a_later_start_removes_what_was_left),
        cmocka_unit_test(test_meeting__names_the_hosts_that_are_missing),
        cmocka_unit_test(test_meeting__refuses_what_no_task_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
