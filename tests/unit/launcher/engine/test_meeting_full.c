/* Tasks meet on a file system that is full. Would catch: an exit code by which a scheduler never
 * starts again what it could after room was made, and a part of a file that stays. */
#include "launcher/cli/cli.h"
#include "launcher/engine/meeting.h"
#include "support/folder.h"
#include "support/hosts/meeting_tasks.h"
#include "support/small_disk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NOT_POSSIBLE = 77 };

static bool is_told(fl_status status, const char *dir, const char *name)
{
    char told[2 * FOLDER_SIZE];
    snprintf(told, sizeof told, "cannot write %s/%s: No space left on device", dir, name);
    fprintf(stderr, "%s\n", fl_errmsg());
    return fl_exit_of(status) == FL_EXIT_FAILED && strstr(fl_errmsg(), told) != NULL;
}

/* When the file system is full: of files, of bytes, of bytes once the folder is open. */
typedef enum full_when {
    NO_FILES,
    NO_BYTES,
    NO_BYTES_LATER,
} full_when;

static bool open_is_told(const char *folder, const fl_engine_task *task, const char *words)
{
    fl_meeting m;
    fl_status status = fl_meeting_open(folder, task, &m);
    fprintf(stderr, "%s\n", fl_errmsg());
    return fl_exit_of(status) == FL_EXIT_FAILED && strstr(fl_errmsg(), words) != NULL;
}

static bool enter_is_told(const char *folder, const fl_engine_task *task)
{
    fl_meeting_host self = {.name = "n1", .address = "10.0.0.1", .n_devices = 1};
    fl_meeting m;
    char path[PATH_MAX + 32];
    if (fl_meeting_open(folder, task, &m) != FL_OK) {
        return false;
    }
    small_disk_fill(folder);
    bool told = is_told(fl_meeting_enter(&m, &self), m.dir, "task-0") &&
                is_told(fl_meeting_announce(m.dir, "tcp://10.0.0.1:5570"), m.dir, "join");
    snprintf(path, sizeof path, "%s/task-0.part", m.dir);
    return told && access(path, F_OK) != 0;
}

/* Returns an exit code. */
static int meet_on_full(const char *folder, full_when when)
{
    fl_engine_task task = meeting_task(0, 2);
    if (!small_disk_mount(folder, when == NO_FILES ? "size=64k,nr_inodes=2" : "size=64k")) {
        return NOT_POSSIBLE;
    }
    if (when == NO_BYTES_LATER) {
        return enter_is_told(folder, &task) ? 0 : 1;
    }
    small_disk_fill(folder);
    return open_is_told(folder, &task,
                        when == NO_FILES ? "No space left on device"
                                         : "/start: No space left on device")
               ? 0
               : 1;
}

static void expect_full(full_when when)
{
    char dir[FOLDER_SIZE];
    int how = 0;
    make_folder(dir);
    pid_t child = fork();
    if (child == 0) {
        _exit(meet_on_full(dir, when));
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(remove_folder(dir), 0);
    if (WIFEXITED(how) && WEXITSTATUS(how) == NOT_POSSIBLE) {
        print_message("skipped: no right to mount a small file system\n");
        skip();
    }
    assert_int_equal(how, 0);
}

static void test_meeting__a_full_file_system_is_no_bad_input(void **state)
{
    (void)state;
    expect_full(NO_BYTES_LATER);
    expect_full(NO_BYTES);
}

static void test_meeting__a_folder_without_room_is_no_bad_input(void **state)
{
    (void)state;
    expect_full(NO_FILES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meeting__a_full_file_system_is_no_bad_input),
        cmocka_unit_test(test_meeting__a_folder_without_room_is_no_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
