/* Images: decoded and resized as Pillow does, to the last bit; every broken file refused with its
 * name; the data set the same whether images are kept or decoded as they are read.
 * The files come from tests/reference/make_images_reference.py. */
#include "data/images/images_dataset.h"
#include "data/images/load.h"
#include "support/folder.h"
#include "support/program.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define REFERENCE FL_SOURCE_DIR "/tests/reference/images"

enum { SIDE = 8, PLANE = SIDE * SIDE, NAMES_MAX = 32, EXPECTED_MAX = NAMES_MAX * 4 * PLANE };

static char root[FOLDER_SIZE];

static int set_up(void **state)
{
    (void)state;
    make_folder(root);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(root);
}

/* ---- single files ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int list_names(const char *folder, char names[NAMES_MAX][64])
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.') {
            assert_true(n < NAMES_MAX);
            snprintf(names[n++], sizeof names[0], "%s", e->d_name);
        }
    }
    closedir(dir);
    qsort(names, (size_t)n, sizeof names[0], compare_names);
    return n;
}

static void test_images__pixels_are_those_of_pillow(void **state)
{
    (void)state;
    static uint8_t expected[EXPECTED_MAX], found[3 * PLANE];
    char names[NAMES_MAX][64], path[512];
    int n = list_names(REFERENCE "/good", names);
    FILE *file = fopen(REFERENCE "/expected.bin", "rb");
    assert_non_null(file);
    assert_int_equal(fread(expected, 1, sizeof expected, file), (size_t)n * 4 * PLANE);
    fclose(file);
    for (int i = 0; i < n; i++) {
        const uint8_t *wanted = expected + (size_t)i * 4 * PLANE;
        snprintf(path, sizeof path, REFERENCE "/good/%s", names[i]);
        for (int channels = 3; channels >= 1; channels -= 2) {
            if (fl__image_load(path, channels, SIDE, found, NULL) != FL_OK) {
                fail_msg("%s", fl_errmsg());
            }
            if (memcmp(found, wanted, (size_t)channels * PLANE) != 0) {
                fail_msg("%s in %d channels: %d %d %d, Pillow has %d %d %d", names[i], channels,
                         found[0], found[1], found[2], wanted[0], wanted[1], wanted[2]);
            }
            wanted += 3 * PLANE;
        }
    }
}

static void test_images__broken_files_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"cut.jpg", "a damaged JPEG: "},
        {"cut_early.jpg", "a damaged JPEG: "},
        {"cut.png", "a damaged PNG: "},
        {"checksum.png", "a damaged PNG: "},
        {"empty.png", "an empty file found, allowed: a JPEG or PNG file"},
        {"text.jpg", "another found, allowed: a JPEG or PNG file"},
        {"huge.png", "a damaged PNG: "},
        {"large.png", "16384 x 16384 pixels found, allowed: sides of at most 16384, 67108864"},
        {"gif.png", "GIF found, allowed: a JPEG or PNG file"},
        {"cmyk.jpg", "a JPEG in CMYK found, allowed: gray or RGB"},
    };
    static uint8_t found[3 * PLANE];
    char names[NAMES_MAX][64];
    assert_int_equal(list_names(REFERENCE "/bad", names), sizeof cases / sizeof *cases);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        snprintf(path, sizeof path, REFERENCE "/bad/%s", cases[i].name);
        assert_int_equal(fl__image_load(path, 3, SIDE, found, NULL), FL_EFORMAT);
        if (strstr(fl_errmsg(), cases[i].says) == NULL || strstr(fl_errmsg(), path) == NULL) {
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].name, fl_errmsg(), cases[i].says);
        }
    }
}

/* ---- the data set ---- */

static const fl_images_options small = {.size = 6,
                                        .channels = 3,
                                        .augment = FL_AUGMENT_CROP_FLIP,
                                        .crop_pixels = 2,
                                        .mean = {0.5, 0.4, 0.3},
                                        .deviation = {0.25, 0.5, 1},
                                        .keep_bytes = 1 << 20,
                                        .n_threads = 3};

/* cat with two images, dog with three, one of them by a link, and files that are no images. */
static void make_folders(void)
{
    program_shell(root, "rm -rf data && mkdir -p data/train/dog data/train/cat data/test/dog && "
                        "cd data && cp " REFERENCE "/good/small.png train/cat/a.png && "
                        "cp " REFERENCE "/good/gray.JPG train/cat/b.JPG && "
                        "cp " REFERENCE "/good/alpha.png train/dog/1.png && "
                        "cp " REFERENCE "/good/baseline.jpg train/dog/2.jpg && "
                        "ln -s ../cat/a.png train/dog/3.png && echo x >train/README && "
                        "echo x >train/cat/notes.txt && mkdir train/.hidden && "
                        "cp " REFERENCE "/good/palette.png test/dog/1.png");
}

