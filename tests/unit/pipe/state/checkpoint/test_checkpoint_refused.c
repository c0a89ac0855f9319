/* Checkpoints that a disk refuses, and files that are not those of the checkpoint. */
#include "pipe/state/checkpoint/checkpoint_writer.h"

#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "support/data/saved_rig.h"
#include "support/data/saved_state.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_failure(const char *says)
{
    if (saved_rig.run.part[0].status == FL_OK || strstr(saved_rig.run.part[0].text, says) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", saved_rig.run.part[0].text, says);
    }
}

/* Would catch: a failure without the file and the reason, a file left open, and a later checkpoint
 * that fails, too. */
static void test_writer__names_the_file_that_finds_no_room(void **state)
{
    (void)state;
    struct rlimit limit;
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    int before = saved_rig_n_files();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {4096, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    saved_run_save(&saved_rig.run, 20);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_failure("worker 0, step-000000020: ");
    expect_failure(".safetensors: no room for ");
    expect_failure(": File too large");
    assert_int_equal(saved_rig_n_files(), before);
    saved_run_save(&saved_rig.run, 30);
    saved_check(&saved_rig.run, 30, &saved_rig.first);
    saved_run_close(&saved_rig.run);
}

/* Would catch: a durable checkpoint that is written over. */
static void test_writer__overwrites_nothing(void **state)
{
    (void)state;
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    saved_run_close(&saved_rig.run);
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.second);
    saved_run_save(&saved_rig.run, 10);
    expect_failure("step-000000010: cannot make weights-000.safetensors: File exists");
    assert_int_equal(saved_rig.run.part[0].status,
                     FL_EBUSY); /* the controller asks for a later step */
    saved_run_close(&saved_rig.run);
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 20);
    saved_check(&saved_rig.run, 20, &saved_rig.first);
    saved_rig.run.n_files = 0;
    for (int i = 0; i < fl_model_n_layers(saved_rig.model) * FL_CHECKPOINT_PARTS; i++) {
        saved_rig.run.file[saved_rig.run.n_files++] =
            (fl_checkpoint_file_report){.layer = i / FL_CHECKPOINT_PARTS,
                                        .part = (fl_checkpoint_part)(i % FL_CHECKPOINT_PARTS),
                                        .linked = true};
    }
    saved_rig.run.part[0].step = 10;
    saved_check(&saved_rig.run, 10, &saved_rig.first);
    saved_run_close(&saved_rig.run);
}

static void test_writer__reports_a_folder_that_is_gone(void **state)
{
    (void)state;
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    assert_int_equal(unlinkat(saved_rig.folder_fd, "checkpoints", AT_REMOVEDIR), 0);
    saved_run_save(&saved_rig.run, 10);
    expect_failure("cannot make the folder step-000000010: No such file or directory");
    assert_int_equal(mkdirat(saved_rig.folder_fd, "checkpoints", 0700),
                     0); /* another one of the name */
    saved_run_save(&saved_rig.run, 20);
    expect_failure("cannot make the folder step-000000020: No such file or directory");
    saved_run_close(&saved_rig.run);
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return good;
}

/* Mounts of this process alone: as root at once, else as the root of a namespace of its own. */
static bool may_mount(void)
{
    char uid[64], gid[64];
    snprintf(uid, sizeof uid, "0 %d 1", (int)geteuid());
    snprintf(gid, sizeof gid, "0 %d 1", (int)getegid());
    bool alone =
        unshare(CLONE_NEWNS) == 0 ||
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/setgroups", "deny") &&
         write_text("/proc/self/uid_map", uid) && write_text("/proc/self/gid_map", gid));
    return alone && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* On a disk of 256 KiB, in a process of its own. Returns its exit code: 77, no such disk. */
static int fill_a_disk(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/disk", saved_rig.folder);
    if (mkdir(path, 0700) != 0 || !may_mount() ||
        mount("tmpfs", path, "tmpfs", 0, "size=256k") != 0) {
        return 77;
    }
    fl_checkpoint_store_close(&saved_rig.store);
    if (fl_checkpoint_store_open(AT_FDCWD, path, &saved_rig.store) != FL_OK) {
        return 1;
    }
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    bool said = saved_rig.run.part[0].status == FL_EIO &&
                strstr(saved_rig.run.part[0].text, "No space left on device") != NULL &&
                strstr(saved_rig.run.part[0].text, ".safetensors: ") != NULL;
    saved_run_close(&saved_rig.run);
    umount(path);
    return said ? 0 : 1;
}

static void test_writer__says_that_the_disk_is_full(void **state)
{
    (void)state;
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(fill_a_disk());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        skip(); /* this system lets no test mount a disk */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- loading ---- */

static fl_status load_weight(const char *step)
{
    fl_checkpoint_source saved;
    float value[4096];
    int fd = openat(saved_rig.store.dir_fd, step, O_RDONLY);
    fl_state_source source = fl_checkpoint_source_open(saved_rig.model, fd, SAVED_MOMENTS, &saved);
    fl_status status = source.read(source.self, 1, 0, FL_STATE_WEIGHT, value);
    fl_checkpoint_source_close(&saved);
    close(fd);
    return status;
}

static void expect_message(const char *says)
{
    if (strstr(fl_errmsg(), says) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", fl_errmsg(), says);
    }
}

/* Would catch: a file that is read although it is not the layer's. */
static void test_source__refuses_files_that_do_not_fit(void **state)
{
    (void)state;
    saved_rig_open(0, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    saved_run_close(&saved_rig.run);
    const char *file = "step-000000010/weights-001.safetensors";
    assert_int_equal(load_weight("step-000000010"), FL_OK);
    assert_int_equal(renameat(saved_rig.store.dir_fd, "step-000000010/weights-002.safetensors",
                              saved_rig.store.dir_fd, file),
                     0);
    assert_int_equal(load_weight("step-000000010"), FL_EINVAL);
    expect_message("the checkpoint: weights-001.safetensors has no tensor \"");
    int fd = openat(saved_rig.store.dir_fd, file, O_WRONLY);
    assert_int_equal(ftruncate(fd, 100), 0);
    close(fd);
    assert_int_equal(load_weight("step-000000010"), FL_EFORMAT);
    expect_message("the checkpoint: weights-001.safetensors: ");
    assert_int_equal(unlinkat(saved_rig.store.dir_fd, file, 0), 0);
    assert_int_equal(load_weight("step-000000010"), FL_EIO);
    expect_message("cannot open weights-001.safetensors: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_writer__names_the_file_that_finds_no_room,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__overwrites_nothing, saved_rig_set_up,
                                        saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__reports_a_folder_that_is_gone,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__says_that_the_disk_is_full, saved_rig_set_up,
                                        saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_source__refuses_files_that_do_not_fit,
                                        saved_rig_set_up, saved_rig_tear_down),
    };
    return cmocka_run_group_tests(tests, saved_rig_set_up_all, saved_rig_tear_down_all);
}
