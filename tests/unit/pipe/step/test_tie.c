/* Tied parameters: which can be tied, their start, their gradient, and what freezes them. */
#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/cost/time/cost_model.h"
#include "pipe/step/reduce.h"
#include "pipe/step/stage/stage.h"
#include "support/data/tied.h"
#include "support/data/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = TIED_DIM * TIED_DIM, SAMPLES = 6, LAYERS_MAX = 16 };

static fl_model *model;
static fl_dataset data;
static fl_device *device;

static int set_up(void **state)
{
    (void)state;
    return tied_model(true, 0.0f, &model) == FL_OK && fl_toy_dataset(40, &data) == FL_OK &&
                   fl_device_cpu_create(1, NULL, (size_t)1 << 30, &device) == FL_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    fl_device_destroy(&device);
    return 0;
}

/* ---- a model's ties ---- */

static void test_tie__a_chain_is_one_parameter(void **state)
{
    (void)state;
    float first[N], other[N];
    fl_model *untied = NULL;
    assert_int_equal(tied_model(false, 0.0f, &untied), FL_OK);
    assert_int_equal(fl_model_n_ties(untied), 0);
    assert_int_equal(fl_model_n_ties(model), 1);
    const fl_tie *tie = fl_model_tie_at(model, 0);
    assert_int_equal(tie->n, TIED_USES);
    fl_model_draw_param(model, tied_layer[0], 0, 7, first);
    for (int i = 0; i < TIED_USES; i++) {
        assert_int_equal(tie->use[i].layer, tied_layer[i]);
        assert_int_equal(fl_model_tie_of(model, tied_layer[i], 0), 0);
        fl_model_draw_param(model, tied_layer[i], 0, 7, other);
        assert_memory_equal(first, other, sizeof first);
    }
    fl_model_draw_param(untied, tied_layer[1], 0, 7, other);
    assert_memory_not_equal(first, other, sizeof first);
    assert_int_equal(fl_model_tie_of(model, 0, 0), -1);
    assert_int_equal(fl_model_n_params(model), fl_model_n_params(untied) - 2 * N);
    fl_model_destroy(&untied);
}

/* Two ties that meet become one; what was tied before stays tied. */
static void test_tie__ties_merge(void **state)
{
    (void)state;
    fl_model *m = NULL;
    assert_int_equal(tied_model(false, 0.0f, &m), FL_OK);
    assert_int_equal(fl_model_tie(m, "blocks.1.attn.ln.bias", "blocks.2.attn.ln.bias"), FL_OK);
    assert_int_equal(fl_model_tie(m, "above.weight", "middle.weight"), FL_OK);
    assert_int_equal(fl_model_tie(m, "blocks.3.attn.ln.bias", "head.ln.bias"), FL_OK);
    assert_int_equal(fl_model_n_ties(m), 3);
    assert_int_equal(fl_model_tie(m, "head.ln.bias", "blocks.2.attn.ln.bias"), FL_OK);
    assert_int_equal(fl_model_tie(m, "blocks.1.attn.ln.bias", "head.ln.bias"), FL_OK); /* again */
    assert_int_equal(fl_model_n_ties(m), 2);
    int layer, param, merged = -1;
    assert_int_equal(fl_model_find_param(m, "head.ln.bias", &layer, &param), FL_OK);
    merged = fl_model_tie_of(m, layer, param);
    assert_int_equal(fl_model_tie_at(m, merged)->n, 4);
    for (int i = 0; i < 4; i++) {
        fl_param_place at = fl_model_tie_at(m, merged)->use[i];
        assert_int_equal(fl_model_tie_of(m, at.layer, at.param), merged);
        assert_true(i == 0 || at.layer > fl_model_tie_at(m, merged)->use[i - 1].layer);
    }
    assert_int_equal(fl_model_tie_at(m, 1 - merged)->n, 2);
    assert_int_equal(fl_model_tie_of(m, tied_layer[1], 0), 1 - merged);
    assert_int_equal(fl_model_tie_of(m, tied_layer[0], 0), -1);
    fl_model_destroy(&m);
}

/* The first use in the model gives the values, whichever is named first. */
static void test_tie__the_first_use_gives_the_start(void **state)
{
    (void)state;
    fl_model *m = NULL;
    int layer, param;
    float v[TIED_DIM];
    assert_int_equal(tied_model(false, 0.0f, &m), FL_OK);
    /* ones and zeros, [24] each */
    assert_int_equal(fl_model_tie(m, "blocks.1.attn.ln.weight", "head.ln.bias"), FL_OK);
    assert_int_equal(fl_model_find_param(m, "head.ln.bias", &layer, &param), FL_OK);
    fl_model_draw_param(m, layer, param, 3, v);
    assert_true(v[0] == 1.0f && v[TIED_DIM - 1] == 1.0f);
    fl_model_destroy(&m);
}

