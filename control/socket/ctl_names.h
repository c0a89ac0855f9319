/* Names in a run directory that clients need. */
#ifndef FL_CONTROL_SOCKET_CTL_NAMES_H
#define FL_CONTROL_SOCKET_CTL_NAMES_H

#define FL_CTL_SOCKET "control.sock"
#define FL_CTL_EVENTS_SOCKET "events.sock"

#endif
