#include "nn/tensor_names.h"

#include "nn/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The body of BERT, whatever its head. */
/* clang-format off */
#define BERT_BODY \
    {"embed.token", {"bert.embeddings.word_embeddings.weight"}, FL_TENSOR_SAME}, \
    {"embed.position", {"bert.embeddings.position_embeddings.weight"}, FL_TENSOR_SAME}, \
    {"embed.type", {"bert.embeddings.token_type_embeddings.weight"}, FL_TENSOR_SAME}, \
    {"embed.ln.*", {"bert.embeddings.LayerNorm.*"}, FL_TENSOR_SAME}, \
    {"blocks.#.attn.qkv.*", \
     {"bert.encoder.layer.#.attention.self.query.*", "bert.encoder.layer.#.attention.self.key.*", \
      "bert.encoder.layer.#.attention.self.value.*"}, \
     FL_TENSOR_SAME}, \
    {"blocks.#.attn.proj.*", {"bert.encoder.layer.#.attention.output.dense.*"}, FL_TENSOR_SAME}, \
    {"blocks.#.attn.ln.*", {"bert.encoder.layer.#.attention.output.LayerNorm.*"}, FL_TENSOR_SAME}, \
    {"blocks.#.mlp.fc.*", {"bert.encoder.layer.#.intermediate.dense.*"}, FL_TENSOR_SAME}, \
    {"blocks.#.mlp.proj.*", {"bert.encoder.layer.#.output.dense.*"}, FL_TENSOR_SAME}, \
    {"blocks.#.mlp.ln.*", {"bert.encoder.layer.#.output.LayerNorm.*"}, FL_TENSOR_SAME}
/* clang-format on */

static const fl_tensor_rule bert_rules[] = {
    BERT_BODY,
    {"head.pooler.*", {"bert.pooler.dense.*"}, FL_TENSOR_SAME},
    {"head.fc.*", {"classifier.*"}, FL_TENSOR_SAME},
};

static const fl_tensor_rule bert_span_rules[] = {
    BERT_BODY,
    {"head.fc.*", {"qa_outputs.*"}, FL_TENSOR_SAME},
};

/* Heads of the tasks that BERT is pretrained on, and of question answering; a list of numbers. */
static const char *const bert_unused[] = {"cls.", "qa_outputs.", "embeddings.position_ids", NULL};

const fl_tensor_names fl_bert_tensor_names = {.format = "Hugging Face",
                                              .rules = bert_rules,
                                              .n_rules = sizeof bert_rules / sizeof *bert_rules,
                                              .prefix = "bert.",
                                              .unused = bert_unused,
                                              .head = "head"};

/* Heads of other tasks, and the pooler, which this one does without. */
static const char *const bert_span_unused[] = {"cls.", "classifier.", "pooler.",
                                               "embeddings.position_ids", NULL};

const fl_tensor_names fl_bert_span_tensor_names = {.format = "Hugging Face",
                                                   .rules = bert_span_rules,
                                                   .n_rules = sizeof bert_span_rules /
                                                              sizeof *bert_span_rules,
                                                   .prefix = "bert.",
                                                   .unused = bert_span_unused,
                                                   .head = "head"};

static const fl_tensor_rule gpt2_rules[] = {
    {"embed.token", {"transformer.wte.weight"}, FL_TENSOR_IDS},
    {"embed.position", {"transformer.wpe.weight"}, FL_TENSOR_SAME},
    {"blocks.#.attn.ln.*", {"transformer.h.#.ln_1.*"}, FL_TENSOR_SAME},
    {"blocks.#.attn.qkv.*", {"transformer.h.#.attn.c_attn.*"}, FL_TENSOR_TRANSPOSED},
    {"blocks.#.attn.proj.*", {"transformer.h.#.attn.c_proj.*"}, FL_TENSOR_TRANSPOSED},
    {"blocks.#.mlp.ln.*", {"transformer.h.#.ln_2.*"}, FL_TENSOR_SAME},
    {"blocks.#.mlp.fc.*", {"transformer.h.#.mlp.c_fc.*"}, FL_TENSOR_TRANSPOSED},
    {"blocks.#.mlp.proj.*", {"transformer.h.#.mlp.c_proj.*"}, FL_TENSOR_TRANSPOSED},
    {"head.ln.*", {"transformer.ln_f.*"}, FL_TENSOR_SAME},
    {"head.fc.weight", {"lm_head.weight"}, FL_TENSOR_TIED},
};

/* Masks that old files hold, and heads of other tasks. */
static const char *const gpt2_unused[] = {"h.#.attn.bias", "h.#.attn.masked_bias", "score.",
                                          "multiple_choice_head.", NULL};