static void test_tie__refuses_what_cannot_be_tied(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"head.w", "below.weight",
         "model 'tied' has no parameter 'head.w': layer 8, head (classifier) has ln.weight, "
         "ln.bias, fc.weight, fc.bias"},
        {"below.weight", "tail.weight",
         "model 'tied' has no parameter 'tail.weight': no layer's name begins it"},
        {"below.weight", "below.weight",
         "tie below.weight to below.weight: a parameter cannot be tied to itself"},
        {"below.weight", "head.fc.weight",
         "tie below.weight to head.fc.weight: the shapes differ: [24, 24] and [4, 24]"},
        {"embed.cls", "head.ln.bias",
         "tie embed.cls to head.ln.bias: the shapes differ: [1, 24] and [24, 1]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fl_model_tie(model, cases[i][0], cases[i][1]), FL_EINVAL);
        assert_string_equal(fl_errmsg(), cases[i][2]);
    }
    assert_int_equal(fl_model_n_ties(model), 1);
}

static void test_tie__survives_every_failed_allocation(void **state)
{
    (void)state;
    fl_status status = FL_ENOMEM;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_alloc_fail_at(n);
        status = fl_model_tie(model, "blocks.1.attn.ln.bias", "head.ln.bias");
        fl_alloc_fail_at(0);
        assert_true(status == FL_OK || status == FL_ENOMEM);
        assert_int_equal(fl_model_n_ties(model), status == FL_OK ? 2 : 1);
        assert_true(n < 10);
    }
}

/* ---- a stage ---- */

static fl_stage *stage_of(const fl_model *m, int first, int last, int F)
{
    static fl_job job;
    fl_layer_memory layers[LAYERS_MAX];
    fl_shape input;
    int64_t n_targets;
    fl_stage *stage = NULL;
    fl_job_defaults(&job);
    fl_drawn_state drawn = {.model = m, .seed = job.train.seed};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_stage_options o = {.model = m,
                          .dataset = &data,
                          .job = &job,
                          .device = device,
                          .first = first,
                          .last = last,
                          .n_frozen = fl_frozen_layers(m, F),
                          .source = &source,
                          .n_slots = 1,
                          .capacity = fl_capacity_equal(SAMPLES, 1, 1, 1)};
    assert_int_equal(data.ops->max_shape(data.self, &input, &n_targets), FL_OK);
    assert_int_equal(fl_memory_measure(m, &(fl_sample_shape){input, 1, FL_I32}, SAMPLES, layers),
                     FL_OK);
    fl_memory_stage(m, &job, layers, o.n_frozen, &(fl_stage_place){FL_GPIPE, 1, 1, 0, first, last},
                    &o.memory);
    assert_int_equal(fl_stage_create(&o, &stage), FL_OK);
    return stage;
}

/* The loss of one micro-batch; want_grad: adds its gradients. */
static double pass(fl_stage *stage, bool want_grad)
{
    int64_t ids[SAMPLES];
    fl_loss_sums sums = {0};
    fl_tensor input, out, grad_in;
    fl_shape shape;
    int64_t n_targets;
    for (int i = 0; i < SAMPLES; i++) {
        ids[i] = i;
    }
    const fl_micro_batch batch = {
        .split = FL_TRAIN, .ids = ids, .n = SAMPLES, .n_global = SAMPLES, .training = want_grad};
    assert_int_equal(fl_stage_begin(stage, 0, &batch, &input), FL_OK);
    assert_int_equal(data.ops->max_shape(data.self, &shape, &n_targets), FL_OK);
    for (int i = 0; i < SAMPLES; i++) {
        const fl_sample_key key = {.id = i};
        assert_int_equal(
            data.ops->read(data.self, FL_TRAIN, &key, fl_f32(&input) + i * shape.width), FL_OK);
    }
    assert_int_equal(fl_stage_forward(stage, 0, NULL, &out), FL_OK);
    assert_int_equal(fl_stage_loss(stage, 0, want_grad, 1.0f, &sums), FL_OK);
    if (want_grad) {
        assert_int_equal(fl_stage_backward(stage, 0, false, NULL, NULL, NULL, &grad_in), FL_OK);
    }
    return sums.loss;
}

static float *weights(fl_stage *stage, int layer)
{
    return fl_stage_params(stage)->layer[layer].weight[0].data;
}

/* Change element i of every use alike. */
static void move_uses(fl_stage *stage, int i, float by)
{
    for (int k = 0; k < TIED_USES; k++) {
        weights(stage, tied_layer[k])[i] += by;
    }
}

