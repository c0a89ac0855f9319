#include "launcher/run/hosts/host_address.h"

#include "device/errors/failure.h"
#include "device/text/ip_address.h"
#include "launcher/job/text/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TRIES = 64, PORT_MAX = 65535 };

fl_status fl_host_address(const char *name, char address[FL_ADDRESS_TEXT])
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    FL_TRY(fl_address_check(name, FL_ADDRESS_OR_NAME));
    int error = getaddrinfo(name, NULL, &hints, &found);
    if (error != 0) {
        return fl_fail(FL_EINVAL, "%s: no IPv4 address: %s", name,
                       error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    }
    struct sockaddr_in in;
    memcpy(&in, found->ai_addr, sizeof in);
    freeaddrinfo(found);
    inet_ntop(AF_INET, &in.sin_addr, address, FL_ADDRESS_TEXT);
    fl_status status = fl_address_check(address, FL_ADDRESS_ALONE);
    return status == FL_OK ? FL_OK : fl_within(status, "%s", name);
}

/* A socket for datagrams has an address of its own once it has a destination. */
void fl_host_address_toward(const char *endpoint, char address[FL_ADDRESS_TEXT])
{
    char host[256], there[FL_ADDRESS_TEXT];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(1)}, own = {0};
    socklen_t size = sizeof own;
    const char *begin = strncmp(endpoint, "tcp://", 6) == 0 ? endpoint + 6 : endpoint;
    const char *end = strrchr(begin, ':');
    address[0] = '\0';
    snprintf(host, sizeof host, "%.*s", end == NULL ? (int)strlen(begin) : (int)(end - begin),
             begin);
    if (fl_host_address(host, there) != FL_OK || inet_pton(AF_INET, there, &to.sin_addr) != 1) {
        return;
    }
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &size) == 0) {
        inet_ntop(AF_INET, &own.sin_addr, address, FL_ADDRESS_TEXT);
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* A TCP socket at this address; port 0: any that is free. Returns -1, with errno. */
static int bind_socket(const char *address, int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, address, &in.sin_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* As ZeroMQ does: connections that have ended do not keep the port. */
    if (fd >= 0 && port != 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    }
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&in, sizeof in) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

bool fl_host_address_is_own(const char *address)
{
    int fd = bind_socket(address, 0);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

bool fl_host_address_is_loopback(const char *address)
{
    return fl_ip_is_loopback(address);
}

/* The first IPv4 address of this interface, or of any but the loopback one. */
static bool find_interface(const struct ifaddrs *all, const char *interface,
                           char address[FL_ADDRESS_TEXT])
{
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        struct sockaddr_in in;
        bool wanted = interface != NULL ? strcmp(i->ifa_name, interface) == 0
                                        : (i->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
        if (wanted && i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET) {
            memcpy(&in, i->ifa_addr, sizeof in);
            inet_ntop(AF_INET, &in.sin_addr, address, FL_ADDRESS_TEXT);
            return true;
        }
    }
    return false;
}

int fl_host_address_all(uint32_t *addresses, int max)
{
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *i = all; i != NULL && n < max; i = i->ifa_next) {
        struct sockaddr_in in;
        if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET) {
            memcpy(&in, i->ifa_addr, sizeof in);
            addresses[n++] = ntohl(in.sin_addr.s_addr);
        }
    }
    freeifaddrs(all);
    return n;
}

fl_status fl_host_address_own(const char *interface, const char *name,
                              char address[FL_ADDRESS_TEXT])
{
    struct ifaddrs *all = NULL;
    if (interface == NULL && fl_host_address(name, address) == FL_OK &&
        !fl_host_address_is_loopback(address) && fl_host_address_is_own(address)) {
        return FL_OK;
    }
    bool found = getifaddrs(&all) == 0 && find_interface(all, interface, address);
    if (all != NULL) {
        freeifaddrs(all);
    }
    return found ? FL_OK
           : interface != NULL
               ? fl_fail(FL_EINVAL,
                         "--interface: found %.60s, allowed: an interface of this host "
                         "with an IPv4 address",
                         interface)
               : fl_fail(FL_EINVAL, "this host, %.60s, has no IPv4 address for other hosts", name);
}

static int port_of(int fd)
{
    struct sockaddr_in in = {0};
    socklen_t size = sizeof in;
    return getsockname(fd, (struct sockaddr *)&in, &size) == 0 ? ntohs(in.sin_port) : PORT_MAX;
}

fl_status fl_host_address_free_ports(const char *address, int *port)
{
    for (int i = 0; i < TRIES; i++) {
        int first = bind_socket(address, 0);
        if (first < 0) {
            break;
        }
        *port = port_of(first);
        int next = *port < PORT_MAX ? bind_socket(address, *port + 1) : -1;
        close(first);
        if (next >= 0) {
            close(next);
            return FL_OK;
        }
    }
    return fl_fail(FL_EIO, "%s: no two free ports: %s", address, strerror(errno));
}

fl_status fl_host_address_check_port(const char *endpoint)
{
    char address[FL_ADDRESS_TEXT] = "";
    const char *colon = strrchr(endpoint, ':');
    if (strncmp(endpoint, "tcp://", 6) != 0 || colon < endpoint + 6 ||
        colon - endpoint - 6 >= FL_ADDRESS_TEXT) {
        return FL_OK;
    }
    memcpy(address, endpoint + 6, (size_t)(colon - endpoint - 6));
    struct in_addr in;
    if (inet_pton(AF_INET, address, &in) != 1) {
        return FL_OK;
    }
    int fd = bind_socket(address, atoi(colon + 1));
    if (fd < 0) {
        return fl_fail(FL_EINVAL,
                       "cannot listen at %s: %s; allowed: an address of this host, and a "
                       "port such that it and the next one are free",
                       endpoint, strerror(errno));
    }
    close(fd);
    return FL_OK;
}
