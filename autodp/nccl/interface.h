/* The network interface that NCCL uses, where a run has several hosts. */
#ifndef FL_AUTODP_NCCL_INTERFACE_H
#define FL_AUTODP_NCCL_INTERFACE_H

#include <frostline/status.h>

/* Set NCCL_SOCKET_IFNAME for this process, unless the environment has it: to the interface that has
 * this IPv4 address, or with NULL to the loopback interface, so that nothing outside this host can
 * connect to NCCL's sockets. Call it before the library is loaded. FL_EINVAL if no interface has
 * the address: then NCCL chooses. Threads: the caller must have no others. */
fl_status fl_nccl_choose_interface(const char *address) FL_MUST_CHECK;

#endif
