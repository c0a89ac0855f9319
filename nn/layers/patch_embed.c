/* An image becomes a row of tokens: a linear map of each patch, a class token before them, and a
 * learned position added to each.
 *
 * Nothing is kept: backward cuts the patches from the layer's input again, which is one pass over
 * a copy the size of the batch. */
#include "nn/layers/layers.h"

enum { PATCH_W, PATCH_B, CLS, POS }; /* parameters */

/* Standard deviation of the initial positions; the class token starts at 0. */
/* What a patch of a normalized image becomes deviates by 0.58. The 0.02 that is common tells
 * positions apart only after an epoch or two. */
#define POSITION_DEVIATION 0.3f

typedef struct patch_embed {
    int64_t channels, height, width, patch, dim;
    int64_t n_patches, patch_size; /* patch_size: elements of one patch, all channels */
    float dropout;
    fl_dtype dtype; /* of what comes out; images are fp32 */
} patch_embed;

static fl_status patch_embed_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const patch_embed *l = self;
    FL_TRY(fl__check_fp32_input(in, l->channels * l->height * l->width));
    if (in->tokens != 1) {
        return fl_fail(FL_EINVAL, "takes one image a sample, got %lld rows", (long long)in->tokens);
    }
    *out = (fl_shape){.tokens = l->n_patches + 1, .width = l->dim, .dtype = l->dtype};
    return FL_OK;
}

static fl_status patch_embed_params(void *self, fl_param_list *list)
{
    const patch_embed *l = self;
    FL_TRY(fl__params_linear(list, "patch", l->dim, l->patch_size, 0));
    FL_TRY(fl_param_list_add(list, "cls", 1, l->dim, FL_INIT_ZEROS, 0.0f, true));
    return fl_param_list_add(list, "pos", l->n_patches + 1, l->dim, FL_INIT_NORMAL,
                             POSITION_DEVIATION, true);
}

static fl_patchify_args patchify_args(const patch_embed *l, int64_t n, void *images, void *patches)
{
    return (fl_patchify_args){.images = images,
                              .patches = patches,
                              .n = n,
                              .channels = l->channels,
                              .height = l->height,
                              .width = l->width,
                              .patch = l->patch};
}

static fl_status cut(const patch_embed *l, fl_exec *x, const fl_tensor *in, void **out)
{
    int64_t n = in->n_samples * l->n_patches * l->patch_size;
    void *patches = NULL;
    FL_TRY(fl__scratch_of(x, FL_F32, n, &patches));
    const fl_patchify_args args = patchify_args(l, in->n_samples, in->data, patches);
    FL_TRY(fl_patchify(x, &args));
    *out = patches;
    if (l->dtype == FL_F32) {
        return FL_OK;
    }
    FL_TRY(fl__scratch_of(x, l->dtype, n, out));
    return fl_convert(x, &(fl_convert_args){.in = patches, .y = *out, .to = l->dtype, .n = n});
}

static fl_status patch_embed_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const patch_embed *l = self;
    int64_t rows = in->n_samples * l->n_patches;
    void *patches = NULL, *tokens = NULL;
    FL_TRY(cut(l, x, in, &patches));
    FL_TRY(fl__scratch_of(x, l->dtype, rows * l->dim, &tokens));
    FL_TRY(fl__linear(x, l->dtype, patches, PATCH_W, tokens, rows));
    FL_TRY(fl_vit_assemble(x, &(fl_vit_assemble_args){.dtype = l->dtype,
                                                      .patches = tokens,
                                                      .cls = fl_exec_weight(x, CLS),
                                                      .pos = fl_exec_weight(x, POS),
                                                      .y = out->data,
                                                      .n = in->n_samples,
                                                      .n_patches = l->n_patches,
                                                      .dim = l->dim}));
    return l->dropout > 0.0f && fl_exec_training(x)
               ? fl__drop(x, out->data, out, l->dropout, out->data)
               : FL_OK;
}

