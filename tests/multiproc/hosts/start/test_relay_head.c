/* What an agent makes of its head before its workers have started.
 *
 * It stands still while it joins, and its host then cannot take part: its process finds what the
 * run has left behind when it went on without the host. Would catch: an agent that blames a file of
 * the run, with the code of bad input, when the head has lost its host, and one that does not tell
 * a real reason because it stood still.
 *
 * Its head is gone after hosts have measured. Would catch: an agent that waits a minute for it. */
#include "control/agent/join/host_socket.h"
#include "control/agent/relay/relay.h"
#include "control/agent/wire/agent_socket.h"
#include "device/system/clock.h"
#include "support/nap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum {
    WAIT_MS = 60000,
    SILENCE_MS = 20000,
    LOST_MS = SILENCE_MS / FL_HOST_PATIENCE, /* of silence: the head loses a host */
    STILL_US = 1500000,                      /* more than the relay takes for a slow turn */
    TURN_MS = 10,
    REFUSED = 2,
    TEXT = 512,
};

#define MISSING "run/model.safetensors.part: No such file or directory"

/* The head of the test, and a process with the relay of host b. */
typedef struct joining {
    fl_hosts hosts;
    fl_host_socket socket;
    fl_host_peer peer; /* of the relay */
    pid_t relay;
    int said;          /* what it says at its end */
    int64_t pinged_ms; /* by the clock of this head; 0: it sends none while it reads */
} joining;

/* ---- the relay ---- */

static void refuse(void *context, const fl_host_welcome *welcome, int job_fd, int socket)
{
    (void)context, (void)welcome, (void)job_fd;
    char byte[FL_AGENT_FRAME_MAX];
    fl_agent_frame frame = {.type = FL_AGENT_REFUSE, .text = MISSING};
    (void)fl_agent_socket_send(socket, &frame);
    (void)recv(socket, byte, sizeof byte, 0);
    _exit(REFUSED);
}

static _Noreturn void become_relay(const joining *j, const char *endpoint, int said)
{
    /* the port of the head is not this process's */
    assert_int_equal(close_range(STDERR_FILENO + 1, (unsigned)said - 1, 0), 0);
    assert_int_equal(close_range((unsigned)said + 1, ~0U, 0), 0);
    const fl_relay_options relay = {.endpoint = endpoint,
                                    .keys = &j->hosts.keys,
                                    .name = "b",
                                    .address = "",
                                    .n_devices = 1,
                                    .join_ms = WAIT_MS,
                                    .serve = refuse};
    fl_relay_end end = {.exit_code = 0};
    fl_status status = fl_relay_run(&relay, &end);
    dprintf(said, "%s", fl_errmsg());
    _exit(status == FL_EFAILED ? end.exit_code : status == FL_EPEER ? 3 : 1);
}

/* ---- the head ---- */

static void send_message(const joining *j, const fl_host_message *message)
{
    assert_true(fl_host_socket_send(&j->socket, &j->peer, message));
}

/* False: the relay has ended, and its last message may wait to be read. */
static bool send_ping(const joining *j, int64_t sent_ms)
{
    const fl_host_message m = {.type = FL_HOST_PING, .clock.sent_ns = sent_ms * 1000000};
    return fl_host_socket_send(&j->socket, &j->peer, &m);
}

/* As to a host that is in the run, by a clock that runs fast. */
static void keep_pinging(joining *j)
{
    if (j->pinged_ms != 0) {
        j->pinged_ms += LOST_MS + 1;
        (void)send_ping(j, j->pinged_ms);
    }
}

