/* Matrix products by cuBLASLt, over a stand-in that does what it is told literally and refuses what
 * contradicts itself. Catches a wrong order, transpose, type, leading dimension or epilogue, a call
 * whose failure is lost, a bf16 weight that is older than its fp32 one, a shape that is asked for
 * twice, and a machine without the library that is not told apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device/kernel_pairs.h"
#include "support/folder.h"
#include "tests/shim/cublaslt/cublasLt.h"
#include "tests/shim/cublaslt_table.h"
#include "tests/shim/standin.h"

#include "device/cpu/bf16.h"
#include "device/cuda/cuda.h"
#include "device/system/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static fl_device *open_device(const fl_cuda_options *options)
{
    fl_device *d = NULL;
    if (fl_device_cuda_create(options, &d) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return d;
}

static fl_device *device_of(bool tf32)
{
    const fl_cuda_options options = {
        .plugin = standin_plugin(), .budget_bytes = SIZE_MAX, .tf32 = tf32};
    return open_device(&options);
}

static void close_device(fl_device **d)
{
    fl_device_destroy(d);
    assert_int_equal(standin_outstanding(), 0);
}

static fl_device *cpu_device(void)
{
    fl_device *d = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, SIZE_MAX, &d), FL_OK);
    return d;
}

/* ---- what they compute ---- */

/* Every product of the table on `cuda`; FL_EINTERNAL when one is further off than `tolerance`. */
static fl_status run_products(fl_device *cuda, fl_dtype dtype, double tolerance)
{
    fl_device *cpu = cpu_device();
    fl_status status = FL_OK;
    for (int k = 0; pair_kernel_at(k) != NULL; k++) {
        bool is_product = strncmp(pair_kernel_at(k), "linear", 6) == 0;
        for (int i = 0; is_product && pair_shape_at(i) != NULL && status == FL_OK; i++) {
            status = pair_run(k, pair_shape_at(i), dtype, cuda, cpu, tolerance);
            if (status != FL_OK && status != FL_EINTERNAL) {
                fail_msg("%s, %s: %s", pair_kernel_at(k), pair_shape_at(i)->name, fl_errmsg());
            }
        }
    }
    fl_device_destroy(&cpu);
    return status;
}

static void agree(bool tf32, fl_dtype dtype, double tolerance)
{
    fl_device *cuda = device_of(tf32);
    assert_true(fl_cuda_has_library(cuda));
    if (run_products(cuda, dtype, tolerance) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    assert_true(cublaslt_calls("cublasLtMatmul") > 45);
    close_device(&cuda);
}

static void test_cuda_products__agree_with_the_cpu_in_fp32(void **state)
{
    (void)state;
    agree(false, FL_F32, 1e-5);
}

static void test_cuda_products__agree_with_the_cpu_in_bf16(void **state)
{
    (void)state;
    agree(false, FL_BF16, 1e-2);
    agree(true, FL_BF16, 1e-2); /* TF32 means nothing to bf16 */
}

static void test_cuda_products__round_to_tf32_where_that_is_asked(void **state)
{
    (void)state;
    agree(true, FL_F32, 2e-3);
    fl_device *cuda = device_of(true);
    assert_int_equal(run_products(cuda, FL_F32, 1e-5), FL_EINTERNAL);
    close_device(&cuda);
}

static void test_cuda_products__fuse_bias_and_gelu_where_the_form_allows(void **state)
{
    (void)state;
    fl_device *cuda = device_of(false), *cpu = cpu_device();
    const pair_shape *shape = pair_shape_at(0);
    for (int k = 0; pair_kernel_at(k) != NULL; k++) {
        bool fused = strcmp(pair_kernel_at(k), "linear of eights") == 0;
        cublaslt_begin("", 0, CUBLAS_STATUS_SUCCESS);
        if (fused || strcmp(pair_kernel_at(k), "linear, erf") == 0) {
            cublaslt_refuse(fused ? 0 : CUBLASLT_EPILOGUE_GELU); /* erf: must not even be asked */
            assert_int_equal(pair_run(k, shape, FL_F32, cuda, cpu, 1e-5), FL_OK);
            assert_int_equal(cublaslt_calls("cublasLtMatmul"), 1);
            standin_fail("activate", 1, 999); /* what is fused calls nothing else */
            assert_int_equal(pair_run(k, shape, FL_F32, cuda, cpu, 1e-5),
                             fused ? FL_OK : FL_EFAILED);
            standin_fail("", 0, 0);
        }
    }
    fl_device_destroy(&cpu);
    close_device(&cuda);
}

/* Without an algorithm for GELU the activation is apart; without any, the own kernel computes. */
static void test_cuda_products__do_without_what_the_library_lacks(void **state)
{
    (void)state;
    static const int refused[] = {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_BIAS, -1};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        for (fl_dtype dtype = FL_F32; dtype <= FL_BF16; dtype += FL_BF16) {
            fl_device *cuda = device_of(false);
            cublaslt_refuse(refused[i]);
            if (run_products(cuda, dtype, dtype == FL_F32 ? 1e-5 : 1e-2) != FL_OK) {
                fail_msg("%s", fl_errmsg());
            }
            assert_true((cublaslt_calls("cublasLtMatmul") > 0) == (refused[i] != -1));
            close_device(&cuda);
        }
    }
}