/* The gradient of an image is that of its patches, put back. */
static fl_status backward_to_image(const patch_embed *l, fl_exec *x, const void *grad_tokens,
                                   fl_tensor *grad_in)
{
    int64_t images = grad_in->n_samples, n = images * l->n_patches * l->patch_size;
    void *grad_patches = NULL, *pixels = NULL;
    FL_TRY(fl__scratch_of(x, l->dtype, n, &grad_patches));
    FL_TRY(
        fl__linear_grad_in(x, l->dtype, grad_tokens, PATCH_W, grad_patches, images * l->n_patches));
    pixels = grad_patches;
    if (l->dtype != FL_F32) {
        FL_TRY(fl__scratch_of(x, FL_F32, n, &pixels));
        FL_TRY(fl_convert(
            x, &(fl_convert_args){.in = grad_patches, .y = pixels, .from = l->dtype, .n = n}));
    }
    const fl_patchify_args args = patchify_args(l, images, grad_in->data, pixels);
    return fl_patchify_backward(x, &args);
}

static fl_status patch_embed_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                      fl_tensor *grad_in)
{
    const patch_embed *l = self;
    const fl_tensor *in = fl_exec_input(x);
    int64_t rows = in->n_samples * l->n_patches;
    if (grad_in == NULL && !fl__any_grad(x, POS + 1)) {
        return FL_OK;
    }
    const void *grad_sum = NULL;
    void *patches = NULL, *grad_tokens = NULL;
    FL_TRY(fl__branch_grad(x, grad_out, l->dropout, &grad_sum));
    FL_TRY(fl__scratch_of(x, l->dtype, rows * l->dim, &grad_tokens));
    FL_TRY(fl_vit_assemble_backward(
        x, &(fl_vit_assemble_backward_args){.dtype = l->dtype,
                                            .grad_y = grad_sum,
                                            .grad_patches = grad_tokens,
                                            .grad_cls = fl_exec_grad(x, CLS),
                                            .grad_pos = fl_exec_grad(x, POS),
                                            .n = in->n_samples,
                                            .n_patches = l->n_patches,
                                            .dim = l->dim}));
    if (fl_exec_grad(x, PATCH_W) != NULL || fl_exec_grad(x, PATCH_B) != NULL) {
        FL_TRY(cut(l, x, in, &patches));
        FL_TRY(fl__linear_grads(x, l->dtype, PATCH_W, grad_tokens, patches, rows));
    }
    return grad_in == NULL ? FL_OK : backward_to_image(l, x, grad_tokens, grad_in);
}

static const fl_layer_ops patch_embed_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "patch_embed",
    .shape = patch_embed_shape,
    .params = patch_embed_params,
    .forward = patch_embed_forward,
    .backward = patch_embed_backward,
    .destroy = fl__layer_free,
};

static fl_status check(const patch_embed *l)
{
    FL_TRY(fl__check_size("patch_embed", "channels", l->channels));
    FL_TRY(fl__check_size("patch_embed", "height", l->height));
    FL_TRY(fl__check_size("patch_embed", "width", l->width));
    FL_TRY(fl__check_size("patch_embed", "patch", l->patch));
    FL_TRY(fl__check_size("patch_embed", "dim", l->dim));
    FL_TRY(fl__check_dropout("patch_embed", l->dropout));
    FL_TRY(fl__check_activations("patch_embed", l->dtype));
    if (l->height % l->patch != 0 || l->width % l->patch != 0) {
        return fl_fail(FL_EINVAL,
                       "patch_embed: images of %lld x %lld pixels cannot be cut into patches of "
                       "%lld x %lld",
                       (long long)l->height, (long long)l->width, (long long)l->patch,
                       (long long)l->patch);
    }
    if (l->channels * l->height > INT32_MAX / l->width) {
        return fl_fail(FL_EINVAL, "patch_embed: images of %lld x %lld x %lld are too large",
                       (long long)l->channels, (long long)l->height, (long long)l->width);
    }
    return FL_OK;
}

fl_status fl_layer_patch_embed_with(const fl_patch_embed_config *config, fl_layer *out)
{
    patch_embed self = {.channels = config->channels,
                        .height = config->height,
                        .width = config->width,
                        .patch = config->patch,
                        .dim = config->dim,
                        .dropout = config->dropout,
                        .dtype = config->dtype};
    FL_TRY(check(&self));
    self.n_patches = (self.height / self.patch) * (self.width / self.patch);
    self.patch_size = self.channels * self.patch * self.patch;
    return fl__layer_new(&patch_embed_ops, &self, sizeof self, out);
}

fl_status fl_layer_patch_embed(int64_t channels, int64_t height, int64_t width, int64_t patch,
                               int64_t dim, fl_layer *out)
{
    const fl_patch_embed_config config = {
        .channels = channels, .height = height, .width = width, .patch = patch, .dim = dim};
    return fl_layer_patch_embed_with(&config, out);
}
