/* Optimizers against PyTorch's numbers (tests/reference/make_optimizer_reference.py prints them),
 * and schedules against tables. */
#include "nn/model.h"
#include "nn/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 4, N_STEPS = 3 };

static const float start[N] = {1.0f, -0.5f, 0.25f, 3.0f};
static const float grads[N_STEPS][N] = {
    {0.1f, -2.0f, 1e-4f, 0.0f}, {0.2f, 1.0f, -3e-4f, 0.5f}, {-0.4f, 0.5f, 2e-4f, 1e-7f}};

/* One step, after which the weights are PyTorch's. */
static void check_step(fl_device *device, const fl_job *job, int step, double grad_scale,
                       const fl_update *updates, int n_updates, const float w[N],
                       const double wanted[N])
{
    assert_int_equal(
        fl_optimizer_step(device, NULL, job, step, job->train.lr, grad_scale, updates, n_updates),
        FL_OK);
    for (int i = 0; i < N; i++) {
        if (!(fabs((double)w[i] - wanted[i]) <= 2e-7 * fabs(wanted[i]))) {
            fail_msg("step %d, element %d: %.9g, PyTorch has %.9g", step, i, (double)w[i],
                     wanted[i]);
        }
    }
}

static void check_steps(const fl_job *job, bool decay, float grad_scale,
                        const double wanted[N_STEPS][N])
{
    fl_device *device = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, 1 << 20, &device), FL_OK);
    float w[N], g[N], moments[2 * 7] = {0}; /* a stride other than N */
    int n_moments = fl_optimizer_n_moments(job->train.optimizer);
    memcpy(w, start, sizeof w);
    for (int step = 0; step < N_STEPS; step++) {
        for (int i = 0; i < N; i++) {
            g[i] = grads[step][i] / grad_scale;
        }
        const fl_update update = {.w = w,
                                  .g = g,
                                  .moment = {moments, n_moments == 2 ? moments + 7 : NULL},
                                  .n = N,
                                  .weight_decay = decay ? (float)job->train.weight_decay : 0.0f,
                                  .rate = 1.0f};
        check_step(device, job, step, (double)grad_scale, &update, 1, w, wanted[step]);
        for (int i = 0; i < N; i++) {
            assert_true(g[i] == grads[step][i] / grad_scale);
        }
    }
    for (int i = 0; i < 2 * 7; i++) { /* nothing written beside the moments */
        bool used = (i < N) || (i >= 7 && i < 7 + N && n_moments == 2);
        assert_true(used || moments[i] == 0.0f);
    }
    assert_int_equal(fl_optimizer_step(device, NULL, job, 0, 1.0, 1.0, NULL, 0), FL_OK);
    fl_device_destroy(&device);
}

static void test_optimizer__adamw_is_pytorchs(void **state)
{
    (void)state;
    static const double wanted[N_STEPS][N] = {
        {0.989000001, -0.4895, 0.239751, 2.997},
        {0.978359181, -0.48634713, 0.244452926, 2.98656163},
        {0.979318767, -0.485246894, 0.244020605, 2.97782287},
    };
    static const double no_decay[N_STEPS][N] = {
        {0.99009901, -0.490004998, 0.249090909, 3},
        {0.980396526, -0.487881759, 0.250087918, 2.9922637},
        {0.983064092, -0.487944833, 0.250007107, 2.98660197},
    };
    fl_job job = {.train = {.optimizer = FL_ADAMW,
                            .lr = 1e-2,
                            .weight_decay = 0.1,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-8}};
    assert_int_equal(fl_optimizer_n_moments(FL_ADAMW), 2);
    check_steps(&job, true, 1.0f, wanted);
    check_steps(&job, true, 0.25f, wanted); /* the scale of clipping applies to gradients */
    job.train.beta1 = 0.8;
    job.train.beta2 = 0.95;
    job.train.epsilon = 1e-3;
    check_steps(&job, false, 1.0f, no_decay); /* decay = false wins over the job's */
}

