/* Whether the head lives, as the connection of an agent shows it that waits for the head to answer:
 * the kernel of a head that lives takes the connection (control/link/held_port.h). */
#ifndef FL_CONTROL_AGENT_RELAY_HEAD_WATCH_H
#define FL_CONTROL_AGENT_RELAY_HEAD_WATCH_H

#include <stdint.h>

/* The events of zmq_socket_monitor that are to be noted. */
extern const int fl_head_watch_events;

typedef struct fl_head_watch {
    int64_t closed_us; /* since then there is no connection; 0: there is one */
} fl_head_watch;

/* It begins to connect. */
void fl_head_watch_begin(fl_head_watch *watch, int64_t now_us);

/* Note one event of a connection. */
void fl_head_watch_note(fl_head_watch *watch, int event, int64_t now_us);

/* This process did not run for `us`, and could not connect. */
void fl_head_watch_excuse(fl_head_watch *watch, int64_t us, int64_t now_us);

/* For how long the head has taken no connection; 0: it takes one. */
int64_t fl_head_watch_closed_us(const fl_head_watch *watch, int64_t now_us);

#endif
