#include "autodp/nccl/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char variable[] = "NCCL_SOCKET_IFNAME";

static bool has_address(const struct ifaddrs *interface, const struct in_addr *address)
{
    struct sockaddr_in own;
    if (interface->ifa_addr == NULL || interface->ifa_addr->sa_family != AF_INET) {
        return false;
    }
    memcpy(&own, interface->ifa_addr, sizeof own);
    return own.sin_addr.s_addr == address->s_addr;
}

static fl_status find_interface(const char *address, char name[IF_NAMESIZE])
{
    struct in_addr wanted;
    struct ifaddrs *all = NULL;
    if (inet_pton(AF_INET, address, &wanted) != 1) {
        return fl_fail(FL_EINVAL, "'%s' is no IPv4 address", address);
    }
    if (getifaddrs(&all) != 0) {
        return fl_fail(FL_EINVAL, "the network interfaces cannot be listed: %s", strerror(errno));
    }
    name[0] = '\0';
    for (const struct ifaddrs *i = all; i != NULL && name[0] == '\0'; i = i->ifa_next) {
        if (has_address(i, &wanted)) {
            snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
        }
    }
    freeifaddrs(all);
    return name[0] != '\0' ? FL_OK : fl_fail(FL_EINVAL, "no network interface has %s", address);
}

fl_status fl_nccl_choose_interface(const char *address)
{
    char name[IF_NAMESIZE] = "lo", value[IF_NAMESIZE + 1];
    if (getenv(variable) != NULL) {
        return FL_OK;
    }
    FL_TRY(address == NULL ? FL_OK : find_interface(address, name));
    snprintf(value, sizeof value, "=%s", name); /* this name, and no other one that begins so */
    return setenv(variable, value, 1) == 0
               ? FL_OK
               : fl_fail(FL_EINVAL, "%s: %s", variable, strerror(errno));
}
