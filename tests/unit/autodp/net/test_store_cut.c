/* The client of the rendezvous store, whose connection to the ROUTER ends at the worst moments. */
#include "autodp/net/store/store.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/folder.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#include <cmocka.h>

enum { DEADLINE_MS = 20000, SLICE_MS = 20 };

/* What happens to the next request. */
typedef enum mishap {
    NONE,
    LOSE_REQUEST, /* the store never sees it; the client's end of the connection stays open */
    CUT_REQUEST,  /* the store never sees it: the connection ends */
    CUT_ANSWER,   /* the store answers, and the connection ends before that arrives */
    CUT_WAITING,  /* the store has it and cannot answer yet, and the connection ends */
} mishap;

typedef struct server {
    void *zmq, *router, *events;
    fl_store *store;
    fl_store_client *client[2];
    char folder[FOLDER_SIZE], endpoint[FOLDER_SIZE + 16];
    pthread_t thread;
    int fd; /* of the connection that came last */
    _Atomic mishap next;
    atomic_bool stop;
    atomic_int n_requests;
} server;

static void send_answer(void *router, const void *to, size_t to_bytes, const void *message,
                        size_t size_bytes)
{
    zmq_send(router, to, to_bytes, ZMQ_SNDMORE);
    zmq_send(router, "store", 5, ZMQ_SNDMORE);
    zmq_send(router, message, size_bytes, 0);
}

static void lose_answer(void *router, const void *to, size_t to_bytes, const void *message,
                        size_t size_bytes)
{
    (void)router;
    (void)to;
    (void)to_bytes;
    (void)message;
    (void)size_bytes;
}

/* An event of a connection: its number and the descriptor, then an endpoint. */
static void note_connections(server *s)
{
    unsigned char event[6];
    char endpoint[128];
    while (zmq_recv(s->events, event, sizeof event, ZMQ_DONTWAIT) == sizeof event) {
        memcpy(&s->fd, event + 2, sizeof s->fd);
        zmq_recv(s->events, endpoint, sizeof endpoint, 0);
    }
}

static void take_request(server *s)
{
    unsigned char from[256];
    char word[8];
    zmq_msg_t request;
    int from_bytes = zmq_recv(s->router, from, sizeof from, 0);
    zmq_recv(s->router, word, sizeof word, 0);
    zmq_msg_init(&request);
    zmq_msg_recv(&request, s->router, 0);
    note_connections(s);
    mishap what = atomic_exchange(&s->next, NONE);
    if (what != LOSE_REQUEST && what != CUT_REQUEST) {
        fl_store_handle(s->store, from, (size_t)from_bytes, zmq_msg_data(&request),
                        zmq_msg_size(&request), what == CUT_ANSWER ? lose_answer : send_answer,
                        s->router);
    }
    if (what >= CUT_REQUEST) {
        shutdown(s->fd, SHUT_RDWR);
    }
    atomic_fetch_add(&s->n_requests, 1);
    zmq_msg_close(&request);
}

static void *serve(void *argument)
{
    server *s = argument;
    zmq_pollitem_t item = {.socket = s->router, .events = ZMQ_POLLIN};
    while (!atomic_load(&s->stop)) {
        if (zmq_poll(&item, 1, 5) > 0) {
            take_request(s);
        }
    }
    return NULL;
}

static int start_server(void **state)
{
    static server s;
    s = (server){.zmq = zmq_ctx_new(), .fd = -1};
    s.router = zmq_socket(s.zmq, ZMQ_ROUTER);
    s.events = zmq_socket(s.zmq, ZMQ_PAIR);
    make_folder(s.folder);
    snprintf(s.endpoint, sizeof s.endpoint, "ipc://%s/store", s.folder);
    *state = &s;
    if (fl_store_create(&s.store) != FL_OK ||
        zmq_socket_monitor(s.router, "inproc://connections", ZMQ_EVENT_ACCEPTED) != 0 ||
        zmq_connect(s.events, "inproc://connections") != 0 || zmq_bind(s.router, s.endpoint) != 0) {
        return -1;
    }
    return pthread_create(&s.thread, NULL, serve, &s);
}

