/* The operations of a step: what layers count on the null device against what is known of their
 * shapes, and what freezing and the cache take away. Would catch: a product that is not counted or
 * twice, the loss counted as a layer's, a gradient below the frost line. */
#include "pipe/cost/time/flops.h"

#include "support/data/ragged.h"
#include "support/data/toy.h"
#include "support/runs/runs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TOKENS = 5, C = 24, PATCH = 49, CLASSES = 10, BLOCKS = 3, LAYERS = 2 * BLOCKS + 2 };

static fl_layer_memory memory[LAYERS];

static fl_model *vit(void)
{
    fl_vit_config config = {.channels = 1,
                            .height = 14,
                            .width = 14,
                            .patch = 7,
                            .dim = C,
                            .heads = 3,
                            .blocks = BLOCKS,
                            .n_classes = CLASSES};
    fl_shape image = {.tokens = 1, .width = 14 * 14, .dtype = FL_F32};
    fl_model *model = NULL;
    assert_int_equal(fl_model_vit(&config, &model), FL_OK);
    assert_int_equal(fl_model_n_layers(model), LAYERS);
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 1, memory),
                     FL_OK);
    return model;
}

static void test_flops__of_each_layer_are_those_of_its_products(void **state)
{
    (void)state;
    fl_model *model = vit();
    const int64_t embed = 2 * (TOKENS - 1) * PATCH * C, qkv = 2 * TOKENS * C * 3 * C,
                  project = 2 * TOKENS * C * C, scores = 2 * 2 * TOKENS * TOKENS * C,
                  mlp = 2 * 2 * TOKENS * C * 4 * C, head = 2 * C * CLASSES;
    assert_int_equal(memory[0].forward_flops, embed);
    assert_int_equal(memory[0].backward_flops, embed); /* nobody wants the gradient of images */
    assert_int_equal(memory[1].forward_flops, qkv + scores + project);
    assert_int_equal(memory[1].backward_flops, 2 * (qkv + scores + project));
    /* Its LayerNorm learns from the gradient of what it puts out, whoever is below. */
    assert_int_equal(memory[1].lowest_backward_flops, memory[1].backward_flops);
    assert_int_equal(memory[2].forward_flops, mlp);
    assert_int_equal(memory[2].backward_flops, 2 * mlp);
    assert_int_equal(memory[LAYERS - 1].forward_flops, head);
    assert_int_equal(memory[LAYERS - 1].backward_flops, 2 * head);
    fl_model_destroy(&model);
}

static void test_flops__of_the_lowest_layer_are_fewer_where_it_asks_for_less(void **state)
{
    (void)state;
    enum { IN = 6, HIDDEN = 8, OUT = 4 };
    fl_shape row = {.tokens = 1, .width = IN, .dtype = FL_F32};
    fl_layer_memory two[2];
    fl_model *model = NULL;
    fl_loss loss;
    assert_int_equal(fl_model_create("two", &model), FL_OK);
    for (int i = 0; i < 2; i++) {
        fl_layer layer;
        assert_int_equal(fl_layer_linear(i == 0 ? IN : HIDDEN, i == 0 ? HIDDEN : OUT, &layer),
                         FL_OK);
        assert_int_equal(fl_model_add(model, i + 1, layer), FL_OK);
    }
    assert_int_equal(fl_loss_cross_entropy(OUT, &loss), FL_OK);
    assert_int_equal(fl_model_set_loss(model, loss), FL_OK);
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){row, 1, FL_I32}, 1, two), FL_OK);
    assert_int_equal(two[1].backward_flops, 2 * 2 * HIDDEN * OUT);
    assert_int_equal(two[1].lowest_backward_flops, 2 * HIDDEN * OUT);
    double upper = (double)(two[1].forward_flops + two[1].lowest_backward_flops);
    assert_true(fl_flops_step(model, two, 1, true, 3) == 3.0 * upper);
    fl_model_destroy(&model);
}

static void test_flops__grow_with_the_samples_of_a_micro_batch(void **state)
{
    (void)state;
    fl_shape image = {.tokens = 1, .width = 14 * 14, .dtype = FL_F32};
    fl_layer_memory four[LAYERS];
    fl_model *model = vit();
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 4, four),
                     FL_OK);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(four[i].forward_flops, 4 * memory[i].forward_flops);
        assert_int_equal(four[i].backward_flops, 4 * memory[i].backward_flops);
    }
    fl_model_destroy(&model);
}

