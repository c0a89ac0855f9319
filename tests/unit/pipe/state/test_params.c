/* The weights of a layer, read by the host: in place, or as a copy where it cannot look into device
 * memory. */
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/state/params.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Copies are made when the stream is waited for. */
static struct {
    void *to;
    const void *from;
    size_t n;
} asked;

static fl_status copy_out(fl_device *d, fl_stream *s, void *to, const void *from, size_t n)
{
    (void)d, (void)s;
    assert_int_equal(asked.n, 0);
    asked.to = to;
    asked.from = from;
    asked.n = n;
    return FL_OK;
}

static fl_status sync(fl_device *d, fl_stream *s)
{
    (void)d, (void)s;
    if (asked.n > 0) {
        memcpy(asked.to, asked.from, asked.n);
        asked.n = 0;
    }
    return FL_OK;
}

static void test_read_weights__waits_for_a_copy_where_one_is_needed(void **state)
{
    (void)state;
    fl_device *d = NULL;
    fl_model *model = NULL;
    fl_params p;
    void *room = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &d), FL_OK);
    assert_int_equal(fl_toy_model(1, 0.0f, &model), FL_OK);
    fl_drawn_state drawn = {.model = model, .seed = 3};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_params_options o = {
        .device = d, .model = model, .last = fl_model_n_layers(model), .source = &source};
    assert_int_equal(fl_params_init(&p, &o), FL_OK);
    const fl_device_ops *cpu = d->ops;
    fl_device_ops ops = *cpu;
    ops.host_memory = false;
    ops.copy_out = copy_out;
    ops.sync = sync;
    for (int layer = 0; layer < p.last; layer++) {
        size_t n = (size_t)fl_params_layer_count(&p, layer);
        const float *in_place = NULL, *copied = NULL;
        assert_int_equal(fl_params_read_weights(&p, layer, NULL, &in_place), FL_OK);
        assert_ptr_equal(in_place, p.weight[layer]);
        assert_int_equal(fl_alloc_array(n + 1, sizeof(float), &room), FL_OK);
        d->ops = &ops;
        assert_int_equal(fl_params_read_weights(&p, layer, room, &copied), FL_OK);
        d->ops = cpu;
        assert_ptr_equal(copied, room);
        assert_memory_equal(copied, in_place, n * sizeof(float));
        fl_free(room);
    }
    fl_params_fini(&p);
    fl_model_destroy(&model);
    fl_device_destroy(&d);
}

/* Three steps of all layers, with the same gradients in every run. */
static void take_steps(fl_params *p, fl_device *d, fl_model *model, const int64_t *since,
                       int64_t first_step)
{
    fl_job job;
    fl_drawn_state drawn = {.model = model, .seed = 3};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_params_options o = {.device = d,
                           .model = model,
                           .last = fl_model_n_layers(model),
                           .n_moments = 2,
                           .source = &source};
    fl_job_defaults(&job);
    assert_int_equal(fl_params_init(p, &o), FL_OK);
    p->since = since;
    for (int64_t step = first_step; step < first_step + 3; step++) {
        for (int64_t i = 0; i < p->n_grad; i++) {
            p->grad[i] = (float)(i % 7 - 3) * 0.01f;
        }
        assert_int_equal(fl_params_step(p, &job, step, 1e-2, 1.0), FL_OK);
    }
}

/* Moments of zero need the corrections of the first steps, however far the run is: with those of
 * step 40 AdamW's first update would be three times too large. A layer with fresh moments moves as
 * in the run's first steps, and its neighbours as before. */
static void test_params__fresh_moments_count_from_their_own_step(void **state)
{
    (void)state;
    enum { AT = 40, FRESH = 1 };
    fl_device *d = NULL;
    fl_model *model = NULL;
    fl_params first, fresh, later;
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &d), FL_OK);
    assert_int_equal(fl_toy_model(2, 0.0f, &model), FL_OK);
    int n_layers = fl_model_n_layers(model), n_compared = 0;
    int64_t since[FL_MAX_LAYERS] = {[FRESH] = AT};
    take_steps(&first, d, model, NULL, 0);
    take_steps(&later, d, model, NULL, AT);
    take_steps(&fresh, d, model, since, AT);
    for (int layer = 0; layer < n_layers; layer++) {
        size_t n = (size_t)fl_params_layer_count(&fresh, layer) * sizeof(float);
        if (n > 0) {
            const fl_params *same = layer == FRESH ? &first : &later;
            assert_memory_equal(fresh.weight[layer], same->weight[layer], n);
            assert_memory_not_equal(first.weight[layer], later.weight[layer], n);
            n_compared++;
        }
    }
    assert_true(n_compared > 2 && fl_params_layer_count(&fresh, FRESH) > 0);
    fl_params_fini(&first);
    fl_params_fini(&later);
    fl_params_fini(&fresh);
    fl_model_destroy(&model);
    fl_device_destroy(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_weights__waits_for_a_copy_where_one_is_needed),
        cmocka_unit_test(test_params__fresh_moments_count_from_their_own_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
