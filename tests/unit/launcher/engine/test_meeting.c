/* The folder where the tasks of one start meet. Would catch: a folder that others may read, a file
 * of somebody else that is believed, tasks that wait for a head which has ended, and a folder that
 * stays. */
#include "launcher/engine/meeting.h"
#include "launcher/engine/meeting_tidy.h"
#include "support/folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 20000 };

static int looks[2]; /* a pipe */

static const char nodes[] = "n[1-3]";

static int no_stop(void)
{
    return 0;
}

/* Tell, once for a task, that it has looked at the folder. */
static int tell_look(void)
{
    static int n;
    n++;
    if (n == 2) {
        (void)!write(looks[1], &n, 1);
    }
    return 0;
}

static int terminated(void)
{
    return SIGTERM;
}

static fl_engine_task task_of(int rank)
{
    fl_engine_task task = {.engine = "Slurm", .rank = rank, .n = 3, .nodes = nodes};
    snprintf(task.start, sizeof task.start, "7-0-0");
    return task;
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_named(const char *dir, const char *name)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

/* A task that learns from the head that the run does not begin: its process, which ends with the
 * head's exit code. */
static pid_t start_late_task(const char *parent, int rank, int (*stop)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        fl_engine_task task = task_of(rank);
        fl_meeting opened, *m = &opened;
        if (fl_meeting_open(parent, &task, m) != FL_OK) {
            _exit(98);
        }
        char endpoint[FL_MEETING_ENDPOINT];
        int code = 0;
        fl_status status = fl_meeting_await(m, WAIT_MS, stop, endpoint, &code);
        fl_meeting_leave(m, false);
        _exit(status == FL_EFAILED ? code : 99);
    }
    assert_true(pid > 0);
    return pid;
}

/* A process that has the lock of this name. */
static pid_t hold_elsewhere(const char *dir, const char *name)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool held = fl_meeting_hold(dir, name) >= 0;
        (void)!write(ready[1], &byte, held);
        pause();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void test_meeting__tasks_meet_and_leave_nothing(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], parent[FOLDER_SIZE + 16], endpoint[FL_MEETING_ENDPOINT];
    fl_meeting m[3];
    fl_meeting_host hosts[3];
    int code = 0, number = 0;
    make_folder(dir);
    snprintf(parent, sizeof parent, "%s/a/runs", dir);
    for (int i = 0; i < 3; i++) {
        fl_meeting_host self = {.n_devices = i + 1};
        fl_engine_task task = task_of(i);
        snprintf(self.name, sizeof self.name, "n%d", i + 1);
        snprintf(self.address, sizeof self.address, "10.0.0.%d", i + 1);
        assert_int_equal(fl_meeting_open(parent, &task, &m[i]), FL_OK);
        assert_int_equal(fl_meeting_enter(&m[i], &self), FL_OK);
    }
    struct stat info;
    assert_int_equal(stat(m[0].dir, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    fl_engine_task head = task_of(0);
    assert_int_equal(fl_meeting_gather(&m[0], &head, WAIT_MS, no_stop, hosts, &number), FL_OK);
    assert_string_equal(hosts[2].name, "n3");
    assert_string_equal(hosts[1].address, "10.0.0.2");
    assert_int_equal(hosts[2].n_devices, 3);
    assert_int_equal(fl_meeting_announce(m[0].dir, "tcp://10.0.0.1:5570"), FL_OK);
    assert_int_equal(fl_meeting_await(&m[1], WAIT_MS, no_stop, endpoint, &code), FL_OK);
    assert_string_equal(endpoint, "tcp://10.0.0.1:5570");
    remove_named(m[0].dir, "join"); /* otherwise it may come before the head's end */
    for (int i = 1; i < 3; i++) {   /* of this process, whose own locks look free */
        char name[16];
        snprintf(name, sizeof name, "lock-%d", i);
        remove_named(m[0].dir, name);
        close(m[i].lock_fd);
    }
    for (int head_code = 0; head_code <= 3; head_code += 3) { /* 0: the run has finished long ago */
        pid_t late[2];
        fl_engine_task task = task_of(0);
        assert_int_equal(fl_meeting_open(parent, &task, &m[0]), FL_OK);
        for (int i = 0; i < 2; i++) {
            late[i] = start_late_task(parent, i + 1, no_stop);
        }
        fl_meeting_end(&m[0], head_code);
        fl_meeting_leave(&m[0], true);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(waitpid(late[i], &code, 0), late[i]);
            assert_true(WIFEXITED(code) && WEXITSTATUS(code) == head_code);
        }
        assert_int_equal(access(m[1].dir, F_OK), -1);
    }
    fl_engine_task task = task_of(0);
    assert_int_equal(fl_meeting_open(parent, &task, &m[0]), FL_OK);
    write_text(m[0].dir, "task-1", "n2 10.0.0.2 1\n"); /* of a host that has failed */
    write_text(m[0].dir, "join", "tcp://10.0.0.1:5570");
    fl_meeting_end(&m[0], 0);
    fl_meeting_leave(&m[0], true);
    assert_int_equal(access(m[0].dir, F_OK), -1);
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: a folder that stays because a task of the start was killed, and one that waits for a
 * head which nobody can hear of any more. */
static void test_meeting__a_killed_task_leaves_nothing(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_engine_task head = task_of(0), other = task_of(1), third = task_of(2);
    fl_meeting m, killed;
    int code = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &third, &killed), FL_OK);
    assert_int_equal(fl_meeting_open(dir, &other, &killed), FL_OK);
    write_text(killed.dir, "task-1", "n2 10.0.0.2 1\n");
    assert_int_equal(fl_meeting_open(dir, &head, &m), FL_OK);
    fl_meeting_end(&m, 2);
    fl_meeting_leave(&m, true);
    assert_int_equal(access(m.dir, F_OK), -1);
    assert_int_equal(fl_meeting_await(&killed, WAIT_MS, no_stop, endpoint, &code), FL_EFAILED);
    assert_int_equal(code, 3);
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: tasks that wait ten minutes for a head which was killed before the run began, and
 * its folder that stays. */
