/* What a host that joins says of a run directory. Would catch: a message that sends the user of an
 * agent to look for another mount, although this user may not read the keys of the run. */
#include "launcher/run/joined/joined_open.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NOBODY = 65534 };

/* In a process of its own, which gives up the rights of root. */
static int open_as_nobody(const char *dir)
{
    static const fl_curve_keys keys;
    int how = -1, dir_fd;
    pid_t pid = fork();
    if (pid == 0) {
        char denied[FOLDER_SIZE + 64];
        snprintf(denied, sizeof denied, "--join: %s/hosts.key: Permission denied; allowed: ", dir);
        bool dropped = geteuid() != 0 || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        bool refused =
            dropped && fl_joined_open_shared(dir, NULL, "/", &keys, &dir_fd) == FL_EINVAL;
        if (!refused || strncmp(fl_errmsg(), denied, strlen(denied)) != 0) {
            fprintf(stderr, "%s\n", fl_errmsg());
            _exit(1);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

static void test_joined_open__keys_of_another_user(void **state)
{
    (void)state;
    char dir[FOLDER_SIZE], path[FOLDER_SIZE + 16];
    make_folder(dir);
    snprintf(path, sizeof path, "%s/hosts.key", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(open_as_nobody(dir), 0);
    assert_int_equal(remove_folder(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_joined_open__keys_of_another_user)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
