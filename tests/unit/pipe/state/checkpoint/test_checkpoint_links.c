/* Which files of the newest checkpoint the next one links, and which are written again or copied.
 */
#include "pipe/state/checkpoint/checkpoint_writer.h"

#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/state/checkpoint/checkpoint_file.h"
#include "support/data/saved_rig.h"
#include "support/data/saved_state.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* The file that a checkpoint has of a layer. */
static ino_t inode_of(int64_t step, fl_checkpoint_part part, int layer)
{
    char name[FL_CHECKPOINT_NAME_MAX], file[FL_CHECKPOINT_NAME_MAX], path[200];
    struct stat st;
    snprintf(path, sizeof path, "%s/checkpoints/%s/%s", saved_rig.folder,
             fl_checkpoint_folder_name(step, name), fl_checkpoint_file_name(part, layer, file));
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

static void follow(int F, int64_t step)
{
    saved_rig.run.plan.F = F;
    for (int rank = 0; rank < saved_rig.run.plan.n_workers; rank++) {
        fl_checkpoint_writer_follow(saved_rig.run.worker[rank].writer, &saved_rig.run.plan, step);
    }
}

/* Would catch: a frozen layer that is written again, and one that is linked although it trained
 * since. */
static void test_writer__links_what_was_frozen_before(void **state)
{
    (void)state;
    saved_rig_open(2, 1, 1, 1, 0, &saved_rig.first);
    int n_frozen = fl_frozen_layers(saved_rig.model, 2);
    saved_run_save(&saved_rig.run, 10);
    saved_run_keep(&saved_rig.run, 10);
    saved_run_save(&saved_rig.run, 20);
    saved_check(&saved_rig.run, 20, &saved_rig.first);
    for (int layer = 0; layer < fl_model_n_layers(saved_rig.model); layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            const fl_checkpoint_file_report *file =
                saved_run_file(&saved_rig.run, (fl_checkpoint_part)part, layer);
            assert_int_equal(file->linked, layer < n_frozen);
            assert_int_equal(inode_of(10, file->part, layer) == inode_of(20, file->part, layer),
                             layer < n_frozen);
        }
    }
    assert_int_equal(saved_rig.run.part[0].n_files, saved_rig.run.n_files);
    saved_run_close(&saved_rig.run);
}

/* A layer that froze after the newest checkpoint, or thawed for a while, has other weights there.
 */
static void test_writer__writes_what_froze_or_thawed_since(void **state)
{
    (void)state;
    int n_frozen = fl_frozen_layers(saved_rig.model, 2);
    saved_rig_open(2, 1, 1, 1, 0, &saved_rig.first);
    follow(0, 0);  /* all of them train: only the weights matter here */
    follow(2, 11); /* frozen after the checkpoint */
    saved_run_save(&saved_rig.run, 10);
    saved_run_keep(&saved_rig.run, 10);
    saved_run_save(&saved_rig.run, 20);
    for (int layer = 0; layer < n_frozen; layer++) {
        assert_false(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, layer)->linked);
    }
    saved_run_keep(&saved_rig.run, 20);
    saved_run_save(&saved_rig.run, 30);
    assert_true(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, 0)->linked);
    follow(1, 30);
    follow(2, 31);
    saved_run_keep(&saved_rig.run, 30);
    saved_run_save(&saved_rig.run, 40);
    for (int layer = 0; layer < n_frozen; layer++) {
        assert_int_equal(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, layer)->linked,
                         layer < fl_frozen_layers(saved_rig.model, 1));
    }
    saved_check(&saved_rig.run, 40, &saved_rig.first);
    saved_run_close(&saved_rig.run);
}

