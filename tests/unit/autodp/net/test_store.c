/* The rendezvous store: the keeper by direct calls and under random requests, and the client
 * through a ROUTER. */
#include "autodp/net/store/store.h"

#include "autodp/net/store/store_wire.h"
#include "device/random/random.h"
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
#include <time.h>
#include <zmq.h>

#include <cmocka.h>

/* ---- the keeper ---- */

enum { ANSWERS_MAX = 16 };

typedef struct answers {
    int n;
    struct {
        char to[8];
        fl_store_answer head;
        char value[64];
    } all[ANSWERS_MAX];
} answers;

static void keep_answer(void *context, const void *to, size_t to_bytes, const void *message,
                        size_t size_bytes)
{
    answers *a = context;
    assert_true(a->n < ANSWERS_MAX && to_bytes < 8 && size_bytes >= sizeof a->all[0].head);
    memset(&a->all[a->n], 0, sizeof a->all[0]);
    memcpy(a->all[a->n].to, to, to_bytes);
    memcpy(&a->all[a->n].head, message, sizeof a->all[0].head);
    size_t value_bytes = size_bytes - sizeof a->all[0].head;
    assert_int_equal(value_bytes, a->all[a->n].head.value_bytes);
    memcpy(a->all[a->n].value, (const char *)message + sizeof a->all[0].head,
           value_bytes < 63 ? value_bytes : 63);
    a->n++;
}

static size_t make_request(unsigned char *out, uint32_t op, uint64_t id, const char *key,
                           const void *value, size_t value_bytes)
{
    fl_store_request head = {FL_STORE_REQUEST_MAGIC, op, id, (uint32_t)strlen(key),
                             (uint32_t)value_bytes};
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, key, strlen(key));
    if (value_bytes > 0) {
        memcpy(out + sizeof head + strlen(key), value, value_bytes);
    }
    return sizeof head + strlen(key) + value_bytes;
}

static void ask(fl_store *store, answers *a, const char *from, uint32_t op, uint64_t id,
                const char *key, const char *value)
{
    unsigned char request[1024];
    size_t n = make_request(request, op, id, key, value, value == NULL ? 0 : strlen(value));
    fl_store_handle(store, from, strlen(from), request, n, keep_answer, a);
}

static void expect(const answers *a, int i, const char *to, fl_status status, uint64_t id,
                   const char *value)
{
    assert_true(i < a->n);
    assert_string_equal(a->all[i].to, to);
    assert_int_equal(a->all[i].head.magic, FL_STORE_REPLY_MAGIC);
    assert_int_equal(a->all[i].head.status, status);
    assert_int_equal(a->all[i].head.id, id);
    assert_string_equal(a->all[i].value, value);
}

static void test_store__keeps_what_is_set_once(void **state)
{
    (void)state;
    fl_store *store = NULL;
    answers a = {0};
    assert_int_equal(fl_store_create(&store), FL_OK);
    ask(store, &a, "A", FL_STORE_SET, 1, "g/1/0", "here");
    ask(store, &a, "B", FL_STORE_GET, 7, "g/1/0", NULL);
    ask(store, &a, "A", FL_STORE_SET, 2, "g/1/0", "here");
    ask(store, &a, "C", FL_STORE_SET, 3, "g/1/0", "there");
    ask(store, &a, "B", FL_STORE_GET, 8, "g/1/0", NULL);
    assert_int_equal(a.n, 5);
    expect(&a, 0, "A", FL_OK, 1, "");
    expect(&a, 1, "B", FL_OK, 7, "here");
    expect(&a, 2, "A", FL_OK, 2, "");
    expect(&a, 3, "C", FL_EINVAL, 3, "");
    expect(&a, 4, "B", FL_OK, 8, "here");
    fl_store_destroy(&store);
    assert_null(store);
}

