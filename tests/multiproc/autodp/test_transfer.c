/* State between ranks: contents, order and failures; on a device that computes in host memory, and
 * on those whose memory the host cannot touch: there it goes through host memory or, between GPUs
 * (by the stand-in for CUDA), from device to device. */
#include "autodp/nccl/nccl.h"
#include "autodp/transfer.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/messages.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 40000, BEYOND_MS = 600000, MOST_RANKS = 4, PER_PAIR = 3 };

/* Set before forking. */
static fl_device_kind kind;
static bool over_nccl; /* the ranks are a training group over NCCL, for which a library stands in */
static const char *fault; /* of rank 0's stand-in for CUDA; NULL: none */

static fl_device *device;

static fl_device *the_device(void)
{
    const fl_device_options options = {
        .kind = kind, .n_threads = 1, .budget_bytes = (size_t)1 << 30};
    if (device == NULL) {
        RANK_CHECK(setenv("FROSTLINE_CUDA_PLUGIN", FL_BINARY_DIR "/tests/cuda_standin.so", 1) == 0);
        RANK_OK(fl_device_open(&options, &device));
    }
    return device;
}

/* The training group beside the message group, not yet connected; NULL: none. */
static fl_group *open_group(const rank_env *env, const char *faults, int64_t wait_timeout_ms)
{
    fl_group *group = NULL;
    const fl_group_options options = {.transport = test_net_transport(),
                                      .device = the_device(),
                                      .generation = 1,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = env->kv,
                                      .open_timeout_ms = TIMEOUT_MS,
                                      .wait_timeout_ms = wait_timeout_ms,
                                      .backend = &fl_nccl_group_ops,
                                      .every_pair = true};
    if (over_nccl) {
        RANK_CHECK(setenv("FROSTLINE_NCCL", FL_BINARY_DIR "/tests/nccl_standin.so", 1) == 0);
        RANK_CHECK(setenv("FROSTLINE_NCCL_STANDIN", faults, 1) == 0);
        RANK_OK(fl_group_open(&options, &group));
    }
    return group;
}

static const int ranks[MOST_RANKS] = {0, 1, 2, 3};

/* Shorter and longer than a piece, and such that pieces do not divide. */
static size_t size_of(int from, int to, int which)
{
    static const size_t sizes[] = {4, 1 << 20, 0, 7 * 1000 * 1000 + 12, 64};
    return sizes[(from + 2 * to + which) % 5];
}

static unsigned char byte_of(int from, int to, int which, size_t i)
{
    return (unsigned char)(i * 7 + i / 4096 + (size_t)(from * 50 + to * 11 + which));
}

/* Whether the rank has the data in host memory, as parked moments are: not at both ends. */
static bool is_on_host(int rank, int which)
{
    return kind != FL_DEVICE_CPU && (which + rank) % PER_PAIR == 0;
}

static void take_data(fl_transfer *t, const unsigned char *bytes)
{
    fl_device *d = the_device();
    if (t->on_host) {
        RANK_OK(fl_alloc(t->size_bytes, &t->data));
        memcpy(t->data, bytes, t->size_bytes);
        return;
    }
    RANK_OK(fl_device_alloc(d, t->size_bytes, "state", &t->data));
    RANK_OK(d->ops->copy_in(d, NULL, t->data, bytes, t->size_bytes));
    RANK_OK(d->ops->sync(d, NULL));
}

static void give_data(const fl_transfer *t)
{
    if (t->on_host) {
        fl_free(t->data);
    } else {
        fl_device_free(the_device(), t->data, t->size_bytes);
    }
}

/* The list of all ranks' transfers in one order; this rank has a part of it. */
static int list_transfers(const rank_env *env, fl_transfer *list)
{
    int n = 0;
    for (int i = 0; i < env->size * env->size * PER_PAIR; i++) {
        int from = i % env->size, to = i / env->size % env->size, which = i / env->size / env->size;
        size_t size_bytes = size_of(from, to, which);
        if (from == to || (from != env->rank && to != env->rank)) {
            continue;
        }
        fl_transfer *t = &list[n++];
        *t = (fl_transfer){.peer = from == env->rank ? to : from,
                           .sending = from == env->rank,
                           .id = (uint32_t)which,
                           .size_bytes = size_bytes,
                           .on_host = is_on_host(env->rank, which),
                           .host_end = is_on_host(from, which) || is_on_host(to, which)};
        unsigned char *host = NULL;
        RANK_OK(fl_alloc(size_bytes, (void **)&host));
        for (size_t k = 0; k < size_bytes && t->sending; k++) {
            host[k] = byte_of(from, to, which, k);
        }
        take_data(t, host);
        fl_free(host);
    }
    return n;
}

