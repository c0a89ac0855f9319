#include "support/hosts/meeting_tasks.h"

#include "launcher/engine/meeting_tidy.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NO_MEETING = 98, NO_END = 99 };

fl_engine_task meeting_task(int rank, int n)
{
    fl_engine_task task = {.engine = "Slurm", .rank = rank, .n = n, .nodes = "n[1-3]"};
    snprintf(task.start, sizeof task.start, "7-0-0");
    return task;
}

int meeting_no_stop(void)
{
    return 0;
}

int meeting_terminated(void)
{
    return SIGTERM;
}

static void move_elsewhere(const fl_meeting *m)
{
    char text[128];
    int n = snprintf(text, sizeof text, "machine elsewhere, file system 1\nstart %s\n", m->start);
    if (ftruncate(m->lock_fd, 0) != 0 || pwrite(m->lock_fd, text, (size_t)n, 0) != n) {
        _exit(NO_MEETING);
    }
}

static void come(fl_meeting *m)
{
    fl_meeting_host self = {.n_devices = m->rank + 1};
    snprintf(self.name, sizeof self.name, "n%d", m->rank + 1);
    snprintf(self.address, sizeof self.address, "10.0.0.%d", m->rank + 1);
    if (fl_meeting_enter(m, &self) != FL_OK) {
        _exit(NO_MEETING);
    }
}

static void lead(const fl_meeting *m, const fl_engine_task *task)
{
    fl_meeting_host hosts[MEETING_TASKS];
    int number = 0;
    if (fl_meeting_gather(m, task, MEETING_WAIT_MS, meeting_no_stop, hosts, &number) != FL_OK ||
        fl_meeting_announce(m->dir, MEETING_ENDPOINT) != FL_OK) {
        _exit(NO_MEETING);
    }
}

static _Noreturn void play(const char *parent, int rank, int n, meeting_part part, int ready)
{
    fl_engine_task task = meeting_task(rank, n);
    char endpoint[FL_MEETING_ENDPOINT];
    fl_meeting m;
    int code = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fl_meeting_open(parent, &task, &m) != FL_OK || m.lock_fd < 0) {
        _exit(NO_MEETING);
    }
    if (part == MEETING_STAYS_ELSEWHERE) {
        move_elsewhere(&m);
    } else if (part != MEETING_STAYS) {
        come(&m);
    }
    (void)!write(ready, "", 1);
    if (part == MEETING_LEADS) {
        lead(&m, &task);
    }
    if (part != MEETING_AWAITS) {
        for (;;) {
            pause();
        }
    }
    fl_status status = fl_meeting_await(&m, MEETING_WAIT_MS, meeting_no_stop, endpoint, &code);
    fl_meeting_leave(&m);
    bool joins = status == FL_OK && strcmp(endpoint, MEETING_ENDPOINT) == 0;
    _exit(status == FL_EFAILED ? code : joins ? MEETING_JOINS : NO_END);
}

pid_t meeting_start(const char *parent, int rank, int n, meeting_part part)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ready[0]);
        play(parent, rank, n, part, ready[1]);
    }
    assert_true(pid > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

void meeting_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int meeting_exit(pid_t pid)
{
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

void meeting_await_start(const char *parent, int rank)
{
    char path[PATH_MAX], text[256];
    fl_engine_task task = meeting_task(rank, MEETING_TASKS);
    snprintf(path, sizeof path, "%s/" FL_MEETING_FOLDER "%s/lock-%d", parent, task.start, rank);
    for (int i = 0; i < MEETING_WAIT_MS; i++) {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = '\0';
        const char *start = strstr(text, "start ");
        if (start != NULL && start[strlen("start ")] != '-') {
            return;
        }
        (void)poll(NULL, 0, 1);
    }
    fail_msg("task %d has not seen the head", rank);
}

void meeting_write(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}
