/* A worker's link and the controller's end of it, over a connection that is reset: what was on its
 * way is lost. Would catch: a report, a command or a hello that is lost, or comes twice; a worker
 * that closes its link before its last report has arrived. */
#include "control/link/link.h"
#include "control/link/link_thread.h"
#include "control/link/router.h"
#include "device/system/clock.h"
#include "support/folder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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
#include <unistd.h>

#include <cmocka.h>

enum {
    WAIT_MS = 20000,
    DETECT_MS = 200,
    SLICE_MS = 5,
    RESETS = 8,
    TURNS = 20,
    RANK = 5,
    PAIRS_MAX = 8
};

/* Carries bytes between the worker, which connects to it, and the controller. */
typedef struct relay {
    int listener, to_port, n;
    int fd[PAIRS_MAX][2]; /* [n] */
    pthread_t thread;
    atomic_bool stop, swallows, resets, refuses;
    atomic_int n_swallowed; /* bytes from the worker, and from the controller */
    atomic_int n_swallowed_back;
} relay;

typedef struct rig {
    char folder[64], endpoint[64], keys[4][41];
    int dir_fd;
    relay relay;
    fl_router router;
    fl_link *link;
    uint32_t process;
    bool is_deaf;    /* the controller loses the next message */
    int64_t n_steps; /* reports that came, each one step later */
    bool greeted, done;
} rig;

/* ---- the relay ---- */