static void test_store__answers_who_waited_when_the_key_comes(void **state)
{
    (void)state;
    fl_store *store = NULL;
    answers a = {0};
    assert_int_equal(fl_store_create(&store), FL_OK);
    ask(store, &a, "A", FL_STORE_GET, 1, "k", NULL);
    ask(store, &a, "B", FL_STORE_GET, 2, "k", NULL);
    ask(store, &a, "A", FL_STORE_GET, 9, "k", NULL); /* asks again: one answer, to the later */
    ask(store, &a, "A", FL_STORE_GET, 10, "other", NULL);
    assert_int_equal(a.n, 0);
    ask(store, &a, "C", FL_STORE_SET, 3, "k", "v");
    assert_int_equal(a.n, 3);
    expect(&a, 0, "C", FL_OK, 3, "");
    expect(&a, 1, "B", FL_OK, 2, "v");
    expect(&a, 2, "A", FL_OK, 9, "v");
    fl_store_destroy(&store);
}

/* A client that has lost its connection sends its request again over the next one. */
static void test_store__answers_a_repeated_request_where_it_came_from_last(void **state)
{
    (void)state;
    fl_store *store = NULL;
    answers a = {0};
    assert_int_equal(fl_store_create(&store), FL_OK);
    ask(store, &a, "A", FL_STORE_GET, 1, "k", NULL);
    ask(store, &a, "B", FL_STORE_GET, 7, "k", NULL);
    ask(store, &a, "A-anew", FL_STORE_GET, 1, "k", NULL);
    ask(store, &a, "C", FL_STORE_SET, 3, "k", "v");
    assert_int_equal(a.n, 3);
    expect(&a, 0, "C", FL_OK, 3, "");
    expect(&a, 1, "B", FL_OK, 7, "v");
    expect(&a, 2, "A-anew", FL_OK, 1, "v");
    fl_store_destroy(&store);
}

static void test_store__forgets_an_old_generation(void **state)
{
    (void)state;
    fl_store *store = NULL;
    answers a = {0};
    assert_int_equal(fl_store_create(&store), FL_OK);
    ask(store, &a, "A", FL_STORE_SET, 1, "group/1/0", "old");
    ask(store, &a, "A", FL_STORE_SET, 2, "group/12/0", "kept");
    ask(store, &a, "B", FL_STORE_GET, 3, "group/1/1", NULL);
    fl_store_forget(store, "group/1/");
    a.n = 0;
    ask(store, &a, "A", FL_STORE_SET, 4, "group/1/0", "new");
    ask(store, &a, "B", FL_STORE_GET, 5, "group/12/0", NULL);
    ask(store, &a, "A", FL_STORE_SET, 6, "group/1/1", "x");
    assert_int_equal(a.n, 3); /* nobody waits for group/1/1 any more */
    expect(&a, 0, "A", FL_OK, 4, "");
    expect(&a, 1, "B", FL_OK, 5, "kept");
    fl_store_destroy(&store);
}

static void test_store__refuses_more_than_its_limits(void **state)
{
    (void)state;
    fl_store *store = NULL;
    answers a = {0};
    char key[32], from[8];
    assert_int_equal(fl_store_create(&store), FL_OK);
    for (int i = 0; i < FL_STORE_PARKED_MAX; i++) {
        snprintf(from, sizeof from, "%d", i);
        ask(store, &a, from, FL_STORE_GET, (uint64_t)i + 10, "wanted", NULL);
    }
    assert_int_equal(a.n, 0);
    ask(store, &a, "last", FL_STORE_GET, 2, "wanted", NULL);
    expect(&a, 0, "last", FL_EBUDGET, 2, "");
    for (int i = 1; i < FL_STORE_KEYS_MAX; i++) {
        snprintf(key, sizeof key, "%d", i);
        a.n = 0;
        ask(store, &a, "A", FL_STORE_SET, 3, key, "");
        expect(&a, 0, "A", FL_OK, 3, "");
    }
    ask(store, &a, "A", FL_STORE_SET, 4, "one more", "");
    expect(&a, 1, "A", FL_EBUDGET, 4, "");
    ask(store, &a, "A", FL_STORE_GET, 5, "one more", NULL);
    expect(&a, 2, "A", FL_EBUDGET, 5, "");
    fl_store_forget(store, "12");
    ask(store, &a, "A", FL_STORE_SET, 6, "one more", "");
    expect(&a, 3, "A", FL_OK, 6, "");
    fl_store_destroy(&store);
}

/* ---- hostile input ---- */

enum { N_HOSTILE = 10000, HOSTILE_MAX = 512 };

typedef struct counter {
    int n_good, n_bad;
} counter;

