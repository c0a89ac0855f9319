/* Names the machine to other processes. */
#ifndef FL_AUTODP_NET_HOST_ID_H
#define FL_AUTODP_NET_HOST_ID_H

#include <stdint.h>

/* This boot of this machine, and the name space of this process's id: where two processes have the
 * same, each can look up the other's id. Threads: any. */
uint64_t fl_host_id(void);

#endif
