/* Where weights and moments come from when a worker begins: the same values on any device, and a
 * file's in place of drawn ones. */
#include "pipe/state/state_source.h"

#include "device/async/async.h"
#include "nn/model.h"
#include "pipe/state/params.h"
#include "pipe/state/weights/init_weights.h"
#include "support/data/toy.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 2, SEED = 7, MOMENTS = 2 };

static fl_model *model;
static fl_device *cpu, *async;
static char folder[FOLDER_SIZE], path[FOLDER_SIZE + 32];

static int set_up(void **state)
{
    (void)state;
    const fl_async_options options = {.n_threads = 1, .budget_bytes = (size_t)1 << 28, .seed = 1};
    make_folder(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    bool good = fl_toy_model(BLOCKS, 0.0f, &model) == FL_OK &&
                fl_device_cpu_create(1, NULL, (size_t)1 << 28, &cpu) == FL_OK &&
                fl_device_async_create(&options, &async) == FL_OK;
    return good ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_device_destroy(&cpu);
    fl_device_destroy(&async);
    fl_model_destroy(&model);
    return remove_folder(folder);
}

static void load(fl_device *device, const fl_state_source *source, fl_params *p)
{
    const fl_params_options o = {.device = device,
                                 .model = model,
                                 .last = fl_model_n_layers(model),
                                 .n_moments = MOMENTS,
                                 .source = source};
    assert_int_equal(fl_params_init(p, &o), FL_OK);
}

/* A part of a parameter, in host memory that the caller frees. */
static float *copy_of(const fl_params *p, const float *from, const fl_param_spec *spec)
{
    size_t size_bytes = (size_t)(spec->rows * spec->cols) * sizeof(float);
    float *to = malloc(size_bytes);
    assert_int_equal(p->device->ops->copy_out(p->device, p->stream, to, from, size_bytes), FL_OK);
    assert_int_equal(p->device->ops->sync(p->device, p->stream), FL_OK);
    return to;
}

typedef void wanted_value(int layer, int i, const fl_param_spec *spec, float *out);

static void check_weights(const fl_params *p, wanted_value *wanted)
{
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            const fl_param_spec *spec = &fl_model_params(model, layer)->spec[i];
            size_t n = (size_t)(spec->rows * spec->cols);
            float *want = malloc(n * sizeof *want);
            float *found = copy_of(p, p->layer[layer].weight[i].data, spec);
            wanted(layer, i, spec, want);
            assert_memory_equal(want, found, n * sizeof *want);
            free(want);
            free(found);
        }
    }
}

static void drawn_value(int layer, int i, const fl_param_spec *spec, float *out)
{
    (void)spec;
    fl_model_draw_param(model, layer, i, SEED, out);
}

static void test_drawn_source__gives_every_device_the_same(void **state)
{
    (void)state;
    fl_drawn_state drawn = {.model = model, .seed = SEED};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_device *devices[] = {cpu, async};
    for (int i = 0; i < 2; i++) {
        fl_params p;
        load(devices[i], &source, &p);
        check_weights(&p, drawn_value);
        fl_params_fini(&p);
    }
    float moment[4] = {1, 2, 3, 4};
    int head = fl_model_find_layer(model, "head");
    int bias = fl_model_params(model, head)->n - 1;
    assert_int_equal(fl_model_params(model, head)->spec[bias].rows, 4);
    assert_int_equal(source.read(source.self, head, bias, FL_STATE_MOMENT, moment), FL_OK);
    assert_memory_equal(moment, ((float[4]){0}), sizeof moment);
}

/* All weights but those of the classifier, which the file lacks, are 0.5 and its number. */
static void file_value(int layer, int i, const fl_param_spec *spec, float *out)
{
    if (strcmp(fl_model_layer_name(model, layer), "head") == 0) {
        drawn_value(layer, i, spec, out);
        return;
    }
    for (int64_t e = 0; e < spec->rows * spec->cols; e++) {
        out[e] = 0.5f + (float)e;
    }
}

static void write_file(void)
{
    enum { MOST = 64, NAME = FL_LAYER_NAME_MAX + FL_PARAM_NAME_MAX };
    static fl_st_spec specs[MOST];
    static char names[MOST][NAME];
    fl_st_layout layout;
    int n = 0, fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int layer = 0; layer < fl_model_find_layer(model, "head"); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++, n++) {
            const fl_param_spec *p = &fl_model_params(model, layer)->spec[i];
            snprintf(names[n], NAME, "%s.%s", fl_model_layer_name(model, layer), p->name);
            specs[n] = (fl_st_spec){
                .name = names[n], .n_dims = p->cols == 1 ? 1 : 2, .dims = {p->rows, p->cols}};
        }
    }
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_F32, specs, n, NULL, 0), FL_OK);
    assert_int_equal(fl_st_layout_create(&layout, fd, path), FL_OK);
    for (int t = 0; t < n; t++) {
        for (int64_t e = 0; e < layout.n_elements[t]; e++) {
            float value = 0.5f + (float)e;
            assert_int_equal(fl_st_layout_write(&layout, fd, path, t, e, 1, &value), FL_OK);
        }
    }
    close(fd);
    fl_st_layout_fini(&layout);
}

/* Would catch: a tensor under another one's name, and one that is drawn although the file has it.
 */
static void test_init_weights_source__takes_the_file_over_the_seed(void **state)
{
    (void)state;
    fl_init_weights init;
    fl_device *devices[] = {cpu, async};
    write_file();
    assert_int_equal(fl_init_weights_open(model, path, "head", &init), FL_OK);
    fl_init_state init_state = {.init = &init, .drawn = {.model = model, .seed = SEED}};
    fl_state_source source = fl_init_weights_source(&init_state);
    for (int i = 0; i < 2; i++) {
        fl_params p;
        load(devices[i], &source, &p);
        check_weights(&p, file_value);
        fl_params_fini(&p);
    }
    float value[64];
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(source.read(source.self, 0, 1, FL_STATE_WEIGHT, value), FL_EIO);
    fl_init_weights_close(&init);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_source__gives_every_device_the_same),
        cmocka_unit_test(test_init_weights_source__takes_the_file_over_the_seed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
