#include "device/system/alloc.h"

#include <frostline/dataset.h>

#include "support/data/idx_files.h"
#include "support/folder.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PIXELS = SIDE_Y * SIDE_X };

static char folder[64];

static int make_sound(void **state)
{
    (void)state;
    make_folder(folder);
    write_sound(folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static fl_dataset open_sound(fl_augment augment, int crop)
{
    fl_dataset d = {0};
    assert_int_equal(fl_dataset_idx(folder, augment, crop, &d, NULL), FL_OK);
    return d;
}

static void test_idx__tells_what_the_files_hold(void **state)
{
    (void)state;
    fl_dataset d = {0};
    fl_idx_info info;
    fl_shape shape;
    int64_t n_targets;
    assert_int_equal(fl_dataset_idx(folder, FL_AUGMENT_NONE, 0, &d, &info), FL_OK);
    assert_string_equal(d.ops->kind, "idx");
    assert_int_equal(info.channels, 1);
    assert_int_equal(info.height, SIDE_Y);
    assert_int_equal(info.width, SIDE_X);
    assert_int_equal(info.n_classes, 10); /* labels (7 i + 2) % 10: 2 9 6 3 0 */
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), N_TRAIN);
    assert_int_equal(d.ops->count(d.self, FL_TEST), N_TEST);
    assert_int_equal(d.ops->max_shape(d.self, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.tokens, 1);
    assert_int_equal(shape.width, PIXELS);
    assert_int_equal(shape.dtype, FL_F32);
    assert_int_equal(n_targets, 1);
    assert_int_equal(d.ops->shape(d.self, FL_TEST, N_TEST - 1, &shape, &n_targets), FL_OK);
    assert_int_equal(shape.width, PIXELS);
    for (int64_t i = 0; i < N_TRAIN; i++) {
        int32_t label = -1;
        assert_int_equal(d.ops->targets(d.self, FL_TRAIN, i, &label), FL_OK);
        assert_int_equal(label, (7 * i + 2) % 10);
    }
    fl_dataset_destroy(&d);
    assert_null(d.ops);
    fl_dataset_destroy(&d);
}

/* Mean 0 and deviation 1 over the training images, the same mapping for the test images; would
 * catch statistics taken over the wrong split. */
static void test_idx__normalizes_by_the_training_images(void **state)
{
    (void)state;
    bytes train = sound_bytes(0), test = sound_bytes(2);
    double mean = 0, variance = 0;
    for (int i = 0; i < N_TRAIN * PIXELS; i++) {
        mean += train.at[16 + i] / 255.0 / (N_TRAIN * PIXELS);
    }
    for (int i = 0; i < N_TRAIN * PIXELS; i++) {
        double off = train.at[16 + i] / 255.0 - mean;
        variance += off * off / (N_TRAIN * PIXELS);
    }
    fl_dataset d = open_sound(FL_AUGMENT_NONE, 0);
    for (int64_t i = 0; i < N_TEST; i++) {
        float pixels[PIXELS];
        fl_sample_key key = {.id = i, .augment = true};
        assert_int_equal(d.ops->read(d.self, FL_TEST, &key, pixels), FL_OK);
        for (int64_t p = 0; p < PIXELS; p++) {
            double expected = (test.at[16 + i * PIXELS + p] / 255.0 - mean) / sqrt(variance);
            assert_true(fabs((double)pixels[p] - expected) < 1e-6);
        }
    }
    fl_dataset_destroy(&d);
}

/* A constant image set has no deviation to divide by. */
static void test_idx__survives_images_of_one_value(void **state)
{
    (void)state;
    bytes b = sound_bytes(0);
    memset(b.at + 16, 99, b.n - 16);
    write_file(folder, idx_names[0], &b);
    fl_dataset d = open_sound(FL_AUGMENT_NONE, 0);
    float pixels[PIXELS];
    fl_sample_key key = {.id = 1};
    assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, pixels), FL_OK);
    for (int p = 0; p < PIXELS; p++) {
        assert_true(pixels[p] == 0.0f);
    }
    fl_dataset_destroy(&d);
}

/* The same sample in the same epoch is the same to the last bit; another epoch moves some; in
 * evaluation nothing moves. */
static void test_idx__augments_by_sample_and_epoch(void **state)
{
    (void)state;
    fl_dataset d = open_sound(FL_AUGMENT_CROP_FLIP, 2);
    fl_dataset plain = open_sound(FL_AUGMENT_NONE, 0);
    int n_changed = 0;
    for (int64_t i = 0; i < N_TRAIN; i++) {
        float a[PIXELS], b[PIXELS], other[PIXELS], raw[PIXELS];
        fl_sample_key key = {.seed = 1, .epoch = 0, .id = i, .augment = true};
        assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, a), FL_OK);
        assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, b), FL_OK);
        assert_memory_equal(a, b, sizeof a);
        key.epoch = 1;
        assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, other), FL_OK);
        n_changed += memcmp(a, other, sizeof a) != 0;
        key.augment = false;
        assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, a), FL_OK);
        assert_int_equal(plain.ops->read(plain.self, FL_TRAIN, &key, raw), FL_OK);
        assert_memory_equal(a, raw, sizeof a);
    }
    assert_true(n_changed > 0);
    fl_dataset_destroy(&plain);
    fl_dataset_destroy(&d);
}

