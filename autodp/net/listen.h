/* Ports at which a process listens for other hosts: any free one, or one of a range that a firewall
 * lets through. */
#ifndef FL_AUTODP_NET_LISTEN_H
#define FL_AUTODP_NET_LISTEN_H

#include <stdint.h>
#include <sys/socket.h>

/* Listen at *address [size], without waiting; *address gets the port. ports: the first and the last
 * one that may be taken; 0: any. Returns the socket, -1 with errno: EADDRINUSE if none is free. */
int fl_net_listen(struct sockaddr_storage *address, socklen_t size, const uint16_t ports[2],
                  int backlog);

#endif