/* Another file system is where no link can lead: the newest checkpoint is moved to one. */
static void test_writer__copies_files_that_cannot_be_linked(void **state)
{
    (void)state;
    char command[512], shm[] = "/dev/shm/fl-test-XXXXXX";
    struct stat here, there;
    if (mkdtemp(shm) == NULL || stat(shm, &there) != 0 || stat(saved_rig.folder, &here) != 0 ||
        here.st_dev == there.st_dev) {
        rmdir(shm);
        skip();
    }
    saved_rig_open(2, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    snprintf(command, sizeof command,
             "cd %s/checkpoints && mv step-000000010 %s/ && ln -s %s/step-000000010 .",
             saved_rig.folder, shm, shm);
    assert_int_equal(system(command), 0);
    saved_run_keep(&saved_rig.run, 10);
    saved_run_save(&saved_rig.run, 20);
    saved_check(&saved_rig.run, 20, &saved_rig.first);
    for (int i = 0; i < saved_rig.run.n_files; i++) {
        assert_false(saved_rig.run.file[i].linked);
    }
    saved_run_close(&saved_rig.run);
    assert_int_equal(remove_folder(shm), 0);
}

/* Would catch: a run that writes no checkpoint any more after the newest was deleted by hand. */
static void test_writer__writes_what_was_deleted(void **state)
{
    (void)state;
    char command[256];
    saved_rig_open(2, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    saved_run_keep(&saved_rig.run, 10);
    assert_int_equal(unlinkat(saved_rig.store.dir_fd, "step-000000010/moments-001.safetensors", 0),
                     0);
    saved_run_save(&saved_rig.run, 20);
    saved_check(&saved_rig.run, 20, &saved_rig.first);
    assert_false(saved_run_file(&saved_rig.run, FL_CHECKPOINT_MOMENTS, 1)->linked);
    assert_true(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    snprintf(command, sizeof command, "rm -r %s/checkpoints/step-000000010", saved_rig.folder);
    assert_int_equal(system(command), 0);
    saved_run_save(&saved_rig.run, 30);
    saved_check(&saved_rig.run, 30, &saved_rig.first);
    assert_false(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    saved_run_close(&saved_rig.run);
}

/* Would catch: a checkpoint that fails because an older one was deleted after its file was checked,
 * before it was linked. */
static void test_writer__copies_what_was_deleted_after_its_check(void **state)
{
    (void)state;
    static const char name[] = "weights-001.safetensors";
    fl_checkpoint_file copy;
    bool refused = false;
    int file_fd = -1;
    saved_rig_open(2, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    const fl_checkpoint_file_report *file =
        saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, 1);
    int old_fd = openat(saved_rig.store.dir_fd, "step-000000010", O_RDONLY | O_DIRECTORY);
    assert_int_equal(
        fl_checkpoint_file_check(old_fd, name, file->bytes, file->xxh64, NULL, &file_fd), FL_OK);
    assert_int_equal(unlinkat(old_fd, name, 0), 0);
    assert_int_equal(fl_checkpoint_file_link(old_fd, saved_rig.store.dir_fd, name, &refused),
                     FL_OK);
    assert_true(refused);
    assert_int_equal(
        fl_checkpoint_file_copy(file_fd, file->bytes, saved_rig.store.dir_fd, name, NULL, &copy),
        FL_OK);
    assert_int_equal(copy.bytes, file->bytes);
    assert_true(copy.xxh64 == file->xxh64);
    assert_int_equal(fl_checkpoint_file_finish(&copy, name), FL_OK);
    assert_int_equal(unlinkat(saved_rig.store.dir_fd, name, 0), 0);
    close(file_fd);
    close(old_fd);
    saved_run_close(&saved_rig.run);
}

static void damage(const char *path)
{
    int fd = openat(saved_rig.store.dir_fd, path, O_RDWR);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 300), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 300), 1);
    close(fd);
}

/* Would catch: one damaged byte of a frozen layer that every later checkpoint inherits. */
static void test_writer__links_no_damaged_file(void **state)
{
    (void)state;
    saved_rig_open(2, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    saved_run_keep(&saved_rig.run, 10);
    damage("step-000000010/weights-001.safetensors");
    saved_run_save(&saved_rig.run, 20);
    assert_int_equal(saved_rig.run.part[0].status, FL_EFORMAT);
    if (strstr(saved_rig.run.part[0].text,
               "weights-001.safetensors of the newest checkpoint is damaged: its "
               "hash is ") == NULL) {
        fail_msg("%s", saved_rig.run.part[0].text);
    }
    saved_run_save(&saved_rig.run, 30);
    saved_check(&saved_rig.run, 30, &saved_rig.first);
    assert_false(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    assert_true(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, 0)->linked);
    saved_run_keep(&saved_rig.run, 30);
    saved_run_save(&saved_rig.run, 40);
    assert_true(saved_run_file(&saved_rig.run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    saved_run_close(&saved_rig.run);
}

/* The last checkpoint of a run has no next one. */
static void test_writer__checks_links_before_a_last_checkpoint(void **state)
{
    (void)state;
    saved_rig_open(2, 1, 1, 1, 0, &saved_rig.first);
    saved_run_save(&saved_rig.run, 10);
    saved_run_keep(&saved_rig.run, 10);
    damage("step-000000010/moments-000.safetensors");
    saved_worker *w = &saved_rig.run.worker[0];
    const fl_checkpoint_state now = {
        .plan = &saved_rig.run.plan, .params = &w->params, .parked = &w->parked};
    fl_checkpoint_writer_check_links(w->writer, &now);
    saved_run_save(&saved_rig.run, 20);
    saved_check(&saved_rig.run, 20, &saved_rig.first);
    assert_false(saved_run_file(&saved_rig.run, FL_CHECKPOINT_MOMENTS, 0)->linked);
    saved_run_close(&saved_rig.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_writer__links_what_was_frozen_before, saved_rig_set_up,
                                        saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__writes_what_froze_or_thawed_since,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__copies_files_that_cannot_be_linked,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__writes_what_was_deleted, saved_rig_set_up,
                                        saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__copies_what_was_deleted_after_its_check,
                                        saved_rig_set_up, saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__links_no_damaged_file, saved_rig_set_up,
                                        saved_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_writer__checks_links_before_a_last_checkpoint,
                                        saved_rig_set_up, saved_rig_tear_down),
    };
    return cmocka_run_group_tests(tests, saved_rig_set_up_all, saved_rig_tear_down_all);
}