static void count_answer(void *context, const void *to, size_t to_bytes, const void *message,
                         size_t size_bytes)
{
    counter *c = context;
    fl_store_answer head;
    (void)to;
    (void)to_bytes;
    memcpy(&head, message, sizeof head);
    assert_int_equal(size_bytes, sizeof head + head.value_bytes);
    if (head.status == FL_OK) {
        c->n_good++;
    } else {
        c->n_bad++;
    }
}

static uint32_t draw(uint64_t seed, uint32_t i, uint32_t stream)
{
    uint32_t counters[4] = {i, stream, 0, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    fl_philox(counters, key, out);
    return out[0];
}

/* Noise, or a good request with some bytes changed, cut or longer than it says. */
static size_t hostile(uint64_t seed, uint32_t i, unsigned char *out)
{
    if (draw(seed, i, 0) % 4 == 0) {
        size_t n = draw(seed, i, 1) % HOSTILE_MAX;
        for (size_t k = 0; k < n; k++) {
            out[k] = (unsigned char)draw(seed, i, 100 + (uint32_t)k);
        }
        return n;
    }
    char key[32], value[200];
    snprintf(key, sizeof key, "key/%u", draw(seed, i, 2) % 50);
    memset(value, 'v', sizeof value);
    uint32_t op = 1 + draw(seed, i, 3) % 3;
    size_t n = make_request(out, op, i, key, value, op == FL_STORE_GET ? 0 : 10);
    for (uint32_t m = 0; m < draw(seed, i, 5) % 4; m++) {
        out[draw(seed, i, 10 + m) % n] ^= (unsigned char)(1u << draw(seed, i, 20 + m) % 8);
    }
    switch (draw(seed, i, 6) % 8) {
    case 0:
        return draw(seed, i, 7) % (n + 1);
    case 1:
        memset(out + n, 'x', 20);
        return n + 1 + draw(seed, i, 7) % 20;
    default:
        return n;
    }
}

static void test_store__survives_hostile_requests(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    fl_store *store = NULL;
    answers a = {0};
    assert_int_equal(fl_store_create(&store), FL_OK);
    ask(store, &a, "A", FL_STORE_SET, 1, "steady", "as it was");
    counter c = {0};
    for (uint32_t i = 0; i < N_HOSTILE; i++) {
        /* On the heap at its true size, so that a sanitizer sees a read beyond it. */
        unsigned char request[HOSTILE_MAX + 64];
        size_t n = hostile(seed, i, request);
        unsigned char *exact = malloc(n == 0 ? 1 : n);
        assert_non_null(exact);
        memcpy(exact, request, n);
        char from[16];
        snprintf(from, sizeof from, "%u", draw(seed, i, 8) % 100);
        fl_store_handle(store, from, strlen(from), exact, n, count_answer, &c);
        free(exact);
    }
    assert_true(c.n_good > N_HOSTILE / 20);
    assert_true(c.n_bad > N_HOSTILE / 4);
    a.n = 0;
    ask(store, &a, "B", FL_STORE_GET, 2, "steady", NULL);
    expect(&a, 0, "B", FL_OK, 2, "as it was");
    fl_store_destroy(&store);
}

static void test_store__says_so_when_memory_is_short(void **state)
{
    (void)state;
    fl_store *store = NULL;
    assert_int_equal(fl_store_create(&store), FL_OK);
    for (uint64_t n = 1; n <= 2; n++) {
        answers a = {0};
        fl_alloc_fail_at(n);
        ask(store, &a, "A", FL_STORE_SET, n, "key", "value");
        fl_alloc_fail_at(0);
        expect(&a, 0, "A", FL_ENOMEM, n, "");
        fl_alloc_fail_at(n);
        ask(store, &a, "A", FL_STORE_GET, n, "key", NULL);
        fl_alloc_fail_at(0);
        expect(&a, 1, "A", FL_ENOMEM, n, "");
    }
    answers a = {0};
    ask(store, &a, "A", FL_STORE_SET, 3, "key", "value");
    assert_int_equal(a.n, 1); /* a failed get is not parked */
    expect(&a, 0, "A", FL_OK, 3, "");
    fl_store_destroy(&store);
}

/* ---- the client ---- */

/* As in a run: the processes of one host talk through a socket file. */
typedef struct server {
    void *zmq;
    char folder[FOLDER_SIZE], endpoint[FOLDER_SIZE + 16];
    pthread_t thread;
    atomic_bool stop;
    atomic_bool busy; /* leaves requests where they are */
    atomic_int n_requests;
} server;

static void send_answer(void *router, const void *to, size_t to_bytes, const void *message,
                        size_t size_bytes)
{
    zmq_send(router, to, to_bytes, ZMQ_SNDMORE);
    /* What is not an answer to this request must not confuse the client. */
    zmq_send(router, "other", 5, ZMQ_SNDMORE);
    zmq_send(router, message, size_bytes, 0);
    zmq_send(router, to, to_bytes, ZMQ_SNDMORE);
    zmq_send(router, "store", 5, ZMQ_SNDMORE);
    zmq_send(router, "short", 5, 0);
    zmq_send(router, to, to_bytes, ZMQ_SNDMORE);
    zmq_send(router, "store", 5, ZMQ_SNDMORE);
    zmq_send(router, message, size_bytes, 0);
}

static void *serve(void *argument)
{
    server *s = argument;
    fl_store *store = NULL;
    void *router = zmq_socket(s->zmq, ZMQ_ROUTER);
    if (zmq_bind(router, s->endpoint) != 0 || fl_store_create(&store) != FL_OK) {
        abort();
    }
    while (!atomic_load(&s->stop)) {
        zmq_pollitem_t item = {.socket = router, .events = ZMQ_POLLIN};
        if (zmq_poll(&item, 1, 5) <= 0 || atomic_load(&s->busy)) {
            continue;
        }
        atomic_fetch_add(&s->n_requests, 1);
        unsigned char from[256];
        int from_bytes = zmq_recv(router, from, sizeof from, 0);
        char word[8];
        zmq_recv(router, word, sizeof word, 0);
        zmq_msg_t request;
        zmq_msg_init(&request);
        zmq_msg_recv(&request, router, 0);
        fl_store_handle(store, from, (size_t)from_bytes, zmq_msg_data(&request),
                        zmq_msg_size(&request), send_answer, router);
        zmq_msg_close(&request);
    }
    zmq_close(router);
    fl_store_destroy(&store);
    return NULL;
}

static int start_server(void **state)
{
    static server s;
    s.zmq = zmq_ctx_new();
    make_folder(s.folder);
    snprintf(s.endpoint, sizeof s.endpoint, "ipc://%s/store", s.folder);
    atomic_store(&s.stop, false);
    atomic_store(&s.busy, false);
    atomic_store(&s.n_requests, 0);
    *state = &s;
    return pthread_create(&s.thread, NULL, serve, &s);
}

static int stop_server(void **state)
{
    server *s = *state;
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    zmq_ctx_term(s->zmq);
    return remove_folder(s->folder);
}

static void test_store_client__sets_and_gets(void **state)
{
    server *s = *state;
    enum { LARGE = FL_STORE_VALUE_MAX };
    fl_store_client *client = NULL;
    assert_int_equal(fl_store_connect(s->zmq, s->endpoint, NULL, &client), FL_OK);
    fl_kv kv = fl_store_kv(client);
    int64_t deadline_us = fl_deadline_us(10000);
    void *data = NULL, *large = NULL;
    size_t size_bytes = 0;
    assert_int_equal(kv.set(kv.self, "a", deadline_us, "value", 5), FL_OK);
    assert_int_equal(kv.get(kv.self, "a", deadline_us, &data, &size_bytes), FL_OK);
    assert_int_equal(size_bytes, 5);
    assert_memory_equal(data, "value", 5);
    fl_free(data);
    assert_int_equal(kv.set(kv.self, "a", deadline_us, "other", 5), FL_EINVAL);
    assert_int_equal(kv.set(kv.self, "", deadline_us, "other", 5), FL_EINVAL);
    assert_int_equal(fl_alloc(LARGE + 1, &large), FL_OK);
    memset(large, 7, LARGE);
    assert_int_equal(kv.set(kv.self, "large", deadline_us, large, LARGE + 1), FL_EINVAL);
    assert_int_equal(kv.set(kv.self, "large", deadline_us, large, LARGE), FL_OK);
    assert_int_equal(kv.get(kv.self, "large", deadline_us, &data, &size_bytes), FL_OK);
    assert_int_equal(size_bytes, LARGE);
    assert_memory_equal(data, large, LARGE);
    fl_free(data);
    fl_free(large);
    fl_store_disconnect(&client);
}

/* Catches a late answer being taken for that of the next question. */
static void test_store_client__gives_up_at_the_deadline(void **state)
{
    server *s = *state;
    fl_store_client *one = NULL, *two = NULL;
    assert_int_equal(fl_store_connect(s->zmq, s->endpoint, NULL, &one), FL_OK);
    assert_int_equal(fl_store_connect(s->zmq, s->endpoint, NULL, &two), FL_OK);
    fl_kv kv = fl_store_kv(one), other = fl_store_kv(two);
    void *data = NULL;
    size_t size_bytes = 0;
    assert_int_equal(kv.get(kv.self, "late", fl_deadline_us(20), &data, &size_bytes), FL_EDEADLINE);
    assert_null(data);
    assert_int_equal(other.set(other.self, "late", fl_deadline_us(10000), "1", 1), FL_OK);
    assert_int_equal(other.set(other.self, "next", fl_deadline_us(10000), "22", 2), FL_OK);
    assert_int_equal(kv.get(kv.self, "next", fl_deadline_us(10000), &data, &size_bytes), FL_OK);
    assert_int_equal(size_bytes, 2);
    fl_free(data);
    fl_store_disconnect(&one);
    fl_store_disconnect(&two);
}

/* n requests, and one more for each second that passed. */
static void asked_at_most(server *s, int n, int64_t since_us)
{
    assert_true(atomic_load(&s->n_requests) <= n + (fl_now_us() - since_us) / 1000000);
}

/* With 128 workers, the store needed longer for one round of requests than the clients waited for
 * an answer. Each then asked again, and the store answered only requests that were given up. */
static void test_store_client__asks_a_slow_store_once(void **state)
{
    server *s = *state;
    fl_store_client *client = NULL;
    assert_int_equal(fl_store_connect(s->zmq, s->endpoint, NULL, &client), FL_OK);
    fl_kv kv = fl_store_kv(client);
    void *data = NULL;
    size_t size_bytes = 0;
    int64_t since_us = fl_now_us();
    atomic_store(&s->busy, true);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kv.set(kv.self, "a", fl_deadline_us(10), "value", 5), FL_EDEADLINE);
    }
    atomic_store(&s->busy, false);
    assert_int_equal(kv.set(kv.self, "a", fl_deadline_us(10000), "value", 5), FL_OK);
    asked_at_most(s, 1, since_us);
    atomic_store(&s->busy, true);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kv.get(kv.self, "a", fl_deadline_us(10), &data, &size_bytes),
                         FL_EDEADLINE);
    }
    atomic_store(&s->busy, false);
    assert_int_equal(kv.get(kv.self, "a", fl_deadline_us(10000), &data, &size_bytes), FL_OK);
    assert_int_equal(size_bytes, 5);
    asked_at_most(s, 2, since_us);
    fl_free(data);
    /* What has an answer is a new request the next time. */
    assert_int_equal(kv.set(kv.self, "a", fl_deadline_us(10000), "other", 5), FL_EINVAL);
    assert_int_equal(kv.set(kv.self, "a", fl_deadline_us(10000), "other", 5), FL_EINVAL);
    asked_at_most(s, 4, since_us);
    fl_store_disconnect(&client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store__keeps_what_is_set_once),
        cmocka_unit_test(test_store__answers_who_waited_when_the_key_comes),
        cmocka_unit_test(test_store__answers_a_repeated_request_where_it_came_from_last),
        cmocka_unit_test(test_store__forgets_an_old_generation),
        cmocka_unit_test(test_store__refuses_more_than_its_limits),
        cmocka_unit_test(test_store__survives_hostile_requests),
        cmocka_unit_test(test_store__says_so_when_memory_is_short),
        cmocka_unit_test_setup_teardown(test_store_client__sets_and_gets, start_server,
                                        stop_server),
        cmocka_unit_test_setup_teardown(test_store_client__gives_up_at_the_deadline, start_server,
                                        stop_server),
        cmocka_unit_test_setup_teardown(test_store_client__asks_a_slow_store_once, start_server,
                                        stop_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
