/* Opening a net over the transport that suits its members. */
#ifndef FL_AUTODP_NET_OPEN_NET_OPEN_H
#define FL_AUTODP_NET_OPEN_NET_OPEN_H

#include "autodp/net/net.h"

/* Gloo connects each pair of members. From here on, that takes longer than a transition may: 0.25 s
 * for 16 members, 0.57 s for 32, and there are two nets in each generation. */
enum { FL_NET_GLOO_MAX = 16 };

/* Shared memory, for any number of members on one host. */
const fl_net_transport *fl_net_shared_memory(void);

/* FL_OK: all other members are there, and can be talked to. FL_EDEADLINE when a member did not
 * arrive, FL_EPEER when one died. Ignores SIGPIPE unless the program handles it.
 * Fork before the first net is opened. */
fl_status fl_net_open(const fl_net_options *options, fl_net **out) FL_MUST_CHECK;

#endif