/* ---- one product, of which tests know every call ---- */

enum { ROWS = 5, IN = 40, OUT = 16 };

typedef struct one_product {
    fl_device *d;
    fl_weight w, bias;
    float *weight_data, *bias_data;
    void *in, *y, *pre;
} one_product;

static void *take(fl_device *d, size_t n)
{
    void *memory = NULL;
    assert_int_equal(fl_device_alloc(d, n, "an array", &memory), FL_OK);
    return memory;
}

static one_product product_of(fl_device *d)
{
    one_product p = {.d = d,
                     .weight_data = take(d, OUT * IN * sizeof(float)),
                     .bias_data = take(d, OUT * sizeof(float)),
                     .in = take(d, ROWS * IN * sizeof(uint16_t)),
                     .y = take(d, ROWS * OUT * sizeof(uint16_t)),
                     .pre = take(d, ROWS * OUT * sizeof(uint16_t))};
    const float one = 1.0f;
    for (int i = 0; i < ROWS * IN; i++) {
        fl_bf16_narrow(&one, 1, (uint16_t *)p.in + i);
    }
    p.w = (fl_weight){.data = p.weight_data, .rows = OUT, .cols = IN, .version = 1};
    p.bias = (fl_weight){.data = p.bias_data, .rows = 1, .cols = OUT, .version = 1};
    return p;
}

static void drop_product(one_product *p)
{
    p->d->ops->weight_release(p->d, &p->w);
    assert_null(p->w.pack);
    fl_device_free(p->d, p->weight_data, OUT * IN * sizeof(float));
    fl_device_free(p->d, p->bias_data, OUT * sizeof(float));
    fl_device_free(p->d, p->in, ROWS * IN * sizeof(uint16_t));
    fl_device_free(p->d, p->y, ROWS * OUT * sizeof(uint16_t));
    fl_device_free(p->d, p->pre, ROWS * OUT * sizeof(uint16_t));
}

static fl_status run_product(one_product *p, fl_stream *s)
{
    const fl_linear_args a = {.dtype = FL_BF16,
                              .in = p->in,
                              .w = &p->w,
                              .bias = &p->bias,
                              .activation = FL_ACT_GELU_TANH,
                              .pre = p->pre,
                              .y = p->y,
                              .m = ROWS};
    return p->d->ops->linear(p->d, s, &a);
}

/* Row 0, column 0 of the sum before the activation. */
static float sum_of(const one_product *p)
{
    float x;
    fl_bf16_widen(p->pre, 1, &x);
    return x;
}

/* ---- bf16 weights ---- */

static void test_cuda_products__copy_a_weight_once_after_each_update(void **state)
{
    (void)state;
    fl_device *d = device_of(false);
    one_product p = product_of(d);
    size_t before = d->workspace_bytes;
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_true(sum_of(&p) == 0.0f);
    assert_true(d->workspace_bytes >= before + (OUT * IN + OUT) * sizeof(uint16_t));
    standin_fail("convert", 1, 999);
    p.weight_data[0] = 3.0f;
    assert_int_equal(run_product(&p, NULL), FL_OK); /* nobody said that it changed */
    assert_true(sum_of(&p) == 0.0f);
    p.w.version++;
    assert_int_equal(run_product(&p, NULL), FL_EFAILED); /* the copy fails, once */
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_true(sum_of(&p) == 3.0f);
    p.bias_data[0] = 0.5f;
    p.bias.version++;
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_true(sum_of(&p) == 3.5f);
    drop_product(&p);
    close_device(&d);
}

/* A stream that did not write the copy waits for it. */
static void test_cuda_products__order_a_copy_before_other_streams(void **state)
{
    (void)state;
    fl_device *d = device_of(false);
    fl_stream *other = NULL;
    one_product p = product_of(d);
    assert_int_equal(d->ops->stream_create(d, &other), FL_OK);
    assert_int_equal(run_product(&p, NULL), FL_OK);
    standin_fail("stream_wait_event", 1, 999);
    assert_int_equal(run_product(&p, NULL), FL_OK);
    assert_int_equal(run_product(&p, other), FL_EFAILED);
    assert_non_null(strstr(fl_errmsg(), "stream_wait_event: another error"));
    assert_int_equal(run_product(&p, other), FL_OK);
    d->ops->stream_destroy(d, &other);
    drop_product(&p);
    close_device(&d);
}

