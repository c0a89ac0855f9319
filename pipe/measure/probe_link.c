/* Messages and an all-reduce between two children, over the very channels and buckets that a run
 * uses: a message is written into its place and received into other memory, as in a pipeline. Each
 * transport that the run may use is measured by itself, in a generation of its own. */
#include "autodp/group/group.h"
#include "autodp/nccl/nccl.h"
#include "autodp/split_work.h"
#include "device/system/clock.h"
#include "pipe/cost/memory/memory.h"
#include "pipe/measure/probe.h"
#include "pipe/measure/quantile.h"

enum { PING_ID = 1, PONG_ID = 2, BUCKET_ID = 3, DEPTH = 2 };
enum { HOST_GENERATION = 0, NCCL_GENERATION = 1, FAR_GENERATIONS = 2 };
enum { SHORT_MESSAGES = 200, LONG_MESSAGES = 12, REDUCES = 8 };

static const int64_t SMALLEST_MESSAGE = 64 << 10, LARGEST_MESSAGE = 4 << 20;

typedef struct pair {
    const fl_probe_options *o;
    fl_probe *probe;
    int me; /* of the two */
    bool over_nccl;
    uint32_t generation;
    int64_t timeout_ms;
    fl_group *group;
    fl_channel *out, *in;
    fl_bucket *bucket;
    void *payload; /* device memory */
    float *gradients;
    fl_shared *shared; /* where they lie; NULL: in memory of this process alone */
    int64_t message_bytes, n_gradients;
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
    fl_sample_shape sample;
    int64_t largest = 0;
    fl_layer_memory memory[FL_MAX_LAYERS];
    FL_TRY(fl_sample_shape_max(p->o->dataset, &sample));
    FL_TRY(fl_memory_measure(p->o->model, &sample, 1, memory));
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

static fl_status open_group(pair *p)
{
    fl_group_options options = {.device = p->o->device,
                                .generation = p->generation,
                                .index = p->me,
                                .size = 2,
                                .kv = p->o->kv,
                                .open_timeout_ms = p->timeout_ms,
                                .wait_timeout_ms = p->timeout_ms};
    if (p->over_nccl) {
        fl_nccl_choose(p->o->job, p->o->nccl, &options);
        options.every_pair = false; /* the plan may keep these two apart */
    }
    return fl_group_open(&options, &p->group);
}

static fl_status open_pair(pair *p)
{
    const int owners[2] = {0, 1};
    int me = p->me, peer = 1 - me;
    size_t size = (size_t)p->message_bytes;
    FL_TRY(
        fl_channel_open(p->group, true, peer, me == 0 ? PING_ID : PONG_ID, size, DEPTH, &p->out));
    FL_TRY(
        fl_channel_open(p->group, false, peer, me == 0 ? PONG_ID : PING_ID, size, DEPTH, &p->in));
    FL_TRY(fl_device_reserve(p->o->device, size, &p->payload));
    FL_TRY(fl_device_share(p->o->device, gradient_bytes(p), (void **)&p->gradients, &p->shared));
    const fl_bucket_options bucket = {.id = BUCKET_ID,
                                      .owners = owners,
                                      .n_owners = 2,
                                      .data = p->gradients,
                                      .dtype = FL_F32,
                                      .n = p->n_gradients,
                                      .shared = p->shared};
    FL_TRY(fl_bucket_create(p->group, &bucket, &p->bucket));
    return fl_group_connect(p->group, fl_deadline_us(p->timeout_ms));
}

static void close_pair(pair *p)
{
    fl_bucket_destroy(&p->bucket);
    fl_channel_close(&p->in);
    fl_channel_close(&p->out);
    fl_group_close(&p->group);
    fl_device_drop(p->o->device, p->payload, (size_t)p->message_bytes);
    fl_device_unshare(p->o->device, p->gradients, gradient_bytes(p), &p->shared);
}

/* Nothing writes the message: the layer that would do so is part of its own time. */
static fl_status send_payload(pair *p, size_t size, int64_t deadline_us)
{
    void *place = fl_channel_place(p->out);
    return fl_channel_send_from(p->out, place != NULL ? place : p->payload, size, p->o->stream,
                                deadline_us);
}

static fl_status receive_payload(pair *p, size_t size, int64_t deadline_us)
{
    fl_device *d = p->o->device;
    FL_TRY(fl_channel_receive_to(p->in, p->payload, size, p->o->stream, deadline_us));
    return d->ops->sync(d, p->o->stream);
}

/* For the parent: on a busy machine, the link is slow and yet not filtered. */
static void count(pair *p)
{
    __atomic_fetch_add(&p->probe->n_calls, 1, __ATOMIC_RELAXED);
}

/* There and back: half of it is one message. */
static fl_status ping_pong(pair *p, size_t size, double *us)
{
    int64_t deadline_us = fl_deadline_us(p->timeout_ms);
    count(p);
    double begun = fl_probe_now_us();
    FL_TRY(fl_channel_post(p->in, size));
    if (p->me == 0) {
        FL_TRY(send_payload(p, size, deadline_us));
        FL_TRY(receive_payload(p, size, deadline_us));
    } else {
        FL_TRY(receive_payload(p, size, deadline_us));
        FL_TRY(send_payload(p, size, deadline_us));
    }
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
    count(p);
    double begun = fl_probe_now_us();
    FL_TRY(fl_bucket_start(p->bucket, FL_ALL_REDUCE, p->o->stream));
    FL_TRY(fl_bucket_wait(p->bucket, p->o->stream, fl_deadline_us(p->timeout_ms)));
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

static fl_status measure(pair *p, fl_probe_link_costs *out)
{
    const int64_t tiny = 8;
    double short_us, long_us, reduce_us;
    FL_TRY(open_pair(p));
    FL_TRY(time_messages(p, tiny, SHORT_MESSAGES, &short_us));
    FL_TRY(time_messages(p, p->message_bytes, LONG_MESSAGES, &long_us));
    FL_TRY(time_reduce(p, &reduce_us, &out->reduce_cpu_share));
    out->us = short_us;
    out->bytes_per_us = rate(p->message_bytes, long_us, short_us);
    /* A ring of two passes two messages one after the other. */
    out->reduce_bytes_per_us = rate(p->n_gradients * 4, reduce_us, 2.0 * short_us);
    out->measured = true;
    return FL_OK;
}

/* Nothing where the two cannot use the transport with each other: that is no failure. */
static fl_status measure_over(pair *p, fl_probe_link_costs *out)
{
    FL_TRY(choose_sizes(p));
    FL_TRY(open_group(p));
    bool possible = !p->over_nccl || fl_group_comm_get(p->group)->n_device_pairs == 1;
    return possible ? measure(p, out) : FL_OK;
}

/* Whether this child is one of the two; *p then is what they have in common. */
static bool is_of_pair(const fl_probe_options *o, const int children[2], bool over_nccl,
                       fl_probe *probe, pair *p)
{
    bool far = children == o->far;
    if (o->n_children < 2 || (o->index != children[0] && o->index != children[1])) {
        return false;
    }
    *p = (pair){.o = o,
                .probe = probe,
                .me = o->index == children[1],
                .over_nccl = over_nccl,
                .generation = (uint32_t)((over_nccl ? NCCL_GENERATION : HOST_GENERATION) +
                                         (far ? FAR_GENERATIONS : 0)),
                .timeout_ms = over_nccl ? o->nccl_timeout_ms : o->timeout_ms};
    return true;
}

static fl_status measure_host(const fl_probe_options *o, const int children[2], fl_probe *probe,
                              fl_probe_link_costs *out)
{
    pair p;
    if (!is_of_pair(o, children, false, probe, &p)) {
        return FL_OK;
    }
    probe->phase = FL_PROBE_LINK;
    fl_status status = measure_over(&p, out);
    close_pair(&p);
    return status;
}

fl_status fl_probe_link(const fl_probe_options *options, fl_probe *probe)
{
    FL_TRY(measure_host(options, options->near, probe, &probe->link));
    return measure_host(options, options->far, probe, &probe->far);
}

static fl_status measure_nccl(const fl_probe_options *o, const int children[2], fl_probe *probe,
                              fl_probe_link_costs *out)
{
    pair p;
    if (!is_of_pair(o, children, true, probe, &p)) {
        return FL_OK;
    }
    __atomic_store_n(&probe->phase, FL_PROBE_NCCL, __ATOMIC_RELEASE);
    fl_status status = measure_over(&p, out);
    if (status == FL_OK) { /* else the device may still use the memory; the process ends now */
        close_pair(&p);
    }
    return status;
}

fl_status fl_probe_nccl(const fl_probe_options *options, fl_probe *probe)
{
    FL_TRY(measure_nccl(options, options->near, probe, &probe->nccl));
    return measure_nccl(options, options->far, probe, &probe->far_nccl);
}
