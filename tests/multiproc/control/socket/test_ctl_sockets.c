/* The sockets of a run, from before they are there until its head is killed. Would catch: sockets
 * that others may use or that a run leaves behind, clients that take the descriptors of the run,
 * and a run that is called live, lost or over when it is not. */
#include "control/link/keys/waiting_room.h"
#include "device/system/clock.h"
#include "launcher/cli/ctl/ctl_place.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/runs.h"
#include "support/folder.h"
#include "support/nap.h"
#include "support/runs/live_run.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Two workers, one pipeline; more epochs than any test wants. */
#define BASE                                                                                       \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "devices.count", "2",      \
        "pipe.k", "2", "autodp.r", "1", "pipe.m", "2"
#define ENDLESS BASE, "train.epochs", "9000", "train.decay", "constant", "train.warmup", "0"

static void test_ctl__the_sockets_are_this_users_and_go_with_the_run(void **state)
{
    (void)state;
    static const char *const names[] = {"control.sock", "events.sock"};
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    char path[256];
    struct stat info;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", run.dir, names[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", run.dir, names[i]);
        assert_int_not_equal(stat(path, &info), 0);
    }
    live_clean(&run);
}

/* Would catch: a run that counts as live because its controller was killed before it removed its
 * files. */
static void test_ctl__a_run_whose_head_was_killed_is_lost(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    fl_run_entry entry;
    live_await_step(&run, 5);
    assert_int_equal(fl_run_look(run.dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_LIVE);
    kill(run.controller, SIGKILL);
    assert_int_equal(waitpid(run.controller, NULL, 0), run.controller);
    fl_ctl_client_close(&run.ctl);
    assert_int_equal(fl_run_look(run.dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_LOST);
    assert_true(entry.steps >= 5);
    assert_int_equal(fl_run_find("/nonexistent", run.dir, &entry), FL_EINVAL);
    live_clean(&run);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A process that has begun a run and does not listen yet. Returns once it holds the run. */
static pid_t begin_run(const char *dir)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool held = fl_run_hold(dir_fd) >= 0 && write(ready[1], &byte, 1) == 1;
        if (held) {
            raise(SIGSTOP); /* until it is killed */
        }
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* A client waits for a run that does not answer yet until its deadline. */
static void check_await(const char *dir)
{
    fl_args args = {.operand = dir};
    fl_ctl_place place;
    int64_t deadline_us = fl_deadline_us(200);
    assert_int_equal(fl_ctl_place_await(&args, dir, FL_CTL_PATIENT, deadline_us, &place), FL_EBUSY);
    assert_non_null(strstr(fl_errmsg(), "try again later, or with a longer --timeout"));
    assert_int_equal(fl_left_ms(deadline_us), 0); /* asked again until then */
}

/* Would catch: a run called lost, or over, in the moments before its sockets are there; a client
 * that does not wait for them. */
static void test_ctl__a_run_that_does_not_answer_yet_is_starting(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE];
    fl_run_entry entry;
    make_folder(dir);
    write_file(dir, "job.yaml", "name: early\n");
    write_file(dir, "events.jsonl", "{\"event\": \"run.started\", \"job\": \"early\"}\n");
    pid_t pid = begin_run(dir);
    assert_int_equal(fl_run_look(dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_STARTING);
    assert_int_equal(fl_run_find("/nonexistent", dir, &entry), FL_EBUSY);
    assert_non_null(strstr(fl_errmsg(), "the run is starting and does not answer yet"));
    check_await(dir);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fl_run_look(dir, &entry), FL_OK);
    assert_int_equal(entry.state, FL_RUN_LOST);
    remove_folder(dir);
}

/* Would catch: a run that trains, and is said to go back after a loss because its socket is gone.
 */
static void test_ctl__a_run_that_lost_its_socket_goes_on(void **state)
{
    (void)state;
    fl_run_entry entry;
    char process[80], text[FL_UNREACHABLE_TEXT];
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    int dir = open(run.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    live_await_step(&run, 1);
    snprintf(process, sizeof process, "SIGINT or SIGTERM to process %d ends the run",
             (int)run.controller);
    assert_int_equal(unlinkat(dir, "control.sock", 0), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fl_run_find("/nonexistent", run.dir, &entry), FL_EFAILED);
        assert_int_equal(entry.state, FL_RUN_LIVE);
        assert_non_null(strstr(fl_errmsg(), "its control.sock was removed or replaced"));
        assert_non_null(strstr(fl_run_unreachable_text(&entry, text), process));
        write_file(run.dir, "control.sock", "");
    }
    json_decref(live_ask(&run, "stop", "{}")); /* by a connection that it has */
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    assert_int_equal(fl_run_look(run.dir, &entry), FL_OK);
    assert_string_equal(fl_run_unreachable_text(&entry, text), "");
    close(dir);
    live_clean(&run);
}

/* ---- clients ---- */

enum { FILES = 80, CLIENTS = 60 };

static pid_t start_client(const char *dir)
{
    pid_t pid = fork();
    if (pid == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        execl(FL_BINARY_DIR "/frostline", "frostline", "ctl", dir, "watch", (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static fl_status ask_for_status(fl_ctl_client_link *client, int timeout_ms)
{
    const char *reply = NULL;
    return fl_ctl_client_ask(client, "{\"v\": 1, \"id\": \"1\", \"cmd\": \"status\"}", timeout_ms,
                             &reply);
}

/* So many that the run lets others wait. */
static void flood(const live_run *run, int dir, pid_t client[CLIENTS])
{
    for (int i = 0; i < CLIENTS; i++) {
        client[i] = start_client(run->dir);
    }
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (!fl_waiting_room_is_shut(dir, "control.sock")) {
        assert_true(fl_left_ms(deadline_us) > 0);
        assert_int_equal(waitpid(run->controller, NULL, WNOHANG), 0);
        nap(2000);
    }
}

static void end_flood(const pid_t client[CLIENTS])
{
    for (int i = 0; i < CLIENTS; i++) {
        kill(client[i], SIGKILL);
        waitpid(client[i], NULL, 0);
    }
}

/* The clients that waited come in together, and it may be shut once more for them. */
static void await_opened(int dir)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (fl_waiting_room_is_shut(dir, "control.sock")) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(2000);
    }
}

/* Somebody removes the run's own socket meanwhile: nobody can connect to it again. Would catch:
 * clients that wait for ever. */
static void check_removed(const live_run *run, int dir)
{
    pid_t client[CLIENTS];
    fl_run_entry entry;
    flood(run, dir, client);
    assert_int_equal(unlinkat(dir, "control.sock.open", 0), 0);
    end_flood(client);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (fl_run_find("/nonexistent", run->dir, &entry) != FL_EFAILED) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(2000);
    }
    assert_true(entry.unreachable);
}

/* Would catch: a run that ends because its own user looks at it too often at once. The last test:
 * the limit of this process is low from then on. */
static void test_ctl__clients_leave_the_run_its_descriptors(void **state)
{
    (void)state;
    const struct rlimit few = {FILES, FILES};
    fl_ctl_client_link *late = NULL;
    pid_t client[CLIENTS];
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    int dir = open(run.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    live_await_step(&run, 1);
    flood(&run, dir, client);
    assert_int_equal(fl_ctl_client_open(run.dir, false, &late), FL_OK);
    assert_int_equal(ask_for_status(late, 500), FL_EDEADLINE);
    assert_non_null(strstr(fl_errmsg(), "the run has no descriptor left for another client"));
    assert_true(fl_run_is_live(run.dir));
    live_await_step(&run, live_status(&run, "step") + 100); /* with its connected clients */
    end_flood(client);
    assert_int_equal(ask_for_status(late, LIVE_WAIT_MS), FL_OK);
    fl_ctl_client_close(&late);
    await_opened(dir);
    check_removed(&run, dir);
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    close(dir);
    live_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ctl__the_sockets_are_this_users_and_go_with_the_run),
        cmocka_unit_test(test_ctl__a_run_whose_head_was_killed_is_lost),
        cmocka_unit_test(test_ctl__a_run_that_does_not_answer_yet_is_starting),
        cmocka_unit_test(test_ctl__a_run_that_lost_its_socket_goes_on),
        cmocka_unit_test(test_ctl__clients_leave_the_run_its_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
