/* An image becomes a row of tokens: a linear map of each patch, a class token before them, and a
 * learned position added to each.
 *
 * Nothing is kept: backward cuts the patches from the layer's input again, which is one pass over
 * a copy the size of the batch. */
#include "nn/layers/layers.h"

#include "device/alloc.h"

enum { PATCH_W, PATCH_B, CLS, POS }; /* parameters */

/* Standard deviation of the initial positions; the class token starts at 0. */
/* What a patch of a normalized image becomes deviates by 0.58. The 0.02 that is common tells
 * positions apart only after an epoch or two. */
#define POSITION_DEVIATION 0.3f

typedef struct patch_embed {
    int64_t channels, height, width, patch, dim;
    int64_t n_patches, patch_size; /* patch_size: elements of one patch, all channels */
    int32_t *segment;              /* [channels * height * width / patch], see segment_index */
} patch_embed;

static fl_status patch_embed_shape(void *self, const fl_shape *in, fl_shape *out)
{
    const patch_embed *l = self;
    FL_TRY(fl__check_input(in, l->channels * l->height * l->width));
    if (in->tokens != 1) {
        return fl_fail(FL_EINVAL, "takes one image a sample, got %lld rows", (long long)in->tokens);
    }
    *out = (fl_shape){.tokens = l->n_patches + 1, .width = l->dim, .dtype = FL_F32};
    return FL_OK;
}

static fl_status patch_embed_params(void *self, fl_param_list *list)
{
    const patch_embed *l = self;
    FL_TRY(fl__params_linear(list, "patch", l->dim, l->patch_size));
    FL_TRY(fl_param_list_add(list, "cls", 1, l->dim, FL_INIT_ZEROS, 0.0f, true));
    return fl_param_list_add(list, "pos", l->n_patches + 1, l->dim, FL_INIT_NORMAL,
                             POSITION_DEVIATION, true);
}

static fl_status cut(const patch_embed *l, fl_exec *x, const fl_tensor *in, float **out)
{
    FL_TRY(fl__scratch(x, in->n_samples * l->n_patches * l->patch_size, out));
    return fl_patchify(x, fl_f32(in), in->n_samples, l->channels, l->height, l->width, l->patch,
                       *out);
}

static fl_status patch_embed_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    const patch_embed *l = self;
    int64_t rows = in->n_samples * l->n_patches;
    float *patches = NULL, *tokens = NULL;
    FL_TRY(cut(l, x, in, &patches));
    FL_TRY(fl__scratch(x, rows * l->dim, &tokens));
    FL_TRY(fl_linear(x, patches, fl_exec_weight(x, PATCH_W), fl_exec_weight(x, PATCH_B), tokens,
                     rows));
    return fl_vit_assemble(x, tokens, fl_exec_weight(x, CLS), fl_exec_weight(x, POS), in->n_samples,
                           l->n_patches, l->dim, fl_f32(out));
}

/* The gradient of an image is its patches' put back: row r of a patch is a run of `patch` pixels,
 * and segment[] says which run of the image it is. */
static fl_status backward_to_image(const patch_embed *l, fl_exec *x, const float *grad_tokens,
                                   fl_tensor *grad_in)
{
    int64_t image = l->channels * l->height * l->width, runs = image / l->patch;
    float *grad_patches = NULL;
    FL_TRY(fl__scratch(x, grad_in->n_samples * image, &grad_patches));
    FL_TRY(fl_linear_backward_input(x, grad_tokens, fl_exec_weight(x, PATCH_W), grad_patches,
                                    grad_in->n_samples * l->n_patches));
    for (int64_t s = 0; s < grad_in->n_samples; s++) {
        FL_TRY(fl_scatter_rows(x, grad_patches + s * image, l->segment, runs, l->patch,
                               fl_f32(grad_in) + s * image, runs));
    }
    return FL_OK;
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
    float *patches = NULL, *grad_tokens = NULL;
    FL_TRY(fl__scratch(x, rows * l->dim, &grad_tokens));
    FL_TRY(fl_vit_assemble_backward(x, fl_f32(grad_out), in->n_samples, l->n_patches, l->dim,
                                    grad_tokens, fl_exec_grad(x, CLS), fl_exec_grad(x, POS)));
    if (fl_exec_grad(x, PATCH_W) != NULL || fl_exec_grad(x, PATCH_B) != NULL) {
        FL_TRY(cut(l, x, in, &patches));
        FL_TRY(fl__linear_grads(x, PATCH_W, grad_tokens, patches, rows));
    }
    return grad_in == NULL ? FL_OK : backward_to_image(l, x, grad_tokens, grad_in);
}

static void patch_embed_destroy(void *self)
{
    patch_embed *l = self;
    fl_free(l->segment);
    fl_free(l);
}

static const fl_layer_ops patch_embed_ops = {
    .kind = "patch_embed",
    .shape = patch_embed_shape,
    .params = patch_embed_params,
    .forward = patch_embed_forward,
    .backward = patch_embed_backward,
    .destroy = patch_embed_destroy,
};

static fl_status check(const patch_embed *l)
{
    FL_TRY(fl__check_size("patch_embed", "channels", l->channels));
    FL_TRY(fl__check_size("patch_embed", "height", l->height));
    FL_TRY(fl__check_size("patch_embed", "width", l->width));
    FL_TRY(fl__check_size("patch_embed", "patch", l->patch));
    FL_TRY(fl__check_size("patch_embed", "dim", l->dim));
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

/* In the order of the patches' rows: patch row, patch column, channel, row within the patch. */
static void segment_index(patch_embed *l)
{
    int64_t down = l->height / l->patch, across = l->width / l->patch, at = 0;
    for (int64_t p = 0; p < down * across; p++) {
        for (int64_t c = 0; c < l->channels; c++) {
            for (int64_t r = 0; r < l->patch; r++) {
                int64_t line = c * l->height + p / across * l->patch + r;
                l->segment[at++] = (int32_t)(line * across + p % across);
            }
        }
    }
}

fl_status fl_layer_patch_embed(int64_t channels, int64_t height, int64_t width, int64_t patch,
                               int64_t dim, fl_layer *out)
{
    patch_embed self = {
        .channels = channels, .height = height, .width = width, .patch = patch, .dim = dim};
    FL_TRY(check(&self));
    self.n_patches = (height / patch) * (width / patch);
    self.patch_size = channels * patch * patch;
    void *segment = NULL;
    FL_TRY(fl_alloc_array((size_t)(channels * height * (width / patch)), sizeof *self.segment,
                          &segment));
    self.segment = segment;
    segment_index(&self);
    fl_status status = fl__layer_new(&patch_embed_ops, &self, sizeof self, out);
    if (status != FL_OK) {
        fl_free(segment);
    }
    return status;
}
