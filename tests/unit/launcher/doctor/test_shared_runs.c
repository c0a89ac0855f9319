/* The directory of runs while doctors have files in it. Would catch: a directory that doctors leave
 * behind, one of the user's that they remove, and files of a doctor that was killed. */
#include "launcher/doctor/hosts/shared_runs.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[FOLDER_SIZE], runs[FOLDER_SIZE + 16], file[FOLDER_SIZE + 64];

static int make_place(void **state)
{
    (void)state;
    make_folder(folder);
    snprintf(runs, sizeof runs, "%s/new/runs", folder);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static fl_shared_runs *begin(void)
{
    fl_shared_runs *s = malloc(sizeof *s);
    assert_non_null(s);
    assert_int_equal(fl_shared_runs_begin(runs, 3, s), FL_OK);
    return s;
}

static void end(fl_shared_runs *s)
{
    fl_shared_runs_end(s);
    free(s);
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Of two at once, the first one has made the directory, and the second one does not know that. */
static void test_shared_runs__the_last_doctor_removes_the_directory(void **state)
{
    (void)state;
    fl_shared_runs *first = begin(), *second = begin();
    end(first);
    assert_true(is_there(runs));
    end(second);
    first = begin();
    second = begin();
    end(second);
    assert_true(is_there(runs));
    end(first);
    snprintf(file, sizeof file, "%s/new", folder);
    assert_false(is_there(file));
    assert_true(is_there(folder));
}

static void test_shared_runs__a_directory_of_the_user_stays(void **state)
{
    (void)state;
    snprintf(file, sizeof file, "%s/new", folder);
    assert_int_equal(mkdir(file, 0700), 0);
    assert_int_equal(mkdir(runs, 0700), 0);
    fl_shared_runs *first = begin(), *second = begin();
    end(first);
    end(second);
    assert_int_equal(rmdir(runs), 0); /* it is empty, too */
    end(begin());
    assert_int_equal(rmdir(file), 0); /* that it was in */
}

/* A run has begun there meanwhile. */
static void test_shared_runs__a_directory_with_a_run_stays(void **state)
{
    (void)state;
    fl_shared_runs *s = begin();
    snprintf(file, sizeof file, "%s/first", runs);
    assert_int_equal(mkdir(file, 0700), 0);
    end(s);
    assert_int_equal(rmdir(file), 0);
    end(begin()); /* the directory is no longer one that a doctor has made */
    assert_int_equal(rmdir(runs), 0);
    snprintf(file, sizeof file, "%s/new", folder);
    assert_int_equal(rmdir(file), 0);
}

/* A doctor that is killed leaves its files, and the directory. */
static void leave_files(void)
{
    int how;
    pid_t doctor = fork();
    if (doctor == 0) {
        fl_shared_runs *kept = begin();
        _exit(kept == NULL);
    }
    assert_int_equal(waitpid(doctor, &how, 0), doctor);
    assert_int_equal(how, 0);
}

static void age_files(void)
{
    char command[sizeof runs + 64];
    snprintf(command, sizeof command, "touch -d '11 minutes ago' %s/joining-*", runs);
    assert_int_equal(system(command), 0);
}

static void test_shared_runs__what_a_killed_doctor_left_is_removed(void **state)
{
    (void)state;
    leave_files();
    end(begin()); /* they are not old */
    assert_true(is_there(runs));
    age_files();
    end(begin());
    snprintf(file, sizeof file, "%s/new", folder);
    assert_false(is_there(file));
}

/* As one that was stopped for a while, or whose clock is another one. */
static void test_shared_runs__the_files_of_a_doctor_at_work_stay(void **state)
{
    (void)state;
    fl_shared_runs *first = begin();
    age_files();
    end(begin());
    for (int i = 1; i < 3; i++) {
        snprintf(file, sizeof file, "%s/%s", runs, first->proof[i]);
        assert_true(is_there(file));
    }
    end(first);
    assert_false(is_there(runs));
}

/* Files of others have no such name, or are not empty. */
static void test_shared_runs__other_files_stay(void **state)
{
    (void)state;
    static const char *const names[] = {"joining-notes", "joining-", "other",
                                        "joining-0123456789abcdef0123456789abcdef"};
    char command[sizeof runs + 64];
    snprintf(command, sizeof command, "mkdir -p %s", runs);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command, "echo text >%s/%s", runs, names[i]);
        assert_int_equal(system(command), 0);
    }
    age_files();
    end(begin());
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", runs, names[i]);
        assert_int_equal(unlink(file), 0);
    }
    assert_int_equal(rmdir(runs), 0);
    snprintf(file, sizeof file, "%s/new", folder);
    assert_int_equal(rmdir(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_runs__the_last_doctor_removes_the_directory),
        cmocka_unit_test(test_shared_runs__a_directory_of_the_user_stays),
        cmocka_unit_test(test_shared_runs__a_directory_with_a_run_stays),
        cmocka_unit_test(test_shared_runs__what_a_killed_doctor_left_is_removed),
        cmocka_unit_test(test_shared_runs__the_files_of_a_doctor_at_work_stay),
        cmocka_unit_test(test_shared_runs__other_files_stay),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
