/* The agent over real processes, and frames that no controller would send, or that none reads. The
 * controller is the test itself. */
#include "control/agent/wire/agent_wire.h"
#include "support/runs/agent_rig.h"

#include <errno.h>
#include <linux/sockios.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* An agent whose controller is the test itself. send_bytes: what its socket keeps of its answers;
 * 0: as much as usual. */
static int start_bare(agent_rig *r, int send_bytes, pid_t *agent)
{
    static fl_agent_child children[AGENT_RIG_WORKERS];
    int ends[2];
    memset(children, 0, sizeof children);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    if (send_bytes > 0) {
        assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes),
                         0);
    }
    fflush(NULL);
    *agent = fork();
    if (*agent == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        fl__agent_run(&r->options, ends[1], children);
    }
    close(ends[1]);
    return ends[0];
}

static void send_frame(int socket, fl_agent_type type, int rank, uint32_t incarnation)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    fl_agent_frame frame = {.type = type, .rank = rank, .incarnation = incarnation};
    if (type == FL_AGENT_SPAWN) {
        frame.birth = agent_rig_birth;
    }
    size_t n = fl_agent_wire_put(&frame, bytes);
    assert_int_equal(send(socket, bytes, n, MSG_NOSIGNAL), n);
}

static fl_agent_frame receive(int socket)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    fl_agent_frame frame;
    struct timeval limit = {.tv_sec = AGENT_RIG_WAIT_MS / 1000};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t n = recv(socket, bytes, sizeof bytes, 0);
    assert_true(n > 0);
    assert_int_equal(fl_agent_wire_get(bytes, (size_t)n, &frame), FL_OK);
    return frame;
}

static void end_bare(int socket, pid_t agent)
{
    int wait_status = 0;
    send_frame(socket, FL_AGENT_END, 0, 0);
    assert_int_equal(waitpid(agent, &wait_status, 0), agent);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    close(socket);
}

/* A worker that was killed, and whose end nobody can see: its tracer does not let go of it. It
 * stands for one that is stuck in the kernel. Would catch: an agent that waits for it for ever. */
static void test_agent__leaves_a_worker_behind_that_does_not_end(void **state)
{
    agent_rig *r = *state;
    pid_t agent;
    int wait_status = 0, socket = start_bare(r, 0, &agent);
    send_frame(socket, FL_AGENT_SPAWN, 1, 1);
    AWAIT(atomic_load(&r->shared->n_begun[1]) == 1);
    pid_t worker = atomic_load(&r->shared->pid[1]);
    if (ptrace(PTRACE_SEIZE, worker, NULL, NULL) != 0) {
        kill(agent, SIGKILL);
        print_message("skipped: no right to trace a process: %s\n", strerror(errno));
        skip();
    }
    send_frame(socket, FL_AGENT_END, 0, 0);
    AWAIT(waitpid(agent, &wait_status, WNOHANG) == agent);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    close(socket);
    AWAIT(agent_process_is_gone(worker));
}

/* Would catch: an agent that crashes on frames which no controller sends, or obeys them. */
static void test_agent__refuses_frames_that_make_no_sense(void **state)
{
    agent_rig *r = *state;
    pid_t agent;
    int socket = start_bare(r, 0, &agent);
    unsigned char noise[4096];
    memset(noise, 0x5a, sizeof noise);
    static const size_t sizes[] = {1, 15, 16, 64, 65, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(send(socket, noise, sizes[i], 0), sizes[i]);
    }
    send_frame(socket, FL_AGENT_SPAWN, AGENT_RIG_WORKERS, 1); /* no such rank */
    send_frame(socket, FL_AGENT_KILL, 1, 1);                  /* was not started */
    send_frame(socket, FL_AGENT_LOOK, 1, 1);                  /* nor this */
    send_frame(socket, FL_AGENT_SPAWNED, 1, 1); /* refused: neither process nor error */
    send_frame(socket, FL_AGENT_EXITED, 1, 1);  /* the agent's own */
    send_frame(socket, FL_AGENT_SPAWN, 1, 5);
    fl_agent_frame frame = receive(socket);
    assert_int_equal(frame.type, FL_AGENT_SPAWNED);
    assert_int_equal(frame.rank, 1);
    assert_int_equal(frame.incarnation, 5);
    send_frame(socket, FL_AGENT_SPAWN, 1, 6); /* it lives */
    send_frame(socket, FL_AGENT_KILL, 1, 4);  /* another process of the rank */
    send_frame(socket, FL_AGENT_LOOK, 1, 5);
    assert_int_equal(receive(socket).type, FL_AGENT_LOOKED);
    send_frame(socket, FL_AGENT_KILL, 1, 5);
    frame = receive(socket);
    assert_int_equal(frame.type, FL_AGENT_EXITED);
    assert_int_equal(frame.incarnation, 5);
    end_bare(socket, agent);
    assert_int_equal(atomic_load(&r->shared->n_begun[0]) + atomic_load(&r->shared->n_begun[2]), 0);
}

