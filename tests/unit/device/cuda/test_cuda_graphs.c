/* Captured work on the CUDA device, over the stand-in for the runtime. Catches a graph that reads
 * what its arguments were when they have changed, one that is launched though what it uses has
 * moved, calls that are not allowed while a stream is captured, and a failure of any of them that
 * leaves a stream captured. */
#include "tests/shim/standin.h"

#include "device/cuda/cuda.h"
#include "device/system/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 64, BUDGET = 1 << 20 };

typedef struct rig {
    fl_device *d;
    fl_stream *s;
    float *memory; /* [4 * N] on the device */
    fl_graph *graph;
} rig;

static rig open_rig(void)
{
    rig r = {0};
    const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = BUDGET};
    assert_int_equal(fl_device_cuda_create(&options, &r.d), FL_OK);
    assert_true(r.d->ops->has_graphs);
    assert_int_equal(r.d->ops->stream_create(r.d, &r.s), FL_OK);
    assert_int_equal(fl_device_alloc(r.d, 4 * N * sizeof(float), "values", (void **)&r.memory),
                     FL_OK);
    return r;
}

static void close_rig(rig *r)
{
    r->d->ops->graph_destroy(r->d, &r->graph);
    fl_device_free(r->d, r->memory, 4 * N * sizeof(float));
    r->d->ops->stream_destroy(r->d, &r->s);
    fl_device_destroy(&r->d);
    assert_int_equal(standin_outstanding(), 0);
}

static void put(const rig *r, int at, float value)
{
    float values[N];
    for (int i = 0; i < N; i++) {
        values[i] = value + (float)i;
    }
    assert_int_equal(r->d->ops->copy_in(r->d, r->s, r->memory + at * N, values, sizeof values),
                     FL_OK);
}

static float get(const rig *r, int at)
{
    float value;
    assert_int_equal(r->d->ops->copy_out(r->d, r->s, &value, r->memory + at * N, sizeof value),
                     FL_OK);
    assert_int_equal(r->d->ops->sync(r->d, r->s), FL_OK);
    return value;
}

/* 2 = 0 + 1; 3 = 2 */
static fl_status queue_sum(const rig *r)
{
    fl_add_args add = {.a = r->memory, .b = r->memory + N, .y = r->memory + 2 * N, .n = N};
    FL_TRY(r->d->ops->add(r->d, r->s, &add));
    memset(&add, 0xFF, sizeof add); /* a capture has a copy of it */
    return r->d->ops->copy(r->d, r->s, r->memory + 3 * N, r->memory + 2 * N, N * sizeof(float));
}

/* status: of the calls since the begin; without one of them, the graph is not what was asked for */
static fl_status end_capture(rig *r, fl_status status)
{
    fl_status ended = r->d->ops->capture_end(r->d, r->s, &r->graph);
    if (status != FL_OK) {
        r->d->ops->graph_destroy(r->d, &r->graph);
    }
    return status == FL_OK ? ended : status;
}

static fl_status capture_sum(rig *r)
{
    FL_TRY(r->d->ops->capture_begin(r->d, r->s));
    return end_capture(r, queue_sum(r));
}

static void test_graph__does_the_work_at_each_launch(void **state)
{
    (void)state;
    rig r = open_rig();
    put(&r, 0, 1.0f);
    put(&r, 1, 2.0f);
    assert_int_equal(capture_sum(&r), FL_OK);
    assert_true(get(&r, 3) == 0.0f); /* captured work is not done */
    for (int i = 0; i < 3; i++) {
        put(&r, 0, (float)(10 * i));
        assert_int_equal(r.d->ops->graph_launch(r.d, r.s, r.graph), FL_OK);
        assert_true(get(&r, 3) == (float)(10 * i + 2));
    }
    close_rig(&r);
}

/* The driver's memory for graphs, as it is measured, or estimated where that says nothing; a graph
 * that takes another's place takes its memory, too. Would catch counts that only grow. */
