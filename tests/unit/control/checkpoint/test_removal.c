/* The removal of a checkpoint. Would catch: a folder of the run that is called somebody else's
 * because it cannot be opened at the moment. */
#include "control/checkpoint/commit.h"
#include "device/errors/failure.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEP = 1000 };

static void test_removal__says_why_a_folder_stays(void **state)
{
    char path[FOLDER_SIZE], name[FL_CHECKPOINT_NAME_MAX];
    struct rlimit limit;
    (void)state;
    make_folder(path);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(dir, fl_checkpoint_folder_name(STEP, name), 0700), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {0, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    fl_status status = fl_checkpoint_remove(dir, STEP);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, FL_EFAILED);
    assert_string_equal(fl_errmsg(), "step-000001000 stays: Too many open files");
    assert_int_equal(fl_checkpoint_remove(dir, STEP), FL_OK);
    assert_int_equal(faccessat(dir, name, F_OK, 0), -1);
    assert_int_equal(symlinkat(".", dir, name), 0);
    assert_int_equal(fl_checkpoint_remove(dir, STEP), FL_EFAILED);
    assert_string_equal(fl_errmsg(), "step-000001000 is not a folder of this run: it stays");
    close(dir);
    assert_int_equal(remove_folder(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removal__says_why_a_folder_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
