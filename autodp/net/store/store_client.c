#include "autodp/net/store/store.h"

#include "autodp/net/store/store_wire.h"
#include "autodp/net/zmq_event.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>
#include <zmq.h>

enum { SEND_AGAIN_US = 1000 * 1000, LOOK_MS = 100 };

struct fl_store_client {
    void *socket;     /* DEALER */
    void *events;     /* of its connection */
    uint64_t last_id; /* counts from a random number: no two clients ask with the same one */
    bool unanswered;  /* the request last_id, */
    uint64_t request; /* whose hash this is, */
    int64_t sent_us;  /* and which was sent then */
    bool connected, was_connected;
    bool lost; /* the request may have ended with an earlier connection */
};

typedef struct question {
    fl_store_op op;
    const char *key;
    const void *value;
    size_t value_bytes;
} question;

static fl_status zmq_failed(const char *what)
{
    return fl_fail(FL_EIO, "store: %s: %s", what, zmq_strerror(errno));
}

static bool watch_connection(fl_store_client *client, void *zmq_context)
{
    char name[48];
    int zero = 0;
    int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
    snprintf(name, sizeof name, "inproc://store-%p", client->socket);
    client->events = zmq_socket(zmq_context, ZMQ_PAIR);
    return client->events != NULL &&
           zmq_setsockopt(client->events, ZMQ_LINGER, &zero, sizeof zero) == 0 &&
           /* No limit: they are read only during a request, and one that found no room would stop
            * all connections of the context. */
           zmq_setsockopt(client->events, ZMQ_RCVHWM, &zero, sizeof zero) == 0 &&
           zmq_socket_monitor(client->socket, name, events) == 0 &&
           zmq_connect(client->events, name) == 0;
}

static bool draw_first_id(fl_store_client *client)
{
    return getrandom(&client->last_id, sizeof client->last_id, 0) ==
           (ssize_t)sizeof client->last_id;
}

fl_status fl_store_connect(void *zmq_context, const char *endpoint, const fl_curve_keys *keys,
                           fl_store_client **out)
{
    fl_store_client *client = NULL;
    FL_TRY(fl_alloc(sizeof *client, (void **)&client));
    client->socket = zmq_socket(zmq_context, ZMQ_DEALER);
    fl_status status = FL_OK;
    int zero = 0;
    if (client->socket == NULL || !draw_first_id(client)) {
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

static fl_status send_request(fl_store_client *client, const question *q)
{
    size_t key_bytes = strlen(q->key);
    fl_store_request header = {FL_STORE_REQUEST_MAGIC, (uint32_t)q->op, client->last_id,
                               (uint32_t)key_bytes, (uint32_t)q->value_bytes};
    size_t size_bytes = sizeof header + key_bytes + q->value_bytes;
    zmq_msg_t message;
    if (zmq_msg_init_size(&message, size_bytes) != 0) {
        return zmq_failed("request");
    }
    unsigned char *at = zmq_msg_data(&message);
    memcpy(at, &header, sizeof header);
    memcpy(at + sizeof header, q->key, key_bytes);
    if (q->value_bytes > 0) {
        memcpy(at + sizeof header + key_bytes, q->value, q->value_bytes);
    }
    if (zmq_send(client->socket, "store", 5, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
        zmq_msg_send(&message, client->socket, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&message);
        return zmq_failed("request");
    }
    client->sent_us = fl_now_us();
    return FL_OK;
}

/* What was sent before the first connection waits for it. */
static void note_events(fl_store_client *client)
{
    int event;
    while ((event = fl_zmq_event_read(client->events)) != 0) {
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            client->lost = client->was_connected;
            client->connected = client->was_connected = true;
        } else if (event == ZMQ_EVENT_DISCONNECTED) {
            client->connected = false;
        }
    }
}

/* A request that is repeated because its deadline has passed is not sent at once again: a store
 * that is slow because many ask would get ever more to do, and would answer only requests that are
 * given up. */
static fl_status ask(fl_store_client *client, const question *q)
{
    size_t key_bytes = strlen(q->key);
    if (key_bytes == 0 || key_bytes > FL_STORE_KEY_MAX || q->value_bytes > FL_STORE_VALUE_MAX) {
        return fl_fail(FL_EINVAL, "store: a key of %zu bytes and a value of %zu (at most %d, %d)",
                       key_bytes, q->value_bytes, FL_STORE_KEY_MAX, FL_STORE_VALUE_MAX);
    }
    uint64_t request = XXH3_64bits_withSeed(q->key, key_bytes, (uint64_t)q->op);
    request =
        q->value_bytes == 0 ? request : XXH3_64bits_withSeed(q->value, q->value_bytes, request);
    if (client->unanswered && client->request == request) {
        return FL_OK;
    }
    note_events(client);
    client->unanswered = client->lost = false;
    client->last_id++;
    FL_TRY(send_request(client, q));
    client->unanswered = true;
    client->request = request;
    return FL_OK;
}

/* A connection that ends takes with it what is on its way: the request, or the answer. ZeroMQ opens
 * the next one, and the store gets the request again, under the same number. The store's end may be
 * closed where this one is not, which shows only once something is sent: hence a request without an
 * answer is sent again now and then, too. Any of its answers will do. */
static void send_again(fl_store_client *client, const question *q)
{
    if (client->connected && (client->lost || fl_now_us() - client->sent_us >= SEND_AGAIN_US)) {
        client->lost = send_request(client, q) != FL_OK;
    }
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

static fl_status wait_readable(fl_store_client *client, const question *q, int64_t deadline_us)
{
    zmq_pollitem_t items[] = {{.socket = client->socket, .events = ZMQ_POLLIN},
                              {.socket = client->events, .events = ZMQ_POLLIN}};
    for (;;) {
        note_events(client);
        send_again(client, q);
        int64_t left_ms = fl_left_ms(deadline_us);
        int rc = zmq_poll(items, 2, left_ms < LOOK_MS ? (long)left_ms : LOOK_MS);
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
static fl_status await(fl_store_client *client, const question *q, int64_t deadline_us,
                       zmq_msg_t *payload, fl_store_answer *header)
{
    do {
        FL_TRY(wait_readable(client, q, deadline_us));
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
    const question q = {FL_STORE_SET, key, data, size_bytes};
    FL_TRY(ask(client, &q));
    zmq_msg_t payload;
    fl_store_answer header;
    zmq_msg_init(&payload);
    fl_status status = await(client, &q, deadline_us, &payload, &header);
    zmq_msg_close(&payload);
    return status == FL_OK ? FL_OK : fl_within(status, "setting '%s'", key);
}

static fl_status kv_get(void *self, const char *key, int64_t deadline_us, void **data,
                        size_t *size_bytes)
{
    fl_store_client *client = self;
    const question q = {FL_STORE_GET, key, NULL, 0};
    FL_TRY(ask(client, &q));
    zmq_msg_t payload;
    fl_store_answer header;
    zmq_msg_init(&payload);
    void *copy = NULL;
    fl_status status = await(client, &q, deadline_us, &payload, &header);
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
