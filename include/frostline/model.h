/* A model: a list of layers in blocks, and the loss that ends it. */
#ifndef FROSTLINE_MODEL_H
#define FROSTLINE_MODEL_H

#include <frostline/kernels.h>
#include <frostline/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_model fl_model;

/* Layers of this block never freeze: the head. */
enum { FL_BLOCK_HEAD = 1000000 };

/* `name` is copied. The result is the caller's. FL_ENOMEM. */
fl_status fl_model_create(const char *name, fl_model **out) FL_MUST_CHECK;

/* Free the model and its layers; *model becomes NULL; NULL is fine. */
void fl_model_destroy(fl_model **model);

/* Append a layer. Block numbers start at 1 and go up by one or not at all; an embedding belongs to
 * block 1, the head to FL_BLOCK_HEAD. Asks the layer for its parameters. On success the model owns
 * `layer`; on failure nothing has changed, and it is still the caller's.
 * Returns FL_EINVAL (an incomplete table, a block out of order, more than FL_MAX_LAYERS),
 * FL_ENOTSUP (a table of another version), what the layer's params() gives, FL_ENOMEM. */
fl_status fl_model_add(fl_model *model, int block, fl_layer layer) FL_MUST_CHECK;

/* Names have letters, digits, '_' and single dots between them. */
enum {
    FL_LAYER_NAME_MAX = 64, /* bytes of a layer's name, the zero included */
    FL_PARAM_NAME_MAX = 48  /* ... of a parameter's within its layer */
};

/* The same for a layer with a name, as "blocks.3.attn"; it is copied. NULL: "layers.<number>",
 * which is what fl_model_add gives. A parameter's full name is <layer>.<parameter>:
 * "blocks.3.attn.qkv.weight". Both are unique over the model. Names never change what is computed.
 * Returns FL_EINVAL also for a name that is not allowed or not unique. */
fl_status fl_model_add_named(fl_model *model, int block, const char *name,
                             fl_layer layer) FL_MUST_CHECK;

/* Make two parameters one: tie "head.fc.weight" to "embed.weight". They keep equal values under
 * every plan, and both get the sum of both gradients. The one that comes first in the model gives
 * the initial values and whether weight decay applies. A parameter may be tied to several others;
 * to tie A to B and B to C ties all three.
 *
 * A tied parameter freezes with the lowest block that uses it and stays as it is in the layers
 * above, which train on otherwise. Each layer keeps a copy, in memory of its own.
 *
 * Returns FL_EINVAL (no such parameter, one parameter twice, different shapes), FL_ENOMEM: nothing
 * has changed. */
fl_status fl_model_tie(fl_model *model, const char *name, const char *other) FL_MUST_CHECK;

enum {
    FL_METRICS_MAX = 8,     /* of a loss */
    FL_METRIC_NAME_MAX = 32 /* bytes of a metric's name, the zero included */
};

typedef struct fl_loss_sums fl_loss_sums;

/* A value that a loss computes beside the loss itself. A run reports it for training and for
 * evaluation: under `train_`, `validation_` or `test_` and its name.
 *
 * name      a-z, 0-9 and _; unique within the loss; not `loss`, `samples`, `grad_norm` or
 *           `learning_rate`. It must stay valid as long as the model.
 * is_share  the value is a share, 0 to 1; output for people shows it in percent.
 * is_gain   a larger value is better, as it is for every share; otherwise a smaller one.
 * value     the value, computed from the sums over all targets: for metrics that are no means, as
 *           F1 is none. NULL: the mean over targets, metric[i] / n_targets for the i-th metric. */
typedef struct fl_metric {
    const char *name;
    bool is_share;
    bool is_gain;
    double (*value)(const fl_loss_sums *sums);
} fl_metric;

/* Sums over the targets of one evaluated or trained micro-batch. */
struct fl_loss_sums {
    double loss;
    double n_targets;
    double metric[FL_METRICS_MAX]; /* in the order of fl_loss_ops.metrics; the others stay 0 */
};

