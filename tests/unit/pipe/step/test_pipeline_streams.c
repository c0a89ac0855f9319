/* A pipeline on a device that does nothing before it is waited for: copies and the losses of a
 * step are only queued. Host memory that is used again too early, and results that are read too
 * early, then give wrong numbers, whatever the timing of this machine. */
#include "device/system/alloc.h"
#include "nn/exec.h"
#include "support/data/toy.h"
#include "support/device/one_worker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { QUEUE = 4096, SAMPLES = 40, BATCH = 6, MICRO_BATCHES = 3, LAYERS = 2 };

/* ---- the device: one queue for all streams, in the order of the calls ---- */

struct fl_stream {
    int nothing;
};

struct fl_event {
    int at; /* pieces of work that were queued before it */
};

typedef struct work {
    enum { COPY, ZERO, ADD_LOSS } kind;
    void *to;
    const void *from;
    size_t n;
} work;

static struct {
    work queue[QUEUE];
    int n_queued, n_done;
    int n_waits; /* of the thread that steps, for a stream or an event */
    pthread_t stepping;
    int n_streams;
    fl_device *device;        /* NULL: between tests */
    const fl_device_ops *cpu; /* its own table */
} lazy;
static pthread_mutex_t lazy_lock = PTHREAD_MUTEX_INITIALIZER; /* the loader's thread waits, too */

static void do_work(const work *w)
{
    if (w->kind == COPY) {
        memmove(w->to, w->from, w->n);
    } else if (w->kind == ZERO) {
        memset(w->to, 0, w->n);
    } else {
        fl_loss_sums *sums = w->to;
        for (size_t i = 0; i < w->n; i++) {
            sums->loss += (double)((const float *)w->from)[i];
        }
    }
}

static void work_until(int at)
{
    pthread_mutex_lock(&lazy_lock);
    for (; lazy.n_done < at; lazy.n_done++) {
        do_work(&lazy.queue[lazy.n_done]);
    }
    pthread_mutex_unlock(&lazy_lock);
}

static int count_queued(void)
{
    pthread_mutex_lock(&lazy_lock);
    int n = lazy.n_queued;
    pthread_mutex_unlock(&lazy_lock);
    return n;
}

static fl_status queue_work(fl_stream *s, work w)
{
    assert_non_null(s); /* no work goes to the default stream */
    assert_in_range(count_queued(), 0, QUEUE - 1);
    pthread_mutex_lock(&lazy_lock);
    lazy.queue[lazy.n_queued++] = w;
    pthread_mutex_unlock(&lazy_lock);
    return FL_OK;
}

static fl_status lazy_copy(fl_device *d, fl_stream *s, void *to, const void *from, size_t n)
{
    (void)d;
    return queue_work(s, (work){COPY, to, from, n});
}

static fl_status lazy_zero(fl_device *d, fl_stream *s, void *to, size_t n)
{
    (void)d;
    return queue_work(s, (work){ZERO, to, NULL, n});
}

/* The loader's thread waits as well; that holds up no step. */
static void count_wait(void)
{
    if (pthread_equal(pthread_self(), lazy.stepping)) {
        lazy.n_waits++;
    }
}

static fl_status lazy_sync(fl_device *d, fl_stream *s)
{
    (void)d;
    assert_non_null(s);
    work_until(count_queued());
    count_wait();
    return FL_OK;
}

static void lazy_give(fl_device *d, void *memory, size_t size_bytes)
{
    assert_int_equal(lazy.n_done, lazy.n_queued); /* nothing may still use it */
    lazy.cpu->memory_give(d, memory, size_bytes);
}

static fl_status lazy_stream_create(fl_device *d, fl_stream **out)
{
    (void)d;
    lazy.n_streams++;
    *out = test_calloc(1, sizeof **out);
    return FL_OK;
}

static void lazy_stream_destroy(fl_device *d, fl_stream **s)
{
    (void)d;
    if (*s != NULL) {
        work_until(count_queued());
        lazy.n_streams--;
        test_free(*s);
        *s = NULL;
    }
}

