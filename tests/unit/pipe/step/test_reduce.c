/* Gradient norms by layer: the replicas' shares add up to what a plain sum finds. */
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/step/reduce.h"
#include "support/data/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 3, MOST_REPLICAS = 5, LAYERS_MAX = 16 };

static double reference(const fl_params *p, int layer)
{
    double sum = 0.0;
    for (int64_t i = fl_params_grad_at(p, layer); i < fl_params_grad_at(p, layer + 1); i++) {
        sum += (double)p->grad[i] * (double)p->grad[i];
    }
    return sum;
}

/* Would catch: a range that is left out or counted twice where shares and layers do not meet, and a
 * frozen layer with a norm. */
static void check(fl_device *device, const fl_model *model, int first, int last, int trainable)
{
    fl_params p;
    fl_params_options o = {.device = device,
                           .model = model,
                           .first = first,
                           .last = last,
                           .first_trainable = trainable,
                           .n_moments = 2};
    assert_int_equal(fl_params_init(&p, &o), FL_OK);
    for (int64_t i = 0; i < p.n_grad; i++) {
        p.grad[i] = fl_unit((uint32_t)fl_mix64(7, (uint64_t)i)) - 0.5f;
    }
    for (int R = 1; R <= MOST_REPLICAS; R++) {
        double sum[LAYERS_MAX] = {0};
        for (int replica = 0; replica < R; replica++) {
            double squares[LAYERS_MAX];
            fl_reduce reduce = {.params = &p, .replica = replica, .R = R};
            assert_int_equal(fl_reduce_norms(&reduce, squares), FL_OK);
            for (int i = 0; i < last - first; i++) {
                sum[i] += squares[i];
            }
        }
        for (int layer = first; layer < last; layer++) {
            double wanted = layer < trainable ? 0.0 : reference(&p, layer);
            assert_true(fabs(sum[layer - first] - wanted) <= 1e-12 * wanted);
            assert_true(layer < trainable || fl_params_layer_count(&p, layer) == 0 || wanted > 0.0);
        }
    }
    fl_params_fini(&p);
    assert_int_equal(device->used_bytes, 0);
}

static void test_reduce__shares_of_norms_add_up(void **state)
{
    (void)state;
    fl_device *device = NULL;
    fl_model *model = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 30, &device), FL_OK);
    assert_int_equal(fl_toy_model(BLOCKS, 0.0f, &model), FL_OK);
    int n = fl_model_n_layers(model);
    assert_in_range(n, 4, LAYERS_MAX);
    for (int first = 0; first < n; first += 2) {
        for (int trainable = first; trainable <= n; trainable++) {
            check(device, model, first, n, trainable);
        }
    }
    fl_model_destroy(&model);
    fl_device_destroy(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce__shares_of_norms_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