/* Would catch: a use whose gradient is lost, or counted twice. */
static void test_tie__gradient_is_that_of_all_uses(void **state)
{
    (void)state;
    const float h = 1.0f / 128;
    fl_stage *stage = stage_of(model, 0, TIED_LAYERS, 0);
    const fl_params *p = fl_stage_params(stage);
    double worst = 0.0, largest = 0.0;
    (void)pass(stage, true);
    assert_int_equal(p->n_ties, 1);
    const float *grad = p->grad + p->tie[0].at;
    for (int k = 0; k < TIED_USES; k++) {
        assert_ptr_equal(p->layer[tied_layer[k]].grad[0], grad);
    }
    for (int i = 0; i < N; i += 7) {
        move_uses(stage, i, h);
        double up = pass(stage, false);
        move_uses(stage, i, -2 * h);
        double down = pass(stage, false);
        move_uses(stage, i, h);
        worst = fmax(worst, fabs((up - down) / (2.0 * (double)h) - (double)grad[i]));
        largest = fmax(largest, fabs((double)grad[i]));
    }
    assert_true(largest > 0.0);
    assert_true(worst <= 2e-3 * largest);
    fl_stage_destroy(&stage);
}

static void test_tie__copies_stay_equal_to_the_last_bit(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    fl_stage *stage = stage_of(model, 0, TIED_LAYERS, 0);
    fl_params *p = fl_stage_params(stage);
    float start[N];
    memcpy(start, weights(stage, tied_layer[0]), sizeof start);
    for (int step = 0; step < 5; step++) {
        (void)pass(stage, true);
        assert_int_equal(fl_params_step(p, &job, step, 1e-2, 1.0), FL_OK);
        for (int k = 1; k < TIED_USES; k++) {
            assert_memory_equal(weights(stage, tied_layer[k]), weights(stage, tied_layer[0]),
                                sizeof start);
            assert_memory_equal(p->moments[tied_layer[k]], p->moments[tied_layer[0]],
                                2 * sizeof start);
        }
    }
    assert_memory_not_equal(start, weights(stage, tied_layer[0]), sizeof start);
    for (int64_t i = 0; i < p->n_grad; i++) {
        assert_true(p->grad[i] == 0.0f); /* the tie's gradient is cleared, too */
    }
    fl_stage_destroy(&stage);
}

/* One of the layers that use the matrix has thawed with fresh moments: its copy is not to move
 * otherwise than the others. */
static void test_tie__copies_stay_equal_after_a_fresh_thaw(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    fl_stage *stage = stage_of(model, 0, TIED_LAYERS, 0);
    fl_params *p = fl_stage_params(stage);
    int64_t since[LAYERS_MAX] = {0};
    since[tied_layer[1]] = 30;
    p->since = since;
    for (int step = 30; step < 33; step++) {
        (void)pass(stage, true);
        assert_int_equal(fl_params_step(p, &job, step, 1e-2, 1.0), FL_OK);
        for (int k = 1; k < TIED_USES; k++) {
            assert_memory_equal(weights(stage, tied_layer[k]), weights(stage, tied_layer[0]),
                                N * sizeof(float));
        }
    }
    fl_stage_destroy(&stage);
}

/* A block of frozen layers gives the same outputs from now on, so the matrix that one of them uses
 * may not change, also where it is used above. */
static void test_tie__freezes_with_its_lowest_block(void **state)
{
    (void)state;
    fl_job job;
    fl_job_defaults(&job);
    const fl_tie *tie = fl_model_tie_at(model, 0);
    assert_true(fl_tie_trains(tie, 0));
    for (int F = 1; F <= TIED_BLOCKS; F++) {
        assert_false(fl_tie_trains(tie, fl_frozen_layers(model, F)));
        fl_stage *stage = stage_of(model, 0, TIED_LAYERS, F);
        fl_params *p = fl_stage_params(stage);
        float start[TIED_USES][N];
        for (int k = 0; k < TIED_USES; k++) {
            memcpy(start[k], weights(stage, tied_layer[k]), sizeof start[k]);
        }
        assert_int_equal(p->n_ties, 0);
        assert_null(p->layer[tied_layer[2]].grad[0]);
        float head = weights(stage, TIED_LAYERS - 1)[0];
        (void)pass(stage, true);
        assert_int_equal(fl_params_step(p, &job, 0, 1e-2, 1.0), FL_OK);
        for (int k = 0; k < TIED_USES; k++) {
            assert_memory_equal(start[k], weights(stage, tied_layer[k]), sizeof start[k]);
        }
        assert_true(weights(stage, TIED_LAYERS - 1)[0] != head); /* the layers above train on */
        fl_stage_destroy(&stage);
    }
}

/* ---- norms ---- */

