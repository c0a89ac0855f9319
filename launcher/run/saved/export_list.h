/* The tensors of an exported model, and where each one's elements lie in the saved one. */
#ifndef FL_LAUNCHER_RUN_SAVED_EXPORT_LIST_H
#define FL_LAUNCHER_RUN_SAVED_EXPORT_LIST_H

#include "launcher/hf/hf_config.h"
#include "nn/safetensors/safetensors.h"
#include "nn/tensor_names.h"

#include <stdbool.h>

typedef struct fl_export_tensor {
    char name[FL_TENSOR_NAME_MAX];
    int n_dims;
    int64_t dims[FL_ST_DIMS_MAX];
    const fl_st_tensor *from; /* borrowed from the file */
    int64_t first;            /* its elements from here on */
    int64_t rows, cols;       /* of them */
    bool transposed;          /* they become [cols, rows] */
} fl_export_tensor;

typedef struct fl_export_list {
    int n;
    fl_export_tensor *tensor; /* [n] owned */
} fl_export_list;

/* All tensors of the file as they are. FL_EINVAL for a name that is too long, FL_ENOMEM. On failure
 * nothing is held. */
fl_status fl_export_list_all(const fl_safetensors *file, fl_export_list *out) FL_MUST_CHECK;

/* The tensors that a Hugging Face folder has of this model. The file has their names, as a run's
 * model does, or Frostline's, as a checkpoint does. FL_EFORMAT for a tensor that it lacks or has in
 * another shape, FL_ENOMEM. */
fl_status fl_export_list_hf(const fl_safetensors *file, const fl_hf_config *config,
                            fl_export_list *out) FL_MUST_CHECK;

void fl_export_list_fini(fl_export_list *list);

#endif
