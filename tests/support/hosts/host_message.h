/* A message between hosts, read as tests read it. */
#ifndef FL_TESTS_SUPPORT_HOSTS_HOST_MESSAGE_H
#define FL_TESTS_SUPPORT_HOSTS_HOST_MESSAGE_H

#include "control/agent/wire/host_wire.h"

#include <stdlib.h>
#include <string.h>

/* n bytes in memory of that size, so that a sanitizer sees a read beyond them. */
static inline fl_status host_message_get(const unsigned char *bytes, size_t n, fl_host_message *out)
{
    unsigned char *exact = malloc(n == 0 ? 1 : n);
    memcpy(exact, bytes, n);
    fl_status status = fl_host_wire_get(exact, n, out);
    free(exact);
    return status;
}

#endif
