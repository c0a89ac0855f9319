/* The algorithms that cuBLASLt names for matrix products, over its stand-in. Catches a shape that
 * is asked for twice, algorithms without a bound, and a file of them that is not used, or believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device/cuda_products.h"
#include "support/folder.h"

#include "device/system/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int asked(void)
{
    return cublaslt_calls("cublasLtMatmulAlgoGetHeuristic");
}

static void test_cuda_products__ask_once_for_each_shape_and_alignment(void **state)
{
    (void)state;
    fl_device *d = device_of(false);
    one_product p = product_of(d);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_product(&p, NULL), FL_OK);
    }
    assert_int_equal(asked(), 1);
    const fl_linear_args fewer_rows = {
        .dtype = FL_BF16, .in = p.in, .w = &p.w, .y = p.y, .m = ROWS - 1};
    assert_int_equal(d->ops->linear(d, NULL, &fewer_rows), FL_OK);
    assert_int_equal(asked(), 2);
    fl_linear_args moved = fewer_rows;
    moved.in = (const uint16_t *)p.in + IN; /* the second row: aligned to 16 bytes */
    assert_int_equal(d->ops->linear(d, NULL, &moved), FL_OK);
    assert_int_equal(asked(), 3);
    drop_product(&p);
    close_device(&d);
}

/* More shapes than are kept: those before are asked for again, and nothing is lost. */
static void test_cuda_products__keep_a_bounded_number_of_algorithms(void **state)
{
    (void)state;
    enum { SHAPES = 1100 };
    fl_device *d = device_of(false);
    fl_weight w = {.data = take(d, sizeof(float)), .rows = 1, .cols = 1, .version = 1};
    float *in = take(d, SHAPES * sizeof(float)), *y = take(d, SHAPES * sizeof(float));
    for (int m = 1; m <= SHAPES; m++) {
        const fl_linear_args a = {.in = in, .w = &w, .y = y, .m = m};
        assert_int_equal(d->ops->linear(d, NULL, &a), FL_OK);
    }
    assert_int_equal(asked(), SHAPES);
    assert_true(cublaslt_outstanding() < 1 + 4 * SHAPES / 2);
    fl_device_free(d, w.data, sizeof(float));
    fl_device_free(d, in, SHAPES * sizeof(float));
    fl_device_free(d, y, SHAPES * sizeof(float));
    close_device(&d);
}

/* Algorithms of a run, for the next one. */
static char *saved_algorithms(void)
{
    fl_device *d = device_of(false);
    char *text = NULL;
    assert_int_equal(run_products(d, FL_F32, 1e-5), FL_OK);
    assert_true(asked() > 20);
    assert_int_equal(fl_cuda_algorithms_save(d, &text), FL_OK);
    close_device(&d);
    return text;
}

/* How often the library is asked by a run that begins with `text`; *n_taken: of its lines. */
static int asked_after(const char *text, size_t version, int *n_taken)
{
    fl_device *d = device_of(false);
    cublaslt_set_version(version);
    assert_int_equal(fl_cuda_algorithms_load(d, text, n_taken), FL_OK);
    assert_int_equal(run_products(d, FL_F32, 1e-5), FL_OK);
    int n = asked();
    close_device(&d);
    return n;
}

enum { ALGORITHM_DIGITS = 128 };

static void test_cuda_products__take_the_algorithms_of_an_earlier_run(void **state)
{
    (void)state;
    char *text = saved_algorithms();
    int n = 0, n_lines = 0;
    int n_new = asked_after("", 130100, &n);
    assert_int_equal(n, 0);
    assert_int_equal(asked_after(text, 130100, &n), 0);
    assert_int_equal(asked_after(text, 130200, &n), n_new); /* another version */
    assert_int_equal(n, 0);
    for (char *c = text; *c != '\0'; c++) { /* lines that are none, algorithms of other products */
        if (*c == '\n') {
            n_lines++;
            c[-ALGORITHM_DIGITS] = n_lines % 3 == 0 ? 'x' : '6';
        }
    }
    assert_int_equal(asked_after(text, 130100, &n), n_new);
    assert_int_equal(n, n_lines - n_lines / 3);
    fl_free(text);
}

