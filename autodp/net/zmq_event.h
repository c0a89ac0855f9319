/* Events of the connections of a monitored ZeroMQ socket. */
#ifndef FL_AUTODP_NET_ZMQ_EVENT_H
#define FL_AUTODP_NET_ZMQ_EVENT_H

/* The next event: its number, such as ZMQ_EVENT_CONNECTED; 0: none waits. A TCP connection that
 * has come about tries again soon after a cut (device/system/tcp_retry.h).
 * monitor  the PAIR socket that is connected to the monitor; NULL: no events */
int fl_zmq_event_read(void *monitor);

#endif