static void test_meeting__a_killed_head_is_noticed(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    int how;
    pid_t late[2];
    fl_meeting m[2];
    make_folder(dir);
    assert_int_equal(pipe(looks), 0);
    for (int i = 0; i < 2; i++) {
        fl_engine_task other = task_of(i + 1);
        assert_int_equal(fl_meeting_open(dir, &other, &m[i]), FL_OK);
    }
    pid_t head = hold_elsewhere(m[0].dir, FL_MEETING_HEAD);
    assert_true(fl_meeting_is_held(m[0].dir, FL_MEETING_HEAD));
    for (int i = 0; i < 2; i++) {
        late[i] = start_late_task(dir, i + 1, tell_look);
    }
    for (int i = 0; i < 2; i++) {
        char byte;
        assert_int_equal(read(looks[0], &byte, 1), 1);
    }
    kill(head, SIGKILL);
    waitpid(head, NULL, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waitpid(late[i], &how, 0), late[i]);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 3);
    }
    close(looks[0]);
    close(looks[1]);
    assert_int_equal(access(m[0].dir, F_OK), -1);
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: a head that waits ten minutes for a task which a signal has ended. */
static void test_meeting__a_stopped_task_is_noticed(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_engine_task head = task_of(0), other = task_of(1);
    fl_meeting_host hosts[3];
    fl_meeting m, stopped;
    int number = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &head, &m), FL_OK);
    assert_int_equal(fl_meeting_open(dir, &other, &stopped), FL_OK);
    assert_int_equal(fl_meeting_await(&stopped, WAIT_MS, terminated, endpoint, &number),
                     FL_ESTOPPED);
    assert_int_equal(number, SIGTERM);
    fl_meeting_leave(&stopped, false);
    assert_int_equal(fl_meeting_gather(&m, &head, WAIT_MS, no_stop, hosts, &number), FL_EPEER);
    assert_non_null(strstr(fl_errmsg(), "task 1 (n2) has ended before the run began"));
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: a head that waits ten minutes for the agent of a task that was killed. */
static void test_meeting__a_killed_task_is_noticed(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_engine_task head = task_of(0);
    fl_meeting_host hosts[3];
    fl_meeting m;
    pid_t tasks[2];
    int number = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &head, &m), FL_OK);
    for (int i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "lock-%d", i + 1);
        tasks[i] = hold_elsewhere(m.dir, name);
        snprintf(name, sizeof name, "task-%d", i + 1);
        write_text(m.dir, name, "n2 10.0.0.2 1\n");
    }
    write_text(m.dir, "task-0", "n1 10.0.0.1 1\n");
    assert_int_equal(fl_meeting_gather(&m, &head, WAIT_MS, no_stop, hosts, &number), FL_OK);
    assert_false(fl_meeting_has_lost(m.dir, 1) || fl_meeting_has_lost(m.dir, 2));
    kill(tasks[0], SIGKILL);
    waitpid(tasks[0], NULL, 0);
    assert_true(fl_meeting_has_lost(m.dir, 1));
    assert_false(fl_meeting_has_lost(m.dir, 2));
    kill(tasks[1], SIGKILL);
    waitpid(tasks[1], NULL, 0);
    fl_meeting_end(&m, 3); /* at once: both are dead */
    fl_meeting_leave(&m, true);
    assert_int_equal(access(m.dir, F_OK), -1);
    assert_int_equal(remove_folder(dir), 0);
}

