/* Regression: a small network learns a function of two numbers from samples of it, on two
 * replicas. The data set has values as targets (targets_f32), the loss is the mean squared error,
 * and the run reports its metric, the mean absolute error.
 * Build it with: cc regression.c $(pkg-config --cflags --libs frostline) */
#include <frostline.h>

#include <math.h>
#include <stdio.h>

enum { N_INPUTS = 2, C = 32, BLOCKS = 2 };

/* ---- The data set: two numbers from 0 to 1, made from the sample's number at every read, and one
 * value for them. ---- */

static void inputs_of(fl_split split, int64_t id, float *in)
{
    uint32_t random = (uint32_t)(2 * id + split) * 2654435761U;
    for (int i = 0; i < N_INPUTS; i++) {
        random = random * 1664525U + 1013904223U;
        in[i] = (float)(random >> 8) / 16777216.0F;
    }
}

static int64_t set_count(const void *self, fl_split split)
{
    return split == FL_TRAIN ? 4096 : 1024;
}

static fl_status set_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    *input = (fl_shape){.tokens = 1, .width = N_INPUTS, .dtype = FL_F32};
    *n_targets = 1;
    return FL_OK;
}

static fl_status set_shape(const void *self, fl_split s, int64_t id, fl_shape *in, int64_t *n)
{
    return set_max_shape(self, in, n); /* all samples have one shape */
}

static fl_status set_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    inputs_of(split, key->id, input);
    return FL_OK;
}

static fl_status set_targets(const void *self, fl_split split, int64_t id, float *targets)
{
    float in[N_INPUTS];
    inputs_of(split, id, in);
    *targets = sinf(4.0F * in[0]) * cosf(4.0F * in[1]);
    return FL_OK;
}

static uint64_t set_fingerprint(const void *self)
{
    return 1; /* another number when the samples change */
}

static const fl_dataset_ops set = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                   .kind = "waves",
                                   .count = set_count,
                                   .shape = set_shape,
                                   .max_shape = set_max_shape,
                                   .read = set_read,
                                   .targets_f32 = set_targets,
                                   .fingerprint = set_fingerprint};

/* ---- The model, the job, the run. ---- */

static fl_status make_model(fl_model **model)
{
    const fl_mlp_config hidden = {
        .dim = C, .hidden = 4 * C, .depth = BLOCKS, .activation = FL_ACT_GELU_TANH};
    fl_layer layer;
    FL_TRY(fl_model_create("regression", model));
    FL_TRY(fl_layer_linear(N_INPUTS, C, &layer));
    FL_TRY(fl_model_add_named(*model, 1, "embed", layer));
    for (int block = 1; block <= BLOCKS; block++) {
        char name[FL_LAYER_NAME_MAX];
        snprintf(name, sizeof name, "blocks.%d", block);
        FL_TRY(fl_layer_mlp(&hidden, &layer));
        FL_TRY(fl_model_add_named(*model, block, name, layer));
    }
    FL_TRY(fl_layer_linear(C, 1, &layer));
    FL_TRY(fl_model_add_named(*model, FL_BLOCK_HEAD, "head", layer));
    return fl_model_set_loss(*model, fl_loss_mse());
}

static fl_status train(fl_model **model)
{
    fl_job job;
    fl_run_result result;
    FL_TRY(make_model(model));
    fl_job_defaults(&job);
    FL_TRY(fl_job_set(&job, "devices.count", "2"));
    FL_TRY(fl_job_set(&job, "pipe.k", "1"));
    FL_TRY(fl_job_set(&job, "autodp.r", "2"));
    FL_TRY(fl_job_set(&job, "train.epochs", "20"));
    FL_TRY(fl_run(*model, &(fl_dataset){&set, NULL}, &job, &result));
    for (int i = 0; i < result.n_metrics; i++) {
        const fl_metric_result *metric = &result.metrics[i];
        printf("test %s %.4f with %d replicas\n", metric->name, metric->test, result.R);
    }
    return FL_OK;
}

int main(void)
{
    fl_model *model = NULL;
    fl_status status = train(&model);
    if (status != FL_OK) {
        fprintf(stderr, "regression: %s\n", fl_errmsg());
    }
    fl_model_destroy(&model);
    return status == FL_OK ? 0 : 1;
}
