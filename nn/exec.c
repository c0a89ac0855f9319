/* One call of a layer: what it sees, and the memory it is given. */
#include "nn/exec.h"

#include "nn/model.h"

#include <stdio.h>
#include <string.h>

const fl_batch *fl_exec_batch(const fl_exec *x)
{
    if (x->batch_asked != NULL) {
        *x->batch_asked = true;
    }
    return x->batch;
}

const char *fl_exec_sample_text(const fl_exec *x, int64_t i, char text[FL_EXEC_SAMPLE_BYTES])
{
    if (x->sample_text != NULL) {
        x->sample_text(x->sample_context, i, text);
    } else {
        snprintf(text, FL_EXEC_SAMPLE_BYTES, "sample %lld", (long long)x->batch->sample_ids[i]);
    }
    return text;
}

bool fl_exec_training(const fl_exec *x)
{
    return x->training;
}

bool fl_exec_host_memory(const fl_exec *x)
{
    return x->device->ops->host_memory;
}

fl_weight *fl_exec_weight(fl_exec *x, int i)
{
    if (x->params == NULL || i < 0 || i >= x->params->n) {
        return NULL;
    }
    return &x->params->weight[i];
}

float *fl_exec_grad(fl_exec *x, int i)
{
    if (x->params == NULL || x->params->grad == NULL || i < 0 || i >= x->params->n) {
        return NULL;
    }
    return x->params->grad[i];
}

fl_status fl_exec_keep(fl_exec *x, int slot, size_t size_bytes, void **out)
{
    if (slot < 0 || slot >= FL_KEEP_MAX) {
        return fl_fail(FL_EINVAL, "keeps under slot %d, allowed are 0 to %d", slot,
                       FL_KEEP_MAX - 1);
    }
    if (x->frame->kept[slot] != NULL) {
        return fl_fail(FL_EINVAL, "keeps under slot %d twice", slot);
    }
    FL_TRY(fl_arena_take(x->training ? x->keep : x->scratch, size_bytes, out));
    x->frame->kept[slot] = *out;
    return FL_OK;
}

void *fl_exec_kept(const fl_exec *x, int slot)
{
    return slot < 0 || slot >= FL_KEEP_MAX ? NULL : x->frame->kept[slot];
}

const fl_tensor *fl_exec_input(const fl_exec *x)
{
    return &x->frame->in;
}

const fl_tensor *fl_exec_output(const fl_exec *x)
{
    return &x->frame->out;
}

fl_status fl_exec_scratch(fl_exec *x, size_t size_bytes, void **out)
{
    return fl_arena_take(x->scratch, size_bytes, out);
}

static void enter(fl_exec *x, int layer, const fl_layer_params *params, fl_exec_frame *frame)
{
    x->layer = layer;
    x->params = params;
    x->frame = frame;
}

static fl_status in_layer(fl_status status, const fl_model *model, int layer)
{
    char text[FL_LAYER_TEXT_MAX];
    return fl_within(status, "%s", fl_model_layer_text(model, layer, text));
}

fl_status fl_exec_forward(fl_exec *x, const fl_model *model, int layer,
                          const fl_layer_params *params, fl_exec_frame *frame, const fl_tensor *in,
                          fl_tensor *out)
{
    const fl_layer *l = fl_model_layer(model, layer);
    *frame = (fl_exec_frame){.in = *in, .out = *out};
    enter(x, layer, params, frame);
    size_t scratch = fl_arena_mark(x->scratch);
    size_t keep = x->training ? fl_arena_mark(x->keep) : 0;
    fl_status status = l->ops->forward(l->self, x, in, out);
    fl_arena_release(x->scratch, scratch);
    if (status != FL_OK && x->training) {
        fl_arena_release(x->keep, keep);
    }
    if (status != FL_OK || !x->training) {
        memset(frame->kept, 0, sizeof frame->kept);
    }
    return status == FL_OK ? FL_OK : in_layer(status, model, layer);
}

fl_status fl_exec_backward(fl_exec *x, const fl_model *model, int layer,
                           const fl_layer_params *params, fl_exec_frame *frame,
                           const fl_tensor *grad_out, fl_tensor *grad_in)
{
    const fl_layer *l = fl_model_layer(model, layer);
    enter(x, layer, params, frame);
    size_t scratch = fl_arena_mark(x->scratch);
    fl_status status = l->ops->backward(l->self, x, grad_out, grad_in);
    fl_arena_release(x->scratch, scratch);
    return status == FL_OK ? FL_OK : in_layer(status, model, layer);
}

fl_status fl_exec_loss(fl_exec *x, const fl_model *model, const fl_tensor *out,
                       const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                       fl_loss_sums *sums)
{
    const fl_loss *loss = fl_model_loss(model);
    fl_exec_frame frame = {.in = *out};
    enter(x, fl_model_n_layers(model), x->params, &frame);
    size_t scratch = fl_arena_mark(x->scratch);
    fl_status status = loss->ops->forward(loss->self, x, out, targets, grad_scale, grad, sums);
    fl_arena_release(x->scratch, scratch);
    x->frame = NULL;
    return status == FL_OK ? FL_OK : fl_within(status, "loss (%s)", loss->ops->kind);
}