static fl_status open_with(const fl_images_options *base, const char *train, const char *test,
                           fl_dataset *out, fl_images_info *info)
{
    char path[2][512];
    fl_images_options o = *base;
    snprintf(path[0], sizeof path[0], "%s/data/%s", root, train);
    snprintf(path[1], sizeof path[1], "%s/data/%s", root, test == NULL ? "" : test);
    o.path[0] = train[0] == '\0' ? NULL : path[0];
    o.path[1] = test == NULL ? NULL : path[1];
    return fl_dataset_images_open(&o, out, info);
}

static void test_images__folders_are_classes(void **state)
{
    (void)state;
    static const int32_t labels[] = {0, 0, 1, 1, 1};
    fl_dataset d = {0};
    fl_images_info info;
    int32_t label = -1;
    make_folders();
    assert_int_equal(open_with(&small, "train", "test", &d, &info), FL_OK);
    assert_int_equal(info.image.n_classes, 2);
    assert_string_equal(info.labels[0], "cat");
    assert_string_equal(info.labels[1], "dog");
    assert_int_equal(info.n_skipped, 2);
    assert_true(info.kept);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 5);
    assert_int_equal(d.ops->count(d.self, FL_TEST), 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(d.ops->targets(d.self, FL_TRAIN, i, &label), FL_OK);
        assert_int_equal(label, labels[i]);
    }
    assert_int_equal(d.ops->targets(d.self, FL_TEST, 0, &label), FL_OK);
    assert_int_equal(label, 1);
    assert_int_equal(d.ops->targets(d.self, FL_TEST, 1, &label), FL_EINVAL);
    fl_dataset_destroy(&d);
}

/* The classes of a trained model keep their numbers, whatever folders there are. */
static void test_images__given_classes_keep_their_order(void **state)
{
    (void)state;
    static const char *const labels[] = {"dog", "emu", "cat"};
    fl_images_options o = small;
    fl_dataset d = {0};
    int32_t label = -1;
    make_folders();
    o.labels = labels;
    o.n_labels = 3;
    assert_int_equal(open_with(&o, "", "train", &d, NULL), FL_OK);
    assert_int_equal(d.ops->targets(d.self, FL_TEST, 0, &label), FL_OK);
    assert_int_equal(label, 2);
    assert_int_equal(fl_dataset_images_info(&d)->image.n_classes, 3);
    fl_dataset_destroy(&d);
    o.n_labels = 2;
    assert_int_equal(open_with(&o, "", "train", &d, NULL), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "the class cat found, allowed: one of the 2 classes"));
}

/* Whether images are kept or decoded when they are read, on however many threads: the same floats,
 * the same fingerprint. An augmentation is a function of seed, epoch and sample. */
static void test_images__kept_or_not_is_the_same(void **state)
{
    (void)state;
    enum { WIDTH = 3 * 6 * 6 };
    fl_images_options late = small;
    fl_dataset d[2] = {{0}};
    fl_images_info info;
    float x[2][WIDTH], plain[WIDTH];
    int n_different = 0;
    late.keep_bytes = 0;
    late.n_threads = 1;
    make_folders();
    assert_int_equal(open_with(&small, "train", "test", &d[0], NULL), FL_OK);
    assert_int_equal(open_with(&late, "train", "test", &d[1], &info), FL_OK);
    assert_false(info.kept);
    assert_true(d[0].ops->fingerprint(d[0].self) == d[1].ops->fingerprint(d[1].self));
    for (int64_t i = 0; i < 30; i++) {
        const fl_sample_key key = {.seed = 7, .epoch = i / 5, .id = i % 5, .augment = true};
        const fl_sample_key same = {.seed = 7, .epoch = 0, .id = i % 5};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(d[k].ops->read(d[k].self, FL_TRAIN, &key, x[k]), FL_OK);
        }
        assert_memory_equal(x[0], x[1], sizeof x[0]);
        assert_int_equal(d[1].ops->read(d[1].self, FL_TRAIN, &same, plain), FL_OK);
        n_different += memcmp(x[0], plain, sizeof plain) != 0;
    }
    assert_true(n_different > 20);
    fl_dataset_destroy(&d[0]);
    fl_dataset_destroy(&d[1]);
}

