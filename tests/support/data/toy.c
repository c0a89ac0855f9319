#include "support/data/toy.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 14, PIXELS = SIDE * SIDE, CLASSES = 4 };

typedef struct toy {
    int64_t n[2];
} toy;

static int64_t toy_count(const void *self, fl_split split)
{
    return ((const toy *)self)->n[split];
}

static fl_status toy_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                           int64_t *n_targets)
{
    (void)self, (void)split, (void)id;
    *input = (fl_shape){.tokens = 1, .width = PIXELS, .dtype = FL_F32};
    *n_targets = 1;
    return FL_OK;
}

static fl_status toy_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    return toy_shape(self, FL_TRAIN, 0, input, n_targets);
}

static int class_of(fl_split split, int64_t id)
{
    return (int)(fl_mix64((uint64_t)id, split == FL_TRAIN ? 1 : 2) % CLASSES);
}

/* A bar whose place tells the class, noise of the sample, and a shift of the epoch. */
static fl_status toy_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    (void)self;
    float *pixel = input;
    int which = class_of(split, key->id);
    int shift =
        key->augment
            ? (int)(fl_mix64(key->seed + (uint64_t)key->epoch * 1000003u, (uint64_t)key->id) % 3)
            : 1;
    for (int i = 0; i < PIXELS; i++) {
        uint32_t counter[4] = {(uint32_t)i, (uint32_t)key->id, (uint32_t)split, 0}, word[4];
        fl_philox(counter, (uint32_t[2]){7, 11}, word);
        int row = i / SIDE, column = i % SIDE;
        int place = which < 2 ? row : column;
        bool bar = place == 3 + 5 * (which % 2) + shift;
        pixel[i] = (bar ? 1.0f : 0.0f) + 0.5f * fl_unit(word[0]) - 0.25f;
    }
    return FL_OK;
}

static fl_status toy_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    (void)self;
    *targets = class_of(split, id);
    return FL_OK;
}

static uint64_t toy_fingerprint(const void *self)
{
    return (uint64_t)((const toy *)self)->n[0];
}

static void toy_destroy(void *self)
{
    fl_free(self);
}

static const fl_dataset_ops toy_ops = {.head = FL_TABLE_HEAD(fl_dataset_ops),
                                       .kind = "toy",
                                       .count = toy_count,
                                       .shape = toy_shape,
                                       .max_shape = toy_max_shape,
                                       .read = toy_read,
                                       .targets = toy_targets,
                                       .fingerprint = toy_fingerprint,
                                       .destroy = toy_destroy};

fl_status fl_toy_dataset(int64_t n, fl_dataset *out)
{
    void *self = NULL;
    FL_TRY(fl_alloc(sizeof(toy), &self));
    *(toy *)self = (toy){.n = {n, n / 4}};
    *out = (fl_dataset){.ops = &toy_ops, .self = self};
    return FL_OK;
}

/* The ops of data sets that fl_toy_make_plain changed. */
static fl_dataset_ops plain_ops;

static fl_status read_plain(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    fl_sample_key plain = *key;
    plain.augment = false;
    return toy_ops.read(self, split, &plain, input);
}

void fl_toy_make_plain(fl_dataset *data)
{
    plain_ops = toy_ops;
    plain_ops.read = read_plain;
    data->ops = &plain_ops;
}

fl_status fl_toy_model(int64_t blocks, float dropout, fl_model **out)
{
    return fl_toy_model_of(blocks, dropout, FL_F32, out);
}

fl_status fl_toy_model_of(int64_t blocks, float dropout, fl_dtype dtype, fl_model **out)
{
    fl_vit_config config = {.channels = 1,
                            .height = SIDE,
                            .width = SIDE,
                            .patch = 7,
                            .dim = 24,
                            .heads = 3,
                            .blocks = blocks,
                            .n_classes = CLASSES,
                            .dropout = dropout,
                            .dtype = dtype};
    return fl_model_vit(&config, out);
}

int fl_toy_losses(const char *run_dir, double *out, int capacity)
{
    char path[4200], line[4096];
    snprintf(path, sizeof path, "%s/steps.jsonl", run_dir);
    FILE *file = fopen(path, "r");
    int n = 0;
    if (file == NULL) {
        return -1;
    }
    while (n < capacity && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, "\"loss\":");
        if (at == NULL) {
            n = -1;
            break;
        }
        out[n++] = strtod(at + strlen("\"loss\":"), NULL);
    }
    fclose(file);
    return n;
}

fl_status fl_toy_same_shape(void *self, const fl_shape *in, fl_shape *out)
{
    (void)self;
    *out = *in;
    return FL_OK;
}

fl_status fl_toy_no_params(void *self, fl_param_list *list)
{
    (void)self, (void)list;
    return FL_OK;
}
