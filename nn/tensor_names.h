/* Names of a model's parameters in a file of weights that others read, too. A file of Frostline's
 * own has <layer>.<parameter>; a file of Hugging Face may have another name, and several tensors
 * for one parameter. A table of rules translates; it serves reading and writing. */
#ifndef FL_NN_TENSOR_NAMES_H
#define FL_NN_TENSOR_NAMES_H

#include "nn/safetensors.h"

#include <frostline/model.h>

enum { FL_TENSOR_PIECES_MAX = 3, FL_TENSOR_NAME_MAX = 160 };

/* In all names, '#' stands for the number of a block, which counts from 1 here and from 0 there,
 * and
 * '*' at the end of a name for "weight" or "bias". */
typedef struct fl_tensor_rule {
    const char *own;                          /* "blocks.#.attn.qkv.*" */
    const char *theirs[FL_TENSOR_PIECES_MAX]; /* tensors that share the parameter's rows equally */
} fl_tensor_rule;

typedef struct fl_tensor_names {
    const char *format; /* for messages */
    const fl_tensor_rule *rules;
    int n_rules;
    const char *prefix;        /* files of a model without a head lack it: "bert." */
    const char *const *unused; /* ended by NULL: beginnings of names that a file may have besides */
    const char *head;          /* the layer that a file of another task lacks */
} fl_tensor_names;

/* Of BERT with a classifier (BertForSequenceClassification). */
extern const fl_tensor_names fl_bert_tensor_names;

/* One tensor of a file, and the part of a parameter that it holds. */
typedef struct fl_tensor_piece {
    char name[FL_TENSOR_NAME_MAX];
    int64_t first_row, n_rows, cols; /* its shape: [n_rows, cols], or [n_rows] where cols is 1 */
} fl_tensor_piece;

/* The tensors that hold one parameter, in the order of its rows; returns how many.
 * names  NULL: Frostline's own name */
int fl_tensor_pieces(const fl_tensor_names *names, const fl_model *model, int layer, int param,
                     fl_tensor_piece out[FL_TENSOR_PIECES_MAX]);

/* The tensor of a file under `name`, or under a spelling that older files have: without the prefix,
 * or LayerNorm.gamma and beta for weight and bias. NULL if there is none. */
const fl_st_tensor *fl_tensor_find(const fl_tensor_names *names, const fl_safetensors *file,
                                   const char *name);

/* Whether a file's tensor is one that these models do not use: of another head, or no weight. */
bool fl_tensor_is_unused(const fl_tensor_names *names, const char *name);

#endif
