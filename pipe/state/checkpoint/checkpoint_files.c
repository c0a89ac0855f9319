#include "pipe/state/checkpoint/checkpoint_files.h"

#include "device/system/alloc.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char folder_prefix[] = "step-";

enum { STEP_DIGITS = 9, STEP_DIGITS_MAX = 19 };

const char *fl_checkpoint_folder_name(int64_t step, char name[FL_CHECKPOINT_NAME_MAX])
{
    snprintf(name, FL_CHECKPOINT_NAME_MAX, "%s%0*" PRId64, folder_prefix, STEP_DIGITS, step);
    return name;
}

/* Only names that fl_checkpoint_folder_name gives: a step has one name. */
int64_t fl_checkpoint_folder_step(const char *name)
{
    char again[FL_CHECKPOINT_NAME_MAX];
    size_t n_prefix = sizeof folder_prefix - 1, n = strlen(name);
    if (strncmp(name, folder_prefix, n_prefix) != 0 || n < n_prefix + STEP_DIGITS ||
        n > n_prefix + STEP_DIGITS_MAX || strspn(name + n_prefix, "0123456789") != n - n_prefix) {
        return -1;
    }
    long long step = strtoll(name + n_prefix, NULL, 10);
    return strcmp(fl_checkpoint_folder_name(step, again), name) == 0 ? step : -1;
}

const char *fl_checkpoint_file_name(fl_checkpoint_part part, int layer,
                                    char name[FL_CHECKPOINT_NAME_MAX])
{
    snprintf(name, FL_CHECKPOINT_NAME_MAX, "%s-%03d.safetensors",
             part == FL_CHECKPOINT_WEIGHTS ? "weights" : "moments", layer);
    return name;
}

int fl_checkpoint_n_tensors(const fl_model *model, fl_checkpoint_part part, int layer,
                            int n_moments)
{
    return fl_model_params(model, layer)->n * (part == FL_CHECKPOINT_WEIGHTS ? 1 : n_moments);
}

/* The rank whose turn it is among the replicas of the stage that holds the layer. */
static int owner_rank(const fl_plan *plan, int layer)
{
    int stage = 0;
    while (stage + 1 < plan->K && plan->first[stage + 1] <= layer) {
        stage++;
    }
    return fl_plan_rank(plan, layer % plan->R, stage);
}

int fl_checkpoint_writer_rank(const fl_model *model, const fl_plan *plan, const int *parked,
                              int n_moments, fl_checkpoint_part part, int layer)
{
    if (fl_checkpoint_n_tensors(model, part, layer, n_moments) == 0) {
        return -1;
    }
    bool is_parked = part == FL_CHECKPOINT_MOMENTS && layer < fl_frozen_layers(model, plan->F);
    return is_parked ? parked[layer] : owner_rank(plan, layer);
}

const char *fl_checkpoint_tensor_name(const fl_model *model, fl_checkpoint_part part, int layer,
                                      int n_moments, int i, char name[FL_CHECKPOINT_TENSOR_MAX])
{
    bool is_weight = part == FL_CHECKPOINT_WEIGHTS;
    const fl_param_spec *spec = &fl_model_params(model, layer)->spec[is_weight ? i : i / n_moments];
    int n = snprintf(name, FL_CHECKPOINT_TENSOR_MAX, "%s.%s", fl_model_layer_name(model, layer),
                     spec->name);
    if (!is_weight) {
        snprintf(name + n, FL_CHECKPOINT_TENSOR_MAX - (size_t)n, ".moment.%d", i % n_moments);
    }
    return name;
}

fl_status fl_checkpoint_layout_init(const fl_model *model, fl_checkpoint_part part, int layer,
                                    int n_moments, fl_st_layout *out)
{
    static const fl_st_pair metadata[] = {{"format", "pt"}};
    int n = fl_checkpoint_n_tensors(model, part, layer, n_moments);
    fl_st_spec *specs = NULL;
    char(*names)[FL_CHECKPOINT_TENSOR_MAX] = NULL;
    *out = (fl_st_layout){0};
    fl_status status = fl_alloc_array((size_t)n, sizeof *specs, (void **)&specs);
    if (status == FL_OK) {
        status = fl_alloc_array((size_t)n, sizeof *names, (void **)&names);
    }
    for (int i = 0; status == FL_OK && i < n; i++) {
        int param = part == FL_CHECKPOINT_WEIGHTS ? i : i / n_moments;
        const fl_param_spec *p = &fl_model_params(model, layer)->spec[param];
        fl_checkpoint_tensor_name(model, part, layer, n_moments, i, names[i]);
        specs[i] = (fl_st_spec){
            .name = names[i], .n_dims = p->cols == 1 ? 1 : 2, .dims = {p->rows, p->cols}};
    }
    if (status == FL_OK) {
        status = fl_st_layout_init(out, FL_ST_F32, specs, n, metadata, 1);
    }
    fl_free(specs);
    fl_free(names);
    return status;
}
