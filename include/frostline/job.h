/* A job: what one YAML file describes, resolved. A plain value, which fl_job_defaults fills. */
#ifndef FROSTLINE_JOB_H
#define FROSTLINE_JOB_H

#include <frostline/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* FL_JOB_AUTO in pipe.k, pipe.m, autodp.r, devices.count, devices.max and script entries: Frostline
 * chooses. */
enum { FL_TEXT_MAX = 256, FL_JOB_AUTO = 0 };

typedef enum fl_schedule { FL_GPIPE = 0, FL_1F1B = 1 } fl_schedule;
typedef enum fl_partition_kind {
    FL_PARTITION_OPTIMAL = 0,
    FL_PARTITION_GREEDY = 1
} fl_partition_kind;
typedef enum fl_optimizer_kind { FL_ADAMW = 0, FL_SGD = 1 } fl_optimizer_kind;
/* What a run computes in. FL_PRECISION_TF32: fp32, but products may round what they multiply to
 * TF32. FL_PRECISION_BF16: activations and messages are bf16, and so are the numbers that products
 * multiply; weights, gradients and the optimizer are fp32. */
typedef enum fl_precision {
    FL_PRECISION_FP32 = 0,
    FL_PRECISION_TF32 = 1,
    FL_PRECISION_BF16 = 2
} fl_precision;
typedef enum fl_decay { FL_DECAY_CONSTANT = 0, FL_DECAY_LINEAR = 1, FL_DECAY_COSINE = 2 } fl_decay;
/* What happens after a step whose loss or gradient norm is infinite or not a number. */
/* How workers exchange activations and gradients. FL_TRANSPORT_AUTO: over NCCL where a pair of
 * workers can use it, through host memory elsewhere. */
typedef enum fl_transport {
    FL_TRANSPORT_AUTO = 0,
    FL_TRANSPORT_HOST = 1,
    FL_TRANSPORT_NCCL = 2
} fl_transport;
/* How workers of different hosts exchange data. FL_SECURITY_NONE: in plain, by Gloo. */
typedef enum fl_security { FL_SECURITY_TLS = 0, FL_SECURITY_NONE = 1 } fl_security;
typedef enum fl_on_loss { FL_ON_LOSS_CONTINUE = 0, FL_ON_LOSS_STOP = 1 } fl_on_loss;
typedef enum fl_on_nonfinite { FL_ON_NONFINITE_STOP = 0, FL_ON_NONFINITE_SKIP = 1 } fl_on_nonfinite;
/* FL_MODEL_PROGRAM and FL_DATA_PROGRAM: what a program gave to fl_run. Frostline writes them into
 * the record of such a run; no job file can bring that model or data set back. */
typedef enum fl_model_kind {
    FL_MODEL_VIT = 0,
    FL_MODEL_PLUGIN = 1,
    FL_MODEL_HF = 2, /* a Hugging Face folder */
    FL_MODEL_GPT2 = 3,
    FL_MODEL_PROGRAM = 4
} fl_model_kind;
typedef enum fl_data_kind {
    FL_DATA_IDX = 0,
    FL_DATA_TABLE = 1,
    FL_DATA_TEXT = 2,
    FL_DATA_SQUAD = 3,
    FL_DATA_IMAGES = 4,
    FL_DATA_PROGRAM = 5
} fl_data_kind;
typedef enum fl_freeze_policy {
    FL_FREEZE_NONE = 0,
    FL_FREEZE_GRADNORM = 1,
    FL_FREEZE_SCHEDULE = 2,
    FL_FREEZE_STABILITY = 3
} fl_freeze_policy;

typedef enum fl_cache_policy {
    FL_CACHE_OFF = 0,
    FL_CACHE_ON = 1,
    FL_CACHE_AUTO = 2
} fl_cache_policy;
typedef enum fl_cache_dtype { FL_CACHE_FP32 = 0, FL_CACHE_BF16 = 1 } fl_cache_dtype;
typedef enum fl_cache_augment {
    FL_CACHE_AUGMENT_REFUSE = 0,
    FL_CACHE_AUGMENT_FREEZE = 1,
    FL_CACHE_AUGMENT_STOP = 2
} fl_cache_augment;

/* Either a share of the run (0 .. 1) or a number of steps. */
typedef struct fl_span {
    double fraction; /* used when steps < 0 */
    int64_t steps;   /* -1: use fraction */
} fl_span;

/* A number of steps, a share of the run, or a number of epochs, which may be a fraction. */
typedef struct fl_period {
    double epochs; /* used when steps < 0 and share is 0 */
    double share;  /* used when steps < 0 and it is above 0; at most 1 */
    int64_t steps; /* -1: see above */
} fl_period;

/* From one event to the next: one of these is above 0, or none is: the event never comes. */
typedef struct fl_interval {
    int64_t ms, steps, epochs;
} fl_interval;

/* One entry of a script: F, K, R and M from this step on. -1: unchanged; 0 (FL_JOB_AUTO) in k, r
 * and m: Frostline chooses. */
typedef struct fl_script_entry {
    int64_t step;
    int f, k, r, m;
} fl_script_entry;

