/* Model FLOPs utilization: how well the devices are used. */
#ifndef FL_CONTROL_ELASTIC_MFU_H
#define FL_CONTROL_ELASTIC_MFU_H

#include "control/state/run_view.h"

typedef struct fl_elastic fl_elastic;

/* Of the plan that runs, by its steps so far. */
fl_mfu fl_mfu_now(const fl_elastic *elastic);

#endif
