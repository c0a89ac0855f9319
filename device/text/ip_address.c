#include "device/text/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EVERY "which means every address of a host"
#define ZONE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

/* The first one that holds an address decides. */
static const struct {
    uint32_t first;
    int n_bits;
    const char *fault;
} ranges[] = {
    {0x00000000, 32, EVERY},
    {0x00000000, 8, "an address of 0.0.0.0/8, which no host has"},
    {0xffffffff, 32, "a broadcast address"},
    {0xe0000000, 4, "a multicast address"},
    {0xf0000000, 4, "an address of 240.0.0.0/4 (class E), which no host has"},
};

static const char *fault_of_v4(uint32_t address)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if ((address ^ ranges[i].first) >> (32 - ranges[i].n_bits) == 0) {
            return ranges[i].fault;
        }
    }
    return NULL;
}

static const char *fault_of_v6(const struct in6_addr *address)
{
    return IN6_IS_ADDR_UNSPECIFIED(address) ? EVERY
           : IN6_IS_ADDR_LOOPBACK(address)  ? "an IPv6 loopback address"
           : IN6_IS_ADDR_MULTICAST(address) ? "an IPv6 multicast address"
           : IN6_IS_ADDR_LINKLOCAL(address) ? "an IPv6 link-local address"
           : IN6_IS_ADDR_V4MAPPED(address)  ? "an IPv4 address in the form of an IPv6 one"
                                            : "an IPv6 address";
}

/* "[fe80::1%eth0]" is fe80::1: brackets are of endpoints, and a zone is of link-local addresses. */
static bool read_v6(const char *text, struct in6_addr *address)
{
    char bare[INET6_ADDRSTRLEN];
    const char *begin = text[0] == '[' ? text + 1 : text;
    size_t n = strcspn(begin, "%]");
    const char *rest = begin + n;
    rest += *rest == '%' ? 1 + strspn(rest + 1, ZONE) : 0;
    bool is_whole = strcmp(rest, begin == text ? "" : "]") == 0;
    snprintf(bare, sizeof bare, "%.*s", n < sizeof bare ? (int)n : 0, begin);
    return is_whole && inet_pton(AF_INET6, bare, address) == 1;
}

const char *fl_ip_fault(const char *text)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(text, "*") == 0) {
        return EVERY;
    }
    if (inet_pton(AF_INET, text, &v4) == 1) {
        return fault_of_v4(ntohl(v4.s_addr));
    }
    return read_v6(text, &v6) ? fault_of_v6(&v6) : NULL;
}

bool fl_ip_is_loopback(const char *text)
{
    struct in_addr v4;
    return inet_pton(AF_INET, text, &v4) == 1 && ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
}
