/* Steps of a pipeline on the CUDA device, over the stand-in for the runtime. Catches a captured
 * step that is not the step: random bits of another epoch, offsets or weights of the micro-batch
 * that was captured, a failure that leaves a wrong sum behind; and a host that waits in a step. */
#include "support/data/ragged.h"
#include "support/data/toy.h"
#include "support/device/one_worker.h"
#include "tests/shim/standin.h"

#include "device/cuda/cuda.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SAMPLES = 320,
    BATCH = 8,
    MICRO_BATCHES = 2,
    STEPS = 18,
    EPOCH_STEPS = 2,
    FAILING_STEPS = 6, /* enough for graphs to be made and launched */
    VALUES_MAX = 1 << 15
};

typedef enum run_way { BY_CALLS, BY_GRAPHS } run_way;

/* What the steps of a run leave. */
typedef struct outcome {
    double loss[STEPS], norm[STEPS];
    float weights[VALUES_MAX];
    int64_t n_weights, host_waits;
    fl_stage_graph_report graphs;
} outcome;

typedef struct scene {
    fl_model *model;
    fl_dataset data;
    int F, n_steps;
    bool evaluates;
    int64_t kernel_us, graph_us; /* as standin_set_costs takes them */
    bool real_time;
} scene;

static fl_device *open_cuda(run_way way)
{
    static fl_device_ops ops;
    fl_device *d = NULL;
    const fl_cuda_options options = {.plugin = standin_plugin(),
                                     .budget_bytes = (size_t)1 << 26,
                                     .products = FL_CUDA_PRODUCTS_EXACT};
    assert_int_equal(fl_device_cuda_create(&options, &d), FL_OK);
    ops = *d->ops;
    ops.has_graphs = way == BY_GRAPHS;
    d->ops = &ops;
    return d;
}

static void copy_weights(fl_device *d, one_worker *w, outcome *out)
{
    const fl_params *p = fl_stage_params(fl_pipeline_stage(w->generation.pipeline));
    assert_int_equal(fl_pipeline_wait(w->generation.pipeline), FL_OK);
    for (int i = 0; i < p->last - p->first; i++) {
        for (int k = 0; k < p->layer[i].n; k++) {
            const fl_weight *one = &p->layer[i].weight[k];
            int64_t n = one->rows * one->cols;
            assert_in_range(out->n_weights + n, 1, VALUES_MAX);
            assert_int_equal(d->ops->copy_out(d, NULL, out->weights + out->n_weights, one->data,
                                              (size_t)n * sizeof(float)),
                             FL_OK);
            out->n_weights += n;
        }
    }
    assert_int_equal(d->ops->sync(d, NULL), FL_OK);
}

static fl_status take_step(one_worker *w, int64_t step, outcome *out)
{
    int64_t ids[BATCH];
    fl_step_result result;
    fl_global_batch batch = one_worker_batch(w, FL_TRAIN, step % EPOCH_STEPS, ids);
    batch.step = step;
    batch.epoch = step / EPOCH_STEPS;
    fl_flight_step(step);
    FL_TRY(fl_pipeline_prefetch(w->generation.pipeline, &batch));
    int64_t before = standin_host_waits();
    FL_TRY(fl_pipeline_step(w->generation.pipeline, &batch, 0.05, 0.0, &result));
    out->host_waits = standin_host_waits() - before;
    out->loss[step] = result.sums.loss;
    out->norm[step] = result.grad_norm;
    return FL_OK;
}

static void evaluate(one_worker *w)
{
    int64_t ids[BATCH];
    fl_loss_sums sums = {0};
    fl_global_batch batch = one_worker_batch(w, FL_TEST, 0, ids);
    assert_int_equal(fl_pipeline_prefetch(w->generation.pipeline, &batch), FL_OK);
    assert_int_equal(fl_pipeline_evaluate(w->generation.pipeline, &batch, &sums), FL_OK);
}

/* The steps of a scene on a device; where entry is not NULL, its n-th call fails. */
static fl_status run_steps(const scene *s, fl_device *d, const char *entry, int n, outcome *out)
{
    one_worker w;
    fl_status status = FL_OK;
    memset(out, 0, sizeof *out);
    one_worker_open(&w, &(one_worker_options){.model = s->model,
                                              .data = &s->data,
                                              .device = d,
                                              .n_samples = SAMPLES,
                                              .batch = BATCH,
                                              .M = MICRO_BATCHES,
                                              .F = s->F});
    if (entry != NULL) {
        standin_fail(entry, n, 999);
    }
    for (int64_t step = 0; status == FL_OK && step < s->n_steps; step++) {
        if (s->evaluates && step % 3 == 0) {
            evaluate(&w);
        }
        status = take_step(&w, step, out);
    }
    if (status == FL_OK) {
        copy_weights(d, &w, out);
    }
    fl_stage_graphs(fl_pipeline_stage(w.generation.pipeline), &out->graphs);
    one_worker_close(&w);
    return status;
}

