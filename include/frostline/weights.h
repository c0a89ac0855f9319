/* Weights in safetensors files, by name: those that a run leaves, or any others. */
#ifndef FROSTLINE_WEIGHTS_H
#define FROSTLINE_WEIGHTS_H

#include <frostline/status.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FL_WEIGHTS_DIMS_MAX = 8 };

typedef struct fl_weights fl_weights;

/* One tensor. A model's parameter is [rows, cols], or [rows] where cols is 1. */
typedef struct fl_weights_tensor {
    const char *name;  /* "<layer>.<parameter>", as in "blocks.3.attn.qkv.weight"; valid until
                        * fl_weights_close */
    const char *dtype; /* in the file: "F32", "F16", "BF16", ...; constant */
    int n_dims;
    int64_t dims[FL_WEIGHTS_DIMS_MAX];
    int64_t n_elements;
} fl_weights_tensor;

/* Open the weights that `path` names, as model.init does: a run directory, a folder that holds
 * model.safetensors or model.safetensors.index.json, or such a file; also fl_run_result.model. All
 * headers are read and checked, no tensor is. The result is the caller's, for fl_weights_close.
 * Returns FL_EINVAL (no path), FL_EIO, FL_EFORMAT with the file, the tensor, what was found and
 * what is allowed, or FL_ENOMEM; *out is then NULL. */
fl_status fl_weights_open(const char *path, fl_weights **out) FL_MUST_CHECK;

/* Accepts NULL and leaves NULL. */
void fl_weights_close(fl_weights **weights);

/* The tensors, sorted by name. i: 0 .. count - 1. Threads: any. */
int fl_weights_count(const fl_weights *weights);
fl_weights_tensor fl_weights_at(const fl_weights *weights, int i);

/* The tensor of this name. Returns FL_EINVAL, with the names that there are. Threads: any. */
fl_status fl_weights_find(const fl_weights *weights, const char *name,
                          fl_weights_tensor *out) FL_MUST_CHECK;

/* Read the tensor of this name as fp32, row by row: F32, F16 and BF16 exactly.
 * n_elements  that `out` holds: those of the tensor, or FL_EINVAL
 * out         [n_elements]; undefined after a failure
 * Returns     FL_EINVAL (no such tensor, another number of elements), FL_ENOTSUP for another type,
 *             FL_EIO, also if the file was written to since it was opened
 * Threads     any, for one fl_weights at once, too */
fl_status fl_weights_read(const fl_weights *weights, const char *name, float *out,
                          int64_t n_elements) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
