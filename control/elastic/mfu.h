/* Model FLOPs utilization: how well the devices are used. */
#ifndef FL_CONTROL_ELASTIC_MFU_H
#define FL_CONTROL_ELASTIC_MFU_H

#include "control/events/json.h"

typedef struct fl_controller fl_controller;

/* What a step asks for, what the devices that train could do, and which share of it they do. NAN:
 * unknown. */
typedef struct fl_mfu {
    double step_flops; /* operations of one step */
    double peak_flops; /* operations a second */
    double share;
} fl_mfu;

/* Of the plan that runs, by its steps so far. */
fl_mfu fl_mfu_now(const fl_controller *controller);

/* The same as fields "step_flops", "peak_flops" and "mfu"; null for what is unknown. */
void fl_mfu_tell(const fl_controller *controller, fl_json *json);

#endif
