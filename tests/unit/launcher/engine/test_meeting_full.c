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

/* Returns an exit code. */
static int meet_on_full(const char *folder, bool fails_early)
{
    fl_engine_task task = meeting_task(0, 2);
    fl_meeting_host self = {.name = "n1", .address = "10.0.0.1", .n_devices = 1};
    fl_meeting m;
    char path[PATH_MAX + 32];
    if (!small_disk_mount(folder, fails_early ? "size=64k,nr_inodes=2" : "size=64k")) {
        return NOT_POSSIBLE;
    }
    small_disk_fill(folder);
    fl_status status = fl_meeting_open(folder, &task, &m);
    if (fails_early) {
        return fl_exit_of(status) == FL_EXIT_FAILED &&
                       strstr(fl_errmsg(), "No space left on device") != NULL
                   ? 0
                   : 1;
    }
    if (status != FL_OK || !is_told(fl_meeting_enter(&m, &self), m.dir, "task-0") ||
        !is_told(fl_meeting_announce(m.dir, "tcp://10.0.0.1:5570"), m.dir, "join")) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/task-0.part", m.dir);
    return access(path, F_OK) == 0 ? 1 : 0;
}

static void expect_full(bool fails_early)
{
    char dir[FOLDER_SIZE];
    int how = 0;
    make_folder(dir);
    pid_t child = fork();
    if (child == 0) {
        _exit(meet_on_full(dir, fails_early));
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
    expect_full(false);
}

static void test_meeting__a_folder_without_room_is_no_bad_input(void **state)
{
    (void)state;
    expect_full(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meeting__a_full_file_system_is_no_bad_input),
        cmocka_unit_test(test_meeting__a_folder_without_room_is_no_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
