/* The end of a language model: a LayerNorm, and a weight [rows, dim] of which row i gives the logit
 * of id i. The layer puts out the normalized rows [T, dim]; the loss multiplies them by the weight
 * itself, in chunks of rows:
 *
 *   x [T, C] - ln - out [T, C] -+-> chunk [c, C] - weight: logits [c, V] - cross-entropy
 *                               |                       |
 *   grad [T, C] <---------------+-- grad [c, C] <- grad of the logits, in their place
 *                                                       +-> grad of the weight, added up
 *
 * so that one matrix [c, V] exists, not three [T, V] (an output and two gradients), and the logits
 * are used while they lie in the caches. Source: the fused classifier of llm.c, which has V whole
 * and the chunk one row.
 *
 * Rows of the weight beyond the vocabulary fill it up to a multiple of ALIGNED. They are no ids:
 * their logits are not read, and their gradient is exactly 0. */
#include "nn/exec.h"
#include "nn/layers/layers.h"
#include "nn/loss.h"

#include <math.h>

enum { LN_W, LN_B, FC_W };                /* parameters */
enum { ACCURACY, PERPLEXITY, N_METRICS }; /* of the loss */
enum { ALIGNED = 64, CHUNK = 256 };

/* As BERT and GPT-2 begin. */
#define DEVIATION 0.02f

int64_t fl_lm_head_rows(int64_t vocabulary)
{
    return (vocabulary + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static fl_status check_config(const char *kind, const fl_lm_head_config *c)
{
    FL_TRY(fl__check_size(kind, "dim", c->dim));
    return fl__check_size(kind, "vocabulary", c->vocabulary);
}

/* ---- the layer ---- */

static fl_status lm_head_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const fl_lm_head_config *c = self;
    FL_TRY(fl__check_input(in, c->dim));
    *out = *in;
    return FL_OK;
}

static fl_status lm_head_params(void *self, fl_param_list *list)
{
    const fl_lm_head_config *c = self;
    FL_TRY(fl__params_norm(list, "ln", c->dim));
    return fl_param_list_add(list, "fc.weight", fl_lm_head_rows(c->vocabulary), c->dim,
                             FL_INIT_NORMAL, DEVIATION, true);
}

static fl_status lm_head_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_lm_head_config *c = self;
    return fl__layernorm_forward(x, c->epsilon, in, out);
}

static const fl_layer_ops lm_head_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "lm_head",
    .shape = lm_head_shape,
    .params = lm_head_params,
    .forward = lm_head_forward,
    .backward = fl__layernorm_backward,
    .destroy = fl__layer_free,
};

fl_status fl_layer_lm_head(const fl_lm_head_config *config, fl_layer *out)
{
    fl_lm_head_config self = *config;
    FL_TRY(check_config("lm_head", &self));
    FL_TRY(fl__check_epsilon("lm_head", &self.epsilon));
    return fl__layer_new(&lm_head_ops, &self, sizeof self, out);
}

/* ---- the loss ---- */

/* Nothing is summed for it: it is a function of the mean loss of a token. */
static double perplexity_of(const fl_loss_sums *sums)
{
    return exp(sums->loss / sums->n_targets);
}

static const fl_metric lm_metrics[N_METRICS] = {
    [ACCURACY] = {.name = FL_ACCURACY, .is_share = true},
    [PERPLEXITY] = {.name = "perplexity", .value = perplexity_of},
};

static fl_status loss_shape(void *self, const fl_shape *out)
{
    const fl_lm_head_config *c = self;
    return fl__check_input(out, c->dim);
}

static fl_status check_weight(const fl_lm_head_config *c, const fl_weight *w)
{
    int64_t rows = fl_lm_head_rows(c->vocabulary);
    if (w == NULL || w->rows != rows || w->cols != c->dim) {
        return fl_fail(FL_EINVAL,
                       "the last layer has no weight [%lld, %lld]; allowed is fl_layer_lm_head of "
                       "the same configuration",
                       (long long)rows, (long long)c->dim);
    }
    return FL_OK;
}

/* The rows of one chunk. Logits have the type of the output; the loss, which is computed in fp32,
 * reads and writes `wide`: the same memory where the output is fp32. */
typedef struct chunk_rows {
    fl_dtype dtype;
    const void *in;
    void *logits;
    float *wide;
    void *grad; /* of in; NULL: not wanted */
} chunk_rows;

