/* Hashes of frozen layers' weights: each layer is hashed once, by whichever worker comes first, and
 * again after it has trained. */
#include "nn/model.h"
#include "pipe/step/input/weight_prints.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 3, LAYERS = 8 };

static fl_model *model;
static fl_device *device;
static fl_params params;
static fl_weight_prints *prints;

static int set_up(void **state)
{
    (void)state;
    if (fl_toy_model(BLOCKS, 0.0f, &model) != FL_OK ||
        fl_device_cpu_create(1, NULL, (size_t)1 << 30, &device) != FL_OK ||
        fl_weight_prints_create(LAYERS, &prints) != FL_OK) {
        return -1;
    }
    fl_drawn_state drawn = {.model = model, .seed = 5};
    const fl_state_source source = fl_drawn_source(&drawn);
    const fl_params_options o = {.device = device,
                                 .model = model,
                                 .last = LAYERS,
                                 .first_trainable = LAYERS,
                                 .n_frozen = LAYERS,
                                 .n_moments = 2,
                                 .source = &source};
    return fl_params_init(&params, &o) == FL_OK && fl_model_n_layers(model) == LAYERS ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_params_fini(&params);
    fl_weight_prints_destroy(&prints);
    fl_device_destroy(&device);
    fl_model_destroy(&model);
    return 0;
}

static int64_t bytes_of(int first, int last)
{
    int64_t n = 0;
    for (int layer = first; layer < last; layer++) {
        n += fl_params_layer_count(&params, layer) * (int64_t)sizeof(float);
    }
    return n;
}

static void get(int n_frozen, int reader, int n_readers, uint64_t out[LAYERS])
{
    memset(out, 0, LAYERS * sizeof *out);
    assert_int_equal(fl_weight_prints_get(prints, &params, n_frozen, reader, n_readers, out),
                     FL_OK);
}

static void test_weight_prints__hash_a_layer_once(void **state)
{
    (void)state;
    uint64_t a[LAYERS], b[LAYERS];
    get(5, 0, 1, a);
    assert_true(fl_weight_prints_hashed_bytes(prints) == bytes_of(0, 5));
    for (int i = 0; i < 5; i++) {
        assert_true(a[i] != 0);
        for (int k = 0; k < i; k++) {
            assert_true(a[i] != a[k]);
        }
    }
    get(5, 2, 3, b);
    assert_memory_equal(a, b, sizeof a);
    assert_true(fl_weight_prints_hashed_bytes(prints) == bytes_of(0, 5));
    get(7, 1, 2, b); /* more freezes: only the new layers */
    assert_memory_equal(a, b, 5 * sizeof *a);
    assert_true(fl_weight_prints_hashed_bytes(prints) == bytes_of(0, 7));
}

/* Would catch: values of the cache that are found again although their weights have changed. */
static void test_weight_prints__are_made_anew_after_a_thaw(void **state)
{
    (void)state;
    uint64_t a[LAYERS], b[LAYERS];
    get(6, 0, 1, a);
    fl_weight_prints_forget(prints, 3);
    for (int layer = 3; layer < 6; layer++) {
        params.weight[layer][fl_params_layer_count(&params, layer) / 2] += 1e-3f;
    }
    get(6, 0, 1, b);
    assert_memory_equal(a, b, 3 * sizeof *a);
    for (int layer = 3; layer < 6; layer++) {
        assert_true(a[layer] != b[layer]);
    }
    assert_true(fl_weight_prints_hashed_bytes(prints) == bytes_of(0, 6) + bytes_of(3, 6));
    fl_weight_prints_forget(prints, 6); /* nothing thaws */
    get(6, 0, 1, a);
    assert_true(fl_weight_prints_hashed_bytes(prints) == bytes_of(0, 6) + bytes_of(3, 6));
}

static void test_weight_prints__are_shared_by_processes(void **state)
{
    (void)state;
    uint64_t out[LAYERS];
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        bool good = fl_weight_prints_get(prints, &params, 4, 0, 2, out) == FL_OK;
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    get(4, 1, 2, out);
    assert_true(fl_weight_prints_hashed_bytes(prints) == bytes_of(0, 4));
}

static int n_copies;

static fl_status counted_copy_out(fl_device *d, fl_stream *s, void *to_host, const void *from,
                                  size_t n)
{
    (void)d, (void)s;
    n_copies++;
    memcpy(to_host, from, n);
    return FL_OK;
}

/* A device whose memory the host cannot read is copied from, a layer of this size at once. */
static void test_weight_prints__copy_what_the_host_cannot_read(void **state)
{
    (void)state;
    uint64_t a[LAYERS], b[LAYERS];
    get(LAYERS, 0, 1, a);
    fl_weight_prints_forget(prints, 0);
    const fl_device_ops *ops = device->ops;
    fl_device_ops far = *ops;
    far.host_memory = false;
    far.copy_out = counted_copy_out;
    device->ops = &far;
    get(LAYERS, 0, 1, b);
    device->ops = ops;
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(n_copies, LAYERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_weight_prints__hash_a_layer_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weight_prints__are_made_anew_after_a_thaw, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_weight_prints__are_shared_by_processes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_weight_prints__copy_what_the_host_cannot_read, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