static fl_status lazy_event_create(fl_device *d, fl_event **out)
{
    (void)d;
    *out = test_calloc(1, sizeof **out);
    return FL_OK;
}

static void lazy_event_destroy(fl_device *d, fl_event **e)
{
    (void)d;
    test_free(*e);
    *e = NULL;
}

static fl_status lazy_event_record(fl_device *d, fl_event *e, fl_stream *s)
{
    (void)d;
    assert_non_null(s);
    e->at = count_queued();
    return FL_OK;
}

static fl_status lazy_event_wait(fl_device *d, fl_event *e)
{
    (void)d;
    work_until(e->at);
    count_wait();
    return FL_OK;
}

static fl_status lazy_event_elapsed(fl_device *d, const fl_event *from, const fl_event *to,
                                    double *us)
{
    (void)d;
    assert_in_range(to->at, 0, lazy.n_done); /* both were reached */
    *us = (double)(to->at - from->at);
    return FL_OK;
}

static fl_device *open_device(void)
{
    static fl_device_ops ops;
    fl_device *d = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &d), FL_OK);
    memset(&lazy, 0, sizeof lazy);
    lazy.cpu = d->ops;
    lazy.device = d;
    lazy.stepping = pthread_self();
    ops = *d->ops;
    ops.host_memory = false;
    ops.memory_give = lazy_give;
    ops.copy_in = lazy_copy;
    ops.copy_out = lazy_copy;
    ops.copy = lazy_copy;
    ops.fill_zero = lazy_zero;
    ops.stream_create = lazy_stream_create;
    ops.stream_destroy = lazy_stream_destroy;
    ops.sync = lazy_sync;
    ops.event_create = lazy_event_create;
    ops.event_destroy = lazy_event_destroy;
    ops.event_record = lazy_event_record;
    ops.event_wait = lazy_event_wait;
    ops.event_elapsed = lazy_event_elapsed;
    d->ops = &ops;
    return d;
}

static void close_device(fl_device **d)
{
    assert_int_equal((*d)->used_bytes, 0);
    assert_int_equal(lazy.n_streams, 0);
    (*d)->ops = lazy.cpu;
    lazy.device = NULL;
    fl_device_destroy(d);
}

/* ---- a model that only copies; its loss is the sum of what comes out ---- */

static size_t bytes_of(const fl_tensor *t)
{
    return (size_t)(t->n_tokens * t->width) * sizeof(float);
}

static fl_status pass_on(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    return x->device->ops->copy(x->device, x->stream, out->data, in->data, bytes_of(in));
}

static fl_status pass_back(void *self, fl_exec *x, const fl_tensor *grad, fl_tensor *grad_in)
{
    return grad_in == NULL ? FL_OK : pass_on(self, x, grad, grad_in);
}

static fl_status any_shape(void *self, const fl_shape *out)
{
    (void)self, (void)out;
    return FL_OK;
}

static fl_status add_up(void *self, fl_exec *x, const fl_tensor *out, const fl_tensor *targets,
                        float grad_scale, fl_tensor *grad, fl_loss_sums *sums)
{
    (void)self, (void)targets, (void)grad_scale;
    if (grad != NULL) {
        FL_TRY(x->device->ops->fill_zero(x->device, x->stream, grad->data, bytes_of(grad)));
    }
    size_t n = (size_t)(out->n_tokens * out->width);
    return x->device == lazy.device ? queue_work(x->stream, (work){ADD_LOSS, sums, out->data, n})
                                    : FL_OK; /* a dry run */
}

static fl_model *copying_model(void)
{
    static const fl_layer_ops layer = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                       .kind = "copy",
                                       .shape = fl_toy_same_shape,
                                       .params = fl_toy_no_params,
                                       .forward = pass_on,
                                       .backward = pass_back};
    static const fl_loss_ops loss = {
        .head = FL_TABLE_HEAD(fl_loss_ops), .kind = "sum", .shape = any_shape, .forward = add_up};
    fl_model *model = NULL;
    assert_int_equal(fl_model_create("copies", &model), FL_OK);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(fl_model_add(model, 1, (fl_layer){&layer, NULL}), FL_OK);
    }
    assert_int_equal(fl_model_set_loss(model, (fl_loss){&loss, NULL}), FL_OK);
    return model;
}