/* Would catch: a task of a slow host that waits ten minutes for a head that has long ended. */
static void test_meeting__a_late_task_finds_the_last_word(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_engine_task head = task_of(0), task;
    fl_meeting_host hosts[3];
    fl_meeting m, late;
    int code = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &head, &m), FL_OK);
    assert_int_equal(fl_meeting_gather(&m, &head, WAIT_MS, terminated, hosts, &code), FL_ESTOPPED);
    assert_int_equal(code, SIGTERM);
    fl_meeting_end(&m, 5);
    fl_meeting_leave(&m, true);
    for (int i = 1; i < 3; i++) {
        task = task_of(i);
        assert_int_equal(fl_meeting_open(dir, &task, &late), FL_OK);
        assert_int_equal(fl_meeting_await(&late, WAIT_MS, no_stop, endpoint, &code), FL_EFAILED);
        assert_int_equal(code, 5);
        fl_meeting_leave(&late, false);
    }
    assert_int_equal(access(m.dir, F_OK), -1);
    assert_int_equal(remove_folder(dir), 0);
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
    for (int i = 0; i < 3; i++) {
        fl_engine_task task = task_of(i == 2 ? 1 : 0);
        snprintf(task.start, sizeof task.start, "%s", starts[i]);
        assert_int_equal(fl_meeting_open(dir, &task, &m[i]), FL_OK);
        write_text(m[i].dir, "task-1", "n2 10.0.0.2 1\n");
    }
    close(m[0].lock_fd); /* as its head's end does */
    close(m[1].lock_fd);
    pid_t holder = hold_elsewhere(m[2].dir, FL_MEETING_HEAD);
    make_old(m[0].dir);
    make_old(m[2].dir);
    fl_engine_task task = task_of(0);
    assert_int_equal(fl_meeting_open(dir, &task, &next), FL_OK);
    assert_int_equal(access(m[0].dir, F_OK), -1);
    assert_int_equal(access(m[1].dir, F_OK), 0);
    assert_int_equal(access(m[2].dir, F_OK), 0);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    write_text(next.dir, "join", "tcp://10.0.0.1:5570");
    fl_meeting_end(&next, 0);
    fl_meeting_leave(&next, true);
    fl_meeting_abandon(&m[1]);
    fl_meeting_abandon(&m[2]);
    assert_int_equal(rmdir(dir), 0);
}

static void test_meeting__names_the_hosts_that_are_missing(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], endpoint[FL_MEETING_ENDPOINT];
    fl_engine_task task = task_of(0);
    fl_meeting m;
    fl_meeting_host hosts[3];
    int code = 0, number = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &task, &m), FL_OK);
    write_text(m.dir, "task-1", "n2 10.0.0.2 1\n");
    assert_int_equal(fl_meeting_gather(&m, &task, 1, no_stop, hosts, &number), FL_EDEADLINE);
    assert_non_null(strstr(fl_errmsg(), "no sign of n1, n3 in "));
    assert_int_equal(fl_meeting_await(&m, 1, no_stop, endpoint, &code), FL_EDEADLINE);
    assert_int_equal(remove_folder(dir), 0);
}

static void test_meeting__refuses_what_no_task_wrote(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "n2",
                                      "n2 10.0.0.2\n",
                                      "n2 10.0.0.2 0\n",
                                      "n2 10.0.0.2 1",
                                      "n2 10.0.0.2 1 x\n",
                                      "n2 10.0.0 1\n",
                                      "n2 10.0.0.2 99999999\n"};
    char dir[FOLDER_SIZE];
    fl_engine_task task = task_of(0);
    fl_meeting m;
    fl_meeting_host hosts[3];
    int number = 0;
    make_folder(dir);
    assert_int_equal(fl_meeting_open(dir, &task, &m), FL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(m.dir, "task-1", bad[i]);
        if (fl_meeting_gather(&m, &task, WAIT_MS, no_stop, hosts, &number) != FL_EFORMAT) {
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
        cmocka_unit_test(test_meeting__tasks_meet_and_leave_nothing),
        cmocka_unit_test(test_meeting__a_killed_task_leaves_nothing),
        cmocka_unit_test(test_meeting__a_killed_head_is_noticed),
        cmocka_unit_test(test_meeting__a_stopped_task_is_noticed),
        cmocka_unit_test(test_meeting__a_killed_task_is_noticed),
        cmocka_unit_test(test_meeting__a_late_task_finds_the_last_word),
        cmocka_unit_test(test_meeting__a_later_start_removes_what_was_left),
        cmocka_unit_test(test_meeting__names_the_hosts_that_are_missing),
        cmocka_unit_test(test_meeting__refuses_what_no_task_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
