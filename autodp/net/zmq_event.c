#include "autodp/net/zmq_event.h"

#include "device/system/tcp_retry.h"

#include <stdint.h>
#include <string.h>
#include <zmq.h>

/* An event is two parts: its number with a value, and its endpoint. The descriptor may be closed
 * already, and its number be that of another connection by now: of a link, too, which wants the
 * same. */
static int read_part(zmq_msg_t *part)
{
    uint16_t event = 0;
    int value = -1;
    if (!zmq_msg_more(part) || zmq_msg_size(part) < sizeof event + sizeof value) {
        return 0;
    }
    const unsigned char *bytes = (const unsigned char *)zmq_msg_data(part);
    memcpy(&event, bytes, sizeof event);
    memcpy(&value, bytes + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_CONNECTED) {
        fl_tcp_retry_evenly(value);
    }
    return event;
}

int fl_zmq_event_read(void *monitor)
{
    int event = 0;
    zmq_msg_t part;
    zmq_msg_init(&part);
    while (monitor != NULL && event == 0 && zmq_msg_recv(&part, monitor, ZMQ_DONTWAIT) >= 0) {
        event = read_part(&part);
    }
    zmq_msg_close(&part);
    return event;
}