static void record_and_die(fl_flight *flight)
{
    pid_t pid = fork();
    if (pid == 0) {
        fl_flight_join(flight, 0);
        fl_flight_enter(FL_FLIGHT_FORWARD, -1, 0, 0);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A rank is started again after its end, with what the request says, and its log goes on. Would
 * catch: an operation that the dead process was in, taken for one of its successor. */
static void test_agent__starts_a_rank_again(void **state)
{
    fl_flight_view view;
    agent_rig *r = *state;
    pid_t agent;
    int socket = start_bare(r, 0, &agent);
    atomic_store(&r->shared->leaves, 1);
    record_and_die(r->flight);
    fl_flight_look(r->flight, 0, 0, &view);
    assert_int_equal(view.depth, 1);
    for (uint32_t incarnation = 1; incarnation <= 3; incarnation++) {
        send_frame(socket, FL_AGENT_SPAWN, 0, incarnation);
        assert_int_equal(receive(socket).type, FL_AGENT_SPAWNED);
        fl_agent_frame frame = receive(socket);
        assert_int_equal(frame.type, FL_AGENT_EXITED);
        assert_int_equal(frame.incarnation, incarnation);
        assert_int_equal(WEXITSTATUS(frame.wait_status), AGENT_RIG_EXIT_CODE);
        fl_flight_look(r->flight, 0, 0, &view);
        assert_int_equal(view.depth, 0);
        agent_rig_birth.step++;
    }
    send_frame(socket, FL_AGENT_SPAWN, 0, 3); /* that one has been */
    end_bare(socket, agent);
    assert_int_equal(atomic_load(&r->shared->n_begun[0]), 3);
    char *log = agent_rig_log(r, 0);
    int n = 0;
    for (const char *at = log; (at = strstr(at, "worker 0 at nowhere")) != NULL; at++) {
        char text[48];
        snprintf(text, sizeof text, "worker 0 at nowhere, step %d of 40\n", n++);
        assert_memory_equal(at, text, strlen(text));
    }
    assert_int_equal(n, 3);
    free(log);
}

/* Whether the other end has read all that was sent. */
static bool has_read(int socket)
{
    int n = -1;
    assert_int_equal(ioctl(socket, SIOCOUTQ, &n), 0);
    return n == 0;
}

/* Would catch: an agent that blocks in a send, and no longer reaps or obeys, because its controller
 * does not read. */
static void test_agent__never_waits_for_a_reader(void **state)
{
    enum { LOOKS = 100, SMALLEST = 1 };
    agent_rig *r = *state;
    pid_t agent;
    int socket = start_bare(r, SMALLEST, &agent);
    for (int i = 0; i < AGENT_RIG_WORKERS; i++) {
        send_frame(socket, FL_AGENT_SPAWN, i, 1);
    }
    AWAIT(agent_rig_has_begun(r->shared));
    for (int i = 0; i < LOOKS; i++) { /* each is answered before the next one comes */
        send_frame(socket, FL_AGENT_LOOK, i % AGENT_RIG_WORKERS, 1);
        AWAIT(has_read(socket));
    }
    send_frame(socket, FL_AGENT_KILL, 0, 1);
    AWAIT(kill(atomic_load(&r->shared->pid[0]), 0) != 0); /* killed, and reaped by the agent */
    int n_looked = 0;
    for (fl_agent_frame frame = receive(socket); frame.type != FL_AGENT_EXITED;
         frame = receive(socket)) {
        n_looked += frame.type == FL_AGENT_LOOKED;
    }
    assert_in_range(n_looked, 1, LOOKS / 2); /* the others were merged: the socket was full */
    end_bare(socket, agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_agent__leaves_a_worker_behind_that_does_not_end,
                                        agent_rig_set_up, agent_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_agent__refuses_frames_that_make_no_sense,
                                        agent_rig_set_up, agent_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_agent__starts_a_rank_again, agent_rig_set_up,
                                        agent_rig_tear_down),
        cmocka_unit_test_setup_teardown(test_agent__never_waits_for_a_reader, agent_rig_set_up,
                                        agent_rig_tear_down),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* adopts what a dead agent or controller leaves */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
