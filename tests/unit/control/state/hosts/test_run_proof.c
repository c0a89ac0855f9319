/* Files by which hosts find out that they see one directory. Would catch: a copy that counts as the
 * directory, and files that are left. */
#include "control/state/hosts/run_proof.h"

#include "support/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHORT_MS = 20, LONG_MS = 60000 };

static char dir[FOLDER_SIZE];

static int make_dir(void **state)
{
    (void)state;
    make_folder(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    return remove_folder(dir);
}

static int open_dir(void)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void assert_empty(void)
{
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(mkdir(dir, 0700), 0);
}

/* Would catch: an answer that stays where the head cannot see it, as in a copy. */
static void test_run_proof__a_host_removes_an_answer_that_is_not_taken(void **state)
{
    (void)state;
    char proof[FL_RUN_PROOF_TEXT];
    int fd = open_dir();
    assert_int_equal(fl_run_proof_write(fd, proof), FL_OK);
    assert_true(fl_run_proof_is_name(proof));
    assert_true(fl_run_proof_await(dir, proof));
    assert_int_equal(fl_run_proof_answer(dir, proof), 0);
    fl_run_proof_withdraw(dir, proof, SHORT_MS);
    assert_false(fl_run_proof_take_answer(dir, proof));
    fl_run_proof_remove(fd, proof);
    close(fd);
    assert_empty();
}

/* Would catch: a host that goes on waiting, and a head that takes an answer for that of another. */
static void test_run_proof__the_head_takes_the_answer(void **state)
{
    (void)state;
    char proof[2][FL_RUN_PROOF_TEXT];
    int fd = open_dir(), how;
    assert_int_equal(fl_run_proof_write(fd, proof[0]), FL_OK);
    assert_int_equal(fl_run_proof_write(fd, proof[1]), FL_OK);
    pid_t host = fork();
    if (host == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int error = fl_run_proof_answer(dir, proof[1]);
        fl_run_proof_withdraw(dir, proof[1], LONG_MS);
        _exit(error == 0 ? 0 : 1);
    }
    while (!fl_run_proof_take_answer(dir, proof[1])) {
        assert_false(fl_run_proof_take_answer(dir, proof[0]));
        assert_int_equal(waitpid(host, &how, WNOHANG), 0);
    }
    assert_int_equal(waitpid(host, &how, 0), host);
    assert_int_equal(how, 0);
    fl_run_proof_remove(fd, proof[0]);
    fl_run_proof_remove(fd, proof[1]);
    close(fd);
    assert_empty();
}

static void test_run_proof__a_directory_that_cannot_be_written(void **state)
{
    (void)state;
    assert_int_equal(fl_run_proof_answer("/none/such", "joining-1"), ENOENT);
    assert_int_not_equal(fl_run_proof_answer("/proc", "joining-1"), 0);
}

/* Would catch: a name that leads out of the directory. */
static void test_run_proof__a_name_leads_nowhere_else(void **state)
{
    (void)state;
    static const char *const names[] = {"",          "joining",     "other-1",   "joining-/a",
                                        "joining- ", "../joining-", "/joining-1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_false(fl_run_proof_is_name(names[i]));
    }
    char text[FL_RUN_PROOF_TEXT + 1] = "joining-";
    assert_true(fl_run_proof_is_name("joining-0123456789abcdef0123456789abcdef"));
    memset(text + 8, 'a', FL_RUN_PROOF_TEXT - 8);
    assert_false(fl_run_proof_is_name(text));
}

/* Would catch: a host that is refused for ever, because the head had no free descriptor. */
static void test_run_proof__a_lack_of_descriptors_passes(void **state)
{
    (void)state;
    char proof[FL_RUN_PROOF_TEXT];
    struct rlimit before, none;
    int fd = open_dir();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)fd + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    fl_status status = fl_run_proof_write(fd, proof);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, FL_EFAILED);
    assert_string_equal(proof, "");
    close(fd);
    assert_empty();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_proof__a_host_removes_an_answer_that_is_not_taken),
        cmocka_unit_test(test_run_proof__the_head_takes_the_answer),
        cmocka_unit_test(test_run_proof__a_directory_that_cannot_be_written),
        cmocka_unit_test(test_run_proof__a_lack_of_descriptors_passes),
        cmocka_unit_test(test_run_proof__a_name_leads_nowhere_else),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
