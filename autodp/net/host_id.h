/* Names the machine to other processes. */
#ifndef FL_AUTODP_NET_HOST_ID_H
#define FL_AUTODP_NET_HOST_ID_H

#include <stdint.h>

/* This boot of this machine, and the name space of this process's id: where two processes have the
 * same, each can look up the other's id. Threads: any. */
uint64_t fl_host_id(void);

/* The same with the address at which this process listens for others: hosts of a run differ by it,
 * also where they are name spaces of one machine. NULL: fl_host_id. */
uint64_t fl_host_id_at(const char *address);

#endif