static void test_optimizer__sgd_is_pytorchs(void **state)
{
    (void)state;
    static const double momentum[N_STEPS][N] = {
        {0.985, -0.2975, 0.24874, 2.985},
        {0.946575, -0.2137625, 0.2463923, 2.906575},
        {0.947259625, -0.187329937, 0.243027408, 2.82145961},
    };
    static const double plain[N_STEPS][N] = {
        {0.99, -0.3, 0.24999, 3},
        {0.97, -0.4, 0.25002, 2.95},
        {1.01, -0.45, 0.25, 2.94999999},
    };
    fl_job job = {
        .train = {.optimizer = FL_SGD, .lr = 1e-1, .weight_decay = 0.05, .momentum = 0.9}};
    assert_int_equal(fl_optimizer_n_moments(FL_SGD), 1);
    check_steps(&job, true, 1.0f, momentum);
    check_steps(&job, true, 0.5f, momentum);
    job.train.momentum = 0.0;
    check_steps(&job, false, 1.0f, plain);
}

/* Each element is a parameter of its own, with a share of the learning rate, as a group of
 * parameters has in PyTorch. */
static void check_rates(const fl_job *job, const double wanted[N_STEPS][N])
{
    fl_device *device = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, 1 << 20, &device), FL_OK);
    float w[N], moments[2][N] = {{0}};
    fl_update list[N];
    memcpy(w, start, sizeof w);
    for (int step = 0; step < N_STEPS; step++) {
        for (int i = 0; i < N; i++) {
            list[i] = (fl_update){.w = &w[i],
                                  .g = &grads[step][i],
                                  .moment = {&moments[0][i], &moments[1][i]},
                                  .n = 1,
                                  .weight_decay = (float)job->train.weight_decay,
                                  .rate = 1.0f / (float)(1 << i)};
        }
        check_step(device, job, step, 1.0, list, N, w, wanted[step]);
    }
    fl_device_destroy(&device);
}

static void test_optimizer__rates_are_pytorchs_groups(void **state)
{
    (void)state;
    static const double adamw[N_STEPS][N] = {
        {0.989000001, -0.49475, 0.24743775, 2.999625},
        {0.978359181, -0.49317094, 0.24861131, 2.99831988},
        {0.979318767, -0.49261741, 0.24850219, 2.99722606},
    };
    static const double sgd[N_STEPS][N] = {
        {0.9985, -0.489875, 0.2499685, 2.9998125},
        {0.99465075, -0.485640031, 0.249909654, 2.99883126},
        {0.9946891, -0.484207149, 0.249824954, 2.99776072},
    };
    fl_job job = {.train = {.optimizer = FL_ADAMW,
                            .lr = 1e-2,
                            .weight_decay = 0.1,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-8}};
    check_rates(&job, adamw);
    job.train.optimizer = FL_SGD;
    job.train.weight_decay = 0.05;
    job.train.momentum = 0.9;
    check_rates(&job, sgd);
}

/* Would catch: an embedding that gets the rate of block 1, a head that gets less than all of it,
 * and a tied weight with two rates. */
static void test_optimizer__rates_fall_with_the_depth(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double rate; /* of decay 0.5 */
    } rates[2][8] = {
        {{"embed.patch.weight", 0.125},
         {"blocks.1.attn.qkv.weight", 0.25},
         {"blocks.1.mlp.fc.bias", 0.25},
         {"blocks.2.attn.ln.weight", 0.5},
         {"blocks.2.mlp.proj.weight", 0.5},
         {"head.fc.weight", 1}},
        {{"embed.token", 0.125},
         {"embed.position", 0.125},
         {"blocks.1.mlp.fc.weight", 0.25},
         {"blocks.2.attn.proj.bias", 0.5},
         {"head.ln.weight", 1},
         {"head.fc.weight", 0.125}}, /* the embedding's */
    };
    const fl_vit_config vit = {.channels = 1,
                               .height = 14,
                               .width = 14,
                               .patch = 7,
                               .dim = 8,
                               .heads = 2,
                               .blocks = 2,
                               .n_classes = 3};
    const fl_gpt2_config gpt2 = {
        .vocabulary = 50, .positions = 4, .dim = 8, .heads = 2, .blocks = 2};
    fl_job job = {.train = {.layer_decay = 0.5}}, whole = {.train = {.layer_decay = 1.0}};
    for (int m = 0; m < 2; m++) {
        fl_model *model = NULL;
        assert_int_equal(m == 0 ? fl_model_vit(&vit, &model) : fl_model_gpt2(&gpt2, &model), FL_OK);
        for (int i = 0; i < 8 && rates[m][i].name != NULL; i++) {
            int layer, param;
            assert_int_equal(fl_model_find_param(model, rates[m][i].name, &layer, &param), FL_OK);
            double rate = fl_layer_rate(&job, model, layer, param);
            if (rate != rates[m][i].rate) {
                fail_msg("%s: %g, expected %g", rates[m][i].name, rate, rates[m][i].rate);
            }
            assert_true(fl_layer_rate(&whole, model, layer, param) == 1.0);
        }
        fl_model_destroy(&model);
    }
}