/* The end of a model. The same rules hold as for a layer.
 *
 * shape     FL_EINVAL with a message if it cannot take what the last layer gives for a sample.
 * forward   out: the last layer's output; targets: [n_targets, 1] with the samples' offsets, of
 *           the data set's type, FL_I32 or FL_F32, which the host reads at fl_batch.targets_host:
 *           FL_EINVAL with a message for targets that it cannot take; grad_scale: what one target
 *           weighs in the gradient; grad: like out, every row is written, or NULL (evaluation).
 *           Adds to *sums, which is device memory: through kernels, or directly where
 *           fl_exec_host_memory is true. A sum over targets does not depend on how samples are
 *           split into micro-batches and over workers.
 *           fl_exec_weight and fl_exec_grad give the last layer's parameters. A loss that computes
 *           with them adds to their gradients, where `grad` is given.
 * destroy   free self. May be NULL.
 * metrics   [n_metrics] what forward adds to sums->metric, in this order; at most
 *           FL_METRICS_MAX. May be NULL if n_metrics is 0.
 * predict   what one row of the output says, for `frostline predict`: out [width], host memory, is
 *           the row; scores [width] gets what is reported of it, as probabilities. *chosen: the
 *           class, 0 .. width - 1. Threads: any, with different rows. May be NULL: the output is
 *           reported as values, of which none is chosen. */
typedef struct fl_loss_ops {
    fl_table_head head; /* FL_TABLE_HEAD(fl_loss_ops) */
    const char *kind;
    fl_status (*shape)(void *self, const fl_shape *out);
    fl_status (*forward)(void *self, fl_exec *x, const fl_tensor *out, const fl_tensor *targets,
                         float grad_scale, fl_tensor *grad, fl_loss_sums *sums);
    void (*destroy)(void *self);
    const fl_metric *metrics;
    int n_metrics;
    void (*predict)(const void *self, const float *out, int64_t width, float *scores,
                    int64_t *chosen);
} fl_loss_ops;

typedef struct fl_loss {
    const fl_loss_ops *ops;
    void *self;
} fl_loss;

/* End the model with this loss; the model owns it. A second call replaces the first. FL_EINVAL for
 * an incomplete table, or for a metric that cannot be reported, which the message names; FL_ENOTSUP
 * for a table of another version: the loss is then still the caller's. */
fl_status fl_model_set_loss(fl_model *model, fl_loss loss) FL_MUST_CHECK;

/* The parts of the model. Texts are borrowed from the model, layers count from 0. Threads: any,
 * once the model is made. */
const char *fl_model_name(const fl_model *model);
int fl_model_n_layers(const fl_model *model);
int fl_model_n_blocks(const fl_model *model);            /* L: without the head */
int fl_model_block_of(const fl_model *model, int layer); /* 1 .. L, or FL_BLOCK_HEAD */
const char *fl_model_layer_kind(const fl_model *model, int layer);
const char *fl_model_layer_name(const fl_model *model, int layer);
int fl_model_find_layer(const fl_model *model, const char *name); /* -1: no layer has this name */
int64_t fl_model_n_params(const fl_model *model); /* elements; a tied parameter counts once */

/* A layer's parameters count from 0 in the order of its params(); names are those within the layer.
 */
int fl_model_layer_n_tensors(const fl_model *model, int layer);
const char *fl_model_param_name(const fl_model *model, int layer, int param);

/* The parameter with this full name. Returns FL_EINVAL, with the names that its layer has. */
fl_status fl_model_find_param(const fl_model *model, const char *name, int *layer,
                              int *param) FL_MUST_CHECK;

/* ---- ready layers ----
 *
 * Shapes are those of one sample, T its tokens. The result is the caller's, to be given to
 * fl_model_add. Each returns FL_EINVAL with a message for impossible sizes, or FL_ENOMEM.
 * "Parameters" lists the names within the layer, as fl_model_tie takes them after the layer's.
 *
 * Activations are fp32 or bf16: the layer that a model begins with (patch_embed, embedding) gives
 * the type that its configuration names, those behind it give the type that they take, and
 * classifiers and `linear` give fp32. Parameters, their gradients, what norms compute of a row,
 * softmax and losses are fp32 in either case. */

/* [1, channels * height * width] -> [n_patches + 1, dim]: convolution of patch x patch with stride
 * patch, class token, learned positions. Parameters: patch.weight, patch.bias, cls, pos. */
fl_status fl_layer_patch_embed(int64_t channels, int64_t height, int64_t width, int64_t patch,
                               int64_t dim, fl_layer *out) FL_MUST_CHECK;

typedef struct fl_patch_embed_config {
    int64_t channels, height, width, patch, dim; /* as above */
    float dropout;                               /* of the sum; 0 <= dropout < 1 */
    fl_dtype dtype; /* of what comes out, FL_F32 or FL_BF16; images are FL_F32 */
} fl_patch_embed_config;

/* The same, with all that can be chosen. */
fl_status fl_layer_patch_embed_with(const fl_patch_embed_config *config,
                                    fl_layer *out) FL_MUST_CHECK;

