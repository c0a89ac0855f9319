/* Writes a saved model as a folder of its own: model.safetensors and config.json. */
#ifndef FL_LAUNCHER_RUN_SAVED_MODEL_EXPORT_H
#define FL_LAUNCHER_RUN_SAVED_MODEL_EXPORT_H

#include "launcher/run/saved/saved_model.h"
#include "nn/safetensors/safetensors.h"

typedef struct fl_model_export_result {
    int n_tensors;
    int64_t size_bytes; /* of model.safetensors */
} fl_model_export_result;

/* FL_EINVAL, with what is allowed, for any other than fp32, bf16 and fp16. */
fl_status fl_export_dtype_parse(const char *text, fl_st_dtype *out) FL_MUST_CHECK;

/* Export the weights, which are those of `saved`, into `folder`, which is made if it does not
 * exist, and must not hold a model. Elements are rounded to nearest, ties to even. Both files get
 * their names when they are complete, config.json first; after a failure nothing of them is left.
 * Holds no more than one piece of a tensor. Returns FL_EINVAL, FL_EIO or FL_EFORMAT; FL_EINVAL also
 * names the first tensor with a finite value that `dtype` cannot hold. */
fl_status fl_model_export(const fl_saved_model *saved, fl_safetensors *weights, const char *folder,
                          fl_st_dtype dtype, fl_model_export_result *result) FL_MUST_CHECK;

#endif
