/* Agents that start before the head has written its keys. Would catch: an agent that ends although
 * its head is about to start, and one that waits for ever, or for a path that cannot be. */
#include "launcher/run/hosts/key_wait.h"

#include "support/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <frostline/status.h>

#include <cmocka.h>

enum { LONG_MS = 60000 };

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

/* In a process of its own: once the other one says that it waits, the key comes, as the head makes
 * it: the run directory first. */
static _Noreturn void write_when_awaited(int said, const char *path)
{
    char text[1024] = "", folder[PATH_MAX];
    size_t n = 0;
    snprintf(folder, sizeof folder, "%s/run", dir);
    while (strstr(text, "for the head to write") == NULL) {
        ssize_t more = read(said, text + n, sizeof text - 1 - n);
        if (more <= 0) {
            _exit(1);
        }
        n += (size_t)more;
        text[n] = '\0';
    }
    int fd = mkdir(folder, 0700) == 0 ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    _exit(fd < 0);
}

static void test_key_wait__ends_when_the_file_is_there(void **state)
{
    (void)state;
    char path[PATH_MAX];
    int said[2], how, own = dup(STDERR_FILENO);
    snprintf(path, sizeof path, "%s/run/hosts.key", dir);
    assert_true(own >= 0 && pipe(said) == 0);
    pid_t head = fork();
    assert_true(head >= 0);
    if (head == 0) {
        close(said[1]);
        write_when_awaited(said[0], path);
    }
    assert_true(dup2(said[1], STDERR_FILENO) >= 0);
    close(said[1]);
    fl_status status = fl_host_key_await(path, LONG_MS);
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    close(said[0]);
    assert_int_equal(waitpid(head, &how, 0), head);
    assert_int_equal(how, 0);
    assert_int_equal(status, FL_OK);
}

static void test_key_wait__has_an_end(void **state)
{
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/none", dir);
    assert_int_equal(fl_host_key_await(path, 300), FL_EDEADLINE);
    assert_non_null(strstr(fl_errmsg(), "/none: no such file in 0 s; the head writes it"));
}

/* A path through a file: whoever reads it says what is wrong. */
static void test_key_wait__does_not_wait_for_what_cannot_be(void **state)
{
    (void)state;
    assert_int_equal(fl_host_key_await("/dev/null/hosts.key", LONG_MS), FL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_key_wait__ends_when_the_file_is_there, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(test_key_wait__has_an_end, make_dir, remove_dir),
        cmocka_unit_test(test_key_wait__does_not_wait_for_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
