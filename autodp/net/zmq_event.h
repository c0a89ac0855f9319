/* What a monitored socket of ZeroMQ tells of its connections. */
#ifndef FL_AUTODP_NET_ZMQ_EVENT_H
#define FL_AUTODP_NET_ZMQ_EVENT_H

/* The next event: its number, such as ZMQ_EVENT_CONNECTED; 0: there is none. A TCP connection that
 * has come about tries again soon after a cut (device/system/tcp_retry.h).
 * monitor  the PAIR socket that is connected to the monitor; NULL: no events */
int fl_zmq_event_read(void *monitor);

#endif
