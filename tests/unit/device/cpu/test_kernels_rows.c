/* Rows moved about: against index arithmetic written out. Catches swapped axes, and gradients that
 * overwrite instead of adding. */
#include "support/device/kernels.h"

static void test_gather_rows__takes_the_named_rows(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    const int32_t index[] = {4, 0, 4};
    float *in = random_floats(5 * 7, 1, 1.0f), *y = floats(3 * 7);
    RUN(d, gather_rows, .in = in, .index = index, .n_rows = 3, .width = 7, .y = y);
    for (int i = 0; i < 3; i++) {
        same_bits("row", y + i * 7, in + index[i] * 7, 7);
    }
    guard_check(y, 3 * 7);
    RUN(d, gather_rows, .in = in, .index = index, .n_rows = 0, .width = 7, .y = y);
    free(in);
    free(y);
    fl_device_destroy(&d);
}

static void test_scatter_rows__clears_the_others(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    const int32_t index[] = {3, 1};
    float *in = random_floats(2 * 5, 1, 1.0f), *y = floats(4 * 5), *none = zeros(5);
    RUN(d, scatter_rows, .in = in, .index = index, .n_rows = 2, .width = 5, .y = y,
        .total_rows = 4);
    same_bits("row 0", y, none, 5);
    same_bits("row 1", y + 5, in + 5, 5);
    same_bits("row 2", y + 10, none, 5);
    same_bits("row 3", y + 15, in, 5);
    guard_check(y, 4 * 5);
    free(in);
    free(y);
    free(none);
    fl_device_destroy(&d);
}

static void test_patchify__keeps_every_pixel_at_its_place(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    enum { N = 2, CHANNELS = 3, HEIGHT = 6, WIDTH = 8, PATCH = 2 };
    enum { SIZE = N * CHANNELS * HEIGHT * WIDTH, ACROSS = WIDTH / PATCH };
    float *images = random_floats(SIZE, 1, 1.0f), *y = floats(SIZE);
    RUN(d, patchify, .images = images, .n = N, .channels = CHANNELS, .height = HEIGHT,
        .width = WIDTH, .patch = PATCH, .patches = y);
    const float *at = y;
    for (int n = 0; n < N; n++) {
        for (int patch = 0; patch < HEIGHT / PATCH * ACROSS; patch++) {
            for (int channel = 0; channel < CHANNELS; channel++) {
                for (int pixel = 0; pixel < PATCH * PATCH; pixel++) {
                    int row = patch / ACROSS * PATCH + pixel / PATCH;
                    int column = patch % ACROSS * PATCH + pixel % PATCH;
                    assert_true(*at++ ==
                                images[((n * CHANNELS + channel) * HEIGHT + row) * WIDTH + column]);
                }
            }
        }
    }
    guard_check(y, SIZE);
    free(images);
    free(y);
    fl_device_destroy(&d);
}

enum { N = 5, PATCHES = 4, DIM = 19, ROWS = PATCHES + 1 };

static void test_vit_assemble__puts_the_class_token_first(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    float *patches = random_floats(N * PATCHES * DIM, 1, 1.0f), *cls = random_floats(DIM, 2, 1.0f);
    float *pos = random_floats(ROWS * DIM, 3, 1.0f), *y = floats(N * ROWS * DIM);
    RUN(d, vit_assemble, .patches = patches, .cls = VECTOR(cls, DIM),
        .pos = VECTOR(pos, ROWS * DIM), .n = N, .n_patches = PATCHES, .dim = DIM, .y = y);
    for (int n = 0; n < N; n++) {
        for (int c = 0; c < DIM; c++) {
            assert_true(y[n * ROWS * DIM + c] == cls[c] + pos[c]);
        }
        for (int i = 0; i < PATCHES * DIM; i++) {
            assert_true(y[n * ROWS * DIM + DIM + i] ==
                        patches[n * PATCHES * DIM + i] + pos[DIM + i]);
        }
    }
    guard_check(y, N * ROWS * DIM);
    free(patches);
    free(cls);
    free(pos);
    free(y);
    fl_device_destroy(&d);
}

static void test_vit_assemble_backward__adds_to_gradients(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    float *grad_y = random_floats(N * ROWS * DIM, 1, 1.0f), *patches = floats(N * PATCHES * DIM);
    float *cls = random_floats(DIM, 2, 1.0f), *pos = random_floats(ROWS * DIM, 3, 1.0f);
    double *want_cls = doubles(DIM), *want_pos = doubles(ROWS * DIM);
    for (int i = 0; i < ROWS * DIM; i++) {
        want_pos[i] = (double)pos[i];
        for (int n = 0; n < N; n++) {
            want_pos[i] += (double)grad_y[n * ROWS * DIM + i];
        }
        if (i < DIM) {
            want_cls[i] = want_pos[i] - (double)pos[i] + (double)cls[i];
        }
    }
    RUN(d, vit_assemble_backward, .grad_y = grad_y, .n = N, .n_patches = PATCHES, .dim = DIM,
        .grad_patches = patches, .grad_cls = cls, .grad_pos = pos);
    near_all("grad_cls", cls, want_cls, DIM, 1e-6, 1.0);
    near_all("grad_pos", pos, want_pos, ROWS * DIM, 1e-6, 1.0);
    for (int n = 0; n < N; n++) {
        same_bits("grad_patches", patches + n * PATCHES * DIM, grad_y + n * ROWS * DIM + DIM,
                  PATCHES * DIM);
    }
    guard_check(patches, N * PATCHES * DIM);
    RUN(d, vit_assemble_backward, .grad_y = grad_y, .n = N, .n_patches = PATCHES, .dim = DIM);
    free(grad_y);
    free(patches);
    free(cls);
    free(pos);
    free(want_cls);
    free(want_pos);
    fl_device_destroy(&d);
}

static void test_add__in_place_and_ragged(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 100, 1001};
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            int64_t n = sizes[i];
            float *a = random_floats(n, 1, 1.0f), *b = random_floats(n, 2, 1.0f), *y = floats(n);
            RUN(d, add, .a = a, .b = b, .y = y, .n = n);
            for (int64_t j = 0; j < n; j++) {
                assert_true(y[j] == a[j] + b[j]);
            }
            guard_check(y, n);
            RUN(d, add, .a = a, .b = b, .y = a, .n = n);
            same_bits("in place", a, y, n);
            free(a);
            free(b);
            free(y);
        }
        fl_device_destroy(&d);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_rows__takes_the_named_rows),
        cmocka_unit_test(test_scatter_rows__clears_the_others),
        cmocka_unit_test(test_patchify__keeps_every_pixel_at_its_place),
        cmocka_unit_test(test_vit_assemble__puts_the_class_token_first),
        cmocka_unit_test(test_vit_assemble_backward__adds_to_gradients),
        cmocka_unit_test(test_add__in_place_and_ragged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
