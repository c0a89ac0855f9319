/* Check the layers of a model of one's own: gradients against finite differences, and the rules
 * that layer.h and exec.h set. `frostline check-model` does the same for the model of a job. */
#ifndef FROSTLINE_CHECK_H
#define FROSTLINE_CHECK_H

#include <frostline/dataset.h>
#include <frostline/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FL_CHECK_SAMPLES_MAX = 64, FL_CHECK_TEXT_MAX = 512, FL_CHECK_NAME_MAX = 80 };

typedef enum fl_check_state {
    FL_CHECK_BEGUN,   /* about to run: what was begun last is what crashed */
    FL_CHECK_PASSED,  /* text: what was found */
    FL_CHECK_FAILED,  /* text: where, what was found, what is expected */
    FL_CHECK_SKIPPED, /* text: the check whose failure makes this one meaningless */
} fl_check_state;

/* One check of one layer. */
typedef struct fl_check_result {
    int layer; /* from 0; the number of layers for the loss */
    fl_check_state state;
    double error;                       /* relative, of a gradient; NAN: not one of those */
    char layer_name[FL_LAYER_NAME_MAX]; /* empty for the loss */
    char kind[FL_CHECK_NAME_MAX];       /* of the layer */
    char name[FL_CHECK_NAME_MAX];       /* of the check: "forward", "gradient of fc.bias" */
    char text[FL_CHECK_TEXT_MAX];
} fl_check_result;

typedef struct fl_check_options {
    int layer;        /* only this one, from 0; their number: the loss; -1: all */
    int n_samples;    /* 2 .. FL_CHECK_SAMPLES_MAX */
    uint64_t seed;    /* of parameters, activations and directions */
    double tolerance; /* of a gradient: |finite difference - backward| by the gradient's norm */
    void (*seen)(void *context, const fl_check_result *result); /* may be NULL */
    void *context;
} fl_check_options;

/* All layers and the loss, 4 samples, seed 0, tolerance 1e-3. */
fl_check_options fl_check_defaults(void);

/* Check a model on the first training samples of `dataset`. The first layer reads those samples;
 * the others read random activations of the shapes that follow. Every layer is tried alone, on one
 * core: a layer that crashes takes the caller with it, as it would a worker.
 *
 * For each layer: shapes and parameters as declared; forward deterministic, finite, within the
 * memory that it asked for, without a write to anything else; no dropout in evaluation; the same
 * results however samples are batched, ordered and kept in flight; backward adds to gradients,
 * does not write gradients that are not wanted, and agrees with central differences of forward, for
 * the input and each parameter; an empty micro-batch changes nothing.
 *
 * options    NULL: the defaults
 * n_failed   out: checks that failed
 * Returns    FL_OK if everything was checked, whatever was found; FL_EINVAL (options, a model that
 *            is not complete or does not take the data), FL_ENOMEM, what the data set gives
 * Threads    one at a time for a model */
fl_status fl_check_model(const fl_model *model, const fl_dataset *dataset,
                         const fl_check_options *options, int *n_failed) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
