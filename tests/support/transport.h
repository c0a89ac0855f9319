/* Which transport tests of the training group use, so that the same tests run over each. */
#ifndef FL_TESTS_SUPPORT_TRANSPORT_H
#define FL_TESTS_SUPPORT_TRANSPORT_H

#include "autodp/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

/* As FL_TEST_TRANSPORT of the environment has it: "nccl"; without that, through host memory. Which
 * library stands in for NCCL is what FROSTLINE_NCCL names. */
static inline const fl_group_ops *test_backend(void)
{
    const char *transport = getenv("FL_TEST_TRANSPORT");
    return transport != NULL && strcmp(transport, "nccl") == 0 ? &fl_nccl_group_ops : NULL;
}

/* Where the members of a net listen: on loopback if FL_TEST_TRANSPORT is "sockets"; NULL: they are
 * on one host, and share memory. */
static inline const char *test_host(void)
{
    const char *transport = getenv("FL_TEST_TRANSPORT");
    return transport != NULL && strcmp(transport, "sockets") == 0 ? "127.0.0.1" : NULL;
}

#endif
