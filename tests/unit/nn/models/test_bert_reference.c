/* BERT against what Hugging Face's BertForSequenceClassification and BertForQuestionAnswering
 * computed for the same weights and samples of 1 to 9 tokens: logits, loss and every parameter's
 * gradient, in which the row of [PAD] must be 0. The files come from
 * tests/reference/make_bert_reference.py. */
#include "support/device/nn_rig.h"
#include "support/device/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum {
    SAMPLES = 4,
    TOKENS = 18,
    COLUMNS = 2,
    CLASSES = 3,
    DIM = 18,
    PADDING = 4,
    ARENA_BYTES = 1 << 20
};

static const double TOLERANCE = 1e-5;
static const int64_t lengths[SAMPLES] = {5, 1, 9, 3};
static const fl_bert_config config = {.vocabulary = 29,
                                      .positions = 11,
                                      .types = 2,
                                      .dim = DIM,
                                      .hidden = 25,
                                      .heads = 3,
                                      .blocks = 2,
                                      .n_classes = CLASSES,
                                      .activation = FL_ACT_GELU_ERF,
                                      .has_padding = true,
                                      .padding = PADDING};

typedef struct trial {
    rig r;
    fl_device *device;
    fl_model *model;
    fl_tensor targets;
    int32_t target[SAMPLES * COLUMNS];
    int32_t target_offsets[SAMPLES + 1];
} trial;

static const fl_param_spec *spec_of(const trial *t, int layer, int j)
{
    return &fl_model_params(t->model, layer)->spec[j];
}

/* The stored record "<prefix>/<layer>.<name>" of a parameter. */
static const float *stored_param(const trial *t, const char *prefix, int layer, int j)
{
    char record[RECORD_NAME + 16];
    const fl_param_spec *spec = spec_of(t, layer, j);
    snprintf(record, sizeof record, "%s/%d.%s", prefix, layer, spec->name);
    return stored(record, spec->rows * spec->cols);
}

/* width: 1, ids alone; 2, ids and types. */
static void begin(trial *t, const fl_bert_config *c, int64_t width)
{
    const fl_shape raw = {.tokens = 9, .width = width, .dtype = FL_I32, .n_ids = 29};
    *t = (trial){.target_offsets = {0}};
    bool spans = c->head == FL_BERT_ANSWERS;
    int n = spans ? COLUMNS : 1; /* targets of a sample */
    reference_load(spans ? "tests/reference/bert_span_reference.bin"
                         : "tests/reference/bert_reference.bin");
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &t->device), FL_OK);
    assert_int_equal(fl_model_bert(c, &t->model), FL_OK);
    assert_int_equal(rig_init(&t->r, t->device, t->model, &raw, lengths, SAMPLES, ARENA_BYTES),
                     FL_OK);
    for (int i = 0; i < TOKENS; i++) {
        int32_t *row = fl_i32(&t->r.act[0]) + i * width;
        row[0] = (int32_t)stored("ids", TOKENS)[i];
        row[width - 1] = width == 2 ? (int32_t)stored("types", TOKENS)[i] : row[0];
    }
    for (int i = 0; i < n * SAMPLES; i++) {
        t->target[i] = (int32_t)stored("targets", n * SAMPLES)[i];
    }
    for (int s = 0; s < SAMPLES; s++) {
        t->target_offsets[s + 1] = n * (s + 1);
    }
    t->targets = (fl_tensor){
        t->target, t->target_offsets, t->target_offsets, SAMPLES, n * SAMPLES, 1, FL_I32};
    for (int layer = 0; layer < t->r.n_layers; layer++) {
        for (int j = 0; j < t->r.params[layer].n; j++) {
            const fl_weight *w = &t->r.weight[layer][j];
            memcpy(w->data, stored_param(t, "w", layer, j),
                   (size_t)(w->rows * w->cols) * sizeof(float));
        }
    }
    rig_changed(&t->r);
}

static void end(trial *t)
{
    rig_fini(&t->r);
    fl_model_destroy(&t->model);
    fl_device_destroy(&t->device);
}

/* Forward, loss and backward; gives the mean loss. */
static double gradients(trial *t)
{
    fl_loss_sums sums = {0};
    int last = t->r.n_layers;
    assert_int_equal(rig_clear_grads(&t->r), FL_OK);
    assert_int_equal(rig_forward(&t->r), FL_OK);
    assert_int_equal(fl_exec_loss(&t->r.x, t->r.model, &t->r.act[last], &t->targets,
                                  1.0f / (float)t->targets.n_tokens, &t->r.grad[last], &sums),
                     FL_OK);
    assert_int_equal(rig_backward(&t->r, false), FL_OK);
    return sums.loss / sums.n_targets;
}