static void check_transfer(const rank_env *env, const fl_transfer *t)
{
    fl_device *d = the_device();
    int from = t->sending ? env->rank : t->peer, to = t->sending ? t->peer : env->rank;
    unsigned char *host = NULL;
    RANK_OK(fl_alloc(t->size_bytes, (void **)&host));
    if (t->on_host) {
        memcpy(host, t->data, t->size_bytes);
    } else {
        RANK_OK(d->ops->copy_out(d, NULL, host, t->data, t->size_bytes));
        RANK_OK(d->ops->sync(d, NULL));
    }
    for (size_t k = 0; k < t->size_bytes; k++) {
        RANK_CHECK(host[k] == byte_of(from, to, (int)t->id, k));
    }
    fl_free(host);
}

/* Which of this rank's bytes should have gone from device to device. */
static int64_t device_bytes_of(const rank_env *env, const fl_transfer *list, int n)
{
    bool exports = fault == NULL || strstr(fault, "ipc_export") == NULL || env->rank != 0;
    bool opens = fault == NULL || strstr(fault, "ipc_open") == NULL;
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bool read = exports && (opens || list[i].peer != 0);
        read = over_nccl ? !list[i].host_end : read;
        bytes += list[i].sending && read ? (int64_t)list[i].size_bytes : 0;
    }
    return kind == FL_DEVICE_CUDA || over_nccl ? bytes : 0;
}

/* What is told of the ways has all that came, and over NCCL what lies on devices at both ends. */
static void check_parts(const rank_env *env, const fl_transfers *transfers, const fl_transfer *list,
                        int n)
{
    fl_transfer_part part[FL_TRANSFER_WAYS];
    int64_t all = 0, on_devices = 0, told = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = list[i].sending ? 0 : (int64_t)list[i].size_bytes;
        all += bytes;
        on_devices += over_nccl && !list[i].host_end ? bytes : 0;
    }
    fl_transfers_parts(transfers, part);
    for (int way = 0; way < FL_TRANSFER_WAYS; way++) {
        RANK_CHECK((part[way].pairs > 0) == (part[way].bytes > 0));
        RANK_CHECK(part[way].pairs < env->size && (part[way].us > 0) == (part[way].bytes > 0));
        told += part[way].bytes;
    }
    RANK_CHECK(told == all);
    RANK_CHECK(part[FL_TRANSFER_NCCL].bytes == on_devices);
}

static void exchange(const rank_env *env)
{
    RANK_CHECK(setenv("FROSTLINE_STANDIN", env->rank == 0 && fault != NULL ? fault : "", 1) == 0);
    fl_message_group *group = rank_messages(env, TIMEOUT_MS, TIMEOUT_MS);
    fl_transfer list[2 * MOST_RANKS * PER_PAIR];
    fl_transfers *transfers = NULL;
    fl_group *next = open_group(env, "", TIMEOUT_MS);
    const fl_transfers_options options = {.messages = group,
                                          .device = the_device(),
                                          .group = next,
                                          .ranks = ranks,
                                          .n_ranks = env->size};
    int n = list_transfers(env, list);
    RANK_OK(fl_transfers_open(&options, list, n, &transfers));
    RANK_OK(next == NULL ? FL_OK : fl_group_connect(next, fl_deadline_us(TIMEOUT_MS)));
    uint64_t allocations = fl_alloc_count();
    RANK_OK(fl_transfers_run(transfers, fl_deadline_us(TIMEOUT_MS)));
    RANK_CHECK(kind != FL_DEVICE_CPU || fl_alloc_count() == allocations);
    RANK_CHECK(fl_transfers_device_bytes(transfers) == device_bytes_of(env, list, n));
    check_parts(env, transfers, list, n);
    for (int i = 0; i < n; i++) {
        check_transfer(env, &list[i]);
        give_data(&list[i]);
    }
    fl_transfers_close(&transfers);
    fl_group_close(&next);
    fl_message_close(&group);
    fl_device_destroy(&device);
}

/* Everything to everybody, both ways at once. Catches a piece that lands in the wrong place, ranks
 * that wait for each other in a circle, and an allocation while state moves. */
static void test_transfer__moves_state_between_all_ranks(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST_RANKS; size++) {
        assert_int_equal(ranks_run(size, exchange, NULL, 2 * TIMEOUT_MS), 0);
    }
}

static void refuse_stranger(const rank_env *env)
{
    fl_message_group *group = rank_messages(env, TIMEOUT_MS, TIMEOUT_MS);
    fl_transfers *transfers = NULL;
    const fl_transfers_options options = {.messages = group, .device = the_device()};
    float data[4] = {0};
    const fl_transfer t = {.peer = 7, .sending = true, .data = data, .size_bytes = sizeof data};
    RANK_CHECK(fl_transfers_open(&options, &t, 1, &transfers) == FL_EINTERNAL);
    RANK_CHECK(strstr(fl_errmsg(), "rank 7, which is not a member") != NULL);
    RANK_CHECK(transfers == NULL);
    fl_message_close(&group);
}

