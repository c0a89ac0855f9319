/* Model FLOPs utilization: how much of the devices' peak speed the run uses. */
#ifndef FL_CONTROL_ELASTIC_MFU_H
#define FL_CONTROL_ELASTIC_MFU_H

#include "control/state/run_view.h"

typedef struct fl_elastic fl_elastic;

/* Of the running plan, from its steps so far. */
fl_mfu fl_mfu_now(const fl_elastic *elastic);

#endif
