/* Rows of tables by ids: tokens, learned positions and token types; perhaps a LayerNorm of the sum.
 * Kept: with the norm, 2 floats a token. Backward reads the ids again, and for the norm computes
 * the sum again: that takes less than keeping it would. */
#include "nn/layers/layers.h"

enum { TOKEN }; /* parameters: see place_params for the others */
enum { KEPT_MEAN, KEPT_RSTD };

/* Standard deviation of the starting values, as BERT and GPT-2 have it. */
#define DEVIATION 0.02f

/* The numbers of the parameters; -1: not there. */
typedef struct places {
    int position, type, ln, n;
} places;

static places place_params(const fl_embedding_config *c)
{
    places p = {-1, -1, -1, TOKEN + 1};
    if (c->positions > 0) {
        p.position = p.n++;
    }
    if (c->types > 0) {
        p.type = p.n++;
    }
    if (c->norm) {
        p.ln = p.n;
        p.n += 2;
    }
    return p;
}

static fl_status check_ids(const fl_embedding_config *c, const fl_shape *in)
{
    if (in->dtype != FL_I32 || in->width < 1 || in->width > (c->types > 0 ? 2 : 1)) {
        return fl_fail(FL_EINVAL, "takes one int32 id a token%s, got rows of %lld %s",
                       c->types > 0 ? ", or an id and a type" : "", (long long)in->width,
                       fl_dtype_name(in->dtype));
    }
    int64_t n_ids = c->n_ids > 0 ? c->n_ids : c->rows;
    if (in->n_ids < 1) {
        return fl_fail(FL_EINVAL,
                       "the data set promises no range of ids (fl_shape.n_ids); the table "
                       "has the ids 0 to %lld",
                       (long long)n_ids - 1);
    }
    if (in->n_ids > n_ids) {
        return fl_fail(FL_EINVAL, "the data set has ids 0 to %d, the table has 0 to %lld",
                       in->n_ids - 1, (long long)n_ids - 1);
    }
    return FL_OK;
}

static fl_status embedding_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const fl_embedding_config *c = self;
    FL_TRY(check_ids(c, in));
    if (in->tokens < 1 || (c->positions > 0 && in->tokens > c->positions)) {
        return fl_fail(FL_EINVAL, "takes samples of 1 to %lld tokens, got %lld",
                       (long long)(c->positions > 0 ? c->positions : INT32_MAX),
                       (long long)in->tokens);
    }
    *out = (fl_shape){.tokens = in->tokens, .width = c->dim, .dtype = c->dtype};
    return FL_OK;
}

static fl_status params_table(const fl_embedding_config *c, fl_param_list *list, const char *name,
                              int64_t rows)
{
    return rows == 0
               ? FL_OK
               : fl_param_list_add(list, name, rows, c->dim, FL_INIT_NORMAL, c->deviation, true);
}

static fl_status embedding_params(void *self, fl_param_list *list)
{
    const fl_embedding_config *c = self;
    FL_TRY(params_table(c, list, "token", c->rows));
    FL_TRY(params_table(c, list, "position", c->positions));
    FL_TRY(params_table(c, list, "type", c->types));
    return c->norm ? fl__params_norm(list, "ln", c->dim) : FL_OK;
}

static fl_embed_args embed_args(const fl_embedding_config *c, fl_exec *x, const fl_tensor *in,
                                void *y)
{
    const places p = place_params(c);
    fl_embed_args args = {.dtype = c->dtype, .offsets = fl_offsets_of(in), .width = c->dim, .y = y};
    args.table[args.n_tables++] = (fl_embed_table){.weight = fl_exec_weight(x, TOKEN),
                                                   .grad = fl_exec_grad(x, TOKEN),
                                                   .ids = fl_i32(in),
                                                   .stride = in->width,
                                                   .skips = c->has_padding,
                                                   .skipped = c->padding};
    if (p.position >= 0) {
        args.table[args.n_tables++] = (fl_embed_table){.weight = fl_exec_weight(x, p.position),
                                                       .grad = fl_exec_grad(x, p.position)};
    }
    if (p.type >= 0) {
        bool given = in->width == 2; /* otherwise 0 for every token: what offsets begin with */
        args.table[args.n_tables++] =
            (fl_embed_table){.weight = fl_exec_weight(x, p.type),
                             .grad = fl_exec_grad(x, p.type),
                             .ids = given ? fl_i32(in) + 1 : in->offsets_device,
                             .stride = given ? 2 : 0};
    }
    return args;
}

