/* Regression and fine-tuning: a small network learns a function of two numbers from samples of it,
 * on two replicas. The data set has values as targets (targets_f32), the loss is the mean squared
 * error, and the run reports its metric, the mean absolute error. Then the program reads a trained
 * weight, and a network with another head starts from the weights and learns two functions.
 * Build it with: cc regression.c $(pkg-config --cflags --libs frostline) */
#include <frostline.h>

#include <math.h>
#include <stdio.h>

enum { N_INPUTS = 2, C = 32, BLOCKS = 2 };

/* ---- The data set: two numbers from 0 to 1, made from the sample's number at every read, and one
 * or two values for them. ---- */

typedef struct waves {
    int n_values;
} waves;

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
    *n_targets = ((const waves *)self)->n_values;
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
    targets[0] = sinf(4.0F * in[0]) * cosf(4.0F * in[1]);
    if (((const waves *)self)->n_values == 2) {
        targets[1] = cosf(4.0F * in[0]) * sinf(4.0F * in[1]);
    }
    return FL_OK;
}

static uint64_t set_fingerprint(const void *self)
{
    return (uint64_t)((const waves *)self)->n_values; /* another number when the samples change */
}

static const fl_dataset_ops set = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                   .kind = "waves",
                                   .count = set_count,
                                   .shape = set_shape,
                                   .max_shape = set_max_shape,
                                   .read = set_read,
                                   .targets_f32 = set_targets,
                                   .fingerprint = set_fingerprint};

/* ---- The model, the job, the runs. ---- */

static fl_status make_model(int n_values, fl_model **model)
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
    FL_TRY(fl_layer_linear(C, n_values, &layer));
    FL_TRY(fl_model_add_named(*model, FL_BLOCK_HEAD, "head", layer));
    return fl_model_set_loss(*model, fl_loss_mse());
}

/* Train on the waves. from: weights to start from, with a head of this model's own; NULL: none. */
static fl_status train(int n_values, const char *from, const char *epochs, fl_run_result *result)
{
    waves self = {n_values};
    fl_model *model = NULL;
    fl_job job;
    fl_job_defaults(&job);
    FL_TRY(fl_job_set(&job, "devices.count", "2"));
    FL_TRY(fl_job_set(&job, "pipe.k", "1"));
    FL_TRY(fl_job_set(&job, "autodp.r", "2"));
    FL_TRY(fl_job_set(&job, "train.epochs", epochs));
    if (from != NULL) {
        FL_TRY(fl_job_set(&job, "model.init", from));
        FL_TRY(fl_job_set(&job, "model.init_allow", "head"));
    }
    fl_status status = make_model(n_values, &model);
    if (status == FL_OK) {
        status = fl_run(model, &(fl_dataset){&set, &self}, &job, result);
    }
    fl_model_destroy(&model);
    return status;
}

/* A program may use the weights as soon as fl_run has returned. */
static fl_status print_norm(const char *run, const char *name)
{
    static float weight[C * N_INPUTS];
    fl_weights *weights = NULL;
    double sum = 0;
    FL_TRY(fl_weights_open(run, &weights));
    fl_status status = fl_weights_read(weights, name, weight, C * N_INPUTS);
    for (int i = 0; i < C * N_INPUTS; i++) {
        sum += (double)weight[i] * (double)weight[i];
    }
    if (status == FL_OK) {
        printf("%s has the norm %.3f after training\n", name, sqrt(sum));
    }
    fl_weights_close(&weights);
    return status;
}

static void print_metrics(const char *run, const fl_run_result *result)
{
    for (int i = 0; i < result->n_metrics; i++) {
        const fl_metric_result *metric = &result->metrics[i];
        printf("%s: test %s %.4f with %d replicas\n", run, metric->name, metric->test, result->R);
    }
}

static fl_status train_both(void)
{
    fl_run_result first, second;
    FL_TRY(train(1, NULL, "20", &first));
    FL_TRY(print_norm(first.run_dir, "embed.fc.weight"));
    FL_TRY(train(2, first.run_dir, "5", &second));
    print_metrics("one wave", &first);
    print_metrics("two waves, fine-tuned", &second);
    return FL_OK;
}

int main(void)
{
    fl_status status = train_both();
    if (status != FL_OK) {
        fprintf(stderr, "regression: %s\n", fl_errmsg());
    }
    return status == FL_OK ? 0 : 1;
}