const fl_tensor_names fl_gpt2_tensor_names = {.format = "Hugging Face",
                                              .rules = gpt2_rules,
                                              .n_rules = sizeof gpt2_rules / sizeof *gpt2_rules,
                                              .prefix = "transformer.",
                                              .unused = gpt2_unused,
                                              .head = ""};

static const fl_tensor_rule vit_rules[] = {
    {"embed.patch.*", {"vit.embeddings.patch_embeddings.projection.*"}, FL_TENSOR_PATCHES},
    {"embed.cls", {"vit.embeddings.cls_token"}, FL_TENSOR_BATCH},
    {"embed.pos", {"vit.embeddings.position_embeddings"}, FL_TENSOR_BATCH},
    {"blocks.#.attn.ln.*", {"vit.encoder.layer.#.layernorm_before.*"}, FL_TENSOR_SAME},
    {"blocks.#.attn.qkv.*",
     {"vit.encoder.layer.#.attention.attention.query.*",
      "vit.encoder.layer.#.attention.attention.key.*",
      "vit.encoder.layer.#.attention.attention.value.*"},
     FL_TENSOR_SAME},
    {"blocks.#.attn.proj.*", {"vit.encoder.layer.#.attention.output.dense.*"}, FL_TENSOR_SAME},
    {"blocks.#.mlp.ln.*", {"vit.encoder.layer.#.layernorm_after.*"}, FL_TENSOR_SAME},
    {"blocks.#.mlp.fc.*", {"vit.encoder.layer.#.intermediate.dense.*"}, FL_TENSOR_SAME},
    {"blocks.#.mlp.proj.*", {"vit.encoder.layer.#.output.dense.*"}, FL_TENSOR_SAME},
    {"head.ln.*", {"vit.layernorm.*"}, FL_TENSOR_SAME},
    {"head.fc.*", {"classifier.*"}, FL_TENSOR_SAME},
};

/* The pooler of a ViTModel, which no classifier reads; what masked images are trained with. */
static const char *const vit_unused[] = {"pooler.", "embeddings.mask_token", "decoder.", NULL};

const fl_tensor_names fl_vit_tensor_names = {.format = "Hugging Face",
                                             .rules = vit_rules,
                                             .n_rules = sizeof vit_rules / sizeof *vit_rules,
                                             .prefix = "vit.",
                                             .unused = vit_unused,
                                             .head = "head.fc"};

/* What '#' and '*' stand for in a name. */
typedef struct filling {
    long block; /* from 1 */
    const char *end;
} filling;

/* Whether `name` begins with the pattern, up to a '*' or the pattern's end, and what follows. */
static bool match_start(const char *pattern, const char *name, filling *out)
{
    *out = (filling){0, ""};
    for (; *pattern != '\0' && *pattern != '*'; pattern++) {
        if (*pattern == '#') {
            char *after = NULL;
            out->block = strtol(name, &after, 10);
            if (after == name || *name < '0' || *name > '9') {
                return false;
            }
            name = after;
        } else if (*pattern != *name++) {
            return false;
        }
    }
    out->end = name;
    return true;
}

/* Whether `name` fits the pattern as a whole. */
static bool match_name(const char *pattern, const char *name, filling *out)
{
    size_t n = strlen(pattern);
    bool open = n > 0 && pattern[n - 1] == '*';
    return match_start(pattern, name, out) &&
           (open ? strcmp(out->end, "weight") == 0 || strcmp(out->end, "bias") == 0
                 : out->end[0] == '\0');
}

static void fill_name(const char *pattern, const filling *f, char out[FL_TENSOR_NAME_MAX])
{
    const char *number = strchr(pattern, '#');
    int before = (int)(number == NULL ? strlen(pattern) : (size_t)(number - pattern));
    char text[FL_TENSOR_NAME_MAX], block[24] = "";
    if (number != NULL) {
        snprintf(block, sizeof block, "%ld", f->block - 1);
    }
    snprintf(text, sizeof text, "%.*s%s%s", before, pattern, block,
             number == NULL ? "" : number + 1);
    size_t n = strlen(text);
    if (n > 0 && text[n - 1] == '*') {
        text[n - 1] = '\0';
    }
    snprintf(out, FL_TENSOR_NAME_MAX, "%s%s", text, f->end);
}

static void set_dims(fl_tensor_piece *p, int n, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t dims[] = {a, b, c, d};
    p->n_dims = n;
    memcpy(p->dims, dims, sizeof dims);
}