/* (value / 255 - mean) / deviation, by channel. */
static void test_images__pixels_are_normalized_by_channel(void **state)
{
    (void)state;
    fl_images_options o = small;
    fl_dataset d = {0};
    static uint8_t bytes[3 * PLANE];
    static float x[3 * PLANE];
    const fl_sample_key key = {.id = 0};
    make_folders();
    o.size = SIDE;
    assert_int_equal(open_with(&o, "train", NULL, &d, NULL), FL_OK);
    assert_int_equal(fl__image_load(REFERENCE "/good/small.png", 3, SIDE, bytes, NULL), FL_OK);
    assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, x), FL_OK);
    for (int i = 0; i < 3 * PLANE; i++) {
        const double wanted =
            (bytes[i] / 255.0 - small.mean[i / PLANE]) / small.deviation[i / PLANE];
        assert_true(x[i] == (float)wanted);
    }
    fl_dataset_destroy(&d);
}

static void test_images__another_file_has_another_fingerprint(void **state)
{
    (void)state;
    fl_dataset d[2] = {{0}};
    make_folders();
    assert_int_equal(open_with(&small, "train", "test", &d[0], NULL), FL_OK);
    program_shell(root, "cp " REFERENCE "/good/exact.png data/test/dog/1.png");
    assert_int_equal(open_with(&small, "train", "test", &d[1], NULL), FL_OK);
    assert_true(d[0].ops->fingerprint(d[0].self) != d[1].ops->fingerprint(d[1].self));
    fl_dataset_destroy(&d[0]);
    fl_dataset_destroy(&d[1]);
}

static void test_images__broken_folders_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *change, *says;
        fl_status status;
    } cases[] = {
        {"rm -r data/train", "data/train: No such file or directory", FL_EIO},
        {"rm -r data/train/*", "data/train: 0 folders found, allowed: a folder for each",
         FL_EFORMAT},
        {"rm data/train/cat/*", "data/train/cat: no image found, allowed: files whose", FL_EFORMAT},
        {"mkdir data/train/cat/c.png", "cat/c.png: found no regular file, allowed: an image",
         FL_EFORMAT},
        {"mkfifo data/train/cat/c.png", "cat/c.png: found no regular file, allowed: an image",
         FL_EFORMAT},
        {"ln -s nowhere data/train/cat/c.png", "cat/c.png: No such file", FL_EIO},
        {"mkdir data/test/emu && cp data/train/cat/a.png data/test/emu",
         "data/test: the class emu found, allowed: one of the 2 classes", FL_EFORMAT},
        {"cp " REFERENCE "/bad/cut.jpg data/train/cat/c.jpg && "
         "cp " REFERENCE "/bad/empty.png data/train/dog/0.png",
         "cat/c.jpg: a damaged JPEG: ", FL_EFORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_dataset d = {0};
        make_folders();
        program_shell(root, cases[i].change);
        assert_int_equal(open_with(&small, "train", "test", &d, NULL), cases[i].status);
        if (strstr(fl_errmsg(), cases[i].says) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", fl_errmsg(), cases[i].says);
        }
    }
}

/* An image that is replaced by a broken one while the run goes on fails the read, by its name. */
static void test_images__a_file_that_breaks_later_is_named(void **state)
{
    (void)state;
    fl_images_options late = small;
    fl_dataset d = {0};
    float x[3 * 6 * 6];
    const fl_sample_key key = {.id = 1};
    late.keep_bytes = 0;
    make_folders();
    assert_int_equal(open_with(&late, "train", NULL, &d, NULL), FL_OK);
    program_shell(root, "cp " REFERENCE "/bad/text.jpg data/train/cat/b.JPG");
    assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, x), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "cat/b.JPG: another found"));
    fl_dataset_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images__pixels_are_those_of_pillow),
        cmocka_unit_test(test_images__broken_files_are_refused_by_name),
        cmocka_unit_test(test_images__folders_are_classes),
        cmocka_unit_test(test_images__given_classes_keep_their_order),
        cmocka_unit_test(test_images__kept_or_not_is_the_same),
        cmocka_unit_test(test_images__pixels_are_normalized_by_channel),
        cmocka_unit_test(test_images__another_file_has_another_fingerprint),
        cmocka_unit_test(test_images__broken_folders_are_refused),
        cmocka_unit_test(test_images__a_file_that_breaks_later_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