/* The fingerprint names what a sample is: a cache that is keyed by it must not survive a change of
 * one pixel, one label or the augmentation. */
static void test_idx__fingerprint_changes_with_any_sample(void **state)
{
    (void)state;
    uint64_t prints[9];
    int n = 0;
    static const struct {
        fl_augment augment;
        int crop;
    } settings[] = {{FL_AUGMENT_NONE, 0},
                    {FL_AUGMENT_CROP, 1},
                    {FL_AUGMENT_CROP, 2},
                    {FL_AUGMENT_CROP_FLIP, 1}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        fl_dataset d = open_sound(settings[i].augment, settings[i].crop);
        fl_dataset again = open_sound(settings[i].augment, settings[i].crop);
        prints[n++] = d.ops->fingerprint(d.self);
        assert_int_equal(prints[n - 1], again.ops->fingerprint(again.self));
        fl_dataset_destroy(&d);
        fl_dataset_destroy(&again);
    }
    for (int file = 0; file < 4; file++) {
        bytes b = sound_bytes(file);
        b.at[b.n - 1] ^= 1;
        write_file(folder, idx_names[file], &b);
        fl_dataset d = open_sound(FL_AUGMENT_NONE, 0);
        prints[n++] = d.ops->fingerprint(d.self);
        fl_dataset_destroy(&d);
        b = sound_bytes(file);
        write_file(folder, idx_names[file], &b);
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            assert_true(prints[i] != prints[j]);
        }
    }
}

/* Would catch a read beyond the pixels by an id that a wrong plan made. */
static void test_idx__refuses_samples_that_do_not_exist(void **state)
{
    (void)state;
    fl_dataset d = open_sound(FL_AUGMENT_NONE, 0);
    float pixels[PIXELS];
    int32_t label;
    static const int64_t bad[] = {-1, N_TEST, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fl_sample_key key = {.id = bad[i]};
        assert_int_equal(d.ops->read(d.self, FL_TEST, &key, pixels), FL_EINVAL);
        assert_int_equal(d.ops->targets(d.self, FL_TEST, bad[i], &label), FL_EINVAL);
    }
    fl_sample_key key = {.id = N_TEST};
    assert_int_equal(d.ops->read(d.self, FL_TEST, &key, pixels), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "sample 3 does not exist: ids of this split are 0 to 2");
    fl_dataset_destroy(&d);
}

/* ---- folders that are not a data set; "%s" stands for the folder ---- */

static void expect(fl_status status, fl_augment augment, int crop, const char *message)
{
    char text[512];
    const char *rest = strstr(message, "%s");
    int before = rest == NULL ? (int)strlen(message) : (int)(rest - message);
    snprintf(text, sizeof text, "%.*s%s%s", before, message, rest == NULL ? "" : folder,
             rest == NULL ? "" : rest + 2);
    fl_dataset d = {0};
    fl_idx_info info;
    assert_int_equal(fl_dataset_idx(folder, augment, crop, &d, &info), status);
    assert_string_equal(fl_errmsg(), text);
    assert_null(d.ops);
}

static void replace(int file, const bytes *b)
{
    write_file(folder, idx_names[file], b);
}

static void test_idx__names_each_missing_file(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "%s: neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz found",
        "%s: neither train-labels-idx1-ubyte nor train-labels-idx1-ubyte.gz found",
        "%s: neither t10k-images-idx3-ubyte nor t10k-images-idx3-ubyte.gz found",
        "%s: neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz found",
    };
    for (int i = 0; i < 4; i++) {
        remove_file(folder, idx_names[i]);
        expect(FL_EIO, FL_AUGMENT_NONE, 0, messages[i]);
        bytes b = sound_bytes(i);
        replace(i, &b);
    }
}

