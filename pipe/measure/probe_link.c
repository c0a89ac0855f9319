/* Messages and an all-reduce between two children, over the very channels and buckets that a run
 * uses: a message is copied into its buffer and out of it again, as pipe/step/message_queues.c
 * does. */
#include "autodp/group/group.h"
#include "autodp/split_work.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "pipe/cost/memory.h"
#include "pipe/measure/probe.h"
#include "pipe/measure/quantile.h"

#include <string.h>

enum { PING_ID = 1, PONG_ID = 2, BUCKET_ID = 3, DEPTH = 2 };
enum { SHORT_MESSAGES = 200, LONG_MESSAGES = 12, REDUCES = 8 };

static const int64_t SMALLEST_MESSAGE = 64 << 10, LARGEST_MESSAGE = 4 << 20;

typedef struct pair {
    const fl_probe_options *o;
    fl_group *group;
    fl_channel *out, *in;
    fl_bucket *bucket;
    unsigned char *payload;
    float *gradients;
    fl_shared *shared; /* where they lie; NULL: in memory of this process alone */
    int64_t message_bytes, n_gradients;
    int64_t n; /* messages so far, each way */
} pair;

static int64_t between(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : (value > high ? high : value);
}

/* The largest boundary of the model, for the middle of the micro-batches that a pipeline of two
 * would use; a bucket, or all gradients if they are fewer. */
static fl_status choose_sizes(pair *p)
{
    enum { MICRO_BATCHES = 8 };
    const fl_job *job = p->o->job;
    fl_shape input;
    int64_t n_targets, largest = 0;
    const fl_dataset *d = p->o->dataset;
    fl_layer_memory memory[FL_MAX_LAYERS];
    FL_TRY(d->ops->max_shape(d->self, &input, &n_targets));
    FL_TRY(fl_memory_measure(p->o->model, &input, 1, memory));
    for (int i = 0; i < fl_model_n_layers(p->o->model); i++) {
        largest = memory[i].out_bytes > largest ? memory[i].out_bytes : largest;
    }
    p->message_bytes = between(largest * fl_split_work_max(job->train.batch, MICRO_BATCHES),
                               SMALLEST_MESSAGE, LARGEST_MESSAGE);
    int64_t most = fl_model_n_params(p->o->model);
    p->n_gradients = between(job->autodp.bucket_bytes / 4, SMALLEST_MESSAGE / 4, 1 << 26);
    p->n_gradients = most < p->n_gradients ? most : p->n_gradients;
    p->n_gradients = p->n_gradients < 1024 ? 1024 : p->n_gradients;
    return FL_OK;
}

static size_t gradient_bytes(const pair *p)
{
    return (size_t)p->n_gradients * sizeof(float);
}

static fl_status open_pair(pair *p)
{
    const int owners[2] = {0, 1};
    int me = p->o->index, peer = 1 - me;
    size_t size = (size_t)p->message_bytes;
    fl_group_options options = {.device = p->o->job->devices.kind,
                                .generation = 0,
                                .index = me,
                                .size = 2,
                                .kv = p->o->kv,
                                .open_timeout_ms = p->o->timeout_ms,
                                .wait_timeout_ms = p->o->timeout_ms};
    FL_TRY(fl_group_open(&options, &p->group));
    FL_TRY(
        fl_channel_open(p->group, true, peer, me == 0 ? PING_ID : PONG_ID, size, DEPTH, &p->out));
    FL_TRY(
        fl_channel_open(p->group, false, peer, me == 0 ? PONG_ID : PING_ID, size, DEPTH, &p->in));
    FL_TRY(fl_alloc(size, (void **)&p->payload));
    FL_TRY(fl_device_share(p->o->device, gradient_bytes(p), (void **)&p->gradients, &p->shared));
    FL_TRY(
        fl_bucket_create(p->group, BUCKET_ID, owners, 2, p->gradients, p->n_gradients, &p->bucket));
    if (p->shared != NULL) {
        fl_bucket_share(p->bucket, p->shared, 0);
    }
    return FL_OK;
}

static void close_pair(pair *p)
{
    fl_bucket_destroy(&p->bucket);
    fl_channel_close(&p->in);
    fl_channel_close(&p->out);
    fl_group_close(&p->group);
    fl_free(p->payload);
    fl_device_unshare(p->o->device, p->gradients, gradient_bytes(p), &p->shared);
}

