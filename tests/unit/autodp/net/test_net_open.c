/* Opening a net with a store that is slow. */
#include "autodp/net/open/net_open.h"

#include "device/system/clock.h"
#include "support/nap.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { OPEN_MS = 600000, SLOW_CALLS = 3, NAP_US = 1000 };

typedef struct slow_store {
    const char *key;
    int n_slow; /* calls that end without an answer before one has an answer */
    int n_sets, n_gets;
    struct sockaddr_in published; /* where the member listens */
} slow_store;

static fl_status answer_late(int *n_calls, int n_slow)
{
    nap(NAP_US);
    return ++*n_calls <= n_slow ? FL_EDEADLINE : FL_EINVAL;
}

static fl_status set_late(void *self, const char *key, int64_t deadline_us, const void *data,
                          size_t size_bytes)
{
    slow_store *store = self;
    (void)data;
    assert_string_equal(key, store->key);
    assert_true(size_bytes > 0);
    assert_true(deadline_us < fl_now_us() + 1000000); /* an abort has to end the opening soon */
    return answer_late(&store->n_sets, store->n_slow);
}

static fl_status set_at_once(void *self, const char *key, int64_t deadline_us, const void *data,
                             size_t size_bytes)
{
    slow_store *store = self;
    (void)key, (void)deadline_us;
    assert_true(size_bytes >= sizeof store->published);
    memcpy(&store->published, data, sizeof store->published);
    store->n_sets++;
    return FL_OK;
}

static fl_status get_late(void *self, const char *key, int64_t deadline_us, void **data,
                          size_t *size_bytes)
{
    slow_store *store = self;
    (void)key, (void)deadline_us, (void)data, (void)size_bytes;
    return answer_late(&store->n_gets, store->n_slow);
}

static bool shared; /* through shared memory */

static fl_status open_member(int rank, const fl_kv *kv, int64_t open_timeout_ms)
{
    fl_net *net = NULL;
    fl_net_options options = {.rank = rank,
                              .size = 2,
                              .name = "slow",
                              .kv = kv,
                              .transport = shared ? fl_net_shared_memory() : NULL,
                              .open_timeout_ms = open_timeout_ms,
                              .wait_timeout_ms = OPEN_MS};
    fl_status status = fl_net_open(&options, &net);
    assert_null(net);
    return status;
}

/* A run of 128 workers ended in its start: the store took more than ten seconds for one address. */
static void test_net_open__waits_for_a_slow_store(void **state)
{
    (void)state;
    slow_store store = {.key = "slow/0", .n_slow = SLOW_CALLS};
    shared = false;
    const fl_kv late_set = {&store, set_late, get_late};
    assert_int_equal(open_member(0, &late_set, OPEN_MS), FL_EINVAL);
    assert_int_equal(store.n_sets, SLOW_CALLS + 1);
    assert_int_equal(store.n_gets, 0);
    store.n_sets = 0;
    const fl_kv late_get = {&store, set_at_once, get_late};
    assert_int_equal(open_member(0, &late_get, OPEN_MS), FL_EINVAL);
    assert_int_equal(store.n_sets, 1);
    assert_int_equal(store.n_gets, SLOW_CALLS + 1);
}

static void test_net_open__ends_at_its_deadline(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        shared = way == 1;
        slow_store store = {.key = shared ? "slow/board" : "slow/0", .n_slow = INT32_MAX};
        const fl_kv kv = {&store, set_late, get_late};
        assert_int_equal(open_member(0, &kv, 50), FL_EDEADLINE);
        assert_true(store.n_sets > 1);
    }
}

/* The same over shared memory: the first member names the memory, all others ask for its name. */
static void test_net_open__waits_for_a_slow_store_in_shared_memory(void **state)
{
    (void)state;
    shared = true;
    for (int rank = 0; rank < 2; rank++) {
        slow_store store = {.key = "slow/board", .n_slow = SLOW_CALLS};
        const fl_kv kv = {&store, set_late, get_late};
        assert_int_equal(open_member(rank, &kv, OPEN_MS), FL_EINVAL);
        assert_int_equal(store.n_sets, rank == 0 ? SLOW_CALLS + 1 : 0);
        assert_int_equal(store.n_gets, rank == 0 ? 0 : SLOW_CALLS + 1);
    }
}

/* On one address, the listening ports of 96 workers left so few free that the system searched for
 * half a minute. */
static void test_net_open__listens_on_an_address_of_its_own(void **state)
{
    (void)state;
    slow_store store[2] = {{.n_slow = 0}, {.n_slow = 0}};
    shared = false;
    for (int rank = 0; rank < 2; rank++) {
        const fl_kv kv = {&store[rank], set_at_once, get_late};
        assert_int_equal(open_member(rank, &kv, OPEN_MS), FL_EINVAL);
        assert_int_equal(store[rank].published.sin_family, AF_INET);
    }
    assert_int_equal(ntohl(store[0].published.sin_addr.s_addr), 0x7f010001);
    assert_int_equal(ntohl(store[1].published.sin_addr.s_addr), 0x7f010002);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_open__waits_for_a_slow_store),
        cmocka_unit_test(test_net_open__waits_for_a_slow_store_in_shared_memory),
        cmocka_unit_test(test_net_open__ends_at_its_deadline),
        cmocka_unit_test(test_net_open__listens_on_an_address_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
