/* The controller over real processes, and messages that no worker sent. */
#include "control/link/wire/wire.h"
#include "support/runs/fake/fake_checks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zmq.h>

static void send_parts(void *socket, int n, const char *const *parts, const size_t *sizes)
{
    for (int i = 0; i < n; i++) {
        assert_true(zmq_send(socket, parts[i], sizes[i], i + 1 < n ? ZMQ_SNDMORE : 0) >= 0);
    }
}

static void *connect_as(void *zmq, const char *identity, const char *endpoint)
{
    void *socket = zmq_socket(zmq, ZMQ_DEALER);
    int linger_ms = 5000;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(socket, ZMQ_ROUTING_ID, identity, strlen(identity));
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

/* Would catch: a controller that crashes on messages which no worker sent, or believes them; one
 * that takes what a dead process of a worker has left behind for a report of its successor. */
static void test_controller__survives_hostile_messages(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_NOTHING, 0, -2);
    run.epochs = 100000;
    run.who = 1; /* delays the start, after which no process can connect any more */
    run.at_step = -1;
    run.waits_for_test = true;
    fake_start(&run);
    assert_true(fake_await_line(&run, "events.jsonl", "plan.chosen"));
    char endpoint[4200], noise[64];
    snprintf(endpoint, sizeof endpoint, "ipc://%s/link", run.dir);
    memset(noise, 0x5a, sizeof noise);
    unsigned char failed[4096];
    fl_wire_message frame = {.type = FL_WIRE_FAILED, .rank = 1, .generation = 1};
    frame.failed.status = FL_EIO;
    snprintf(frame.failed.text, sizeof frame.failed.text, "I am not worker 1");
    fl_wire_put(&frame, failed);
    size_t failed_bytes = fl_wire_size(&frame);

    void *zmq = zmq_ctx_new();
    const char *from_nobody[] = {"link", (const char *)failed};
    /* No process of rank 1 but the first one was started. */
    static const char *const others[] = {"worker-1.2", "worker-1.0", "worker-1", "worker-1.1 "};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        void *other = connect_as(zmq, others[i], endpoint);
        send_parts(other, 2, from_nobody, (size_t[]){4, failed_bytes});
        zmq_close(other);
    }
    void *socket = connect_as(zmq, "worker-7.1", endpoint);
    send_parts(socket, 2, from_nobody, (size_t[]){4, failed_bytes});
    send_parts(socket, 1, (const char *[]){noise}, (size_t[]){sizeof noise});
    send_parts(socket, 2, (const char *[]){"store", noise}, (size_t[]){5, sizeof noise});
    send_parts(socket, 2, (const char *[]){"", ""}, (size_t[]){0, 0});
    const char *many[20];
    size_t sizes[20];
    for (int i = 0; i < 20; i++) {
        many[i] = noise;
        sizes[i] = sizeof noise;
    }
    send_parts(socket, 20, many, sizes);
    zmq_close(socket);
    zmq_ctx_term(zmq);

    assert_true(fake_await_line(&run, "stderr.txt", "of 21 parts"));
    atomic_store(&run.shared->go_on, true);
    assert_true(fake_await_steps(&run, 3));
    kill(run.controller, SIGINT);
    fake_outcome outcome = fake_finish(&run);
    assert_nothing_left(&run);
    assert_contains(outcome.message, "stopped by the user after ");
    assert_int_equal(outcome.status, FL_ESTOPPED);
    fake_clean(&run);
}

/* Would catch: a line for each of such messages. */
static void test_controller__counts_messages_of_strangers(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_JUNK, 1, -1);
    fake_outcome outcome = play(&run);
    assert_int_equal(outcome.status, FL_OK);
    char *log = fake_read(&run, "stderr.txt"), *line = log;
    int n = 0;
    while ((line = strstr(line, "neither a living worker's nor a store's")) != NULL) {
        line++;
        n++;
    }
    assert_int_equal(n, 2); /* of 12: the first one and the tenth */
    assert_contains(log, "; more of them are counted");
    assert_contains(log, "; that is number 10\n");
    free(log);
    fake_clean(&run);
}

/* Would catch: what a process of before the run went back has sent, reported like an attack. */
static void test_controller__takes_a_former_worker_for_no_stranger(void **state)
{
    (void)state;
    fake_run run = fake_run_of(FAKE_FORMER, 1, -1);
    fake_outcome outcome = play(&run);
    assert_int_equal(outcome.status, FL_OK);
    char *log = fake_read(&run, "stderr.txt");
    assert_null(strstr(log, "neither a living worker's nor a store's"));
    free(log);
    fake_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controller__survives_hostile_messages),
        cmocka_unit_test(test_controller__counts_messages_of_strangers),
        cmocka_unit_test(test_controller__takes_a_former_worker_for_no_stranger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