static void test_idx__refuses_files_that_do_not_belong_together(void **state)
{
    (void)state;
    const uint32_t four = 4, wide[3] = {N_TEST, SIDE_X, SIDE_Y};
    bytes b = idx_bytes(1, &four, 0, 10), sound = sound_bytes(1);
    replace(1, &b);
    char message[512];
    snprintf(message, sizeof message,
             "%s/train-labels-idx1-ubyte: byte 4: 4 labels found, 5 expected, as many as "
             "%s/train-images-idx3-ubyte has images",
             folder, folder);
    expect(FL_EFORMAT, FL_AUGMENT_NONE, 0, message);
    replace(1, &sound);

    b = idx_bytes(3, wide, 0, 251);
    sound = sound_bytes(2);
    replace(2, &b);
    expect(FL_EFORMAT, FL_AUGMENT_NONE, 0,
           "%s/t10k-images-idx3-ubyte: byte 8: images of 6 x 4 pixels found, 4 x 6 expected, as in "
           "the training images");
    replace(2, &sound);

    sound = sound_bytes(0);
    b = sound_bytes(1);
    replace(0, &b);
    expect(FL_EFORMAT, FL_AUGMENT_NONE, 0,
           "%s/train-images-idx3-ubyte: byte 3: rank 1 (labels) found, 3 (images x height x width) "
           "expected");
    replace(0, &sound);

    b = sound_bytes(2);
    replace(3, &b);
    expect(FL_EFORMAT, FL_AUGMENT_NONE, 0,
           "%s/t10k-labels-idx1-ubyte: byte 3: rank 3 (images x height x width) found, 1 (labels) "
           "expected");
}

static void test_idx__refuses_impossible_sizes(void **state)
{
    (void)state;
    const uint32_t tall[3] = {1, 5000, 2};
    bytes b = idx_bytes(3, tall, 0, 251), sound = sound_bytes(0);
    replace(0, &b);
    expect(
        FL_EFORMAT, FL_AUGMENT_NONE, 0,
        "%s/train-images-idx3-ubyte: byte 8: 5000 pixels of height found, at most 4096 expected");
    replace(0, &sound);
    expect(FL_EINVAL, FL_AUGMENT_CROP, 4,
           "a crop of 4 pixels found, 0 to 3 allowed: images have 4 x 6");
    expect(FL_EINVAL, FL_AUGMENT_CROP_FLIP, -1,
           "a crop of -1 pixels found, 0 to 3 allowed: images have 4 x 6");
}

/* All four headers are compared before elements are read: would catch a data set of gigabytes that
 * is unpacked and then refused. The images are damaged behind their header, and the message is
 * about the labels all the same. */
static void test_idx__compares_headers_before_it_reads_elements(void **state)
{
    (void)state;
    const uint32_t four = 4;
    bytes b = sound_bytes(2), packed = gzip_bytes(&b, 0);
    char name[128];
    snprintf(name, sizeof name, "%s.gz", idx_names[2]);
    packed.at[packed.n - 8] ^= 1;
    write_file(folder, name, &packed);
    remove_file(folder, idx_names[2]);
    expect(
        FL_EFORMAT, FL_AUGMENT_NONE, 0,
        "%s/t10k-images-idx3-ubyte.gz: byte 107: damaged gzip data found (incorrect data check)");
    b = idx_bytes(1, &four, 0, 10);
    replace(3, &b);
    char message[512];
    snprintf(message, sizeof message,
             "%s/t10k-labels-idx1-ubyte: byte 4: 4 labels found, 3 expected, as many as "
             "%s/t10k-images-idx3-ubyte.gz has images",
             folder, folder);
    expect(FL_EFORMAT, FL_AUGMENT_NONE, 0, message);
    remove_file(folder, name);
}

static void make_sparse(int file, const bytes *header, off_t size)
{
    char path[512];
    write_file(folder, idx_names[file], header);
    snprintf(path, sizeof path, "%s/%s", folder, idx_names[file]);
    assert_int_equal(truncate(path, size), 0);
}

/* A data set larger than the machine's memory is refused before any of it is read: 4 TiB of holes
 * would take hours. */
static void test_idx__refuses_more_than_the_memory_of_the_machine(void **state)
{
    (void)state;
    enum { N_IMAGES = 1 << 18, SIDE = 4096 };
    const uint32_t dims[3] = {N_IMAGES, SIDE, SIDE}, n = N_IMAGES, few[3] = {N_TEST, SIDE, SIDE};
    const off_t image_bytes = (off_t)SIDE * SIDE;
    bytes header = {.n = 4, .at = {0, 0, 8, 3}}, labels = {.n = 4, .at = {0, 0, 8, 1}};
    bytes test_header = header;
    for (int i = 0; i < 3; i++) {
        put_u32(&header, dims[i]);
        put_u32(&test_header, few[i]);
    }
    put_u32(&labels, n);
    make_sparse(0, &header, 16 + N_IMAGES * image_bytes);
    make_sparse(1, &labels, 8 + N_IMAGES);
    make_sparse(2, &test_header, 16 + N_TEST * image_bytes);
    char message[512];
    fl_dataset d = {0};
    snprintf(message, sizeof message,
             "%s: the headers of the files state %lld bytes in all, at most ", folder,
             (long long)((N_IMAGES + N_TEST) * (image_bytes + 1)));
    assert_int_equal(fl_dataset_idx(folder, FL_AUGMENT_NONE, 0, &d, NULL), FL_EFORMAT);
    assert_memory_equal(fl_errmsg(), message, strlen(message));
    assert_non_null(strstr(fl_errmsg(), "the memory that this machine has available"));
}