static void test_graph__counts_its_memory_while_it_exists(void **state)
{
    (void)state;
    static const struct {
        const char *fails;
        size_t node_bytes;
    } rows[] = {{"", STANDIN_NODE_BYTES}, {"memory_free", 4096}, {"graph_nodes", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r = open_rig();
        for (int turn = 0; turn < 2; turn++) {
            standin_fail(rows[i].fails, 1, 999);
            assert_int_equal(r.d->graph_bytes, (size_t)turn * 2 * rows[i].node_bytes);
            assert_int_equal(capture_sum(&r), FL_OK);
            assert_int_equal(r.d->graph_bytes, 2 * rows[i].node_bytes);
            assert_int_equal(r.d->graph_nodes, rows[i].node_bytes == 0 ? 0 : 2);
        }
        assert_int_equal(r.d->ops->graph_launch(r.d, r.s, r.graph), FL_OK);
        assert_int_equal(r.d->graph_bytes, 2 * rows[i].node_bytes);
        r.d->ops->graph_destroy(r.d, &r.graph);
        assert_int_equal(r.d->graph_bytes, 0);
        assert_int_equal(r.d->graph_nodes, 0);
        close_rig(&r);
    }
}

/* A stream must be usable, and nothing may remain, whichever call fails. */
static void test_graph__leaves_the_stream_usable_whichever_call_fails(void **state)
{
    (void)state;
    static const char *const entries[] = {"capture_begin",     "capture_end",  "graph_destroy",
                                          "graph_instantiate", "graph_launch", "executable_destroy",
                                          "choose_device",     "add",          "copy"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        rig r = open_rig();
        put(&r, 0, 1.0f);
        put(&r, 1, 2.0f);
        standin_fail(entries[i], 1, 999);
        fl_status status = capture_sum(&r);
        bool captured = status == FL_OK;
        assert_true(captured == (r.graph != NULL));
        status = captured ? r.d->ops->graph_launch(r.d, r.s, r.graph) : status;
        bool gives = strstr(entries[i], "_destroy") != NULL;
        assert_int_equal(status, gives ? FL_OK : FL_EFAILED);
        assert_true(gives || strstr(fl_errmsg(), entries[i]) != NULL);
        assert_int_equal(queue_sum(&r), FL_OK); /* as if nothing had been captured */
        assert_true(get(&r, 3) == 3.0f);
        close_rig(&r);
    }
}

static void test_capture__refuses_what_cannot_be_captured(void **state)
{
    (void)state;
    rig r = open_rig();
    fl_event *e = NULL;
    void *memory = NULL;
    assert_int_equal(r.d->ops->event_create(r.d, &e), FL_OK);
    for (int i = 0; i < 3; i++) {
        fl_status status = FL_OK;
        assert_int_equal(r.d->ops->event_record(r.d, e, r.s), FL_OK);
        assert_int_equal(r.d->ops->capture_begin(r.d, r.s), FL_OK);
        assert_int_equal(r.d->ops->capture_begin(r.d, r.s), FL_EINVAL);
        switch (i) {
        case 0:
            status = r.d->ops->sync(r.d, r.s);
            break;
        case 1:
            status = r.d->ops->host_take(r.d, 8, &memory);
            break;
        case 2:
            status = r.d->ops->stream_wait(r.d, r.s, e); /* recorded before the capture */
            break;
        }
        assert_int_not_equal(status, FL_OK);
        assert_int_equal(r.d->ops->capture_end(r.d, r.s, &r.graph), FL_EFAILED);
        assert_null(r.graph);
    }
    assert_int_equal(r.d->ops->capture_end(r.d, r.s, &r.graph), FL_EINVAL);
    assert_int_equal(r.d->ops->capture_begin(r.d, NULL), FL_EINVAL); /* the default stream */
    assert_int_equal(queue_sum(&r), FL_OK);
    r.d->ops->event_destroy(r.d, &e);
    close_rig(&r);
}

/* ---- what moves ---- */

static fl_status queue_squares(const rig *r, int n)
{
    const fl_square_sum sum = {.x = r->memory, .n = n, .out = (double *)(void *)(r->memory + N)};
    return r->d->ops->sum_squares_many(r->d, r->s, &sum, 1);
}

static fl_status capture_squares(rig *r, int n)
{
    FL_TRY(r->d->ops->capture_begin(r->d, r->s));
    return end_capture(r, queue_squares(r, n));
}

/* A kernel of the graph writes to its workspace; another kernel then needs a larger one. */
static void test_graph__is_refused_when_its_workspace_has_moved(void **state)
{
    (void)state;
    rig r = open_rig();
    float *logits = NULL;
    int32_t *targets = NULL;
    assert_int_equal(capture_squares(&r, N), FL_ENOTSUP); /* it cannot grow meanwhile */
    assert_non_null(strstr(fl_errmsg(), "a larger workspace is needed while work is captured"));
    assert_null(r.graph);
    assert_int_equal(queue_squares(&r, N), FL_OK);
    assert_int_equal(capture_squares(&r, N), FL_OK);
    assert_int_equal(r.d->ops->graph_launch(r.d, r.s, r.graph), FL_OK);
    assert_int_equal(fl_device_alloc(r.d, N * sizeof(float), "logits", (void **)&logits), FL_OK);
    assert_int_equal(fl_device_alloc(r.d, N * sizeof *targets, "targets", (void **)&targets),
                     FL_OK);
    const fl_cross_entropy_args loss = {.logits = logits,
                                        .targets = targets,
                                        .loss = (double *)(void *)(r.memory + 2 * N),
                                        .m = N,
                                        .n = 1};
    assert_int_equal(r.d->ops->cross_entropy(r.d, r.s, &loss), FL_OK); /* needs more */
    assert_int_equal(r.d->ops->graph_launch(r.d, r.s, r.graph), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "workspace has grown since the work was captured"));
    int64_t made = standin_calls("graph_instantiate");
    assert_int_equal(capture_squares(&r, N), FL_OK);
    assert_int_equal(standin_calls("graph_instantiate"), made); /* updated in place */
    assert_int_equal(r.d->ops->graph_launch(r.d, r.s, r.graph), FL_OK);
    assert_int_equal(capture_sum(&r), FL_OK); /* of another form */
    assert_int_equal(standin_calls("graph_instantiate"), made + 1);
    fl_device_free(r.d, logits, N * sizeof(float));
    fl_device_free(r.d, targets, N * sizeof *targets);
    close_rig(&r);
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* y [1, 8] = x [1, 8] w^T + bias, in bf16, whose weights are copied into bf16 after each update. */
static fl_status queue_product(const rig *r, fl_weight *w, fl_weight *bias)
{
    const fl_linear_args a = {
        .dtype = FL_BF16, .in = r->memory, .w = w, .bias = bias, .y = r->memory + N, .m = 1};
    return r->d->ops->linear(r->d, r->s, &a);
}

static uint16_t first_output(const rig *r)
{
    float two = get(r, 1);
    uint16_t first;
    memcpy(&first, &two, sizeof first);
    return first;
}

static void set_weight(const rig *r, fl_weight *w, float value)
{
    float values[N];
    for (int i = 0; i < N; i++) {
        values[i] = value;
    }
    size_t bytes = (size_t)(w->rows * w->cols) * sizeof(float);
    assert_int_equal(r->d->ops->copy_in(r->d, r->s, w->data, values, bytes), FL_OK);
    w->version++;
}

static void test_graph__multiplies_by_the_weights_of_its_launch(void **state)
{
    (void)state;
    enum { WIDTH = 8 };
    rig r = open_rig();
    uint16_t ones[WIDTH];
    fl_weight w = {.data = r.memory + 2 * N, .rows = WIDTH, .cols = WIDTH};
    fl_weight bias = {.data = r.memory + 3 * N, .rows = WIDTH, .cols = 1};
    for (int i = 0; i < WIDTH; i++) {
        ones[i] = bf16_of(1.0f);
    }
    assert_int_equal(r.d->ops->copy_in(r.d, r.s, r.memory, ones, sizeof ones), FL_OK);
    set_weight(&r, &w, 1.0f);
    set_weight(&r, &bias, 0.0f);
    assert_int_equal(r.d->ops->capture_begin(r.d, r.s), FL_OK);
    assert_int_equal(queue_product(&r, &w, &bias), FL_ENOTSUP); /* there is no copy yet */
    assert_int_equal(r.d->ops->capture_end(r.d, r.s, &r.graph), FL_OK);
    r.d->ops->graph_destroy(r.d, &r.graph);
    assert_int_equal(queue_product(&r, &w, &bias), FL_OK);
    assert_int_equal(first_output(&r), bf16_of(8.0f));
    set_weight(&r, &w, 2.0f); /* the copy is old when the work is captured */
    assert_int_equal(r.d->ops->capture_begin(r.d, r.s), FL_OK);
    assert_int_equal(queue_product(&r, &w, &bias), FL_OK);
    assert_int_equal(r.d->ops->capture_end(r.d, r.s, &r.graph), FL_OK);
    assert_int_equal(r.d->ops->graph_launch(r.d, r.s, r.graph), FL_OK);
    assert_int_equal(first_output(&r), bf16_of(16.0f));
    set_weight(&r, &w, 3.0f);
    set_weight(&r, &bias, 8.0f);
    assert_int_equal(r.d->ops->graph_launch(r.d, r.s, r.graph), FL_OK);
    assert_int_equal(first_output(&r), bf16_of(32.0f));
    r.d->ops->graph_destroy(r.d, &r.graph);
    r.d->ops->weight_release(r.d, &w);
    close_rig(&r);
}

/* ---- other threads ---- */

typedef struct giver {
    rig *r;
    void *memory;
    atomic_bool begun;
} giver;

static void *give_memory(void *argument)
{
    giver *g = argument;
    atomic_store(&g->begun, true);
    fl_device_free(g->r->d, g->memory, 8);
    return NULL;
}

/* Giving back waits for the whole device, which would spoil a capture. The other thread may come
 * before the end of the capture or after it: neither may fail. */
static void test_capture__survives_a_thread_that_gives_memory_back(void **state)
{
    (void)state;
    rig r = open_rig();
    for (int i = 0; i < 20; i++) {
        giver g = {.r = &r};
        pthread_t thread;
        assert_int_equal(fl_device_alloc(r.d, 8, "memory", &g.memory), FL_OK);
        assert_int_equal(r.d->ops->capture_begin(r.d, r.s), FL_OK);
        assert_int_equal(fl_thread_start(&thread, give_memory, &g, "a thread"), FL_OK);
        while (!atomic_load(&g.begun)) {
        }
        assert_int_equal(queue_sum(&r), FL_OK);
        assert_int_equal(r.d->ops->capture_end(r.d, r.s, &r.graph), FL_OK);
        pthread_join(thread, NULL);
    }
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph__does_the_work_at_each_launch),
        cmocka_unit_test(test_graph__counts_its_memory_while_it_exists),
        cmocka_unit_test(test_graph__leaves_the_stream_usable_whichever_call_fails),
        cmocka_unit_test(test_capture__refuses_what_cannot_be_captured),
        cmocka_unit_test(test_graph__is_refused_when_its_workspace_has_moved),
        cmocka_unit_test(test_graph__multiplies_by_the_weights_of_its_launch),
        cmocka_unit_test(test_capture__survives_a_thread_that_gives_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
