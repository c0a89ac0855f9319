/* The dry run of a model in a forked child: its shapes (nn/model.h) and its memory
 * (pipe/cost/memory/memory.h). A layer that crashes, ends its process or does not return takes only
 * the child with it. */
#ifndef FL_PIPE_MEASURE_DRY_RUN_H
#define FL_PIPE_MEASURE_DRY_RUN_H

#include "pipe/cost/memory/memory.h"

/* fl_model_check, then fl_memory_measure for one sample, within timeout_ms. No code of a layer or
 * of the loss runs in the calling process. memory    [layers of the model] out; unchanged on
 * failure Returns   FL_EFAILED, with a message that names the layer, if a layer ended the child;
 * FL_EDEADLINE, likewise, if it did not return in time; FL_EIO and FL_ENOMEM if no child could be
 * started; else what those two functions return Threads   any; of the other threads of the process,
 * none exists in the child */
fl_status fl_dry_run_check(const fl_model *model, const fl_sample_shape *sample, int64_t timeout_ms,
                           fl_layer_memory *memory) FL_MUST_CHECK;

#endif