/* ---- a worker of its own ---- */

typedef struct setup {
    fl_model *model;
    fl_dataset data;
    fl_device *device;
    one_worker worker;
} setup;

static void setup_init(setup *s)
{
    memset(s, 0, sizeof *s);
    s->model = copying_model();
    assert_int_equal(fl_toy_dataset(SAMPLES, &s->data), FL_OK);
    s->device = open_device();
    one_worker_open(&s->worker, &(one_worker_options){.model = s->model,
                                                      .data = &s->data,
                                                      .device = s->device,
                                                      .n_samples = SAMPLES,
                                                      .batch = BATCH,
                                                      .M = MICRO_BATCHES});
}

static void setup_fini(setup *s)
{
    one_worker_close(&s->worker);
    close_device(&s->device);
    fl_dataset_destroy(&s->data);
    fl_model_destroy(&s->model);
}

/* The sum of all values of a batch. */
static double wanted_loss(const setup *s, const fl_global_batch *batch)
{
    enum { VALUES_MAX = 1024 };
    float values[VALUES_MAX];
    fl_shape shape;
    int64_t n_targets;
    double sum = 0.0;
    assert_int_equal(s->data.ops->max_shape(s->data.self, &shape, &n_targets), FL_OK);
    assert_in_range(shape.tokens * shape.width, 1, VALUES_MAX);
    for (int64_t i = 0; i < batch->n; i++) {
        fl_sample_key key = {.id = batch->ids[i], .augment = batch->split == FL_TRAIN};
        assert_int_equal(s->data.ops->read(s->data.self, batch->split, &key, values), FL_OK);
        for (int64_t v = 0; v < shape.tokens * shape.width; v++) {
            sum += (double)values[v];
        }
    }
    return sum;
}

/* Samples must stay where they were read until they were copied: the next batch is read meanwhile.
 */
static void test_step__reads_and_waits_in_order(void **state)
{
    (void)state;
    enum { STEPS = 6 };
    setup s;
    int64_t ids[STEPS + 1][BATCH];
    setup_init(&s);
    fl_global_batch now = one_worker_batch(&s.worker, FL_TRAIN, 0, ids[0]);
    assert_int_equal(fl_pipeline_prefetch(s.worker.generation.pipeline, &now), FL_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        fl_step_result result;
        fl_global_batch next = one_worker_batch(&s.worker, FL_TRAIN, step + 1, ids[step + 1]);
        if (step + 1 < STEPS) {
            assert_int_equal(fl_pipeline_prefetch(s.worker.generation.pipeline, &next), FL_OK);
        }
        int before = lazy.n_waits;
        fl_status status = fl_pipeline_step(s.worker.generation.pipeline, &now, 0.1, 0.0, &result);
        assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
        assert_int_equal(lazy.n_waits - before, 1); /* the commit point */
        double wanted = wanted_loss(&s, &now);
        assert_true(result.sums.loss > wanted - 1e-6 && result.sums.loss < wanted + 1e-6);
        now = next;
    }
    setup_fini(&s);
}

static void test_evaluate__waits_for_the_losses(void **state)
{
    (void)state;
    setup s;
    int64_t ids[BATCH];
    fl_loss_sums sums = {0};
    setup_init(&s);
    fl_global_batch batch = one_worker_batch(&s.worker, FL_TEST, 0, ids);
    assert_int_equal(fl_pipeline_prefetch(s.worker.generation.pipeline, &batch), FL_OK);
    assert_int_equal(fl_pipeline_evaluate(s.worker.generation.pipeline, &batch, &sums), FL_OK);
    double wanted = wanted_loss(&s, &batch);
    assert_true(sums.loss > wanted - 1e-6 && sums.loss < wanted + 1e-6);
    setup_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step__reads_and_waits_in_order),
        cmocka_unit_test(test_evaluate__waits_for_the_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
