/* A plugin whose layer is its own; the job's name says how it behaves. */
#include <frostline.h>
#include <frostline/plugin.h>

#include <limits.h>
#include <signal.h>
#include <string.h>

enum { PIXELS = 28 * 28, CLASSES = 10 };

/* y = 2 x */
static fl_status twice_shape(void *self, const fl_shape *in, fl_shape *out)
{
    (void)self;
    *out = *in;
    return FL_OK;
}

static fl_status twice_params(void *self, fl_param_list *list)
{
    (void)self;
    (void)list;
    return FL_OK;
}

static fl_status twice_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    return fl_add(x,
                  &(fl_add_args){
                      .a = in->data, .b = in->data, .y = out->data, .n = in->n_tokens * in->width});
}

static fl_status twice_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                fl_tensor *grad_in)
{
    (void)self;
    if (grad_in == NULL) {
        return FL_OK;
    }
    return fl_add(x, &(fl_add_args){.a = grad_out->data,
                                    .b = grad_out->data,
                                    .y = grad_in->data,
                                    .n = grad_out->n_tokens * grad_out->width});
}

static const fl_layer_ops twice_ops = {
    .head = FL_TABLE_HEAD(fl_layer_ops),
    .kind = "twice",
    .shape = twice_shape,
    .params = twice_params,
    .forward = twice_forward,
    .backward = twice_backward,
};

static fl_status fill(const fl_job *job, fl_model *model)
{
    fl_layer layer = {0};
    fl_loss loss = {0};
    FL_TRY(fl_model_add(model, 1, (fl_layer){.ops = &twice_ops}));
    FL_TRY(fl_layer_linear(PIXELS, 16, &layer));
    FL_TRY(fl_model_add(model, 1, layer));
    FL_TRY(fl_layer_classifier(16, CLASSES, &layer));
    FL_TRY(fl_model_add(model, FL_BLOCK_HEAD, layer));
    if (strcmp(job->name, "no-loss") == 0) {
        return FL_OK;
    }
    FL_TRY(fl_loss_cross_entropy(CLASSES, &loss));
    static const fl_metric bad_name = {.name = "Mean Error"};
    static fl_loss_ops renamed;
    if (strcmp(job->name, "bad-metric") == 0) {
        renamed = *loss.ops;
        renamed.metrics = &bad_name;
        loss.ops = &renamed;
    }
    fl_status status = fl_model_set_loss(model, loss);
    if (status != FL_OK) {
        loss.ops->destroy(loss.self);
    }
    return status;
}

/* Use up the stack. */
static int overflow(int depth)
{
    volatile char page[4096];
    page[depth % 4096] = (char)depth;
    return depth < INT_MAX ? overflow(depth + 1) + page[depth % 4096] : 0;
}

static fl_status create(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    if (strcmp(job->name, "fails") == 0) {
        return fl_fail(FL_EINVAL, "the plugin does not like this job");
    }
    if (strcmp(job->name, "crashes") == 0) {
        raise(SIGSEGV);
    }
    if (strcmp(job->name, "overflows") == 0) {
        return overflow(1) > 0 ? FL_OK : FL_EINVAL;
    }
    if (strcmp(job->name, "fails-silently") == 0) {
        return FL_EINVAL;
    }
    if (strcmp(job->name, "no-model") == 0) {
        return FL_OK;
    }
    fl_model *made = NULL;
    FL_TRY(fl_model_create("toy", &made));
    fl_status status = fill(job, made);
    if (status != FL_OK) {
        fl_model_destroy(&made);
        return status;
    }
    *model = made;
    if (strcmp(job->name, "half-data") == 0) {
        static const fl_dataset_ops half = {.head = FL_TABLE_HEAD(fl_dataset_ops), .kind = "half"};
        dataset->ops = &half;
    } /* otherwise the job's data section says */
    return FL_OK;
}

FL_PLUGIN(create)
