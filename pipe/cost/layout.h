/* How a layer's parameters lie in memory: one after the other, each on 64 bytes. Pure. */
#ifndef FL_PIPE_COST_LAYOUT_H
#define FL_PIPE_COST_LAYOUT_H

#include "nn/model.h"

/* Elements of fp32 that one parameter takes, padding included. */
int64_t fl_layout_param(const fl_param_spec *spec);

/* Elements that layers first .. last - 1 take, padding included. */
int64_t fl_layout_count(const fl_model *model, int first, int last);

/* Of the gradients of layers first .. last - 1, which all train, the elements that need no memory
 * of their own, when the model's first n_frozen layers are frozen: of a tied parameter that is
 * frozen all, of one that trains all uses but one. */
int64_t fl_layout_grad_spared(const fl_model *model, int first, int last, int n_frozen);

#endif