/* The mean over samples of different length is that of counting each of them; attention grows with
 * the square of the length, so the mean length alone would give less. */
static void test_flops__of_ragged_samples_are_their_mean(void **state)
{
    (void)state;
    enum { N = 60, MOST_LAYERS = 16 };
    static fl_layer_memory mean[MOST_LAYERS], one[MOST_LAYERS];
    double forward[MOST_LAYERS] = {0}, backward[MOST_LAYERS] = {0};
    fl_model *model = NULL;
    fl_dataset data;
    fl_sample_sizes *sizes = NULL;
    must(ragged_dataset(N, ragged_like_sst2, false, &data));
    must(ragged_model(2, 0.0f, false, &model));
    must(fl_sample_sizes_create(model, &data, N, N / 4, &sizes));
    must(fl_memory_mean_flops(model, sizes, mean));
    for (int64_t id = 0; id < N; id++) {
        fl_shape shape = sizes->longest;
        shape.tokens = ragged_like_sst2(FL_TRAIN, id);
        must(fl_memory_measure(model, &(fl_sample_shape){shape, 1, FL_I32}, 1, one));
        for (int i = 0; i < sizes->n_layers; i++) {
            forward[i] += (double)one[i].forward_flops / N;
            backward[i] += (double)one[i].backward_flops / N;
        }
    }
    for (int i = 0; i < sizes->n_layers; i++) {
        assert_true(fabs((double)mean[i].forward_flops - forward[i]) <= 1.0 + 1e-9 * forward[i]);
        assert_true(fabs((double)mean[i].backward_flops - backward[i]) <= 1.0 + 1e-9 * backward[i]);
    }
    fl_sample_sizes_destroy(&sizes);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static double sum(int first, int last, bool backward)
{
    double flops = 0.0;
    for (int i = first; i < last; i++) {
        flops += (double)(backward ? memory[i].backward_flops : memory[i].forward_flops);
    }
    return flops;
}

static void test_flops__of_a_step_end_at_the_frost_line(void **state)
{
    (void)state;
    enum { BATCH = 7 };
    fl_model *model = vit();
    double all = sum(0, LAYERS, false) + sum(0, LAYERS, true);
    assert_true(fl_flops_step(model, memory, 0, false, BATCH) == BATCH * all);
    /* Block 1 is the embedding and two layers; the next one up is the lowest that trains. */
    double above =
        sum(3, LAYERS, false) + sum(4, LAYERS, true) + (double)memory[3].lowest_backward_flops;
    assert_true(fl_flops_step(model, memory, 1, true, BATCH) == BATCH * above);
    assert_true(fl_flops_step(model, memory, 1, false, BATCH) ==
                BATCH * (above + sum(0, 3, false)));
    fl_model_destroy(&model);
}

static void test_flops__a_peak_is_of_processors_that_there_are(void **state)
{
    (void)state;
    static fl_profile profile = {.peak_flops_per_us = 1000.0};
    static fl_job job;
    fl_job_defaults(&job);
    job.devices.cores = 2;
    fl_plan_input input = {.job = &job, .profile = &profile, .n_processors = 8};
    assert_true(fl_flops_peak(&input, 1) == 1e9);
    assert_true(fl_flops_peak(&input, 4) == 4e9);
    assert_true(fl_flops_peak(&input, 6) == 4e9);
    profile.peak_flops_per_us = 0.0;
    assert_true(fl_flops_peak(&input, 4) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flops__of_each_layer_are_those_of_its_products),
        cmocka_unit_test(test_flops__of_the_lowest_layer_are_fewer_where_it_asks_for_less),
        cmocka_unit_test(test_flops__of_ragged_samples_are_their_mean),
        cmocka_unit_test(test_flops__grow_with_the_samples_of_a_micro_batch),
        cmocka_unit_test(test_flops__of_a_step_end_at_the_frost_line),
        cmocka_unit_test(test_flops__a_peak_is_of_processors_that_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
