/* Inside the profile: what one measuring child does, and what it shares with its parent. */
#ifndef FL_PIPE_MEASURE_PROBE_H
#define FL_PIPE_MEASURE_PROBE_H

#include "autodp/nccl/trial.h"
#include "autodp/net/net.h"
#include "device/device.h"

#include <frostline/plan.h>

typedef enum fl_probe_phase {
    FL_PROBE_START = 0,
    FL_PROBE_LAYER = 1,
    FL_PROBE_LOSS = 2,
    FL_PROBE_OPTIMIZER = 3,
    FL_PROBE_LINK = 4,
    FL_PROBE_PEAK = 5,
    FL_PROBE_READ = 6,
    FL_PROBE_NCCL = 7, /* the last one */
} fl_probe_phase;

enum { FL_PROBE_MESSAGE_MAX = 1024 };

/* What the link between two workers costs, as in fl_profile. */
typedef struct fl_probe_link_costs {
    double us, bytes_per_us, reduce_bytes_per_us, reduce_cpu_share;
    bool measured;
} fl_probe_link_costs;

/* A child's answer, in memory that outlives it: after a crash it still shows what was being
 * measured. */
typedef struct fl_probe {
    fl_probe_phase phase;
    int layer;     /* in FL_PROBE_LAYER */
    int n_calls;   /* of layers and the loss, and messages and sums over the link, begun so far: the
                      parent watches it grow */
    bool done;     /* the last thing it sets */
    fl_status why; /* with done: how it ended */
    char message[FL_PROBE_MESSAGE_MAX];
    fl_profile profile;
    fl_probe_link_costs link, nccl;    /* through host memory; over NCCL */
    fl_probe_link_costs far, far_nccl; /* the same of two devices of different islands */
} fl_probe;

typedef struct fl_probe_options {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    fl_device *device;
    fl_stream *stream; /* of all its work */
    int index, n_children;
    int near[2], far[2]; /* children that measure a link: of one island, of two; -1: none does */
    int n_workers;       /* that would share the batch */
    const fl_kv *kv;
    const fl_nccl_trial *nccl;
    int64_t timeout_ms, nccl_timeout_ms;
} fl_probe_options;

/* Time every kind of layer, the loss and the optimizer. Fills probe->profile but for the link. */
fl_status fl_probe_layers(const fl_probe_options *options, fl_probe *probe) FL_MUST_CHECK;

/* The rate of the fastest of some large products: probe->profile.peak_flops_per_us. */
fl_status fl_probe_peak(const fl_probe_options *options, fl_probe *probe) FL_MUST_CHECK;

/* Time reads of the model's largest activation from a cache in memory: probe->profile.read. After
 * the layers. */
fl_status fl_probe_read(const fl_probe_options *options, fl_probe *probe) FL_MUST_CHECK;

/* Time messages and an all-reduce between children 0 and 1, through host memory: probe->link.
 * Others return at once. */
fl_status fl_probe_link(const fl_probe_options *options, fl_probe *probe) FL_MUST_CHECK;

/* The same over NCCL: probe->nccl, if the two devices can use it with each other. Whatever goes
 * wrong here leaves the rest of the answer valid; the child then ends at once. */
fl_status fl_probe_nccl(const fl_probe_options *options, fl_probe *probe) FL_MUST_CHECK;

/* Monotonic, microseconds, with what lies below them. */
double fl_probe_now_us(void);

/* Processor time of all threads of this process, microseconds. */
double fl_probe_cpu_us(void);

/* A rendezvous store in shared memory, for the children of one profile. Keys are polled for. */
enum { FL_PROBE_KEYS = 64, FL_PROBE_KEY_MAX = 128, FL_PROBE_VALUE_MAX = 8192 };

typedef struct fl_probe_store {
    struct {
        int state; /* 0 free, 1 being written, 2 there */
        size_t size_bytes;
        char key[FL_PROBE_KEY_MAX];
        unsigned char value[FL_PROBE_VALUE_MAX];
    } entry[FL_PROBE_KEYS];
} fl_probe_store;

fl_kv fl_probe_store_kv(fl_probe_store *store);

#endif
