/* Since when all workers are held: see silence.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_SILENCE_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_SILENCE_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_silence {
    int64_t since_us; /* when the workers were first held; 0: they are not */
    bool told;        /* the terminal has the line */
    bool answered;    /* a message of a member has come since then */
} fl_silence;

#endif
