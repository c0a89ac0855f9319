#include "support/hosts/net_filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    FIRST = 20000,
    LAST = 20499,
    RULE = 20,
    AGENT_RULE = 10,
    LOCAL_RULE = 100,
    LOOPBACK_RULE = 5,
    LOOPBACK_TABLE = 99,
};

static void shell(const char *command)
{
    if (!net_hosts_shell("%s", command)) {
        fail_msg("%s", command);
    }
}

/* The port at which the agent of the host, or its head, listens on all addresses. */
static int find_agent_port(const net_hosts *h, int i)
{
    const char *space = h->host[i].space;
    int port = 0;
    NET_AWAIT(net_hosts_shell("ip netns exec %s awk '$4 == \"0A\" && $2 ~ /^00000000:/ "
                              "{ print substr($2, 10) }' /proc/net/tcp",
                              space) &&
              (port = (int)strtol(net_hosts_said(), NULL, 16)) >= FIRST && port <= LAST);
    return port;
}

/* Rules are tried in their order; what is for this host itself is looked up by the first one. */
static void let_rules_go_first(const char *space)
{
    char command[256];
    snprintf(command, sizeof command,
             "ip -n %s rule list | grep -q '^%d:' || { ip -n %s rule add pref %d lookup local && "
             "ip -n %s rule del pref 0 lookup local; }",
             space, LOCAL_RULE, space, LOCAL_RULE, space);
    shell(command);
}

void net_filter_prepare(const net_hosts *h, int to)
{
    let_rules_go_first(h->host[to].space);
}

void net_filter_block(const net_hosts *h, int from, int to, net_filter_how how, bool but_agents)
{
    char command[512];
    const char *space = h->host[to].space, *address = h->host[from].address;
    let_rules_go_first(space);
    if (but_agents) {
        snprintf(command, sizeof command,
                 "ip -n %s rule add pref %d from %s iif fl0 ipproto tcp dport %d lookup local",
                 space, AGENT_RULE + from, address, find_agent_port(h, to));
        shell(command);
    }
    snprintf(command, sizeof command,
             "ip netns exec %s sh -c 'echo %d > /proc/sys/net/ipv4/conf/all/forwarding' && "
             "ip -n %s rule add pref %d from %s iif fl0 ipproto tcp dport %d-%d %s",
             space, how == NET_FILTER_REFUSES, space, RULE + from, address, FIRST, LAST,
             how == NET_FILTER_REFUSES ? "unreachable" : "blackhole");
    shell(command);
}

void net_filter_open(const net_hosts *h, int from, int to)
{
    char command[256];
    const char *space = h->host[to].space;
    snprintf(command, sizeof command,
             "ip -n %s rule del pref %d && { ip -n %s rule del pref %d 2> /dev/null || true; }",
             space, RULE + from, space, AGENT_RULE + from);
    shell(command);
}

/* It goes to an address that no host has. */
void net_filter_loopback_to(const net_hosts *h, int i, const char *addresses)
{
    char command[768];
    const char *space = h->host[i].space;
    let_rules_go_first(space);
    snprintf(command, sizeof command,
             "ip -n %s neigh replace 10.213.8.200 lladdr 02:00:00:00:00:99 dev fl0 nud "
             "permanent && ip -n %s route replace default via 10.213.8.200 dev fl0 onlink "
             "table %d && ip -n %s rule add pref %d iif lo to %s lookup %d",
             space, space, LOOPBACK_TABLE, space, LOOPBACK_RULE, addresses, LOOPBACK_TABLE);
    shell(command);
}

void net_filter_loopback(const net_hosts *h, int i, bool filtered)
{
    char command[256];
    const char *space = h->host[i].space;
    if (filtered) {
        net_filter_loopback_to(h, i, h->host[i].address);
        net_filter_loopback_to(h, i, "127.0.0.0/8");
    } else {
        snprintf(command, sizeof command, "ip -n %s rule del pref %d && ip -n %s rule del pref %d",
                 space, LOOPBACK_RULE, space, LOOPBACK_RULE);
        shell(command);
    }
}