/* Gradients that are 0, up to rounding: a shift of all logits of a column moves no softmax. */
static void check_gradient(const char *name, const float *found, const float *wanted, int64_t n)
{
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        norm += fabs((double)wanted[i]);
    }
    if (norm > 1e-9) {
        assert_close(name, found, wanted, n, TOLERANCE);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        assert_true(fabs((double)found[i]) < 1e-6);
    }
}

static void check_model(const fl_bert_config *c, int64_t n_logits)
{
    static trial t;
    begin(&t, c, 2);
    double loss = gradients(&t), wanted = (double)stored("loss", 1)[0];
    assert_true(fabs(loss - wanted) <= TOLERANCE * wanted);
    assert_close("logits", fl_f32(&t.r.act[t.r.n_layers]), stored("logits", n_logits), n_logits,
                 TOLERANCE);
    for (int layer = 0; layer < t.r.n_layers; layer++) {
        for (int j = 0; j < t.r.params[layer].n; j++) {
            const fl_param_spec *spec = spec_of(&t, layer, j);
            check_gradient(spec->name, t.r.wgrad[layer][j], stored_param(&t, "g", layer, j),
                           spec->rows * spec->cols);
        }
    }
    for (int i = 0; i < DIM; i++) {
        assert_true(t.r.wgrad[0][0][PADDING * DIM + i] == 0.0f);
    }
    end(&t);
}

static void test_bert_reference__agrees_with_transformers(void **state)
{
    (void)state;
    check_model(&config, SAMPLES * CLASSES);
}

static void test_bert_reference__answers_as_transformers_does(void **state)
{
    (void)state;
    fl_bert_config answers = config;
    answers.head = FL_BERT_ANSWERS;
    check_model(&answers, TOKENS * COLUMNS);
}

static fl_status loss_of(trial *t, fl_loss_sums *sums)
{
    int last = t->r.n_layers;
    *sums = (fl_loss_sums){0};
    return fl_exec_loss(&t->r.x, t->r.model, &t->r.act[last], &t->targets, 0.0f, NULL, sums);
}

/* A target is a row of its own sample, or -1: then it does not count. */
static void test_bert_reference__targets_of_answers(void **state)
{
    (void)state;
    static trial t;
    fl_loss_sums all, fewer;
    fl_bert_config answers = config;
    answers.head = FL_BERT_ANSWERS;
    begin(&t, &answers, 2);
    assert_int_equal(rig_forward(&t.r), FL_OK);
    assert_int_equal(loss_of(&t, &all), FL_OK);
    assert_true(all.n_targets == COLUMNS * SAMPLES);
    t.target[1] = -1;
    assert_int_equal(loss_of(&t, &fewer), FL_OK);
    assert_true(fewer.n_targets == all.n_targets - 1 && fewer.loss < all.loss);
    t.target[1] = -2;
    assert_int_equal(loss_of(&t, &fewer), FL_EINVAL);
    t.target[1] = (int32_t)lengths[0]; /* the first row of the next sample */
    assert_int_equal(loss_of(&t, &fewer), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "target 5, allowed is -1 to 4"));
    end(&t);
}

/* The token in that place has a gradient otherwise. */
static void test_bert_reference__padding_alone_has_no_gradient(void **state)
{
    (void)state;
    static trial t;
    fl_bert_config all = config;
    double sum = 0;
    all.has_padding = false;
    begin(&t, &all, 2);
    (void)gradients(&t);
    for (int i = 0; i < DIM; i++) {
        sum += fabs((double)t.r.wgrad[0][0][PADDING * DIM + i]);
    }
    assert_true(sum > 1e-4);
    end(&t);
}

/* Ids alone are tokens of type 0, to the last bit. */
static void test_bert_reference__ids_alone_have_type_0(void **state)
{
    (void)state;
    static trial alone, both;
    begin(&alone, &config, 1);
    begin(&both, &config, 2);
    for (int i = 0; i < TOKENS; i++) {
        fl_i32(&both.r.act[0])[2 * i + 1] = 0;
    }
    assert_true(gradients(&alone) == gradients(&both));
    for (int j = 0; j < alone.r.params[0].n; j++) {
        const fl_param_spec *spec = spec_of(&alone, 0, j);
        assert_memory_equal(alone.r.wgrad[0][j], both.r.wgrad[0][j],
                            (size_t)(spec->rows * spec->cols) * sizeof(float));
    }
    end(&alone);
    end(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert_reference__agrees_with_transformers),
        cmocka_unit_test(test_bert_reference__answers_as_transformers_does),
        cmocka_unit_test(test_bert_reference__targets_of_answers),
        cmocka_unit_test(test_bert_reference__padding_alone_has_no_gradient),
        cmocka_unit_test(test_bert_reference__ids_alone_have_type_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
