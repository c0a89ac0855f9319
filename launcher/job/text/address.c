#include "launcher/job/text/address.h"

#include "device/errors/failure.h"
#include "device/text/ip_address.h"
#include "device/text/plain_name.h"
#include "launcher/job/text/text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

enum { NAME_MAX_BYTES = 253 /* of a name in DNS */ };

static fl_status refuse_form(const char *text, bool is_number, fl_address_kind kind)
{
    char shown[FL_SHOWN_MAX];
    const char *or_name = kind == FL_ADDRESS_OR_NAME ? ", or a name" : "";
    fl_shown(text, strlen(text), shown);
    return is_number ? fl_fail(FL_EINVAL,
                               "found %s, allowed: four decimal numbers from 0 to 255 without "
                               "leading zeros, as 10.0.0.1%s",
                               shown, or_name)
                     : fl_fail(FL_EINVAL, "found %s, allowed: an IPv4 address, as 10.0.0.1%s%s",
                               shown, or_name, or_name[0] == '\0' ? "" : " that has one");
}

fl_status fl_address_check(const char *text, fl_address_kind kind)
{
    struct in_addr in;
    size_t n = strlen(text);
    const char *fault = fl_ip_fault(text);
    bool is_number = n > 0 && (strspn(text, "0123456789.") == n || inet_aton(text, &in) != 0);
    if (fault != NULL) {
        return fl_fail(FL_EINVAL, "found %s, %s; allowed: the IPv4 address of one host", text,
                       fault);
    }
    if (inet_pton(AF_INET, text, &in) == 1) {
        return FL_OK;
    }
    bool is_name = !is_number && fl_name_is_plain(text, NAME_MAX_BYTES);
    return is_name && kind == FL_ADDRESS_OR_NAME ? FL_OK : refuse_form(text, is_number, kind);
}

int fl_address_find_near(const char *address, size_t stride, int n)
{
    int near = -1, n_far = 0;
    for (int i = n - 1; i >= 0; i--) {
        struct in_addr in;
        const char *one = address + (size_t)i * stride;
        bool is_near = fl_ip_is_loopback(one);
        near = is_near ? i : near;
        n_far += !is_near && inet_pton(AF_INET, one, &in) == 1;
    }
    return n_far > 0 ? near : -1;
}

fl_status fl_address_refuse_near(const char *given, const char *address)
{
    bool same = strcmp(given, address) == 0;
    return fl_fail(FL_EINVAL,
                   "found %s%s%s%s, which leads other hosts to themselves; allowed: its address in "
                   "the network of the hosts",
                   given, same ? "" : " (", same ? "" : address, same ? "" : ")");
}