/* ---- the file that keeps them ---- */

static char file[256];

/* How often the library is asked by a run with the file, which it writes at its end. */
static int asked_with_file(size_t version)
{
    const fl_cuda_options options = {
        .plugin = standin_plugin(), .budget_bytes = SIZE_MAX, .algorithms = file};
    cublaslt_set_version(version);
    fl_device *d = open_device(&options);
    cublaslt_begin("", 0, CUBLAS_STATUS_SUCCESS);
    cublaslt_set_version(version);
    assert_int_equal(run_products(d, FL_F32, 1e-5), FL_OK);
    int n = asked();
    close_device(&d);
    return n;
}

static void write_text(const char *text)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static char *read_text(void)
{
    static char text[1 << 20];
    FILE *in = fopen(file, "r");
    assert_non_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    assert_int_equal(fclose(in), 0);
    return text;
}

static void test_cuda_products__keep_the_answers_in_a_file(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE];
    make_folder(folder);
    snprintf(file, sizeof file, "%s/profile.algorithms", folder);
    int n_new = asked_with_file(130100);
    assert_true(n_new > 20);
    assert_int_equal(asked_with_file(130100), 0);
    char *first = strdup(read_text());
    assert_int_equal(strncmp(first, "# frostline: cuBLASLt algorithms for Stand-in, ", 47), 0);
    assert_int_equal(asked_with_file(130200),
                     n_new); /* another version: its answers replace them */
    assert_int_equal(asked_with_file(130200), 0);
    assert_int_equal(asked_with_file(130100), n_new);
    assert_string_equal(read_text(), first);
    char *name = strstr(first, "Stand-in");
    memcpy(name, "Standing", 8); /* another GPU */
    write_text(first);
    assert_int_equal(asked_with_file(130100), n_new);
    assert_int_equal(asked_with_file(130100), 0);
    free(first);
    assert_int_equal(unlink(file) | rmdir(folder), 0);
}

/* Would catch: a broken file that ends the process, and one that is overwritten though it is
 * somebody's. */
static void test_cuda_products__bear_any_file(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE];
    make_folder(folder);
    snprintf(file, sizeof file, "%s/profile.algorithms", folder);
    int n_new = asked_with_file(130100);
    char *text = strdup(read_text());
    size_t size = strlen(text);
    srand(7);
    for (int i = 0; i < 6; i++) { /* cut off, and with bytes of chance */
        char *broken = strdup(text);
        broken[(size_t)rand() % size] = '\0';
        for (int k = 0; k < 40; k++) {
            broken[60 + (size_t)rand() % (size - 60)] = (char)(1 + rand() % 255);
        }
        write_text(broken);
        free(broken);
        assert_in_range(asked_with_file(130100), 1, n_new);
        assert_int_equal(asked_with_file(130100), 0);
    }
    write_text("a letter\n");
    assert_int_equal(asked_with_file(130100), n_new);
    assert_string_equal(read_text(), "a letter\n");
    assert_int_equal(truncate(file, 2 << 20), 0);
    assert_int_equal(asked_with_file(130100), n_new);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(asked_with_file(130100), n_new);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(symlink("elsewhere", file), 0);
    assert_int_equal(asked_with_file(130100), n_new);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was written */
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_products__ask_once_for_each_shape_and_alignment),
        cmocka_unit_test(test_cuda_products__keep_a_bounded_number_of_algorithms),
        cmocka_unit_test(test_cuda_products__take_the_algorithms_of_an_earlier_run),
        cmocka_unit_test(test_cuda_products__keep_the_answers_in_a_file),
        cmocka_unit_test(test_cuda_products__bear_any_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
