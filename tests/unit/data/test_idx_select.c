/* Classes of an idx data set. Would catch: an image under another image's label, labels in the
 * files' order instead of the job's, pixels that look different to a model that was trained on
 * other classes of the data, a data set of other classes with the same fingerprint (the cache would
 * then take values of other images). */
#include "data/idx_dataset.h"

#include "support/data/idx_files.h"
#include "support/folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PIXELS = SIDE_Y * SIDE_X };

static char folder[64];

/* Labels 2 0 1 2 0 of the training images, 1 2 0 of the test images. */
static int make_labelled(void **state)
{
    (void)state;
    const uint32_t n_train = N_TRAIN, n_test = N_TEST;
    bytes train = idx_bytes(1, &n_train, 2, 3), test = idx_bytes(1, &n_test, 1, 3);
    make_folder(folder);
    write_sound(folder);
    write_file(folder, idx_names[1], &train);
    write_file(folder, idx_names[3], &test);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static fl_dataset open_classes(const int *classes, int n, fl_idx_info *info)
{
    fl_dataset d = {0};
    const fl_idx_options options = {.folder = folder, .classes = classes, .n_classes = n};
    assert_int_equal(fl_dataset_idx_open(&options, &d, info), FL_OK);
    return d;
}

/* Sample i of the selection has this label, and the pixels of the files' image `of`. */
static void check_sample(const fl_dataset *d, fl_split split, int64_t i, int32_t label, int64_t of,
                         const fl_idx_normalization *by)
{
    bytes file = sound_bytes(split == FL_TRAIN ? 0 : 2);
    float pixels[PIXELS];
    int32_t found = -1;
    assert_int_equal(d->ops->targets(d->self, split, i, &found), FL_OK);
    assert_int_equal(found, label);
    assert_int_equal(d->ops->read(d->self, split, &(fl_sample_key){.id = i}, pixels), FL_OK);
    for (int64_t p = 0; p < PIXELS; p++) {
        double expected = (file.at[16 + of * PIXELS + p] / 255.0 - by->mean) / by->deviation;
        assert_true(fabs((double)pixels[p] - expected) < 1e-5);
    }
}

static void test_idx_select__keeps_images_of_the_classes_in_the_jobs_order(void **state)
{
    (void)state;
    static const int classes[] = {2, 1};
    fl_idx_info info;
    fl_idx_normalization of_all, of_some;
    fl_dataset all = open_classes(NULL, 0, NULL);
    assert_non_null(fl_dataset_idx_info(&all, &of_all));
    fl_dataset d = open_classes(classes, 2, &info);
    assert_int_equal(info.n_classes, 2);
    assert_non_null(fl_dataset_idx_info(&d, &of_some));
    assert_true(of_some.mean == of_all.mean && of_some.deviation == of_all.deviation);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 3);
    assert_int_equal(d.ops->count(d.self, FL_TEST), 2);
    check_sample(&d, FL_TRAIN, 0, 0, 0, &of_all);
    check_sample(&d, FL_TRAIN, 1, 1, 2, &of_all);
    check_sample(&d, FL_TRAIN, 2, 0, 3, &of_all);
    check_sample(&d, FL_TEST, 0, 1, 0, &of_all);
    check_sample(&d, FL_TEST, 1, 0, 1, &of_all);
    fl_dataset_destroy(&d);
    fl_dataset_destroy(&all);
}

static void test_idx_select__other_classes_are_another_data_set(void **state)
{
    (void)state;
    static const int some[] = {0, 1}, turned[] = {1, 0}, all[] = {0, 1, 2};
    fl_dataset d[] = {open_classes(some, 2, NULL), open_classes(turned, 2, NULL),
                      open_classes(all, 3, NULL), open_classes(NULL, 0, NULL)};
    uint64_t print[4];
    for (int i = 0; i < 4; i++) {
        print[i] = d[i].ops->fingerprint(d[i].self);
        fl_dataset_destroy(&d[i]);
    }
    assert_true(print[0] != print[1] && print[0] != print[2] && print[1] != print[2]);
    assert_true(print[2] == print[3]); /* all classes in their order: the files' own data set */
}

static void test_idx_select__refuses_classes_that_are_not_there(void **state)
{
    (void)state;
    static const struct {
        int classes[3], n;
        const char *message;
    } calls[] = {
        {{0, 3}, 2, "training images: found class 3, which has no image; the largest label is 2"},
        {{0, 1, 0}, 3, "found class 0 twice, allowed: each class once"},
        {{256}, 1, "found class 256, allowed: 0 to 255"},
        {{-1}, 1, "found class -1, allowed: 0 to 255"},
        {{0}, 257, "found 257 classes, allowed: 1 to 256"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fl_dataset d = {0};
        const fl_idx_options options = {
            .folder = folder, .classes = calls[i].classes, .n_classes = calls[i].n};
        assert_int_equal(fl_dataset_idx_open(&options, &d, NULL), FL_EINVAL);
        assert_string_equal(fl_errmsg(), calls[i].message);
        assert_null(d.ops);
    }
}

/* Each class needs images to learn from, and images to evaluate on. */
static void test_idx_select__needs_images_in_both_splits(void **state)
{
    (void)state;
    static const int classes[] = {0};
    const uint32_t n = N_TEST;
    bytes ones = idx_bytes(1, &n, 0, 1);
    memset(ones.at + 8, 1, N_TEST);
    write_file(folder, idx_names[3], &ones);
    fl_dataset d = {0};
    const fl_idx_options options = {.folder = folder, .classes = classes, .n_classes = 1};
    assert_int_equal(fl_dataset_idx_open(&options, &d, NULL), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "test images: found class 0, which has no image; the largest label is 1");
}

/* A model of some classes can be used on images of which nothing is known. */
static void test_idx_select__uses_all_images_without_labels(void **state)
{
    (void)state;
    static const int classes[] = {0};
    fl_dataset d = {0};
    const fl_idx_options options = {
        .folder = folder, .classes = classes, .n_classes = 1, .labels_optional = true};
    remove_file(folder, idx_names[3]);
    assert_int_equal(fl_dataset_idx_open(&options, &d, NULL), FL_OK);
    assert_true(d.ops->count(d.self, FL_TRAIN) < N_TRAIN);
    assert_int_equal(d.ops->count(d.self, FL_TEST), N_TEST);
    fl_dataset_destroy(&d);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_idx_select__##name, make_labelled, clean)
    const struct CMUnitTest tests[] = {
        TEST(keeps_images_of_the_classes_in_the_jobs_order),
        TEST(other_classes_are_another_data_set),
        TEST(refuses_classes_that_are_not_there),
        TEST(needs_images_in_both_splits),
        TEST(uses_all_images_without_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
