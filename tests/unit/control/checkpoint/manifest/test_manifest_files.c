/* Checkpoints in folders: written, listed, read and verified. */
#include "control/checkpoint/manifest/manifest.h"

#include "device/system/alloc.h"
#include "support/data/checkpoints.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEP = 500 };

static char folder[FOLDER_SIZE];
static fl_checkpoint *read_back;

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    return fl_alloc(sizeof *read_back, (void **)&read_back) == FL_OK ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    destroy_checkpoint(read_back);
    return remove_folder(folder);
}

static char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/step-000000500/%s", folder, name);
    return path;
}

static void test_manifest_files__a_written_checkpoint_is_read_listed_and_verified(void **state)
{
    (void)state;
    fl_checkpoint_folder *folders = NULL;
    int n = 0;
    fl_checkpoint *newer = make_checkpoint(500, 4), *older = make_checkpoint(60, 5);
    write_checkpoint(folder, older);
    write_checkpoint(folder, newer);
    char abandoned[128];
    snprintf(abandoned, sizeof abandoned, "%s/step-000000700", folder);
    assert_int_equal(mkdir(abandoned, 0700), 0);
    snprintf(abandoned, sizeof abandoned, "%s/step-7", folder); /* no name of a checkpoint */
    assert_int_equal(mkdir(abandoned, 0700), 0);
    assert_int_equal(fl_checkpoint_list(folder, &folders, &n), FL_OK);
    assert_int_equal(n, 3);
    assert_int_equal(folders[0].step, 700);
    assert_false(folders[0].whole);
    assert_int_equal(folders[1].step, 500);
    assert_true(folders[1].whole);
    assert_string_equal(folders[1].name, "step-000000500");
    assert_int_equal(folders[2].step, 60);
    fl_free(folders);
    assert_int_equal(fl_checkpoint_read(path_of(""), read_back), FL_OK);
    assert_same_checkpoint(newer, read_back);
    for (int threads = 1; threads <= 8; threads *= 2) {
        assert_int_equal(fl_checkpoint_verify(read_back, path_of(""), threads), FL_OK);
    }
    destroy_checkpoint(newer);
    destroy_checkpoint(older);
}

static void test_manifest_files__a_folder_that_is_not_there_has_no_checkpoints(void **state)
{
    (void)state;
    fl_checkpoint_folder *folders = NULL;
    int n = -1;
    assert_int_equal(fl_checkpoint_list(path_of("nothing"), &folders, &n), FL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(fl_checkpoint_read(path_of(""), read_back), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "manifest.json: No such file"));
}

/* Each file in turn: one byte changed, one byte less, one more, gone. */
static void test_manifest_files__each_damaged_file_is_named(void **state)
{
    (void)state;
    fl_checkpoint *c = make_checkpoint(STEP, 6);
    write_checkpoint(folder, c);
    for (int i = 0; i < c->n_files; i++) {
        const char *name = c->file[i].name;
        char byte, other;
        int fd = open(path_of(name), O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, &byte, 1, 100), 1);
        other = (char)(byte ^ 4);
        assert_int_equal(pwrite(fd, &other, 1, 100), 1);
        assert_int_equal(fl_checkpoint_verify(c, path_of(""), 3), FL_EFORMAT);
        assert_non_null(strstr(fl_errmsg(), name));
        assert_non_null(strstr(fl_errmsg(), "damaged: its hash is"));
        assert_int_equal(pwrite(fd, &byte, 1, 100), 1);
        assert_int_equal(fl_checkpoint_verify(c, path_of(""), 3), FL_OK);
        for (int more = -1; more <= 1; more += 2) {
            assert_int_equal(ftruncate(fd, c->file[i].bytes + more), 0);
            assert_int_equal(fl_checkpoint_verify(c, path_of(""), 3), FL_EFORMAT);
            assert_non_null(strstr(fl_errmsg(), "bytes, the manifest has 400"));
        }
        close(fd);
        assert_int_equal(unlink(path_of(name)), 0);
        assert_int_equal(fl_checkpoint_verify(c, path_of(""), 3), FL_EIO);
        assert_non_null(strstr(fl_errmsg(), name));
        assert_int_equal(remove_folder(path_of("")), 0);
        write_checkpoint(folder, c);
    }
    destroy_checkpoint(c);
}

/* A pipe in the place of the manifest must not make the reader wait. */
static void test_manifest_files__something_else_than_a_file_is_refused(void **state)
{
    (void)state;
    fl_checkpoint *c = make_checkpoint(STEP, 7);
    write_checkpoint(folder, c);
    assert_int_equal(unlink(path_of("manifest.json")), 0);
    assert_int_equal(mkfifo(path_of("manifest.json"), 0600), 0);
    assert_int_equal(fl_checkpoint_read(path_of(""), read_back), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "something else than a file"));
    destroy_checkpoint(c);
}

/* What failed leaves no manifest, whichever allocation failed. */
static void test_manifest_files__without_memory_nothing_is_left_behind(void **state)
{
    (void)state;
    fl_checkpoint *c = make_listed_checkpoint(STEP, 8);
    assert_int_equal(mkdir(path_of(""), 0700), 0);
    int fd = open(path_of(""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (uint64_t i = 1; i < 10; i++) {
        fl_alloc_fail_at(i);
        fl_status status = fl_checkpoint_write(c, fd);
        fl_alloc_fail_at(0);
        if (status == FL_OK) {
            assert_true(i > 1);
            break;
        }
        assert_int_equal(status, FL_ENOMEM);
        assert_int_not_equal(access(path_of("manifest.json"), F_OK), 0);
        assert_int_not_equal(access(path_of("manifest.json.part"), F_OK), 0);
    }
    for (uint64_t i = 1; i < 10; i++) {
        fl_checkpoint_fini(read_back);
        fl_alloc_fail_at(i);
        fl_status status = fl_checkpoint_read(path_of(""), read_back);
        fl_alloc_fail_at(0);
        if (status == FL_OK) {
            assert_true(i > 1);
            break;
        }
        assert_int_equal(status, FL_ENOMEM);
    }
    close(fd);
    destroy_checkpoint(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_manifest_files__##name, set_up, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_written_checkpoint_is_read_listed_and_verified),
        TEST(a_folder_that_is_not_there_has_no_checkpoints),
        TEST(each_damaged_file_is_named),
        TEST(something_else_than_a_file_is_refused),
        TEST(without_memory_nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