static struct sockaddr_in address_of(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listen_anywhere(int *port)
{
    struct sockaddr_in at = address_of(0);
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void close_pair(relay *r, int i)
{
    const struct linger at_once = {.l_onoff = 1};
    for (int side = 0; side < 2; side++) {
        setsockopt(r->fd[i][side], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(r->fd[i][side]); /* a reset */
    }
    r->n--;
    memmove(r->fd[i], r->fd[r->n], sizeof r->fd[i]);
}

static void take_pair(relay *r)
{
    struct sockaddr_in to = address_of(r->to_port);
    int from = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    int on = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (from < 0 || r->n == PAIRS_MAX || atomic_load(&r->refuses) ||
        connect(on, (struct sockaddr *)&to, sizeof to) != 0) {
        close(from);
        close(on);
        return;
    }
    r->fd[r->n][0] = from;
    r->fd[r->n++][1] = on;
}

/* False: the connection is over. */
static bool pass_on(relay *r, int i, int side)
{
    char bytes[16384];
    ssize_t n = recv(r->fd[i][side], bytes, sizeof bytes, 0);
    if (n > 0 && atomic_load(&r->swallows)) {
        atomic_fetch_add(side == 0 ? &r->n_swallowed : &r->n_swallowed_back, (int)n);
        return true;
    }
    return n > 0 && send(r->fd[i][1 - side], bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void turn_relay(relay *r)
{
    struct pollfd at[2 * PAIRS_MAX + 1];
    int n = r->n;
    for (int i = 0; i < 2 * n; i++) {
        at[i] = (struct pollfd){.fd = r->fd[i / 2][i % 2], .events = POLLIN};
    }
    at[2 * n] = (struct pollfd){.fd = r->listener, .events = POLLIN};
    poll(at, (nfds_t)(2 * n + 1), SLICE_MS);
    for (int i = 2 * n - 1; i >= 0; i--) {
        if (at[i].revents != 0 && i / 2 < r->n && r->fd[i / 2][i % 2] == at[i].fd &&
            !pass_on(r, i / 2, i % 2)) {
            close_pair(r, i / 2);
        }
    }
    if (at[2 * n].revents != 0) {
        take_pair(r);
    }
}

static void *run_relay(void *argument)
{
    relay *r = argument;
    while (!atomic_load(&r->stop)) {
        turn_relay(r);
        if (atomic_load(&r->resets)) {
            while (r->n > 0) {
                close_pair(r, 0);
            }
            atomic_store(&r->swallows, false);
            atomic_store(&r->resets, false);
        }
    }
    while (r->n > 0) {
        close_pair(r, 0);
    }
    return NULL;
}

/* ---- both ends ---- */

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    int port = 0, held = listen_anywhere(&r->relay.to_port);
    char far[64];
    make_folder(r->folder);
    r->dir_fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r->relay.listener = listen_anywhere(&port);
    assert_int_equal(listen(r->relay.listener, PAIRS_MAX), 0);
    snprintf(r->endpoint, sizeof r->endpoint, "tcp://127.0.0.1:%d", port);
    snprintf(far, sizeof far, "tcp://127.0.0.1:%d", r->relay.to_port);
    assert_int_equal(zmq_curve_keypair(r->keys[0], r->keys[1]), 0);
    assert_int_equal(zmq_curve_keypair(r->keys[2], r->keys[3]), 0);
    const fl_router_far options = {
        .endpoint = far, .held_fd = &held, .secret = r->keys[1], .client = r->keys[2]};
    assert_int_equal(fl_router_open(&r->router, r->dir_fd, r->folder, RANK + 1, &options), FL_OK);
    assert_int_equal(pthread_create(&r->relay.thread, NULL, run_relay, &r->relay), 0);
    *state = r;
    return 0;
}

static void open_link(rig *r, int detect_ms)
{
    r->process++;
    r->greeted = r->done = false;
    fl_curve_keys keys = {0};
    snprintf(keys.server, sizeof keys.server, "%s", r->keys[0]);
    snprintf(keys.public_key, sizeof keys.public_key, "%s", r->keys[2]);
    snprintf(keys.secret, sizeof keys.secret, "%s", r->keys[3]);
    const fl_link_options options = {.endpoint = r->endpoint,
                                     .keys = &keys,
                                     .rank = RANK,
                                     .incarnation = r->process,
                                     .generation = 1,
                                     .detect_ms = detect_ms};
    assert_int_equal(fl_link_open(&options, &r->link), FL_OK);
}

static int close_rig(void **state)
{
    rig *r = *state;
    fl_link_close(&r->link);
    atomic_store(&r->relay.stop, true);
    pthread_join(r->relay.thread, NULL);
    close(r->relay.listener);
    fl_router_close(&r->router);
    close(r->dir_fd);
    rmdir(r->folder);
    free(r);
    return 0;
}

/* ---- the controller ---- */

static void take_frame(rig *r, const fl_wire_message *frame)
{
    if (frame->type == FL_WIRE_HELLO) {
        assert_false(r->greeted);
        r->greeted = true;
        fl_router_admit(&r->router, RANK, r->process);
    } else if (frame->type == FL_WIRE_STEP) {
        assert_int_equal(frame->step.step, r->n_steps);
        r->n_steps++;
    } else if (frame->type == FL_WIRE_DONE) {
        assert_false(r->done);
        r->done = true;
    } else {
        assert_int_equal(frame->type, FL_WIRE_HEARTBEAT);
    }
}

static void take_message(void *context, zmq_msg_t *parts, int n_kept, int n_parts)
{
    rig *r = context;
    int first = 0;
    assert_int_equal(n_kept, n_parts);
    if (zmq_msg_size(&parts[1]) == 5 || r->is_deaf) { /* for the store, or lost */
        r->is_deaf = false;
        return;
    }
    assert_int_equal(fl_router_take(&r->router, RANK, r->process, &parts[2], &first), FL_OK);
    for (int i = 2 + first; i < n_parts; i++) {
        const unsigned char *at = zmq_msg_data(&parts[i]);
        size_t left = zmq_msg_size(&parts[i]);
        while (left > 0) {
            fl_wire_message frame;
            assert_int_equal(fl_wire_next(&at, &left, &frame), FL_OK);
            take_frame(r, &frame);
        }
    }
}

static void send_command(rig *r, int64_t due_step)
{
    const fl_wire_message frame = {.type = FL_WIRE_COMMAND,
                                   .generation = 1,
                                   .at_us = fl_now_us(),
                                   .command = {.kind = FL_COMMAND_CANCEL, .due_step = due_step}};
    fl_router_send_to(&r->router, RANK, &frame);
}

static void send_frame(rig *r, fl_wire_type type)
{
    const fl_wire_message frame = {.type = type, .generation = 1, .at_us = fl_now_us()};
    fl_router_send_to(&r->router, RANK, &frame);
}

/* It shows that it lives, or its last command might be lost unseen. */
static void turn_controller(rig *r)
{
    zmq_pollitem_t items[] = {{r->router.socket, 0, ZMQ_POLLIN, 0},
                              {fl_router_guard(&r->router), 0, ZMQ_POLLIN, 0}};
    zmq_poll(items, 2, SLICE_MS);
    fl_router_watch(&r->router);
    while (fl_router_read(&r->router, take_message, r)) {
    }
    send_frame(r, FL_WIRE_ALIVE);
}

#define AWAIT(r, condition)                                                                        \
    for (int64_t until_us = fl_deadline_us(WAIT_MS); !(condition); turn_controller(r)) {           \
        if (fl_left_ms(until_us) == 0) {                                                           \
            fail_msg("never: %s", #condition);                                                     \
        }                                                                                          \
    }

static void reset_connections(rig *r)
{
    atomic_store(&r->relay.resets, true);
    AWAIT(r, !atomic_load(&r->relay.resets));
}

static void report_step(rig *r, int64_t step)
{
    const fl_step_report report = {.step = step, .generation = 1};
    fl_link_step(r->link, &report);
}

/* ---- tests ---- */

static void test_link_resets__lose_no_report(void **state)
{
    rig *r = *state;
    int64_t n = 0;
    open_link(r, DETECT_MS);
    AWAIT(r, r->greeted);
    for (int i = 0; i < RESETS; i++) {
        report_step(r, n++);
        AWAIT(r, r->n_steps == n);
        atomic_store(&r->relay.n_swallowed, 0);
        atomic_store(&r->relay.swallows, true);
        report_step(r, n++);
        AWAIT(r, atomic_load(&r->relay.n_swallowed) > 0);
        report_step(r, n++);
        reset_connections(r);
        report_step(r, n++);
    }
    AWAIT(r, r->n_steps == n);
}

static void test_link_resets__lose_no_command(void **state)
{
    rig *r = *state;
    int64_t n = 0, n_taken = 0;
    fl_command command;
    open_link(r, DETECT_MS);
    AWAIT(r, r->greeted);
    for (int i = 0; i < RESETS; i++) {
        send_command(r, n++);
        AWAIT(r, fl_link_take_command(r->link, INT64_MAX, &command));
        assert_int_equal(command.due_step, n_taken++);
        atomic_store(&r->relay.n_swallowed_back, 0);
        atomic_store(&r->relay.swallows, true);
        send_command(r, n++);
        AWAIT(r, atomic_load(&r->relay.n_swallowed_back) > 0);
        send_command(r, n++);
        reset_connections(r);
        send_command(r, n++);
        while (n_taken < n) {
            AWAIT(r, fl_link_take_command(r->link, INT64_MAX, &command));
            assert_int_equal(command.due_step, n_taken++);
        }
    }
    assert_false(fl_link_take_command(r->link, INT64_MAX, &command));
}

/* The controller sends nothing to a worker that it does not know. */
static void test_link_resets__lose_no_hello(void **state)
{
    rig *r = *state;
    r->is_deaf = true;
    open_link(r, DETECT_MS);
    AWAIT(r, !r->is_deaf);
    report_step(r, 0);
    AWAIT(r, r->greeted && r->n_steps == 1);
}

static void *close_link(void *argument)
{
    fl_link *link = argument;
    fl_link_close(&link);
    return NULL;
}

/* The link is the thread's from now on. */
static const fl_link *start_closing(rig *r, pthread_t *thread)
{
    fl_link *link = r->link;
    r->link = NULL;
    assert_int_equal(pthread_create(thread, NULL, close_link, link), 0);
    return link;
}

/* The controller has the last report: the link closes. */
static void await_closed(rig *r, pthread_t thread)
{
    AWAIT(r, r->done);
    send_frame(r, FL_WIRE_TAKEN);
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        turn_controller(r);
    }
}

/* It waits for a connection, too. */
static void test_link_resets__lose_no_last_report(void **state)
{
    rig *r = *state;
    pthread_t thread;
    open_link(r, WAIT_MS);
    AWAIT(r, r->greeted);
    atomic_store(&r->relay.swallows, true);
    report_step(r, 0);
    fl_link_done(r->link);
    const fl_link *link = start_closing(r, &thread);
    AWAIT(r, atomic_load(&r->relay.n_swallowed) > 0);
    atomic_store(&r->relay.refuses, true);
    reset_connections(r);
    AWAIT(r, !atomic_load(&link->connected));
    for (int i = 0; i < TURNS; i++) {
        turn_controller(r);
    }
    assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
    atomic_store(&r->relay.refuses, false);
    await_closed(r, thread);
    assert_int_equal(r->n_steps, 1);
}

/* Its numbers begin anew. */
static void test_link_resets__are_no_matter_of_the_next_process(void **state)
{
    rig *r = *state;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        fl_command command;
        open_link(r, DETECT_MS);
        AWAIT(r, r->greeted);
        report_step(r, r->n_steps);
        send_command(r, i);
        AWAIT(r, fl_link_take_command(r->link, INT64_MAX, &command));
        assert_int_equal(command.due_step, i);
        fl_link_done(r->link);
        (void)start_closing(r, &thread);
        await_closed(r, thread);
        fl_router_drop(&r->router, RANK);
        assert_int_equal(r->n_steps, i + 1);
    }
}

/* A message with this in front, and whether it is taken. */
static fl_status take_front(rig *r, fl_wire_type type)
{
    fl_wire_message frame = {.type = type, .rank = RANK, .at_us = fl_now_us()};
    int first = 0;
    zmq_msg_t part;
    if (type == FL_WIRE_COUNTS) {
        frame.counts = (fl_wire_counts){.round = 1};
    }
    zmq_msg_init_size(&part, fl_wire_size(&frame));
    fl_wire_put(&frame, zmq_msg_data(&part));
    fl_status status = fl_router_take(&r->router, RANK, 1, &part, &first);
    zmq_msg_close(&part);
    return status;
}

/* Would catch: a controller whose memory a worker fills that sends signs of life, and takes no
 * command. */
static void test_link_resets__a_process_that_takes_nothing_is_refused(void **state)
{
    rig *r = *state;
    const fl_resend *kept = &r->router.ends[RANK].resend;
    assert_int_equal(take_front(r, FL_WIRE_DONE), FL_EFORMAT);
    assert_int_equal(take_front(r, FL_WIRE_COUNTS), FL_OK);
    fl_router_admit(&r->router, RANK, 1);
    send_command(r, 1);
    size_t each = kept->n_bytes;
    while (kept->n_bytes + each <= FL_ROUTER_KEPT_MAX) {
        send_command(r, 1);
    }
    assert_int_equal(take_front(r, FL_WIRE_COUNTS), FL_OK);
    send_command(r, 1);
    send_command(r, 1);
    assert_true(kept->n_bytes <= FL_ROUTER_KEPT_MAX);
    assert_int_equal(take_front(r, FL_WIRE_COUNTS), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "takes no commands"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_link_resets__lose_no_report, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_link_resets__lose_no_command, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_link_resets__lose_no_hello, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_link_resets__lose_no_last_report, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_link_resets__are_no_matter_of_the_next_process,
                                        open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_link_resets__a_process_that_takes_nothing_is_refused,
                                        open_rig, close_rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