static fl_status put(pair *p, size_t size, int64_t deadline_us)
{
    FL_TRY(fl_channel_reuse(p->out, p->n, deadline_us));
    memcpy(fl_channel_buffer(p->out, p->n), p->payload, size);
    return fl_channel_send(p->out, p->n, size);
}

static fl_status take(pair *p, size_t size, int64_t deadline_us)
{
    FL_TRY(fl_channel_wait(p->in, p->n, deadline_us));
    memcpy(p->payload, fl_channel_buffer(p->in, p->n), size);
    fl_channel_release(p->in, p->n);
    return FL_OK;
}

/* There and back: half of it is one message. */
static fl_status ping_pong(pair *p, size_t size, double *us)
{
    int64_t deadline_us = fl_deadline_us(p->o->timeout_ms);
    double begun = fl_probe_now_us();
    FL_TRY(fl_channel_post(p->in, p->n, size));
    if (p->o->index == 0) {
        FL_TRY(put(p, size, deadline_us));
        FL_TRY(take(p, size, deadline_us));
    } else {
        FL_TRY(take(p, size, deadline_us));
        FL_TRY(put(p, size, deadline_us));
    }
    p->n++;
    *us = 0.5 * (fl_probe_now_us() - begun);
    return FL_OK;
}

static fl_status time_messages(pair *p, int64_t size_bytes, int n, double *us)
{
    double took[SHORT_MESSAGES];
    double warm_up;
    FL_TRY(ping_pong(p, (size_t)size_bytes, &warm_up));
    for (int i = 0; i < n; i++) {
        FL_TRY(ping_pong(p, (size_t)size_bytes, &took[i]));
    }
    *us = fl_quantile_lower(took, n);
    return FL_OK;
}

static fl_status reduce_once(pair *p, double *us)
{
    double begun = fl_probe_now_us();
    FL_TRY(fl_bucket_start(p->bucket));
    FL_TRY(fl_bucket_wait(p->bucket, fl_deadline_us(p->o->timeout_ms)));
    *us = fl_probe_now_us() - begun;
    return FL_OK;
}

/* cpu_share: of the time, how much the processors of this process worked, whichever thread it was:
 * that much is lost to layers that compute meanwhile. */
static fl_status time_reduce(pair *p, double *us, double *cpu_share)
{
    double took[REDUCES], share[REDUCES], warm_up;
    FL_TRY(reduce_once(p, &warm_up));
    for (int i = 0; i < REDUCES; i++) {
        double begun = fl_probe_cpu_us();
        FL_TRY(reduce_once(p, &took[i]));
        share[i] = took[i] > 0.0 ? (fl_probe_cpu_us() - begun) / took[i] : 0.0;
    }
    *us = fl_quantile_lower(took, REDUCES);
    *cpu_share = fl_quantile_median(share, REDUCES);
    return FL_OK;
}

/* Bytes for the time that goes beyond the latency; both ends of it are measured. */
static double rate(int64_t size_bytes, double us, double latency_us)
{
    double moving = us > 2.0 * latency_us ? us - latency_us : 0.5 * us;
    return moving > 0.0 ? (double)size_bytes / moving : (double)size_bytes;
}

static fl_status measure(pair *p, fl_profile *out)
{
    const int64_t tiny = 8;
    double short_us, long_us, reduce_us;
    FL_TRY(choose_sizes(p));
    FL_TRY(open_pair(p));
    FL_TRY(time_messages(p, tiny, SHORT_MESSAGES, &short_us));
    FL_TRY(time_messages(p, p->message_bytes, LONG_MESSAGES, &long_us));
    FL_TRY(time_reduce(p, &reduce_us, &out->reduce_cpu_share));
    out->link_us = short_us;
    out->link_bytes_per_us = rate(p->message_bytes, long_us, short_us);
    /* A ring of two passes two messages one after the other. */
    out->reduce_bytes_per_us = rate(p->n_gradients * 4, reduce_us, 2.0 * short_us);
    return FL_OK;
}

fl_status fl_probe_link(const fl_probe_options *options, fl_probe *probe)
{
    pair p = {.o = options};
    if (options->n_children < 2 || options->index > 1) {
        return FL_OK;
    }
    probe->phase = FL_PROBE_LINK;
    fl_status status = measure(&p, &probe->profile);
    close_pair(&p);
    return status;
}
