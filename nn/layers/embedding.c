/* Rows of a table by ids, plus learned positions. Kept: nothing; backward reads the ids again. */
#include "nn/layers/layers.h"

enum { TOKEN, POSITION }; /* parameters */

/* Standard deviation of the starting values, as BERT and GPT-2 have it. */
#define DEVIATION 0.02f

static fl_status check_ids(const fl_embedding_config *c, const fl_shape *in)
{
    if (in->dtype != FL_I32 || in->width != 1) {
        return fl_fail(FL_EINVAL, "takes one int32 id a token, got rows of %lld %s",
                       (long long)in->width, fl_dtype_name(in->dtype));
    }
    if (in->n_ids < 1) {
        return fl_fail(FL_EINVAL,
                       "the data set promises no range of ids (fl_shape.n_ids); the table "
                       "has the ids 0 to %lld",
                       (long long)c->rows - 1);
    }
    if (in->n_ids > c->rows) {
        return fl_fail(FL_EINVAL, "the data set has ids 0 to %d, the table has 0 to %lld",
                       in->n_ids - 1, (long long)c->rows - 1);
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
    *out = (fl_shape){.tokens = in->tokens, .width = c->dim, .dtype = FL_F32};
    return FL_OK;
}

static fl_status embedding_params(void *self, fl_param_list *list)
{
    const fl_embedding_config *c = self;
    FL_TRY(fl_param_list_add(list, "token", c->rows, c->dim, FL_INIT_NORMAL, DEVIATION, true));
    return c->positions == 0 ? FL_OK
                             : fl_param_list_add(list, "position", c->positions, c->dim,
                                                 FL_INIT_NORMAL, DEVIATION, true);
}

static fl_embed_args embed_args(const fl_embedding_config *c, fl_exec *x, const fl_tensor *in,
                                void *y)
{
    return (fl_embed_args){
        .offsets = fl_offsets_of(in),
        .table = {{.weight = fl_exec_weight(x, TOKEN),
                   .grad = fl_exec_grad(x, TOKEN),
                   .ids = fl_i32(in),
                   .stride = 1},
                  {.weight = fl_exec_weight(x, POSITION), .grad = fl_exec_grad(x, POSITION)}},
        .n_tables = c->positions > 0 ? 2 : 1,
        .width = c->dim,
        .y = y};
}

static fl_status embedding_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const fl_embedding_config *c = self;
    const fl_embed_args args = embed_args(c, x, in, out->data);
    FL_TRY(fl_embed(x, &args));
    return fl__drop(x, out->data, out, c->dropout, out->data);
}

static fl_status embedding_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                    fl_tensor *grad_in)
{
    const fl_embedding_config *c = self;
    const float *grad = NULL;
    if (grad_in != NULL) {
        return fl_fail(FL_EINVAL, "ids have no gradient: an embedding is the first layer");
    }
    if (!fl__any_grad(x, POSITION + 1)) {
        return FL_OK;
    }
    FL_TRY(fl__branch_grad(x, grad_out, c->dropout, &grad));
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

fl_status fl_layer_embedding(const fl_embedding_config *config, fl_layer *out)
{
    FL_TRY(fl__check_size("embedding", "rows", config->rows));
    FL_TRY(fl__check_size("embedding", "dim", config->dim));
    FL_TRY(fl__check_dropout("embedding", config->dropout));
    if (config->positions != 0) {
        FL_TRY(fl__check_size("embedding", "positions", config->positions));
    }
    return fl__layer_new(&embedding_ops, config, sizeof *config, out);
}
