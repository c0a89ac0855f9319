/* Files that the user names to be read: what is refused, and how long a pipe may take. */
#include "device/system/files/input_file.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHORT_MS = 50, LONG_MS = 600000, PATH_BYTES = FOLDER_SIZE + 16 };

static char folder[FOLDER_SIZE];

static int make_own_folder(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int remove_own_folder(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static const char *path_of(const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static const char *make_pipe(const char *name, char path[PATH_BYTES])
{
    assert_int_equal(mkfifo(path_of(name, path), 0600), 0);
    return path;
}

/* A process that opens the pipe, writes the texts, and closes it. */
static pid_t start_writer(const char *path, const char *const *texts)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(path, O_WRONLY);
        for (; fd >= 0 && *texts != NULL; texts++) {
            fd = write(fd, *texts, strlen(*texts)) == (ssize_t)strlen(*texts) ? fd : -1;
        }
        _exit(fd >= 0 ? 0 : 1);
    }
    return pid;
}

static void refused(const char *path, const char *kind)
{
    fl_input in;
    assert_int_equal(fl_input_open(path, &in), FL_EIO);
    if (strstr(fl_errmsg(), kind) == NULL || strstr(fl_errmsg(), path) != fl_errmsg()) {
        fail_msg("%s: %s", path, fl_errmsg());
    }
}

static void test_input_file__what_has_no_end_or_no_text_is_refused(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path_of("socket", path));
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    refused(path, "found a socket, allowed: a file, a pipe or a terminal");
    close(fd);
    refused("/dev/zero", "found a device, allowed:");
    refused("/dev/null", "found a device, allowed:");
    refused(folder, "found a folder, allowed:");
    refused(path_of("none", path), "cannot be opened: No such file");
}

static void test_input_file__a_file_is_read_up_to_the_capacity(void **state)
{
    (void)state;
    char path[FOLDER_SIZE], text[8];
    size_t n = 0;
    make_file(path, "0123456789", 10);
    assert_int_equal(fl_input_load(path, text, sizeof text, &n), FL_OK);
    assert_int_equal(n, 8);
    assert_memory_equal(text, "01234567", 8);
    assert_int_equal(truncate(path, 3), 0);
    assert_int_equal(fl_input_load(path, text, sizeof text, &n), FL_OK);
    assert_int_equal(n, 3);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(fl_input_load(path, text, sizeof text, &n), FL_OK);
    assert_int_equal(n, 0);
    unlink(path);
}

/* Would catch: an end that is taken for the missing writer, or the other way round. */
static void test_input_file__a_pipe_is_read_to_its_writers_end(void **state)
{
    (void)state;
    static const char *const two[] = {"first ", "second", NULL}, *const none[] = {NULL};
    char path[PATH_BYTES], text[64] = "";
    size_t n = 0;
    int code = -1;
    make_pipe("written", path);
    pid_t pid = start_writer(path, two);
    assert_int_equal(fl_input_load(path, text, sizeof text, &n), FL_OK);
    assert_int_equal(n, 12);
    assert_memory_equal(text, "first second", 12);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    pid = start_writer(path, none);
    assert_int_equal(fl_input_load(path, text, sizeof text, &n), FL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(waitpid(pid, &code, 0), pid);
}

static void must_fail(const char *path, int writer_ms, int whole_ms, const char *why)
{
    fl_input in;
    char text[8];
    size_t n;
    assert_int_equal(fl__input_open_within(path, writer_ms, whole_ms, &in), FL_OK);
    assert_int_equal(fl_input_fill(&in, text, sizeof text, &n), FL_EIO);
    if (strstr(fl_errmsg(), why) == NULL) {
        fail_msg("%s", fl_errmsg());
    }
    fl_input_close(&in);
}

/* The command waited for ever. */
static void test_input_file__a_pipe_without_a_writer_is_refused(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    make_pipe("idle", path);
    must_fail(path, SHORT_MS, LONG_MS, "idle: cannot be read: a pipe, and no program writes to it");
}

static void test_input_file__a_writer_that_does_not_end_is_not_awaited(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    make_pipe("open", path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    must_fail(path, SHORT_MS, 3 * SHORT_MS, "open: cannot be read: it has not ended in");
    assert_int_equal(write(fd, "x", 1), 1);
    must_fail(path, SHORT_MS, 3 * SHORT_MS, "open: cannot be read: it has not ended in");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input_file__what_has_no_end_or_no_text_is_refused),
        cmocka_unit_test(test_input_file__a_file_is_read_up_to_the_capacity),
        cmocka_unit_test(test_input_file__a_pipe_is_read_to_its_writers_end),
        cmocka_unit_test(test_input_file__a_pipe_without_a_writer_is_refused),
        cmocka_unit_test(test_input_file__a_writer_that_does_not_end_is_not_awaited),
    };
    return cmocka_run_group_tests(tests, make_own_folder, remove_own_folder);
}
