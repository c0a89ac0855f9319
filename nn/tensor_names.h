/* Names of a model's parameters in a file of weights that others read, too. A file of Frostline's
 * own has <layer>.<parameter>; a file of Hugging Face may have another name, another shape, and
 * several tensors for one parameter. A table of rules translates; it serves reading and writing. */
#ifndef FL_NN_TENSOR_NAMES_H
#define FL_NN_TENSOR_NAMES_H

#include "nn/safetensors/safetensors.h"

#include <frostline/model.h>

#include <stdbool.h>

enum { FL_TENSOR_PIECES_MAX = 3, FL_TENSOR_NAME_MAX = 160 };

/* The shape in the file of a parameter [rows, cols]. */
typedef enum fl_tensor_form {
    FL_TENSOR_SAME = 0,   /* [rows, cols], or [rows] where cols is 1 */
    FL_TENSOR_TRANSPOSED, /* [cols, rows], but for a vector: GPT-2's Conv1D */
    FL_TENSOR_IDS,        /* [n_ids, cols]: without the rows that fill a vocabulary up */
    FL_TENSOR_TIED,       /* as IDS; files leave it out, since they have the tensor it is tied to */
    FL_TENSOR_PATCHES,    /* [rows, channels, patch, patch], but for a vector: a convolution's */
    FL_TENSOR_BATCH       /* [1, rows, cols] */
} fl_tensor_form;

/* In all names, '#' stands for the number of a block, which counts from 1 here and from 0 there,
 * and '*' at the end of a name for "weight" or "bias". */
typedef struct fl_tensor_rule {
    const char *own;                          /* "blocks.#.attn.qkv.*" */
    const char *theirs[FL_TENSOR_PIECES_MAX]; /* tensors that share the parameter's rows equally */
    fl_tensor_form form;
} fl_tensor_rule;

/* What the forms need to know of a model; 0 where it has no such thing. */
typedef struct fl_tensor_sizes {
    int64_t n_ids;           /* of the vocabulary */
    int64_t channels, patch; /* of images */
} fl_tensor_sizes;

typedef struct fl_tensor_names {
    const char *format; /* for messages */
    const fl_tensor_rule *rules;
    int n_rules;
    const char *prefix; /* files of a model without a head lack it: "bert." */
    /* Ended by NULL: beginnings of names, behind the prefix or without it, that a file may have
     * besides, in which '#' is a number. */
    const char *const *unused;
    const char *head; /* the layer that a file of another task lacks, or "" */
} fl_tensor_names;

/* BertForSequenceClassification, GPT2LMHeadModel, ViTForImageClassification. */
extern const fl_tensor_names fl_bert_tensor_names;
extern const fl_tensor_names fl_gpt2_tensor_names;
extern const fl_tensor_names fl_vit_tensor_names;

/* Of BERT that answers questions (BertForQuestionAnswering). */
extern const fl_tensor_names fl_bert_span_tensor_names;

/* One tensor of a file, and the part of a parameter that it holds. */
typedef struct fl_tensor_piece {
    char name[FL_TENSOR_NAME_MAX];
    int64_t first_row, n_rows, cols; /* of the parameter */
    int n_dims;                      /* of the tensor */
    int64_t dims[FL_ST_DIMS_MAX];
    bool transposed; /* the tensor is [cols, n_rows] */
    bool tied;       /* the file may have it under another name alone */
} fl_tensor_piece;

/* The tensors that hold one parameter, in the order of its rows; returns how many.
 * names  NULL: Frostline's own name */
int fl_tensor_pieces(const fl_tensor_names *names, const fl_model *model, int layer, int param,
                     fl_tensor_piece out[FL_TENSOR_PIECES_MAX]);

/* The same, by the model's own table, of a file that is written: it has no tied ones. */
int fl_tensor_pieces_to_write(const fl_model *model, int layer, int param,
                              fl_tensor_piece out[FL_TENSOR_PIECES_MAX]);

/* Whether the tensor has the piece's shape. A vector may also be a matrix of one column, as some
 * files have it. NULL: no. */
bool fl_tensor_has_shape(const fl_st_tensor *tensor, const fl_tensor_piece *piece);

/* The tensor of a file under `name`, or under a spelling that older files have: without the prefix,
 * or LayerNorm.gamma and beta for weight and bias. NULL if there is none. */
const fl_st_tensor *fl_tensor_find(const fl_tensor_names *names, const fl_safetensors *file,
                                   const char *name);

/* Whether a file's tensor is one that these models do not use: of another head, or no weight. */
bool fl_tensor_is_unused(const fl_tensor_names *names, const char *name);

#endif
