/* Weights by name, for programs. Would catch: a tensor under another's name, a read beyond the
 * memory of the caller, a message that does not name what there is. */
#include <frostline/weights.h>

#include "nn/safetensors/safetensors.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[FOLDER_SIZE], inside[128], path[192];

static const fl_st_spec specs[] = {
    {.name = "head.fc.weight", .n_dims = 2, .dims = {2, 3}},
    {.name = "blocks.1.bias", .n_dims = 1, .dims = {4}},
};
static const float values[2][6] = {{1, 2, 3, 4, 5, 6}, {-1, 0, 0.5f, 2}};

/* A run directory with a model. */
static int make_run(void **state)
{
    fl_st_layout layout;
    (void)state;
    make_folder(folder);
    snprintf(inside, sizeof inside, "%s/model", folder);
    snprintf(path, sizeof path, "%s/model.safetensors", inside);
    if (mkdir(inside, 0700) != 0) {
        return -1;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    bool good = fl_st_layout_init(&layout, FL_ST_BF16, specs, 2, NULL, 0) == FL_OK &&
                fl_st_layout_create(&layout, fd, path) == FL_OK &&
                fl_st_layout_write(&layout, fd, path, 0, 0, 6, values[0]) == FL_OK &&
                fl_st_layout_write(&layout, fd, path, 1, 0, 4, values[1]) == FL_OK;
    fl_st_layout_fini(&layout);
    return good && close(fd) == 0 ? 0 : -1;
}

static int remove_run(void **state)
{
    (void)state;
    unlink(path);
    rmdir(inside);
    return remove_folder(folder);
}

static void refused(fl_status found, fl_status wanted, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_int_equal(found, wanted);
    assert_string_equal(fl_errmsg(), text);
}

static void test_weights__are_read_by_name(void **state)
{
    const char *const ways[] = {folder, inside, path};
    (void)state;
    for (int i = 0; i < 3; i++) {
        fl_weights *weights = NULL;
        fl_weights_tensor t;
        float out[6];
        assert_int_equal(fl_weights_open(ways[i], &weights), FL_OK);
        assert_int_equal(fl_weights_count(weights), 2);
        assert_string_equal(fl_weights_at(weights, 0).name, "blocks.1.bias");
        assert_int_equal(fl_weights_find(weights, "head.fc.weight", &t), FL_OK);
        assert_string_equal(t.dtype, "BF16");
        assert_int_equal(t.n_dims, 2);
        assert_int_equal(t.dims[0], 2);
        assert_int_equal(t.dims[1], 3);
        assert_int_equal(t.n_elements, 6);
        assert_int_equal(fl_weights_read(weights, t.name, out, 6), FL_OK);
        assert_memory_equal(out, values[0], sizeof out);
        assert_int_equal(fl_weights_read(weights, "blocks.1.bias", out, 4), FL_OK);
        assert_memory_equal(out, values[1], 4 * sizeof *out);
        fl_weights_close(&weights);
        assert_null(weights);
        fl_weights_close(&weights);
    }
}

static void test_weights__refuse_what_is_not_there(void **state)
{
    (void)state;
    fl_weights *weights = NULL;
    fl_weights_tensor t;
    float out[6];
    assert_int_equal(fl_weights_open(folder, &weights), FL_OK);
    refused(fl_weights_find(weights, "head.weight", &t), FL_EINVAL,
            "%s has no tensor \"head.weight\"; it has 2: blocks.1.bias, head.fc.weight", folder);
    refused(fl_weights_read(weights, NULL, out, 6), FL_EINVAL,
            "%s has no tensor \"\"; it has 2: blocks.1.bias, head.fc.weight", folder);
    refused(fl_weights_read(weights, "blocks.1.bias", out, 6), FL_EINVAL,
            "%s: tensor \"blocks.1.bias\" has 4 elements, found room for 6", folder);
    fl_weights_close(&weights);
    refused(fl_weights_open(NULL, &weights), FL_EINVAL, "fl_weights_open: no path was given");
    assert_null(weights);
    assert_int_equal(fl_weights_open("no/such/run", &weights), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "no/such/run"));
    assert_null(weights);
}

/* Would catch: elements of a later run under the names of an earlier one. */
static void test_weights__notice_that_the_file_changed(void **state)
{
    (void)state;
    fl_weights *weights = NULL;
    float out[6];
    assert_int_equal(fl_weights_open(path, &weights), FL_OK);
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(fl_weights_read(weights, "head.fc.weight", out, 6), FL_EIO);
    fl_weights_close(&weights);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_weights__##name, make_run, remove_run)
    const struct CMUnitTest tests[] = {
        TEST(are_read_by_name),
        TEST(refuse_what_is_not_there),
        TEST(notice_that_the_file_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