/* Where a sublayer with a skip has its LayerNorm. */
typedef enum fl_norm_place {
    FL_NORM_BEFORE = 0, /* x + f(LayerNorm(x)): GPT-2's and ViT's */
    FL_NORM_AFTER = 1   /* LayerNorm(x + f(x)): BERT's */
} fl_norm_place;

/* depth: how many layers of the model add to their input as this one does; 1 for a layer alone.
 * proj's weights begin smaller by its square root, so that all these sums together do not drown the
 * input. Source: Radford et al., Language models are unsupervised multitask learners, 2019.
 *
 * deviation: of the initial weights, which are normal, with biases of 0, as in BERT and GPT-2. 0:
 * uniform within 1 / sqrt(n_in), biases too, as in PyTorch's nn.Linear. */
typedef struct fl_attention_config {
    int64_t dim, heads; /* heads divides dim */
    int64_t depth;
    bool causal;             /* a token sees itself and those before it */
    float dropout;           /* of proj's output, 0 <= dropout < 1 */
    float attention_dropout; /* of the probabilities, the same range */
    float epsilon;           /* of LayerNorm; 0: 1e-5 */
    bool first;              /* the first token of each sample alone goes on */
    fl_norm_place norm;
    float deviation;
} fl_attention_config;

/* [T, dim] -> [T, dim]: x + dropout(proj(attention(LayerNorm(x)))), or with FL_NORM_AFTER
 * LayerNorm(x + dropout(proj(attention(x)))).
 * With `first`, [T, dim] -> [1, dim], for the last block of a model that reads nothing else, as a
 * classifier does: nothing that only the other tokens need is computed. The first token and all
 * gradients are the same as without it.
 * Parameters: ln.weight, ln.bias, qkv.weight, qkv.bias, proj.weight, proj.bias. */
fl_status fl_layer_attention(const fl_attention_config *config, fl_layer *out) FL_MUST_CHECK;

typedef struct fl_mlp_config {
    int64_t dim, hidden;
    int64_t depth; /* see fl_attention_config */
    fl_activation activation;
    float dropout; /* 0 <= dropout < 1 */
    float epsilon; /* of LayerNorm; 0: 1e-5 */
    fl_norm_place norm;
    float deviation; /* see fl_attention_config */
} fl_mlp_config;

/* [T, dim] -> [T, dim]: x + dropout(proj(activation(fc(LayerNorm(x))))), or with FL_NORM_AFTER
 * LayerNorm(x + dropout(proj(activation(fc(x))))).
 * Parameters: ln.weight, ln.bias, fc.weight, fc.bias, proj.weight, proj.bias. */
fl_status fl_layer_mlp(const fl_mlp_config *config, fl_layer *out) FL_MUST_CHECK;

typedef enum fl_norm_kind {
    FL_NORM_LAYER = 0, /* LayerNorm: parameters ln.weight and ln.bias */
    FL_NORM_RMS = 1    /* RMSNorm: parameter ln.weight */
} fl_norm_kind;

typedef struct fl_norm_config {
    int64_t dim;
    fl_norm_kind kind;
    float epsilon; /* 0: 1e-5 */
} fl_norm_config;

/* [T, dim] -> [T, dim]: a norm alone. */
fl_status fl_layer_norm(const fl_norm_config *config, fl_layer *out) FL_MUST_CHECK;

typedef struct fl_embedding_config {
    int64_t rows;      /* ids are 0 .. rows - 1, or with n_ids */
    int64_t n_ids;     /* 0 .. n_ids - 1: the rows above are padding; 0: all rows are ids */
    int64_t positions; /* learned ones, for samples of at most as many tokens; 0: none */
    int64_t dim;
    float dropout;   /* 0 <= dropout < 1 */
    int64_t types;   /* token types are 0 .. types - 1; 0: none */
    bool norm;       /* a LayerNorm of the sum, before dropout */
    float epsilon;   /* of LayerNorm; 0: 1e-5 */
    float deviation; /* of the initial tables, which are normal; 0: 0.02 */
    bool has_padding;
    int64_t padding; /* this row of token gets no gradient: PyTorch's padding_idx */
    fl_dtype dtype;  /* of what comes out, FL_F32 or FL_BF16 */
} fl_embedding_config;

/* [T, 1] of FL_I32 -> [T, dim]: dropout(token[id] + position[place in the sample]). Parameters:
 * token [rows, dim] and position [positions, dim]. A model whose data set has ids beyond the table
 * is refused before a run starts (fl_shape.n_ids).
 *
 * With types, + type[type of the token]: the input is [T, 2], rows of id and type, or [T, 1], where
 * every token has type 0. Parameter: type [types, dim]. With norm, dropout(LayerNorm(sum)).
 * Parameters: ln.weight, ln.bias. */