/* ---- failures ---- */

static void test_cuda_products__pass_on_the_failure_of_every_call(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define NAME(name, result, parameters) #name,
        CUBLASLT_FUNCTIONS(NAME)
#undef NAME
    };
    int n_failures = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        bool destroys = strstr(functions[i], "Destroy") != NULL;
        for (int n = 1; n < 8; n++) {
            fl_device *d = NULL;
            const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = SIZE_MAX};
            cublaslt_begin(functions[i], n, CUBLAS_STATUS_EXECUTION_FAILED);
            fl_status status = fl_device_cuda_create(&options, &d);
            if (status == FL_OK) {
                one_product p = product_of(d);
                status = run_product(&p, NULL);
                fl_status again = run_product(&p, NULL);
                assert_true(again == FL_OK || status == FL_OK); /* it comes back */
                drop_product(&p);
                fl_device_destroy(&d);
            }
            assert_int_equal(standin_outstanding(), 0);
            assert_true(status == FL_OK || !destroys);
            if (status != FL_OK) {
                n_failures++;
                assert_non_null(strstr(fl_errmsg(), "the GPU program failed to execute (CUDA error "
                                                    "100013)"));
            }
        }
    }
    assert_true(n_failures >= 15);
}

static void test_cuda_products__tell_that_the_library_has_no_memory(void **state)
{
    (void)state;
    fl_device *d = NULL;
    const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = SIZE_MAX};
    cublaslt_begin("cublasLtCreate", 1, CUBLAS_STATUS_ALLOC_FAILED);
    assert_int_equal(fl_device_cuda_create(&options, &d), FL_ENOMEM);
    assert_string_equal(fl_errmsg(), "device cuda 0: library_open: out of memory (CUDA error 2)");
    assert_int_equal(standin_outstanding(), 0);
}

/* ---- the library itself ---- */

static void test_cuda_products__go_on_without_the_library(void **state)
{
    (void)state;
    const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = SIZE_MAX};
    standin_remove_library("libcublasLt.so.13: cannot open shared object file");
    fl_device *d = open_device(&options);
    char *text = NULL;
    int n = 1;
    assert_false(fl_cuda_has_library(d));
    assert_int_equal(run_products(d, FL_F32, 1e-5), FL_OK);
    assert_int_equal(cublaslt_calls("cublasLtMatmul"), 0);
    assert_int_equal(fl_cuda_algorithms_save(d, &text), FL_OK);
    assert_string_equal(text, "");
    assert_int_equal(fl_cuda_algorithms_load(d, text, &n), FL_OK);
    assert_int_equal(n, 0);
    fl_free(text);
    close_device(&d);
}

static void test_cuda_products__name_what_a_library_lacks(void **state)
{
    (void)state;
    assert_non_null(strstr(standin_library_load("/nowhere/libcublasLt.so"), "/nowhere/"));
    assert_string_equal(standin_library_load(FL_BINARY_DIR "/tests/plugin_empty.so"),
                        "it has no function cublasLtCreate");
}

/* ---- algorithms ---- */

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
        cmocka_unit_test(test_cuda_products__agree_with_the_cpu_in_fp32),
        cmocka_unit_test(test_cuda_products__agree_with_the_cpu_in_bf16),
        cmocka_unit_test(test_cuda_products__round_to_tf32_where_that_is_asked),
        cmocka_unit_test(test_cuda_products__fuse_bias_and_gelu_where_the_form_allows),
        cmocka_unit_test(test_cuda_products__do_without_what_the_library_lacks),
        cmocka_unit_test(test_cuda_products__copy_a_weight_once_after_each_update),
        cmocka_unit_test(test_cuda_products__order_a_copy_before_other_streams),
        cmocka_unit_test(test_cuda_products__pass_on_the_failure_of_every_call),
        cmocka_unit_test(test_cuda_products__tell_that_the_library_has_no_memory),
        cmocka_unit_test(test_cuda_products__go_on_without_the_library),
        cmocka_unit_test(test_cuda_products__name_what_a_library_lacks),
        cmocka_unit_test(test_cuda_products__ask_once_for_each_shape_and_alignment),
        cmocka_unit_test(test_cuda_products__keep_a_bounded_number_of_algorithms),
        cmocka_unit_test(test_cuda_products__take_the_algorithms_of_an_earlier_run),
        cmocka_unit_test(test_cuda_products__keep_the_answers_in_a_file),
        cmocka_unit_test(test_cuda_products__bear_any_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