static void run_on_cuda(const scene *s, run_way way, const char *entry, int n, outcome *out)
{
    fl_device *d = open_cuda(way);
    standin_set_costs(s->kernel_us, s->graph_us);
    if (s->real_time) {
        standin_use_real_time();
    }
    fl_status status = run_steps(s, d, entry, n, out);
    assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
    fl_device_destroy(&d);
    assert_int_equal(standin_outstanding(), 0);
}

static void assert_same_bits(const outcome *a, const outcome *b)
{
    for (int i = 0; i < STEPS; i++) {
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0 ||
            memcmp(&a->norm[i], &b->norm[i], sizeof a->norm[i]) != 0) {
            fail_msg("step %d: loss %.17g and %.17g, norm %.17g and %.17g", i, a->loss[i],
                     b->loss[i], a->norm[i], b->norm[i]);
        }
    }
    assert_int_equal(a->n_weights, b->n_weights);
    assert_memory_equal(a->weights, b->weights, (size_t)a->n_weights * sizeof(float));
}

static scene ragged_scene(int F)
{
    scene s = {.F = F, .n_steps = STEPS};
    assert_int_equal(ragged_dataset(SAMPLES, ragged_like_sst2, false, &s.data), FL_OK);
    assert_int_equal(ragged_model(2, 0.2f, false, &s.model), FL_OK);
    return s;
}

static scene equal_scene(void)
{
    scene s = {.n_steps = STEPS, .evaluates = true};
    assert_int_equal(fl_toy_dataset(SAMPLES, &s.data), FL_OK);
    assert_int_equal(fl_toy_model(1, 0.2f, &s.model), FL_OK);
    return s;
}

static void close_scene(scene *s)
{
    fl_dataset_destroy(&s->data);
    fl_model_destroy(&s->model);
}

static void check_scene(scene s)
{
    static outcome calls, graphs;
    run_on_cuda(&s, BY_CALLS, NULL, 0, &calls);
    assert_int_equal(calls.graphs.captures, 0);
    run_on_cuda(&s, BY_GRAPHS, NULL, 0, &graphs);
    assert_false(graphs.graphs.given_up);
    assert_in_range(graphs.graphs.captures, 2, 100);
    assert_true(graphs.graphs.launches > graphs.graphs.captures);
    assert_same_bits(&calls, &graphs);
    assert_int_equal(calls.host_waits, 1); /* the commit point */
    assert_int_equal(graphs.host_waits, 1);
    close_scene(&s);
}

static void test_step__has_the_same_bits_by_graphs(void **state)
{
    (void)state;
    check_scene(equal_scene());
}

/* Micro-batches whose samples differ are made up to a few shapes. */
static void test_step__has_the_same_bits_with_ragged_samples(void **state)
{
    (void)state;
    check_scene(ragged_scene(0));
}

static void test_step__has_the_same_bits_above_frozen_blocks(void **state)
{
    (void)state;
    check_scene(ragged_scene(1));
}

/* The masks of a captured step are those that the CPU draws in each epoch. */
static void test_step__drops_what_the_cpu_drops(void **state)
{
    (void)state;
    static outcome cpu, graphs;
    scene s = ragged_scene(0);
    fl_device *d = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &d), FL_OK);
    assert_int_equal(run_steps(&s, d, NULL, 0, &cpu), FL_OK);
    fl_device_destroy(&d);
    run_on_cuda(&s, BY_GRAPHS, NULL, 0, &graphs);
    for (int i = 0; i < STEPS; i++) {
        double error = graphs.loss[i] - cpu.loss[i], most = 1e-4 * cpu.loss[i];
        assert_true(error < most && error > -most);
    }
    close_scene(&s);
}

/* Whatever fails while graphs are made or launched: the step is computed call by call, and one
 * reason is kept. */
static void test_step__survives_the_failure_of_every_graph_call(void **state)
{
    (void)state;
    static const char *const entries[] = {"capture_begin",     "capture_end",  "graph_instantiate",
                                          "graph_launch",      "graph_update", "graph_destroy",
                                          "executable_destroy"};
    static outcome calls, graphs;
    scene s = equal_scene();
    s.n_steps = FAILING_STEPS;
    run_on_cuda(&s, BY_CALLS, NULL, 0, &calls);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        run_on_cuda(&s, BY_GRAPHS, entries[i], 1 + (int)i % 2, &graphs);
        assert_same_bits(&calls, &graphs);
        bool harmless = strstr(entries[i], "_destroy") != NULL || strstr(entries[i], "_update");
        assert_true(graphs.graphs.given_up != harmless);
        assert_true(harmless || strstr(graphs.graphs.reason, entries[i]) != NULL);
    }
    close_scene(&s);
}

/* A run by graphs on a device where they take so long; *out is valid until the next one. */
static const outcome *run_with_costs(const scene *equal, int64_t kernel_us, int64_t graph_us)
{
    static outcome graphs;
    scene s = *equal;
    s.kernel_us = kernel_us;
    s.graph_us = graph_us;
    run_on_cuda(&s, BY_GRAPHS, NULL, 0, &graphs);
    assert_false(graphs.graphs.given_up);
    return &graphs;
}