/* The squared norms that all stages and replicas of a cut report, by layer. */
static void norms_of(const int *first, int K, int R, double sum[LAYERS_MAX])
{
    memset(sum, 0, LAYERS_MAX * sizeof *sum);
    for (int s = 0; s < K; s++) {
        fl_params p;
        double squares[LAYERS_MAX];
        const fl_params_options o = {.device = device,
                                     .model = model,
                                     .first = first[s],
                                     .last = first[s + 1],
                                     .first_trainable = first[s],
                                     .n_moments = 2};
        assert_int_equal(fl_params_init(&p, &o), FL_OK);
        for (int64_t i = 0; i < p.n_grad; i++) {
            p.grad[i] = i < fl_params_grad_at(&p, p.last) ? 1.0f : 3.0f;
        }
        for (int r = 0; r < R; r++) {
            fl_reduce reduce = {.params = &p, .replica = r, .R = R};
            assert_int_equal(fl_reduce_norms(&reduce, squares), FL_OK);
            for (int layer = first[s]; layer < first[s + 1]; layer++) {
                sum[layer] += squares[layer - first[s]];
            }
        }
        fl_params_fini(&p);
    }
}

/* Would catch: a norm that depends on how the model is cut. */
static void test_tie__norm_counts_once_for_the_first_use(void **state)
{
    (void)state;
    static const int cuts[][4] = {
        {0, TIED_LAYERS, 0, 0}, {0, 2, TIED_LAYERS, 0}, {0, 6, TIED_LAYERS, 0}, {0, 3, 5, 9}};
    static const int K[] = {1, 2, 2, 3};
    double one[LAYERS_MAX], other[LAYERS_MAX];
    norms_of(cuts[0], 1, 1, one);
    assert_true(one[tied_layer[0]] == 9.0 * N);
    assert_true(one[tied_layer[1]] == 0.0 && one[tied_layer[2]] == 0.0);
    for (int c = 0; c < 4; c++) {
        for (int R = 1; R <= 3; R++) {
            norms_of(cuts[c], K[c], R, other);
            assert_memory_equal(one, other, sizeof one); /* sums of whole numbers */
        }
    }
}

/* ---- the price ---- */

static double reduce_us(const fl_model *m, int F, int K, int R)
{
    static fl_job job;
    static fl_profile profile;
    static fl_cost_table table;
    static const int cuts[3][4] = {{0}, {0, TIED_LAYERS}, {0, 3, TIED_LAYERS}};
    fl_candidate out;
    fl_job_defaults(&job);
    profile = (fl_profile){.n_layers = TIED_LAYERS,
                           .link_us = 1.0,
                           .link_bytes_per_us = 100.0,
                           .reduce_bytes_per_us = 10.0};
    for (int i = 0; i < TIED_LAYERS; i++) {
        profile.layer[i] = (fl_layer_cost){
            .fwd_us = 1.0, .bwd_us = 2.0, .n_params = fl_model_layer_n_params(m, i)};
    }
    const fl_plan_input input = {.model = m, .job = &job, .profile = &profile, .F = F};
    fl_cost_table_init(&table, &input);
    fl_cost_model_price(&table, (fl_grid){.F = F, .K = K, .R = R, .M = 1}, cuts[K], NULL, &out);
    return out.reduce_us;
}

/* Two stages sum the gradient of what they share, 4 N bytes at 10 a microsecond, after their own
 * buckets; frozen, there is nothing to sum. */
static void test_tie__the_planner_counts_the_sum_over_stages(void **state)
{
    (void)state;
    fl_model *untied = NULL;
    assert_int_equal(tied_model(false, 0.0f, &untied), FL_OK);
    assert_true(reduce_us(untied, 0, 2, 1) == 0.0);
    assert_true(reduce_us(model, 0, 1, 1) == 0.0);
    double us = reduce_us(model, 0, 2, 1);
    assert_true(us > 4.0 * N / 10.0 && us < 4.0 * N / 10.0 + 10.0);
    assert_true(reduce_us(model, 1, 2, 1) == 0.0);
    fl_model_destroy(&untied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tie__a_chain_is_one_parameter, set_up, tear_down),
        cmocka_unit_test(test_tie__ties_merge),
        cmocka_unit_test(test_tie__the_first_use_gives_the_start),
        cmocka_unit_test_setup_teardown(test_tie__refuses_what_cannot_be_tied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tie__survives_every_failed_allocation, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_tie__gradient_is_that_of_all_uses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tie__copies_stay_equal_to_the_last_bit, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_tie__copies_stay_equal_after_a_fresh_thaw, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_tie__freezes_with_its_lowest_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tie__the_planner_counts_the_sum_over_stages, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_tie__norm_counts_once_for_the_first_use, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