static void test_optimizer__schedules_follow_their_tables(void **state)
{
    (void)state;
    static const struct {
        fl_decay decay;
        fl_span warmup;
        int64_t n_steps;
        struct {
            int64_t step;
            double rate; /* of a base of 1 */
        } at[7];
    } table[] = {
        {FL_DECAY_CONSTANT, {0.0, -1}, 10, {{0, 1}, {1, 1}, {9, 1}, {10, 1}, {99, 1}}},
        {FL_DECAY_CONSTANT, {0.4, -1}, 10, {{0, .25}, {1, .5}, {3, 1}, {4, 1}, {9, 1}}},
        {FL_DECAY_LINEAR, {0.0, -1}, 10, {{0, 1}, {1, .9}, {5, .5}, {9, .1}, {10, 0}, {11, 0}}},
        {FL_DECAY_LINEAR, {0.0, 2}, 10, {{0, .5}, {1, 1}, {2, 1}, {6, .5}, {9, .125}, {10, 0}}},
        /* steps win over the fraction, and neither reaches beyond the run */
        {FL_DECAY_LINEAR, {0.9, 2}, 10, {{0, .5}, {2, 1}, {6, .5}}},
        {FL_DECAY_LINEAR, {0.0, 40}, 4, {{0, .25}, {3, 1}, {4, 0}}},
        {FL_DECAY_COSINE, {0.0, 2}, 10, {{0, .5}, {2, 1}, {6, .5}, {8, .146446609}, {10, 0}}},
        {FL_DECAY_COSINE, {0.05, -1}, 39, {{0, 1}, {1, 1}, {20, .5}, {39, 0}}},
        {FL_DECAY_LINEAR, {0.0, 0}, 0, {{0, 0}}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        fl_job job = {.train = {.lr = 3.0, .decay = table[i].decay, .warmup = table[i].warmup}};
        for (int j = 0; j < 7; j++) {
            if (j > 0 && table[i].at[j].step == 0) {
                break;
            }
            double rate = fl_learning_rate(&job, table[i].at[j].step, table[i].n_steps);
            if (fabs(rate - 3.0 * table[i].at[j].rate) > 1e-8) {
                fail_msg("row %zu, step %lld: %g, wanted %g", i, (long long)table[i].at[j].step,
                         rate, 3.0 * table[i].at[j].rate);
            }
        }
    }
}

static void test_optimizer__clipping_bounds_the_norm(void **state)
{
    (void)state;
    assert_true(fl_clip_scale(100.0, 0.0) == 1.0);
    assert_true(fl_clip_scale(0.5, 1.0) == 1.0);
    assert_true(fl_clip_scale(0.0, 1.0) == 1.0);
    assert_true(fabs(fl_clip_scale(4.0, 1.0) - 0.25) < 1e-6);
    assert_true(fl_clip_scale(4.0, 1.0) < 0.25); /* torch adds 1e-6 to the norm */
    assert_true(fl_clip_scale((double)INFINITY, 1.0) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer__adamw_is_pytorchs),
        cmocka_unit_test(test_optimizer__sgd_is_pytorchs),
        cmocka_unit_test(test_optimizer__rates_are_pytorchs_groups),
        cmocka_unit_test(test_optimizer__rates_fall_with_the_depth),
        cmocka_unit_test(test_optimizer__schedules_follow_their_tables),
        cmocka_unit_test(test_optimizer__clipping_bounds_the_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