fl_status fl_layer_embedding(const fl_embedding_config *config, fl_layer *out) FL_MUST_CHECK;

/* [T, n_in] -> [T, n_out]: in w^T + bias, in fp32. Parameters: fc.weight, fc.bias. */
fl_status fl_layer_linear(int64_t n_in, int64_t n_out, fl_layer *out) FL_MUST_CHECK;

/* The same; deviation: see fl_attention_config. */
fl_status fl_layer_linear_normal(int64_t n_in, int64_t n_out, float deviation,
                                 fl_layer *out) FL_MUST_CHECK;

/* [T, dim] -> [1, n_classes]: LayerNorm and a linear map of each sample's first token.
 * Parameters: ln.weight, ln.bias, fc.weight, fc.bias. */
fl_status fl_layer_classifier(int64_t dim, int64_t n_classes, fl_layer *out) FL_MUST_CHECK;

typedef struct fl_classifier_config {
    int64_t dim, n_classes; /* as above */
    float epsilon;          /* of LayerNorm; 0: 1e-5 */
    float deviation;        /* see fl_attention_config */
} fl_classifier_config;

/* The same, with all that can be chosen. */
fl_status fl_layer_classifier_with(const fl_classifier_config *config, fl_layer *out) FL_MUST_CHECK;

typedef struct fl_pooled_classifier_config {
    int64_t dim, n_classes;
    float dropout;   /* 0 <= dropout < 1 */
    float deviation; /* see fl_attention_config */
} fl_pooled_classifier_config;

/* [T, dim] -> [1, n_classes]: fc(dropout(tanh(pooler(x)))) of each sample's first token, as in
 * BERT. Parameters: pooler.weight, pooler.bias, fc.weight, fc.bias. */
fl_status fl_layer_pooled_classifier(const fl_pooled_classifier_config *config,
                                     fl_layer *out) FL_MUST_CHECK;

/* Softmax cross-entropy against one class a row, 0 .. n_classes - 1. Metrics: `accuracy`, the share
 * of rows whose largest output is the target's; with two classes also `f1` and `matthews`, of which
 * class 1 is the positive one. Errors as above. */
fl_status fl_loss_cross_entropy(int64_t n_classes, fl_loss *out) FL_MUST_CHECK;

typedef struct fl_lm_head_config {
    int64_t dim;
    int64_t vocabulary; /* ids are 0 .. vocabulary - 1 */
    float epsilon;      /* of LayerNorm; 0: 1e-5 */
} fl_lm_head_config;

/* The rows of a table that holds a vocabulary: the next multiple of 64, which the products with it
 * like better. The rows beyond the vocabulary are no ids: they get no probability and no gradient.
 */
int64_t fl_lm_head_rows(int64_t vocabulary);

/* The end of a language model, a layer and its loss of the same configuration. The layer is
 * [T, dim] -> [T, dim], a LayerNorm. The loss is the cross-entropy of each row's logits, out
 * fc.weight^T, against the id that follows; it computes them in chunks of rows, so that no matrix
 * of all rows and ids exists. Metrics: `accuracy`, as above, and `perplexity`, e to the mean loss.
 * Parameters: ln.weight, ln.bias, fc.weight [fl_lm_head_rows(vocabulary), dim], normal with the
 * deviation 0.02; mostly tied to an embedding. Errors as above. */
fl_status fl_layer_lm_head(const fl_lm_head_config *config, fl_layer *out) FL_MUST_CHECK;
fl_status fl_loss_lm_head(const fl_lm_head_config *config, fl_loss *out) FL_MUST_CHECK;

/* Where an answer begins and ends in its sample, as in SQuAD: softmax cross-entropy over the rows
 * of each sample, once for each of the two columns of the output. A sample has two targets, the
 * rows of the answer's first and last token; -1 does not count. Metrics: `accuracy`, the share of
 * targets whose row has the largest output; `em` and `f1`, exact match and F1 of the answers to
 * whole questions, which a run computes where it evaluates a data set of kind squad, and which are
 * unknown otherwise. */
fl_loss fl_loss_span(void);

/* Mean squared error against one value for each element of the output, row by row: the data set
 * has targets_f32, tokens * width of the last layer's output for each sample. Metrics: `mae`, the
 * mean absolute error. */
fl_loss fl_loss_mse(void);