static int stop_server(void **state)
{
    server *s = *state;
    for (int i = 0; i < 2; i++) {
        fl_store_disconnect(&s->client[i]);
    }
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    zmq_socket_monitor(s->router, NULL, 0);
    zmq_close(s->events);
    zmq_close(s->router);
    zmq_ctx_term(s->zmq);
    fl_store_destroy(&s->store);
    return remove_folder(s->folder);
}

static fl_store_client *connect_client(server *s, int i)
{
    assert_int_equal(fl_store_connect(s->zmq, s->endpoint, NULL, &s->client[i]), FL_OK);
    return s->client[i];
}

static void set_value(fl_store_client *client, const char *key, const char *value)
{
    fl_kv kv = fl_store_kv(client);
    assert_int_equal(kv.set(kv.self, key, fl_deadline_us(DEADLINE_MS), value, strlen(value)),
                     FL_OK);
}

static void finds_value(fl_store_client *client, const char *key, const char *value)
{
    fl_kv kv = fl_store_kv(client);
    void *data = NULL;
    size_t size_bytes = 0;
    assert_int_equal(kv.get(kv.self, key, fl_deadline_us(DEADLINE_MS), &data, &size_bytes), FL_OK);
    assert_int_equal(size_bytes, strlen(value));
    assert_memory_equal(data, value, size_bytes);
    fl_free(data);
}

/* Ask for a key that nobody has set, until the store has taken the request. */
static void await_taken(server *s, fl_store_client *client, const char *key)
{
    fl_kv kv = fl_store_kv(client);
    void *data = NULL;
    size_t size_bytes = 0;
    int before = atomic_load(&s->n_requests);
    int64_t until_us = fl_deadline_us(DEADLINE_MS);
    while (atomic_load(&s->n_requests) == before) {
        assert_int_equal(kv.get(kv.self, key, fl_deadline_us(SLICE_MS), &data, &size_bytes),
                         FL_EDEADLINE);
        assert_true(fl_now_us() < until_us);
    }
}

/* ZeroMQ connects anew, but does not send again what it sent over the connection that ended. */
static void test_store_client__asks_again_after_a_cut(void **state)
{
    server *s = *state;
    fl_store_client *client = connect_client(s, 0);
    const mishap all[] = {CUT_REQUEST, CUT_ANSWER, LOSE_REQUEST};
    for (int i = 0; i < 3; i++) {
        char key[16], value[16];
        snprintf(key, sizeof key, "key/%d", i);
        snprintf(value, sizeof value, "value %d", i);
        atomic_store(&s->next, all[i]);
        set_value(client, key, value);
        assert_int_equal(atomic_load(&s->next), NONE);
        atomic_store(&s->next, all[i]);
        finds_value(client, key, value);
        assert_int_equal(atomic_load(&s->next), NONE);
    }
}

/* The answer that the store still owes goes to the connection that the client has now. */
static void test_store_client__waits_on_after_a_cut(void **state)
{
    server *s = *state;
    fl_store_client *one = connect_client(s, 0);
    set_value(one, "first", "1");
    atomic_store(&s->next, CUT_WAITING);
    await_taken(s, one, "awaited");
    await_taken(s, one, "awaited"); /* over the next connection */
    fl_store_client *two = connect_client(s, 1);
    set_value(two, "awaited", "it came");
    finds_value(one, "awaited", "it came");
    /* An answer that comes twice is not taken for that of the next request. */
    finds_value(one, "first", "1");
    finds_value(two, "first", "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_store_client__asks_again_after_a_cut, start_server,
                                        stop_server),
        cmocka_unit_test_setup_teardown(test_store_client__waits_on_after_a_cut, start_server,
                                        stop_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
