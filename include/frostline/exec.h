/* The context in which a layer runs: its parameters, memory, the micro-batch and the kernels.
 *
 * Every kernel here runs on the device that owns the stage, in order, on the exec's stream. The
 * data of tensors, parameters and gradients, and kept and scratch memory, lie in device memory:
 * only where fl_exec_host_memory is true may a layer read and write them itself. In a dry run
 * (memory planning) kernels compute nothing and memory holds zeros. Threads: the caller's. */
#ifndef FROSTLINE_EXEC_H
#define FROSTLINE_EXEC_H

#include <frostline/kernels.h>
#include <frostline/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The current micro-batch. Borrowed; valid during the call.
 * sample_ids  [n_samples], as the run numbers them; see docs/data.md; host memory
 * sample_ids_device  the same in device memory
 * epoch_key_device  what masks are drawn from, as fl_mask has it
 * targets_host  what the targets of a loss are in device memory, in host memory; NULL: they are in
 *              host memory themselves */
typedef struct fl_batch {
    int64_t n_samples;
    const int64_t *sample_ids;
    const int64_t *sample_ids_device;
    const uint64_t *epoch_key_device;
    const void *targets_host;
    uint64_t seed;
    int64_t epoch;
    int64_t n_global; /* samples of the global batch: the loss is the mean over all their targets */
} fl_batch;

const fl_batch *fl_exec_batch(const fl_exec *x);

/* False in evaluation and below the frost line: no dropout, and no backward will follow. */
bool fl_exec_training(const fl_exec *x);

/* Whether device memory is host memory that a layer or a loss written in plain C may read and
 * write. Where it is false, only kernels may: what has no kernel fails with FL_ENOTSUP. */
bool fl_exec_host_memory(const fl_exec *x);

/* Parameter i of this layer, in the order of params(). Borrowed; NULL if there is no such one. */
fl_weight *fl_exec_weight(fl_exec *x, int i);

/* Where to add the gradient of parameter i: [rows, cols]. NULL if it is not needed. */
float *fl_exec_grad(fl_exec *x, int i);

enum { FL_KEEP_MAX = 8 };

/* Memory that forward fills and backward of the same micro-batch reads, under the number `slot`
 * (0 .. FL_KEEP_MAX - 1). Without a backward to come it lives until forward returns.
 * Returns FL_EBUDGET if the stage's arena is full. */
fl_status fl_exec_keep(fl_exec *x, int slot, size_t size_bytes, void **out) FL_MUST_CHECK;

/* In backward: what forward kept under `slot`. */
void *fl_exec_kept(const fl_exec *x, int slot);

/* In backward: what this layer's forward read and wrote. Borrowed. */
const fl_tensor *fl_exec_input(const fl_exec *x);
const fl_tensor *fl_exec_output(const fl_exec *x);

/* Memory until the present call returns. 64-byte aligned, not cleared. */
fl_status fl_exec_scratch(fl_exec *x, size_t size_bytes, void **out) FL_MUST_CHECK;

/* ---- kernels: the fields of their arguments are explained in kernels.h ----
 *
 * Each returns FL_EINVAL for arguments that cannot be (a weight that is NULL, a dtype that is no
 * float), FL_ENOTSUP for what the device has no kernel for. A micro-batch without samples or rows
 * computes nothing. Calls return before the work is done on devices that compute asynchronously;
 * its errors then come from a later call. */

fl_status fl_linear(fl_exec *x, const fl_linear_args *args) FL_MUST_CHECK;
fl_status fl_linear_backward_input(fl_exec *x,
                                   const fl_linear_backward_input_args *args) FL_MUST_CHECK;
fl_status fl_linear_backward_weights(fl_exec *x,
                                     const fl_linear_backward_weights_args *args) FL_MUST_CHECK;

fl_status fl_activate(fl_exec *x, const fl_activate_args *args) FL_MUST_CHECK;
fl_status fl_activate_backward(fl_exec *x, const fl_activate_backward_args *args) FL_MUST_CHECK;
fl_status fl_layernorm(fl_exec *x, const fl_norm_args *args) FL_MUST_CHECK;
fl_status fl_layernorm_backward(fl_exec *x, const fl_norm_backward_args *args) FL_MUST_CHECK;
fl_status fl_rmsnorm(fl_exec *x, const fl_norm_args *args) FL_MUST_CHECK;
fl_status fl_rmsnorm_backward(fl_exec *x, const fl_norm_backward_args *args) FL_MUST_CHECK;

/* Masks: a layer sets p and stream of `mask`. Without training nothing is dropped; fl_dropout then
 * copies. */
fl_status fl_attention(fl_exec *x, const fl_attention_args *args) FL_MUST_CHECK;
fl_status fl_attention_backward(fl_exec *x, const fl_attention_backward_args *args) FL_MUST_CHECK;
fl_status fl_dropout(fl_exec *x, const fl_dropout_args *args) FL_MUST_CHECK;

fl_status fl_add(fl_exec *x, const fl_add_args *args) FL_MUST_CHECK;
fl_status fl_convert(fl_exec *x, const fl_convert_args *args) FL_MUST_CHECK;
fl_status fl_gather_rows(fl_exec *x, const fl_gather_rows_args *args) FL_MUST_CHECK;
fl_status fl_scatter_rows(fl_exec *x, const fl_scatter_rows_args *args) FL_MUST_CHECK;
fl_status fl_embed(fl_exec *x, const fl_embed_args *args) FL_MUST_CHECK;
fl_status fl_embed_backward(fl_exec *x, const fl_embed_backward_args *args) FL_MUST_CHECK;
fl_status fl_patchify(fl_exec *x, const fl_patchify_args *args) FL_MUST_CHECK;
fl_status fl_patchify_backward(fl_exec *x, const fl_patchify_args *args) FL_MUST_CHECK;
fl_status fl_vit_assemble(fl_exec *x, const fl_vit_assemble_args *args) FL_MUST_CHECK;
fl_status fl_vit_assemble_backward(fl_exec *x,
                                   const fl_vit_assemble_backward_args *args) FL_MUST_CHECK;

fl_status fl_cross_entropy(fl_exec *x, const fl_cross_entropy_args *args) FL_MUST_CHECK;
fl_status fl_span_cross_entropy(fl_exec *x, const fl_span_cross_entropy_args *args) FL_MUST_CHECK;
fl_status fl_squared_error(fl_exec *x, const fl_squared_error_args *args) FL_MUST_CHECK;

/* *sum += value, for a sum of fl_loss_sums: in order with the kernels that add to it. */
fl_status fl_add_to_sum(fl_exec *x, double value, double *sum) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