/* ---- ready models ---- */

typedef struct fl_vit_config {
    int64_t channels, height, width; /* of an image, pixels */
    int64_t patch;                   /* pixels; divides height and width */
    int64_t dim, heads, blocks;
    int64_t n_classes;
    float dropout;            /* of what each sublayer adds, 0 <= dropout < 1 */
    float embedding_dropout;  /* of the sum of patch and position, the same range */
    float attention_dropout;  /* of the probabilities, the same range */
    int64_t hidden;           /* of the MLPs; 0: 4 dim */
    fl_activation activation; /* of the MLPs; 0: tanh GELU */
    float epsilon;            /* of LayerNorm; 0: 1e-5 */
    float deviation;          /* of the initial weights, see fl_attention_config */
    fl_dtype dtype;           /* of the activations, FL_F32 or FL_BF16 */
} fl_vit_config;

/* Vision transformer: patch embedding and block 1 .. blocks of attention and MLP, each behind a
 * LayerNorm, classifier on the class token. Its layers are "embed", "blocks.<b>.attn" and
 * "blocks.<b>.mlp" for each block b, and "head". The result is the caller's. Errors as above.
 * Source: Dosovitskiy et al., arXiv 2010.11929. */
fl_status fl_model_vit(const fl_vit_config *config, fl_model **out) FL_MUST_CHECK;

/* What BERT's head gives. */
typedef enum fl_bert_head {
    FL_BERT_CLASSIFIES = 0, /* classes of the sample */
    FL_BERT_ANSWERS = 1     /* of each token, whether an answer begins and ends there */
} fl_bert_head;

typedef struct fl_bert_config {
    fl_bert_head head;
    int64_t vocabulary, positions, types; /* rows of the tables; types 0: no token types */
    int64_t dim, hidden, heads, blocks;
    int64_t n_classes; /* FL_BERT_CLASSIFIES */
    fl_activation activation;
    float epsilon;           /* of LayerNorm; 0: 1e-12 */
    float deviation;         /* of the initial weights; 0: 0.02 */
    float dropout;           /* of the embedding and of what each sublayer adds, 0 <= dropout < 1 */
    float attention_dropout; /* of the probabilities, the same range */
    float head_dropout;      /* before the last linear map, the same range */
    bool has_padding;
    int64_t padding; /* the id whose embedding gets no gradient */
    fl_dtype dtype;  /* of the activations, FL_F32 or FL_BF16 */
} fl_bert_config;

/* BERT with a head that classifies a whole sample, [T, 1] or [T, 2] of FL_I32 (see
 * fl_layer_embedding), or one that finds the answer in it: a linear map to two columns, with
 * fl_loss_span. Its layers are "embed", "blocks.<b>.attn" and "blocks.<b>.mlp" for each
 * block b from 1, with the LayerNorm after each sum, and "head". The last block computes what the
 * head reads: of one that classifies, the first token alone. The result is the caller's. Errors as
 * above. Source: Devlin et al., arXiv 1810.04805. */
fl_status fl_model_bert(const fl_bert_config *config, fl_model **out) FL_MUST_CHECK;

typedef struct fl_gpt2_config {
    int64_t vocabulary; /* ids are 0 .. vocabulary - 1 */
    int64_t positions;  /* the most tokens of a sample */
    int64_t dim, heads, blocks;
    int64_t hidden;           /* of the MLPs; 0: 4 dim */
    float embedding_dropout;  /* of the sum of token and position; 0 <= dropout < 1 */
    float attention_dropout;  /* of the probabilities */
    float dropout;            /* of what each sublayer adds */
    float epsilon;            /* of LayerNorm; 0: 1e-5 */
    fl_activation activation; /* of the MLPs; 0: tanh GELU */
    fl_dtype dtype;           /* of the activations, FL_F32 or FL_BF16 */
} fl_gpt2_config;

/* GPT-2: embedding of tokens and learned positions, block 1 .. blocks of causal attention and MLP,
 * each behind a LayerNorm, a final LayerNorm, and a head whose weight is tied to the
 * token embedding; both have fl_lm_head_rows(vocabulary) rows. Targets of a sample of T tokens: the
 * T ids that follow. Its layers are "embed", "blocks.<b>.attn" and "blocks.<b>.mlp" for each block
 * b, and "head". All begins as in the original. The result is the caller's. Errors as above.
 * Source: Radford et al., Language models are unsupervised multitask learners, 2019. */
fl_status fl_model_gpt2(const fl_gpt2_config *config, fl_model **out) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
