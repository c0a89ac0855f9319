/* A worker's link against a ROUTER of the test, which plays the controller. */
#include "control/link/link.h"

#include "control/link/link_thread.h"
#include "control/link/wire/wire.h"
#include "device/errors/log.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/nap.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zmq.h>

enum { WAIT_MS = 20000, MANY = 20000, MUTATIONS = 3000 };

typedef struct rig {
    char folder[64], endpoint[128], path[128];
    void *zmq, *socket;
    fl_link *link;
    atomic_int n_aborts;
    _Atomic uint32_t aborted_generation;
    _Atomic int why;
    unsigned char message[1 << 24]; /* frames not read yet */
    const unsigned char *at;
    size_t left;
} rig;

static void on_abort(void *context, uint32_t generation, fl_status why)
{
    rig *r = (rig *)context;
    atomic_store(&r->aborted_generation, generation);
    atomic_store(&r->why, why);
    atomic_fetch_add(&r->n_aborts, 1);
}

static void bind_head(rig *r)
{
    int linger_ms = 0, wait_ms = WAIT_MS, no_limit = 0;
    r->zmq = zmq_ctx_new();
    r->socket = zmq_socket(r->zmq, ZMQ_ROUTER);
    zmq_setsockopt(r->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(r->socket, ZMQ_SNDHWM, &no_limit, sizeof no_limit);
    zmq_setsockopt(r->socket, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
    assert_int_equal(zmq_bind(r->socket, r->endpoint), 0);
}

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    make_folder(r->folder);
    snprintf(r->path, sizeof r->path, "%s/link", r->folder);
    snprintf(r->endpoint, sizeof r->endpoint, "ipc://%s", r->path);
    bind_head(r);
    fl_link_options options = {.endpoint = r->endpoint,
                               .rank = 5,
                               .incarnation = 2,
                               .generation = 1,
                               .detect_ms = 500,
                               .on_abort = on_abort,
                               .context = r};
    if (fl_link_open(&options, &r->link) != FL_OK) {
        return -1;
    }
    *state = r;
    return 0;
}

/* For a test in which every message earns a warning. */
static int open_quiet_rig(void **state)
{
    fl_log_level_set(FL_LOG_ERROR);
    return open_rig(state);
}

static int close_rig(void **state)
{
    rig *r = (rig *)*state;
    fl_link_close(&r->link);
    fl_link_close(&r->link); /* a second time is fine */
    if (r->socket != NULL) {
        zmq_close(r->socket);
        zmq_ctx_term(r->zmq);
    }
    unlink(r->path);
    rmdir(r->folder);
    free(r);
    fl_log_level_set(FL_LOG_INFO);
    return 0;
}

/* The next part of a message: identity, topic, one or two parts of frames. */
static void receive_part(rig *r)
{
    char identity[64], topic[16];
    int more = 0;
    size_t size = sizeof more;
    zmq_getsockopt(r->socket, ZMQ_RCVMORE, &more, &size);
    if (!more) {
        assert_int_equal(zmq_recv(r->socket, identity, sizeof identity, 0), 10);
        assert_memory_equal(identity, "worker-5.2", 10);
        assert_int_equal(zmq_recv(r->socket, topic, sizeof topic, 0), 4);
        assert_memory_equal(topic, "link", 4);
    }
    int n = zmq_recv(r->socket, r->message, sizeof r->message, 0);
    assert_in_range(n, 1, sizeof r->message);
    r->at = r->message;
    r->left = (size_t)n;
}

/* The next frame that is no heartbeat, unless one is wanted. */
static fl_wire_message next_frame(rig *r, bool heartbeats_too)
{
    for (;;) {
        fl_wire_message frame;
        while (r->left == 0) {
            receive_part(r);
        }
        assert_int_equal(fl_wire_next(&r->at, &r->left, &frame), FL_OK);
        assert_int_equal(frame.rank, 5);
        if (heartbeats_too || frame.type != FL_WIRE_HEARTBEAT) {
            return frame;
        }
    }
}

static fl_wire_message expect(rig *r, fl_wire_type type)
{
    fl_wire_message frame = next_frame(r, false);
    assert_string_equal(fl_wire_type_text(frame.type), fl_wire_type_text(type));
    return frame;
}

static void send_bytes(rig *r, const char *topic, const void *bytes, size_t n)
{
    assert_true(zmq_send(r->socket, "worker-5.2", 10, ZMQ_SNDMORE) >= 0);
    assert_true(zmq_send(r->socket, topic, strlen(topic), ZMQ_SNDMORE) >= 0);
    assert_true(zmq_send(r->socket, bytes, n, 0) >= 0);
}

static void send_order(rig *r, fl_wire_type type, uint32_t generation)
{
    unsigned char bytes[256];
    fl_wire_message frame = {.type = type, .rank = 5, .generation = generation};
    if (type == FL_WIRE_ABORT) {
        frame.why = FL_EPEER;
    } else if (type == FL_WIRE_COMMAND) {
        frame.command = (fl_command){.kind = FL_COMMAND_STOP};
    }
    fl_wire_put(&frame, bytes);
    send_bytes(r, "link", bytes, fl_wire_size(&frame));
}

static fl_command await_command(rig *r)
{
    fl_command command = {0};
    int64_t deadline_us = fl_deadline_us(WAIT_MS);
    while (!fl_link_take_command(r->link, 0, &command)) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(500);
    }
    return command;
}

