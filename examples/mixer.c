/* A layer, a model and a data set of one's own, trained over two pipeline stages: an MLP-Mixer
 * (arXiv 2105.01601) tells four kinds of stripes apart. Nothing here knows of any distribution.
 * Build it with: cc mixer.c $(pkg-config --cflags --libs frostline) */
#include <frostline.h>

#include <stdio.h>

enum { T = 16, WIDTH = 16, C = 32, CLASSES = 4, BLOCKS = 3 }; /* T tokens: the rows of an image */

/* ---- The layer: y = x + turn(gelu(W turn(x) + b)), where turn(x) has each sample's [T, C] as
 * [C, T]: so it mixes tokens. The skip connection is inside, as a pipeline may be cut between any
 * two layers. All work is done by kernels of `x`, on whatever device holds the stage. ---- */

enum { WEIGHT, BIAS }; /* parameters, in the order of mix_params */
enum { TURNED, PRE };  /* what forward keeps for the backward of the same micro-batch */

static fl_status mix_shape(void *self, const fl_shape *in, fl_shape *out)
{
    *out = *in;
    return in->tokens == T ? FL_OK : fl_fail(FL_EINVAL, "token mixing takes %d tokens", T);
}

static fl_status mix_params(void *self, fl_param_list *list)
{
    FL_TRY(fl_param_list_add(list, "weight", T, T, FL_INIT_NORMAL, 0.25F, true));
    return fl_param_list_add(list, "bias", T, 1, FL_INIT_ZEROS, 0, false);
}

/* n samples are [n * T, C]. To turn them, they are cut as images of T channels into patches of one
 * pixel. */
static fl_status turn(fl_exec *x, int64_t n, int64_t rows, int64_t cols, void *in, void *out)
{
    return fl_patchify(x, &(fl_patchify_args){.images = in,
                                              .patches = out,
                                              .n = n,
                                              .channels = rows,
                                              .height = 1,
                                              .width = cols,
                                              .patch = 1});
}

static fl_status add(fl_exec *x, void *a, void *b, void *sum, int64_t n)
{
    return fl_add(x, &(fl_add_args){.a = a, .b = b, .y = sum, .n = n * T * C});
}

/* What is kept lives until backward, scratch memory until this call returns. */
static fl_status mix_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const int64_t n = in->n_samples;
    const size_t size_bytes = (size_t)(n * T * C) * sizeof(float);
    void *turned, *pre, *y;
    FL_TRY(fl_exec_keep(x, TURNED, size_bytes, &turned));
    FL_TRY(fl_exec_keep(x, PRE, size_bytes, &pre));
    FL_TRY(fl_exec_scratch(x, size_bytes, &y));
    FL_TRY(turn(x, n, T, C, in->data, turned));
    FL_TRY(fl_linear(x, &(fl_linear_args){.in = turned,
                                          .w = fl_exec_weight(x, WEIGHT),
                                          .bias = fl_exec_weight(x, BIAS),
                                          .activation = FL_ACT_GELU_TANH,
                                          .pre = pre,
                                          .y = y,
                                          .m = n * C}));
    FL_TRY(turn(x, n, C, T, y, out->data));
    return add(x, in->data, out->data, out->data, n);
}

/* The same way back. Gradients of parameters are added to, so that micro-batches sum up. */
static fl_status mix_backward(void *self, fl_exec *x, const fl_tensor *grad_y, fl_tensor *grad_x)
{
    const int64_t n = grad_y->n_samples;
    void *a, *b;
    FL_TRY(fl_exec_scratch(x, (size_t)(n * T * C) * sizeof(float), &a));
    FL_TRY(fl_exec_scratch(x, (size_t)(n * T * C) * sizeof(float), &b));
    FL_TRY(turn(x, n, T, C, grad_y->data, a));
    FL_TRY(fl_activate_backward(x, &(fl_activate_backward_args){.activation = FL_ACT_GELU_TANH,
                                                                .grad_y = a,
                                                                .pre = fl_exec_kept(x, PRE),
                                                                .grad_pre = a,
                                                                .n = n * T * C}));
    FL_TRY(fl_linear_backward_weights(
        x, &(fl_linear_backward_weights_args){.grad_out = a,
                                              .in = fl_exec_kept(x, TURNED),
                                              .grad_w = fl_exec_grad(x, WEIGHT),
                                              .grad_bias = fl_exec_grad(x, BIAS),
                                              .m = n * C,
                                              .n_out = T,
                                              .n_in = T}));
    FL_TRY(fl_linear_backward_input(
        x, &(fl_linear_backward_input_args){
               .grad_out = a, .w = fl_exec_weight(x, WEIGHT), .grad_in = b, .m = n * C}));
    FL_TRY(turn(x, n, C, T, b, a));
    return grad_x ? add(x, grad_y->data, a, grad_x->data, n) : FL_OK;
}

static const fl_layer_ops mix = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                 .kind = "mix",
                                 .shape = mix_shape,
                                 .params = mix_params,
                                 .forward = mix_forward,
                                 .backward = mix_backward};

