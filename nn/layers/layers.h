/* Helpers that the ready layers share. A layer of a user could do all of this, too. */
#ifndef FL_NN_LAYERS_LAYERS_H
#define FL_NN_LAYERS_LAYERS_H

#include <frostline/exec.h>
#include <frostline/model.h>

/* Added to the variance in a LayerNorm whose configuration leaves it to the layer. */
#define FL__LAYERNORM_EPS 1e-5f

/* Largest size of any one dimension: products of two or three stay far from overflow. */
enum { FL__SIZE_MAX = 1 << 20 };

/* A copy of *self (size_bytes of it) as a layer of these ops; fl__layer_free is its destroy. */
fl_status fl__layer_new(const fl_layer_ops *ops, const void *self, size_t size_bytes,
                        fl_layer *out) FL_MUST_CHECK;
void fl__layer_free(void *self);

/* FL_EINVAL with kind, name and value unless 1 <= value <= FL__SIZE_MAX. */
fl_status fl__check_size(const char *kind, const char *name, int64_t value) FL_MUST_CHECK;
/* The same for a dropout rate: 0 <= p < 1. */
fl_status fl__check_dropout(const char *kind, float p) FL_MUST_CHECK;
/* The same for the epsilon of a norm: finite and not negative; an epsilon of 0 becomes the default.
 */
fl_status fl__check_epsilon(const char *kind, float *epsilon) FL_MUST_CHECK;
/* FL_EINVAL unless a sample is at least one row of `width` numbers, fp32 or bf16. A layer computes
 * with activations of its input's type. */
fl_status fl__check_input(const fl_shape *in, int64_t width) FL_MUST_CHECK;

/* The same for what a loss takes, which is fp32. */
fl_status fl__check_fp32_input(const fl_shape *in, int64_t width) FL_MUST_CHECK;
/* The same for the type of activations: FL_F32 or FL_BF16. */
fl_status fl__check_activations(const char *kind, fl_dtype dtype) FL_MUST_CHECK;
/* The same for the deviation of initial weights: finite and not negative. */
fl_status fl__check_deviation(const char *kind, float deviation) FL_MUST_CHECK;
/* FL_EINVAL unless it is one of fl_norm_place. */
fl_status fl__check_norm_place(const char *kind, fl_norm_place place) FL_MUST_CHECK;
/* "<name>.weight" [n_out, n_in] and "<name>.bias" [n_out]. deviation 0: both uniform within 1 /
 * sqrt(n_in), what PyTorch's nn.Linear starts with; else normal weights and biases of 0. */
fl_status fl__params_linear(fl_param_list *list, const char *name, int64_t n_out, int64_t n_in,
                            float deviation) FL_MUST_CHECK;
/* The same of the "proj" that ends a sublayer with a skip, one of `depth`: smaller by its root. */
fl_status fl__params_branch(fl_param_list *list, int64_t n_out, int64_t n_in, int64_t depth,
                            float deviation) FL_MUST_CHECK;
/* "<name>.weight" ones and "<name>.bias" zeros, [dim]. */
fl_status fl__params_norm(fl_param_list *list, const char *name, int64_t dim) FL_MUST_CHECK;

/* in w^T + bias, where parameter `weight` is w and the one after it the bias; in [m, n_in]. dtype:
 * of the activations, here and below. */
fl_status fl__linear(fl_exec *x, fl_dtype dtype, const void *in, int weight, void *y,
                     int64_t m) FL_MUST_CHECK;
/* The gradient of its input. */
fl_status fl__linear_grad_in(fl_exec *x, fl_dtype dtype, const void *grad_out, int weight,
                             void *grad_in, int64_t m) FL_MUST_CHECK;
/* Adds to the gradients of both parameters, where wanted. */
fl_status fl__linear_grads(fl_exec *x, fl_dtype dtype, int weight, const void *grad_out,
                           const void *in, int64_t m) FL_MUST_CHECK;