static void test_link__says_hello_and_what_it_does(void **state)
{
    rig *r = (rig *)*state;
    assert_int_equal(expect(r, FL_WIRE_HELLO).pid, getpid());
    fl_link_doing(r->link, "an operation whose name is far too long for a heartbeat");
    fl_time_report time = {.step = 41};
    fl_link_time(r->link, &time);
    fl_wire_message frame;
    do {
        frame = next_frame(r, true);
    } while (frame.type != FL_WIRE_HEARTBEAT || frame.heartbeat.steps == 0);
    assert_int_equal(frame.heartbeat.steps, 42);
    assert_string_equal(frame.heartbeat.operation, "an operation whose name is far ");
    fl_link_ready(r->link, 4096);
    assert_int_equal(expect(r, FL_WIRE_READY).memory_peak_bytes, 4096);
}

/* Would catch: reports that are lost, reordered or changed, at any rate. */
static void test_link__brings_all_reports_in_order(void **state)
{
    rig *r = (rig *)*state;
    expect(r, FL_WIRE_HELLO);
    fl_link_generation(r->link, 4);
    for (int64_t step = 0; step < MANY; step++) {
        int64_t ids[3] = {step, 2 * step, -step};
        fl_step_report report = {.step = step, .loss = 0.1 * (double)step, .generation = 3};
        fl_link_step(r->link, &report);
        fl_link_ledger(r->link, 1, step, 3, 2, ids, 3);
    }
    fl_eval_report eval = {.epoch = 1, .step = MANY, .metrics = {.n = 1, .mean = {0.25}}};
    fl_link_eval(r->link, &eval);
    fl_link_failed(r->link, FL_EIO, "no more");
    fl_link_done(r->link);
    for (int64_t step = 0; step < MANY; step++) {
        int64_t ids[3];
        fl_wire_message frame = expect(r, FL_WIRE_STEP);
        assert_int_equal(frame.step.step, step);
        assert_int_equal(frame.generation, 3);
        assert_true(frame.step.loss == 0.1 * (double)step);
        frame = expect(r, FL_WIRE_LEDGER);
        fl_wire_ids(&frame, ids);
        assert_int_equal(frame.ledger.replica, 2);
        assert_true(ids[0] == step && ids[1] == 2 * step && ids[2] == -step);
    }
    assert_true(expect(r, FL_WIRE_EVAL).eval.metrics.mean[0] == 0.25);
    fl_wire_message failed = expect(r, FL_WIRE_FAILED);
    assert_int_equal(failed.failed.status, FL_EIO);
    assert_int_equal(failed.generation, 4);
    assert_string_equal(failed.failed.text, "no more");
    expect(r, FL_WIRE_DONE);
}