/* The only shape of the scene was measured, and decided so. */
static void expect_choice(const fl_stage_graph_report *g, fl_stage_way way)
{
    const fl_stage_shape_report *shape = &g->shape[0];
    assert_int_equal(g->shapes, 1);
    assert_true(shape->training);
    assert_int_equal(shape->samples, BATCH / MICRO_BATCHES);
    assert_true(shape->rows >= shape->samples && shape->longest >= 1);
    assert_true(shape->calls_us > 0.0 && shape->graphs_us > 0.0);
    assert_int_equal(shape->way, way);
    assert_int_equal(shape->graphs_us <= shape->calls_us, way == FL_STAGE_BY_GRAPHS);
    assert_int_equal(g->by_graph, way == FL_STAGE_BY_GRAPHS);
}

/* A device on which the launch of a graph takes longer than all calls of a stage: once both ways
 * were measured, no graph is launched any more, and the graphs are given back. One on which calls
 * take longer: graphs stay. Either way the steps have the same bits. */
static void test_step__takes_the_way_that_is_faster(void **state)
{
    (void)state;
    enum { EACH = STEPS * MICRO_BATCHES }; /* forwards, and as many backwards */
    static outcome calls;
    scene s = equal_scene();
    s.evaluates = false;
    run_on_cuda(&s, BY_CALLS, NULL, 0, &calls);
    const outcome *slow = run_with_costs(&s, 1, 100000);
    expect_choice(&slow->graphs, FL_STAGE_BY_CALLS);
    assert_in_range(slow->graphs.launches, 1, EACH / 2);
    assert_int_equal(slow->graphs.calls + slow->graphs.launches, 2 * EACH);
    assert_same_bits(&calls, slow);
    const outcome *fast = run_with_costs(&s, 100, 1);
    expect_choice(&fast->graphs, FL_STAGE_BY_GRAPHS);
    assert_in_range(fast->graphs.calls, 1, EACH / 2);
    assert_same_bits(&calls, fast);
    close_scene(&s);
}

/* The intervals of the device's events, in the flight recorder: each forward and backward of a
 * micro-batch, and the optimizer but for the last step's, one behind the other, by calls as by
 * graphs; and the host still waits once. */
static void check_recorded(const fl_flight *flight, uint64_t *cursor, int64_t begun_ns)
{
    enum { EACH = STEPS * MICRO_BATCHES, ROUNDING_NS = 3000, ROOM = 4 * EACH };
    static fl_flight_entry e[ROOM];
    uint64_t lost = 0;
    int n_of[FL_FLIGHT_KINDS] = {0};
    int n = fl_flight_read(flight, 0, 1, cursor, e, ROOM, &lost);
    assert_int_equal(n, 2 * EACH + STEPS - 1);
    for (int i = 0; i < n; i++) {
        n_of[e[i].kind]++;
        assert_true(e[i].entered_ns >= begun_ns && e[i].left_ns >= e[i].entered_ns);
        if (i > 0 && e[i].step == e[i - 1].step) {
            assert_true(e[i].entered_ns >= e[i - 1].left_ns - ROUNDING_NS);
        }
        if (e[i].kind != FL_FLIGHT_OPTIMIZER) {
            assert_in_range(e[i].micro_batch, 0, MICRO_BATCHES - 1);
            assert_int_equal(e[i].item, 0);
        }
    }
    assert_int_equal(n_of[FL_FLIGHT_FORWARD], EACH);
    assert_int_equal(n_of[FL_FLIGHT_BACKWARD], EACH);
    assert_int_equal(n_of[FL_FLIGHT_OPTIMIZER], STEPS - 1);
}

static void test_step__tells_when_the_device_computed(void **state)
{
    (void)state;
    static fl_flight *flight; /* this process records into it until it ends */
    static outcome out;
    uint64_t cursor = 0;
    scene s = equal_scene();
    s.evaluates = false;
    s.real_time = true;
    assert_int_equal(fl_flight_create(1, &flight), FL_OK);
    fl_flight_join(flight, 0);
    for (run_way way = BY_CALLS; way <= BY_GRAPHS; way++) {
        int64_t begun_ns = fl_now_ns();
        run_on_cuda(&s, way, NULL, 0, &out);
        assert_int_equal(out.host_waits, 1);
        check_recorded(flight, &cursor, begun_ns);
    }
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step__has_the_same_bits_by_graphs),
        cmocka_unit_test(test_step__has_the_same_bits_with_ragged_samples),
        cmocka_unit_test(test_step__has_the_same_bits_above_frozen_blocks),
        cmocka_unit_test(test_step__drops_what_the_cpu_drops),
        cmocka_unit_test(test_step__survives_the_failure_of_every_graph_call),
        cmocka_unit_test(test_step__takes_the_way_that_is_faster),
        cmocka_unit_test(test_step__tells_when_the_device_computed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
