#include "launcher/schema.h"

#include <frostline/plan.h>

#include <stddef.h>
#include <string.h>

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)

#define AT(member) offsetof(fl_job, member)
#define KEY(member) offsetof(fl_script_entry, member)
#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})

static const fl_section sections[] = {
    {"model", "What is trained."},
    {"data", "What it is trained on."},
    {"train", "How it is trained."},
    {"devices", "What the run may use: each device is one worker process."},
    {"freeze", "When lower blocks stop training; docs/freezing.md tells of each policy."},
    {"pipe", "How the model is cut into stages, and how a step runs through them."},
    {"autodp", "How pipelines are replicated."},
    {"elastic", "How the plan changes while the run goes on."},
    {"fault", "When a worker counts as lost."},
    {"run", "Where a run leaves its files."},
};

static const fl_field frozen_blocks = {
    .type = FL_FIELD_INTEGER, .is_int = true, .unit = "blocks", .least = 0, .most = FL_MAX_LAYERS};
static const fl_list freeze_list = {
    .capacity = FL_FREEZE_LIST_MAX, .item_bytes = sizeof(int), .key = &frozen_blocks};

static const fl_field script_keys[] = {
    {.path = "step",
     .type = FL_FIELD_INTEGER,
     .offset = KEY(step),
     .least = 1,
     .most = INT64_C(1000000000000),
     .doc = "About the step from which the entry holds."},
    {.path = "f",
     .type = FL_FIELD_INTEGER,
     .is_int = true,
     .offset = KEY(f),
     .unit = "blocks",
     .least = 0,
     .most = FL_MAX_LAYERS,
     .doc = "F: frozen blocks."},
    {.path = "k",
     .type = FL_FIELD_INTEGER,
     .is_int = true,
     .offset = KEY(k),
     .word = "auto",
     .unit = "stages",
     .least = 1,
     .most = FL_MAX_STAGES,
     .doc = "K: stages of a pipeline."},
    {.path = "r",
     .type = FL_FIELD_INTEGER,
     .is_int = true,
     .offset = KEY(r),
     .word = "auto",
     .unit = "replicas",
     .least = 1,
     .most = FL_MAX_WORKERS,
     .doc = "R: pipelines that share the global batch."},
    {.path = "m",
     .type = FL_FIELD_INTEGER,
     .is_int = true,
     .offset = KEY(m),
     .word = "auto",
     .unit = "micro-batches",
     .least = 1,
     .most = 4096,
     .doc = "M: micro-batches of a pipeline and step."},
};
static const fl_list script = {.capacity = FL_SCRIPT_MAX,
                               .item_bytes = sizeof(fl_script_entry),
                               .n_keys = sizeof script_keys / sizeof script_keys[0],
                               .key = script_keys,
                               .rises = true};

/* A list is its count, and the items right after it. */
_Static_assert(AT(freeze.list) == AT(freeze.n_list) + sizeof(int64_t), "no gap");
_Static_assert(AT(elastic.script) == AT(elastic.n_script) + sizeof(int64_t), "no gap");