/* Would catch: a step that allocates. */
static void test_link__reports_without_allocating(void **state)
{
    rig *r = (rig *)*state;
    int64_t ids[64] = {0};
    uint64_t before = fl_alloc_count();
    for (int64_t step = 0; step < 200; step++) {
        fl_step_report report = {.step = step};
        fl_time_report time = {.step = step};
        fl_link_step(r->link, &report);
        fl_link_ledger(r->link, 0, step, 1, 0, ids, 64);
        fl_link_time(r->link, &time);
    }
    assert_int_equal(fl_alloc_count(), before);
}

static void test_link__hands_a_command_over_once(void **state)
{
    rig *r = (rig *)*state;
    fl_command command;
    expect(r, FL_WIRE_HELLO);
    assert_false(fl_link_take_command(r->link, 0, &command));
    send_order(r, FL_WIRE_COMMAND, 9);
    command = await_command(r);
    assert_int_equal(command.kind, FL_COMMAND_STOP);
    assert_false(fl_link_take_command(r->link, 0, &command));
}

static void send_command(rig *r, fl_command_kind kind, int64_t due_step)
{
    unsigned char bytes[256];
    fl_wire_message frame = {.type = FL_WIRE_COMMAND,
                             .rank = 5,
                             .command = {.kind = kind, .due_step = due_step, .serial = 1}};
    fl_wire_put(&frame, bytes);
    send_bytes(r, "link", bytes, fl_wire_size(&frame));
}

/* Would catch: a command that is overwritten by another while standby workers were woken for both;
 * a stop request that waits behind other commands, or that is followed by one. */
static void test_link__keeps_commands_in_order(void **state)
{
    rig *r = (rig *)*state;
    fl_command command;
    expect(r, FL_WIRE_HELLO);
    send_command(r, FL_COMMAND_CANCEL, 11);
    send_command(r, FL_COMMAND_COMMIT, 12);
    send_order(r, FL_WIRE_ABORT, 6); /* once it is obeyed, both commands have come */
    while (atomic_load(&r->n_aborts) == 0) {
        nap(500);
    }
    assert_int_equal(await_command(r).due_step, 11);
    assert_int_equal(await_command(r).due_step, 12);
    assert_false(fl_link_take_command(r->link, 0, &command));
    send_command(r, FL_COMMAND_CANCEL, 13);
    send_order(r, FL_WIRE_COMMAND, 6);
    send_command(r, FL_COMMAND_CANCEL, 14);
    do {
        command = await_command(r);
    } while (command.kind == FL_COMMAND_CANCEL && command.due_step == 13);
    assert_int_equal(command.kind, FL_COMMAND_STOP);
}

/* Would catch: a checkpoint at another step than its own, or one that holds up a command for which
 * all workers wait at an earlier step. */
static void test_link__keeps_a_checkpoint_until_its_step(void **state)
{
    rig *r = (rig *)*state;
    fl_command command;
    expect(r, FL_WIRE_HELLO);
    send_command(r, FL_COMMAND_CHECKPOINT, 20);
    send_command(r, FL_COMMAND_CANCEL, 15);
    send_command(r, FL_COMMAND_CANCEL, 16);
    send_order(r, FL_WIRE_ABORT, 6); /* once it is obeyed, all commands have come */
    while (atomic_load(&r->n_aborts) == 0) {
        nap(500);
    }
    assert_true(fl_link_take_command(r->link, 19, &command));
    assert_int_equal(command.due_step, 15);
    assert_true(fl_link_take_command(r->link, 20, &command)); /* before what is older than it */
    assert_int_equal(command.kind, FL_COMMAND_CHECKPOINT);
    assert_true(fl_link_take_command(r->link, 20, &command));
    assert_int_equal(command.due_step, 16);
    assert_false(fl_link_take_command(r->link, 20, &command));
    send_command(r, FL_COMMAND_CHECKPOINT, 30);
    while (!fl_link_take_command(r->link, INT64_MAX, &command)) { /* a paused run has no 30 */
        nap(500);
    }
    assert_int_equal(command.due_step, 30);
    send_command(r, FL_COMMAND_CHECKPOINT, 40);
    assert_false(fl_link_wait_command(r->link, 39, 50, &command));
    assert_true(fl_link_wait_command(r->link, 41, 0, &command)); /* late: at once */
    assert_int_equal(command.due_step, 40);
}