static void test_transfer__refuses_a_rank_that_is_no_member(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(1, refuse_stranger, NULL, TIMEOUT_MS), 0);
}

/* Rank 1 is gone before it sends anything. */
static void wait_for_lost(const rank_env *env)
{
    enum { SIZE_BYTES = 9 << 20 };
    fl_message_group *group = rank_messages(env, TIMEOUT_MS, BEYOND_MS);
    fl_transfers *transfers = NULL;
    void *data = NULL;
    if (env->rank == 1) {
        raise(SIGKILL);
    }
    RANK_OK(fl_device_alloc(the_device(), SIZE_BYTES, "state", &data));
    const fl_transfer t = {.peer = 1, .id = 3, .data = data, .size_bytes = SIZE_BYTES};
    const fl_transfers_options options = {.messages = group, .device = device};
    fl_status status = fl_transfers_open(&options, &t, 1, &transfers);
    if (status == FL_OK) {
        status = fl_transfers_run(transfers, fl_deadline_us(BEYOND_MS));
    }
    RANK_CHECK(status == FL_EPEER);
    fl_transfers_close(&transfers);
    fl_device_free(the_device(), data, SIZE_BYTES);
    fl_message_close(&group);
    fl_device_destroy(&device);
}

/* The deadlines are beyond the time that the test has: only the loss itself ends the wait. */
static void test_transfer__ends_when_the_peer_is_lost(void **state)
{
    (void)state;
    rank_end ends[2] = {RANK_ENDS, RANK_KILLED};
    assert_int_equal(ranks_run_ending(2, wait_for_lost, NULL, ends, 2 * TIMEOUT_MS), 0);
}

/* Rank 0's device fails in the middle; the other learns of it when rank 0 ends. */
static void fail_in_copy(const rank_env *env)
{
    enum { SIZE_BYTES = 9 << 20 };
    fl_message_group *group = rank_messages(env, TIMEOUT_MS, BEYOND_MS);
    fl_transfers *transfers = NULL;
    void *data = NULL;
    RANK_OK(fl_device_alloc(the_device(), SIZE_BYTES, "state", &data));
    const fl_transfer t = {
        .peer = 1 - env->rank, .sending = env->rank == 1, .data = data, .size_bytes = SIZE_BYTES};
    const fl_transfers_options options = {.messages = group, .device = device};
    RANK_OK(fl_transfers_open(&options, &t, 1, &transfers));
    if (env->rank == 0) {
        RANK_OK(fl_device_async_fail(device, env->context));
    }
    fl_status status = fl_transfers_run(transfers, fl_deadline_us(BEYOND_MS));
    RANK_CHECK(env->rank == 0 ? status == FL_EIO : fl_status_is_regroup(status));
    if (env->rank == 0) {
        fl_message_abort(group, FL_ESTALE); /* as a worker that ends */
    }
    fl_transfers_close(&transfers);
    fl_device_free(the_device(), data, SIZE_BYTES);
    fl_message_close(&group);
    fl_device_destroy(&device);
}

/* Catches a copy that goes on while its memory is given back, and a failure that nobody reports. */
static void test_transfer__ends_when_the_device_fails(void **state)
{
    (void)state;
    fl_async_fault faults[] = {{"copy_in", 3, true},
                               {"copy_in", 3, false},
                               {"event_record", 3, true},
                               {"event_wait", 5, false}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        assert_int_equal(ranks_run(2, fail_in_copy, &faults[i], 2 * TIMEOUT_MS), 0);
    }
}

/* Rank 0's device exports no memory, or does not open another's: state from it, or to it, goes
 * through host memory; all other state does not. */
static void test_transfer__goes_through_the_host_where_a_device_cannot(void **state)
{
    (void)state;
    static const char *const faults[] = {"fail=ipc_export:1:801", "fail=ipc_open:1:801"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        fault = faults[i];
        int size = i == 0 ? 3 : 2; /* the second fails for one peer alone */
        assert_int_equal(ranks_run(size, exchange, NULL, 2 * TIMEOUT_MS), 0);
    }
    fault = NULL;
}

/* ---- over NCCL ---- */

typedef struct nccl_case {
    const char
        *fault; /* of rank 0's NCCL, which has sent one byte for each pair when it connected */
    bool dies;  /* rank 1 does, before it moves anything */
} nccl_case;

