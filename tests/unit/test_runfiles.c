/* The files of a run directory under a failing disk. */
#include "control/events/runfiles.h"

#include "device/log.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct rig {
    char folder[64];
    int dir_fd;
    fl_runfiles files;
} rig;

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    make_folder(r->folder);
    r->dir_fd = open(r->folder, O_RDONLY | O_DIRECTORY);
    *state = r;
    return fl_runfiles_open(&r->files, r->dir_fd) == FL_OK ? 0 : -1;
}

static int close_rig(void **state)
{
    rig *r = (rig *)*state;
    fl_runfiles_close(&r->files);
    unlinkat(r->dir_fd, "steps.jsonl", 0);
    unlinkat(r->dir_fd, "events.jsonl", 0);
    close(r->dir_fd);
    rmdir(r->folder);
    free(r);
    return 0;
}

static void read_file(const rig *r, const char *name, char *text, size_t size_bytes)
{
    int fd = openat(r->dir_fd, name, O_RDONLY);
    ssize_t n = read(fd, text, size_bytes - 1);
    assert_true(n >= 0);
    text[n] = 0;
    close(fd);
}

static void add_event(rig *r, const char *text)
{
    fl_json_text(fl_runfiles_event(&r->files, "test", 1), "text", text);
    fl_runfiles_event_end(&r->files);
}

static void test_runfiles__writes_events_at_once(void **state)
{
    rig *r = (rig *)*state;
    char text[4096];
    add_event(r, "first");
    read_file(r, "events.jsonl", text, sizeof text);
    assert_non_null(strstr(text, "\"event\": \"test\", \"generation\": 1, \"text\": \"first\"}\n"));
}

static void test_runfiles__writes_steps_when_flushed(void **state)
{
    rig *r = (rig *)*state;
    char text[4096];
    fl_step_report step = {.step = 1, .epoch = 2, .loss = 0.5, .ms = 12.34567, .k = 4};
    fl_runfiles_step(&r->files, &step);
    fl_runfiles_step(&r->files, &step);
    fl_runfiles_flush(&r->files);
    read_file(r, "steps.jsonl", text, sizeof text);
    const char *line = "{\"step\": 1, \"epoch\": 2, \"loss\": 0.5, \"grad_norm\": 0, \"lr\": 0, "
                       "\"generation\": 0, \"f\": 0, \"k\": 4, \"r\": 0, \"m\": 0, \"ms\": 12.346, "
                       "\"samples\": 0, \"tokens\": 0}\n";
    assert_memory_equal(text, line, strlen(line));
    assert_string_equal(text + strlen(line), line);
}

/* Would catch: half a line that breaks whoever reads the file, and a run that ends because its log
 * cannot be written. The file may not grow past a limit, as on a full disk. */
static void test_runfiles__leaves_no_half_line_on_a_full_disk(void **state)
{
    rig *r = (rig *)*state;
    char text[4096];
    struct rlimit before, small;
    add_event(r, "one");
    read_file(r, "events.jsonl", text, sizeof text);
    size_t whole = strlen(text);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){whole + 20, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    fl_log_level_set(FL_LOG_ERROR);
    add_event(r, "two");
    fl_log_level_set(FL_LOG_INFO);
    setrlimit(RLIMIT_FSIZE, &before);
    read_file(r, "events.jsonl", text, sizeof text);
    assert_int_equal(strlen(text), whole);
    assert_true(r->files.warned);
    add_event(r, "three");
    read_file(r, "events.jsonl", text, sizeof text);
    assert_non_null(strstr(text + whole, "\"text\": \"three\"}\n"));
}

static void test_runfiles__needs_a_directory_it_may_write(void **state)
{
    (void)state;
    fl_runfiles files;
    int fd = open("/proc", O_RDONLY | O_DIRECTORY);
    assert_int_equal(fl_runfiles_open(&files, fd), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "steps.jsonl"));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runfiles__writes_events_at_once, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_runfiles__writes_steps_when_flushed, open_rig,
                                        close_rig),
        cmocka_unit_test_setup_teardown(test_runfiles__leaves_no_half_line_on_a_full_disk, open_rig,
                                        close_rig),
        cmocka_unit_test(test_runfiles__needs_a_directory_it_may_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