/* After the commit another worker may lead: a checkpoint left in this worker's list would never be
 * written, and the workers woken for it would wait in vain. */
static void test_link__takes_a_checkpoint_before_a_commit(void **state)
{
    rig *r = (rig *)*state;
    fl_command command;
    expect(r, FL_WIRE_HELLO);
    send_command(r, FL_COMMAND_COMMIT, 15);
    send_command(r, FL_COMMAND_CHECKPOINT, 20);
    send_order(r, FL_WIRE_ABORT, 6); /* once it is obeyed, all commands have come */
    while (atomic_load(&r->n_aborts) == 0) {
        nap(500);
    }
    assert_true(fl_link_take_command(r->link, 15, &command));
    assert_int_equal(command.kind, FL_COMMAND_CHECKPOINT);
    assert_true(fl_link_take_command(r->link, 15, &command));
    assert_int_equal(command.kind, FL_COMMAND_COMMIT);
}

/* Would catch: groups that are aborted twice, or for a generation that the controller did not name.
 */
static void test_link__aborts_once(void **state)
{
    rig *r = (rig *)*state;
    expect(r, FL_WIRE_HELLO);
    send_order(r, FL_WIRE_ABORT, 6);
    send_order(r, FL_WIRE_ABORT, 7);
    send_order(r, FL_WIRE_COMMAND, 7); /* orders are obeyed in order: the aborts came before */
    (void)await_command(r);
    assert_int_equal(atomic_load(&r->n_aborts), 1);
    assert_int_equal(atomic_load(&r->aborted_generation), 6);
    assert_int_equal(atomic_load(&r->why), FL_EPEER);
    fl_link_done(r->link); /* the controller still hears a worker that leaves */
    expect(r, FL_WIRE_DONE);
}

/* Would catch: bytes that are not a frame and cause a crash or a wrong command. */
static void test_link__drops_malformed_orders(void **state)
{
    rig *r = (rig *)*state;
    const uint32_t key[2] = {77, 78};
    printf("seed %u %u\n", key[0], key[1]);
    expect(r, FL_WIRE_HELLO);
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        unsigned char bytes[FL_WIRE_HEADER_BYTES + 16];
        uint32_t q[4];
        fl_philox((uint32_t[4]){i, 0, 0, 0}, key, q);
        fl_wire_message frame = {
            .type = FL_WIRE_COMMAND, .rank = 5, .command = {.kind = FL_COMMAND_CANCEL}};
        fl_wire_put(&frame, bytes);
        size_t n = fl_wire_size(&frame);
        bytes[q[0] % 8] ^= (unsigned char)(1 + q[1] % 255); /* magic, version or type */
        if (bytes[6] != FL_WIRE_ABORT) {
            send_bytes(r, "link", bytes, q[2] % 4 == 0 ? q[3] % n : n);
        }
    }
    send_order(r, FL_WIRE_COMMAND, 9);
    assert_int_equal(await_command(r).kind, FL_COMMAND_STOP);
    assert_int_equal(atomic_load(&r->n_aborts), 0);
}

