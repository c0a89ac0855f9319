/* MiniLM with its real weights against transformers, on real sentences: logits, loss and the
 * gradient of every parameter, within 1e-4 relative. The weights are no part of the project:
 * FL_MINILM names their folder and FL_MINILM_REFERENCE the file of
 * tests/reference/make_minilm_reference.py, whose head has the commands; without them the test is
 * skipped. */
#include "launcher/hf/hf_config.h"
#include "pipe/state/weights/init_weights.h"
#include "support/device/nn_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { NAME = 48, CLASSES = 2, SAMPLES_MAX = 64 };

static const double TOLERANCE = 1e-4;
static const size_t ARENA_BYTES = (size_t)256 << 20;

static char *reference;
static size_t reference_bytes;
static double worst;
static char worst_name[64];

static void load_reference(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    reference_bytes = (size_t)ftell(file);
    rewind(file);
    reference = malloc(reference_bytes);
    assert_non_null(reference);
    assert_int_equal(fread(reference, 1, reference_bytes, file), reference_bytes);
    fclose(file);
}

/* The values of a record; *n: how many. */
static const float *stored(const char *name, int64_t *n)
{
    for (size_t at = 0; at < reference_bytes;) {
        int32_t count;
        memcpy(&count, reference + at + NAME, sizeof count);
        if (strncmp(reference + at, name, NAME) == 0) {
            *n = count;
            return (const float *)(const void *)(reference + at + NAME + sizeof count);
        }
        at += NAME + sizeof count + (size_t)count * sizeof(float);
    }
    fail_msg("the reference has no '%s'", name);
    return NULL;
}

/* |a - b| / |b| over the whole tensor. */
static void compare(const char *name, const float *a)
{
    int64_t n = 0;
    const float *b = stored(name, &n);
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        norm += (double)b[i] * (double)b[i];
    }
    double error = sqrt(difference / norm);
    if (error > worst) {
        worst = error;
        snprintf(worst_name, sizeof worst_name, "%s", name);
    }
    if (!(error <= TOLERANCE)) {
        fail_msg("%s: relative difference %.3g over %lld elements of norm %.4g", name, error,
                 (long long)n, sqrt(norm));
    }
}

/* The folder's weights, and the classifier that the reference has. */
static void load_weights(rig *r, const char *folder)
{
    fl_init_weights init;
    assert_int_equal(fl_init_weights_open(r->model, folder, "head", &init), FL_OK);
    fl_init_state state = {.init = &init, .drawn = {.model = r->model, .seed = 1}};
    fl_state_source source = fl_init_weights_source(&state);
    for (int layer = 0; layer < r->n_layers; layer++) {
        for (int i = 0; i < r->params[layer].n; i++) {
            float *to = r->weight[layer][i].data;
            assert_int_equal(source.read(source.self, layer, i, FL_STATE_WEIGHT, to), FL_OK);
        }
    }
    const fl_weight *fc = &r->weight[r->n_layers - 1][2], *bias = &r->weight[r->n_layers - 1][3];
    if (fc->data == NULL || bias->data == NULL) {
        abort();
    }
    for (int64_t i = 0; i < fc->rows * fc->cols; i++) {
        fc->data[i] = (float)(0.02 * sin((double)i + 1));
    }
    memset(bias->data, 0, (size_t)bias->rows * sizeof(float));
    fl_init_weights_close(&init);
    rig_changed(r);
}

/* Ids and their types, which are 0. */
static void load_samples(rig *r)
{
    int64_t n = 0;
    const float *ids = stored("ids", &n);
    for (int64_t i = 0; i < n; i++) {
        fl_i32(&r->act[0])[2 * i] = (int32_t)ids[i];
        fl_i32(&r->act[0])[2 * i + 1] = 0;
    }
}

static double gradients(rig *r, int64_t n_samples)
{
    int64_t n = 0;
    const float *stored_targets = stored("targets", &n);
    int32_t target[SAMPLES_MAX], offsets[SAMPLES_MAX + 1] = {0};
    for (int64_t s = 0; s < n_samples; s++) {
        target[s] = (int32_t)stored_targets[s];
        offsets[s + 1] = (int32_t)s + 1;
    }
    const fl_tensor targets = {target, offsets, offsets, n_samples, n_samples, 1, FL_I32};
    fl_loss_sums sums = {0};
    assert_int_equal(rig_clear_grads(r), FL_OK);
    assert_int_equal(rig_forward(r), FL_OK);
    assert_int_equal(fl_exec_loss(&r->x, r->model, &r->act[r->n_layers], &targets,
                                  1.0f / (float)n_samples, &r->grad[r->n_layers], &sums),
                     FL_OK);
    assert_int_equal(rig_backward(r, false), FL_OK);
    return sums.loss / sums.n_targets;
}

static void compare_all(rig *r, double loss)
{
    int64_t n = 0;
    double wanted = (double)stored("loss", &n)[0];
    compare("logits", fl_f32(&r->act[r->n_layers]));
    assert_true(fabs(loss - wanted) <= TOLERANCE * wanted);
    for (int layer = 0; layer < r->n_layers; layer++) {
        for (int i = 0; i < r->params[layer].n; i++) {
            char record[NAME + 16];
            snprintf(record, sizeof record, "g/%d.%s", layer,
                     fl_model_param_name(r->model, layer, i));
            compare(record, r->wgrad[layer][i]);
        }
    }
}

static void test_minilm__agrees_with_transformers(void **state)
{
    (void)state;
    static rig r;
    const char *folder = getenv("FL_MINILM"), *path = getenv("FL_MINILM_REFERENCE");
    if (folder == NULL || path == NULL) {
        print_message("skipped: FL_MINILM and FL_MINILM_REFERENCE name no weights and results\n");
        skip();
    }
    fl_device *device = NULL;
    fl_model *model = NULL;
    fl_hf_config config;
    int64_t length[SAMPLES_MAX], n = 0, longest = 0;
    load_reference(path);
    const float *lengths = stored("lengths", &n);
    for (int64_t s = 0; s < n; s++) {
        length[s] = (int64_t)lengths[s];
        longest = length[s] > longest ? length[s] : longest;
    }
    assert_int_equal(fl_hf_config_read(folder, &config), FL_OK);
    config.bert.dropout = config.bert.attention_dropout = config.bert.head_dropout = 0;
    assert_int_equal(fl_hf_model_create(&config, CLASSES, &model), FL_OK);
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)2 << 30, &device), FL_OK);
    const fl_shape raw = {
        .tokens = longest, .width = 2, .dtype = FL_I32, .n_ids = (int32_t)config.bert.vocabulary};
    assert_int_equal(rig_init(&r, device, model, &raw, length, n, ARENA_BYTES), FL_OK);
    load_weights(&r, folder);
    load_samples(&r);
    compare_all(&r, gradients(&r, n));
    print_message("largest relative difference: %.2g (%s)\n", worst, worst_name);
    rig_fini(&r);
    fl_model_destroy(&model);
    fl_device_destroy(&device);
    fl_hf_config_fini(&config);
    free(reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minilm__agrees_with_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