/* Choices stand in the order of their enums in frostline/job.h and frostline/dataset.h. */
static const fl_field fields[] = {
    {.path = "name",
     .type = FL_FIELD_TEXT,
     .offset = AT(name),
     .initial = "job",
     .doc = "Names the run and its directory."},

    {.path = "model.kind",
     .type = FL_FIELD_CHOICE,
     .offset = AT(model.kind),
     .initial = "vit",
     .choices = CHOICES("vit", "plugin"),
     .doc = "A vision transformer, or a model from a shared object of your own."},
    {.path = "model.plugin",
     .type = FL_FIELD_PATH,
     .offset = AT(model.plugin),
     .initial = "none",
     .word = "none",
     .doc = "The shared object of kind plugin; it exports frostline_plugin."},
    {.path = "model.blocks",
     .type = FL_FIELD_INTEGER,
     .offset = AT(model.blocks),
     .initial = "8",
     .least = 1,
     .most = (FL_MAX_LAYERS - 2) / 2,
     .doc = "Transformer blocks, each an attention layer and an MLP layer."},
    {.path = "model.dim",
     .type = FL_FIELD_INTEGER,
     .offset = AT(model.dim),
     .initial = "128",
     .least = 1,
     .most = 65536,
     .doc = "Width C of the activations."},
    {.path = "model.heads",
     .type = FL_FIELD_INTEGER,
     .offset = AT(model.heads),
     .initial = "4",
     .least = 1,
     .most = 1024,
     .doc = "Attention heads; they divide model.dim."},
    {.path = "model.patch",
     .type = FL_FIELD_INTEGER,
     .offset = AT(model.patch),
     .initial = "7",
     .unit = "pixels",
     .least = 1,
     .most = 4096,
     .doc = "Edge of an image patch; it divides the image's height and width."},
    {.path = "model.dropout",
     .type = FL_FIELD_NUMBER,
     .offset = AT(model.dropout),
     .initial = "0.0",
     .low = 0.0,
     .high = 1.0,
     .below_high = true,
     .doc = "Share of a sublayer's outputs that is dropped in training."},

    {.path = "data.kind",
     .type = FL_FIELD_CHOICE,
     .offset = AT(data.kind),
     .initial = "idx",
     .choices = CHOICES("idx"),
     .doc = "Images and labels in the idx format of MNIST, plain or gzip."},
    {.path = "data.path",
     .type = FL_FIELD_PATH,
     .offset = AT(data.path),
     .initial = "/usr/share/datasets/fashion-mnist",
     .doc = "The folder with the four idx files."},
    {.path = "data.augment",
     .type = FL_FIELD_CHOICE,
     .offset = AT(data.augment),
     .initial = "none",
     .choices = CHOICES("none", "crop", "crop-flip"),
     .doc = "What is done to a training image, drawn by seed, epoch and sample."},
    {.path = "data.crop",
     .type = FL_FIELD_INTEGER,
     .offset = AT(data.crop),
     .initial = "2",
     .unit = "pixels",
     .least = 0,
     .most = 64,
     .doc = "Padding on each side within which a random crop moves."},
    {.path = "data.samples",
     .type = FL_FIELD_INTEGER,
     .offset = AT(data.samples),
     .initial = "all",
     .word = "all",
     .least = 1,
     .most = UINT32_MAX,
     .doc = "Use only the first training samples."},

    {.path = "train.epochs",
     .type = FL_FIELD_INTEGER,
     .offset = AT(train.epochs),
     .initial = "8",
     .least = 1,
     .most = 1000000,
     .doc = "Passes over the training samples."},
    {.path = "train.batch",
     .type = FL_FIELD_INTEGER,
     .offset = AT(train.batch),
     .initial = "128",
     .unit = "samples",
     .least = 1,
     .most = 1048576,
     .doc = "The global batch: what one step trains on, over all replicas."},
    {.path = "train.optimizer",
     .type = FL_FIELD_CHOICE,
     .offset = AT(train.optimizer),
     .initial = "adamw",
     .choices = CHOICES("adamw", "sgd"),
     .doc = "AdamW, or SGD with momentum."},
    {.path = "train.lr",
     .type = FL_FIELD_NUMBER,
     .offset = AT(train.lr),
     .initial = "1e-3",
     .low = 0.0,
     .high = 100.0,
     .above_low = true,
     .doc = "The learning rate after warm-up."},
    {.path = "train.weight_decay",
     .type = FL_FIELD_NUMBER,
     .offset = AT(train.weight_decay),
     .initial = "0.01",
     .low = 0.0,
     .high = 10.0,
     .doc = "Decoupled weight decay; biases and normalization have none."},
    {.path = "train.beta1",
     .type = FL_FIELD_NUMBER,
     .offset = AT(train.beta1),
     .initial = "0.9",
     .low = 0.0,
     .high = 1.0,
     .below_high = true,
     .doc = "AdamW: decay of the mean of gradients."},
    {.path = "train.beta2",
     .type = FL_FIELD_NUMBER,
     .offset = AT(train.beta2),
     .initial = "0.999",
     .low = 0.0,
     .high = 1.0,
     .below_high = true,
     .doc = "AdamW: decay of the mean of squared gradients."},
    {.path = "train.epsilon",
     .type = FL_FIELD_NUMBER,
     .offset = AT(train.epsilon),
     .initial = "1e-8",
     .low = 0.0,
     .high = 1.0,
     .above_low = true,
     .doc = "AdamW: added to the divisor."},
    {.path = "train.momentum",
     .type = FL_FIELD_NUMBER,
     .offset = AT(train.momentum),
     .initial = "0.9",
     .low = 0.0,
     .high = 1.0,
     .below_high = true,
     .doc = "SGD: share of the last update that is kept."},
    {.path = "train.warmup",
     .type = FL_FIELD_SPAN,
     .offset = AT(train.warmup),
     .initial = "5%",
     .least = 0,
     .most = INT64_C(1000000000000),
     .doc = "The learning rate grows linearly over this much of the run."},
    {.path = "train.decay",
     .type = FL_FIELD_CHOICE,
     .offset = AT(train.decay),
     .initial = "linear",
     .choices = CHOICES("constant", "linear", "cosine"),
     .doc = "How the learning rate goes from warm-up to the end."},
    {.path = "train.clip",
     .type = FL_FIELD_NUMBER,
     .offset = AT(train.clip),
     .initial = "1.0",
     .word = "none",
     .low = 0.0,
     .high = 1e9,
     .above_low = true,
     .doc = "The largest global gradient norm; longer gradients are scaled down to it."},
    {.path = "train.seed",
     .type = FL_FIELD_INTEGER,
     .offset = AT(train.seed),
     .initial = "0",
     .least = 0,
     .most = INT64_MAX,
     .doc = "Everything random is drawn from it: weights, order, dropout, augmentation."},
    {.path = "train.max_steps",
     .type = FL_FIELD_INTEGER,
     .offset = AT(train.max_steps),
     .initial = "none",
     .word = "none",
     .unit = "steps",
     .least = 1,
     .most = INT64_C(1000000000000),
     .doc = "End after this many steps, if that is before the last epoch."},
    {.path = "train.evaluate",
     .type = FL_FIELD_BOOLEAN,
     .offset = AT(train.evaluate),
     .initial = "true",
     .doc = "Evaluate on the test samples after each epoch."},

    {.path = "devices.kind",
     .type = FL_FIELD_CHOICE,
     .offset = AT(devices.kind),
     .initial = "cpu",
     .choices = CHOICES("cpu"),
     .doc = "A cpu device is a set of cores with a memory budget."},
    {.path = "devices.count",
     .type = FL_FIELD_INTEGER,
     .offset = AT(devices.count),
     .initial = "auto",
     .word = "auto",
     .least = 1,
     .most = FL_MAX_WORKERS,
     .doc = "Devices, and so workers; auto takes as many as the processors allow."},
    {.path = "devices.cores",
     .type = FL_FIELD_INTEGER,
     .offset = AT(devices.cores),
     .initial = "1",
     .least = 1,
     .most = 1024,
     .doc = "Cores of one device."},
    {.path = "devices.memory",
     .type = FL_FIELD_SIZE,
     .offset = AT(devices.memory_bytes),
     .initial = "2GiB",
     .least = MIB,
     .most = 16 * TIB,
     .doc = "Memory budget of one device; a plan that does not fit is refused."},

    {.path = "freeze.policy",
     .type = FL_FIELD_CHOICE,
     .offset = AT(freeze.policy),
     .initial = "none",
     .choices = CHOICES("none", "gradnorm", "schedule", "stability"),
     .doc = "By the block with the smallest gradient, by plan, or by how gradients change."},
    {.path = "freeze.start",
     .type = FL_FIELD_PERIOD,
     .offset = AT(freeze.start),
     .initial = "2 epochs",
     .least = 0,
     .most = INT64_C(1000000000000),
     .low = 0.0,
     .high = 1e6,
     .doc = "The first decision is made after this much of the run."},
    {.path = "freeze.every",
     .type = FL_FIELD_PERIOD,
     .offset = AT(freeze.every),
     .initial = "1 epoch",
     .least = 1,
     .most = INT64_C(1000000000000),
     .low = 0.0,
     .high = 1e6,
     .above_low = true,
     .doc = "An interval: from one decision to the next."},
    {.path = "freeze.alpha",
     .type = FL_FIELD_NUMBER,
     .offset = AT(freeze.alpha),
     .initial = "1/3",
     .low = 0.0,
     .high = 1.0,
     .above_low = true,
     .below_high = true,
     .is_ratio = true,
     .doc = "gradnorm: at most this share of the active blocks freezes at once; schedule: "
            "this share does."},
    {.path = "freeze.percentile",
     .type = FL_FIELD_NUMBER,
     .offset = AT(freeze.percentile),
     .initial = "50",
     .low = 0.0,
     .high = 100.0,
     .above_low = true,
     .doc = "stability: a block is stable if its change is below this percentile of all."},
    {.path = "freeze.keep",
     .type = FL_FIELD_INTEGER,
     .offset = AT(freeze.keep),
     .initial = "2",
     .unit = "blocks",
     .least = 1,
     .most = FL_MAX_LAYERS,
     .doc = "A policy leaves at least this many blocks active."},
    {.path = "freeze.list",
     .type = FL_FIELD_LIST,
     .offset = AT(freeze.n_list),
     .initial = "none",
     .word = "none",
     .list = &freeze_list,
     .doc = "schedule: F of each interval from freeze.start on, instead of the closed form."},

    {.path = "pipe.k",
     .type = FL_FIELD_INTEGER,
     .offset = AT(pipe.k),
     .initial = "auto",
     .word = "auto",
     .unit = "stages",
     .least = 1,
     .most = FL_MAX_STAGES,
     .doc = "K: stages of a pipeline."},
    {.path = "pipe.m",
     .type = FL_FIELD_INTEGER,
     .offset = AT(pipe.m),
     .initial = "auto",
     .word = "auto",
     .unit = "micro-batches",
     .least = 1,
     .most = 4096,
     .doc = "M: micro-batches of a pipeline and step."},
    {.path = "pipe.schedule",
     .type = FL_FIELD_CHOICE,
     .offset = AT(pipe.schedule),
     .initial = "1f1b",
     .choices = CHOICES("gpipe", "1f1b"),
     .doc = "The order of forward and backward work; see frostline clock."},
    {.path = "pipe.partition",
     .type = FL_FIELD_CHOICE,
     .offset = AT(pipe.partition),
     .initial = "optimal",
     .choices = CHOICES("optimal", "greedy"),
     .doc = "The exact split by measured cost, or the paper's by parameter count."},

    {.path = "autodp.r",
     .type = FL_FIELD_INTEGER,
     .offset = AT(autodp.r),
     .initial = "auto",
     .word = "auto",
     .unit = "replicas",
     .least = 1,
     .most = FL_MAX_WORKERS,
     .doc = "R: pipelines that share the global batch."},
    {.path = "autodp.bucket",
     .type = FL_FIELD_SIZE,
     .offset = AT(autodp.bucket_bytes),
     .initial = "4MiB",
     .least = 4 * KIB,
     .most = GIB,
     .doc = "Gradients are all-reduced in buckets of about this size."},

    {.path = "elastic.enabled",
     .type = FL_FIELD_BOOLEAN,
     .offset = AT(elastic.enabled),
     .initial = "true",
     .doc = "Change K, R and M while the run goes on, where that pays."},
    {.path = "elastic.script",
     .type = FL_FIELD_LIST,
     .offset = AT(elastic.n_script),
     .initial = "none",
     .word = "none",
     .list = &script,
     .doc = "Change F, K, R and M at given steps; what an entry does not name stays."},

    {.path = "fault.detect",
     .type = FL_FIELD_DURATION,
     .offset = AT(fault.detect_ms),
     .initial = "5s",
     .least = 100,
     .most = HOUR,
     .doc = "A worker that is silent for this long is lost."},
    {.path = "fault.deadline",
     .type = FL_FIELD_DURATION,
     .offset = AT(fault.deadline_ms),
     .initial = "60s",
     .least = SECOND,
     .most = 24 * HOUR,
     .doc = "The longest that any wait between workers may last; at least fault.detect."},

    {.path = "run.dir",
     .type = FL_FIELD_PATH,
     .offset = AT(run.dir),
     .initial = "runs",
     .doc = "Where run directories are made, each named by job, date and time."},
};

enum {
    N_SECTIONS = sizeof sections / sizeof sections[0],
    N_FIELDS = sizeof fields / sizeof fields[0],
};
_Static_assert((int)N_FIELDS <= (int)FL_SCHEMA_MAX, "FL_SCHEMA_MAX bounds the table");

int fl_schema_n_fields(void)
{
    return N_FIELDS;
}

const fl_field *fl_schema_field(int index)
{
    return &fields[index];
}

int fl_schema_n_sections(void)
{
    return N_SECTIONS;
}

const fl_section *fl_schema_section(int index)
{
    return &sections[index];
}

int fl_schema_find(const char *path)
{
    for (int i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].path, path) == 0) {
            return i;
        }
    }
    return -1;
}

int fl_schema_find_section(const char *name)
{
    for (int i = 0; i < N_SECTIONS; i++) {
        if (strcmp(sections[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *fl_field_name(const fl_field *field)
{
    const char *point = strchr(field->path, '.');
    return point == NULL ? field->path : point + 1;
}

bool fl_field_is_in(const fl_field *field, const char *section)
{
    size_t length = strlen(section);
    if (length == 0) {
        return strchr(field->path, '.') == NULL;
    }
    return strncmp(field->path, section, length) == 0 && field->path[length] == '.';
}
