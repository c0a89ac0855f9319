/* Who may read a secret key. Would catch: a key that a pod with fsGroup cannot use, because
 * Kubernetes makes 0440 of its mode 0400; and one that all users of a machine can read, and that is
 * taken. */
#include "control/link/keys/key_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void test_key_file__is_private(void **state)
{
    (void)state;
    static const struct {
        mode_t mode;
        uid_t user;
        bool in_memory, is_private;
    } cases[] = {
        {0600, 1000, false, true},  {0400, 0, false, true},    {0440, 0, true, true},
        {0640, 0, true, true},      {0440, 0, false, false},   {0440, 1000, true, false},
        {0444, 0, true, false},     {0460, 0, true, false},    {0604, 0, true, false},
        {0644, 1000, false, false}, {0640, 1000, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct stat info = {.st_mode = S_IFREG | cases[i].mode, .st_uid = cases[i].user};
        assert_int_equal(fl_key_file_is_private(&info, cases[i].in_memory), cases[i].is_private);
    }
    assert_false(fl_key_file_is_private(&(struct stat){.st_mode = S_IFDIR | 0700}, true));
}

/* A file in memory is of tmpfs; it is root's if root runs the test. */
static void test_key_file__looks_at_the_file_system(void **state)
{
    (void)state;
    int fd = memfd_create("key", MFD_CLOEXEC);
    assert_true(fd >= 0 && fchmod(fd, 0440) == 0);
    fl_status status = fl_key_file_check(fd, "key");
    assert_int_equal(status, geteuid() == 0 ? FL_OK : FL_EINVAL);
    assert_int_equal(fchmod(fd, 0444), 0);
    assert_int_equal(fl_key_file_check(fd, "key"), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "found mode 0444"));
    assert_non_null(strstr(fl_errmsg(), "also 0440"));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_file__is_private),
        cmocka_unit_test(test_key_file__looks_at_the_file_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