/* Read on until a message of this type comes; anything else but `never` may come before. */
static void await(joining *j, fl_host_type type, fl_host_type never, fl_host_message *out)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n;
    int64_t until_us = fl_deadline_us(WAIT_MS);
    for (;;) {
        zmq_pollitem_t items[] = {{fl_zap_auth_socket(j->socket.guard), 0, ZMQ_POLLIN, 0},
                                  {j->socket.socket, 0, ZMQ_POLLIN, 0}};
        assert_true(fl_left_ms(until_us) > 0);
        zmq_poll(items, 2, TURN_MS);
        fl_zap_auth_watch(j->socket.guard);
        keep_pinging(j);
        while (fl_host_socket_read(&j->socket, &j->peer, bytes, &n)) {
            assert_int_equal(fl_host_wire_get(bytes, n, out), FL_OK);
            assert_int_not_equal(out->type, never);
            if (out->type == type) {
                return;
            }
        }
    }
}

static void open_head(joining *j, char endpoint[FL_HOSTS_ENDPOINT_MAX])
{
    size_t n = FL_HOSTS_ENDPOINT_MAX;
    snprintf(j->hosts.agents, sizeof j->hosts.agents, "tcp://127.0.0.1:*");
    assert_int_equal(zmq_curve_keypair(j->hosts.keys.server, j->hosts.secret), 0);
    assert_int_equal(zmq_curve_keypair(j->hosts.keys.public_key, j->hosts.keys.secret), 0);
    assert_int_equal(fl_host_socket_open(&j->hosts, 0, &j->socket), FL_OK);
    assert_int_equal(zmq_getsockopt(j->socket.socket, ZMQ_LAST_ENDPOINT, endpoint, &n), 0);
}

static int set_up(void **state)
{
    char endpoint[FL_HOSTS_ENDPOINT_MAX];
    int ends[2];
    fl_host_message m;
    joining *j = calloc(1, sizeof *j);
    assert_non_null(j);
    open_head(j, endpoint);
    assert_int_equal(pipe(ends), 0);
    j->relay = fork();
    assert_true(j->relay >= 0);
    if (j->relay == 0) {
        become_relay(j, endpoint, ends[1]);
    }
    close(ends[1]);
    j->said = ends[0];
    await(j, FL_HOST_JOIN, FL_HOST_LEAVE, &m);
    *state = j;
    return 0;
}

static int tear_down(void **state)
{
    joining *j = *state;
    if (j->relay > 0) {
        kill(j->relay, SIGKILL);
        waitpid(j->relay, NULL, 0);
    }
    close(j->said);
    fl_host_socket_close(&j->socket);
    free(j);
    return 0;
}

static void send_welcome(const joining *j)
{
    fl_host_message m = {.type = FL_HOST_JOB, .frame = {(const unsigned char *)"-", 1}};
    send_message(j, &m);
    m = (fl_host_message){.type = FL_HOST_WELCOME};
    m.welcome = (fl_host_welcome){.host = {.name = "b", .address = "127.0.0.2", .first = 1, .n = 1},
                                  .run_dir = "/runs/one",
                                  .cwd = "/",
                                  .links = "tcp://127.0.0.1:5571",
                                  .silence_ms = SILENCE_MS,
                                  .facts = {.version = "1"},
                                  .job_bytes = 1,
                                  .n_hosts = 2,
                                  .first = {0, 1},
                                  .n_first_ranks = 2,
                                  .state_step = -1};
    send_message(j, &m);
}

/* The welcome, and PINGs until the head loses the host, come while the relay is stopped. */
static void welcome_stopped(joining *j)
{
    assert_int_equal(kill(j->relay, SIGSTOP), 0);
    send_welcome(j);
    assert_true(send_ping(j, 1));
    nap(STILL_US); /* this is what the relay is to notice */
    assert_int_equal(kill(j->relay, SIGCONT), 0);
}

