#include "nn/tensor_names.h"

#include "nn/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fl_tensor_rule bert_rules[] = {
    {"embed.token", {"bert.embeddings.word_embeddings.weight"}},
    {"embed.position", {"bert.embeddings.position_embeddings.weight"}},
    {"embed.type", {"bert.embeddings.token_type_embeddings.weight"}},
    {"embed.ln.*", {"bert.embeddings.LayerNorm.*"}},
    {"blocks.#.attn.qkv.*",
     {"bert.encoder.layer.#.attention.self.query.*", "bert.encoder.layer.#.attention.self.key.*",
      "bert.encoder.layer.#.attention.self.value.*"}},
    {"blocks.#.attn.proj.*", {"bert.encoder.layer.#.attention.output.dense.*"}},
    {"blocks.#.attn.ln.*", {"bert.encoder.layer.#.attention.output.LayerNorm.*"}},
    {"blocks.#.mlp.fc.*", {"bert.encoder.layer.#.intermediate.dense.*"}},
    {"blocks.#.mlp.proj.*", {"bert.encoder.layer.#.output.dense.*"}},
    {"blocks.#.mlp.ln.*", {"bert.encoder.layer.#.output.LayerNorm.*"}},
    {"head.pooler.*", {"bert.pooler.dense.*"}},
    {"head.fc.*", {"classifier.*"}},
};

/* Heads of the tasks that BERT is pretrained on, and of question answering; a list of numbers. */
static const char *const bert_unused[] = {"cls.", "qa_outputs.", "bert.embeddings.position_ids",
                                          "embeddings.position_ids", NULL};

const fl_tensor_names fl_bert_tensor_names = {.format = "Hugging Face",
                                              .rules = bert_rules,
                                              .n_rules = sizeof bert_rules / sizeof *bert_rules,
                                              .prefix = "bert.",
                                              .unused = bert_unused,
                                              .head = "head"};

/* What '#' and '*' stand for in a name. */
typedef struct filling {
    long block; /* from 1 */
    const char *end;
} filling;

/* Whether `name` fits the pattern, and how. */
static bool match_name(const char *pattern, const char *name, filling *out)
{
    *out = (filling){0, ""};
    for (; *pattern != '\0' && *pattern != '*'; pattern++) {
        if (*pattern == '#') {
            char *after = NULL;
            out->block = strtol(name, &after, 10);
            if (after == name) {
                return false;
            }
            name = after;
        } else if (*pattern != *name++) {
            return false;
        }
    }
    out->end = name;
    return *pattern == '*' ? strcmp(name, "weight") == 0 || strcmp(name, "bias") == 0
                           : *name == '\0';
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

int fl_tensor_pieces(const fl_tensor_names *names, const fl_model *model, int layer, int param,
                     fl_tensor_piece out[FL_TENSOR_PIECES_MAX])
{
    const fl_param_spec *spec = &fl_model_params(model, layer)->spec[param];
    char own[FL_TENSOR_NAME_MAX];
    filling f;
    int n = 0;
    snprintf(own, sizeof own, "%s.%s", fl_model_layer_name(model, layer), spec->name);
    for (int r = 0; names != NULL && n == 0 && r < names->n_rules; r++) {
        const fl_tensor_rule *rule = &names->rules[r];
        if (match_name(rule->own, own, &f)) {
            for (; n < FL_TENSOR_PIECES_MAX && rule->theirs[n] != NULL; n++) {
                fill_name(rule->theirs[n], &f, out[n].name);
            }
        }
    }
    if (n == 0) {
        memcpy(out[n++].name, own, sizeof own);
    }
    for (int i = 0; i < n; i++) {
        out[i].n_rows = spec->rows / n;
        out[i].first_row = i * out[i].n_rows;
        out[i].cols = spec->cols;
    }
    return n;
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
    for (int i = 0; names != NULL && names->unused[i] != NULL; i++) {
        if (strncmp(name, names->unused[i], strlen(names->unused[i])) == 0) {
            return true;
        }
    }
    return false;
}