/* The shape in the file. */
static void set_form(fl_tensor_piece *p, fl_tensor_form form, const fl_tensor_sizes *sizes)
{
    p->tied = form == FL_TENSOR_TIED;
    p->n_rows = p->tied || form == FL_TENSOR_IDS ? sizes->n_ids : p->n_rows;
    p->transposed = form == FL_TENSOR_TRANSPOSED && p->cols > 1;
    if (p->transposed) {
        set_dims(p, 2, p->cols, p->n_rows, 0, 0);
    } else if (form == FL_TENSOR_BATCH) {
        set_dims(p, 3, 1, p->n_rows, p->cols, 0);
    } else if (form == FL_TENSOR_PATCHES && p->cols > 1) {
        set_dims(p, 4, p->n_rows, sizes->channels, sizes->patch, sizes->patch);
    } else {
        set_dims(p, p->cols == 1 ? 1 : 2, p->n_rows, p->cols, 0, 0);
    }
}

/* The rule of a parameter, and what its names are filled with; NULL: it has its own name. */
static const fl_tensor_rule *find_rule(const fl_tensor_names *names, const char *own, filling *f)
{
    for (int r = 0; names != NULL && r < names->n_rules; r++) {
        if (match_name(names->rules[r].own, own, f)) {
            return &names->rules[r];
        }
    }
    return NULL;
}

int fl_tensor_pieces(const fl_tensor_names *names, const fl_model *model, int layer, int param,
                     fl_tensor_piece out[FL_TENSOR_PIECES_MAX])
{
    const fl_param_spec *spec = &fl_model_params(model, layer)->spec[param];
    char own[FL_TENSOR_NAME_MAX];
    filling f;
    int n = 0;
    snprintf(own, sizeof own, "%s.%s", fl_model_layer_name(model, layer), spec->name);
    const fl_tensor_rule *rule = find_rule(names, own, &f);
    for (; rule != NULL && n < FL_TENSOR_PIECES_MAX && rule->theirs[n] != NULL; n++) {
        fill_name(rule->theirs[n], &f, out[n].name);
    }
    if (n == 0) {
        memcpy(out[n++].name, own, sizeof own);
    }
    for (int i = 0; i < n; i++) {
        out[i].n_rows = spec->rows / n;
        out[i].first_row = i * out[i].n_rows;
        out[i].cols = spec->cols;
        set_form(&out[i], rule == NULL ? FL_TENSOR_SAME : rule->form, fl_model_tensor_sizes(model));
    }
    return n;
}

int fl_tensor_pieces_to_write(const fl_model *model, int layer, int param,
                              fl_tensor_piece out[FL_TENSOR_PIECES_MAX])
{
    int n = fl_tensor_pieces(fl_model_tensor_names(model), model, layer, param, out);
    return out[0].tied ? 0 : n;
}

bool fl_tensor_has_shape(const fl_st_tensor *tensor, const fl_tensor_piece *piece)
{
    if (tensor == NULL) {
        return false;
    }
    bool column = piece->n_dims == 1 && tensor->n_dims == 2 && tensor->dims[1] == 1;
    bool same = column || tensor->n_dims == piece->n_dims;
    for (int i = 0; same && i < piece->n_dims; i++) {
        same = tensor->dims[i] == piece->dims[i];
    }
    return same;
}

/* "x.LayerNorm.weight" as "x.LayerNorm.gamma"; false for another name. */
static bool old_spelling(const char *name, char out[FL_TENSOR_NAME_MAX])
{
    static const char *const spellings[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                               {"LayerNorm.bias", "LayerNorm.beta"}};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(name), end = strlen(spellings[i][0]);
        if (n >= end && strcmp(name + n - end, spellings[i][0]) == 0) {
            snprintf(out, FL_TENSOR_NAME_MAX, "%.*s%s", (int)(n - end), name, spellings[i][1]);
            return true;
        }
    }
    return false;
}

const fl_st_tensor *fl_tensor_find(const fl_tensor_names *names, const fl_safetensors *file,
                                   const char *name)
{
    const fl_st_tensor *t = fl_safetensors_find(file, name);
    size_t n = names == NULL ? 0 : strlen(names->prefix);
    char old[FL_TENSOR_NAME_MAX];
    if (names == NULL || t != NULL) {
        return t;
    }
    bool has_old = old_spelling(name, old), has_prefix = strncmp(name, names->prefix, n) == 0;
    t = has_prefix ? fl_safetensors_find(file, name + n) : NULL;
    if (t == NULL && has_old) {
        t = fl_safetensors_find(file, old);
    }
    return t == NULL && has_old && has_prefix ? fl_safetensors_find(file, old + n) : t;
}

bool fl_tensor_is_unused(const fl_tensor_names *names, const char *name)
{
    filling f;
    if (names == NULL) {
        return false;
    }
    size_t n = strlen(names->prefix);
    const char *bare = strncmp(name, names->prefix, n) == 0 ? name + n : name;
    for (int i = 0; names->unused[i] != NULL; i++) {
        if (match_start(names->unused[i], bare, &f)) {
            return true;
        }
    }
    return false;
}
