#include "control/agent/join/join_address.h"

#include "control/agent/join/awaited.h"
#include "device/text/ip_address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* A host has all addresses of its loopback interface: 127.0.0.0/8. */
static bool has_address(const fl_host_join *join, const char *address)
{
    uint32_t wanted;
    if (inet_pton(AF_INET, address, &wanted) != 1 || fl_ip_is_loopback(address)) {
        return true; /* not an IPv4 address: nothing is known of it */
    }
    bool found = join->n_own == 0;
    for (int i = 0; i < join->n_own; i++) {
        found = found || join->own[i] == ntohl(wanted);
    }
    return found;
}

const char *fl_join_address(const fl_host *host, const fl_host_join *join)
{
    struct in_addr in;
    bool usable = inet_pton(AF_INET, join->address, &in) == 1;
    return usable && (join->chosen || !has_address(join, host->address)) ? join->address
                                                                         : host->address;
}

bool fl_join_is_reachable(const fl_hosts *hosts, const fl_host_join *join, const char *address,
                          char why[FL_HOST_TEXT_MAX + 1])
{
    const char *wrong = fl_ip_fault(address);
    bool is_near = fl_ip_is_loopback(address) && !fl_ip_is_loopback(hosts->host[0].address);
    bool is_other = join->n_own < FL_HOST_OWN_MAX && !has_address(join, address);
    if (wrong == NULL && is_near) {
        wrong = "which leads other hosts to themselves";
    } else if (wrong == NULL && is_other) {
        wrong = "which is no address of a network interface of the host";
    }
    if (wrong != NULL) {
        snprintf(why, FL_HOST_TEXT_MAX + 1,
                 "its address, %.63s, %s; allowed: --address with one at which the other hosts "
                 "reach it",
                 address, wrong);
    }
    return wrong == NULL;
}

bool fl_join_has_ranks(const fl_hosts *hosts, const fl_host_join *join, int n_ranks,
                       const bool *awaited, char why[FL_HOST_TEXT_MAX + 1])
{
    char names[FL_AWAITED_TEXT], hint[FL_AWAITED_TEXT + 96] = "";
    int left = n_ranks - fl_hosts_n_ranks(hosts);
    if (join->n_devices <= left) {
        return true;
    }
    if (memchr(awaited, 1, (size_t)hosts->n) != NULL) {
        snprintf(hint, sizeof hint,
                 "; the run waits for %s: if this host is one of them, give its name with --name",
                 fl_awaited_names(hosts, awaited, names));
    }
    snprintf(why, FL_HOST_TEXT_MAX + 1,
             "the run has no host of this name, and for a new one with %d device%s only %d of "
             "%d ranks %s left (devices.max)%s",
             join->n_devices, join->n_devices == 1 ? "" : "s", left, n_ranks,
             left == 1 ? "is" : "are", hint);
    return false;
}
