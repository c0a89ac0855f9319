#include "device/system/tcp_retry.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum {
    RTO_MAX_OPTION = 44, /* TCP_RTO_MAX_MS of Linux 6.15, which older headers do not have */
    PAUSE_MOST_MS = 1000 /* the least that it takes */
};

void fl_tcp_retry_evenly(int fd)
{
    const int on = 1, pause_ms = PAUSE_MOST_MS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, RTO_MAX_OPTION, &pause_ms, sizeof pause_ms);
}
