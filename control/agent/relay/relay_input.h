/* Standard input of an agent that ssh has started: it ends with the ssh of the head. Without a
 * terminal, sshd sends no signal to what it has started, so that this is all that tells an agent
 * which has no connection to the head that nobody waits for it any more. */
#ifndef FL_CONTROL_AGENT_RELAY_RELAY_INPUT_H
#define FL_CONTROL_AGENT_RELAY_RELAY_INPUT_H

#include <stdbool.h>

typedef struct fl_relay_input {
    bool watched; /* its end counts */
    bool spoke;   /* something has come: it is the head's, and not empty from the start */
    bool ended;
} fl_relay_input;

/* Drop what has come, and note the end. An input that ends before anything has come is that of a
 * user, or of an ssh whose configuration gives it none: it is not watched from then on. Never
 * waits. */
void fl_relay_input_look(fl_relay_input *input);

#endif
