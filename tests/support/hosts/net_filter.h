/* A firewall on a host of net_hosts.h: rules of its routing, which match ports and need no program
 * but ip(8). Runs get the ports by NET_FILTER_PORTS; connections that are open are hit, too. */
#ifndef FL_TESTS_SUPPORT_HOSTS_NET_FILTER_H
#define FL_TESTS_SUPPORT_HOSTS_NET_FILTER_H

#include "support/hosts/net_hosts.h"

#define NET_FILTER_PORTS "--set 'autodp.ports=[20000, 20499]' "

typedef enum net_filter_how {
    NET_FILTER_DROPS,
    NET_FILTER_REFUSES, /* an ICMP message: the connection fails at once */
} net_filter_how;

/* What host `from` sends to these ports of host `to` does not arrive; with but_agents, what it
 * sends to the agent of `to`, which has joined, still does. */
void net_filter_block(const net_hosts *h, int from, int to, net_filter_how how, bool but_agents);

/* Make the first call of net_filter_block for this host faster. */
void net_filter_prepare(const net_hosts *h, int to);
void net_filter_open(const net_hosts *h, int from, int to);

/* What the processes of host i send to addresses of their own host is lost without a word, as
 * behind a firewall that drops what goes over the interface lo; or it arrives again. */
void net_filter_loopback(const net_hosts *h, int i, bool filtered);

/* Only what goes to these addresses is lost: "127.0.0.0/8", or the host's own one. */
void net_filter_loopback_to(const net_hosts *h, int i, const char *addresses);

#endif