/* The loss of the logits, which their gradient replaces where it is wanted. */
static fl_status chunk_loss(fl_exec *x, const chunk_rows *r, const fl_cross_entropy_args *loss)
{
    int64_t n = loss->m * loss->n;
    if (r->dtype != FL_F32) {
        FL_TRY(fl_convert(
            x, &(fl_convert_args){.in = r->logits, .y = r->wide, .from = r->dtype, .n = n}));
    }
    FL_TRY(fl_cross_entropy(x, loss));
    return r->dtype == FL_F32 || r->grad == NULL
               ? FL_OK
               : fl_convert(
                     x, &(fl_convert_args){.in = r->wide, .y = r->logits, .to = r->dtype, .n = n});
}

static fl_status run_chunk(fl_exec *x, const chunk_rows *r, const fl_cross_entropy_args *loss)
{
    fl_weight *w = fl_exec_weight(x, FC_W);
    FL_TRY(fl_linear(x, &(fl_linear_args){
                            .dtype = r->dtype, .in = r->in, .w = w, .y = r->logits, .m = loss->m}));
    FL_TRY(chunk_loss(x, r, loss));
    if (r->grad == NULL) {
        return FL_OK;
    }
    if (fl_exec_grad(x, FC_W) != NULL) {
        FL_TRY(fl_linear_backward_weights(
            x, &(fl_linear_backward_weights_args){.dtype = r->dtype,
                                                  .grad_out = r->logits,
                                                  .in = r->in,
                                                  .grad_w = fl_exec_grad(x, FC_W),
                                                  .m = loss->m,
                                                  .n_out = w->rows,
                                                  .n_in = w->cols}));
    }
    return fl_linear_backward_input(
        x, &(fl_linear_backward_input_args){
               .dtype = r->dtype, .grad_out = r->logits, .w = w, .grad_in = r->grad, .m = loss->m});
}

static fl_status take_logits(fl_exec *x, fl_dtype dtype, int64_t n, chunk_rows *r)
{
    FL_TRY(fl__scratch(x, n, &r->wide));
    r->dtype = dtype;
    r->logits = r->wide;
    return dtype == FL_F32 ? FL_OK : fl__scratch_of(x, dtype, n, &r->logits);
}

static fl_status loss_forward(void *self, fl_exec *x, const fl_tensor *out,
                              const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                              fl_loss_sums *sums)
{
    const fl_lm_head_config *c = self;
    int64_t n = out->n_tokens, chunk = n < CHUNK ? n : CHUNK, V = fl_lm_head_rows(c->vocabulary);
    chunk_rows r;
    FL_TRY(check_weight(c, fl_exec_weight(x, FC_W)));
    FL_TRY(fl_targets_expect(targets, FL_I32, n));
    FL_TRY(fl_targets_expect_classes(targets, x, c->vocabulary));
    FL_TRY(take_logits(x, out->dtype, chunk * V, &r));
    for (int64_t first = 0; first < n; first += chunk) {
        const size_t at = (size_t)(first * c->dim) * fl_dtype_size(out->dtype);
        const fl_cross_entropy_args loss = {.logits = r.wide,
                                            .targets = fl_i32(targets) + first,
                                            .grad_scale = grad_scale,
                                            .grad = grad == NULL ? NULL : r.wide,
                                            .loss = &sums->loss,
                                            .n_correct = &sums->metric[ACCURACY],
                                            .n_counted = &sums->n_targets,
                                            .m = n - first < chunk ? n - first : chunk,
                                            .n = V,
                                            .n_classes = c->vocabulary};
        r.in = (const char *)out->data + at;
        r.grad = grad == NULL ? NULL : (char *)grad->data + at;
        FL_TRY(run_chunk(x, &r, &loss));
    }
    return FL_OK;
}

static const fl_loss_ops lm_loss_ops = {
    .head = FL_TABLE_HEAD(fl_loss_ops),
    .kind = "lm_head",
    .shape = loss_shape,
    .forward = loss_forward,
    .destroy = fl__layer_free,
    .metrics = lm_metrics,
    .n_metrics = N_METRICS,
};

bool fl_loss_is_language(const fl_loss *loss)
{
    return loss->ops == &lm_loss_ops;
}

fl_status fl_loss_lm_head(const fl_lm_head_config *config, fl_loss *out)
{
    fl_layer holder = {0};
    FL_TRY(check_config("lm_head", config));
    FL_TRY(fl__layer_new(NULL, config, sizeof *config, &holder));
    *out = (fl_loss){.ops = &lm_loss_ops, .self = holder.self};
    return FL_OK;
}
