/* Which transport a net uses. */
#include "autodp/net/open/net_open.h"

#include "autodp/net/transport.h"
#include "device/errors/log.h"

#include <signal.h>
#include <string.h>

/* Writing to a dead peer is an error here, not a signal. */
static void ignore_sigpipe(void)
{
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL) {
        signal(SIGPIPE, SIG_IGN);
    }
}

static fl_status open_by_transport(const fl_net_options *options, fl_net **out)
{
    if (options->transport != NULL) {
        return options->transport->ops->open(options, out);
    }
    if (options->host == NULL && options->size > FL_NET_GLOO_MAX && !options->sockets_only) {
        fl_status status = fl__shm_net_ops.open(options, out);
        if (status != FL_ENOTSUP) {
            return status;
        }
        fl_log(FL_LOG_WARN, "messages between workers go through sockets: %s", fl_errmsg());
    }
    return fl__gloo_net_ops.open(options, out);
}

const fl_net_transport *fl_net_shared_memory(void)
{
    static const fl_net_transport shared = {.ops = &fl__shm_net_ops};
    return &shared;
}

fl_status fl_net_open(const fl_net_options *options, fl_net **out)
{
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size) {
        return fl_fail(FL_EINVAL, "rank %d of %d members", options->rank, options->size);
    }
    if (strlen(options->name) >= sizeof((fl_net *)NULL)->name) {
        return fl_fail(FL_EINVAL, "the name of a net, '%s', is too long", options->name);
    }
    ignore_sigpipe();
    fl_status status = open_by_transport(options, out);
    return status == FL_OK ? FL_OK
                           : fl_within(status, "opening net %s, member %d of %d", options->name,
                                       options->rank, options->size);
}
