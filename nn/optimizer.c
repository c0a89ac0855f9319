/* Optimizers and schedules as PyTorch defines them: torch.optim.AdamW (decoupled decay, Loshchilov
 * and Hutter, arXiv 1711.05101) and torch.optim.SGD with momentum (decay joins the gradient). */
#include "nn/optimizer.h"

#include "nn/model.h"

#include <math.h>

int fl_optimizer_n_moments(fl_optimizer_kind kind)
{
    return kind == FL_ADAMW ? 2 : 1;
}

static int64_t span_steps(const fl_span *span, int64_t n_steps)
{
    int64_t steps = span->steps >= 0 ? span->steps : (int64_t)(span->fraction * (double)n_steps);
    return steps > n_steps ? n_steps : steps;
}

double fl_learning_rate(const fl_job *job, int64_t step, int64_t n_steps)
{
    double base = job->train.lr;
    int64_t n_warmup = span_steps(&job->train.warmup, n_steps);
    if (step < n_warmup) {
        return base * (double)(step + 1) / (double)n_warmup;
    }
    if (job->train.decay == FL_DECAY_CONSTANT) {
        return base;
    }
    if (step >= n_steps) {
        return 0.0;
    }
    double done = (double)(step - n_warmup) / (double)(n_steps - n_warmup);
    return job->train.decay == FL_DECAY_LINEAR ? base * (1.0 - done)
                                               : base * 0.5 * (1.0 + cos(M_PI * done));
}

static int depth_of(const fl_model *model, int layer)
{
    int block = fl_model_block_of(model, layer);
    bool is_embedding =
        layer == 0 && fl_model_n_layers(model) > 1 && fl_model_block_of(model, 1) == block;
    return block == FL_BLOCK_HEAD ? 0 : fl_model_n_blocks(model) + 1 - block + is_embedding;
}

double fl_layer_rate(const fl_job *job, const fl_model *model, int layer, int param)
{
    int tie = fl_model_tie_of(model, layer, param);
    int first = tie < 0 ? layer : fl_model_tie_at(model, tie)->use[0].layer;
    return pow(job->train.layer_decay, depth_of(model, first));
}

double fl_clip_scale(double grad_norm, double clip)
{
    double scale = clip / (grad_norm + 1e-6);
    return clip > 0.0 && scale < 1.0 ? scale : 1.0;
}

/* The corrections belong to the betas that the kernel uses, rounded to 32 bits: 1 - beta2 is small
 * enough for the rounding to show. */
static fl_adamw_step adamw_constants(const fl_job *job, int64_t step, double lr, double grad_scale)
{
    fl_adamw_step constants = {
        .lr = (float)lr,
        .beta1 = (float)job->train.beta1,
        .beta2 = (float)job->train.beta2,
        .epsilon = (float)job->train.epsilon,
        .grad_scale = (float)grad_scale,
    };
    constants.correction1 = (float)(1.0 - pow((double)constants.beta1, (double)(step + 1)));
    constants.correction2 = (float)(1.0 - pow((double)constants.beta2, (double)(step + 1)));
    return constants;
}

fl_status fl_optimizer_step(fl_device *device, fl_stream *stream, const fl_job *job, int64_t step,
                            double lr, double grad_scale, const fl_update *list, int n)
{
    if (n == 0) {
        return FL_OK;
    }
    if (job->train.optimizer == FL_ADAMW) {
        const fl_adamw_step constants = adamw_constants(job, step, lr, grad_scale);
        return device->ops->adamw_many(device, stream, list, n, &constants);
    }
    const fl_sgd_step constants = {
        .lr = (float)lr, .momentum = (float)job->train.momentum, .grad_scale = (float)grad_scale};
    return device->ops->sgd_many(device, stream, list, n, &constants);
}