enum {
    FL_SCRIPT_MAX = 256,
    FL_FREEZE_LIST_MAX = 256,
    FL_JOB_PORTS = 2, /* numbers of autodp.ports */
    FL_CLASSES_MAX = 256,
    FL_CACHE_STORES_MAX = 64,
    FL_JOB_HOSTS_MAX = 128,
    FL_JOB_HOST_TEXT = 64
};

/* One host of a run. */
typedef struct fl_job_host {
    char name[FL_JOB_HOST_TEXT];
    char address[FL_JOB_HOST_TEXT]; /* IPv4, or a name that resolves to it */
    int devices, sockets;           /* sockets -1: not given */
    int64_t memory_bytes;           /* of each device; 0: devices.memory */
    double speed;                   /* of each device, 2 is twice as fast; 0: not given */
    char profile[FL_TEXT_MAX];      /* a file with costs of layers there; "": not given */
} fl_job_host;

enum { FL_JOB_FIELDS_MAX = 112 };

/* From 1; line 0: nowhere. */
typedef struct fl_job_place_at {
    int line, column;
} fl_job_place_at;

/* Where each value of a job was written, so that a message about it names the place. */
typedef struct fl_job_origins {
    char file[FL_TEXT_MAX]; /* "": the job was not read from a file */
    struct {
        int line, column;    /* from 1; line 0: nowhere, the default; -1: an override;
                              * -2: fl_job_set */
    } of[FL_JOB_FIELDS_MAX]; /* by the field's place in the table of fields */
    fl_job_place_at host[FL_JOB_HOSTS_MAX]; /* of each entry of hosts, where a file has them */
    fl_job_place_at script[FL_SCRIPT_MAX];  /* the same of elastic.script */
} fl_job_origins;

/* model.dropout auto */
enum { FL_DROPOUT_AUTO = -1 };