/* The exit code of the relay, and what it said. */
static int await_end(joining *j, char said[TEXT])
{
    int how = 0;
    size_t n = 0;
    ssize_t got;
    while ((got = read(j->said, said + n, TEXT - 1 - n)) > 0) {
        n += (size_t)got;
    }
    said[n] = '\0';
    assert_int_equal(waitpid(j->relay, &how, 0), j->relay);
    j->relay = 0;
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

/* ---- what the agent makes of its refusal ---- */

static void test_relay_head__a_lost_host_says_that_it_is_lost(void **state)
{
    joining *j = *state;
    char said[TEXT];
    fl_host_message m;
    welcome_stopped(j);
    await(j, FL_HOST_ALIVE, FL_HOST_UNFIT, &m);
    assert_true(send_ping(j, LOST_MS)); /* that was on its way */
    m = (fl_host_message){.type = FL_HOST_LOST, .text = "it has not answered for 8.5 s"};
    send_message(j, &m);
    assert_int_equal(await_end(j, said), 3);
    assert_non_null(strstr(said, "counts this host as lost, after this agent itself stood still"));
    assert_non_null(strstr(said, "it has not answered for 8.5 s"));
    assert_null(strstr(said, MISSING));
}

static void test_relay_head__a_host_in_the_run_says_why(void **state)
{
    joining *j = *state;
    char said[TEXT];
    fl_host_message m;
    welcome_stopped(j);
    await(j, FL_HOST_ALIVE, FL_HOST_UNFIT, &m);
    j->pinged_ms = 1;
    await(j, FL_HOST_UNFIT, FL_HOST_LEAVE, &m);
    assert_string_equal(m.text, MISSING);
    assert_int_equal(await_end(j, said), REFUSED);
    assert_string_equal(said, MISSING);
}

static void test_relay_head__a_run_that_goes_back_is_joined_again(void **state)
{
    joining *j = *state;
    fl_host_message m;
    welcome_stopped(j);
    await(j, FL_HOST_ALIVE, FL_HOST_UNFIT, &m);
    send_message(j, &(fl_host_message){.type = FL_HOST_AGAIN});
    await(j, FL_HOST_LEAVE, FL_HOST_UNFIT, &m);
    await(j, FL_HOST_JOIN, FL_HOST_UNFIT, &m);
}

static void test_relay_head__without_a_standstill_it_says_why_at_once(void **state)
{
    joining *j = *state;
    char said[TEXT];
    fl_host_message m;
    send_welcome(j);
    await(j, FL_HOST_UNFIT, FL_HOST_LEAVE, &m);
    assert_string_equal(m.text, MISSING);
    assert_int_equal(await_end(j, said), REFUSED);
}

/* Would catch: an agent that nobody starts again, although the head would take it in later. */
static void test_relay_head__a_reason_that_passes_is_no_bad_input(void **state)
{
    joining *j = *state;
    char said[TEXT];
    send_message(j, &(fl_host_message){.type = FL_HOST_BUSY, .text = "Too many open files"});
    assert_int_equal(await_end(j, said), 3);
    assert_non_null(strstr(said, "cannot take in host 'b' now: Too many open files; start it"));
}

static void test_relay_head__a_head_that_makes_no_plan_has_ended(void **state)
{
    joining *j = *state;
    char said[TEXT];
    send_message(j, &(fl_host_message){.type = FL_HOST_ALIVE}); /* it waits for other hosts */
    send_message(j, &(fl_host_message){.type = FL_HOST_NEXT});
    fl_host_socket_close(&j->socket);
    assert_int_equal(await_end(j, said), 3);
    assert_non_null(strstr(said, "has ended before the run began: it has taken no connection for"));
}

#define RELAY_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RELAY_TEST(test_relay_head__a_lost_host_says_that_it_is_lost),
        RELAY_TEST(test_relay_head__a_host_in_the_run_says_why),
        RELAY_TEST(test_relay_head__a_run_that_goes_back_is_joined_again),
        RELAY_TEST(test_relay_head__without_a_standstill_it_says_why_at_once),
        RELAY_TEST(test_relay_head__a_reason_that_passes_is_no_bad_input),
        RELAY_TEST(test_relay_head__a_head_that_makes_no_plan_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
