#include "autodp/net/store/store.h"

#include "autodp/net/store/store_wire.h"
#include "autodp/net/zmq_event.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <zmq.h>

struct fl_store_client {
    void *socket; /* DEALER */
    void *events; /* of its connection */
    uint64_t last_id;
    bool unanswered;  /* the request last_id, */
    uint64_t request; /* whose hash this is */
};

static fl_status zmq_failed(const char *what)
{
    return fl_fail(FL_EIO, "store: %s: %s", what, zmq_strerror(errno));
}

static bool watch_connection(fl_store_client *client, void *zmq_context)
{
    char name[48];
    int zero = 0;
    snprintf(name, sizeof name, "inproc://store-%p", client->socket);
    client->events = zmq_socket(zmq_context, ZMQ_PAIR);
    return client->events != NULL &&
           zmq_setsockopt(client->events, ZMQ_LINGER, &zero, sizeof zero) == 0 &&
           zmq_socket_monitor(client->socket, name, ZMQ_EVENT_CONNECTED) == 0 &&
           zmq_connect(client->events, name) == 0;
}

fl_status fl_store_connect(void *zmq_context, const char *endpoint, const fl_curve_keys *keys,
                           fl_store_client **out)
{
    fl_store_client *client = NULL;
    FL_TRY(fl_alloc(sizeof *client, (void **)&client));
    client->socket = zmq_socket(zmq_context, ZMQ_DEALER);
    fl_status status = FL_OK;
    int zero = 0;
    if (client->socket == NULL) {
        status = zmq_failed("socket");
    } else if (zmq_setsockopt(client->socket, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
               !fl_curve_client(keys, client->socket) || !watch_connection(client, zmq_context) ||
               zmq_connect(client->socket, endpoint) != 0) {
        status = zmq_failed(endpoint);
    }
    if (status != FL_OK) {
        fl_store_disconnect(&client);
        return status;
    }
    *out = client;
    return FL_OK;
}

void fl_store_disconnect(fl_store_client **client)
{
    if (*client != NULL) {
        if ((*client)->socket != NULL) {
            (void)zmq_socket_monitor((*client)->socket, NULL, 0);
            zmq_close((*client)->socket);
        }
        if ((*client)->events != NULL) {
            zmq_close((*client)->events);
        }
        fl_free(*client);
        *client = NULL;
    }
}

static fl_status send_request(fl_store_client *client, fl_store_op op, const char *key,
                              const void *value, size_t value_bytes)
{
    size_t key_bytes = strlen(key);
    fl_store_request header = {FL_STORE_REQUEST_MAGIC, (uint32_t)op, ++client->last_id,
                               (uint32_t)key_bytes, (uint32_t)value_bytes};
    size_t size_bytes = sizeof header + key_bytes + value_bytes;
    zmq_msg_t message;
    if (zmq_msg_init_size(&message, size_bytes) != 0) {
        return zmq_failed("request");
    }
    unsigned char *at = zmq_msg_data(&message);
    memcpy(at, &header, sizeof header);
    memcpy(at + sizeof header, key, key_bytes);
    if (value_bytes > 0) {
        memcpy(at + sizeof header + key_bytes, value, value_bytes);
    }
    if (zmq_send(client->socket, "store", 5, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
        zmq_msg_send(&message, client->socket, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&message);
        return zmq_failed("request");
    }
    return FL_OK;
}

/* A request that is repeated because its deadline has passed is not sent again: a store that is
 * slow because many ask would get ever more to do, and would answer only requests that are given
 * up. */
static fl_status ask(fl_store_client *client, fl_store_op op, const char *key, const void *value,
                     size_t value_bytes)
{
    size_t key_bytes = strlen(key);
    if (key_bytes == 0 || key_bytes > FL_STORE_KEY_MAX || value_bytes > FL_STORE_VALUE_MAX) {
        return fl_fail(FL_EINVAL, "store: a key of %zu bytes and a value of %zu (at most %d, %d)",
                       key_bytes, value_bytes, FL_STORE_KEY_MAX, FL_STORE_VALUE_MAX);
    }
    uint64_t request = XXH3_64bits_withSeed(key, key_bytes, (uint64_t)op);
    request = value_bytes == 0 ? request : XXH3_64bits_withSeed(value, value_bytes, request);
    if (client->unanswered && client->request == request) {
        return FL_OK;
    }
    FL_TRY(send_request(client, op, key, value, value_bytes));
    client->unanswered = true;
    client->request = request;
    return FL_OK;
}

/* The payload of the next message, whatever frames it has; *size_bytes 0 if it is not for us. */
static fl_status next_message(fl_store_client *client, zmq_msg_t *payload)
{
    int more = 1;
    bool ours = false;
    for (int frame = 0; more; frame++) {
        zmq_msg_close(payload);
        zmq_msg_init(payload);
        if (zmq_msg_recv(payload, client->socket, ZMQ_DONTWAIT) < 0) {
            return zmq_failed("reply");
        }
        more = zmq_msg_more(payload);
        if (frame == 0) {
            ours = zmq_msg_size(payload) == 5 && memcmp(zmq_msg_data(payload), "store", 5) == 0;
        } else {
            ours = ours && frame == 1;
        }
    }
    if (!ours) {
        zmq_msg_close(payload);
        zmq_msg_init(payload);
    }
    return FL_OK;
}

static bool is_reply(const fl_store_client *client, zmq_msg_t *payload, fl_store_answer *header)
{
    if (zmq_msg_size(payload) < sizeof *header) {
        return false;
    }
    memcpy(header, zmq_msg_data(payload), sizeof *header);
    return header->magic == FL_STORE_REPLY_MAGIC && header->id == client->last_id &&
           zmq_msg_size(payload) == sizeof *header + header->value_bytes;
}

static fl_status wait_readable(fl_store_client *client, int64_t deadline_us)
{
    zmq_pollitem_t items[] = {{.socket = client->socket, .events = ZMQ_POLLIN},
                              {.socket = client->events, .events = ZMQ_POLLIN}};
    for (;;) {
        int64_t left_ms = fl_left_ms(deadline_us);
        int rc = zmq_poll(items, 2, left_ms > INT_MAX ? INT_MAX : (long)left_ms);
        (void)fl_zmq_event_read(client->events);
        if (rc > 0 && (items[0].revents & ZMQ_POLLIN) != 0) {
            return FL_OK;
        }
        if (rc < 0 && errno != EINTR) {
            return zmq_failed("waiting");
        }
        if (fl_now_us() >= deadline_us) {
            return fl_fail(FL_EDEADLINE, "store: no answer in time");
        }
    }
}

/* Wait for the reply to the last request; drop replies to older ones, which were given up. */
static fl_status await(fl_store_client *client, int64_t deadline_us, zmq_msg_t *payload,
                       fl_store_answer *header)
{
    do {
        FL_TRY(wait_readable(client, deadline_us));
        FL_TRY(next_message(client, payload));
    } while (!is_reply(client, payload, header));
    client->unanswered = false;
    if (header->status != FL_OK) {
        return fl_fail((fl_status)header->status, "store: %s",
                       fl_status_text((fl_status)header->status));
    }
    return FL_OK;
}

static fl_status kv_set(void *self, const char *key, int64_t deadline_us, const void *data,
                        size_t size_bytes)
{
    fl_store_client *client = self;
    FL_TRY(ask(client, FL_STORE_SET, key, data, size_bytes));
    zmq_msg_t payload;
    fl_store_answer header;
    zmq_msg_init(&payload);
    fl_status status = await(client, deadline_us, &payload, &header);
    zmq_msg_close(&payload);
    return status == FL_OK ? FL_OK : fl_within(status, "setting '%s'", key);
}

static fl_status kv_get(void *self, const char *key, int64_t deadline_us, void **data,
                        size_t *size_bytes)
{
    fl_store_client *client = self;
    FL_TRY(ask(client, FL_STORE_GET, key, NULL, 0));
    zmq_msg_t payload;
    fl_store_answer header;
    zmq_msg_init(&payload);
    void *copy = NULL;
    fl_status status = await(client, deadline_us, &payload, &header);
    if (status == FL_OK) {
        status = fl_alloc(header.value_bytes, &copy);
    }
    if (status == FL_OK) {
        memcpy(copy, (const unsigned char *)zmq_msg_data(&payload) + sizeof header,
               header.value_bytes);
        *data = copy;
        *size_bytes = header.value_bytes;
    }
    zmq_msg_close(&payload);
    return status == FL_OK ? FL_OK : fl_within(status, "getting '%s'", key);
}

fl_kv fl_store_kv(fl_store_client *client)
{
    return (fl_kv){.self = client, .set = kv_set, .get = kv_get};
}