typedef struct fl_job {
    char name[FL_TEXT_MAX];
    int64_t n_hosts;                     /* 0: this host only */
    fl_job_host hosts[FL_JOB_HOSTS_MAX]; /* [n_hosts], the head first */
    struct {
        fl_model_kind kind;
        char plugin[FL_TEXT_MAX]; /* path of a shared object; kind plugin only */
        char path[FL_TEXT_MAX];   /* of a folder; kind hf only */
        int64_t blocks, dim, heads, patch;
        double dropout;               /* FL_DROPOUT_AUTO: 0; of kind hf that of the folder */
        char init[FL_TEXT_MAX];       /* weights to start from; "": drawn */
        char init_allow[FL_TEXT_MAX]; /* the layers that they need not fit; "": none */
    } model;
    struct {
        fl_data_kind kind;
        char path[FL_TEXT_MAX];      /* kind idx: a folder; else the training file or folder */
        char test_path[FL_TEXT_MAX]; /* the test file or folder; "": none; not kind idx */
        char text[FL_TEXT_MAX];      /* kind table: columns, by name or number */
        char pair[FL_TEXT_MAX];      /* "": one text a sample */
        char label[FL_TEXT_MAX];
        int64_t max_tokens;          /* of a sample, special ones included */
        int64_t stride;              /* kind squad: tokens that two windows of a context share */
        char tokenizer[FL_TEXT_MAX]; /* a folder; "": that of the model */
        int64_t size;                /* kind images: pixels of a side; 0: those of the model */
        fl_augment augment;
        int64_t crop;    /* pixels of padding that a crop may use */
        int64_t samples; /* use the first n training samples; 0: all */
        /* of the used training samples: never trained on, evaluated on. `steps` counts samples */
        fl_span validation;
        int64_t n_classes;           /* 0: all classes */
        int classes[FL_CLASSES_MAX]; /* [n_classes] of the data; classes[i] becomes class i */
    } data;
    struct {
        int64_t epochs;
        int64_t batch;      /* samples that are in work at once, over all replicas */
        int64_t accumulate; /* batches of one step */
        fl_precision precision;
        fl_optimizer_kind optimizer;
        double lr;          /* of the head; of every layer with layer_decay 1 */
        double layer_decay; /* factor from a block to the one below it */
        double weight_decay, beta1, beta2, epsilon, momentum;
        fl_span warmup;
        fl_decay decay;
        double clip; /* largest global gradient norm; 0: no clipping */
        uint64_t seed;
        int64_t max_steps; /* 0: no limit */
        bool evaluate;     /* on the validation samples, or the test samples where there are none */
        fl_period evaluate_every; /* steps 0: only at the end of the run */
        int64_t evaluate_samples; /* of one evaluation before the end; 0: all */
        char metric[FL_TEXT_MAX]; /* "loss", or a metric of the loss; "": see stop_after */
        fl_period
            stop_after;     /* without improvement of the metric, or of the loss; all zero: never */
        double stop_margin; /* a better value is better by more than this */
        fl_on_nonfinite on_nonfinite;
        int64_t hash_weights; /* the interval in steps; 0: never */
    } train;
    struct {
        fl_device_kind kind;
        int64_t count; /* workers; 0: as many as the processors allow */
        int64_t max;   /* workers that the run may grow to; 0: count */
        int64_t cores; /* a device */
        int64_t memory_bytes;
    } devices;
    struct {
        fl_freeze_policy policy;
        fl_period start;   /* the first decision */
        fl_period every;   /* an interval: from one decision to the next */
        double alpha;      /* gradnorm, schedule: share of the active blocks that may freeze */
        double percentile; /* stability: of the active blocks' changes; less than it is stable */
        int64_t keep;      /* blocks that the policy leaves active */
        bool must_pay;     /* freeze only what is predicted to save time */
        int64_t n_list;    /* 0: the schedule is the closed form */
        int list[FL_FREEZE_LIST_MAX]; /* [n_list] F of each interval, the last one for the rest */
    } freeze;
    struct {
        fl_cache_policy policy;
        fl_cache_dtype dtype;
        int64_t memory_bytes, disk_bytes; /* a host; disk_bytes 0: no disk tier */
        /* tiers of each worker, on a device with memory of its own; 0: none */
        int64_t pinned_bytes, device_bytes;
        int64_t stores;           /* that divide them, and the workers, among them */
        char path[FL_TEXT_MAX];   /* the folder of the disk tier */
        fl_cache_augment augment; /* once blocks are frozen */
    } cache;
    struct {
        int64_t k, m;
        fl_schedule schedule;
        fl_partition_kind partition;
        bool tune;                 /* try other M on live steps where m is auto */
        char profile[FL_TEXT_MAX]; /* a file; "": the user's cache, "none": not kept */
    } pipe;
    struct {
        int64_t r;
        int64_t bucket_bytes;
        fl_transport transport;
        fl_security security;    /* between hosts */
        int64_t n_ports;         /* 0: any; else 2 */
        int ports[FL_JOB_PORTS]; /* [n_ports] the first and the last one at which hosts listen for
                                    each other */
    } autodp;
    struct {
        bool enabled; /* K, R and M may change while the run goes on */
        int64_t n_script;
        fl_script_entry script[FL_SCRIPT_MAX]; /* [n_script], steps ascending */
    } elastic;
    struct {
        int64_t detect_ms;    /* a silent worker is noticed within this */
        int64_t deadline_ms;  /* longest time of a layer, a read, a wait of all workers */
        fl_on_loss on_loss;   /* what follows the loss of a worker */
        fl_interval snapshot; /* of the state in memory; all 0: auto, ms -1: none */
        int64_t restarts;     /* how often a lost worker's process is started again */
    } fault;
    struct {
        fl_interval every;     /* none: not even at the end of the run */
        int64_t keep;          /* how many of the newest */
        char dir[FL_TEXT_MAX]; /* "": in the run directory */
    } checkpoint;
    struct {
        int64_t steps; /* to trace; 0: none */
        int64_t start; /* the first of them */
    } trace;
    struct {
        char listen[FL_TEXT_MAX];  /* "tcp://ADDRESS:PORT"; "": only the run directory */
        char key[FL_TEXT_MAX];     /* file of the run's secret key */
        char allow[FL_TEXT_MAX];   /* file of the public keys of clients */
        char metrics[FL_TEXT_MAX]; /* "ADDRESS:PORT"; "": no metrics */
    } control;
    struct {
        char dir[FL_TEXT_MAX]; /* where run directories are made */
        bool save_model;       /* the run leaves its trained weights */
        bool shared;           /* all hosts of the run have its directory, by the same path */
    } run;
    fl_job_origins origins; /* of the values above; a program leaves it alone */
} fl_job;

/* Every field at its default. Threads: any. */
void fl_job_defaults(fl_job *job);

/* Read and check a job file.
 * overrides  [n_overrides] "path=value", applied after the file and checked like it
 * Returns    FL_EINVAL with "file:line:column: field: what was found, what is allowed",
 *            FL_EIO if the file cannot be read. *job is unchanged on failure. */
fl_status fl_job_load(const char *path, const char *const *overrides, int n_overrides,
                      fl_job *job) FL_MUST_CHECK;

/* The same from memory; `name` stands for the file in messages. */
fl_status fl_job_parse(const char *name, const char *text, size_t size_bytes,
                       const char *const *overrides, int n_overrides, fl_job *job) FL_MUST_CHECK;

/* Set one field by its path: "pipe.k", "2". Returns FL_EINVAL with "field: what was found, what is
 * allowed"; *job is unchanged on failure. */
fl_status fl_job_set(fl_job *job, const char *path, const char *text) FL_MUST_CHECK;

/* The type of activations that a model of this job has: what its first layer is made with. */
static inline fl_dtype fl_job_dtype(const fl_job *job)
{
    return job->train.precision == FL_PRECISION_BF16 ? FL_BF16 : FL_F32;
}

/* How the job's cache stores activations: as they are, or fp32 as bf16. */
static inline fl_dtype fl_job_cache_dtype(const fl_job *job)
{
    return job->cache.dtype == FL_CACHE_BF16 ? FL_BF16 : fl_job_dtype(job);
}

#ifdef __cplusplus
}
#endif
#endif
