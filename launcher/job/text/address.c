#include "launcher/job/text/address.h"

#include "device/errors/failure.h"
#include "launcher/job/text/text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

fl_status fl_address_check_form(const char *text)
{
    struct in_addr in;
    char shown[FL_SHOWN_MAX];
    size_t n = strlen(text);
    bool is_number = n > 0 && (strspn(text, "0123456789.") == n || inet_aton(text, &in) != 0);
    return !is_number || inet_pton(AF_INET, text, &in) == 1
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "found %s, allowed: four decimal numbers from 0 to 255 without leading "
                         "zeros, as 10.0.0.1, or a name",
                         fl_shown(text, n, shown));
}

fl_status fl_address_check_host(const char *text)
{
    struct in_addr in;
    FL_TRY(fl_address_check_form(text));
    if (inet_pton(AF_INET, text, &in) != 1) {
        return FL_OK;
    }
    uint32_t address = ntohl(in.s_addr);
    return !IN_MULTICAST(address) && address != INADDR_BROADCAST
               ? FL_OK
               : fl_fail(FL_EINVAL, "found %s, a %s address; allowed: the address of one host",
                         text, address == INADDR_BROADCAST ? "broadcast" : "multicast");
}