/* Would catch: the last reports lost because the link closes on them. */
static void test_link__flushes_when_it_closes(void **state)
{
    rig *r = (rig *)*state;
    expect(r, FL_WIRE_HELLO);
    for (int64_t step = 0; step < 1000; step++) {
        fl_step_report report = {.step = step};
        fl_link_step(r->link, &report);
    }
    fl_link_done(r->link);
    fl_link_close(&r->link);
    assert_null(r->link);
    for (int64_t step = 0; step < 1000; step++) {
        assert_int_equal(expect(r, FL_WIRE_STEP).step.step, step);
    }
    expect(r, FL_WIRE_DONE);
}

/* A link that believes in its connection waits for the controller without end: a worker dies with
 * its controller. This process lives on, so it must let the link notice first. */
static void wait_connected(rig *r, bool connected)
{
    int64_t deadline_us = fl_deadline_us(WAIT_MS);
    while (atomic_load(&r->link->connected) != connected && fl_left_ms(deadline_us) > 0) {
        nap(1000);
    }
    assert_int_equal(atomic_load(&r->link->connected), connected);
}

static void *close_link(void *argument)
{
    fl_link_close(&((rig *)argument)->link);
    return NULL;
}

/* Would catch: a link that closes while its last report is still on its way: a cut of the network
 * and one more message from the controller, and the report is lost. */
static void test_link__lives_until_the_last_report_has_arrived(void **state)
{
    rig *r = (rig *)*state;
    pthread_t closing;
    expect(r, FL_WIRE_HELLO);
    wait_connected(r, true);
    fl_link_done(r->link);
    assert_int_equal(pthread_create(&closing, NULL, close_link, r), 0);
    expect(r, FL_WIRE_DONE);
    for (int i = 0; i < 2; i++) { /* the first was sent with it */
        assert_int_equal(next_frame(r, true).type, FL_WIRE_HEARTBEAT);
    }
    send_order(r, FL_WIRE_TAKEN, 1);
    pthread_join(closing, NULL);
    assert_null(r->link);
}

/* Would catch: a worker that cannot end because no process reads its reports. */
static void test_link__closes_without_a_controller(void **state)
{
    rig *r = (rig *)*state;
    expect(r, FL_WIRE_HELLO);
    wait_connected(r, true);
    zmq_close(r->socket);
    zmq_ctx_term(r->zmq);
    r->socket = NULL;
    wait_connected(r, false);
    fl_link_done(r->link);
    fl_link_close(&r->link);
    assert_null(r->link);
}

static void test_link__refuses_a_bad_endpoint(void **state)
{
    (void)state;
    fl_link *link = NULL;
    fl_link_options options = {.endpoint = "nonsense", .detect_ms = 500};
    assert_int_equal(fl_link_open(&options, &link), FL_EIO);
    assert_null(link);
    options.endpoint = "ipc:///nowhere/nobody-listens-here";
    for (uint64_t n = 1; n <= 3; n++) { /* each allocation of the opening fails in turn */
        fl_alloc_fail_at(n);
        assert_int_equal(fl_link_open(&options, &link), FL_ENOMEM);
        fl_alloc_fail_at(0);
        assert_null(link);
    }
}

#define RIG_TEST(test) cmocka_unit_test_setup_teardown(test, open_rig, close_rig)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_link__says_hello_and_what_it_does),
        RIG_TEST(test_link__brings_all_reports_in_order),
        RIG_TEST(test_link__reports_without_allocating),
        RIG_TEST(test_link__hands_a_command_over_once),
        RIG_TEST(test_link__keeps_commands_in_order),
        RIG_TEST(test_link__keeps_a_checkpoint_until_its_step),
        RIG_TEST(test_link__takes_a_checkpoint_before_a_commit),
        RIG_TEST(test_link__aborts_once),
        cmocka_unit_test_setup_teardown(test_link__drops_malformed_orders, open_quiet_rig,
                                        close_rig),
        RIG_TEST(test_link__flushes_when_it_closes),
        RIG_TEST(test_link__lives_until_the_last_report_has_arrived),
        RIG_TEST(test_link__closes_without_a_controller),
        cmocka_unit_test(test_link__refuses_a_bad_endpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
