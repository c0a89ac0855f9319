/* Which transport tests of the training group use, so that the same tests run over each. */
#ifndef FL_TESTS_SUPPORT_RANKS_TRANSPORT_H
#define FL_TESTS_SUPPORT_RANKS_TRANSPORT_H

#include "autodp/nccl/nccl.h"
#include "autodp/net/open/net_open.h"
#include "autodp/tls/tls.h"

#include <stdlib.h>
#include <string.h>

/* Whether FL_TEST_TRANSPORT of the environment is this text: "nccl"; "tls" or "shared" for what
 * nets use in the place of Gloo. Without that, through host memory. */
static inline bool test_transport_is(const char *name)
{
    const char *transport = getenv("FL_TEST_TRANSPORT");
    return transport != NULL && strcmp(transport, name) == 0;
}

/* Which library stands in for NCCL is what FROSTLINE_NCCL names. */
static inline const fl_group_ops *test_backend(void)
{
    return test_transport_is("nccl") ? &fl_nccl_group_ops : NULL;
}

/* What nets use; NULL: they choose. */
static inline const fl_net_transport *test_net_transport(void)
{
    static fl_net_transport tls;
    if (test_transport_is("shared")) {
        return fl_net_shared_memory();
    }
    return test_transport_is("tls") && fl_tls_transport("the key of the tests", &tls) == FL_OK
               ? &tls
               : NULL;
}

#endif
