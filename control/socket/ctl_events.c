/* Events for subscribers.
 *
 * A run that goes back closes its sockets and opens new ones, and subscribers connect again by
 * themselves. What it publishes first is held until they have had the time for that; so they hear
 * every event, in order. */
#include "control/socket/ctl.h"

#include "control/link/keys/zmq_socket.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum { HOLD_US = 1000000 };

/* Sending fails when a subscriber's queue is full, so that the loss can be counted; the second
 * attempt then delivers the event to all others. */
static bool send_name(fl_ctl *ctl, void *socket, const char *event)
{
    size_t n = strlen(event);
    if (zmq_send(socket, event, n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
        return true;
    }
    ctl->counts.dropped++;
    (void)fl_zmq_set(socket, ZMQ_XPUB_NODROP, 0);
    bool sent = zmq_send(socket, event, n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0;
    (void)fl_zmq_set(socket, ZMQ_XPUB_NODROP, 1);
    return sent;
}

/* [event]["17"][the line]: the name, to subscribe by; a number that counts up, so that losses show;
 * and the line of events.jsonl without its newline. */
static void publish_line(fl_ctl *ctl, void *socket, const fl_ctl_event *e)
{
    char number[24];
    int n = snprintf(number, sizeof number, "%" PRId64, e->number);
    if (send_name(ctl, socket, e->name) &&
        zmq_send(socket, number, (size_t)n, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) {
        (void)zmq_send(socket, e->text, e->n, ZMQ_DONTWAIT);
    }
}

static void publish_event(fl_ctl *ctl, const fl_ctl_event *e)
{
    publish_line(ctl, ctl->events, e);
    if (ctl->far_events != NULL) {
        publish_line(ctl, ctl->far_events, e);
    }
}

/* ---- the first events of a run that has gone back ---- */

void fl_ctl_events_open(fl_ctl *ctl)
{
    ctl->release_us = fl_now_us() + HOLD_US;
}

void fl_ctl_events_release(fl_ctl *ctl, int64_t now_us)
{
    if (ctl->release_us == 0 || now_us < ctl->release_us) {
        return;
    }
    for (int i = 0; i < ctl->n_held; i++) {
        if (ctl->events != NULL) {
            publish_event(ctl, &ctl->held[i]);
        }
        fl_free(ctl->held[i].text);
    }
    ctl->n_held = 0;
    ctl->release_us = 0;
}

/* False: there is no room for it. */
static bool hold_event(fl_ctl *ctl, const fl_ctl_event *e)
{
    void *text = NULL;
    if (ctl->n_held == FL_CTL_HELD || fl_alloc(e->n, &text) != FL_OK) {
        return false;
    }
    memcpy(text, e->text, e->n);
    ctl->held[ctl->n_held] = *e;
    ctl->held[ctl->n_held++].text = text;
    return true;
}

void fl_ctl_publish(void *context, const char *event, const fl_json *line)
{
    fl_ctl *ctl = (fl_ctl *)context;
    fl_ctl_event e = {.text = line->text, .n = line->n - 1, .number = ++ctl->sequence};
    snprintf(e.name, sizeof e.name, "%s", event);
    if (ctl->release_us == 0 || !hold_event(ctl, &e)) {
        fl_ctl_events_release(ctl, INT64_MAX);
        publish_event(ctl, &e);
    }
}
