#include "control/agent/relay/head_watch.h"

#include "device/system/clock.h"

#include <zmq.h>

enum {
    CLOSED = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
             ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH
};

const int fl_head_watch_events = ZMQ_EVENT_CONNECTED | CLOSED;

void fl_head_watch_begin(fl_head_watch *watch, int64_t now_us)
{
    watch->closed_us = now_us;
}

void fl_head_watch_note(fl_head_watch *watch, int event, int64_t now_us)
{
    if (event == ZMQ_EVENT_CONNECTED) {
        watch->closed_us = 0;
    } else if ((event & CLOSED) != 0 && watch->closed_us == 0) {
        watch->closed_us = now_us;
    }
}

void fl_head_watch_excuse(fl_head_watch *watch, int64_t us, int64_t now_us)
{
    if (watch->closed_us != 0) {
        watch->closed_us = fl_excused_us(watch->closed_us, us, now_us);
    }
}

int64_t fl_head_watch_closed_us(const fl_head_watch *watch, int64_t now_us)
{
    return watch->closed_us == 0 ? 0 : now_us - watch->closed_us;
}
