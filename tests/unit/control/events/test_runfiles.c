/* The files of a run directory under a failing disk. */
#include "control/events/runfiles.h"

#include "device/errors/log.h"
#include "support/folder.h"
#include "support/small_disk.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const fl_metric two[] = {{.name = "accuracy", .is_share = true}, {.name = "mae"}};
static const fl_metric_list metrics = {two, 2};

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
    unlinkat(r->dir_fd, "summary.txt", 0);
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
    step.metrics = (fl_metric_means){2, {0.75, (double)NAN}};
    fl_runfiles_step(&r->files, &metrics, &step);
    fl_runfiles_step(&r->files, &metrics, &step);
    fl_runfiles_flush(&r->files);
    read_file(r, "steps.jsonl", text, sizeof text);
    const char *line = "{\"step\": 1, \"epoch\": 2, \"loss\": 0.5, \"grad_norm\": 0, \"lr\": 0, "
                       "\"generation\": 0, \"f\": 0, \"k\": 4, \"r\": 0, \"m\": 0, \"ms\": 12.346, "
                       "\"samples\": 0, \"tokens\": 0, \"train_accuracy\": 0.75, "
                       "\"train_mae\": null}\n";
    assert_memory_equal(text, line, strlen(line));
    assert_string_equal(text + strlen(line), line);
}

/* The file may not grow beyond a limit, as on a full disk. Would catch: an incomplete line, which
 * readers of the file cannot parse; a run that ends because its log cannot be written. */
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
    assert_int_equal(r->files.gap[FL_RUNFILE_EVENTS].n_lines, 1);
    char gap[256];
    assert_string_equal(fl_runfile_gap_text(&r->files, FL_RUNFILE_EVENTS, gap, sizeof gap),
                        "events.jsonl lacks 1 event (File too large)");
    add_event(r, "three");
    read_file(r, "events.jsonl", text, sizeof text);
    assert_non_null(strstr(text + whole, "\"text\": \"three\"}\n"));
}

/* Returns an exit code: 77 is "not possible here". */
static int fill_and_end(const char *folder)
{
    fl_runfiles files;
    char text[8192] = "", gap[256], line[512];
    if (!small_disk_mount(folder, "size=512k")) {
        return 77;
    }
    int dir = open(folder, O_RDONLY | O_DIRECTORY);
    if (dir < 0 || fl_runfiles_open(&files, dir) != FL_OK) {
        return 1;
    }
    small_disk_fill(folder);
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    for (int i = 0; i < 1000; i++) {
        fl_json_text(fl_runfiles_event(&files, "ordinary", 1), "text", line);
        fl_runfiles_event_end(&files);
    }
    memset(line, 'y', sizeof line - 1);
    fl_json_text(fl_runfiles_event(&files, "run.finished", 1), "text", line);
    fl_runfiles_event_end(&files);
    fl_runfiles_summary(&files, line, sizeof line - 1);
    fl_runfile_gap_text(&files, FL_RUNFILE_EVENTS, gap, sizeof gap);
    fl_runfiles_close(&files);
    int events = openat(dir, "events.jsonl", O_RDONLY);
    off_t end = lseek(events, 0, SEEK_END);
    ssize_t n = pread(events, text, 1024, end > 1024 ? end - 1024 : 0);
    bool ended = n > 0 && strstr(text, "run.finished") != NULL;
    n = pread(openat(dir, "summary.txt", O_RDONLY), text, sizeof text, 0);
    bool summed = n == (ssize_t)sizeof line - 1 && text[0] == 'y';
    bool counted = strstr(gap, "events (No space left on device)") != NULL;
    return (ended ? 0 : 2) | (summed ? 0 : 4) | (counted ? 0 : 8);
}

/* Would catch: a run that reported success, but whose record has no end because the disk was full
 * by then; an empty summary. */
static void test_runfiles__have_room_for_the_end_on_a_full_disk(void **state)
{
    rig *r = (rig *)*state;
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        _exit(fill_and_end(r->folder));
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == 77) {
        skip();
    }
    assert_int_equal(WEXITSTATUS(how), 0);
}

static void test_runfiles__notice_that_they_were_removed(void **state)
{
    rig *r = (rig *)*state;
    char gap[256];
    fl_runfiles_look(&r->files);
    assert_string_equal(fl_runfile_gap_text(&r->files, FL_RUNFILE_STEPS, gap, sizeof gap), "");
    unlinkat(r->dir_fd, "steps.jsonl", 0);
    fl_runfiles_look(&r->files);
    assert_string_equal(fl_runfile_gap_text(&r->files, FL_RUNFILE_STEPS, gap, sizeof gap),
                        "steps.jsonl was removed while the run trained");
    assert_string_equal(fl_runfile_gap_text(&r->files, FL_RUNFILE_EVENTS, gap, sizeof gap), "");
}

static void test_runfiles__count_the_steps_that_they_lack(void **state)
{
    rig *r = (rig *)*state;
    char gap[256];
    fl_step_report step = {.step = 41};
    int full = open("/dev/full", O_WRONLY);
    close(r->files.fd[FL_RUNFILE_STEPS]);
    r->files.fd[FL_RUNFILE_STEPS] = full;
    fl_runfiles_step(&r->files, &metrics, &step);
    step.step++;
    fl_runfiles_step(&r->files, &metrics, &step);
    fl_runfiles_flush(&r->files);
    assert_string_equal(fl_runfile_gap_text(&r->files, FL_RUNFILE_STEPS, gap, sizeof gap),
                        "steps.jsonl lacks 2 steps, from step 41 on (No space left on device)");
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
        cmocka_unit_test_setup_teardown(test_runfiles__have_room_for_the_end_on_a_full_disk,
                                        open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_runfiles__notice_that_they_were_removed, open_rig,
                                        close_rig),
        cmocka_unit_test_setup_teardown(test_runfiles__count_the_steps_that_they_lack, open_rig,
                                        close_rig),
        cmocka_unit_test(test_runfiles__needs_a_directory_it_may_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