/* If both a plain and a gzip file exist, the plain one is read, whatever the other contains;
 * without it, the gzip file is read. */
static void test_idx__reads_packed_files(void **state)
{
    (void)state;
    fl_dataset plain = open_sound(FL_AUGMENT_NONE, 0);
    char name[128];
    bytes rubbish = {.n = 3};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.gz", idx_names[i]);
        write_file(folder, name, &rubbish);
    }
    fl_dataset d = open_sound(FL_AUGMENT_NONE, 0);
    assert_int_equal(d.ops->fingerprint(d.self), plain.ops->fingerprint(plain.self));
    fl_dataset_destroy(&d);
    for (int i = 0; i < 4; i++) {
        bytes b = sound_bytes(i), packed = gzip_bytes(&b, 9);
        snprintf(name, sizeof name, "%s.gz", idx_names[i]);
        write_file(folder, name, &packed);
        remove_file(folder, idx_names[i]);
    }
    d = open_sound(FL_AUGMENT_NONE, 0);
    assert_int_equal(d.ops->fingerprint(d.self), plain.ops->fingerprint(plain.self));
    fl_dataset_destroy(&d);
    fl_dataset_destroy(&plain);
}

static void test_idx__survives_failing_allocations(void **state)
{
    (void)state;
    fl_status status = FL_ENOMEM;
    int n_failed = 0;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_dataset d = {0};
        fl_alloc_fail_at(n);
        status = fl_dataset_idx(folder, FL_AUGMENT_NONE, 0, &d, NULL);
        fl_alloc_fail_at(0);
        assert_true(status == FL_OK || status == FL_ENOMEM);
        n_failed += status != FL_OK;
        fl_dataset_destroy(&d);
    }
    assert_true(n_failed >= 9);
}

/* Debian's dataset-fashion-mnist, where it is installed. */
static void test_idx__reads_fashion_mnist(void **state)
{
    (void)state;
    static const char *const path = "/usr/share/datasets/fashion-mnist";
    if (access(path, F_OK) != 0) {
        print_message("skipped: the package dataset-fashion-mnist is not installed\n");
        skip();
    }
    fl_dataset d = {0};
    fl_idx_info info;
    assert_int_equal(fl_dataset_idx(path, FL_AUGMENT_NONE, 0, &d, &info), FL_OK);
    assert_int_equal(d.ops->count(d.self, FL_TRAIN), 60000);
    assert_int_equal(d.ops->count(d.self, FL_TEST), 10000);
    assert_int_equal(info.height, 28);
    assert_int_equal(info.width, 28);
    assert_int_equal(info.n_classes, 10);
    float pixels[784], darkest = 0;
    int64_t of_class[10] = {0};
    for (int64_t i = 0; i < 60000; i++) {
        int32_t label = -1;
        assert_int_equal(d.ops->targets(d.self, FL_TRAIN, i, &label), FL_OK);
        of_class[label]++;
    }
    for (int c = 0; c < 10; c++) {
        assert_int_equal(of_class[c], 6000);
    }
    /* The mean 0.2860 and the deviation 0.3530 of this set are well known: black is -0.8102. */
    fl_sample_key key = {.id = 0};
    assert_int_equal(d.ops->read(d.self, FL_TRAIN, &key, pixels), FL_OK);
    for (int p = 0; p < 784; p++) {
        darkest = pixels[p] < darkest ? pixels[p] : darkest;
    }
    assert_true(fabsf(darkest + 0.8102f) < 2e-4f);
    fl_dataset_destroy(&d);
}

int main(void)
{
#define SOUND(test) cmocka_unit_test_setup_teardown(test, make_sound, clean)
    const struct CMUnitTest tests[] = {
        SOUND(test_idx__tells_what_the_files_hold),
        SOUND(test_idx__normalizes_by_the_training_images),
        SOUND(test_idx__survives_images_of_one_value),
        SOUND(test_idx__augments_by_sample_and_epoch),
        SOUND(test_idx__fingerprint_changes_with_any_sample),
        SOUND(test_idx__refuses_samples_that_do_not_exist),
        SOUND(test_idx__names_each_missing_file),
        SOUND(test_idx__refuses_files_that_do_not_belong_together),
        SOUND(test_idx__refuses_impossible_sizes),
        SOUND(test_idx__compares_headers_before_it_reads_elements),
        SOUND(test_idx__refuses_more_than_the_memory_of_the_machine),
        SOUND(test_idx__reads_packed_files),
        SOUND(test_idx__survives_failing_allocations),
        cmocka_unit_test(test_idx__reads_fashion_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
