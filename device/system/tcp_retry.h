/* How a TCP connection tries again after a cut of the network. */
#ifndef FL_DEVICE_SYSTEM_TCP_RETRY_H
#define FL_DEVICE_SYSTEM_TCP_RETRY_H

/* The kernel sends lost data again after 0.2 s, and doubles the pause each time: a connection may
 * stay silent for as long again as its network was cut. With this, it pauses for a second at most.
 * Before Linux 6.15, that does not exist: it pauses for 0.2 s six times, before it doubles the
 * pause, where at most three packets are on their way. That serves cuts of up to 4 s.
 * fd  a TCP socket, or one that listens: its connections inherit it. Of any other one, nothing
 *     changes. */
void fl_tcp_retry_evenly(int fd);

#endif