static fl_status norm_forward(const fl_embedding_config *c, fl_exec *x, fl_tensor *out)
{
    const places p = place_params(c);
    float *mean = NULL, *rstd = NULL;
    if (fl_exec_training(x)) {
        FL_TRY(fl__keep(x, KEPT_MEAN, out->n_tokens, &mean));
        FL_TRY(fl__keep(x, KEPT_RSTD, out->n_tokens, &rstd));
    }
    return fl_layernorm(x, &(fl_norm_args){.dtype = c->dtype,
                                           .in = out->data,
                                           .gamma = fl_exec_weight(x, p.ln),
                                           .beta = fl_exec_weight(x, p.ln + 1),
                                           .epsilon = c->epsilon,
                                           .y = out->data,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .m = out->n_tokens,
                                           .n = c->dim});
}

static fl_status embedding_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_embedding_config *c = self;
    const fl_embed_args args = embed_args(c, x, in, out->data);
    FL_TRY(fl_embed(x, &args));
    if (c->norm) {
        FL_TRY(norm_forward(c, x, out));
    }
    return fl__drop(x, out->data, out, c->dropout, out->data);
}

/* From the gradient of the norm's output to that of the sum. */
static fl_status norm_backward(const fl_embedding_config *c, fl_exec *x, const void **grad)
{
    const places p = place_params(c);
    const fl_tensor *in = fl_exec_input(x);
    void *sum = NULL, *grad_sum = NULL;
    FL_TRY(fl__scratch_of(x, c->dtype, in->n_tokens * c->dim, &sum));
    FL_TRY(fl__scratch_of(x, c->dtype, in->n_tokens * c->dim, &grad_sum));
    const fl_embed_args args = embed_args(c, x, in, sum);
    FL_TRY(fl_embed(x, &args));
    FL_TRY(fl_layernorm_backward(x, &(fl_norm_backward_args){.dtype = c->dtype,
                                                             .grad_y = *grad,
                                                             .in = sum,
                                                             .gamma = fl_exec_weight(x, p.ln),
                                                             .mean = fl_exec_kept(x, KEPT_MEAN),
                                                             .rstd = fl_exec_kept(x, KEPT_RSTD),
                                                             .grad_in = grad_sum,
                                                             .grad_gamma = fl_exec_grad(x, p.ln),
                                                             .grad_beta = fl_exec_grad(x, p.ln + 1),
                                                             .m = in->n_tokens,
                                                             .n = c->dim}));
    *grad = grad_sum;
    return FL_OK;
}

static fl_status embedding_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                    fl_tensor *grad_in)
{
    const fl_embedding_config *c = self;
    const void *grad = NULL;
    if (grad_in != NULL) {
        return fl_fail(FL_EINVAL, "ids have no gradient: an embedding is the first layer");
    }
    if (!fl__any_grad(x, place_params(c).n)) {
        return FL_OK;
    }
    FL_TRY(fl__branch_grad(x, grad_out, c->dropout, &grad));
    if (c->norm) {
        FL_TRY(norm_backward(c, x, &grad));
    }
    return fl_embed_backward(
        x, &(fl_embed_backward_args){.forward = embed_args(c, x, fl_exec_input(x), NULL),
                                     .grad_y = grad});
}

static const fl_layer_ops embedding_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "embedding",
    .shape = embedding_shape,
    .params = embedding_params,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .destroy = fl__layer_free,
};

/* Another kind, since it costs what the other does not. */
static const fl_layer_ops norm_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "embedding-norm",
    .shape = embedding_shape,
    .params = embedding_params,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .destroy = fl__layer_free,
};

static fl_status check_padding(const fl_embedding_config *c)
{
    return !c->has_padding || (c->padding >= 0 && c->padding < c->rows)
               ? FL_OK
               : fl_fail(FL_EINVAL, "embedding: padding is %lld, allowed is 0 to %lld",
                         (long long)c->padding, (long long)c->rows - 1);
}

fl_status fl_layer_embedding(const fl_embedding_config *config, fl_layer *out)
{
    fl_embedding_config self = *config;
    FL_TRY(fl__check_size("embedding", "rows", self.rows));
    FL_TRY(fl__check_size("embedding", "dim", self.dim));
    FL_TRY(fl__check_dropout("embedding", self.dropout));
    FL_TRY(fl__check_epsilon("embedding", &self.epsilon));
    FL_TRY(fl__check_deviation("embedding", self.deviation));
    FL_TRY(check_padding(&self));
    FL_TRY(fl__check_activations("embedding", self.dtype));
    if (self.n_ids < 0 || self.n_ids > self.rows) {
        return fl_fail(FL_EINVAL, "embedding: n_ids is %lld, allowed is 0 (all rows) to %lld",
                       (long long)self.n_ids, (long long)self.rows);
    }
    if (self.positions != 0) {
        FL_TRY(fl__check_size("embedding", "positions", self.positions));
    }
    if (self.types != 0) {
        FL_TRY(fl__check_size("embedding", "types", self.types));
    }
    self.deviation = self.deviation == 0.0f ? DEVIATION : self.deviation;
    return fl__layer_new(self.norm ? &norm_ops : &embedding_ops, &self, sizeof self, out);
}
