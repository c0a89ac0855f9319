#include "control/agent/measure/own_reach.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TURN_MS = 1 };

static bool carry_out(const fl_reach_order *order, fl_reach_answer *answer)
{
    fl_reach_round *round = NULL;
    if (fl_reach_round_begin(&round, order) != FL_OK) {
        return false;
    }
    while (!fl_reach_round_turn(round, answer)) {
        (void)poll(NULL, 0, TURN_MS);
    }
    fl_reach_round_end(&round);
    return true;
}

/* Then nothing that this host sends to itself arrives, whatever the firewall says. */
static bool is_lo_down(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool down = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0 && (lo.ifr_flags & IFF_UP) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return down;
}

static void describe_fault(const char *address, const char *why, fl_own_reach_fault *fault)
{
    if (is_lo_down()) {
        *fault =
            (fl_own_reach_fault){.found = "the interface lo is down",
                                 .allowed = "one that is up, by `ip link set lo up`",
                                 .mend = "bring up the loopback interface (ip link set lo up)"};
        return;
    }
    *fault =
        (fl_own_reach_fault){.allowed = "a firewall that accepts what goes over lo",
                             .mend = "let the firewall accept what goes over lo: iptables -I INPUT "
                                     "-i lo -j ACCEPT, and OUTPUT -o lo in the same way"};
    snprintf(fault->found, sizeof fault->found,
             "loopback is filtered: %s over the interface lo, %s", address, why);
}

bool fl_own_reach(const char *address, const uint16_t ports[2], fl_own_reach_fault *fault)
{
    fl_reach_order order = {.number = 1, .timeout_ms = FL_OWN_REACH_MS, .n = 1};
    fl_reach_answer answer = {.n = 0};
    fl_reach_door door;
    struct in_addr in;
    if (inet_pton(AF_INET, address, &in) != 1 || !fl_reach_door_open(&door, ports)) {
        return true;
    }
    order.target[0] =
        (fl_reach_target){.port = door.port, .is_door = true, .address = ntohl(in.s_addr)};
    bool reached = !carry_out(&order, &answer) || answer.n == 0;
    fl_reach_door_close(&door);
    if (!reached) {
        describe_fault(address, answer.why, fault);
    }
    return reached;
}
