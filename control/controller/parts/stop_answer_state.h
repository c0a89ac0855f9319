/* The answer that workers wait for at a step: see stop_answer.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_STOP_ANSWER_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_STOP_ANSWER_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_stop_answer {
    int64_t step;     /* the workers wait here for an answer; 0: they do not */
    bool keeps;       /* a checkpoint of this step is to be written before */
    int64_t since_us; /* when the evaluation was judged */
} fl_stop_answer;

#endif