/* ---- The data set: horizontal, vertical and both diagonal stripes, shifted and under noise, made
 * from the sample's number at every read: whoever reads it sees the same image. ---- */

static int64_t set_count(const void *self, fl_split split)
{
    return split == FL_TRAIN ? 4096 : 1024;
}

static fl_status set_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    *input = (fl_shape){.tokens = T, .width = WIDTH, .dtype = FL_F32};
    *n_targets = 1;
    return FL_OK;
}

static fl_status set_shape(const void *self, fl_split s, int64_t id, fl_shape *in, int64_t *n)
{
    return set_max_shape(self, in, n); /* all samples have one shape */
}

static fl_status set_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    uint32_t noise = (uint32_t)(2 * key->id + split) * 2654435761U, shift = noise >> 30;
    for (uint32_t i = 0, y = 0, x = 0; i < T * WIDTH; i++, y = i / WIDTH, x = i % WIDTH) {
        const uint32_t across[CLASSES] = {y, x, x + y, x - y};
        noise = noise * 1664525U + 1013904223U;
        ((float *)input)[i] = (float)((across[key->id % CLASSES] + shift) / 2 % 2) - 0.5F +
                              (float)(noise >> 16) / 32768.0F - 1.0F;
    }
    return FL_OK;
}

static fl_status set_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    *targets = (int32_t)(id % CLASSES);
    return FL_OK;
}

static uint64_t set_fingerprint(const void *self)
{
    return 1; /* another number when the images change */
}

static const fl_dataset_ops set = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                   .kind = "stripes",
                                   .count = set_count,
                                   .shape = set_shape,
                                   .max_shape = set_max_shape,
                                   .read = set_read,
                                   .targets = set_targets,
                                   .fingerprint = set_fingerprint};

/* ---- The model, the job, the run. ---- */

/* Called here, not in a worker, after each epoch: the run ends once it has learned enough. */
static fl_callback_answer stop_if_good(void *context, const fl_epoch_result *epoch)
{
    return epoch->test.accuracy > 0.95 ? FL_STOP : FL_CONTINUE;
}

/* After each checkpoint: another program may evaluate its folder, or start from it. */
static fl_callback_answer name_checkpoint(void *context, const fl_checkpoint_result *checkpoint)
{
    printf("checkpoint after %lld steps: %s\n", (long long)checkpoint->steps_done,
           checkpoint->path);
    return FL_CONTINUE;
}

/* run_dir: of an interrupted run of this program, to continue it; NULL: a new run. */
static fl_status train(fl_model **model, const char *run_dir)
{
    const fl_mlp_config channels = {
        .dim = C, .hidden = 4 * C, .depth = 2 * BLOCKS, .activation = FL_ACT_GELU_TANH};
    const fl_callbacks callbacks = {.on_epoch = stop_if_good, .on_checkpoint = name_checkpoint};
    fl_layer layer;
    fl_loss loss;
    fl_job job;
    fl_run_result result;
    FL_TRY(fl_model_create("mixer", model));
    FL_TRY(fl_layer_linear(WIDTH, C, &layer));
    FL_TRY(fl_model_add_named(*model, 1, "embed", layer));
    for (int block = 1; block <= BLOCKS; block++) {
        char name[FL_LAYER_NAME_MAX];
        snprintf(name, sizeof name, "blocks.%d.tokens", block);
        FL_TRY(fl_model_add_named(*model, block, name, (fl_layer){&mix, NULL}));
        FL_TRY(fl_layer_mlp(&channels, &layer)); /* mixes channels: a ready layer */
        snprintf(name, sizeof name, "blocks.%d.channels", block);
        FL_TRY(fl_model_add_named(*model, block, name, layer));
    }
    FL_TRY(fl_layer_classifier(C, CLASSES, &layer));
    FL_TRY(fl_model_add_named(*model, FL_BLOCK_HEAD, "head", layer));
    FL_TRY(fl_loss_cross_entropy(CLASSES, &loss));
    FL_TRY(fl_model_set_loss(*model, loss));
    fl_job_defaults(&job);
    FL_TRY(fl_job_set(&job, "devices.count", "2"));
    FL_TRY(fl_job_set(&job, "pipe.k", "2"));
    FL_TRY(fl_job_set(&job, "checkpoint.every", "1 epoch"));
    const fl_dataset data = {&set, NULL};
    fl_status status = run_dir == NULL
                           ? fl_run_with(*model, &data, &job, &callbacks, &result)
                           : fl_run_resume(*model, &data, &job, run_dir, &callbacks, &result);
    if (status != FL_ESTOPPED) {
        FL_TRY(status);
    }
    printf("accuracy %.3f with %d stages\n", result.test_accuracy, result.K);
    return FL_OK;
}

int main(int argc, char **argv)
{
    fl_model *model = NULL;
    fl_status status = train(&model, argc > 1 ? argv[1] : NULL);
    if (status != FL_OK) {
        fprintf(stderr, "mixer: %s\n", fl_errmsg());
    }
    fl_model_destroy(&model);
    return status == FL_OK ? 0 : 1;
}
