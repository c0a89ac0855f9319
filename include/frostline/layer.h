/* A layer: a vtable and its own state. Frostline calls it; it never calls distribution
 * code. The ready layers (model.h) go through this very interface. */
#ifndef FROSTLINE_LAYER_H
#define FROSTLINE_LAYER_H

#include <frostline/status.h>
#include <frostline/tensor.h>
#include <frostline/version.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_exec fl_exec;
typedef struct fl_param_list fl_param_list;

/* How a parameter starts. Every element is drawn from a counter-based generator keyed by (seed,
 * layer, parameter, element): the same value on every worker. */
typedef enum fl_init {
    FL_INIT_ZEROS,
    FL_INIT_ONES,
    FL_INIT_NORMAL,  /* mean 0, standard deviation `scale` */
    FL_INIT_UNIFORM, /* in [-scale, scale) */
} fl_init;

/* Append one parameter of [rows, cols] (cols = 1 for a vector) to the list.
 * name   unique within the layer; letters, digits, '_', and single dots between them, at most 47;
 *        copied
 * decay  whether weight decay applies (matrices yes; biases and normalization no)
 * Returns FL_EINVAL for a name or a size that cannot be, FL_ENOMEM. */
fl_status fl_param_list_add(fl_param_list *list, const char *name, int64_t rows, int64_t cols,
                            fl_init init, float scale, bool decay) FL_MUST_CHECK;

/* All calls of one layer come from one thread at a time. `self` must not change after params():
 * a worker may run many micro-batches through it before the first comes back, so everything that
 * belongs to one micro-batch goes through fl_exec (exec.h).
 *
 * shape     of one sample: what comes out for what goes in; FL_EINVAL with a message if the layer
 *           cannot take it. Called with different token counts when samples differ in length.
 * params    append this layer's parameters, always the same ones in the same order.
 * forward   read in, write every row of out (allocated, of the shape promised). In training, both
 *           stay valid and unchanged until backward of the same micro-batch has returned.
 * backward  read grad_out, add to the gradients of the parameters (fl_exec_grad), and write every
 *           row of grad_in unless grad_in is NULL (no layer below needs it).
 * destroy   free self. May be NULL. */
typedef struct fl_layer_ops {
    fl_table_head head; /* FL_TABLE_HEAD(fl_layer_ops) */
    const char *kind;
    fl_status (*shape)(void *self, const fl_shape *in, fl_shape *out);
    fl_status (*params)(void *self, fl_param_list *list);
    fl_status (*forward)(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out);
    fl_status (*backward)(void *self, fl_exec *x, const fl_tensor *grad_out, fl_tensor *grad_in);
    void (*destroy)(void *self);
} fl_layer_ops;

typedef struct fl_layer {
    const fl_layer_ops *ops;
    void *self;
} fl_layer;

#ifdef __cplusplus
}
#endif
#endif