/* The end of a sublayer with a skip: out = in + dropout(h w^T + bias); h [T, n_in of w]. */
fl_status fl__branch_forward(fl_exec *x, const void *h, int weight, const fl_tensor *in,
                             float dropout, fl_tensor *out) FL_MUST_CHECK;
/* y = in * mask / (1 - p), for the rows of `rows`; mask number 0 of the layer. y may be in. */
fl_status fl__drop(fl_exec *x, const void *in, const fl_tensor *rows, float p,
                   void *y) FL_MUST_CHECK;
/* The gradient that enters that product: grad_out, masked by dropout where there is dropout. */
fl_status fl__branch_grad(fl_exec *x, const fl_tensor *grad_out, float dropout,
                          const void **out) FL_MUST_CHECK;
/* LayerNorm of `in` with parameters 0 and 1; mean and rstd may be NULL. */
fl_status fl__norm(fl_exec *x, const fl_tensor *in, float epsilon, void *y, float *mean,
                   float *rstd) FL_MUST_CHECK;

/* Its backward at the layer's input, plus grad_residual; grad_in may be NULL. */
fl_status fl__norm_backward(fl_exec *x, const void *grad_y, const float *mean, const float *rstd,
                            const void *grad_residual, fl_tensor *grad_in) FL_MUST_CHECK;

/* The whole of a layer that is a LayerNorm, whose parameters are its first two; the signature of
 * fl_layer_ops.backward. */
fl_status fl__layernorm_forward(fl_exec *x, float epsilon, const fl_tensor *in,
                                fl_tensor *out) FL_MUST_CHECK;
fl_status fl__layernorm_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                 fl_tensor *grad_in) FL_MUST_CHECK;

/* What a sublayer whose norm comes after the sum keeps for it: slots, parameters 0 and 1. */
typedef struct fl__post_norm {
    float epsilon;
    int kept_sum, kept_mean, kept_rstd;
} fl__post_norm;

/* The end of such a sublayer: out = LayerNorm(in + dropout(h w^T + bias)); h [T, n_in of w]. */
fl_status fl__post_norm_forward(fl_exec *x, const fl__post_norm *norm, const void *h, int weight,
                                const fl_tensor *in, float dropout, fl_tensor *out) FL_MUST_CHECK;
/* *grad_sum: like grad_out, the gradient of the sum, in scratch memory. Adds to the gradients of
 * the LayerNorm. */
fl_status fl__post_norm_backward(fl_exec *x, const fl__post_norm *norm, const fl_tensor *grad_out,
                                 fl_tensor *grad_sum) FL_MUST_CHECK;

/* y [n_samples, width] = the first row of each sample of `in`, which has the rows of `rows`; and
 * the other way: y [n_tokens, width] = 0, then these rows. */
fl_status fl__gather_first(fl_exec *x, const void *in, const fl_tensor *rows,
                           void *y) FL_MUST_CHECK;
fl_status fl__scatter_first(fl_exec *x, const void *in, const fl_tensor *rows,
                            void *y) FL_MUST_CHECK;

/* The same between rows of any type and fp32 ones: what a head computes with. */
fl_status fl__first_as_fp32(fl_exec *x, const fl_tensor *in, float *y) FL_MUST_CHECK;
fl_status fl__fp32_to_first(fl_exec *x, const float *in, const fl_tensor *rows,
                            void *y) FL_MUST_CHECK;

/* Whether the gradient of any of the parameters 0 .. n - 1 is wanted. */
bool fl__any_grad(fl_exec *x, int n);

/* Scratch and kept memory counted in floats, and for n activations of a type. */
fl_status fl__scratch(fl_exec *x, int64_t n, float **out) FL_MUST_CHECK;
fl_status fl__keep(fl_exec *x, int slot, int64_t n, float **out) FL_MUST_CHECK;
fl_status fl__scratch_of(fl_exec *x, fl_dtype dtype, int64_t n, void **out) FL_MUST_CHECK;
fl_status fl__keep_of(fl_exec *x, int slot, fl_dtype dtype, int64_t n, void **out) FL_MUST_CHECK;

#endif