/* Rank 0 sends two pieces to rank 1 and gets one; what goes over messages is not at fault. */
static int list_both_ways(const rank_env *env, fl_transfer *list)
{
    enum { SIZE_BYTES = 300 * 1000 };
    for (int i = 0; i < 4; i++) {
        bool from_first = i != 1;
        list[i] = (fl_transfer){.peer = 1 - env->rank,
                                .sending = (env->rank == 0) == from_first,
                                .id = (uint32_t)i,
                                .size_bytes = SIZE_BYTES,
                                .on_host = i == 3,
                                .host_end = i == 3};
        RANK_OK(list[i].on_host
                    ? fl_alloc(SIZE_BYTES, &list[i].data)
                    : fl_device_alloc(the_device(), SIZE_BYTES, "state", &list[i].data));
    }
    return 4;
}

static void fail_over_nccl(const rank_env *env)
{
    const nccl_case *c = env->context;
    fl_message_group *messages = rank_messages(env, TIMEOUT_MS, BEYOND_MS);
    fl_group *next =
        open_group(env, env->rank == 0 && c->fault != NULL ? c->fault : "", TIMEOUT_MS);
    const fl_transfers_options options = {
        .messages = messages, .device = the_device(), .group = next, .ranks = ranks, .n_ranks = 2};
    fl_transfers *transfers = NULL;
    fl_transfer list[4];
    int n = list_both_ways(env, list);
    RANK_OK(fl_transfers_open(&options, list, n, &transfers));
    RANK_OK(fl_group_connect(next, fl_deadline_us(TIMEOUT_MS)));
    if (c->dies && env->rank == 1) {
        raise(SIGKILL);
    }
    fl_status status =
        fl_transfers_run(transfers, fl_deadline_us(c->fault != NULL ? 500 : BEYOND_MS));
    RANK_CHECK(fl_status_is_regroup(status));
    /* A death may have ended the run by way of the messages, before the group sees it. */
    RANK_CHECK(c->dies || fl_status_is_regroup(fl_group_state(next)));
    fl_message_abort(messages, FL_ESTALE); /* as a worker that leaves its waits */
    fl_transfers_close(&transfers);
    for (int i = 0; i < n; i++) {
        give_data(&list[i]);
    }
    fl_group_close(&next);
    fl_message_close(&messages);
    if (c->fault != NULL && strncmp(c->fault, "hang", 4) == 0 && env->rank == 0) {
        _exit(0); /* what the thread uses that does not come back stays with the device */
    }
    fl_device_destroy(&device);
}

/* Catches a wait that only the peer could end, pieces in memory that is given back while NCCL still
 * writes there (the device refuses that), and a failure that leaves the group sound. */
static void test_transfer__gives_up_when_nccl_fails(void **state)
{
    (void)state;
    nccl_case cases[] = {{.fault = "stall=Send:2"},
                         {.fault = "stall=Recv:2"},
                         {.fault = "fail=Send:3:6"},
                         {.fault = "hang=Send:2"},
                         {.dies = true}};
    rank_end ends[2] = {RANK_ENDS, RANK_ENDS};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ends[1] = cases[i].dies ? RANK_KILLED : RANK_ENDS;
        assert_int_equal(ranks_run_ending(2, fail_over_nccl, &cases[i], ends, 2 * TIMEOUT_MS), 0);
    }
}

static int with_nccl(void **state)
{
    (void)state;
    kind = FL_DEVICE_ASYNC_TEST;
    over_nccl = true;
    return 0;
}

static int without_nccl(void **state)
{
    (void)state;
    over_nccl = false;
    return 0;
}

static int with_cuda(void **state)
{
    (void)state;
    kind = FL_DEVICE_CUDA;
    return 0;
}

static int with_async(void **state)
{
    (void)state;
    kind = FL_DEVICE_ASYNC_TEST;
    return 0;
}

static int with_cpu(void **state)
{
    (void)state;
    kind = FL_DEVICE_CPU;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_transfer__moves_state_between_all_ranks, with_cpu),
        cmocka_unit_test_setup(test_transfer__moves_state_between_all_ranks, with_async),
        cmocka_unit_test_setup(test_transfer__moves_state_between_all_ranks, with_cuda),
        cmocka_unit_test_setup(test_transfer__goes_through_the_host_where_a_device_cannot,
                               with_cuda),
        cmocka_unit_test_setup(test_transfer__ends_when_the_peer_is_lost, with_cuda),
        cmocka_unit_test_setup(test_transfer__refuses_a_rank_that_is_no_member, with_cpu),
        cmocka_unit_test_setup(test_transfer__ends_when_the_peer_is_lost, with_cpu),
        cmocka_unit_test_setup(test_transfer__ends_when_the_peer_is_lost, with_async),
        cmocka_unit_test_setup(test_transfer__ends_when_the_device_fails, with_async),
        cmocka_unit_test_setup_teardown(test_transfer__moves_state_between_all_ranks, with_nccl,
                                        without_nccl),
        cmocka_unit_test_setup_teardown(test_transfer__gives_up_when_nccl_fails, with_nccl,
                                        without_nccl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
