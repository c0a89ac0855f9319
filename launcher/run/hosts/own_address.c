#include "launcher/run/hosts/own_address.h"

#include "device/text/ip_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { LIST_BYTES = 400, GIVEN_MAX = 80 };

/* The IPv4 address of this entry; false: it has none, or its interface is down. */
static bool read_entry(const struct ifaddrs *entry, char address[FL_ADDRESS_TEXT])
{
    struct sockaddr_in in;
    if ((entry->ifa_flags & IFF_UP) == 0 || entry->ifa_addr == NULL ||
        entry->ifa_addr->sa_family != AF_INET) {
        return false;
    }
    memcpy(&in, entry->ifa_addr, sizeof in);
    return inet_ntop(AF_INET, &in.sin_addr, address, FL_ADDRESS_TEXT) != NULL;
}

/* "10.0.0.2 (eth0), 10.1.0.2 (ib0)": those that other hosts may reach; near: the loopback ones,
 * too. */
static void list_addresses(const struct ifaddrs *all, bool near, char text[LIST_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct ifaddrs *i = all; i != NULL && used < LIST_BYTES; i = i->ifa_next) {
        char address[FL_ADDRESS_TEXT];
        if (read_entry(i, address) && (near || !fl_host_address_is_loopback(address))) {
            used += (size_t)snprintf(text + used, LIST_BYTES - used, "%s%s (%.16s)",
                                     used == 0 ? "" : ", ", address, i->ifa_name);
        }
    }
    if (used == 0) {
        snprintf(text, LIST_BYTES, "an address of a network interface, and this host has none");
    }
}

/* All of 127.0.0.0/8 is the loopback interface's, which has one of them in its list. */
static bool has_interface(const struct ifaddrs *all, const char *address)
{
    char other[FL_ADDRESS_TEXT];
    bool found = all == NULL || fl_host_address_is_loopback(address);
    for (const struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next) {
        found = read_entry(i, other) && strcmp(other, address) == 0;
    }
    return found && fl_host_address_is_own(address);
}

static const char *shown_address(const char *given, const char *address,
                                 char shown[GIVEN_MAX + FL_ADDRESS_TEXT + 8])
{
    bool same = strcmp(given, address) == 0;
    int n = snprintf(shown, GIVEN_MAX + FL_ADDRESS_TEXT + 8, "%.*s", GIVEN_MAX, given);
    if (!same) {
        snprintf(shown + n, FL_ADDRESS_TEXT + 8, " (%s)", address);
    }
    return shown;
}

/* The last address of a network with more than two: interfaces may not state it. */
static bool is_broadcast(const struct ifaddrs *entry, const char *address)
{
    struct sockaddr_in in, mask;
    struct in_addr wanted;
    if ((entry->ifa_flags & IFF_BROADCAST) == 0 || entry->ifa_addr == NULL ||
        entry->ifa_addr->sa_family != AF_INET || entry->ifa_netmask == NULL) {
        return false;
    }
    memcpy(&in, entry->ifa_addr, sizeof in);
    memcpy(&mask, entry->ifa_netmask, sizeof mask);
    uint32_t hosts = ~ntohl(mask.sin_addr.s_addr);
    return hosts > 1 && inet_pton(AF_INET, address, &wanted) == 1 &&
           ntohl(wanted.s_addr) == (ntohl(in.sin_addr.s_addr) | hosts);
}

fl_status fl_own_address_check_other(const char *given, const char *address)
{
    char own[FL_ADDRESS_TEXT], shown[GIVEN_MAX + FL_ADDRESS_TEXT + 8];
    struct ifaddrs *all = NULL;
    fl_status status = FL_OK;
    if (fl_host_address_is_loopback(address) || getifaddrs(&all) != 0) {
        return FL_OK;
    }
    for (const struct ifaddrs *i = all; i != NULL && status == FL_OK; i = i->ifa_next) {
        bool is_own = read_entry(i, own) && strcmp(own, address) == 0;
        if (is_own || is_broadcast(i, address)) {
            status = fl_fail(FL_EINVAL,
                             "found %s, %s address of %.16s of this host, which is the "
                             "first one; allowed: an address of that other host",
                             shown_address(given, address, shown), is_own ? "an" : "the broadcast",
                             i->ifa_name);
        }
    }
    freeifaddrs(all);
    return status;
}

/* The addresses of this host that would do. why: to follow "found ADDRESS, " */
static fl_status refuse_address(const struct ifaddrs *all, const char *given, const char *address,
                                const char *why, bool near)
{
    char list[LIST_BYTES], shown[GIVEN_MAX + FL_ADDRESS_TEXT + 8];
    list_addresses(all, near, list);
    return fl_fail(FL_EINVAL, "found %s, %s; allowed: %s", shown_address(given, address, shown),
                   why, list);
}

fl_status fl_own_address_resolve(const char *given, char address[FL_ADDRESS_TEXT])
{
    const char *fault = fl_ip_fault(given);
    struct ifaddrs *all = NULL;
    if (fault == NULL) {
        return fl_host_address(given, address);
    }
    if (getifaddrs(&all) != 0) {
        return fl_host_address(given, address); /* the same, without a list */
    }
    fl_status status = refuse_address(all, given, given, fault, false);
    freeifaddrs(all);
    return status;
}

fl_status fl_own_address_check(const char *given, const char *address, bool near)
{
    struct ifaddrs *all = NULL;
    const char *why = NULL;
    if (getifaddrs(&all) != 0) {
        all = NULL; /* nothing is known of interfaces: a socket at the address decides */
    }
    if (!has_interface(all, address)) {
        why = "which is no address of a network interface of this host";
    } else if (!near && fl_host_address_is_loopback(address)) {
        why = "which leads other hosts to themselves";
    }
    fl_status status = why == NULL ? FL_OK : refuse_address(all, given, address, why, near);
    if (all != NULL) {
        freeifaddrs(all);
    }
    return status;
}
